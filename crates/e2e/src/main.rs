//! `keelctl` under another name, built beside the tests that start it.

fn main() -> std::process::ExitCode {
    evenkeel_keelctl::main()
}

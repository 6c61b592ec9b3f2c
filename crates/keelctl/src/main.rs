//! `keelctl`.

fn main() -> std::process::ExitCode {
    evenkeel_keelctl::main()
}

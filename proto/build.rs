//! Compiles the protos in Rust: no protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["admin", "copy", "data", "migrations", "replication"]
        .map(|name| format!("proto/evenkeel/{name}.proto"));
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(&files, ["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}

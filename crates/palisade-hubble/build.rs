//! Generates the types and the servers of Hubble's API from its published definitions, without `protoc`. Those in `proto`
//! are of `github.com/cilium/cilium` v1.18.4, folder `api/v1`, unchanged.

use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const FILES: [&str; 2] = ["observer/observer.proto", "peer/peer.proto"];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    #[allow(
        clippy::disallowed_methods,
        reason = "where a build script writes to is in a variable"
    )]
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    #[allow(
        clippy::disallowed_methods,
        reason = "a build script that ends early runs again"
    )]
    std::fs::write(out.join("hubble.bin"), descriptors.encode_to_vec())?;
    let mut types = prost_build::Config::new();
    types.enable_type_names();
    tonic_prost_build::configure()
        .codec_path("crate::codec::StrictCodec")
        .compile_fds_with_config(descriptors, types)?;
    Ok(())
}

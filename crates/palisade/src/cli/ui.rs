//! The arguments of `palisade ui`.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// The address to serve at. Beyond loopback addresses it needs --token-file.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8088")]
    pub(crate) address: SocketAddr,
    /// The file with the token that the page asks for, of 16 to 512 visible ASCII characters.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

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
    /// Show the flows of a relay, or of an agent by Hubble's API, in place of an agent's socket. Policies and explanations
    /// are not there.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) relay: Option<String>,
    /// The directory with ca.crt, the authority of the relay, and where it asks for a certificate tls.crt and tls.key.
    #[arg(long, value_name = "DIR", requires = "relay")]
    pub(crate) relay_tls_dir: Option<PathBuf>,
    /// The name in the relay's certificate. Default: the host of --relay.
    #[arg(long, value_name = "NAME", requires = "relay_tls_dir")]
    pub(crate) relay_tls_name: Option<String>,
}

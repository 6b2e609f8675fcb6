//! Destination NAT of the host, by the `nft` command, in a table of its own.
//!
//! It is a witness against the agent's own netlink code, as [`super::ip`].

use super::{HOST, Lab, LabError};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

const TABLE: &str = "inet lab_nat";

/// From now on the host translates the destination of packets of this protocol (`tcp`, `udp`) to `sent_to` into
/// `to`, and of no others.
///
/// # Errors
/// If the kernel refuses.
pub fn translate_destination(
    lab: &Lab,
    protocol: &str,
    sent_to: SocketAddr,
    to: SocketAddr,
) -> Result<(), LabError> {
    let (family, target) = match to.ip() {
        IpAddr::V4(v4) => ("ip", v4.to_string()),
        IpAddr::V6(v6) => ("ip6", format!("[{v6}]")),
    };
    let (address, port) = (sent_to.ip(), sent_to.port());
    let script = format!(
        "add table {TABLE}\n\
         add chain {TABLE} in {{ type nat hook prerouting priority dstnat; }}\n\
         flush chain {TABLE} in\n\
         add rule {TABLE} in {family} daddr {address} {protocol} dport {port} dnat {family} to {target}:{}\n",
        to.port()
    );
    let namespace = lab.namespace_name(HOST);
    let failed = |said: String| LabError::Configure {
        namespace: namespace.to_owned(),
        commands: script.clone(),
        said,
    };
    #[allow(
        clippy::disallowed_methods,
        reason = "the lab is a test's witness, independent of the agent's netlink"
    )]
    let output = Command::new("ip")
        .args(["netns", "exec", namespace, "nft", &script])
        .output()
        .map_err(|error| failed(format!("starting nft: {error}")))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }
}

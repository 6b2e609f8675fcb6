//! Hubble: where the flows of this host are served to `hubble`, `hubble-relay` and what else reads them, which metrics count
//! them, and which logs have them.

use crate::section::{Section, section};
use crate::source::Contradictions;
use crate::value_parser::{optional_path, optional_text, socket_address};
use std::net::SocketAddr;
use std::path::PathBuf;

section! {
    /// Hubble's API, which serves flows to the programs made for it.
    pub struct HubbleApiConfig: "Hubble's API";

    /// The unix socket of Hubble's API, such as /run/palisade/hubble.sock, with group and mode of the API's socket.
    socket: Option<PathBuf> = "hubble-socket", optional_path(), "", "PATH", Restart;

    /// The address of Hubble's API for relays, such as 10.0.0.1:4244. Beyond loopback it needs
    /// hubble-tls-dir.
    address: Option<SocketAddr> =
        "hubble-address", socket_address(), "", "ADDRESS:PORT", Restart;

    /// The directory with tls.crt and tls.key of hubble-address and ca.crt of its clients, as a Secret is mounted;
    /// empty: no TLS.
    tls_dir: Option<PathBuf> = "hubble-tls-dir", optional_path(), "", "DIR", Restart;

    /// The metrics of flows, in the words of Cilium's hubble-metrics, such as drop:sourceContext=pod tcp.
    metrics: Option<String> = "hubble-metrics", optional_text(), "", "METRIC …", Restart;

    /// The file that defines logs of flows, as Cilium's hubble-flowlogs-config-path.
    flow_logs: Option<PathBuf> = "hubble-flow-logs", optional_path(), "", "PATH", Restart;
}

impl HubbleApiConfig {
    /// Whether anything is served.
    pub fn is_served(&self) -> bool {
        self.socket.is_some() || self.address.is_some()
    }

    /// Whether flows are counted or logged.
    pub fn is_consumed(&self) -> bool {
        self.metrics.is_some() || self.flow_logs.is_some()
    }

    /// Adds the parameters that are not used, those that are missing, and an address that everybody could read.
    pub(crate) fn find_contradictions(
        &self,
        follows_flows: bool,
        contradictions: &mut Contradictions<'_>,
    ) {
        for name in [
            "hubble-socket",
            "hubble-address",
            "hubble-metrics",
            "hubble-flow-logs",
        ] {
            if !follows_flows && contradictions.is_set(Self::TABLE.parameters, name) {
                let reason =
                    format!("there are no flows for it; set flows to on, or remove {name}");
                contradictions.add(name, "flows", reason);
            }
        }
        match (self.address, &self.tls_dir) {
            (None, Some(_)) => {
                let reason =
                    "the directory is not used; set hubble-address, or remove hubble-tls-dir";
                contradictions.add("hubble-tls-dir", "hubble-address", reason.to_owned());
            }
            (Some(address), None) if !address.ip().is_loopback() => {
                let reason = format!(
                    "{address} is served to those who have a certificate only; set hubble-tls-dir"
                );
                contradictions.add("hubble-address", "hubble-tls-dir", reason);
            }
            (None | Some(_), _) => {}
        }
    }
}

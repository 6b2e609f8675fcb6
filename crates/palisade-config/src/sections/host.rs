//! Host endpoints: what no policy can close, and their audit.

use crate::section::section;
use crate::value_parser::{boolean, failsafe_ports};
use palisade_model::{FailsafePort, FailsafePorts};

section! {
    /// Host endpoints: what no policy can close, and their audit.
    pub struct HostConfig: "Host endpoints";

    /// Ports of this host that no policy of a host endpoint can close, some with the clients' network. Empty is an error.
    failsafe_inbound: Vec<FailsafePort> =
        "failsafe-inbound-ports", failsafe_ports(),
        "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667",
        "PROTOCOL:[CIDR:]PORT,…|none", Restart;

    /// Ports that this host can always connect to, whatever policies of its host endpoints say, some with the
    /// servers' network. Empty is an error.
    failsafe_outbound: Vec<FailsafePort> =
        "failsafe-outbound-ports", failsafe_ports(),
        "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667",
        "PROTOCOL:[CIDR:]PORT,…|none", Restart;

    /// Whether every host endpoint of this host is in audit: nothing is denied there, and what would be is counted
    /// and reported.
    policy_audit: bool = "host-policy-audit", boolean(), "false", "true|false", Restart;
}

impl HostConfig {
    /// The flows of this host that no policy can deny.
    pub fn failsafe(&self) -> FailsafePorts {
        FailsafePorts {
            inbound: self.failsafe_inbound.clone(),
            outbound: self.failsafe_outbound.clone(),
        }
    }
}

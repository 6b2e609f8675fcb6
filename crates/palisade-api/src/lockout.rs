//! Warnings that a change of policy would lock people out of a host, or the host out of its API server.

use crate::DecisionReport;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

/// What a change would cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostAccess {
    /// The session by which the user came.
    Session,
    /// SSH from every address that could connect before.
    Ssh,
    /// The connection of the host to an API server.
    ApiServer,
}

/// A connection that a host allows now and would deny.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockoutReport {
    /// What would be cut.
    pub access: HostAccess,
    /// The node of the host.
    pub node: String,
    /// The interface where it would be denied; `*` for every one that no other host endpoint governs.
    pub interface: String,
    /// The client of the session, or the API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// The destination port, of TCP.
    pub port: u16,
    /// What denies it.
    pub decided_by: DecisionReport,
}

impl Display for LockoutReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let LockoutReport {
            node,
            interface,
            port,
            ..
        } = self;
        let peer = self.peer.map(|peer| peer.to_string()).unwrap_or_default();
        match self.access {
            HostAccess::Session => write!(f, "would cut your session from {peer}: ")?,
            HostAccess::Ssh => write!(f, "would cut SSH from everywhere: ")?,
            HostAccess::ApiServer => write!(f, "would cut the API server {peer}: ")?,
        }
        let (preposition, parameter) = match self.access {
            HostAccess::Session | HostAccess::Ssh => ("to", "--failsafe-inbound-ports"),
            HostAccess::ApiServer => ("from", "--failsafe-outbound-ports"),
        };
        write!(
            f,
            "TCP {port} {preposition} host:{node} ({interface}) is denied by "
        )?;
        match &self.decided_by {
            DecisionReport::Rule(rule) => f.write_str(&rule.qualified())?,
            DecisionReport::TierDefault { tier, isolating } => {
                write!(f, "the default of tier {tier}, which applies because of")?;
                for (at, policy) in isolating.iter().enumerate() {
                    write!(f, "{} {policy}", if at == 0 { "" } else { "," })?;
                }
            }
            DecisionReport::MissingProfile { profile } => {
                write!(f, "the profile {profile}, which does not exist")?;
            }
            _ => f.write_str("the host endpoint, which no policy or profile opens for it")?,
        }
        write!(
            f,
            "; add a rule that allows it, or tcp:{port} to {parameter}, or begin with --host-policy-audit"
        )
    }
}

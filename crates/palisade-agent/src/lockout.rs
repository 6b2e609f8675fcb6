//! TCP connections of this host that a change of policy cuts, told before the kernel enforces it.
//!
//! A host policy may cut the session that it is applied from, or the agent from its API server. Promises: only a
//! connection that the tables before the change allowed, and those after it deny, is named; each change is told in
//! one warning. Never: delays or changes what is enforced.

use palisade_model::{Direction, L4, Object, ObjectKey, Protocol, Str, Update};
use palisade_tables::{Credit, DirectionVerdict, Packet, Tables};
use std::fmt;
use std::net::SocketAddr;

/// The greatest number of connections that a warning names.
const NAMED: usize = 5;

/// An established TCP connection of this host's own stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConnection {
    /// The end of this host.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Whether the other end opened it.
    pub is_inbound: bool,
    /// The interface by which its packets leave.
    pub interface: Str,
}

impl fmt::Display for TcpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TcpConnection {
            local,
            remote,
            is_inbound,
            interface,
        } = self;
        match is_inbound {
            true => write!(f, "{remote} to {local} by {interface}"),
            false => write!(f, "{local} to {remote} by {interface}"),
        }
    }
}

impl TcpConnection {
    fn direction(&self) -> Direction {
        match self.is_inbound {
            true => Direction::Ingress,
            false => Direction::Egress,
        }
    }

    /// The first packet.
    fn packet(&self) -> Packet {
        let (source, destination) = match self.is_inbound {
            true => (self.remote, self.local),
            false => (self.local, self.remote),
        };
        Packet {
            input_interface: self.is_inbound.then(|| self.interface.clone()),
            output_interface: (!self.is_inbound).then(|| self.interface.clone()),
            source: source.ip(),
            destination: destination.ip(),
            pre_dnat: None,
            protocol: Protocol::TCP,
            l4: L4::Ports {
                source: source.port(),
                destination: destination.port(),
            },
        }
    }

    fn judge<'t>(&self, tables: &'t Tables) -> DirectionVerdict<'t> {
        tables.judge_host(&self.packet(), self.direction())
    }
}

/// A connection that a change cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutConnection<'a> {
    /// The connection.
    pub connection: &'a TcpConnection,
    /// What denies it, in words.
    pub cause: String,
}

/// The connections that `before` allows and `after` denies.
pub fn find_cut<'a>(
    before: &Tables,
    after: &Tables,
    connections: &'a [TcpConnection],
) -> Vec<CutConnection<'a>> {
    let cut = connections.iter().filter_map(|connection| {
        let denied = connection.judge(after);
        let is_cut = connection.judge(before).verdict().passes() && !denied.verdict().passes();
        is_cut.then(|| CutConnection {
            connection,
            cause: cause(after, &denied),
        })
    });
    cut.collect()
}

fn cause(tables: &Tables, denied: &DirectionVerdict<'_>) -> String {
    let DirectionVerdict::Evaluated(seen) = denied else {
        return "no policy of the interface is known".to_owned();
    };
    let last = seen
        .cell
        .hits
        .last()
        .and_then(|rule| tables.rules.get(rule));
    match last.map(|credit| &**credit) {
        Some(Credit::Rule { policy, origin, .. }) => {
            format!("rule {} of {}", origin.index, policy.object)
        }
        Some(Credit::ProfileRule { profile, .. }) => format!("profile {profile}"),
        _ => "no rule allows it".to_owned(),
    }
}

/// Whether an update may change what a host endpoint allows. What others are labelled is left out: it changes peers,
/// and comes with every workload.
pub(crate) fn changes_host_policy(update: &Update) -> bool {
    match update {
        Update::Upsert(object) => match object {
            Object::Endpoint(endpoint) => endpoint.host,
            Object::Tier(_) | Object::Policy(_) | Object::Profile(_) | Object::NetworkSet(_) => {
                true
            }
            _ => false,
        },
        Update::Delete(key) => matches!(
            key,
            ObjectKey::Tier(_)
                | ObjectKey::Policy(_)
                | ObjectKey::Profile(_)
                | ObjectKey::NetworkSet(_)
        ),
    }
}

/// Warns of the connections that a change cuts.
pub(crate) fn warn_of_cut(before: &Tables, after: &Tables, connections: &[TcpConnection]) {
    let cut = find_cut(before, after, connections);
    if cut.is_empty() {
        return;
    }
    let named: Vec<String> = cut
        .iter()
        .take(NAMED)
        .map(|CutConnection { connection, cause }| format!("{connection} ({cause})"))
        .collect();
    tracing::warn!(
        connections = cut.len(),
        "this change of host policy cuts {} TCP connections of this host: {}{}; to see what it would deny first, use \
         host-policy-audit or the annotation palisade.dev/mode: audit; what must always be open belongs to the failsafe \
         ports",
        cut.len(),
        named.join(", "),
        if cut.len() > NAMED { ", …" } else { "" },
    );
}

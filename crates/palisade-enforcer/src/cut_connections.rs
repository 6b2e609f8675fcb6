//! TCP connections of this host that a change of policy cuts: a warning, by a thread of its own.
//!
//! A host policy may cut the session that it is applied from, or the agent from its API server. Promises: only a
//! connection that the tables before the change allowed, and those after it deny, is named; each change is one warning.
//! Never: delays or changes what is enforced.

use crate::policy_state::SharedPolicy;
use palisade_model::{Direction, L4, Object, ObjectKey, Protocol, Str, Update};
use palisade_sys::link::LinkError;
use palisade_tables::{DirectionVerdict, Packet, PastTables, VerdictCause};
use palisade_text::error_chain;
use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The greatest number of connections that a warning names.
const NAMED: usize = 5;
/// The greatest number of changes that wait for the thread; of more at once the rest is not examined.
const MAX_WAITING: usize = 16;

/// Why the connections of this host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionsError {
    /// The kernel does not list them.
    #[error("reading the TCP connections of this host")]
    Sockets(#[source] procfs::ProcError),
    /// The interface of one cannot be found.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Reads the TCP connections of this host.
pub trait ConnectionReader: Send {
    /// The established TCP connections of this host's own stack, but for those within it.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn tcp_connections(&mut self) -> Result<Vec<TcpConnection>, ConnectionsError>;
}

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
        if self.is_inbound {
            Direction::Ingress
        } else {
            Direction::Egress
        }
    }

    /// The first packet.
    fn packet(&self) -> Packet {
        let (source, destination) = if self.is_inbound {
            (self.remote, self.local)
        } else {
            (self.local, self.remote)
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

    fn judge<'t>(&self, tables: &'t PastTables<'_>) -> DirectionVerdict<'t> {
        tables.judge_host(&self.packet(), self.direction())
    }
}

/// A connection that a change cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutConnection<'a> {
    /// The connection.
    pub connection: &'a TcpConnection,
    /// What denies it, in words.
    pub cause: String,
}

/// The connections that `before` allows and `after` denies.
pub(crate) fn find_cut<'a>(
    before: &PastTables<'_>,
    after: &PastTables<'_>,
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

fn cause(tables: &PastTables<'_>, denied: &DirectionVerdict<'_>) -> String {
    let DirectionVerdict::Evaluated(seen) = denied else {
        return "no policy of the interface is known".to_owned();
    };
    let last = seen.cell.causes.last().and_then(|rule| tables.rule(*rule));
    match last.map(|cause| &**cause) {
        Some(VerdictCause::Rule { policy, origin, .. }) => {
            format!("rule {} of {}", origin.index, policy.object)
        }
        Some(VerdictCause::ProfileRule { profile, .. }) => format!("profile {profile}"),
        _ => "no rule allows it".to_owned(),
    }
}

/// Whether an update may change what a host endpoint allows. What others are labelled is left out: it changes peers,
/// and comes with every workload.
pub(crate) fn changes_host_policy(update: &Update) -> bool {
    match update {
        Update::Upsert(object) => match object {
            Object::Endpoint(endpoint) => endpoint.is_host(),
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

/// The changes of host policy for the thread that examines them.
pub struct HostPolicyChanges(SyncSender<u64>);

impl HostPolicyChanges {
    /// Both ends.
    pub fn channel() -> (HostPolicyChanges, Receiver<u64>) {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        (HostPolicyChanges(sender), receiver)
    }

    /// A flush that may change what host endpoints allow has begun; it replaces this revision.
    pub fn send(&self, replaced: u64) {
        // Policy does not wait for a warning.
        let _ = self.0.try_send(replaced);
    }
}

/// Starts the thread that warns of the connections that changes cut, until the core ends; `None` if it cannot be
/// started.
pub fn start(
    view: SharedPolicy,
    mut reader: Box<dyn ConnectionReader>,
) -> Option<HostPolicyChanges> {
    let (changes, received) = HostPolicyChanges::channel();
    let thread = std::thread::Builder::new().name("cut-connections".to_owned());
    match thread.spawn(move || watch(&received, &view, &mut *reader)) {
        Ok(_) => Some(changes),
        Err(error) => {
            tracing::warn!(%error, "starting a thread failed; connections that a change of host policy cuts are not reported");
            None
        }
    }
}

/// Warns of the connections that each change cuts.
fn watch(changes: &Receiver<u64>, view: &SharedPolicy, reader: &mut dyn ConnectionReader) {
    for replaced in changes {
        if !view.read().tables().judges_host() {
            continue;
        }
        match reader.tcp_connections() {
            Ok(connections) => warn_of_cut(view, replaced, &connections),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "reading the TCP connections of this host failed; those that this change of host policy cuts are not known");
            }
        }
    }
}

/// Warns of the connections that the flush cuts that replaced a revision.
fn warn_of_cut(view: &SharedPolicy, replaced: u64, connections: &[TcpConnection]) {
    let state = view.read();
    // Later flushes may have displaced it.
    let Some((before, after)) = state.history.flush_of(state.tables(), replaced) else {
        return;
    };
    let cut = find_cut(&before, &after, connections);
    if cut.is_empty() {
        return;
    }
    let named: Vec<String> = cut
        .iter()
        .take(NAMED)
        .map(|CutConnection { connection, cause }| format!("{connection} ({cause})"))
        .collect();
    let count = cut.len();
    drop(state);
    tracing::warn!(
        connections = count,
        "this change of host policy cuts {count} TCP connections of this host: {}{}; to see what it would deny first, use \
         host-policy-audit or the annotation palisade.dev/mode: audit; what must always be open belongs to the failsafe \
         ports",
        named.join(", "),
        if count > NAMED { ", …" } else { "" },
    );
}

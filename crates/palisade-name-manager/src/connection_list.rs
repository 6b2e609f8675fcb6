//! Which connections there are, read by a thread of its own: an address that one uses stays.
//!
//! Promises: the core never waits for the kernel's list. Never: changes a connection.

use palisade_sys::conntrack::{Conntrack, KernelConntrack};
use palisade_sys::netns::NetNs;
use palisade_text::error_chain;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The connections that were open at one time: source, and destination behind destination NAT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSnapshot(BTreeSet<(IpAddr, IpAddr)>);

impl ConnectionSnapshot {
    /// These connections.
    pub fn new(connections: impl IntoIterator<Item = (IpAddr, IpAddr)>) -> Self {
        ConnectionSnapshot(connections.into_iter().collect())
    }

    /// Whether there is one from `source` to `destination`.
    pub fn has(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.0.contains(&(source, destination))
    }
}

/// Asks for the list.
#[derive(Clone, Debug)]
pub struct ConnectionQuery(SyncSender<()>);

impl ConnectionQuery {
    /// Both ends of the queue: of several questions that wait one is answered.
    pub fn channel() -> (ConnectionQuery, Receiver<()>) {
        let (sender, receiver) = sync_channel(1);
        (ConnectionQuery(sender), receiver)
    }

    /// Asks; the answer comes by the function that the thread was given.
    pub fn ask(&self) {
        // One that waits already is the same.
        let _ = self.0.try_send(());
    }
}

/// Answers questions until nobody asks any more, or `send` returns false. A list that cannot be read is not sent, so
/// every address stays.
pub fn serve_queries(
    questions: &Receiver<()>,
    netns: &NetNs,
    send: impl Fn(ConnectionSnapshot) -> bool,
) {
    while questions.recv().is_ok() {
        match read(netns) {
            Ok(list) => {
                if !send(list) {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(error, "listing connections failed; addresses of names stay");
            }
        }
    }
}

fn read(netns: &NetNs) -> Result<ConnectionSnapshot, String> {
    let mut conntrack = KernelConntrack::open(netns).map_err(|error| error_chain(&error))?;
    let entries = conntrack.entries(&palisade_sys::conntrack::ConntrackFilter::default());
    let entries = entries.map_err(|error| error_chain(&error))?.into_iter();
    let ends = entries.flat_map(|entry| {
        let source = entry.original.source;
        [
            (source, entry.original.destination),
            (source, entry.reply.source),
        ]
    });
    Ok(ConnectionSnapshot::new(ends))
}

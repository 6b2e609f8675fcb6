//! The threads that read the answers which the proxy offers, and what it counts.
//!
//! Promises: each offer is passed on once, with what confirms it; a connection that sends something else is closed,
//! and the next is accepted. Never: judges an offer.

use crate::proxy_totals::ProxyTotals;
use palisade_proxy::{
    AnswerConnection, AnswerLinkError, AnswerListener, AnswerOffer, ProxyCounts, ProxyMessage,
};
use palisade_text::error_chain;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// An answer of the proxy, which waits.
#[derive(Debug)]
pub struct OfferedAnswer {
    /// The answer.
    pub offer: AnswerOffer,
    /// What releases it.
    pub confirmation: Confirmation,
}

/// Releases one answer.
#[derive(Clone, Debug)]
pub struct Confirmation {
    connection: Arc<Mutex<AnswerConnection>>,
    id: u64,
}

impl Confirmation {
    /// Tells the proxy that the addresses are in force, or will not be.
    pub fn confirm(self) {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A proxy that is gone offers it again.
        let _ = connection.confirm(self.id);
    }
}

/// The proxies that are connected, and what all have counted, for the status and the metrics.
#[derive(Clone, Debug, Default)]
pub struct ProxyConnections {
    open: Arc<Mutex<Vec<SharedConnection>>>,
    totals: Arc<Mutex<ProxyTotals>>,
}

/// The end of a connection by which a proxy is told.
type SharedConnection = Arc<Mutex<AnswerConnection>>;

impl ProxyConnections {
    /// How many are connected.
    pub fn count(&self) -> usize {
        self.open().len()
    }

    /// What all proxies have counted, as they reported it to this agent.
    pub fn counts(&self) -> ProxyCounts {
        *self.totals().counts()
    }

    /// Tells each that what was confirmed for a client may be in force no longer.
    pub(crate) fn withdraw(&self, client: IpAddr) {
        for connection in self.open().iter() {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            // A proxy that is gone remembers nothing.
            let _ = connection.withdraw(client);
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<SharedConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn totals(&self) -> MutexGuard<'_, ProxyTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place among those of the proxies, while it is read.
struct ConnectionEntry<'a> {
    connections: &'a ProxyConnections,
    connection: &'a SharedConnection,
}

impl<'a> ConnectionEntry<'a> {
    fn add(connections: &'a ProxyConnections, connection: &'a SharedConnection) -> Self {
        connections.open().push(Arc::clone(connection));
        ConnectionEntry {
            connections,
            connection,
        }
    }
}

impl Drop for ConnectionEntry<'_> {
    fn drop(&mut self) {
        let is_other = |other: &SharedConnection| !Arc::ptr_eq(other, self.connection);
        self.connections.open().retain(is_other);
    }
}

/// Accepts the proxy's connections, and passes on what they offer; `send` returns false when nobody takes it any more.
#[allow(
    clippy::disallowed_methods,
    reason = "without descriptors each attempt fails at once"
)]
pub fn follow_answers(
    listener: &AnswerListener,
    connections: &ProxyConnections,
    send: impl Fn(OfferedAnswer) -> bool + Clone + Send + 'static,
) -> Result<(), Infallible> {
    loop {
        match listener.accept() {
            Ok(connection) => serve(connection, connections.clone(), send.clone()),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "accepting the DNS proxy's connection failed");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Serves a connection by a thread of its own, which ends with it.
fn serve(
    connection: AnswerConnection,
    connections: ProxyConnections,
    send: impl Fn(OfferedAnswer) -> bool + Send + 'static,
) {
    let read = move || match read_messages(connection, &connections, send) {
        Ok(()) => tracing::info!("the DNS proxy closed its connection"),
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "the DNS proxy's connection failed");
        }
    };
    let thread = std::thread::Builder::new().name("dns-answers".to_owned());
    if let Err(error) = thread.spawn(read) {
        tracing::warn!(%error, "starting the thread of a DNS proxy's connection failed");
    }
}

fn read_messages(
    mut reader: AnswerConnection,
    connections: &ProxyConnections,
    send: impl Fn(OfferedAnswer) -> bool,
) -> Result<(), AnswerLinkError> {
    let writer = Arc::new(Mutex::new(reader.try_clone()?));
    let _entry = ConnectionEntry::add(connections, &writer);
    tracing::info!("the DNS proxy is connected");
    while let Some(message) = reader.read()? {
        let offer = match message {
            ProxyMessage::Offer(offer) => offer,
            ProxyMessage::Report(report) => {
                connections.totals().add(*report);
                continue;
            }
        };
        let confirmation = Confirmation {
            connection: Arc::clone(&writer),
            id: offer.id,
        };
        if !send(OfferedAnswer {
            offer,
            confirmation,
        }) {
            break;
        }
    }
    Ok(())
}

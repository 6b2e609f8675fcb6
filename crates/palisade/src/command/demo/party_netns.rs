//! The network namespace of a party: serves TCP and UDP, runs probes, and keeps long connections busy.
//!
//! One thread inside the namespace does all of it; dropping [`PartyNetns`] ends the thread and its sockets.

use super::probe::{ProbeTarget, exchange, is_answered};
use super::shop::ShopParty;
use crate::exit::CommandError;
use palisade_agent::clock::{Clock, SystemClock};
use palisade_sys::netns::{NetNs, run_in};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Interval between two messages on a long connection.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of a command to the thread; each probe has its own timeout.
const ORDER_TIMEOUT: Duration = Duration::from_secs(20);

/// A party and the thread in its network namespace.
pub(super) struct PartyNetns {
    /// The party.
    pub(super) party: ShopParty,
    /// Its addresses.
    pub(super) addresses: Vec<IpAddr>,
    commands: Option<UnboundedSender<PartyCommand>>,
    thread: Option<JoinHandle<()>>,
}

enum PartyCommand {
    Try(Vec<ProbeTarget>, Sender<Vec<io::Result<bool>>>),
    Hold(SocketAddr, Arc<ConnectionMonitor>, Sender<io::Result<()>>),
}

/// Observed state of a long connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionMonitor(Mutex<ReplyStats>);

/// Statistics of a long connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplyStats {
    /// Bytes received.
    pub(super) count: u64,
    /// Time of the last reply.
    pub(super) last: Option<Instant>,
    /// Longest interval between two replies.
    pub(super) gap: Duration,
}

impl ConnectionMonitor {
    /// The present statistics.
    pub(super) fn stats(&self) -> ReplyStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_reply(&self) {
        let now = SystemClock.monotonic();
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = beats.last {
            beats.gap = beats.gap.max(now - last);
        }
        beats.count += 1;
        beats.last = Some(now);
    }
}

impl PartyNetns {
    /// Starts the servers inside a network namespace that has the party's addresses.
    pub(super) fn open(
        party: ShopParty,
        addresses: Vec<IpAddr>,
        netns: NetNs,
    ) -> Result<Self, CommandError> {
        let (orders, incoming) = unbounded_channel();
        let (ready, is_ready) = channel();
        let thread = std::thread::Builder::new()
            .name(party.name.to_owned())
            .spawn(move || {
                let failed = ready.clone();
                // An error before the namespace is entered must be reported as well.
                if let Err(error) = run_in(&netns, || run_party(party, incoming, &ready)) {
                    let _ = failed.send(Err(io::Error::other(error)));
                }
            })
            .map_err(|error| {
                CommandError::problem(format!("starting a thread for {}: {error}", party.name))
            })?;
        let place = PartyNetns {
            party,
            addresses,
            commands: Some(orders),
            thread: Some(thread),
        };
        place
            .receive_answer(&is_ready, "opening its ports")?
            .map_err(|error| place.failure("opening its ports", &error))?;
        Ok(place)
    }

    /// Starts probes; the results arrive in the same order.
    pub(super) fn attempt(&self, targets: Vec<ProbeTarget>) -> Receiver<Vec<io::Result<bool>>> {
        let (answer, answered) = channel();
        self.send_command(PartyCommand::Try(targets, answer));
        answered
    }

    /// Waits for the results.
    pub(super) fn receive_outcomes(
        &self,
        answered: &Receiver<Vec<io::Result<bool>>>,
    ) -> Result<Vec<bool>, CommandError> {
        let outcomes = self.receive_answer(answered, "sending packets")?;
        outcomes
            .into_iter()
            .collect::<io::Result<_>>()
            .map_err(|error| self.failure("sending packets", &error))
    }

    /// Opens a connection and keeps it busy for the lifetime of this value.
    pub(super) fn open_connection(
        &self,
        to: SocketAddr,
    ) -> Result<Arc<ConnectionMonitor>, CommandError> {
        let pulse = Arc::new(ConnectionMonitor::default());
        let (answer, answered) = channel();
        self.send_command(PartyCommand::Hold(to, Arc::clone(&pulse), answer));
        self.receive_answer(&answered, "connecting")?
            .map_err(|error| self.failure(&format!("connecting to {to}"), &error))?;
        Ok(pulse)
    }

    /// The party's address of this IP version.
    pub(super) fn address(&self, v4: bool) -> Option<IpAddr> {
        self.addresses
            .iter()
            .copied()
            .find(|address| address.is_ipv4() == v4)
    }

    fn send_command(&self, order: PartyCommand) {
        if let Some(orders) = &self.commands {
            // If the thread has ended, the caller sees it when it waits for the result.
            let _ = orders.send(order);
        }
    }

    fn receive_answer<T>(&self, answered: &Receiver<T>, doing: &str) -> Result<T, CommandError> {
        answered.recv_timeout(ORDER_TIMEOUT).map_err(|_| {
            CommandError::problem(format!("{doing} in {}: timed out", self.party.name))
        })
    }

    fn failure(&self, doing: &str, error: &io::Error) -> CommandError {
        CommandError::problem(format!("{doing} in {}: {error}", self.party.name))
    }
}

impl Drop for PartyNetns {
    fn drop(&mut self) {
        // Closing the command channel ends the thread and its sockets.
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Body of the thread inside the namespace.
fn run_party(
    party: ShopParty,
    mut orders: UnboundedReceiver<PartyCommand>,
    ready: &Sender<io::Result<()>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    runtime.block_on(async {
        let served = serve(party).await;
        let serves = served.is_ok();
        if ready.send(served).is_err() || !serves {
            return;
        }
        let mut number = 0_u16;
        while let Some(order) = orders.recv().await {
            match order {
                PartyCommand::Try(targets, answer) => {
                    let _ = answer.send(try_all(targets, &mut number).await);
                }
                PartyCommand::Hold(to, pulse, answer) => match TcpStream::connect(to).await {
                    Ok(stream) => {
                        tokio::spawn(exchange_until_closed(stream, pulse));
                        let _ = answer.send(Ok(()));
                    }
                    Err(error) => drop(answer.send(Err(error))),
                },
            }
        }
    });
}

async fn try_all(targets: Vec<ProbeTarget>, number: &mut u16) -> Vec<io::Result<bool>> {
    let mut running = JoinSet::new();
    let count = targets.len();
    for (at, target) in targets.into_iter().enumerate() {
        *number = number.wrapping_add(1);
        let number = *number;
        running.spawn(async move { (at, is_answered(target, number).await) });
    }
    let mut outcomes: Vec<io::Result<bool>> = (0..count)
        .map(|_| Err(io::Error::other("not tried")))
        .collect();
    while let Some(ended) = running.join_next().await {
        if let Ok((at, outcome)) = ended {
            outcomes[at] = outcome;
        }
    }
    outcomes
}

async fn exchange_until_closed(stream: TcpStream, pulse: Arc<ConnectionMonitor>) {
    let mut tick = tokio::time::interval(HEARTBEAT_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Ends with the connection; the monitor then shows silence.
    while exchange(&stream).await.is_ok() {
        pulse.record_reply();
        tick.tick().await;
    }
}

/// Serves IPv4 and, if available, IPv6, with one socket each.
async fn serve(party: ShopParty) -> io::Result<()> {
    let any = match TcpListener::bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)).await {
        Ok(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        Err(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
    };
    let listener = TcpListener::bind(SocketAddr::new(any, party.tcp)).await?;
    let datagrams = UdpSocket::bind(SocketAddr::new(any, party.udp)).await?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(echo(stream));
        }
    });
    tokio::spawn(async move {
        let mut buffer = [0; 64];
        // An ICMP error caused by an earlier reply is returned here; it is ignored.
        loop {
            if let Ok((length, from)) = datagrams.recv_from(&mut buffer).await {
                let _ = datagrams.send_to(&buffer[..length], from).await;
            }
        }
    });
    Ok(())
}

/// Echoes data until the peer closes.
async fn echo(stream: TcpStream) {
    let mut buffer = [0; 64];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                let written = stream
                    .writable()
                    .await
                    .and_then(|()| stream.try_write(&buffer[..length]));
                if written.is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

//! A network namespace at work: it serves TCP and UDP, answers the demo's orders to try others, and
//! keeps long connections alive.
//!
//! One thread inside the namespace does all of it; when the [`Place`] goes, so do the thread and every
//! socket it had.

use super::probe::{Target, answers, exchange};
use super::shop::Party;
use crate::exit::Failure;
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

/// How often a long connection says something.
const PULSE: Duration = Duration::from_millis(10);
/// How long a place may take to answer an order; each attempt in it has a limit of its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// A party with its network namespace.
pub(super) struct Place {
    /// Who is there.
    pub(super) party: Party,
    /// Its addresses.
    pub(super) addresses: Vec<IpAddr>,
    orders: Option<UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Try(Vec<Target>, Sender<Vec<io::Result<bool>>>),
    Hold(SocketAddr, Arc<Pulse>, Sender<io::Result<()>>),
}

/// How a long connection is.
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<Beats>);

/// What is known of a long connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beats {
    /// Bytes that came back.
    pub(super) count: u64,
    /// When the last one did.
    pub(super) last: Option<Instant>,
    /// The longest time between two of them.
    pub(super) gap: Duration,
}

impl Pulse {
    /// What is known by now.
    pub(super) fn beats(&self) -> Beats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let now = SystemClock.monotonic();
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = beats.last {
            beats.gap = beats.gap.max(now - last);
        }
        beats.count += 1;
        beats.last = Some(now);
    }
}

impl Place {
    /// Starts serving inside a network namespace that has its addresses.
    pub(super) fn open(
        party: Party,
        addresses: Vec<IpAddr>,
        netns: NetNs,
    ) -> Result<Self, Failure> {
        let (orders, incoming) = unbounded_channel();
        let (ready, is_ready) = channel();
        let thread = std::thread::Builder::new()
            .name(party.name.to_owned())
            .spawn(move || {
                let failed = ready.clone();
                // What went wrong before the namespace was entered must be told as well.
                if let Err(error) = run_in(&netns, || work(party, incoming, &ready)) {
                    let _ = failed.send(Err(io::Error::other(error)));
                }
            })
            .map_err(|error| Failure::found(format!("a thread for {}: {error}", party.name)))?;
        let place = Place {
            party,
            addresses,
            orders: Some(orders),
            thread: Some(thread),
        };
        place
            .answer(&is_ready, "opening its ports")?
            .map_err(|error| place.failure("opening its ports", &error))?;
        Ok(place)
    }

    /// Asks for attempts; the answers come in their order.
    pub(super) fn attempt(&self, targets: Vec<Target>) -> Receiver<Vec<io::Result<bool>>> {
        let (answer, answered) = channel();
        self.order(Order::Try(targets, answer));
        answered
    }

    /// Waits for the answers.
    pub(super) fn outcome(
        &self,
        answered: &Receiver<Vec<io::Result<bool>>>,
    ) -> Result<Vec<bool>, Failure> {
        let outcomes = self.answer(answered, "sending packets")?;
        outcomes
            .into_iter()
            .collect::<io::Result<_>>()
            .map_err(|error| self.failure("sending packets", &error))
    }

    /// Opens a connection and keeps it busy for as long as this place is there.
    pub(super) fn hold(&self, to: SocketAddr) -> Result<Arc<Pulse>, Failure> {
        let pulse = Arc::new(Pulse::default());
        let (answer, answered) = channel();
        self.order(Order::Hold(to, Arc::clone(&pulse), answer));
        self.answer(&answered, "connecting")?
            .map_err(|error| self.failure(&format!("connecting to {to}"), &error))?;
        Ok(pulse)
    }

    /// Its address of the family of `like`.
    pub(super) fn address(&self, v4: bool) -> Option<IpAddr> {
        self.addresses
            .iter()
            .copied()
            .find(|address| address.is_ipv4() == v4)
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // A place that has ended answers nothing, which is told where the answer is awaited.
            let _ = orders.send(order);
        }
    }

    fn answer<T>(&self, answered: &Receiver<T>, doing: &str) -> Result<T, Failure> {
        answered
            .recv_timeout(PATIENCE)
            .map_err(|_| Failure::found(format!("{doing} in {}: no answer", self.party.name)))
    }

    fn failure(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::found(format!("{doing} in {}: {error}", self.party.name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Without orders to wait for, the thread ends, and its sockets with it.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread inside the namespace does.
fn work(party: Party, mut orders: UnboundedReceiver<Order>, ready: &Sender<io::Result<()>>) {
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
                Order::Try(targets, answer) => {
                    let _ = answer.send(try_all(targets, &mut number).await);
                }
                Order::Hold(to, pulse, answer) => match TcpStream::connect(to).await {
                    Ok(stream) => {
                        tokio::spawn(keep_busy(stream, pulse));
                        let _ = answer.send(Ok(()));
                    }
                    Err(error) => drop(answer.send(Err(error))),
                },
            }
        }
    });
}

async fn try_all(targets: Vec<Target>, number: &mut u16) -> Vec<io::Result<bool>> {
    let mut running = JoinSet::new();
    let count = targets.len();
    for (at, target) in targets.into_iter().enumerate() {
        *number = number.wrapping_add(1);
        let number = *number;
        running.spawn(async move { (at, answers(target, number).await) });
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

async fn keep_busy(stream: TcpStream, pulse: Arc<Pulse>) {
    let mut tick = tokio::time::interval(PULSE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // It ends when the connection does; the pulse then tells.
    while exchange(&stream).await.is_ok() {
        pulse.beat();
        tick.tick().await;
    }
}

/// Serves both families on one socket each, where there is IPv6.
async fn serve(party: Party) -> io::Result<()> {
    let any = match TcpListener::bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)).await {
        Ok(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        Err(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
    };
    let listener = TcpListener::bind(SocketAddr::new(any, party.tcp)).await?;
    let datagrams = UdpSocket::bind(SocketAddr::new(any, party.udp)).await?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(give_back(stream));
        }
    });
    tokio::spawn(async move {
        let mut buffer = [0; 64];
        // An ICMP error about an earlier answer shows up here; it ends nothing.
        loop {
            if let Ok((length, from)) = datagrams.recv_from(&mut buffer).await {
                let _ = datagrams.send_to(&buffer[..length], from).await;
            }
        }
    });
    Ok(())
}

/// Sends back what arrives until the other end closes.
async fn give_back(stream: TcpStream) {
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

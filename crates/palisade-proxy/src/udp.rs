//! Queries over UDP: from the listener to a socket towards the server, and answers back.
//!
//! Promises: a client gets answers only from the server that it asked, from that server's address and port; the sockets
//! towards servers are bounded, and closed when they are idle.
//!
//! Never: waits for one client while another one has sent something.

use crate::answers::MatchedAnswer;
use crate::clock::ProxyClock;
use crate::config::Config;
use crate::counts::SharedCounts;
use crate::query_judge::{QueryJudge, QueryVerdict};
use crate::sockets::open_datagram_socket;
use crate::teacher::AnswerTeacher;
use crate::upstream_table::UpstreamTable;
use palisade_dns::{Exchange, PassedQuery, PendingQueries, Query};
use palisade_model::Protocol;
use palisade_sys::transparent::{DatagramSender, ReceivedDatagram, receive_datagram};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{sleep, timeout};

/// The longest datagram.
const LONGEST_MESSAGE: usize = 65_535;
/// How often queries without an answer are looked for.
const EXPIRY_PERIOD: Duration = Duration::from_secs(1);
/// The pause after a failure of a listening socket, which would repeat at once.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// The proxy of all queries over UDP.
#[derive(Debug)]
pub(crate) struct UdpProxy {
    judge: Rc<QueryJudge>,
    teacher: Rc<AnswerTeacher>,
    clock: ProxyClock,
    counts: SharedCounts,
    upstream_mark: u32,
    sender: DatagramSender,
    pending: RefCell<PendingQueries>,
    sockets: RefCell<UpstreamTable<UpstreamSocket>>,
    /// Where answers are read to; never borrowed while something is waited for.
    buffer: RefCell<Vec<u8>>,
    idle: u64,
    pending_timeout: u64,
}

/// A socket towards a server. Dropping it ends the task that reads its answers.
#[derive(Debug)]
struct UpstreamSocket {
    state: Rc<UpstreamState>,
    task: AbortHandle,
}

#[derive(Debug)]
struct UpstreamState {
    socket: UdpSocket,
    exchange: Exchange,
    /// Queries without an answer, and when the last one was sent, in milliseconds.
    waiting: Cell<u64>,
    last_query: Cell<u64>,
}

impl Drop for UpstreamSocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl UdpProxy {
    /// Without queries and sockets towards servers.
    pub(crate) fn new(
        config: &Config,
        judge: Rc<QueryJudge>,
        teacher: Rc<AnswerTeacher>,
        clock: ProxyClock,
        counts: SharedCounts,
    ) -> io::Result<Self> {
        let limits = &config.limits;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(UdpProxy {
            judge,
            teacher,
            clock,
            counts,
            upstream_mark: config.upstream_mark,
            sender: DatagramSender::open(config.answer_mark)?,
            pending: RefCell::new(PendingQueries::new(limits.pending.clone())),
            sockets: RefCell::new(UpstreamTable::new(limits.upstream.clone())),
            buffer: RefCell::new(vec![0; LONGEST_MESSAGE]),
            idle: milliseconds(limits.upstream.idle),
            pending_timeout: milliseconds(limits.pending.timeout),
        })
    }

    /// Serves the queries of one listening socket, for ever.
    pub(crate) async fn serve(self: Rc<Self>, listener: UdpSocket) {
        let mut buffer = vec![0; LONGEST_MESSAGE];
        loop {
            let receive = || receive_datagram(&listener, &mut buffer);
            match listener.async_io(Interest::READABLE, receive).await {
                Ok(datagram) => {
                    let message = &buffer[..datagram.length];
                    self.receive_query(datagram, message);
                }
                Err(_) => sleep(FAILURE_PAUSE).await,
            }
        }
    }

    /// Whether queries wait for their answer.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.borrow().is_empty()
    }

    /// Forgets queries without an answer, for ever.
    pub(crate) async fn expire_queries(&self) {
        let mut dropped = 0;
        loop {
            sleep(EXPIRY_PERIOD).await;
            let mut pending = self.pending.borrow_mut();
            pending.expire(self.clock.now());
            let newly_dropped = pending.dropped() - dropped;
            dropped = pending.dropped();
            self.counts
                .update(|counts| counts.queries.forgotten += newly_dropped);
        }
    }

    fn receive_query(self: &Rc<Self>, datagram: ReceivedDatagram, message: &[u8]) {
        let arrival = self.clock.elapsed();
        let exchange = Exchange {
            client: datagram.source,
            server: datagram.destination,
        };
        match self.judge.judge(Protocol::UDP, datagram.mark, message) {
            QueryVerdict::Pass(query) => {
                if self.pass_on(exchange, query, message, arrival).is_err() {
                    self.counts.update(|counts| counts.upstream.failed += 1);
                }
            }
            QueryVerdict::Reject(answer) => {
                self.send_answer(exchange, &answer);
            }
            QueryVerdict::Drop => {}
        }
    }

    fn pass_on(
        self: &Rc<Self>,
        exchange: Exchange,
        query: Query,
        message: &[u8],
        arrival: Duration,
    ) -> io::Result<()> {
        let state = self.find_or_open(exchange)?;
        send_query(&state.socket, message)?;
        // The answer may be there already, and is read by another task of this thread.
        let now = self.clock.now();
        state.waiting.set(state.waiting.get() + 1);
        state.last_query.set(now);
        let delay = self.clock.elapsed().saturating_sub(arrival);
        let passed = PassedQuery { query, delay };
        self.pending.borrow_mut().insert(exchange, passed, now);
        Ok(())
    }

    fn find_or_open(self: &Rc<Self>, exchange: Exchange) -> io::Result<Rc<UpstreamState>> {
        if let Some(upstream) = self.sockets.borrow_mut().find(exchange) {
            return Ok(Rc::clone(&upstream.state));
        }
        let state = Rc::new(UpstreamState {
            socket: open_datagram_socket(exchange, self.upstream_mark)?,
            exchange,
            waiting: Cell::new(0),
            last_query: Cell::new(self.clock.now()),
        });
        let reader = Rc::clone(self).read_answers(Rc::clone(&state));
        let upstream = UpstreamSocket {
            state: Rc::clone(&state),
            task: spawn_local(reader).abort_handle(),
        };
        let mut sockets = self.sockets.borrow_mut();
        let evicted = sockets.insert(exchange, upstream).len();
        self.counts.update(|counts| {
            counts.upstream.opened += 1;
            counts.upstream.evicted += u64::try_from(evicted).unwrap_or_default();
            counts.upstream.open = u64::try_from(sockets.len()).unwrap_or_default();
        });
        Ok(state)
    }

    /// Reads the answers of one socket until it is idle.
    async fn read_answers(self: Rc<Self>, state: Rc<UpstreamState>) {
        let idle = Duration::from_millis(self.idle);
        loop {
            match timeout(idle, state.socket.readable()).await {
                Ok(Ok(())) => self.receive_answer(&state),
                Ok(Err(_)) => break,
                Err(_) => {
                    let age = self.clock.now().saturating_sub(state.last_query.get());
                    if state.waiting.get() == 0 || age >= self.pending_timeout {
                        break;
                    }
                }
            }
        }
        let mut sockets = self.sockets.borrow_mut();
        sockets.remove(state.exchange);
        self.counts.update(|counts| {
            counts.upstream.open = u64::try_from(sockets.len()).unwrap_or_default();
        });
    }

    fn receive_answer(self: &Rc<Self>, state: &UpstreamState) {
        let mut buffer = self.buffer.borrow_mut();
        // Fails if there is none, or with what the network reported: the client asks again.
        let Ok((length, server)) = state.socket.try_recv_from(&mut buffer) else {
            return;
        };
        let arrival = self.clock.elapsed();
        let (exchange, answer) = (state.exchange, &buffer[..length]);
        // Before the socket was connected, it took datagrams from anybody.
        if server != exchange.server {
            self.counts.update(|counts| counts.answers.foreign += 1);
            return;
        }
        let mut pending = self.pending.borrow_mut();
        let Some(matched) = MatchedAnswer::take(&mut pending, exchange, answer, &self.counts)
        else {
            return;
        };
        state.waiting.set(state.waiting.get().saturating_sub(1));
        // From its arrival on the time counts as that of its query did.
        let since = arrival.saturating_sub(matched.query_delay());
        if !matched.has_addresses() {
            self.release(exchange, answer, since);
            return;
        }
        let (proxy, answer) = (Rc::clone(self), answer.to_vec());
        spawn_local(async move {
            matched.teach(&proxy.teacher).await;
            proxy.release(exchange, &answer, since);
        });
    }

    fn release(&self, exchange: Exchange, answer: &[u8], since: Duration) {
        self.counts.update(|counts| counts.answers.released += 1);
        if self.send_answer(exchange, answer) {
            let latency = self.clock.elapsed().saturating_sub(since);
            self.counts.update(|counts| counts.latency.observe(latency));
        }
    }

    /// Sends to the client; whether it could be.
    fn send_answer(&self, exchange: Exchange, answer: &[u8]) -> bool {
        let sent = self.sender.send(exchange.server, exchange.client, answer);
        if sent.is_err() {
            self.counts.update(|counts| counts.answers.unsent += 1);
        }
        sent.is_ok()
    }
}

/// Sends by the socket itself: the reactor would only after it has seen a new socket once.
fn send_query(socket: &UdpSocket, message: &[u8]) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let outcome = match socket.send(message) {
        // What the network reported for an earlier query; this one has not been sent.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket.send(message),
        outcome => outcome,
    };
    outcome.map(drop)
}

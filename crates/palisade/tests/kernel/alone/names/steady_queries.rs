//! Queries at a steady pace, whether answers come or not, each accounted for.

use crate::names::{KINDS, NAMES, open, query, servers};
use hickory_proto::op::{Message, ResponseCode};
use palisade_testkit::lab::{Lab, NodeId};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Sockets, and the pace of each: a thousand queries a second in all.
const SOCKETS: usize = 4;
const PACE: Duration = Duration::from_millis(4);
/// One query in so many is for a name that policy refuses.
const REFUSED: u64 = 10;
/// How long answers are waited for after the last query.
const LINGER: Duration = Duration::from_secs(2);

/// What became of the queries so far.
#[derive(Debug, Default)]
pub(super) struct QueryCounts {
    sent: AtomicU64,
    answered: AtomicU64,
    /// Answers that policy does not allow, or that are not what the server knows.
    wrong: AtomicU64,
    /// The longest time between two answers at one socket, in milliseconds.
    longest_gap: AtomicU64,
}

/// The threads that ask, until dropped.
pub(super) struct SteadyQueries {
    counts: Arc<QueryCounts>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What it came to.
pub(super) struct QueryAccount {
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) wrong: u64,
    /// The longest time between two answers at one socket, in milliseconds.
    pub(super) longest_gap: u64,
}

impl std::fmt::Display for QueryAccount {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let QueryAccount {
            sent,
            lost,
            wrong,
            longest_gap,
        } = self;
        write!(
            out,
            "{sent} queries, {lost} lost, {wrong} wrong, at most {longest_gap} ms without an answer"
        )
    }
}

impl SteadyQueries {
    pub(super) fn start(lab: &Lab, pod: NodeId) -> Self {
        let (counts, stop) = (Arc::<QueryCounts>::default(), Arc::<AtomicBool>::default());
        let threads = (0..SOCKETS).flat_map(|at| {
            let family = at % 2;
            let socket = Arc::new(open(lab, pod, servers()[family]));
            let (sender, sending, stopped) =
                (Arc::clone(&socket), Arc::clone(&counts), Arc::clone(&stop));
            let (receiving, ended) = (Arc::clone(&counts), Arc::clone(&stop));
            [
                std::thread::spawn(move || send_queries(&sender, family, &sending, &stopped)),
                std::thread::spawn(move || receive_answers(&socket, &receiving, &ended)),
            ]
        });
        SteadyQueries {
            threads: threads.collect(),
            counts,
            stop,
        }
    }

    /// Waits until so many were sent since the start.
    pub(super) fn wait_until_sent(&self, least: u64) {
        while self.counts.sent.load(Ordering::Acquire) < least {
            std::thread::sleep(PACE);
        }
    }

    /// Ends it, after the last answers.
    pub(super) fn end(mut self) -> QueryAccount {
        self.join();
        let count = |count: &AtomicU64| count.load(Ordering::Acquire);
        let sent = count(&self.counts.sent);
        QueryAccount {
            sent,
            lost: sent - count(&self.counts.answered),
            wrong: count(&self.counts.wrong),
            longest_gap: count(&self.counts.longest_gap),
        }
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Drop for SteadyQueries {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.join();
        }
        self.stop.store(true, Ordering::Release);
    }
}

/// The name of a query, by its number.
fn name_of(number: u64) -> String {
    if number % REFUSED == REFUSED - 1 {
        return "other.test".to_owned();
    }
    format!("n{}.example.com", number % NAMES as u64)
}

fn send_queries(socket: &UdpSocket, family: usize, counts: &QueryCounts, stop: &AtomicBool) {
    let began = Instant::now();
    for number in 0.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let due = PACE * u32::try_from(number).unwrap();
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let message = query(number as u16, &name_of(number), KINDS[family]);
        counts.sent.fetch_add(1, Ordering::AcqRel);
        // A denial that the network reported for an earlier one counts as no answer of that one.
        if socket.send(&message).is_err() {
            let _ = socket.send(&message);
        }
    }
}

fn receive_answers(socket: &UdpSocket, counts: &QueryCounts, stop: &AtomicBool) {
    let moment = Some(Duration::from_millis(100));
    socket.set_read_timeout(moment).unwrap();
    let mut buffer = [0; 4_096];
    let mut answered = vec![false; 1 << 16];
    let (mut last, mut ending) = (Instant::now(), None);
    while ending.is_none_or(|ending: Instant| ending.elapsed() < LINGER) {
        if ending.is_none() && stop.load(Ordering::Acquire) {
            ending = Some(Instant::now());
        }
        let Ok(length) = socket.recv(&mut buffer) else {
            continue;
        };
        let gap = u64::try_from(last.elapsed().as_millis()).unwrap_or(u64::MAX);
        counts.longest_gap.fetch_max(gap, Ordering::AcqRel);
        last = Instant::now();
        let message = Message::from_vec(&buffer[..length]).unwrap();
        let id = usize::from(message.metadata.id);
        // Numbers come again after minutes.
        answered[(id + (1 << 15)) % (1 << 16)] = false;
        if std::mem::replace(&mut answered[id], true) {
            continue;
        }
        counts.answered.fetch_add(1, Ordering::AcqRel);
        let name = message.queries[0].name().to_string();
        let expected = match name.as_str() {
            "other.test." => (ResponseCode::Refused, 0),
            _ => (ResponseCode::NoError, 1),
        };
        if (message.metadata.response_code, message.answers.len()) != expected {
            counts.wrong.fetch_add(1, Ordering::AcqRel);
        }
    }
}

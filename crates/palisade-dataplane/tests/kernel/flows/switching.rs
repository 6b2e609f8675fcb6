//! Live connections and datagrams while agents with and without the fast path follow each other.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use palisade_dataplane::{Dataplane as _, FlowHandOver};
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::{LongFlow, TcpEcho, UdpEcho};
use palisade_testkit::test_driver::open_nftables;

use super::fast::{CLOSED, config, driver};
use super::need_root;
use super::place::{A, Allowed, B, Place, tables};

/// What is allowed: questions, connections that exchange numbers, and those that exchange much.
const ALLOWED: [Allowed; 3] = [
    (A, B, 17, Some(53)),
    (A, B, 6, Some(80)),
    (A, B, 6, Some(81)),
];
/// Connections of each kind that begin at a time, of each family.
const CONNECTIONS: usize = 25;
const BULK_CONNECTIONS: usize = 3;
const BULK: usize = 256 * 1024;
/// The pause between two numbers of a connection.
const PACE: Duration = Duration::from_millis(25);
/// How long an answer may take on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(20);
/// The least time between two switches.
const PAUSE: Duration = Duration::from_millis(700);

/// Sends much, and reads it back, until told to stop; the bytes are counted.
fn exchange_much(mut stream: TcpStream, is_done: &AtomicBool, count: &AtomicU64) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = vec![0; BULK];
    for round in 0_usize.. {
        let sent: Vec<u8> = (0..BULK).map(|at| (at / 7 + round) as u8).collect();
        let mut writing = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| writing.write_all(&sent).unwrap());
            stream.read_exact(&mut buffer).unwrap();
        });
        assert!(buffer == sent, "another payload came back");
        count.fetch_add(BULK as u64, Ordering::Relaxed);
        if is_done.load(Ordering::Acquire) {
            return;
        }
        std::thread::sleep(PACE);
    }
}

/// Asks, one question after the other, each of which must be answered; a datagram to a closed port must not arrive. How
/// many were asked.
pub(crate) fn ask(
    question: &UdpSocket,
    server: SocketAddr,
    closed: &UdpSocket,
    is_done: &AtomicBool,
) -> u64 {
    let limit = Duration::from_secs(2);
    question.set_read_timeout(Some(limit)).unwrap();
    closed.set_nonblocking(true).unwrap();
    let closed_address = closed.local_addr().unwrap();
    let (mut number, mut buffer) = (0_u64, [0; 8]);
    while !is_done.load(Ordering::Acquire) {
        question.send_to(&number.to_be_bytes(), server).unwrap();
        let received = question.recv(&mut buffer);
        assert_eq!(
            received.ok(),
            Some(8),
            "{server}: question {number} or its answer is lost"
        );
        assert_eq!(u64::from_be_bytes(buffer), number);
        question.send_to(b"denied", closed_address).unwrap();
        let denied = closed.recv(&mut buffer);
        assert!(denied.is_err(), "{closed_address}: one is let through");
        number += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    number
}

/// What goes on in all flows of the test.
#[derive(Default)]
struct Traffic<'scope> {
    connections: Vec<LongFlow>,
    bulk_connections: usize,
    asking: Vec<ScopedJoinHandle<'scope, u64>>,
}

/// When it ends, and how many bytes were exchanged.
#[derive(Default)]
struct Progress {
    is_done: AtomicBool,
    bulk: AtomicU64,
}

/// Ends the traffic, also where an assertion fails: the test would wait for it without end.
struct EndOfTraffic<'a>(&'a Progress);

impl Drop for EndOfTraffic<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, Ordering::Release);
    }
}

impl<'scope> Traffic<'scope> {
    /// Begins flows of all kinds, in both families.
    fn begin(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        place: &Place,
        progress: &'scope Progress,
    ) {
        let (lab, nodes) = (&place.lab, place.nodes);
        let socket = |end: usize, family: usize| {
            let socket = lab.run_in(nodes[end], || UdpSocket::bind(Place::at(end, family, 0)));
            socket.unwrap().unwrap()
        };
        for family in [0, 1] {
            for _ in 0..CONNECTIONS {
                let flow = LongFlow::start(lab, nodes[A], Place::at(B, family, 80), PACE);
                self.connections.push(flow.unwrap());
            }
            for _ in 0..BULK_CONNECTIONS {
                let to = Place::at(B, family, 81);
                let stream = lab.run_in(nodes[A], || TcpStream::connect(to));
                let stream = stream.unwrap().unwrap();
                scope.spawn(move || exchange_much(stream, &progress.is_done, &progress.bulk));
                self.bulk_connections += 1;
            }
            let (question, closed) = (socket(A, family), socket(B, family));
            let server = Place::at(B, family, 53);
            let asking = scope.spawn(move || ask(&question, server, &closed, &progress.is_done));
            self.asking.push(asking);
        }
    }

    /// Waits until every connection has gone on.
    fn wait(&self, context: &str, progress: &Progress) {
        let received = |flow: &LongFlow| flow.counts().received;
        let before: Vec<u64> = self.connections.iter().map(received).collect();
        let bulk = progress.bulk.load(Ordering::Relaxed);
        let began = Instant::now();
        let have_gone_on = || {
            let mut flows = self.connections.iter().zip(&before);
            flows.all(|(flow, before)| received(flow) > before + 5)
                && progress.bulk.load(Ordering::Relaxed)
                    > bulk + (2 * self.bulk_connections * BULK) as u64
        };
        while !have_gone_on() || began.elapsed() < PAUSE {
            assert!(began.elapsed() < PATIENCE, "{context}: some do not go on");
            assert!(
                self.connections.iter().all(|flow| !flow.counts().ended),
                "{context}: one is cut"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A new agent, after the former has ended.
fn switch(
    place: &Place,
    current: &mut Option<CountedDriver>,
    is_fast: bool,
) -> Option<FlowHandOver> {
    drop(current.take());
    let mut next: CountedDriver = if is_fast {
        driver(place)
    } else {
        open_nftables(config(), &place.netns()).unwrap().into()
    };
    next.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    assert_eq!(next.is_fast(), is_fast);
    let outcome = next.take_hand_over();
    *current = Some(next);
    outcome
}

#[test]
fn live_flows_go_on_from_nftables_to_the_fast_path_and_back() {
    if !need_root() {
        return;
    }
    let place = Place::new("switching");
    let _servers = [80, 81].map(|port| TcpEcho::start(&place.lab, place.nodes[B], port).unwrap());
    let _udp = UdpEcho::start(&place.lab, place.nodes[B], 53).unwrap();
    let progress = Progress::default();
    let mut current = None;
    let mut outcomes = Vec::new();
    switch(&place, &mut current, false);
    let (connections, asked) = std::thread::scope(|scope| {
        let end = EndOfTraffic(&progress);
        let mut traffic = Traffic::default();
        // Half of the flows begin by the stack, and half in the fast path.
        traffic.begin(scope, &place, &progress);
        traffic.wait("at first", &progress);
        for (round, is_fast) in [true, false, true, false, true].into_iter().enumerate() {
            outcomes.extend(switch(&place, &mut current, is_fast));
            if round == 0 {
                traffic.begin(scope, &place, &progress);
            }
            traffic.wait(&format!("round {round}"), &progress);
        }
        drop(end);
        let asked = traffic
            .asking
            .into_iter()
            .map(|asking| asking.join().unwrap());
        (traffic.connections, asked.sum::<u64>())
    });
    let silences = connections.iter().map(|flow| flow.counts().longest_silence);
    println!(
        "account: {} connections, {} MiB and {asked} questions over five switches between nftables and the fast path, none cut or lost; longest silence {:?}; handed over {:?}",
        connections.len(),
        progress.bulk.load(Ordering::Relaxed) >> 20,
        silences.max(),
        outcomes
            .iter()
            .map(|outcome| outcome.created)
            .collect::<Vec<_>>(),
    );
    // Those of the fast path are the stack's after the first time.
    let [first, second] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(first.created, 2 * (CONNECTIONS + BULK_CONNECTIONS + 1));
    assert_eq!(second.created, 0);
    assert!(first.failure.is_none() && second.failure.is_none());
    assert!(asked > 500, "{asked}");
}

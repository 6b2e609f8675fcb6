//! Lookups of names that nobody asked for before, with a packet to the address at once: none is lost.

use super::super::asked;
use crate::agent::shop::Shop;
use crate::names::{
    FIRST_PACKET, LOAD_NETWORKS, NamedShop, PORT, bind_any, by_address, dnsmasq, exchange,
    load_name, names_policy, open, route_outside, servers,
};
use palisade_sys::descriptors::raise_limit;
use palisade_sys::transparent::force_receive_buffer;
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::need_root;
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Clients of each workload, each with a socket of its own.
const CLIENTS: usize = 24;
/// Of so many lookups one is followed by a connection, too.
const CONNECTIONS: u32 = 20;
/// How long packets are waited for that are on their way.
const LINGER: Duration = Duration::from_millis(500);

/// What became of the lookups.
#[derive(Debug, Default)]
struct LookupOutcome {
    next: AtomicU32,
    unanswered: AtomicUsize,
    wrong: AtomicUsize,
    connections: AtomicUsize,
    unconnected: AtomicUsize,
    /// The lookups whose datagram has arrived.
    arrived: Mutex<Vec<bool>>,
}

/// Notes which datagrams arrive, until told to stop and nothing comes any more.
fn note_arrivals(socket: &UdpSocket, outcome: &LookupOutcome, stop: &AtomicBool) {
    socket.set_read_timeout(Some(LINGER)).unwrap();
    let mut buffer = [0; 16];
    loop {
        match socket.recv(&mut buffer) {
            Ok(4) => {
                let number = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
                outcome.arrived.lock().unwrap()[number as usize] = true;
            }
            Ok(_) => {}
            Err(_) if stop.load(Ordering::Acquire) => return,
            Err(_) => {}
        }
    }
}

/// One client: looks up and sends, until there is no more to look up.
fn look_up_and_send(lab: &Lab, pod: NodeId, outcome: &LookupOutcome, lookups: u32) {
    let resolvers = servers().map(|server| open(lab, pod, server));
    let senders = servers().map(|server| lab.run_in(pod, || bind_any(server)).unwrap());
    let connect = || {
        loop {
            let number = outcome.next.fetch_add(1, Ordering::Relaxed);
            if number >= lookups {
                return;
            }
            let (name, kind, address) = load_name(number);
            let family = usize::from(address.is_ipv6());
            let Some((_, addresses)) = exchange(&resolvers[family], &name, kind) else {
                outcome.unanswered.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let to = SocketAddr::new(address, PORT);
            // Where policy denies it the network may say so.
            let _ = senders[family].send_to(&number.to_be_bytes(), to);
            if addresses != [address] {
                outcome.wrong.fetch_add(1, Ordering::Relaxed);
            }
            if number % CONNECTIONS < 2 {
                outcome.connections.fetch_add(1, Ordering::Relaxed);
                if TcpStream::connect_timeout(&to, FIRST_PACKET).is_err() {
                    outcome.unconnected.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    lab.run_in(pod, connect).unwrap();
}

#[test]
fn no_first_packet_after_an_answer_is_lost() {
    if !need_root() {
        return;
    }
    raise_limit().unwrap();
    let lookups = u32::try_from(asked("LOAD_LOOKUPS", 2_000)).unwrap();
    let shop = Shop::open("names-first");
    let outside = shop.lab.outside();
    let policy = names_policy("web, db", &by_address(servers()));
    let named = NamedShop::around(shop, &dnsmasq(), (outside, servers()), &policy);
    let lab = &named.shop.lab;
    route_outside(lab, LOAD_NETWORKS);
    let sink = lab
        .run_in(outside, || {
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap()
        })
        .unwrap();
    force_receive_buffer(&sink, 32 << 20).unwrap();
    let outcome = LookupOutcome::default();
    outcome
        .arrived
        .lock()
        .unwrap()
        .resize(lookups as usize, false);
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| note_arrivals(&sink, &outcome, &stop));
        let pods = [named.shop.pods[0], named.shop.pods[2]];
        let clients: Vec<_> = pods
            .into_iter()
            .flat_map(|pod| [pod; CLIENTS])
            .map(|pod| {
                let outcome = &outcome;
                scope.spawn(move || look_up_and_send(lab, pod, outcome, lookups))
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        stop.store(true, Ordering::Release);
    });
    let arrived = outcome.arrived.lock().unwrap().clone();
    let arrived = arrived.into_iter().filter(|arrived| *arrived).count();
    println!(
        "account: names: {lookups} lookups of new names, {arrived} first packets arrived, {} connections of which {} did not open \
         at once, {} lookups without an answer, in {} s",
        outcome.connections.load(Ordering::Relaxed),
        outcome.unconnected.load(Ordering::Relaxed),
        outcome.unanswered.load(Ordering::Relaxed),
        began.elapsed().as_secs()
    );
    let bad = [&outcome.unanswered, &outcome.wrong, &outcome.unconnected];
    let bad = bad.map(|count| count.load(Ordering::Relaxed));
    assert_eq!((arrived, bad), (lookups as usize, [0; 3]));
}

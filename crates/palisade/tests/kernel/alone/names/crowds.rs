//! Crowds of giant answers and of connections that stall, for one workload: nothing is held up for another.

use crate::names::client::{connect_stream, framed};
use crate::names::fake_server::FakeDnsServer;
use crate::names::hostile::{FAKE, GIANT, hostile_shop, rule};
use crate::names::{FIRST_PACKET, KINDS, NamedShop, addresses_of, lookup, lookup_over_tcp, query};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::NodeId;
use palisade_testkit::need_root;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many giant answers a workload gets.
const GIANTS: usize = 30;

/// The addresses that each workload holds, by the list of names.
fn held_by(named: &NamedShop, workload: &str) -> usize {
    let names = named.shop.agent.json(&["names", "list"]);
    let entries = names["names"].as_array().unwrap().iter();
    let addresses = entries.flat_map(|name| name["addresses"].as_array().unwrap());
    addresses
        .filter(|entry| entry["workload"] == workload)
        .count()
}

/// Looks new names up while something goes on, in one workload: each is answered and opens, over UDP and TCP.
fn others_connect_during(named: &NamedShop, pod: NodeId, stop: &AtomicBool) -> usize {
    let mut done = 0;
    let ask = [lookup, lookup_over_tcp];
    while !stop.load(Ordering::Relaxed) && done < 100 {
        let (number, family) = (named.next_name(), done % 2);
        let wanted = addresses_of(number)[family];
        let name = format!("n{number}.example.com");
        let server = named.servers[family];
        let answer = ask[done / 2 % 2](&named.shop.lab, pod, server, &name, KINDS[family]);
        assert_eq!(
            answer,
            Some((ResponseCode::NoError, vec![wanted])),
            "{name}"
        );
        assert!(named.connects_from(pod, wanted, FIRST_PACKET), "{name}");
        done += 1;
    }
    done
}

#[test]
fn giant_answers_cost_the_workload_that_gets_them() {
    if !need_root() {
        return;
    }
    let named = hostile_shop("names-giant", "web, db", &["--dns-max-addresses", "1000"]);
    let (lab, [web, _, db]) = (&named.shop.lab, named.shop.pods);
    let _server = FakeDnsServer::start(lab, lab.outside(), FAKE, rule);
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..GIANTS {
                let name = format!("giant{number}.example.com");
                let answer = lookup_over_tcp(lab, db, FAKE[0], &name, RecordType::A);
                let count = answer.map(|(_, addresses)| addresses.len());
                assert_eq!(count, Some(GIANT), "{name}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        others_connect_during(&named, web, &stop)
    });
    println!("account: names: {done} lookups beside {GIANTS} answers with {GIANT} addresses each");
    assert!(done > 0);
    assert_eq!(held_by(&named, "shop/web"), done);
    let held = held_by(&named, "shop/db");
    assert!((100..=1_000).contains(&held), "{held}");
    // A tenth of the bound is for one name.
    let last = named.held(&format!("giant{}.example.com", GIANTS - 1));
    assert_eq!(last.len(), 100);
}

#[test]
fn connections_that_stall_hold_up_nobody() {
    if !need_root() {
        return;
    }
    let named = hostile_shop("names-slow", "web, db", &[]);
    let (lab, [web, _, db]) = (&named.shop.lab, named.shop.pods);
    let _server = FakeDnsServer::start(lab, lab.outside(), FAKE, rule);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| others_connect_during(&named, web, &stop));
        let mut stalled = Vec::new();
        for number in 0..300 {
            // Some do not open: of one address there may be few.
            let Some(mut stream) = connect_stream(lab, db, FAKE[number % 2]) else {
                continue;
            };
            if number % 4 == 0 {
                // Who asks for much and reads nothing.
                let giant = framed(&query(1, "giant1.example.com", RecordType::A));
                let _ = stream.write_all(&giant.repeat(40));
            } else {
                let _ = stream.write_all(&[0]);
            }
            stalled.push(stream);
        }
        let opened = stalled.len();
        others_stay(&named, web);
        stop.store(true, Ordering::Relaxed);
        let done = others.join().unwrap();
        println!("account: names: {done} lookups beside {opened} connections that stall");
        assert!(done > 0);
        // Datagrams of the workload itself are served, too.
        let answer = lookup(lab, db, named.servers[0], "n199.example.com", KINDS[0]);
        let expected = vec![addresses_of(199)[0]];
        assert_eq!(answer, Some((ResponseCode::NoError, expected)));
    });
}

/// Known names stay in force.
fn others_stay(named: &NamedShop, web: NodeId) {
    for (number, server) in [(190, 0), (191, 1)] {
        let name = format!("n{number}.example.com");
        let ask = |kind| lookup_over_tcp(&named.shop.lab, web, named.servers[server], &name, kind);
        assert!(ask(KINDS[server]).is_some());
        assert!(named.connects(addresses_of(number)[server]));
    }
}

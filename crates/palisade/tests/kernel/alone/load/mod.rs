//! The real agent under load: flows with a new tuple per packet, long connections in both directions, and a
//! server that sends first, while its directory is edited in every way, and while the agent is killed at
//! random and between the transactions of a flush, restarted, and its table is changed by others.
//!
//! Every edit keeps some pairs allowed and some denied throughout, by ingress and egress policies, in TCP,
//! UDP, crafted SCTP and ICMP. No packet of the first is lost, and none of the second passes, except in
//! declared gaps, each with its bound and its reason ([`gaps`]).
//!
//! `LOAD_EDITS` and `LOAD_KILLS` set the numbers, `SEED` the seed. Each seed has two hosts, and the kills of
//! the agent have three, all in parallel: an edit spends more time waiting than working.

mod edits;
mod gaps;
mod kills;
mod line;
mod traffic;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::asked;
use crate::agent::{Agent, nft};
use palisade_testkit::need_root;
use world::World;

/// Number of hosts that are edited per seed, and of hosts whose agent is killed inside flushes, in parallel.
const HOSTS: u64 = 2;

/// Pseudo-random numbers, determined by the seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn nothing_is_lost_and_nothing_leaks_while_everything_changes() {
    if !need_root() {
        return;
    }
    let (edits, kills) = (asked("LOAD_EDITS", 500), asked("LOAD_KILLS", 100));
    let seeds = palisade_generators::seeds(1);
    println!("load: LOAD_EDITS={edits} LOAD_KILLS={kills} SEED={seeds:?}");
    let began = Instant::now();
    let hosts = seeds.len() as u64 * HOSTS;
    let share = edits.div_ceil(hosts);
    std::thread::scope(|scope| {
        for (at, seed) in (0..HOSTS).flat_map(|at| seeds.iter().map(move |seed| (at, *seed))) {
            scope.spawn(move || edited(seed, at, share));
        }
        for at in 0..HOSTS {
            scope.spawn(move || killed_inside(at, (kills * 3 / 5).div_ceil(HOSTS)));
        }
        scope.spawn(|| killed_at_random(seeds[seeds.len() - 1], kills - kills * 3 / 5));
    });
    println!(
        "account: load: {} edits with {} seeds, {kills} kills, in {} s",
        share * hosts,
        seeds.len(),
        began.elapsed().as_secs()
    );
}

/// Edits of all kinds on a separate host, number `at` of its seed.
fn edited(seed: u64, at: u64, edits: u64) {
    let began = Instant::now();
    // The first host of the fixed seed keeps its sequence of edits.
    let mut random = Random(seed.wrapping_add(at << 32));
    let mut world = World::open("load-edits");
    let mut traffic = traffic::Traffic::start(&world);
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    let kinds = edits::ALL;
    for number in 0..edits {
        // Each kind in turn, beginning with a different one in every round.
        let round = number / kinds.len() as u64;
        let at = (number + 7 * round + 11 * at) as usize % kinds.len();
        let (name, edit) = kinds[at];
        edit(&mut world, &mut traffic, &mut random);
        *done.entry(name).or_default() += 1;
        traffic.check(&world, name);
    }
    let mut table = format!("edits of each kind, seed {seed}\n");
    for (name, count) in &done {
        table += &format!("  {name:<44} {count:>6}\n");
    }
    println!("{table}account: load: seed {seed}: {}", traffic.line());
    traffic.finish(&world);
    println!(
        "load: seed {seed}, host {at}: {} s",
        began.elapsed().as_secs()
    );
    for (name, _) in kinds.iter().take(edits as usize) {
        assert!(done.contains_key(name), "{name}: never");
    }
}

/// Kills of the agent between two transactions of a flush, on a separate host, number `at`.
fn killed_inside(at: u64, kills: u64) {
    let began = Instant::now();
    let mut world = World::open("load-inside");
    let mut traffic = traffic::Traffic::start(&world);
    let inside = kills::inside_flushes(&mut world, &mut traffic, at, kills);
    let mut table =
        "kills between two transactions of one flush, by the edit and transactions done\n"
            .to_owned();
    for ((name, after), count) in &inside.by_boundary {
        table += &format!("  {name:<36} {after:>7} {count:>6}\n");
    }
    println!("{table}account: load: kills inside: {}", traffic.line());
    traffic.finish(&world);
    let seconds = began.elapsed().as_secs();
    println!(
        "account: load: {} kills inside flushes, in {seconds} s",
        inside.total()
    );
    assert!(inside.total() >= kills);
}

/// Kills of the agent at any time, on a separate host.
fn killed_at_random(seed: u64, kills: u64) {
    let began = Instant::now();
    let mut random = Random(seed);
    let mut world = World::open("load-random");
    let mut traffic = traffic::Traffic::start(&world);
    let done = kills::at_random(&mut world, &mut traffic, &mut random, kills);
    println!("account: load: kills at random: {}", traffic.line());
    traffic.finish(&world);
    let seconds = began.elapsed().as_secs();
    println!("account: load: {done} kills at random, in {seconds} s");
}

/// A check of the account itself: a packet lost or passed without a declared gap is detected.
#[test]
fn what_is_lost_or_passes_without_a_declared_gap_is_noticed() {
    if !need_root() {
        return;
    }
    // Rules of others in the forward hook do not see packets of the fast path.
    let world = World::under(Agent::with_nftables(), "load-red");
    let mut traffic = traffic::Traffic::start(&world);
    let mut noticed = |what: &str, sign: &str, harm: &dyn Fn()| {
        traffic.check(&world, "nothing yet");
        harm();
        let began = Instant::now();
        let amiss = loop {
            if let Err(amiss) = traffic.amiss() {
                break amiss;
            }
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{what}: not noticed"
            );
            std::thread::sleep(Duration::from_millis(50));
        };
        println!("{what}: {amiss}");
        assert!(amiss.contains(sign), "{what}: {amiss}");
        traffic.forget();
    };
    let host = &world.lab;
    noticed("the rules gone", "passed", &|| {
        nft(host, "delete table inet palisade");
        world.agent.wait("repaired", |s| {
            s["dataplane"]["repaired"].as_u64() > Some(0)
        });
    });
    for (what, sign, packet) in [
        (
            "egress dropped",
            "egress",
            "ip saddr 10.77.0.4 ip daddr 198.51.100.2 udp dport 7001",
        ),
        ("SCTP dropped", "SCTP", "meta l4proto sctp"),
        ("echoes dropped", "echo", "icmpv6 type echo-request"),
    ] {
        noticed(what, sign, &|| {
            nft(
                host,
                &format!(
                    "add table inet harm {{ chain c {{ type filter hook forward priority 10; {packet} drop; }}; }}"
                ),
            );
            std::thread::sleep(Duration::from_millis(300));
            nft(host, "delete table inet harm");
        });
    }
}

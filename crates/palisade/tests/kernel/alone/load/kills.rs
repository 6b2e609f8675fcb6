//! Kills of the agent: at any time, and reliably between two transactions of one flush.
//!
//! The kernel notifies listeners of each commit. After a commit the agent waits for a grace period of
//! milliseconds before the next one; killed then, it never makes the next commit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use palisade_sys::netns::NetNs;
use palisade_sys::nfnetlink::nf_tables::NFT_MSG_NEWGEN;
use palisade_sys::nfnetlink::{KernelNfEvents, NFNLGRP_NFTABLES, NfEvent, NfEvents};

use super::Random;
use super::traffic::Traffic;
use super::world::{Shape, World};

/// Number of kills by edit and by the number of its transactions that were committed.
#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) by_boundary: BTreeMap<(&'static str, usize), u64>,
}

impl Inside {
    pub(crate) fn total(&self) -> u64 {
        self.by_boundary.values().sum()
    }
}

type Change = fn(&mut Shape);

const FLUSHES: [(&str, Change); 10] = [
    ("port opened, another closed", |s| s.port += 1),
    ("CIDRs added", |s| s.more_cidrs = s.more_cidrs % 4 + 1),
    ("CIDR nested, exception changed", |s| {
        s.nested = !s.nested;
        s.more_except = !s.more_except;
    }),
    ("selector that splits", |s| s.split += 1),
    ("policy set joined or left", |s| s.joined = !s.joined),
    ("pod relabelled", |s| s.tier += 1),
    ("address reused", |s| s.holder += 1),
    ("egress isolated or not", |s| s.egress = !s.egress),
    ("host endpoint and its policies", |s| s.hosts += 1),
    ("everything at once", |s| {
        s.split += 1;
        s.more_cidrs += 1;
        s.nested = !s.nested;
        s.tier += 1;
        s.team += 1;
        s.holder += 1;
        s.order += 1;
        s.joined = !s.joined;
        s.port += 1;
        s.naming += 1;
        s.hosts += 1;
    }),
];

struct Commits(KernelNfEvents);

impl Commits {
    fn watch(world: &World) -> Self {
        let host = NetNs::open(world.lab.namespace_name(world.lab.host())).unwrap();
        Commits(KernelNfEvents::open(&host, &[NFNLGRP_NFTABLES], None).unwrap())
    }

    /// Waits for the next commit.
    fn next(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match self.0.next_event(Some(left)).unwrap() {
                Some(NfEvent::Changed { object, .. }) if object.kind == NFT_MSG_NEWGEN => {
                    return true;
                }
                Some(NfEvent::Changed { .. }) => {}
                Some(NfEvent::Overrun) => panic!("commits came faster than they were read"),
                None => return false,
            }
        }
    }
}

/// Restarts the agent and checks that it restores the right state.
fn revive(world: &mut World, traffic: &mut Traffic, what: &str) {
    world.agent.start(&world.lab);
    world.settled(what);
    world.check_verdicts();
    traffic.check(world, what);
}

/// Kills the agent after each transaction in turn of each kind of flush, `wanted` times; the hosts begin with
/// different kinds.
pub(crate) fn inside_flushes(
    world: &mut World,
    traffic: &mut Traffic,
    host: u64,
    wanted: u64,
) -> Inside {
    let mut inside = Inside::default();
    let mut after = [1; FLUSHES.len()];
    let first = host * 4;
    let mut turn = first;
    while inside.total() < wanted {
        assert!(
            turn < first + 20 * wanted,
            "flushes cannot be caught: {:?}",
            inside.by_boundary
        );
        let at = (turn % FLUSHES.len() as u64) as usize;
        turn += 1;
        let (name, change) = FLUSHES[at];
        let mut commits = Commits::watch(world);
        world.write(change);
        let reached = (0..after[at])
            .all(|n| commits.next(Duration::from_millis(if n == 0 { 5000 } else { 300 })));
        if !reached {
            // The flush has no more transactions: start again with the first.
            after[at] = 1;
            world.settled(name);
            traffic.check(world, name);
            continue;
        }
        world.agent.kill();
        let mut made = after[at];
        while commits.next(Duration::from_millis(1)) {
            made += 1;
        }
        // Work must be left, or the kill was not inside the flush.
        let mut commits = Commits::watch(world);
        revive(world, traffic, name);
        if commits.next(Duration::from_millis(1)) {
            *inside.by_boundary.entry((name, made)).or_default() += 1;
        }
        after[at] += 1;
    }
    inside
}

/// Kills at any time around an edit.
pub(crate) fn at_random(
    world: &mut World,
    traffic: &mut Traffic,
    random: &mut Random,
    wanted: u64,
) -> u64 {
    for number in 0..wanted {
        let (name, change) = FLUSHES[(number % FLUSHES.len() as u64) as usize];
        world.write(change);
        std::thread::sleep(Duration::from_millis(random.below(150)));
        world.agent.kill();
        std::thread::sleep(Duration::from_millis(random.below(30)));
        revive(world, traffic, name);
    }
    wanted
}

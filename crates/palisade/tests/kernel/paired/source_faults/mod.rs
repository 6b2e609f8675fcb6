//! The real agent under traffic while the server that it follows fails in every way: killed, paused, slow,
//! refusing, cut in the middle of an object, without the versions of a watch, with other credentials; while the
//! agent's clock is wrong; and while it is itself killed within. Objects change before and within each fault, in any order.
//!
//! No denied packet passes, none that is allowed is lost, each state is reached, and the last is that of a
//! fresh start. `SOURCE_FAULTS` and `SERVER_FAULTS` set the number of faults of the fake server and of a real
//! one; `SEED` and `FRESH_SEED` the seeds.

mod faults;
mod fresh;
mod objects;
mod traffic;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::agent::{Agent, nft};
use faults::Fault;
use objects::Objects;
use palisade_generators::Dice;
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::need_root;
use traffic::{Account, Traffic};
use world::{Server, World};

fn asked(name: &str, default: u64) -> u64 {
    // make passes an unset variable as an empty one.
    let said = std::env::var(name).ok().filter(|text| !text.is_empty());
    said.map_or(default, |text| text.parse().unwrap())
}

/// Runs a program in a namespace of a lab.
pub(crate) fn run_in(lab: &Lab, node: NodeId, words: &[&str]) {
    let mut command = std::process::Command::new("ip");
    command.args(["netns", "exec", lab.namespace_name(node)]);
    let status = command.args(words).status().unwrap();
    assert!(status.success(), "{words:?}");
}

/// What a run came to.
#[derive(Default)]
struct Outcome {
    faults: BTreeMap<Fault, u64>,
    kills: u64,
    account: Account,
    unasked: usize,
}

/// A clock that was wrong left other dates in the log, and a real server's certificate was not accepted then.
fn assert_clock_was_wrong(world: &World) {
    let log = world.agent.log();
    let dates: BTreeSet<&str> = log.lines().filter_map(|line| line.get(..10)).collect();
    assert!(dates.len() > 1, "the agent's clock was right: {dates:?}");
    let refused = ["certificate not valid yet", "certificate expired"];
    assert!(
        matches!(world.server, Server::Fake(_)) || refused.iter().any(|text| log.contains(text)),
        "no certificate was refused"
    );
}

/// Steps until there were so many faults; then the state is compared with a fresh start's.
fn run(mut world: World, seed: u64, wanted: u64, dice: &mut Dice) -> Outcome {
    let mut traffic = Traffic::start(&world.lab, world.pods);
    let failed = |what: String, step: u64| panic!("SEED={seed}, step {step}: {what}");
    let mut outcome = Outcome::default();
    world
        .settle(&traffic, 0)
        .unwrap_or_else(|what| failed(what, 0));
    let first = dice.below(16) as u64;
    for step in 1..=wanted {
        let fault = Fault::of_step(&world.server, step, first);
        let is_killed = dice.chance(25);
        let began = Instant::now();
        let done = world.step(&mut traffic, (step, fault), is_killed, dice);
        done.unwrap_or_else(|what| failed(format!("{fault:?}, killed {is_killed}: {what}"), step));
        println!(
            "source faults: seed {seed}, step {step}: {fault:?}{}, {} ms",
            if is_killed { ", agent killed" } else { "" },
            began.elapsed().as_millis()
        );
        *outcome.faults.entry(fault).or_default() += 1;
        outcome.kills += u64::from(is_killed);
    }
    let finished = traffic.finish(wanted, &world.objects.values());
    finished.unwrap_or_else(|what| failed(what, wanted));
    outcome.account = traffic.account;
    outcome.unasked = world.unasked;
    drop(traffic);
    if outcome.faults.contains_key(&Fault::ClockSkewed) {
        assert_clock_was_wrong(&world);
    }
    fresh::assert_equal_to_a_fresh_start(&mut world, wanted);
    outcome
}

fn print(what: &str, seed: u64, began: Instant, outcome: &Outcome) {
    let total: u64 = outcome.faults.values().sum();
    let account = outcome.account;
    println!(
        "source faults: seed {seed}: {:?}; {} answers of a fault were not asked for",
        outcome.faults, outcome.unasked
    );
    println!(
        "account: source faults: {total} under traffic, {what}, seed {seed}, {} with the agent killed within, in \
         {} s; packets: {} allowed arrived, {} denied did not, {} while their verdict changed, {} lost for want \
         of room",
        outcome.kills,
        began.elapsed().as_secs(),
        account.arrived,
        account.dropped,
        account.open,
        account.lost,
    );
}

#[test]
fn no_packet_is_lost_or_passed_while_the_server_fails() {
    if !need_root() {
        return;
    }
    let seeds = palisade_generators::seeds(1);
    let share = asked("SOURCE_FAULTS", 160).div_ceil(seeds.len() as u64);
    std::thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || {
                let began = Instant::now();
                let mut dice = Dice::new(seed, 0);
                let world = World::fake("faults", Objects::first(&mut dice));
                let outcome = run(world, seed, share, &mut dice);
                print("of a fake server", seed, began, &outcome);
            });
        }
    });
}

#[test]
fn no_packet_is_lost_or_passed_while_a_real_server_fails() {
    if !need_root() {
        return;
    }
    let seeds = palisade_generators::seeds(2);
    let seed = seeds[seeds.len() - 1];
    let began = Instant::now();
    let mut dice = Dice::new(seed, 1);
    let Some(world) = World::real("realfaults", Objects::first(&mut dice)) else {
        return;
    };
    let outcome = run(world, seed, asked("SERVER_FAULTS", 40), &mut dice);
    print("of a real server", seed, began, &outcome);
}

/// A check of the account itself: what passes or is lost is noticed.
#[test]
fn what_passes_or_is_lost_is_noticed() {
    if !need_root() {
        return;
    }
    let mut dice = Dice::new(3, 0);
    // Rules of others in the forward hook do not see packets of the fast path.
    let objects = Objects::first(&mut dice);
    let mut world = World::fake_under(Agent::with_nftables(), "faultsred", objects);
    let mut step = 0;
    for (script, undo, sign) in [
        (
            "add table inet harm { chain c { type filter hook forward priority 10; ip daddr 10.77.0.2 udp dport 7001 drop; }; }",
            "delete table inet harm",
            "allowed packets lost",
        ),
        (
            "flush table inet palisade",
            "list tables",
            "denied packets passed",
        ),
    ] {
        let mut traffic = Traffic::start(&world.lab, world.pods);
        world.settle(&traffic, step).unwrap();
        step += 1;
        let state = world.objects.values();
        traffic.ends_change(step, std::slice::from_ref(&state));
        traffic.wait_for_packets();
        if script.starts_with("flush") {
            world.agent.kill();
            let own = nft(&world.lab, "list tables");
            assert!(own.contains("palisade"), "{own}");
            nft(&world.lab, "delete table inet palisade");
        } else {
            nft(&world.lab, script);
        }
        world::pause(300);
        nft(&world.lab, undo);
        let amiss = traffic.finish(step, &state).unwrap_err();
        assert!(amiss.contains(sign), "{amiss}");
        println!("noticed: {amiss}");
        step = 0;
    }
}

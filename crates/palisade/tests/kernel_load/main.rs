//! The real agent under load: flows of a new tuple per packet, long connections both ways, and a
//! server that speaks first, while its directory is edited in every way, it is killed at random and
//! between the transactions of a flush, restarted, and its table tampered with.
//!
//! Every edit leaves some pairs allowed and some denied throughout. Nothing of the first is lost, and
//! nothing of the second passes, except while the rules themselves are gone: that is counted apart.
//!
//! `LOAD_EDITS` and `LOAD_KILLS` set how much, `SEED` which.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: other programs are its witnesses, real time its measure, a panic its verdict"
)]

#[path = "../agent/mod.rs"]
mod agent;

mod edits;
mod kills;
mod traffic;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use palisade_testkit::need_root;
use world::World;

fn asked(name: &str, default: u64) -> u64 {
    // make hands on a variable that nobody set as an empty one.
    let said = std::env::var(name).ok().filter(|text| !text.is_empty());
    said.map_or(default, |text| text.parse().unwrap())
}

/// Numbers that look random, the same for the same seed.
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
    // One after the other in the same world: each has its share of the edits.
    let share = edits.div_ceil(seeds.len() as u64).max(1);
    let mut random = Random(seeds[0]);
    let began = Instant::now();
    let mut world = World::open();
    let mut traffic = traffic::Traffic::start(&world);
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    let kinds = edits::ALL;
    for number in 0..edits {
        if number % share == 0 {
            random = Random(seeds[(number / share) as usize]);
        }
        // Each kind in turn, beginning with another one every time round.
        let round = number / kinds.len() as u64;
        let at = (number + 7 * round) as usize % kinds.len();
        let (name, edit) = kinds[at];
        edit(&mut world, &mut traffic, &mut random);
        *done.entry(name).or_default() += 1;
        traffic.check(&world, name);
        if number % 50 == 49 {
            let seconds = began.elapsed().as_secs();
            println!(
                "load: {} edits in {seconds} s; {}",
                number + 1,
                traffic.line()
            );
        }
    }
    let inside = kills::inside_flushes(&mut world, &mut traffic, kills * 3 / 5);
    println!(
        "load: killed {} times inside flushes; {}",
        inside.total(),
        traffic.line()
    );
    let at_random = kills::at_random(&mut world, &mut traffic, &mut random, kills - kills * 3 / 5);
    println!(
        "load: killed {at_random} times at random; {}",
        traffic.line()
    );

    println!("\nedits of each kind");
    for (name, count) in &done {
        println!("  {name:<44} {count:>6}");
    }
    println!("kills between two transactions of one flush, by the edit and transactions done");
    for ((name, after), count) in &inside.by_boundary {
        println!("  {name:<36} {after:>7} {count:>6}");
    }
    println!("  {:<44} {:>6}", "at random", at_random);
    println!("account: load: {}", traffic.line());
    traffic.finish(&world);
    println!(
        "account: load: {} edits, {} kills inside flushes, {at_random} at random, in {} s",
        done.values().sum::<u64>(),
        inside.total(),
        began.elapsed().as_secs()
    );
    assert!(inside.total() + at_random >= kills);
    for (name, _) in kinds.iter().take(edits as usize) {
        assert!(
            done.contains_key(name) || edits < 2 * kinds.len() as u64,
            "{name}: never"
        );
    }
}

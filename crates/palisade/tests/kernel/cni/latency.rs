//! Duration of ADD with 0, 100 and 200 pods on the host: printed, without a limit.

use super::World;
use crate::agent::shop::{FROM_WEB_8080, policy};
use crate::plugin::pod;
use palisade_testkit::need_root;
use std::time::{Duration, Instant};

const ROUNDS: usize = 50;

#[test]
fn adding_a_pod_among_none_a_hundred_and_two_hundred() {
    if !need_root() {
        return;
    }
    let mut world = World::open("latency");
    let pods: Vec<String> = (0..=200)
        .map(|n| pod(&format!("p{n}"), &format!("app{}", n % 10)))
        .collect();
    let policies = (0..10).map(|n| policy(&format!("app{n}"), &format!("app{n}"), FROM_WEB_8080));
    let all: Vec<String> = pods.into_iter().chain(policies).collect();
    world.agent.apply("all.yaml", &all.join("---\n"));
    let (_, measured) = world.sandbox("p200");
    let mut there = 0;
    for wanted in [0, 100, 200] {
        while there < wanted {
            let (_, container) = world.sandbox(&format!("p{there}"));
            world.runtime.add(&container);
            there += 1;
        }
        let mut took: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                world.runtime.ok("ADD", Some(&measured));
                let took = began.elapsed();
                world.runtime.ok("DEL", Some(&measured));
                took
            })
            .collect();
        took.sort_unstable();
        let (p50, p90, max) = (took[ROUNDS / 2], took[ROUNDS * 9 / 10], took[ROUNDS - 1]);
        println!(
            "ADD with {there} pods on the host: p50 {p50:?}, p90 {p90:?}, longest {max:?} of {ROUNDS}"
        );
    }
    assert_eq!(world.findings(), [""; 0]);
}

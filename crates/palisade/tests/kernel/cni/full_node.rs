//! As many ADDs at once as a node holds pods: all are served, and no client is told to try again.

use super::World;
use crate::agent::Agent;
use crate::agent::shop::{FROM_WEB_8080, policy};
use crate::plugin::{Container, addresses, pod};
use palisade_testkit::need_root;
use std::collections::BTreeSet;
use std::process::Child;
use std::time::Instant;

const PODS: usize = 500;

#[test]
fn a_full_load_of_pods_at_once() {
    if !need_root() {
        return;
    }
    // Two pipes for each call.
    let limit = palisade_sys::descriptors::raise_limit().unwrap();
    assert!(limit > 2 * PODS as u64, "{limit} file descriptors");
    let agent = Agent::new().with(&["--ipam-pool", "10.245.0.0/22,fd50:616c:6973::/64"]);
    let mut world = World::under(agent, "fullnode");
    let pods: Vec<String> = (0..PODS)
        .map(|n| pod(&format!("p{n}"), &format!("app{}", n % 10)))
        .collect();
    let policies = (0..10).map(|n| policy(&format!("app{n}"), &format!("app{n}"), FROM_WEB_8080));
    let all: Vec<String> = pods.into_iter().chain(policies).collect();
    world.agent.apply("all.yaml", &all.join("---\n"));
    let containers: Vec<Container> = (0..PODS)
        .map(|n| world.sandbox(&format!("p{n}")).1)
        .collect();
    for command in ["ADD", "DEL"] {
        let began = Instant::now();
        let calls: Vec<Child> = containers
            .iter()
            .map(|container| world.runtime.spawn(command, Some(container)))
            .collect();
        let mut held = BTreeSet::new();
        for (call, container) in calls.into_iter().zip(&containers) {
            let output = call.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{command} {container:?}: {said}");
            if command == "ADD" {
                held.extend(addresses(&serde_json::from_slice(&output.stdout).unwrap()));
            }
        }
        println!("{command} of {PODS} pods at once: {:?}", began.elapsed());
        if command == "ADD" {
            assert!(held.len() >= PODS, "{} addresses", held.len());
        }
    }
    world
        .agent
        .wait("in force", |s| s["revision"] == s["realised"]);
    assert_eq!(world.findings(), [""; 0]);
}

//! SIGKILL of agent and plugin at moments spread over ADD and DEL: afterwards the runtime retries, and
//! nothing leaks. `kernel_steps` of the agent covers every step; here the real programs are killed.

use super::World;
use crate::plugin::pod;
use palisade_testkit::need_root;
use std::collections::BTreeMap;
use std::time::Instant;

/// Moments for each of ADD and DEL, and for each of agent and plugin.
const MOMENTS: u32 = 12;

/// Progress of an attachment, according to the objects it left.
fn stage(world: &World) -> String {
    let text = std::fs::read_to_string(world.agent.state().join("workloads.json"));
    let text = text.unwrap_or_default();
    let record = match (text.contains("c-web"), text.contains("\"pending\": true")) {
        (false, _) => "no record",
        (true, true) => "pending",
        (true, false) => "attached",
    };
    let held = world.held();
    let has = |what: &str| held.iter().any(|line| line.contains(what));
    let link = match (has("@if"), has("UP")) {
        (false, _) => "no link",
        (true, false) => "link down",
        (true, true) => "link up",
    };
    let dispatch = if has("\"pal") { "judged" } else { "not judged" };
    format!("{record}, {link}, {dispatch}")
}

#[test]
fn whenever_agent_or_plugin_are_killed_nothing_leaks() {
    if !need_root() {
        return;
    }
    let mut world = World::open("kills");
    world.agent.apply("web.yaml", &pod("web", "web"));
    let (_, container) = world.sandbox("web");
    let mut longest = BTreeMap::new();
    for command in ["ADD", "DEL"] {
        let began = Instant::now();
        world.runtime.ok(command, Some(&container));
        longest.insert(command, began.elapsed());
    }
    let mut struck: BTreeMap<(&str, String), u32> = BTreeMap::new();
    for moment in 0..MOMENTS {
        for (command, agent) in [("ADD", true), ("DEL", true), ("ADD", false), ("DEL", false)] {
            if command == "DEL" {
                world.runtime.ok("ADD", Some(&container));
            }
            let mut call = world.runtime.spawn(command, Some(&container));
            std::thread::sleep(longest[command] * moment / MOMENTS);
            if agent {
                world.agent.kill()
            } else {
                call.kill().unwrap()
            }
            let ended = call.wait_with_output().unwrap();
            if agent {
                // A deletion without an agent is queued and succeeds.
                assert!(command == "ADD" || ended.status.success(), "{ended:?}");
                *struck.entry((command, stage(&world))).or_default() += 1;
                world.agent.start(&world.lab);
            }
            let when = format!("{command} {moment} agent: {agent}");
            assert_eq!(world.findings(), [""; 0], "{when}");
            world.runtime.ok("DEL", Some(&container));
            assert_eq!(world.held(), [""; 0], "{when}");
            assert_eq!(world.findings(), [""; 0], "{when}");
            world.runtime.add(&container);
            world.runtime.ok("DEL", Some(&container));
        }
    }
    println!(
        "kills: {} of agent and plugin; the agent's found",
        4 * MOMENTS
    );
    for ((command, stage), times) in &struck {
        println!("  {times:3} x {command}: {stage}");
    }
    assert!(struck.len() > 3, "{struck:?}");
}

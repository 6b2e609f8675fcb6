//! The state at the end is that of a fresh start: of an agent on another host with the same objects, and of one
//! that starts again over what is there, which writes nothing.

use palisade_testkit::lab::{Lab, ProbeFlow, probe};
use serde_json::Value;

use super::objects::{LONG, PORT, REMOTE, address, is_allowed};
use super::world::World;
use crate::agent::nft;

/// Fields that differ between two agents with the same state: counts, numbers, and where an object was read
/// (`line`: with its resource version).
const OWN: [&str; 12] = [
    "packets",
    "bytes",
    "revision",
    "id",
    "counters",
    "version",
    "location",
    "line",
    "origin",
    "interface",
    "source",
    "since",
];

fn without_own(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !OWN.contains(&&**name));
            fields.values_mut().for_each(without_own);
        }
        Value::Array(items) => items.iter_mut().for_each(without_own),
        _ => {}
    }
}

/// What the agent says is in force, and the size of what is in the kernel.
fn report(world: &World) -> [Value; 4] {
    let mut lists = ["policy", "endpoint", "identity"].map(|what| {
        let mut list = world.agent.json(&[what, "list"]);
        without_own(&mut list);
        list
    });
    // Identities and selectors are numbered in the order in which they were needed.
    let identities = lists[2]["identities"].as_array_mut().unwrap();
    for identity in &mut *identities {
        let matches = identity["matches"].as_array_mut().unwrap();
        matches.sort_by_key(ToString::to_string);
    }
    identities.sort_by_key(ToString::to_string);
    let [policies, endpoints, identities] = lists;
    let words = kernel(world).split(' ').count();
    [policies, endpoints, identities, words.into()]
}

/// The kernel's table without the values of counters.
fn kernel(world: &World) -> String {
    let text = nft(&world.lab, "list table inet palisade");
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        match words.last() {
            Some(&"packets" | &"bytes") if word.starts_with(|c: char| c.is_ascii_digit()) => {
                words.pop();
            }
            _ => words.push(word),
        }
    }
    words.join(" ")
}

/// Every pair, by datagram and connection, and its verdict by packets.
fn matrix(world: &World) -> Vec<(ProbeFlow, u8, bool)> {
    let lab: &Lab = &world.lab;
    let mut ends: Vec<_> = (0..4)
        .flat_map(|pod| [0, 1].map(|family| (world.pods[pod], address(pod, family))))
        .collect();
    ends.extend(REMOTE.map(|ip| (lab.outside(), ip.parse().unwrap())));
    let mut flows = Vec::new();
    for (from, source) in &ends {
        for (to, address) in &ends {
            if from == to || source.is_ipv4() != address.is_ipv4() {
                continue;
            }
            let udp = ProbeFlow::udp(*from, *address, PORT, *to).with_source(*source);
            let tcp = ProbeFlow::tcp(*from, *address, LONG, *to).with_source(*source);
            flows.extend([(udp, 17, PORT), (tcp, 6, LONG)]);
        }
    }
    lab.flush_conntrack().unwrap();
    let only: Vec<ProbeFlow> = flows.iter().map(|(flow, ..)| flow.clone()).collect();
    let arrived = probe(lab, &only).unwrap();
    let state = world.objects.values();
    for ((flow, protocol, port), arrived) in flows.iter().zip(&arrived) {
        let wanted = is_allowed(&state, flow.source.unwrap(), flow.to, *protocol, *port);
        assert_eq!(*arrived, wanted, "{flow:?}");
    }
    let of = flows.into_iter().zip(arrived);
    of.map(|((flow, protocol, _), arrived)| (flow, protocol, arrived))
        .collect()
}

/// Compares with a fresh start; `step` is the last one.
pub(crate) fn assert_equal_to_a_fresh_start(world: &mut World, step: u64) {
    let (now, packets) = (report(world), matrix(world));
    let fresh = World::fake("fresh", world.objects.clone());
    fresh
        .agent
        .wait("the objects of the fresh start", |status| {
            fresh.has_marks(status, step)
        });
    let (other, others) = (report(&fresh), matrix(&fresh));
    for (own, fresh) in now.iter().zip(&other) {
        assert_eq!(own, fresh, "not as after a fresh start");
    }
    let verdicts = |all: &[(ProbeFlow, u8, bool)]| -> Vec<bool> {
        all.iter().map(|(_, _, arrived)| *arrived).collect()
    };
    assert_eq!(verdicts(&packets), verdicts(&others));
    drop(fresh);
    let before = kernel(world);
    world.agent.kill();
    world.agent.start(&world.lab);
    let status = world
        .agent
        .wait("the old state", |status| world.has_marks(status, step));
    assert_eq!(status["dataplane"]["start"]["writes"], 0, "{status:#}");
    assert_eq!(kernel(world), before);
}

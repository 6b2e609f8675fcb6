//! Previews of random changes in random clusters.

use crate::world::{
    PlainEnd, RECORDER, TriedFlow, World, held_address, list, record_end, recorded, world,
};
use palisade_api::{FlowSummary, PreviewReport, PreviewedFlow};
use palisade_convert::{TargetDialect, lower_written};
use palisade_generators::{Dice, cases, seeded_cases};
use palisade_model::{
    Encapsulations, Endpoint, Family, FlowOrigin, Protocol, State, UnreadDnsAction,
};
use palisade_oracle::{FlowEnd, HostPath, OracleOptions, PreparedState, Question};
use palisade_preview::{AgentActions, Record, SuggestionScope, preview, suggest};
use std::collections::BTreeMap;
use std::net::IpAddr;

const SEED: u64 = 0x0070_7265_7669_6577;

fn options() -> OracleOptions {
    OracleOptions {
        allowed_encapsulation: Encapsulations::ALL,
        unread_dns: UnreadDnsAction::Allow,
        ..OracleOptions::default()
    }
}

/// Every pair of addresses that a recorded flow may be between, with its origin.
fn plain_pairs(
    prepared: &[PreparedState<'_>; 2],
    [source, destination]: [&PlainEnd; 2],
    protocol: Protocol,
) -> Vec<(IpAddr, IpAddr, FlowOrigin)> {
    let mut pairs = Vec::new();
    let only = match protocol {
        Protocol::ICMP => Some(Family::V4),
        Protocol::ICMPV6 => Some(Family::V6),
        _ => None,
    };
    for family in Family::BOTH {
        if only.is_some_and(|only| only != family) {
            continue;
        }
        let places = |end: &PlainEnd| -> Vec<(Option<Endpoint>, IpAddr)> {
            match end {
                PlainEnd::Pods(pods) => pods
                    .iter()
                    .filter_map(|pod| {
                        Some((Some(pod.clone()), held_address(prepared, pod, family)?))
                    })
                    .collect(),
                PlainEnd::Address(address) if Family::of(*address) == family => {
                    vec![(None, *address)]
                }
                PlainEnd::Address(_) => Vec::new(),
            }
        };
        let (from, to) = (places(source), places(destination));
        let count = |end: &PlainEnd| match end {
            PlainEnd::Pods(pods) => pods.len(),
            PlainEnd::Address(_) => 1,
        };
        let is_single = count(source) == 1 && count(destination) == 1;
        for (sender, sender_address) in &from {
            for (receiver, receiver_address) in &to {
                let is_same = sender.is_some() && sender_address == receiver_address;
                if is_same && !is_single {
                    continue;
                }
                let state = prepared[0].state();
                let node = state.nodes.values();
                let mut node = node.filter(|node| node.addresses.contains(sender_address));
                let own = node.find(|node| *node.name == *RECORDER);
                let is_own = sender.is_none()
                    && own.is_some()
                    && receiver.as_ref().is_some_and(|receiver| {
                        receiver.node.as_deref().is_none_or(|node| node == RECORDER)
                    });
                let origin = if is_own {
                    FlowOrigin::HostStack
                } else {
                    FlowOrigin::Network
                };
                pairs.push((*sender_address, *receiver_address, origin));
            }
        }
    }
    pairs
}

fn allows(
    prepared: &PreparedState<'_>,
    pair: &(IpAddr, IpAddr, FlowOrigin),
    flow: &TriedFlow,
) -> bool {
    let question = Question {
        source: FlowEnd::Address(pair.0),
        destination: FlowEnd::Address(pair.1),
        family: Family::of(pair.0),
        protocol: flow.protocol,
        l4: flow.l4,
        origin: pair.2,
        path: HostPath::default(),
    };
    let (egress, ingress) = prepared.verdict(&question, &options());
    egress && (ingress || pair.2 == FlowOrigin::HostStack)
}

/// A change: policies go, others come.
fn changed(dice: &mut Dice, state: &State, other: &State) -> State {
    let mut changed = state.clone();
    changed.policies.retain(|_, _| !dice.chance(40));
    for (id, policy) in &other.policies {
        if dice.chance(50) {
            changed.policies.insert(id.clone(), policy.clone());
        }
    }
    changed
}

/// The texts that tell the flows of a list apart.
fn keys(flows: &[PreviewedFlow]) -> Vec<String> {
    let key = |flow: &PreviewedFlow| {
        let f = &flow.flow;
        format!(
            "{:?} {:?} {} {:?} {:?}",
            f.source, f.destination, f.protocol, f.port, f.icmp
        )
    };
    let mut keys: Vec<String> = flows.iter().map(key).collect();
    keys.sort();
    keys
}

/// What a preview should say: for each flow its text and whether it is cut, opened or denied already.
#[derive(Default, Debug, PartialEq, Eq)]
struct Expected {
    cut: Vec<String>,
    opened: Vec<String>,
    already_denied: Vec<String>,
}

impl Expected {
    fn of(report: &PreviewReport) -> Self {
        Expected {
            cut: keys(&report.cut),
            opened: keys(&report.opened),
            already_denied: keys(&report.already_denied),
        }
    }
}

/// Records every flow by the verdict of a state and evaluates what a change means for it, each by itself.
fn evaluate(world: &World, change: &State) -> (Record, Expected) {
    let prepared = [PreparedState::new(&world.state), PreparedState::new(change)];
    let mut expected = Expected::default();
    let mut rows = BTreeMap::new();
    for flow in &world.flows {
        let (source, from) = record_end(&world.state, flow.source);
        let (destination, to) = record_end(&world.state, flow.destination);
        if !matches!(from, PlainEnd::Pods(_)) && !matches!(to, PlainEnd::Pods(_)) {
            continue;
        }
        let pairs = plain_pairs(&prepared, [&from, &to], flow.protocol);
        if pairs.is_empty() {
            continue;
        }
        let verdicts: Vec<[bool; 2]> = pairs
            .iter()
            .map(|pair| [0, 1].map(|at: usize| allows(&prepared[at], pair, flow)))
            .collect();
        // As a record sums pods up: allowed if it is for some pod.
        let is_allowed = verdicts.iter().any(|[old, _]| *old);
        let row = recorded([source, destination], flow, is_allowed, rows.len());
        let key = format!(
            "{:?} {:?} {} {:?} {:?}",
            row.source, row.destination, row.protocol, row.port, row.icmp
        );
        if rows.insert(key.clone(), row).is_some() {
            continue;
        }
        let has = |wanted: [bool; 2]| verdicts.contains(&wanted);
        let list = if is_allowed && has([true, false]) {
            &mut expected.cut
        } else if is_allowed && has([false, false]) {
            &mut expected.already_denied
        } else if has([false, true]) {
            &mut expected.opened
        } else {
            continue;
        };
        list.push(key);
    }
    for list in [
        &mut expected.cut,
        &mut expected.opened,
        &mut expected.already_denied,
    ] {
        list.sort();
    }
    let mut record = Record::default();
    record.add(list(rows.into_values().collect()), None);
    (record, expected)
}

#[test]
fn no_change_cuts_and_opens_nothing() {
    let mut judged = 0;
    for (seed, case) in seeded_cases(SEED, cases(200)) {
        let world = world(seed, case, 40);
        let (record, _) = evaluate(&world, &world.state);
        let actions = AgentActions::default();
        let report = preview(&record, &world.state, &world.state, actions).unwrap();
        let found = Expected::of(&report);
        assert_eq!(found.cut, [""; 0], "case {case} of seed {seed}");
        assert_eq!(found.opened, [""; 0], "case {case} of seed {seed}");
        assert_eq!(report.unjudged, [], "case {case} of seed {seed}");
        judged += report.judged;
    }
    println!("{judged} flows");
    assert!(judged > 0);
}

#[test]
fn a_preview_says_what_the_oracle_says_of_each_flow() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (seed, case) in seeded_cases(SEED ^ 1, cases(300)) {
        let present = world(seed, case, 40);
        let other = world(seed ^ 0x006f_7468_6572, case, 0);
        let mut dice = Dice::new(seed ^ 2, case);
        let change = changed(&mut dice, &present.state, &other.state);
        let (record, expected) = evaluate(&present, &change);
        let actions = AgentActions::default();
        let report = preview(&record, &present.state, &change, actions).unwrap();
        let found = Expected::of(&report);
        for (found, expected) in [
            (&found.cut, &expected.cut),
            (&found.opened, &expected.opened),
            (&found.already_denied, &expected.already_denied),
        ] {
            let only = |a: &Vec<String>, b: &Vec<String>| -> Vec<String> {
                a.iter().filter(|key| !b.contains(key)).cloned().collect()
            };
            let difference = [only(found, expected), only(expected, found)];
            assert_eq!(
                difference,
                [const { Vec::<String>::new() }; 2],
                "case {case} of seed {seed}"
            );
        }
        for flow in report.cut.iter().chain(&report.opened) {
            assert!(
                !flow.denied_by.is_empty(),
                "case {case} of seed {seed}: {flow:?}"
            );
        }
        let counts = [
            ("cut", report.cut.len()),
            ("opened", report.opened.len()),
            (
                "in part",
                report.cut.iter().filter(|f| f.pairs.is_some()).count(),
            ),
            ("already denied", report.already_denied.len()),
        ];
        for (what, count) in counts {
            *seen.entry(what).or_default() += count;
        }
    }
    println!("{seen:?}");
    assert!(seen.values().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn suggestions_allow_what_was_recorded_and_nothing_else() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (seed, case) in seeded_cases(SEED ^ 3, cases(120)) {
        let world = world(seed, case, 25);
        let (record, _) = evaluate(&world, &world.state);
        for dialect in TargetDialect::ALL {
            let scope = SuggestionScope {
                dialect,
                namespace: None,
                workload: None,
                min_count: 1,
            };
            // It is an error if a recorded flow is denied, or anything else allowed for no reason.
            let report = match suggest(&record, &world.state, &scope) {
                Ok(report) => report,
                Err(error) => panic!("case {case} of seed {seed}: {dialect}: {error}"),
            };
            let mut suggested = world.state.clone();
            suggested.policies.clear();
            suggested.tiers.clear();
            for object in &report.objects {
                for policy in lower_written(object).unwrap() {
                    suggested.policies.insert(policy.id.clone(), policy);
                }
            }
            let actions = AgentActions::default();
            let judged = preview(&record, &suggested, &suggested, actions).unwrap();
            let left_out = report.left_out.iter().map(|flow| &flow.flow);
            let left_out: Vec<&FlowSummary> = left_out.collect();
            if report.refused.is_empty() {
                for denied in &judged.already_denied {
                    assert!(
                        left_out.contains(&&denied.flow),
                        "case {case} of seed {seed}: {dialect}: {denied:?}"
                    );
                }
            }
            for (what, count) in [
                ("written", report.objects.len()),
                ("refused", report.refused.len()),
                ("widened", report.widened.len()),
                ("left out", report.left_out.len()),
            ] {
                *seen.entry(format!("{dialect}: {what}")).or_default() += count;
            }
        }
    }
    println!("{seen:?}");
    let written = |key: &&String| key.ends_with("written");
    assert!(
        seen.keys().filter(written).all(|key| seen[key] > 0),
        "{seen:?}"
    );
}

//! Compares plans with the tables: packets through the simulator, in both directions.

use crate::support::expected::{expected, reports};
use crate::support::{self, frame, tables};
use palisade_generators::case_seeds;
use palisade_model::{Direction, L4, Prefix, Protocol, Str};
use palisade_nft::{Config, CounterLocation, Planner, adopt, ct_state};
use palisade_tables::{
    Cell, ClassId, Delta, IdentityId, Phase, Point, PolicySet, PortMap, TableChange,
};
use palisade_tables::{DeltaStep, PolicySetId, Program, RuleId, Tables, Verdict};
use palisade_verification::{
    ConntrackInfo, EvaluationCost, HookPacket, RulesetSimulator, SimulationOutcome, apply,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) fn config(rng: &mut SmallRng) -> Config {
    Config {
        judgement: support::judgement(rng),
        packet_mark: support::packet_mark(rng),
        deny_action: support::deny_action(rng),
        sctp_tracked: rng.random_bool(0.7),
        log: rng.random_bool(0.8).then(Default::default),
        max_expanded_ports: if rng.random_bool(0.8) { 16 } else { 1 },
        min_shared_elements: support::share_from(rng),
        redirect: support::redirect(rng),
        ..Config::default()
    }
}

pub(crate) fn everything(tables: &Tables) -> Delta {
    let mut changes = Vec::new();
    changes.extend(
        tables
            .rules
            .iter()
            .map(|(k, v)| TableChange::Rule(*k, Some(v.clone()))),
    );
    changes.extend(
        tables
            .programs
            .iter()
            .map(|(k, v)| TableChange::Program(*k, Some(v.clone()))),
    );
    changes.extend(
        tables
            .sets
            .iter()
            .map(|(k, v)| TableChange::Set(*k, Some(*v))),
    );
    changes.extend(
        tables
            .classes
            .iter()
            .map(|(k, v)| TableChange::Class(k.0, k.1, Some(*v))),
    );
    changes.extend(
        tables
            .addresses
            .iter()
            .map(|(k, v)| TableChange::Address(k, Some(*v))),
    );
    changes.extend(
        tables
            .interfaces
            .iter()
            .map(|k| TableChange::Interface(k.clone(), true)),
    );
    changes.extend(
        tables
            .points
            .iter()
            .map(|(k, v)| TableChange::Point(k.clone(), Some(*v))),
    );
    Delta {
        revision: 1,
        steps: vec![DeltaStep {
            phase: Phase::Split,
            changes,
        }],
    }
}

#[test]
fn packets_get_what_the_tables_say() {
    let (mut allowed, mut denied, mut marked, mut logged) = (0, 0, 0, 0);
    let mut by_base = 0;
    for seed in case_seeds(0, 400) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config(&mut rng);
        let tables = tables(&mut rng, &config);
        let mut planner = Planner::new(config.clone(), 3);
        let mut kernel = None;
        for step in planner.rebuild(None).steps {
            apply(&mut kernel, &config.table, &step.ops).unwrap();
        }
        for step in planner.plan(&everything(&tables)).steps {
            apply(&mut kernel, &config.table, &step.ops).unwrap();
        }
        let ruleset = kernel.unwrap();
        assert_eq!(ruleset, planner.ruleset(), "seed {seed}");
        for _ in 0..60 {
            let frame = frame(&mut rng, &tables, config.mark(3));
            let outcome = RulesetSimulator::new(&ruleset).run(&frame).unwrap();
            let (accepted, mark) = expected(&tables, &config, 3, &frame);
            let reply = frame.conntrack.reply && frame.conntrack.state == ct_state::ESTABLISHED;
            let prefixes = reports(&tables, &config, 3, &frame);
            let prefixes = prefixes.iter().filter(|_| config.log.is_some());
            let prefixes: Vec<String> = prefixes
                .map(|report| palisade_nft::log_prefix(*report, reply))
                .collect();
            // What is answered is denied.
            let logged_prefixes = outcome.log_prefixes.iter();
            let logged_prefixes =
                logged_prefixes.map(|prefix| prefix.replace("rejected", "denied"));
            assert!(
                logged_prefixes.eq(prefixes.iter().cloned()),
                "seed {seed}: {:?} {prefixes:?} {frame:?}",
                outcome.log_prefixes
            );
            let of_base = |location: &&CounterLocation| match location {
                CounterLocation::Element { key, .. } => support::is_of_base(key),
                CounterLocation::Rule { .. } => false,
            };
            by_base += outcome.counters_hit.iter().filter(of_base).count();
            logged += usize::from(accepted && !prefixes.is_empty());
            assert_eq!(outcome.accepted, accepted, "seed {seed} {frame:?}");
            if accepted {
                assert!(outcome.packet_mark_kept, "seed {seed} {frame:?}");
                assert_eq!(outcome.mark, mark, "seed {seed} {frame:?}");
                allowed += 1;
                marked += usize::from(mark != frame.conntrack.mark);
            } else {
                denied += 1;
            }
        }
    }
    assert!(
        allowed > 4000 && denied > 4000 && marked > 1000 && logged > 500 && by_base > 1000,
        "{allowed} {denied} {marked} {logged} {by_base}"
    );
}

/// The same outcome where a denial is not answered, in the chains that are not copies.
fn unanswered(mut outcome: SimulationOutcome) -> SimulationOutcome {
    for prefix in &mut outcome.log_prefixes {
        *prefix = prefix.replace("rejected", "denied").into();
    }
    for location in &mut outcome.counters_hit {
        if let CounterLocation::Rule { chain, .. } = location {
            let name = chain.replace("rejected", "denied");
            *chain = name.strip_suffix("_d").unwrap_or(&name).into();
        }
    }
    outcome
}

/// A translated packet of this host's own stack gets the same verdict as any other: its output interface
/// before translation has no effect, and it is judged, counted and reported once.
#[test]
fn what_is_translated_is_judged_by_where_it_goes() {
    let (mut allowed, mut denied) = (0, 0);
    for seed in case_seeds(0, 300) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut config = config(&mut rng);
        config.judgement.judge_host_traffic = true;
        let tables = tables(&mut rng, &config);
        let (planner, _) = adopt(&config, None, &tables, 3);
        let ruleset = Planner::ruleset(&planner);
        for _ in 0..30 {
            let frame = HookPacket {
                iif: None,
                ..frame(&mut rng, &tables, config.mark(3))
            };
            // Neighbour discovery belongs to no connection.
            if matches!(
                (frame.protocol, frame.l4),
                (
                    Protocol::ICMPV6,
                    L4::Icmp {
                        kind: 130..=143,
                        ..
                    }
                )
            ) {
                continue;
            }
            let plain = RulesetSimulator::new(&ruleset).run(&frame).unwrap();
            let mut befores = vec![None, Some("lo".into()), Some("eth0".into())];
            befores.extend(tables.interfaces.iter().cloned().map(Some));
            for before in befores {
                let machine = RulesetSimulator::new(&ruleset).with_nat(before.clone());
                let outcome = machine.run(&frame).unwrap();
                let outcome = SimulationOutcome {
                    cost: plain.cost,
                    ..outcome
                };
                // What is not tracked is not translated either.
                let untracked = [ct_state::UNTRACKED, ct_state::INVALID];
                let is_translated = !untracked.contains(&frame.conntrack.state);
                let is_answered = |prefix: &Str| prefix.contains("rejected");
                let answers = outcome.log_prefixes.iter().any(is_answered);
                assert!(!is_translated || !answers, "seed {seed}, {frame:?}");
                assert_eq!(
                    unanswered(outcome),
                    unanswered(plain.clone()),
                    "seed {seed}, {before:?} before: {frame:?}"
                );
            }
            allowed += usize::from(plain.accepted && plain.mark != frame.conntrack.mark);
            denied += usize::from(!plain.accepted);
        }
    }
    assert!(allowed > 500 && denied > 1000, "{allowed} {denied}");
}

/// The cost of a new flow between two endpoints whose last rules match one port, and any port.
#[test]
fn a_new_flow_walks_no_further_than_it_must() {
    let cell = |verdict, rule| Cell {
        verdict,
        causes: vec![RuleId(rule)],
        log: None,
        audit: None,
        redirect: None,
    };
    let (yes, no) = (cell(Verdict::Allow, 1), cell(Verdict::Deny, 2));
    let always = |cell: &Cell| PortMap::constant(cell.clone());
    let by_port = PortMap::from_segments([
        (52, always(&no)),
        (53, always(&yes)),
        (u16::MAX, always(&no)),
    ]);
    let port = Program::new([(Protocol::UDP, by_port.unwrap())], no);
    let mut tables = Tables::default();
    let names = ["pala", "palb"].map(Str::from);
    let addresses: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
    for (name, address) in names.iter().zip(addresses) {
        tables.interfaces.insert(name.clone());
        tables
            .addresses
            .insert(Prefix::host(address), IdentityId(1));
        for direction in Direction::BOTH {
            let point = Point::of_workload(name.clone(), address, direction);
            tables.points.insert(point, PolicySetId(1));
        }
    }
    let default = ClassId(1);
    tables.sets.insert(PolicySetId(1), PolicySet { default });
    let frame = HookPacket {
        iif: Some(names[0].clone()),
        oif: Some(names[1].clone()),
        source: addresses[0],
        destination: addresses[1],
        protocol: Protocol::UDP,
        l4: L4::Ports {
            source: 4321,
            destination: 53,
        },
        tcp_flags: 0,
        conntrack: ConntrackInfo::NEW,
    };
    for (program, lookups) in [(port, 16), (Program::constant(yes), 28)] {
        tables.programs.insert(ClassId(1), Arc::new(program));
        let (planner, _) = adopt(&Config::default(), None, &tables, 1);
        let outcome = RulesetSimulator::new(&planner.ruleset())
            .run(&frame)
            .unwrap();
        assert!(outcome.accepted);
        assert_eq!(outcome.cost, EvaluationCost { rules: 15, lookups });
    }
}

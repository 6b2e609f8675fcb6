//! Every named fault makes the comparison with the decision tables fail, and without one it holds.

#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "integration/support/mod.rs"]
#[allow(
    dead_code,
    reason = "the integration tests use the rest of this module"
)]
mod support;

use palisade_model::L4;
use palisade_nft::{Config, NftFault, adopt, ct_state};
use palisade_tables::{ClassId, Delta, DeltaStep, Phase, TableChange, Tables};
use palisade_verification::{RulesetSimulator, apply};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use support::expected::{expected, is_proven, reports, without_tracking};
use support::{frame, tables};

/// The number of cases until a packet's verdict differs from the tables'; `None` if 20,000 cases agree.
fn first_difference() -> Option<usize> {
    let mut cases = 0;
    for seed in 0.. {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = Config {
            judgement: support::judgement(&mut rng),
            packet_mark: support::packet_mark(&rng),
            min_shared_elements: support::share_from(&rng),
            ..Config::default()
        };
        let tables = tables(&mut rng, &config);
        let first = config.least_generation();
        let (mut planner, made) = adopt(&config, None, &tables, first);
        let step = |phase, changes| DeltaStep { phase, changes };
        let steps = vec![
            step(Phase::Revoke, Vec::new()),
            step(Phase::Delete, unused(&tables)),
        ];
        let mut kernel = None;
        let delta = planner.plan(&Delta { revision: 2, steps });
        for step in made.steps.iter().chain(&delta.steps) {
            if apply(&mut kernel, &config.table, &step.ops).is_err() {
                return Some(cases);
            }
        }
        let ruleset = kernel.unwrap();
        for _ in 0..20 {
            let live = first + u32::from(rng.random_bool(0.5));
            let mut frame = frame(&mut rng, &tables, config.mark(live));
            if frame.protocol.is_icmp() && frame.oif.is_some() && rng.random_bool(0.1) {
                // The host's own, about a flow that connection tracking does not know.
                frame.iif = None;
                (frame.conntrack.state, frame.conntrack.reply) = (ct_state::INVALID, false);
            }
            let proof = config.packet_mark.proof.filter(|_| rng.random_bool(0.2));
            let is_proven = proof.is_some() && is_proven(&tables, &config, &frame);
            let judged = match proof {
                Some(_) => without_tracking(&tables, &config, &frame),
                None => frame.clone(),
            };
            let (accepted, mark) = if is_proven {
                (true, frame.conntrack.mark)
            } else {
                expected(&tables, &config, first + 1, &judged)
            };
            let report_count = if is_proven {
                0
            } else {
                reports(&tables, &config, first + 1, &judged).len()
            };
            let mut machine = RulesetSimulator::new(&ruleset);
            machine = machine.with_packet_mark(proof.unwrap_or(0));
            // Neighbour discovery belongs to no connection.
            let nd = matches!(
                frame.l4,
                L4::Icmp {
                    kind: 130..=143,
                    ..
                }
            );
            if frame.iif.is_none() && config.judgement.judge_host_traffic && !nd {
                machine = machine.with_nat(Some("eth0".into()));
            }
            match machine.run(&frame) {
                Ok(outcome) if outcome.log_prefixes.len() != report_count => return Some(cases),
                Ok(outcome) if outcome.accepted != accepted => return Some(cases),
                Ok(outcome) if accepted && outcome.mark != mark => return Some(cases),
                Ok(outcome) if accepted && outcome.packet_mark_kept == is_proven => {
                    return Some(cases);
                }
                Ok(_) => {}
                Err(_) => return Some(cases),
            }
            cases += 1;
            if cases == 20_000 {
                return None;
            }
        }
    }
    None
}

/// Deletes the classes that nothing refers to.
fn unused(tables: &Tables) -> Vec<TableChange> {
    let defaults = tables.sets.values().map(|set| set.default);
    let used: BTreeSet<ClassId> = defaults.chain(tables.classes.values().copied()).collect();
    let all = tables.programs.keys();
    let unused = all.filter(|class| !used.contains(class));
    unused
        .map(|class| TableChange::Program(*class, None))
        .collect()
}

#[test]
fn every_fault_is_seen() {
    NftFault::inject(None);
    assert_eq!(first_difference(), None, "without a fault");
    let mut unseen = Vec::new();
    // Packets at interfaces of the host are in the random clusters, whose comparison finds these.
    let of_hosts = [
        NftFault::HostReplyAsOriginal,
        NftFault::HostStagesSwapped,
        NftFault::HostForwardJudgedOnce,
        NftFault::FailsafeIgnored,
        NftFault::EarlyStagesSwapped,
        NftFault::EarlyAllowJudgedAgain,
        NftFault::UntrackedTracked,
        NftFault::PreDnatAfterDnat,
    ];
    let faults = NftFault::ALL.iter().copied();
    for fault in faults.filter(|fault| !of_hosts.contains(fault)) {
        NftFault::inject(Some(fault));
        match first_difference() {
            Some(cases) => println!("{fault:?}: seen after {cases} cases"),
            None => unseen.push(fault),
        }
    }
    NftFault::inject(None);
    assert_eq!(unseen, []);
}

//! The proof bit: which packets pass for it, that it means nothing elsewhere, and that the rules come and go without a
//! change of policy.

use crate::meaning;
use crate::support::expected::{is_proven, without_tracking};
use crate::support::{self, FOREIGN, PROOF_BIT, frame, tables};
use palisade_generators::case_seeds;
use palisade_model::{Family, L4, Protocol, Str};
use palisade_nft::{
    BaseChain, Chain, ChainPolicy, ChainType, Config, CounterLocation, Expr, Hook, MetaKey,
    NftRule, Op, PacketMarkBits, Planner, RedirectConfig, Reg, Ruleset, adopt, ct_state,
    print_ruleset, skeleton,
};
use palisade_tables::{JudgementOptions, Phase};
use palisade_verification::{
    EvaluationCost, HookPacket, LintProblem, RulesetSimulator, SimulationOutcome, apply, lint,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// The configuration with and without the bit.
fn with_proof(config: &Config, proof: Option<u32>) -> Config {
    Config {
        packet_mark: PacketMarkBits {
            proof,
            ..config.packet_mark.clone()
        },
        ..config.clone()
    }
}

/// The outcome of a packet, with or without the bit on arrival, but for its cost.
fn outcome(ruleset: &Ruleset, frame: &HookPacket, bits: u32) -> SimulationOutcome {
    let machine = RulesetSimulator::new(ruleset).with_packet_mark(bits);
    SimulationOutcome {
        cost: EvaluationCost::default(),
        ..machine.run(frame).unwrap()
    }
}

/// What a rule did for the bit, which is no part of the judgement.
fn judgement_of(outcome: SimulationOutcome) -> SimulationOutcome {
    SimulationOutcome {
        packet_mark: outcome.packet_mark & !PROOF_BIT,
        is_left_out: false,
        ..outcome
    }
}

/// Without the places of rules in their chains.
fn without_places(mut outcome: SimulationOutcome) -> SimulationOutcome {
    for location in &mut outcome.counters_hit {
        if let CounterLocation::Rule { index, .. } = location {
            *index = 0;
        }
    }
    outcome
}

#[test]
fn the_bit_means_something_only_where_programs_set_it() {
    let (mut proven, mut denied_without, mut received, mut elsewhere) = (0, 0, 0, 0);
    let mut from_outside = 0;
    for seed in case_seeds(0, 300) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut config = with_proof(&meaning::config(&mut rng), Some(PROOF_BIT));
        let tables = tables(&mut rng, &config);
        // Where the host judges packets, no program at its interfaces sets the bit.
        if seed % 2 == 0 && !tables.judges_host() {
            config.packet_mark.uplinks = vec![FOREIGN[0].into()];
        }
        let ruleset = Planner::ruleset(&adopt(&config, None, &tables, 3).0);
        assert_eq!(lint(&ruleset), [], "seed {seed}");
        let unmarked = with_proof(&config, None);
        let former = Planner::ruleset(&adopt(&unmarked, None, &tables, 3).0);
        for _ in 0..30 {
            let frame = frame(&mut rng, &tables, config.mark(3));
            let plain = outcome(&ruleset, &frame, 0);
            let before = outcome(&former, &frame, 0);
            assert_eq!(
                without_places(plain.clone()),
                without_places(before),
                "seed {seed} {frame:?}"
            );
            let marked = outcome(&ruleset, &frame, PROOF_BIT);
            if is_proven(&tables, &config, &frame) {
                let wanted = SimulationOutcome {
                    accepted: true,
                    mark: frame.conntrack.mark,
                    packet_mark_kept: false,
                    packet_mark: plain.packet_mark,
                    is_left_out: true,
                    counters_hit: Vec::new(),
                    log_prefixes: Vec::new(),
                    cost: EvaluationCost::default(),
                };
                assert_eq!(marked, wanted, "seed {seed} {frame:?}");
                denied_without += usize::from(!plain.accepted);
                from_outside += usize::from(frame.iif.as_deref() == Some(FOREIGN[0]));
                proven += 1;
                continue;
            }
            let judged = outcome(&ruleset, &without_tracking(&tables, &config, &frame), 0);
            assert!(!marked.accepted || marked.packet_mark_kept);
            received += usize::from(marked.accepted && marked.is_left_out);
            elsewhere += usize::from(!marked.is_left_out);
            let (marked, judged) = (judgement_of(marked), judgement_of(judged));
            assert_eq!(marked, judged, "seed {seed} {frame:?}");
        }
    }
    let enough = proven > 1_000 && denied_without > 500 && received > 50 && elsewhere > 1_000;
    assert!(enough, "{proven} {denied_without} {received} {elsewhere}");
    assert!(from_outside > 100, "{from_outside}");
}

/// A rule of another program that sets the bit on every packet.
fn foreign_chain(priority: i32) -> Chain {
    let (reg, key) = (Reg(0), MetaKey::Mark);
    let set = [
        Expr::Meta { key, dreg: reg },
        Expr::Bitwise {
            sreg: reg,
            dreg: reg,
            mask: (!PROOF_BIT).to_ne_bytes().into(),
            xor: PROOF_BIT.to_ne_bytes().into(),
        },
        Expr::MetaSet { key, sreg: reg },
    ];
    Chain {
        base_chain: Some(BaseChain {
            hook: Hook::Prerouting,
            priority,
            policy: ChainPolicy::Accept,
            chain_type: ChainType::Filter,
        }),
        rules: vec![NftRule {
            exprs: set.into(),
            comment: None,
        }],
    }
}

/// As `CONNMARK --restore-mark` does it.
#[test]
fn a_bit_that_another_program_sets_after_connection_tracking_opens_nothing() {
    let mut denied = 0;
    for seed in case_seeds(0, 100) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = with_proof(&meaning::config(&mut rng), Some(PROOF_BIT));
        let tables = tables(&mut rng, &config);
        let ruleset = Planner::ruleset(&adopt(&config, None, &tables, 3).0);
        let mut shared = ruleset.clone();
        shared.chains.insert("foreign".into(), foreign_chain(-150));
        for _ in 0..30 {
            let mut frame = frame(&mut rng, &tables, config.mark(3));
            // Of what another program leaves out of connection tracking as well, nobody can tell who set the bit.
            frame.conntrack.state &= !ct_state::UNTRACKED;
            if frame.conntrack.state == 0 {
                continue;
            }
            let plain = outcome(&ruleset, &frame, 0);
            let marked = outcome(&shared, &frame, 0);
            assert_eq!(
                (plain.accepted, plain.mark, plain.counters_hit),
                (marked.accepted, marked.mark, marked.counters_hit),
                "seed {seed} {frame:?}"
            );
            denied += usize::from(!plain.accepted);
        }
    }
    assert!(denied > 500, "{denied}");
}

/// The chains that the bit adds or changes.
const CHAINS: [&str; 4] = ["p_forward", "p_proof_forward", "p_proof_raw", "p_raw"];

/// Those that it adds or changes beside them where the host is judged.
const HOST_CHAINS: [&str; 2] = ["p_output_ours", "p_proof_error"];

/// All that the bit adds or changes.
fn changed_chains(config: &Config) -> BTreeSet<&'static str> {
    let is_judged = config.judgement.judge_host_traffic;
    let of_host = HOST_CHAINS.into_iter().filter(|_| is_judged);
    CHAINS.into_iter().chain(of_host).collect()
}

/// The host's own error about a packet that may be of an owned flow passes, although it belongs to no connection.
#[test]
fn an_error_of_the_host_passes_if_it_is_about_a_packet_between_workloads() {
    let (mut passed, mut judged) = (0, 0);
    for seed in case_seeds(0, 300) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut config = with_proof(&meaning::config(&mut rng), Some(PROOF_BIT));
        config.judgement.judge_host_traffic = true;
        if seed % 2 == 0 {
            config.packet_mark.uplinks = vec![FOREIGN[0].into()];
        }
        let tables = tables(&mut rng, &config);
        let ruleset = Planner::ruleset(&adopt(&config, None, &tables, 3).0);
        let former = with_proof(&config, None);
        let former = Planner::ruleset(&adopt(&former, None, &tables, 3).0);
        for _ in 0..100 {
            let mut frame = frame(&mut rng, &tables, config.mark(3));
            if !frame.protocol.is_icmp() {
                continue;
            }
            frame.iif = None;
            if rng.random_bool(0.5) {
                (frame.conntrack.state, frame.conntrack.reply) = (ct_state::INVALID, false);
            }
            let quoted = support::address(&mut rng, Family::of(frame.source));
            let told = |ruleset: &Ruleset, source| {
                let machine = RulesetSimulator::new(ruleset).with_quoted(source, quoted);
                machine.run(&frame).unwrap().accepted
            };
            let plain = RulesetSimulator::new(&ruleset).run(&frame).unwrap();
            let is_error = match frame.l4 {
                L4::Icmp { kind, .. } if frame.protocol == Protocol::ICMP => {
                    [3, 11, 12].contains(&kind)
                }
                L4::Icmp { kind, .. } => kind < 128,
                _ => false,
            };
            let to_workload = frame.oif.as_ref().is_some_and(|oif| {
                tables.interfaces.contains(oif) || oif.starts_with(&*config.interface_prefix)
            });
            let is_known =
                !config.packet_mark.uplinks.is_empty() || tables.is_local_address(quoted);
            let passes = is_error
                && frame.conntrack.state == ct_state::INVALID
                && to_workload
                && tables.is_local_address(frame.destination)
                && is_known;
            assert_eq!(
                told(&ruleset, frame.destination),
                passes || plain.accepted,
                "seed {seed} {frame:?}"
            );
            assert_eq!(told(&former, frame.destination), plain.accepted);
            // About the packet of somebody else.
            let other = told(&ruleset, "192.0.2.1".parse().unwrap());
            assert_eq!(other, plain.accepted, "seed {seed} {frame:?}");
            passed += usize::from(passes && !plain.accepted);
            judged += usize::from(!passes && !plain.accepted);
        }
    }
    assert!(passed > 20 && judged > 500, "{passed} {judged}");
}

#[test]
fn the_rules_read_as_they_are_meant_and_nothing_else_differs() {
    let mut text = String::new();
    for judge_host_traffic in [false, true] {
        let judgement = JudgementOptions {
            judge_host_traffic,
            ..JudgementOptions::default()
        };
        let former = Config {
            judgement,
            ..Config::default()
        };
        let mut config = with_proof(&former, Some(PROOF_BIT));
        config.packet_mark.uplinks = vec!["eth0".into()];
        let mut ruleset = skeleton(&config, 1);
        assert_eq!(lint(&ruleset), []);
        let plain = skeleton(&former, 1);
        assert_eq!(ruleset.sets, plain.sets);
        let chains = ruleset.chains.iter();
        let changed = chains.filter(|(name, chain)| plain.chains.get(*name) != Some(chain));
        let changed: BTreeSet<&str> = changed.map(|(name, _)| &**name).collect();
        assert_eq!(changed, changed_chains(&config));
        ruleset.sets.clear();
        let shown: &[&str] = if judge_host_traffic {
            &HOST_CHAINS
        } else {
            &CHAINS
        };
        ruleset.chains.retain(|name, _| shown.contains(&&**name));
        text.push_str(&print_ruleset(&ruleset));
    }
    let wanted = include_str!("proof.txt");
    assert_eq!(text, wanted, "{text}");
}

/// Where connection tracking has seen a packet, it cannot be left out any more.
#[test]
fn a_packet_that_is_left_out_too_late_is_found() {
    let config = with_proof(&Config::default(), Some(PROOF_BIT));
    let mut ruleset = skeleton(&config, 1);
    let raw = ruleset.chains.get_mut("p_raw").unwrap();
    raw.base_chain.as_mut().unwrap().priority = -200;
    let found = lint(&ruleset);
    let problems: Vec<&LintProblem> = found.iter().map(|finding| &finding.problem).collect();
    let wanted = LintProblem::NotrackFrom("p_raw".into());
    assert!(!problems.is_empty() && problems.iter().all(|problem| **problem == wanted));
}

/// The objects that an operation changes; `None` for what only the agent reads.
fn changed_object(op: &Op) -> Option<&Str> {
    match op {
        Op::AddChain { chain, .. }
        | Op::FlushChain { chain }
        | Op::DeleteChain { chain }
        | Op::AddRule { chain, .. } => Some(chain),
        Op::AddElement { set, .. } if **set == *"p_pending" => None,
        op => panic!("{op:?}"),
    }
}

/// An agent with another parameter takes the table over: one transaction replaces the rules, and no element of policy
/// is written. Each packet without the bit has its verdict in every state and between two.
#[test]
fn the_rules_come_and_go_in_one_step_and_policy_stays() {
    for seed in case_seeds(0, 40) {
        for [from, to] in [[None, Some(PROOF_BIT)], [Some(PROOF_BIT), None]] {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut config = with_proof(&meaning::config(&mut rng), from);
            // With numbers for all: a class that got none is written again at each start.
            config.redirect = config.redirect.map(|_| RedirectConfig::default());
            let wanted = with_proof(&config, to);
            let tables = tables(&mut rng, &config);
            let before = Planner::ruleset(&adopt(&config, None, &tables, 9).0);
            let (planner, transaction) = adopt(&wanted, Some(&before), &tables, 77);
            let phases: Vec<Phase> = transaction.steps.iter().map(|step| step.phase).collect();
            assert_eq!(phases, [Phase::Tighten, Phase::Revoke], "seed {seed}");
            let ops = transaction.steps[0].ops.iter();
            let changed: BTreeSet<&str> =
                ops.filter_map(changed_object).map(AsRef::as_ref).collect();
            assert_eq!(changed, changed_chains(&config), "seed {seed}");
            let mut kernel = Some(before.clone());
            let mut states = vec![before];
            for step in &transaction.steps {
                apply(&mut kernel, &transaction.table, &step.ops).unwrap();
                states.extend(kernel.clone());
            }
            assert_eq!(kernel, Some(planner.ruleset()), "seed {seed}");
            let (_, again) = adopt(&wanted, kernel.as_ref(), &tables, 77);
            assert!(again.is_empty(), "seed {seed}");
            for _ in 0..10 {
                let mut frame = frame(&mut rng, &tables, config.mark(9));
                // A flow of before is judged again, with the same tables.
                frame.conntrack.mark &= !config.ct_mark_mask;
                check_states(&states, &frame, to.is_none());
            }
        }
    }
}

/// Fails if a packet without the bit changes its verdict, or one with the bit has neither that of before nor of after;
/// where the rules go, one in flight that was left out of connection tracking may be denied, so they go last.
fn check_states(states: &[Ruleset], frame: &HookPacket, are_removed: bool) {
    for bits in [0, PROOF_BIT] {
        let verdict = |ruleset: &Ruleset| outcome(ruleset, frame, bits).accepted;
        let ends = [verdict(&states[0]), verdict(&states[states.len() - 1])];
        assert!(bits != 0 || ends[0] == ends[1], "{frame:?}");
        for pair in states.windows(2) {
            for switch in 0..60 {
                let machine = RulesetSimulator::with_switch(&pair[0], &pair[1], switch);
                let between = machine.with_packet_mark(bits).run(frame).unwrap();
                let is_caught = are_removed && bits != 0 && !between.accepted;
                let passes = ends.contains(&between.accepted) || is_caught;
                assert!(passes, "after {switch}: {frame:?}");
            }
        }
    }
}

/// What another program removes of these rules is put back, and nothing else is written.
#[test]
fn what_goes_is_put_back() {
    let mut rng = SmallRng::seed_from_u64(1);
    let config = with_proof(&Config::default(), Some(PROOF_BIT));
    let tables = support::tables(&mut rng, &config);
    let (planner, _) = adopt(&config, None, &tables, 9);
    let whole = planner.ruleset();
    for name in CHAINS {
        let mut less = whole.clone();
        let rules = &mut less.chains.get_mut(name).unwrap().rules;
        rules.remove(usize::from(name == "p_forward"));
        let transaction = planner.clone().repair(&less).unwrap();
        let ops = transaction.steps[0].ops.iter();
        let changed: BTreeSet<&str> = ops.filter_map(changed_object).map(AsRef::as_ref).collect();
        assert_eq!(changed, BTreeSet::from([name]));
    }
}

//! A report is attributed to the rule that decides according to the oracle, on random states.

use palisade_engine::{Engine, EngineOptions};
use palisade_generators::lowered::ModelWorld;
use palisade_generators::seeded_cases;
use palisade_model::{
    Action, Direction, Encapsulations, Endpoint, FlowOrigin, HairpinAction, HostTrafficAction,
    RuleOrigin, Update,
};
use palisade_monitor::attribution::{ReportedPacket, attribute};
use palisade_oracle::{
    DecisionReason, DirectionJudgement, PreparedState, Question, RuleOutcome, RuleOwner, TraceStep,
};
use palisade_tables::ReportReason;
use palisade_tables::{Packet, PastTables, Verdict, VerdictCause};

const SEED: u64 = 0x0070_616c_6973;
const CASES: u64 = 300;

/// Whether a cause denotes what decides according to the oracle.
fn is_decider(cause: &VerdictCause, judgement: &DirectionJudgement) -> bool {
    let last = judgement.steps.iter().rev().find_map(|step| match step {
        TraceStep::Rule {
            owner: source,
            origin,
            action,
            outcome: RuleOutcome::Matched,
        } if *action != Action::Log => Some((source, origin)),
        _ => None,
    });
    let same = |source: &RuleOwner, origin: &RuleOrigin, of: &RuleOrigin| match (source, cause) {
        (RuleOwner::Policy(id), VerdictCause::Rule { policy, .. }) => {
            id == policy && of.is_same_rule(origin) && of.index == origin.index
        }
        (RuleOwner::Profile(name), VerdictCause::ProfileRule { profile, .. }) => {
            name == profile && of.is_same_rule(origin) && of.index == origin.index
        }
        _ => false,
    };
    match (cause, &judgement.decided_by) {
        (
            VerdictCause::TierDefault { tier, policies, .. },
            DecisionReason::TierDefault {
                tier: of,
                isolating,
            },
        ) => tier == of && policies == isolating,
        (VerdictCause::NoProfileMatch { .. }, DecisionReason::NoProfileMatch) => true,
        (
            VerdictCause::MissingProfile { profile, .. },
            DecisionReason::MissingProfile { profile: of },
        ) => profile == of,
        (VerdictCause::ProfileRule { .. }, DecisionReason::AllowAllProfile)
        | (VerdictCause::EndpointInAudit { .. }, DecisionReason::EndpointInAudit)
        | (VerdictCause::HairpinEnd { .. }, DecisionReason::HairpinEnd) => true,
        (cause, DecisionReason::Encapsulated { .. }) => *cause == VerdictCause::Encapsulated,
        (
            VerdictCause::Rule { origin: of, .. } | VerdictCause::ProfileRule { origin: of, .. },
            _,
        ) => last.is_some_and(|(source, origin)| same(source, origin, of)),
        _ => false,
    }
}

fn logs(judgement: &DirectionJudgement) -> bool {
    let logged = |step: &TraceStep| {
        let matched = RuleOutcome::Matched;
        matches!(step, TraceStep::Rule { action: Action::Log, outcome, .. } if *outcome == matched)
    };
    judgement.steps.iter().any(logged)
}

/// The first packet of a flow, reported.
fn reported(reason: ReportReason, packet: &Packet) -> ReportedPacket {
    ReportedPacket {
        reason,
        first: packet.clone(),
        is_reply: false,
        is_pre_dnat_known: true,
    }
}

#[test]
fn a_report_is_led_back_to_the_rule_that_the_oracle_names() {
    let (mut denied, mut logged, mut audited, mut refused) = (0, 0, 0, 0);
    for (seed, case) in seeded_cases(SEED, CASES) {
        let mut world = ModelWorld::generate(seed, case, 40);
        // Of workloads only: a host endpoint may log in the direction in which a workload does.
        for endpoint in world.state.endpoints.values_mut().filter(|e| e.is_host()) {
            endpoint.interface = None;
        }
        let state = &world.state;
        let mut engine = Engine::new(EngineOptions::of_host(state.host_node.clone()));
        drop(engine.apply(state.objects().map(Update::Upsert)));
        let oracle = PreparedState::new(state);
        let options = palisade_oracle::OracleOptions {
            hairpin: HairpinAction::ByKind,
            allowed_encapsulation: Encapsulations::NONE,
            host_to_endpoint: HostTrafficAction::Allow,
            ..palisade_oracle::OracleOptions::default()
        };
        for trial in &world.trials {
            let mut flow = trial.flow;
            let local = |e: Option<&Endpoint>| e.and_then(|e| e.interface.clone());
            let source = local(oracle.address_holder(flow.source));
            let destination = local(oracle.address_holder(flow.destination));
            flow.origin = FlowOrigin::Network;
            let packet = Packet {
                input_interface: source.clone().or_else(|| Some("uplink".into())),
                output_interface: destination.clone().or_else(|| Some("uplink".into())),
                source: flow.source,
                destination: flow.destination,
                protocol: flow.protocol,
                l4: flow.l4,
                pre_dnat: None,
            };
            let answer = oracle.judge(&Question::from(flow), &options);
            let now = PastTables::new(engine.tables(), []);
            let mut passes = true;
            for (direction, end, judged) in [
                (Direction::Egress, &source, &answer.egress),
                (Direction::Ingress, &destination, &answer.ingress),
            ] {
                if end.is_none() || !passes {
                    continue;
                }
                let allowed = judged.verdict.is_allow();
                passes &= allowed;
                let audit = judged.audit.as_deref();
                let would_deny = audit.is_some_and(|audit| !audit.verdict.is_allow());
                let why = match (allowed, logs(judged)) {
                    (false, _) => ReportReason::Denied,
                    (true, true) => ReportReason::Logged(direction),
                    (true, false) if would_deny => ReportReason::Audited(direction),
                    (true, false) => {
                        let blamed =
                            attribute(&now, &reported(ReportReason::Audited(direction), &packet))
                                .ok();
                        assert_eq!(blamed, None, "seed {seed} case {case}: {flow}");
                        // The kernel does not report this packet; if it did, no rule would be blamed.
                        let blamed =
                            attribute(&now, &reported(ReportReason::Logged(direction), &packet))
                                .ok();
                        assert_eq!(blamed, None, "seed {seed} case {case}: {flow}");
                        refused += 1;
                        continue;
                    }
                };
                let found = attribute(&now, &reported(why, &packet)).ok();
                let found =
                    found.unwrap_or_else(|| panic!("seed {seed} case {case}: {flow} {why:?}"));
                assert_eq!(
                    found.direction, direction,
                    "seed {seed} case {case}: {flow}"
                );
                let last = found.causes.last().unwrap();
                assert!(
                    is_decider(last, judged),
                    "seed {seed} case {case}: {flow}: {last:?}, oracle {:?}",
                    judged.decided_by
                );
                let told = found.audit.as_ref().map(|audit| audit.verdict);
                let wanted = audit.map(|audit| {
                    if audit.verdict.is_allow() {
                        Verdict::Allow
                    } else {
                        Verdict::Deny
                    }
                });
                assert_eq!(told, wanted, "seed {seed} case {case}: {flow}");
                if let (Some(told), Some(audit)) = (&found.audit, audit) {
                    let last = told.causes.last().unwrap();
                    assert!(
                        matches!(&**last, VerdictCause::Audit { .. })
                            && is_decider(last.unaudited(), audit),
                        "seed {seed} case {case}: {flow}: {last:?}, oracle {:?}",
                        audit.decided_by
                    );
                }
                match why {
                    ReportReason::Denied => denied += 1,
                    ReportReason::Audited(_) => audited += 1,
                    _ => logged += 1,
                }
            }
            if passes {
                assert_eq!(
                    attribute(&now, &reported(ReportReason::Denied, &packet)).ok(),
                    None,
                    "seed {seed} case {case}: {flow}"
                );
            }
        }
    }
    println!("{denied} denied, {logged} logged, {audited} audited, {refused} none of these");
    assert!(denied > 500 && logged > 50 && audited > 20 && refused > 500);
}

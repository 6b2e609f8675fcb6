//! The oracle against the decision tables, whatever way the engine came to them.

use super::{StageFailure, StageFilter, intermediate_states, nft};
use palisade_engine::Engine;
use palisade_generators::{Dice, lowered};
use palisade_model::{
    Action, Direction, Encapsulation, Encapsulations, FailsafePorts, Flow, FlowOrigin,
    HairpinAction, HostTrafficAction, L4, PolicyView, PreDnat, Profile, Protocol, RuleOrigin,
    State, Str, UnreadDnsAction, Update,
};
use palisade_oracle::{
    DecisionReason, DirectionJudgement, HostJudgement, HostPath, OracleOptions, PreparedState,
    Question, RuleOutcome, RuleOwner, TraceStep,
};
use palisade_tables::{
    Atomicity, Cell, Delta, DirectionVerdict, DnsRules, JudgementOptions, Packet, Tables, Verdict,
    VerdictCause,
};
use palisade_verification::{Violation, canonical, check_any_order};
use std::net::IpAddr;
use std::sync::Arc;

/// How many pairs of histories the checker follows through each flush.
const PAIRS: usize = 60;

/// Of how many flushes in a hundred every intermediate state is checked by enumeration as well.
const CHECKED: u32 = 20;

/// Every flow by the tables as by the oracle; the same tables by any order, batching, repetition and
/// reversal of updates; and every moment between two states.
pub(crate) fn check_tables(
    dice: &mut Dice,
    state: &State,
    flows: &[Flow],
    sought: StageFilter,
) -> Result<(), StageFailure> {
    let judge_host_traffic = dice.chance(25);
    let case = dice.below(1 << 20) as u64;
    // Each is allowed in a quarter of the worlds.
    let allowed_encapsulation = (0..).zip(Encapsulation::ALL);
    let allowed_encapsulation: Encapsulations = allowed_encapsulation
        .filter(|(place, _)| case >> (2 * place) & 3 == 0)
        .map(|(_, encapsulation)| encapsulation)
        .collect();
    // No dice: cases that were found once stay what they were.
    let hairpin = match case >> 12 & 3 {
        0 => HairpinAction::Policy,
        1 => HairpinAction::Allow,
        _ => HairpinAction::ByKind,
    };
    let audit = case >> 14 & 15 == 0;
    let failsafe = match case >> 18 & 3 {
        0 => FailsafePorts::NONE,
        _ => FailsafePorts::default(),
    };
    let unread_dns = match case >> 8 & 3 {
        0 => UnreadDnsAction::Allow,
        _ => UnreadDnsAction::Policy,
    };
    let judgement = JudgementOptions {
        judge_host_traffic,
        judge_hairpin: hairpin == HairpinAction::Policy,
        failsafe: failsafe.clone(),
    };
    let engine_options = palisade_engine::EngineOptions {
        host_node: state.host_node.clone(),
        judgement: judgement.clone(),
        judges_hairpin_by_kind: hairpin == HairpinAction::ByKind,
        allowed_encapsulation,
        unread_dns,
        audit,
        ..palisade_engine::EngineOptions::default()
    };
    let options = OracleOptions {
        hairpin,
        allowed_encapsulation,
        unread_dns,
        audit,
        view: PolicyView::Enforced,
        host_to_endpoint: if judge_host_traffic {
            HostTrafficAction::Policy
        } else {
            HostTrafficAction::Allow
        },
    };
    let mut scratch = Engine::new(engine_options.clone());
    scratch.apply(state.objects().map(Update::Upsert));
    let prepared = PreparedState::new(state).with_failsafe(failsafe);
    for (index, flow) in flows.iter().enumerate() {
        let agreed = check_agreement(&prepared, &options, scratch.tables(), flow);
        let agreed =
            agreed.map_err(|detail| StageFailure::at_flow("oracle and tables", index, detail));
        sought.filter(agreed)?;
    }
    let detour = lowered::ModelWorld::generate(case, 0, 0).state;
    let mut engine = Engine::new(engine_options);
    let mut written = engine.tables().clone();
    let mut host = nft::ModelHost::new(dice, judgement)?;
    let mut before = engine.state();
    let mut unwaited: Option<(Tables, Delta)> = None;
    for batch in lowered::batches(dice, &detour, state) {
        let delta = engine.apply(batch);
        intermediate_states::check_intermediate_states(
            &before,
            &engine.state(),
            &written,
            &delta,
            engine.tables(),
            flows,
            sought,
        )?;
        if dice.chance(CHECKED) || sought.is_checker_stage() {
            // The order of phases is a stage of its own: what it does to packets is this one's.
            check_any_order(&written, &delta, engine.tables(), Atomicity::Step, PAIRS)
                .map(drop)
                .map_err(|violation| {
                    StageFailure::new(
                        violation_stage(&violation),
                        format!("{violation} in {delta:?}"),
                    )
                })
                .or_else(|failure| sought.filter_failure(failure))?;
        }
        unwaited = match (delta.only_loosens_addresses(), unwaited.take()) {
            (false, _) => None,
            (true, None) => Some((written.clone(), delta.clone())),
            (true, Some((start, earlier))) => {
                // The executor does not wait between these, so packets see them as one step.
                let joined = join_steps(&earlier, &delta);
                check_any_order(&start, &joined, engine.tables(), Atomicity::Step, PAIRS)
                    .map(drop)
                    .map_err(|violation| {
                        let detail = format!("{violation} in {joined:?}");
                        StageFailure::new("checker: not waited for", detail)
                    })
                    .or_else(|failure| sought.filter_failure(failure))?;
                Some((start, joined))
            }
        };
        delta.apply_to(&mut written);
        if written != *engine.tables() {
            let detail = format!("the steps end elsewhere: {delta:?}");
            sought.filter_failure(StageFailure::new("delta and tables", detail))?;
            written = engine.tables().clone();
        }
        before = engine.state();
        sought.filter(host.apply_delta(&delta, &written, &PreparedState::new(&before), flows))?;
    }
    sought.filter(host.check_flow_variants(&written, &prepared, flows))?;
    sought.filter(host.restart(scratch.tables()))?;
    if before != *state {
        let failure = StageFailure::new("updates and state", "the engine holds other objects");
        sought.filter_failure(failure)?;
    }
    if canonical(&written) != canonical(scratch.tables()) {
        sought.filter_failure(StageFailure::new(
            "roundabout and from scratch",
            difference(&written, scratch.tables()),
        ))?;
    }
    Ok(())
}

/// Two deltas of one step of one phase as one.
fn join_steps(first: &Delta, second: &Delta) -> Delta {
    let mut joined = first.clone();
    joined.revision = second.revision;
    for (step, more) in joined.steps.iter_mut().zip(&second.steps) {
        step.changes.extend(more.changes.iter().cloned());
    }
    joined
}

/// The stage that a violation is told as.
fn violation_stage(violation: &Violation) -> &'static str {
    match violation {
        Violation::WrongFinalTables => "checker: wrong end",
        Violation::PhaseOrder(_) => "checker: order",
        Violation::DanglingReference { .. } => "checker: dangling",
        Violation::MixedVerdict(_) => "checker: neither",
        Violation::PhaseViolation(_) => "checker: broken promise",
        Violation::MissingRevoke(_) => "checker: not revoked",
    }
}

/// The packet that a flow is on this host: past the interfaces of the endpoints that hold its ends, and for every other
/// address past one of the host's own, by its parity; what goes to an address of this host ends there.
pub(crate) fn packet(prepared: &PreparedState<'_>, flow: &Flow) -> Packet {
    let workload = |address| workload_interface(prepared, address);
    let outside = |address| {
        let octet = match address {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15],
        };
        Str::from(lowered::HOST_INTERFACES[usize::from(octet & 1)])
    };
    let state = prepared.state();
    let is_own = |address| {
        let node = state
            .host_node
            .as_ref()
            .and_then(|name| state.nodes.get(name));
        node.is_some_and(|node| node.addresses.contains(&address))
    };
    let interface = |address| Some(workload(address).unwrap_or_else(|| outside(address)));
    let is_from_outside = workload(flow.source).is_none() && flow.origin == FlowOrigin::Network;
    Packet {
        pre_dnat: pre_dnat(flow).filter(|_| is_from_outside),
        input_interface: match flow.origin {
            FlowOrigin::Network => interface(flow.source),
            FlowOrigin::HostStack => None,
        },
        output_interface: if flow.origin == FlowOrigin::Network
            && workload(flow.destination).is_none()
            && is_own(flow.destination)
        {
            None
        } else {
            interface(flow.destination)
        },
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol,
        l4: flow.l4,
    }
}

/// Where some flows were sent before destination NAT: to another address of the network, and mostly to another port.
fn pre_dnat(flow: &Flow) -> Option<PreDnat> {
    let L4::Ports {
        source,
        destination,
    } = flow.l4
    else {
        return None;
    };
    // The ports of SCTP are not tracked everywhere.
    let is_translated = source % 3 == 0 && flow.protocol != Protocol::SCTP;
    is_translated.then(|| PreDnat {
        destination: match flow.destination {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() ^ 3).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() ^ 3).into()),
        },
        port: if source % 2 == 0 { destination } else { 80 },
    })
}

/// The interface of the local workload that holds an address.
fn workload_interface(prepared: &PreparedState<'_>, address: IpAddr) -> Option<Str> {
    let holder = prepared.address_holder(address)?;
    holder.interface.clone().filter(|_| !holder.is_host())
}

/// The interfaces of the host that a packet crosses.
pub(super) fn host_path(prepared: &PreparedState<'_>, packet: &Packet) -> HostPath {
    let own = |interface: &Option<Str>, address| {
        let interface = interface.clone();
        interface.filter(|_| workload_interface(prepared, address).is_none())
    };
    HostPath {
        input: own(&packet.input_interface, packet.source),
        output: own(&packet.output_interface, packet.destination),
        is_forwarded: packet.input_interface.is_some() && packet.output_interface.is_some(),
        pre_dnat: packet.pre_dnat,
    }
}

/// Whether the tables judge a flow as the oracle does at every end that is local, and give it the
/// same causes.
fn check_agreement(
    prepared: &PreparedState<'_>,
    options: &OracleOptions,
    tables: &Tables,
    flow: &Flow,
) -> Result<(), String> {
    let packet = packet(prepared, flow);
    let question = Question {
        path: host_path(prepared, &packet),
        ..Question::from(*flow)
    };
    let answer = prepared.judge(&question, options);
    for direction in Direction::BOTH {
        let (address, judgement, through) = match direction {
            Direction::Egress => (flow.source, &answer.egress, &packet.input_interface),
            Direction::Ingress => (flow.destination, &answer.ingress, &packet.output_interface),
        };
        if workload_interface(prepared, address).is_none() || through.is_none() {
            continue;
        }
        let judged = tables.judge_direction(&packet, direction);
        check_judgement(tables, direction, judgement, &judged)
            .map_err(|detail| format!("{direction}: {detail}: {flow}"))?;
    }
    let stages = |direction| {
        packet
            .host_stages(direction)
            .map(move |stage| (direction, stage))
    };
    for (direction, stage) in Direction::BOTH.into_iter().flat_map(stages) {
        let judged = tables.judge_host_stage(&packet, direction, stage);
        let mut of_direction = answer.host.iter().filter(|at| at.direction == direction);
        let last = of_direction.clone().next_back();
        if last.is_some_and(|last| last.is_last() && last.stage < stage) {
            // The stage before has decided.
            continue;
        }
        match of_direction.find(|at| at.stage == stage) {
            // Tables have no point where nothing can be denied.
            None if judged == DirectionVerdict::Unmanaged => {}
            Some(at)
                if judged == DirectionVerdict::Unmanaged
                    && at.judgement.decided_by == DecisionReason::NoForwardPolicy => {}
            Some(at) if judged == DirectionVerdict::Unmanaged && is_unselected(prepared, at) => {}
            None => {
                return Err(format!(
                    "host {direction}, {stage}: oracle nothing, tables {judged:?}: {flow}"
                ));
            }
            Some(at) => {
                check_judgement(tables, direction, &at.judgement, &judged).map_err(|detail| {
                    format!(
                        "host {direction}, {stage}, at {}: {detail}: {flow}",
                        at.interface
                    )
                })?
            }
        }
    }
    Ok(())
}

/// Whether a host judges nothing there, since no policy of nodes selects it for the direction.
fn is_unselected(prepared: &PreparedState<'_>, at: &HostJudgement) -> bool {
    let state = prepared.state();
    let endpoint = at.judgement.subject.as_ref();
    let endpoint = endpoint.and_then(|id| state.endpoints.get(id));
    endpoint.is_some_and(|endpoint| {
        let policies = state.policies.values();
        let mut policies = policies.filter(|policy| policy.has_stage(at.stage));
        endpoint.is_node_endpoint()
            && !policies.any(|policy| prepared.applies(policy, endpoint, at.direction))
    })
}

/// Whether the tables judge one direction as the oracle does, and give it the same causes.
fn check_judgement(
    tables: &Tables,
    direction: Direction,
    judgement: &DirectionJudgement,
    judged: &DirectionVerdict<'_>,
) -> Result<(), String> {
    let is_open = judgement.decided_by == DecisionReason::StageEnd;
    let is_open = is_open && judged.verdict() != Verdict::Continue;
    if judged.verdict().passes() != judgement.verdict.is_allow() || is_open {
        return Err(format!(
            "oracle {} by {:?}, tables {judged:?}",
            judgement.verdict, judgement.decided_by
        ));
    }
    let (wanted, found) = (
        oracle_causes(judgement, direction),
        table_causes(tables, judged),
    );
    if wanted != found {
        return Err(format!("oracle causes {wanted:?}, tables {found:?}"));
    }
    if let DirectionVerdict::Evaluated(seen) = judged {
        let log = matches_log_rule(judgement).then_some(direction);
        if seen.cell.log != log {
            return Err(format!("oracle logs {log:?}, tables {:?}", seen.cell.log));
        }
        let found = seen.cell.redirect.as_deref();
        let wanted = judgement.redirect.as_ref().map(|names| DnsRules {
            names: names.clone(),
            default: if judgement.query_verdict.is_allow() {
                Verdict::Allow
            } else {
                Verdict::Deny
            },
        });
        if wanted.as_ref() != found {
            return Err(format!("oracle redirects {wanted:?}, tables {found:?}"));
        }
        let (wanted, found) = (
            oracle_audit(judgement, direction),
            table_audit(tables, seen.cell),
        );
        if wanted != found {
            return Err(format!("oracle audits {wanted:?}, tables {found:?}"));
        }
    }
    Ok(())
}

/// A verdict if nothing were in audit: its direction, the verdict, and its causes.
type AuditVerdict = (Direction, Verdict, Vec<Option<Arc<VerdictCause>>>);

fn oracle_audit(judgement: &DirectionJudgement, direction: Direction) -> Option<AuditVerdict> {
    let audit = judgement.audit.as_ref()?;
    let verdict = match (audit.verdict.is_allow(), &audit.decided_by) {
        (true, DecisionReason::StageEnd) => Verdict::Continue,
        (true, _) => Verdict::Allow,
        (false, _) => Verdict::Deny,
    };
    let audited = |cause: Option<Arc<VerdictCause>>| {
        let cause = Box::new(VerdictCause::clone(&*cause?));
        Some(Arc::new(VerdictCause::Audit { verdict, cause }))
    };
    let causes = oracle_causes(audit, direction).into_iter().map(audited);
    Some((direction, verdict, causes.collect()))
}

fn table_audit(tables: &Tables, cell: &Cell) -> Option<AuditVerdict> {
    let audit = cell.audit.as_ref()?;
    let causes = audit
        .causes
        .iter()
        .map(|rule| tables.rules.get(rule).cloned());
    Some((audit.direction, audit.verdict, causes.collect()))
}

/// Whether the oracle met a Log rule on its way, where rules decide.
fn matches_log_rule(judgement: &DirectionJudgement) -> bool {
    let logs = |step: &TraceStep| {
        matches!(
            step,
            TraceStep::Rule {
                action: Action::Log,
                outcome: RuleOutcome::Matched,
                ..
            }
        )
    };
    let encapsulated = matches!(judgement.decided_by, DecisionReason::Encapsulated { .. });
    !encapsulated && judgement.steps.iter().any(logs)
}

fn table_causes(tables: &Tables, judged: &DirectionVerdict<'_>) -> Vec<Option<Arc<VerdictCause>>> {
    match judged {
        DirectionVerdict::Evaluated(seen) => {
            let cause = |rule| tables.rules.get(rule).cloned();
            seen.cell.causes.iter().map(cause).collect()
        }
        _ => Vec::new(),
    }
}

/// What the oracle's narrative says was hit, the deciding one last.
fn oracle_causes(
    judgement: &DirectionJudgement,
    direction: Direction,
) -> Vec<Option<Arc<VerdictCause>>> {
    // Causes outlive edits that only move a rule in its file.
    let unplaced = |origin: &RuleOrigin| RuleOrigin {
        line: None,
        ..origin.clone()
    };
    let of_rule = |source: &RuleOwner, origin: &RuleOrigin| match source {
        RuleOwner::Policy(policy) => VerdictCause::Rule {
            policy: policy.clone(),
            direction,
            origin: unplaced(origin),
        },
        RuleOwner::Profile(profile) => VerdictCause::ProfileRule {
            profile: profile.clone(),
            direction,
            origin: unplaced(origin),
        },
    };
    if matches!(judgement.decided_by, DecisionReason::Encapsulated { .. }) {
        // Whatever rules say of it: none of them is the cause.
        return vec![Some(Arc::new(VerdictCause::Encapsulated))];
    }
    let mut all: Vec<VerdictCause> = judgement
        .steps
        .iter()
        .filter_map(|step| match step {
            TraceStep::Rule {
                owner: source,
                origin,
                outcome: RuleOutcome::Matched,
                ..
            } => Some(of_rule(source, origin)),
            _ => None,
        })
        .collect();
    all.extend(match &judgement.decided_by {
        DecisionReason::TierDefault { tier, isolating } => Some(VerdictCause::TierDefault {
            tier: tier.clone(),
            direction,
            policies: isolating.clone(),
        }),
        DecisionReason::AllowAllProfile => Some(VerdictCause::ProfileRule {
            profile: Str::from(Profile::ALLOW_ALL),
            direction,
            origin: RuleOrigin {
                index: 0,
                name: None,
                fingerprint: 0,
                line: None,
            },
        }),
        DecisionReason::NoProfileMatch => Some(VerdictCause::NoProfileMatch { direction }),
        DecisionReason::MissingProfile { profile } => Some(VerdictCause::MissingProfile {
            profile: profile.clone(),
            direction,
        }),
        DecisionReason::EndpointInAudit => Some(VerdictCause::EndpointInAudit { direction }),
        DecisionReason::ForwardEnd | DecisionReason::NoForwardPolicy => {
            Some(VerdictCause::ForwardEnd { direction })
        }
        DecisionReason::HairpinEnd => Some(VerdictCause::HairpinEnd { direction }),
        DecisionReason::StageEnd => Some(VerdictCause::StageEnd { direction }),
        DecisionReason::Rule { .. }
        | DecisionReason::HostOrigin
        | DecisionReason::Hairpin
        | DecisionReason::Encapsulated { .. }
        | DecisionReason::Failsafe
        | DecisionReason::NotAnEndpoint => None,
    });
    all.into_iter().map(|cause| Some(Arc::new(cause))).collect()
}

fn difference(a: &Tables, b: &Tables) -> String {
    let (a, b) = (canonical(a), canonical(b));
    let mut parts = Vec::new();
    if a.interfaces != b.interfaces {
        parts.push(format!(
            "interfaces {:?} and {:?}",
            a.interfaces, b.interfaces
        ));
    }
    if a.host_interfaces != b.host_interfaces {
        parts.push(format!(
            "interfaces of the host {:?} and {:?}",
            a.host_interfaces, b.host_interfaces
        ));
    }
    if a.identities != b.identities {
        parts.push(format!(
            "identities {:?} and {:?}",
            a.identities, b.identities
        ));
    }
    if a.sets != b.sets {
        parts.push(format!("sets {:?} and {:?}", a.sets, b.sets));
    }
    if a.classes != b.classes {
        parts.push(format!("{} and {} classes", a.classes, b.classes));
    }
    if a.causes != b.causes {
        parts.push(format!("causes {:?} and {:?}", a.causes, b.causes));
    }
    parts.join("; ")
}

//! Shared by the tests: seeds, cases, and the conversion of a flow to a packet of this host.

use palisade_engine::Engine;
use palisade_model::{Action, Direction, Endpoint, Flow, FlowOrigin, HostTrafficAction};
use palisade_oracle::{
    DecisionReason, OracleOptions, PreparedState, Question, RuleOutcome, TraceStep,
};
use palisade_tables::{DirectionVerdict, Packet, Verdict};

/// The fixed seed of all random cases.
pub(crate) const SEED: u64 = 0x0070_616c_6973;

fn local(endpoint: Option<&Endpoint>) -> Option<&Endpoint> {
    endpoint.filter(|e| e.interface.is_some())
}

/// Whether the oracle matches a Log rule in a direction and causes it.
fn logged(
    oracle: &PreparedState<'_>,
    question: &Question,
    direction: Direction,
    options: &OracleOptions,
) -> bool {
    let answer = oracle.judge(question, options);
    let judgement = match direction {
        Direction::Egress => &answer.egress,
        Direction::Ingress => &answer.ingress,
    };
    let logs = |step: &TraceStep| {
        let matched = RuleOutcome::Matched;
        matches!(step, TraceStep::Rule { action: Action::Log, outcome, .. } if *outcome == matched)
    };
    // An encapsulated packet that is denied is not entry to the rules that would allow it.
    let encapsulated = matches!(judgement.decided_by, DecisionReason::Encapsulated { .. });
    !encapsulated && judgement.steps.iter().any(logs)
}

/// The first difference between tables and oracle for a flow, in the directions that this host judges: of the
/// verdict, of what is logged, and of the verdict if nothing were in audit.
pub(crate) fn difference(
    engine: &Engine,
    oracle: &PreparedState<'_>,
    flow: &Flow,
) -> Option<String> {
    let source = local(oracle.address_holder(flow.source));
    let destination = local(oracle.address_holder(flow.destination));
    let mut flow = *flow;
    if source.is_some() || destination.is_some_and(|e| e.is_host()) {
        flow.origin = FlowOrigin::Network;
    }
    let uplink = (flow.origin == FlowOrigin::Network).then(|| "uplink".into());
    let packet = Packet {
        input_interface: source.map_or(uplink, |e| e.interface.clone()),
        output_interface: destination.map_or(Some("uplink".into()), |e| e.interface.clone()),
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol,
        l4: flow.l4,
        pre_dnat: None,
    };
    let options = OracleOptions {
        host_to_endpoint: HostTrafficAction::Allow,
        ..OracleOptions::default()
    };
    let question = Question::from(flow);
    let ends = [
        (Direction::Egress, source),
        (Direction::Ingress, destination),
    ];
    for (direction, end) in ends {
        if end.is_none() {
            continue;
        }
        let wanted = oracle.allows(&question, direction, &options);
        let judged = engine.tables().judge_direction(&packet, direction);
        if (judged.verdict() == Verdict::Allow) != wanted {
            return Some(format!(
                "{flow}: {direction}: oracle allows: {wanted}, tables: {judged:?}"
            ));
        }
        let (logs, audited) = match judged {
            DirectionVerdict::Evaluated(seen) => {
                let audit = seen.cell.audit.as_ref();
                let audit = audit.map(|audit| audit.verdict == Verdict::Allow);
                (seen.cell.log, Some(audit))
            }
            _ => (None, None),
        };
        let wanted = logged(oracle, &question, direction, &options).then_some(direction);
        if logs != wanted {
            return Some(format!(
                "{flow}: {direction}: oracle logs: {wanted:?}, tables: {logs:?}"
            ));
        }
        let redirect = match judged {
            DirectionVerdict::Evaluated(seen) => seen.cell.redirect.as_ref(),
            _ => None,
        };
        let names = redirect.map(|rules| rules.names.clone());
        let wanted = oracle.redirect(&question, direction, &options);
        if names != wanted || redirect.is_some_and(|rules| rules.default != judged.verdict()) {
            return Some(format!(
                "{flow}: {direction}: oracle redirects {wanted:?}, tables: {redirect:?}"
            ));
        }
        if let Some(found) = audited {
            let answer = oracle.judge(&question, &options);
            let judgement = match direction {
                Direction::Egress => &answer.egress,
                Direction::Ingress => &answer.ingress,
            };
            let wanted = judgement.audit.as_ref();
            let wanted = wanted.map(|audit| audit.verdict.is_allow());
            if wanted != found {
                return Some(format!(
                    "{flow}: {direction}: if nothing were in audit, oracle allows: {wanted:?}, tables: {found:?}"
                ));
            }
        }
    }
    None
}

//! What let a flow pass at each of its ends, by judging its first packet again.
//!
//! Connection tracking does not know interfaces. Those of workloads are found by their addresses; at which interface of
//! its own this host judged a flow is not known, so a rule of a host endpoint is named only if it is the same at every
//! interface that could have been it.
//!
//! Promises: the rules that are named are of tables that let the flow pass, all of one state of the tables.
//!
//! Never: names the rule by which a host endpoint let a flow be forwarded.

use super::attribution::AuditAttribution;
use super::decision_cache::EndCause;
use super::end_cache::AddressEnd;
use super::event::PacketContext;
use palisade_api::{FlowDecision, FlowRecord, HostStage, MonitorEndpoint, PacketReason};
use palisade_model::{Direction, PolicyStage, Str};
use palisade_tables::{
    DirectionVerdict, Evaluation, Packet, PastTables, RuleId, Verdict, VerdictCause,
};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// An interface that is no workload's and that no host endpoint names: no interface has this name.
const OTHER_INTERFACE: &str = "";

/// An end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EndKind {
    /// A workload of this host, with its interface.
    Workload(Str),
    /// This host itself.
    Host,
    /// Anything else.
    Outside,
}

impl EndKind {
    fn of(end: &AddressEnd) -> Self {
        let workload = end.workload.as_ref();
        match workload.and_then(|workload| workload.interface.clone()) {
            Some(interface) => EndKind::Workload(interface),
            None if end.is_of_host => EndKind::Host,
            None => EndKind::Outside,
        }
    }
}

/// How the present tables judge a flow that is open.
pub(super) enum OpenFlowVerdict {
    /// They do not tell: an end of it is another one now, or the kernel has not all of them yet.
    Unknown,
    /// They do not let it pass.
    Denied,
    /// What lets it leave its source and reach its destination, as in a record.
    Passed([Option<Arc<FlowDecision>>; 2]),
}

/// How tables judge one end of a flow.
enum EndVerdict {
    /// They do not let it pass.
    Denied,
    /// No policy applies.
    Unjudged,
    /// They let it pass.
    Passed(EndCause),
    /// They let it pass, by which rule depends on what is not known.
    Ambiguous,
}

impl PacketContext<'_> {
    /// The interfaces of this host to which a packet may come from an end, or by which it may leave for it.
    fn interfaces(&self, end: &EndKind) -> Vec<Str> {
        if let EndKind::Workload(interface) = end {
            return vec![interface.clone()];
        }
        let endpoints = self.state.engine.local_endpoints();
        let hosts = endpoints.filter(|endpoint| endpoint.is_host());
        let named = hosts.filter_map(|endpoint| endpoint.interface.clone());
        named.chain([OTHER_INTERFACE.into()]).collect()
    }

    /// What let a flow between these workloads, or others, leave its source and reach its destination, by the first tables
    /// of its time that let it pass.
    pub(super) fn flow_decisions(
        &self,
        first: &Packet,
        ends: &[Arc<AddressEnd>; 2],
        at: Duration,
    ) -> [Option<Arc<FlowDecision>>; 2] {
        let ends = ends.each_ref().map(|end| EndKind::of(end));
        for (tables, revision, stale) in self.state.states_at(at) {
            if let Some(decisions) = self.decisions_by(&tables, first, &ends, (revision, stale)) {
                return decisions;
            }
        }
        // Who judges the outside is another host.
        ends.map(|end| (end != EndKind::Outside).then(unknown_decision))
    }

    /// How the present tables judge a flow that is open; its record has its ends.
    pub(super) fn judge_again(
        &self,
        first: &Packet,
        record: &FlowRecord,
        now: Duration,
    ) -> OpenFlowVerdict {
        let present = [first.source, first.destination].map(|end| self.address_end(end, now));
        let mut ends = [&record.source, &record.destination]
            .into_iter()
            .zip(&present);
        if !self.state.is_realised() || !ends.all(|(recorded, end)| is_end(recorded, end)) {
            return OpenFlowVerdict::Unknown;
        }
        let ends = present.each_ref().map(|end| EndKind::of(end));
        let tables = PastTables::new(self.state.tables(), []);
        let revision = (self.state.realised_revision, false);
        match self.decisions_by(&tables, first, &ends, revision) {
            Some(decisions) => OpenFlowVerdict::Passed(decisions),
            None => OpenFlowVerdict::Denied,
        }
    }

    /// What lets a flow pass by these tables, of a revision that may be past; `None` if they do not.
    fn decisions_by(
        &self,
        tables: &PastTables<'_>,
        first: &Packet,
        ends: &[EndKind; 2],
        (revision, stale): (u64, bool),
    ) -> Option<[Option<Arc<FlowDecision>>; 2]> {
        let verdicts = [Direction::Egress, Direction::Ingress]
            .map(|direction| self.end_verdict(tables, first, direction, ends));
        if verdicts.iter().any(|end| matches!(end, EndVerdict::Denied)) {
            return None;
        }
        Some(verdicts.map(|end| match end {
            EndVerdict::Denied | EndVerdict::Unjudged => None,
            EndVerdict::Ambiguous => Some(unknown_decision()),
            EndVerdict::Passed(end) => {
                let revisions = (self.state.engine.revision(), self.state.realised_revision);
                let make = || self.flow_decision(&end, revision, stale);
                let judged_by = (revision, stale);
                Some(self.decisions.decision(revisions, &end, judged_by, make))
            }
        }))
    }

    fn flow_decision(&self, end: &EndCause, revision: u64, stale: bool) -> FlowDecision {
        let cause = self.cause(&end.cause);
        FlowDecision {
            reason: cause.reason,
            rule: cause.rule,
            policies: cause.policies,
            stage: end.host_stage.map(HostStage::from),
            audit: end.audit.as_ref().map(|audit| self.packet_audit(audit)),
            revision: Some(revision),
            stale,
        }
    }

    /// How tables judge a flow at the end of a direction: its source for egress, its destination for ingress.
    fn end_verdict(
        &self,
        tables: &PastTables<'_>,
        first: &Packet,
        direction: Direction,
        [source, destination]: &[EndKind; 2],
    ) -> EndVerdict {
        let (own, peer) = match direction {
            Direction::Egress => (source, destination),
            Direction::Ingress => (destination, source),
        };
        let interface = |end: &EndKind| match end {
            EndKind::Workload(interface) => Some(interface.clone()),
            EndKind::Host => None,
            EndKind::Outside => Some(OTHER_INTERFACE.into()),
        };
        let packet = Packet {
            input_interface: interface(source),
            output_interface: interface(destination),
            ..first.clone()
        };
        if *own != EndKind::Host {
            return workload_verdict(tables, &packet, direction);
        }
        let verdicts = self.interfaces(peer).into_iter().map(|interface| {
            let interface = Some(interface);
            let packet = match direction {
                Direction::Egress => Packet {
                    output_interface: interface,
                    ..packet.clone()
                },
                Direction::Ingress => Packet {
                    input_interface: interface,
                    ..packet.clone()
                },
            };
            host_verdict(tables, &packet, direction)
        });
        common_verdict(verdicts)
    }
}

/// Whether the end of a flow is still who it was when the flow began.
fn is_end(recorded: &MonitorEndpoint, end: &AddressEnd) -> bool {
    let Some(name) = &recorded.name else {
        return end.workload.is_none();
    };
    (end.workload.as_ref()).is_some_and(|workload| {
        workload.exists && *name == workload.id.name && recorded.namespace == workload.id.namespace
    })
}

fn unknown_decision() -> Arc<FlowDecision> {
    Arc::clone(&UNKNOWN)
}

static UNKNOWN: LazyLock<Arc<FlowDecision>> = LazyLock::new(|| {
    Arc::new(FlowDecision {
        reason: PacketReason::Unknown,
        rule: None,
        policies: Vec::new(),
        stage: None,
        audit: None,
        revision: None,
        stale: false,
    })
});

/// How tables judge a packet for a workload.
fn workload_verdict(tables: &PastTables<'_>, packet: &Packet, direction: Direction) -> EndVerdict {
    match tables.judge_direction(packet, direction) {
        DirectionVerdict::Evaluated(evaluation) => match end_cause(tables, &evaluation, None) {
            _ if !evaluation.cell.verdict.passes() => EndVerdict::Denied,
            Some(cause) => EndVerdict::Passed(cause),
            // Without a cause, no policy applies.
            None => EndVerdict::Unjudged,
        },
        DirectionVerdict::NoPoint => EndVerdict::Denied,
        DirectionVerdict::Unmanaged
        | DirectionVerdict::HostOrigin
        | DirectionVerdict::Hairpin
        | DirectionVerdict::Failsafe => EndVerdict::Unjudged,
    }
}

/// How tables judge a packet of this host's own at one of its interfaces.
fn host_verdict(tables: &PastTables<'_>, packet: &Packet, direction: Direction) -> EndVerdict {
    for stage in packet.host_stages(direction) {
        let evaluation = match tables.judge_host_stage(packet, direction, stage) {
            DirectionVerdict::Evaluated(evaluation) => evaluation,
            DirectionVerdict::NoPoint => return EndVerdict::Denied,
            DirectionVerdict::Unmanaged
            | DirectionVerdict::HostOrigin
            | DirectionVerdict::Hairpin
            | DirectionVerdict::Failsafe => continue,
        };
        match evaluation.cell.verdict {
            Verdict::Deny => return EndVerdict::Denied,
            Verdict::Continue if stage.is_early() => continue,
            Verdict::Allow | Verdict::Continue => {}
        }
        return match end_cause(tables, &evaluation, Some(stage)) {
            Some(cause) => EndVerdict::Passed(cause),
            None => EndVerdict::Unjudged,
        };
    }
    EndVerdict::Unjudged
}

/// What all verdicts that let pass have in common. A flow is told only if it was judged: where one of them judges it, it
/// was not at an interface where nothing does.
fn common_verdict(verdicts: impl Iterator<Item = EndVerdict>) -> EndVerdict {
    let mut common = EndVerdict::Denied;
    for verdict in verdicts {
        common = match (common, verdict) {
            (EndVerdict::Denied, other) | (other, EndVerdict::Denied) => other,
            (EndVerdict::Unjudged, other) | (other, EndVerdict::Unjudged) => other,
            (EndVerdict::Passed(first), EndVerdict::Passed(second))
                if first.cause == second.cause && first.host_stage == second.host_stage =>
            {
                EndVerdict::Passed(first)
            }
            _ => EndVerdict::Ambiguous,
        };
    }
    common
}

/// What lets a packet pass; `None` if no policy applies.
fn end_cause(
    tables: &PastTables<'_>,
    evaluation: &Evaluation<'_>,
    host_stage: Option<PolicyStage>,
) -> Option<EndCause> {
    let causes = |rules: &[RuleId]| -> Vec<Arc<VerdictCause>> {
        let causes = rules.iter().filter_map(|rule| tables.rule(*rule));
        causes.cloned().collect()
    };
    let cell = &evaluation.cell;
    Some(EndCause {
        cause: causes(&cell.causes).pop()?,
        audit: cell.audit.as_ref().map(|audit| AuditAttribution {
            verdict: audit.verdict,
            causes: causes(&audit.causes),
        }),
        host_stage,
    })
}

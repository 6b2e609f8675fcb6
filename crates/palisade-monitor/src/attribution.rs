//! Attribution of a reported packet to rules, by evaluating the packet again with the tables.
//!
//! There is an attribution only if the tables agree with the kernel's report, so a packet is never
//! attributed to a rule that would have treated it differently.

use palisade_dataplane::PacketReport;
use palisade_model::{Direction, PolicyStage};
use palisade_tables::ReportReason;
use palisade_tables::{
    DirectionVerdict, Evaluation, Packet, PastTables, RuleId, Verdict, VerdictCause,
};
use std::sync::Arc;

/// The evaluation of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketAttribution {
    /// The direction that was reported.
    pub direction: Direction,
    /// The stage at which this host judged it, at an interface of its own; `None` if a workload was judged.
    pub host_stage: Option<PolicyStage>,
    /// The rules matched, in order, the deciding one last; empty if no rule was evaluated.
    pub causes: Vec<Arc<VerdictCause>>,
    /// The evaluation if nothing were in audit; `None` where nothing in audit applies.
    pub audit: Option<AuditAttribution>,
}

/// The evaluation of a packet if nothing were in audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditAttribution {
    /// The verdict.
    pub verdict: Verdict,
    /// The audit causes, in order, that of the deciding rule last.
    pub causes: Vec<Arc<VerdictCause>>,
}

/// A report to attribute.
#[derive(Clone, Debug)]
pub struct ReportedPacket {
    /// Why it was reported.
    pub reason: ReportReason,
    /// The first packet of its flow.
    pub first: Packet,
    /// Whether the reported packet is a reply to it.
    pub is_reply: bool,
    /// See [`PacketReport::is_pre_dnat_known`].
    pub is_pre_dnat_known: bool,
}

impl From<&PacketReport> for ReportedPacket {
    fn from(report: &PacketReport) -> Self {
        ReportedPacket {
            reason: report.reason,
            first: report.judged_packet(),
            is_reply: report.reply,
            is_pre_dnat_known: report.is_pre_dnat_known,
        }
    }
}

/// Why a report cannot be attributed with some tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributionError {
    /// The tables contradict the report.
    Contradiction,
    /// The decision depends on where the packet was sent before destination NAT, and that is not known.
    UnknownDestination,
}

/// Whether this evaluation is what the report is of.
fn is_consistent(reason: ReportReason, seen: &Evaluation<'_>, direction: Direction) -> bool {
    match reason {
        ReportReason::Denied | ReportReason::Rejected => seen.cell.verdict == Verdict::Deny,
        ReportReason::Logged(_) => seen.cell.verdict.passes() && seen.cell.log == Some(direction),
        ReportReason::Audited(_) => seen.cell.audit_report() == Some(direction),
        _ => false,
    }
}

/// Attributes a report with these tables.
///
/// # Errors
/// If the tables do not tell what decided.
pub fn attribute(
    tables: &PastTables<'_>,
    report: &ReportedPacket,
) -> Result<PacketAttribution, AttributionError> {
    let (reason, packet) = (report.reason, &report.first);
    // This host judges what it forwards before its workloads are asked. A reply that is tracked was judged by itself
    // before connection tracking, and reported as no reply there.
    let at_host = |direction| {
        let stages = packet.host_stages(direction);
        stages.map(move |stage| (Some(stage), direction))
    };
    let judgements = [Direction::Ingress, Direction::Egress]
        .into_iter()
        .flat_map(at_host)
        .filter(|(stage, _)| !report.is_reply || *stage != Some(PolicyStage::Untracked))
        .chain([(None, Direction::Egress), (None, Direction::Ingress)]);
    let reported = match reason {
        ReportReason::Logged(direction) | ReportReason::Audited(direction) => Some(direction),
        _ => None,
    };
    // The direction at whose interface an early stage has allowed the packet.
    let mut allowed_early = None;
    for (host_stage, direction) in
        judgements.filter(|(_, direction)| reported.is_none_or(|only| only == *direction))
    {
        let judged = match host_stage {
            Some(_) if allowed_early == Some(direction) => continue,
            Some(stage) => tables.judge_host_stage(packet, direction, stage),
            None => tables.judge_direction(packet, direction),
        };
        let seen = match (reason, judged) {
            (ReportReason::NoPoint, DirectionVerdict::NoPoint) => {
                return Ok(PacketAttribution {
                    direction,
                    host_stage,
                    causes: Vec::new(),
                    audit: None,
                });
            }
            (_, DirectionVerdict::Evaluated(_))
                if host_stage == Some(PolicyStage::PreDnat) && !report.is_pre_dnat_known =>
            {
                return Err(AttributionError::UnknownDestination);
            }
            (_, DirectionVerdict::Evaluated(seen)) => seen,
            (_, DirectionVerdict::NoPoint) => return Err(AttributionError::Contradiction),
            (
                _,
                DirectionVerdict::Unmanaged
                | DirectionVerdict::HostOrigin
                | DirectionVerdict::Hairpin
                | DirectionVerdict::Failsafe,
            ) => continue,
        };
        if is_consistent(reason, &seen, direction) {
            let causes = |rules: &[RuleId]| -> Vec<Arc<VerdictCause>> {
                let causes = rules.iter().filter_map(|rule| tables.rule(*rule));
                causes.cloned().collect()
            };
            return Ok(PacketAttribution {
                direction,
                host_stage,
                causes: causes(&seen.cell.causes),
                audit: seen.cell.audit.as_ref().map(|audit| AuditAttribution {
                    verdict: audit.verdict,
                    causes: causes(&audit.causes),
                }),
            });
        }
        if seen.cell.verdict == Verdict::Deny {
            // A denied packet does not reach the next judgement.
            return Err(AttributionError::Contradiction);
        }
        if host_stage.is_some_and(PolicyStage::is_early) && seen.cell.verdict == Verdict::Allow {
            allowed_early = Some(direction);
        }
    }
    Err(AttributionError::Contradiction)
}

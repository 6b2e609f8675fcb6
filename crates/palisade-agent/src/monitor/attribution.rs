//! Attribution of a reported packet to rules, by evaluating the packet again with the tables.
//!
//! There is an attribution only if the tables agree with the kernel's report, so a packet is never
//! attributed to a rule that would have treated it differently.

use palisade_model::Direction;
use palisade_tables::ReportReason;
use palisade_tables::{Credit, DirectionVerdict, Packet, PastTables, RuleId, Verdict};
use std::sync::Arc;

/// The evaluation of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketAttribution {
    /// The direction that was reported.
    pub direction: Direction,
    /// Whether this host judged it, at an interface of its own.
    pub is_host: bool,
    /// The rules matched, in order, the deciding one last; empty if no rule was evaluated.
    pub hits: Vec<Arc<Credit>>,
    /// The evaluation if nothing were in audit; `None` where nothing in audit applies.
    pub audit: Option<AuditAttribution>,
}

/// The evaluation of a packet if nothing were in audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditAttribution {
    /// The verdict.
    pub verdict: Verdict,
    /// The audit credits, in order, that of the deciding rule last.
    pub hits: Vec<Arc<Credit>>,
}

/// Attributes a report with these tables; `None` if they contradict the report.
pub fn attribute(
    tables: &PastTables<'_>,
    reason: ReportReason,
    packet: &Packet,
) -> Option<PacketAttribution> {
    // This host judges what it forwards before its workloads are asked.
    let judgements = [
        (true, Direction::Ingress),
        (true, Direction::Egress),
        (false, Direction::Egress),
        (false, Direction::Ingress),
    ];
    let reported = match reason {
        ReportReason::Logged(direction) | ReportReason::Audited(direction) => Some(direction),
        _ => None,
    };
    let judgements = judgements.into_iter();
    for (is_host, direction) in
        judgements.filter(|(_, direction)| reported.is_none_or(|only| only == *direction))
    {
        let judged = match is_host {
            true => tables.judge_host(packet, direction),
            false => tables.judge_direction(packet, direction),
        };
        let seen = match (reason, judged) {
            (ReportReason::NoPoint, DirectionVerdict::NoPoint) => {
                return Some(PacketAttribution {
                    direction,
                    is_host,
                    hits: Vec::new(),
                    audit: None,
                });
            }
            (_, DirectionVerdict::Evaluated(seen)) => seen,
            (_, DirectionVerdict::NoPoint) => return None,
            (
                _,
                DirectionVerdict::Unmanaged
                | DirectionVerdict::HostOrigin
                | DirectionVerdict::Hairpin
                | DirectionVerdict::Failsafe,
            ) => continue,
        };
        let is_consistent = match reason {
            ReportReason::Denied => seen.cell.verdict == Verdict::Deny,
            ReportReason::Logged(_) => {
                seen.cell.verdict == Verdict::Allow && seen.cell.log == Some(direction)
            }
            ReportReason::Audited(_) => seen.cell.audit_report() == Some(direction),
            _ => false,
        };
        if is_consistent {
            let credits = |rules: &[RuleId]| -> Vec<Arc<Credit>> {
                let credits = rules.iter().filter_map(|rule| tables.rule(*rule));
                credits.cloned().collect()
            };
            return Some(PacketAttribution {
                direction,
                is_host,
                hits: credits(&seen.cell.hits),
                audit: seen.cell.audit.as_ref().map(|audit| AuditAttribution {
                    verdict: audit.verdict,
                    hits: credits(&audit.hits),
                }),
            });
        }
        if seen.cell.verdict == Verdict::Deny {
            // A denied packet does not reach the next judgement.
            return None;
        }
    }
    None
}

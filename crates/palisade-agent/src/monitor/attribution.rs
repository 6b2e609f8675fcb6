//! Attribution of a reported packet to rules, by evaluating the packet again with the tables.
//!
//! There is an attribution only if the tables agree with the kernel's report, so a packet is never
//! attributed to a rule that would have treated it differently.

use palisade_model::Direction;
use palisade_tables::ReportReason;
use palisade_tables::{Credit, DirectionVerdict, Packet, PastTables, Verdict};
use std::sync::Arc;

/// The evaluation of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketAttribution {
    /// The direction that was reported.
    pub direction: Direction,
    /// The rules matched, in order, the deciding one last; empty if no rule was evaluated.
    pub hits: Vec<Arc<Credit>>,
}

/// Attributes a report with these tables; `None` if they contradict the report.
pub fn attribute(
    tables: &PastTables<'_>,
    reason: ReportReason,
    packet: &Packet,
) -> Option<PacketAttribution> {
    let directions = match reason {
        ReportReason::Logged(direction) => vec![direction],
        _ => vec![Direction::Egress, Direction::Ingress],
    };
    for direction in directions {
        let judged = tables.judge_direction(packet, direction);
        let seen = match (reason, judged) {
            (ReportReason::NoPoint, DirectionVerdict::NoPoint) => {
                let hits = Vec::new();
                return Some(PacketAttribution { direction, hits });
            }
            (_, DirectionVerdict::Evaluated(seen)) => seen,
            (_, DirectionVerdict::NoPoint) => return None,
            (
                _,
                DirectionVerdict::Unmanaged
                | DirectionVerdict::HostOrigin
                | DirectionVerdict::Hairpin,
            ) => continue,
        };
        let is_consistent = match reason {
            ReportReason::Denied => seen.cell.verdict == Verdict::Deny,
            ReportReason::Logged(_) => {
                seen.cell.verdict == Verdict::Allow && seen.cell.log == Some(direction)
            }
            _ => false,
        };
        if is_consistent {
            let hits = seen.cell.hits.iter();
            let hits = hits.filter_map(|rule| tables.rule(*rule).cloned());
            return Some(PacketAttribution {
                direction,
                hits: hits.collect(),
            });
        }
        if seen.cell.verdict == Verdict::Deny {
            // A denied packet does not reach the next direction.
            return None;
        }
    }
    None
}

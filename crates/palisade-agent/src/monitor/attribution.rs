//! Which judgement a reported packet ended in, and by which rules: the judgement made again.
//!
//! Promises: an answer only where the tables say what the kernel said; so a packet is never led back
//! to a rule that would have treated it otherwise.

use palisade_dataplane::ReportReason;
use palisade_model::Direction;
use palisade_tables::{Credit, DirectionVerdict, Packet, PastTables, Verdict};
use std::sync::Arc;

/// How a packet was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketAttribution {
    /// The direction that was told of.
    pub direction: Direction,
    /// The rules met, in order, the deciding one last; none where nothing judged.
    pub hits: Vec<Arc<Credit>>,
}

/// The judgement that these tables lead a report back to; `None` if they would not have reported so.
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
            // Nothing comes past a denial.
            return None;
        }
    }
    None
}

//! Which judgement a reported packet ended in, and by which rules: the judgement made again.
//!
//! Promises: an answer only where the tables say what the kernel said; so a packet is never led back
//! to a rule that would have treated it otherwise.

use palisade_dataplane::Why;
use palisade_model::Direction;
use palisade_tables::{Credit, Judged, Packet, Past, Verdict};
use std::sync::Arc;

/// How a packet was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The direction that was told of.
    pub direction: Direction,
    /// The rules met, in order, the deciding one last; none where nothing judged.
    pub hits: Vec<Arc<Credit>>,
}

/// The judgement that these tables lead a report back to; `None` if they would not have reported so.
pub fn judgement(tables: &Past<'_>, why: Why, packet: &Packet) -> Option<Judgement> {
    let directions = match why {
        Why::Logged(direction) => vec![direction],
        _ => vec![Direction::Egress, Direction::Ingress],
    };
    for direction in directions {
        let judged = tables.judge_direction(packet, direction);
        let seen = match (why, judged) {
            (Why::NoPoint, Judged::NoPoint) => {
                let hits = Vec::new();
                return Some(Judgement { direction, hits });
            }
            (_, Judged::By(seen)) => seen,
            (_, Judged::NoPoint) => return None,
            (_, Judged::NotOurs | Judged::HostOrigin | Judged::Itself) => continue,
        };
        let fits = match why {
            Why::Denied => seen.cell.verdict == Verdict::Deny,
            Why::Logged(_) => {
                seen.cell.verdict == Verdict::Allow && seen.cell.log == Some(direction)
            }
            _ => false,
        };
        if fits {
            let hits = seen.cell.hits.iter();
            let hits = hits.filter_map(|rule| tables.rule(*rule).cloned());
            return Some(Judgement {
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

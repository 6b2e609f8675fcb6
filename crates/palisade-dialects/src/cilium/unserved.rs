//! What is read and validated, but not served yet: it is held closed, and the report names the missing piece.
//!
//! Promises: nothing is allowed by it, and nothing is taken out of a rule that denies.

use super::rule::RuleAction;
use crate::closed_part::ClosedReason;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::Peer;

/// Reports that a part of a rule is held closed because `piece` is missing; `piece` is plural.
pub(super) fn hold_closed(
    at: &Field<'_>,
    piece: &str,
    action: RuleAction,
    report: &mut ObjectReport,
) {
    let consequence = match action {
        RuleAction::Allow => "allows nothing by them",
        RuleAction::Deny => "denies whatever they may match",
    };
    report.close(
        at,
        ClosedReason::NotServed,
        format!("{piece} are not served yet: the rule is held closed, it {consequence}"),
    );
}

/// The peers of a rule of which a peer is held closed.
pub(super) fn closed_peers(action: RuleAction) -> Vec<Peer> {
    match action {
        RuleAction::Allow => Vec::new(),
        RuleAction::Deny => vec![Peer::any()],
    }
}

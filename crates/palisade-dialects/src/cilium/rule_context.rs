//! Where a rule is written: in which list of which policy. Whatever reads a part of a rule is given it.

use palisade_model::{Action, Direction, Str};

/// What the rules of a list do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RuleAction {
    /// They deny.
    Deny,
    /// They allow.
    Allow,
}

/// Where a rule is written, and in which policy.
pub(super) struct RuleContext<'a> {
    /// The namespace of the policy; `None` for a policy of the whole cluster.
    pub(super) namespace: Option<&'a Str>,
    /// Whether the policy is one of nodes.
    pub(super) is_of_nodes: bool,
    /// The direction of the list.
    pub(super) direction: Direction,
    /// The action of the list.
    pub(super) action: RuleAction,
    /// The text for the logs of the rules, which names them.
    pub(super) log: Option<&'a Str>,
}

impl RuleAction {
    /// Both, in the order of their precedence.
    pub(super) const BOTH: [RuleAction; 2] = [RuleAction::Deny, RuleAction::Allow];

    /// The action in the model.
    pub(super) fn to_model(self) -> Action {
        match self {
            RuleAction::Deny => Action::Deny,
            RuleAction::Allow => Action::Allow,
        }
    }
}

/// The name of the list of a direction and an action.
pub(super) const fn list_of(direction: Direction, action: RuleAction) -> &'static str {
    match (direction, action) {
        (Direction::Ingress, RuleAction::Allow) => "ingress",
        (Direction::Ingress, RuleAction::Deny) => "ingressDeny",
        (Direction::Egress, RuleAction::Allow) => "egress",
        (Direction::Egress, RuleAction::Deny) => "egressDeny",
    }
}

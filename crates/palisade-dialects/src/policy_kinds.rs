//! The policy kinds of all dialects, with their fields.

use crate::fields::PolicyKind;
use crate::foreign_policies::is_named_as_policy;
use crate::{calico, cilium, kubernetes, policy_api};
use palisade_model::ObjectKind;

/// The kinds of policies that are read, in the order of the dialects.
pub fn policy_kinds() -> impl Iterator<Item = &'static PolicyKind> {
    kubernetes::POLICY_KINDS
        .iter()
        .chain(policy_api::POLICY_KINDS)
        .chain(cilium::POLICY_KINDS)
        .chain(calico::POLICY_KINDS)
}

/// Whether objects of a kind are network policies: of any dialect, or by the name of the kind where no dialect reads it,
/// such as one whose API group has a typo.
#[must_use]
pub fn is_policy_kind(kind: &ObjectKind) -> bool {
    let is_read = |known: &PolicyKind| (known.group, known.kind) == (kind.group(), kind.name());
    policy_kinds().any(is_read) || is_named_as_policy(kind.name())
}

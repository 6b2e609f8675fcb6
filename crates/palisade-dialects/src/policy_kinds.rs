//! The policy kinds of all dialects, with their fields.

use crate::fields::PolicyKind;
use crate::{calico, cilium, kubernetes, policy_api};

/// The kinds of policies that are read, in the order of the dialects.
pub fn policy_kinds() -> impl Iterator<Item = &'static PolicyKind> {
    kubernetes::POLICY_KINDS
        .iter()
        .chain(policy_api::POLICY_KINDS)
        .chain(cilium::POLICY_KINDS)
        .chain(calico::POLICY_KINDS)
}

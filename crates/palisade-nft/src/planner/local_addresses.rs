//! The steps in which the set of the local endpoints' addresses changes, see [`palisade_layout::LocalAddresses`].

use super::Planner;
use crate::names;
use crate::{Element, ElementKey, Op, TxStep};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_layout::LocalAddressChanges;
use palisade_model::Family;
use palisade_tables::{Delta, Phase};

/// Adds the changes of the set to the steps of a delta, which is planned.
pub(super) fn change_local_addresses(
    planner: &mut Planner,
    delta: &Delta,
    steps: &mut Vec<TxStep>,
) {
    let prefix = &*planner.config.interface_prefix;
    let changes = planner
        .local_addresses
        .take_changes(prefix, &planner.tables, delta);
    let LocalAddressChanges {
        added,
        added_after_interface,
        deleted,
        deleted_before_interface,
    } = changes;
    if !deleted.is_empty() {
        let adds = |op: &Op| adds_unprefixed_interface(op, prefix);
        match steps.last_mut() {
            Some(last) if !last.ops.iter().any(adds) => last.ops.extend(deletions(deleted)),
            _ => steps.push(grace_step(Phase::Delete, deletions(deleted))),
        }
    }
    if !added.is_empty() {
        match steps.iter().rposition(|step| step.phase < Phase::Revoke) {
            Some(at) => steps[at].ops.extend(additions(added)),
            None => steps.insert(0, grace_step(Phase::Tighten, additions(added))),
        }
    }
    let step_index = |steps: &[TxStep], matches_op: fn(&Op, &str) -> bool| {
        let has_op = |step: &TxStep| step.ops.iter().any(|op| matches_op(op, prefix));
        steps.iter().position(has_op)
    };
    if !deleted_before_interface.is_empty() {
        let ops = deletions(deleted_before_interface);
        match step_index(steps, removes_unprefixed_interface) {
            Some(at) => steps.insert(at, grace_step(steps[at].phase, ops)),
            None => steps.push(grace_step(Phase::Delete, ops)),
        }
    }
    if !added_after_interface.is_empty() {
        let ops = additions(added_after_interface);
        match step_index(steps, adds_unprefixed_interface) {
            Some(at) => steps.insert(at + 1, grace_step(steps[at].phase, ops)),
            None => steps.insert(0, grace_step(Phase::Tighten, ops)),
        }
    }
}

fn additions(addresses: Vec<IpAddr>) -> Vec<Op> {
    let add = |address| {
        let (set, key) = address_element(address);
        let (set, element) = (set.into(), Element::default());
        Op::AddElement { set, key, element }
    };
    addresses.into_iter().map(add).collect()
}

fn deletions(addresses: Vec<IpAddr>) -> Vec<Op> {
    let delete = |address| {
        let (set, key) = address_element(address);
        let set = set.into();
        Op::DeleteElement { set, key }
    };
    addresses.into_iter().map(delete).collect()
}

fn grace_step(phase: Phase, ops: Vec<Op>) -> TxStep {
    TxStep {
        phase,
        retiring_counters: Vec::new(),
        ops,
        needs_grace_period: true,
    }
}

/// Whether the operation adds an interface without our prefix.
fn adds_unprefixed_interface(op: &Op, prefix: &str) -> bool {
    matches!(op, Op::AddElement { set, key, .. } if **set == *names::IF_OURS && is_unprefixed(key, prefix))
}

/// Whether the operation removes an interface without our prefix.
fn removes_unprefixed_interface(op: &Op, prefix: &str) -> bool {
    matches!(op, Op::DeleteElement { set, key } if **set == *names::IF_OURS && is_unprefixed(key, prefix))
}

fn is_unprefixed(key: &ElementKey, prefix: &str) -> bool {
    matches!(key, ElementKey::Exact(name) if !name.starts_with(prefix.as_bytes()))
}

/// The set and the key of the element of an address.
pub(super) fn address_element(address: IpAddr) -> (&'static str, ElementKey) {
    let key = ElementKey::Exact(names::address_bytes(address));
    (names::local_addresses_set(Family::of(address)), key)
}

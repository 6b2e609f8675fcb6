//! What workloads leave on a host without an agent: the host sides of veth pairs.

use super::Workloads;
use palisade_api::{CleanupItem, CleanupKind};
use palisade_node::subsystem::SubsystemError;
use palisade_node::workload_store::WorkloadStore;
use std::collections::BTreeSet;

/// The host sides of the agent's veth pairs: recorded ones, and unrecorded ones with a generated name.
pub(super) fn interface_items(
    workloads: &mut Workloads,
) -> Result<Vec<CleanupItem>, SubsystemError> {
    let sections = &workloads.sections;
    let stored = WorkloadStore::read_only(&sections.state.dir).read();
    let stored = stored.map_err(SubsystemError::new)?;
    let records = stored.records;
    let veths = workloads.network.veths().map_err(SubsystemError::new)?;
    let of_others = records
        .iter()
        .filter(|record| record.chained)
        .map(|record| (&record.interface, record.index, Some(record.id())));
    let closed = stored.closed.iter();
    let closed = closed.map(|closed| (&closed.interface, Some(closed.index), None));
    let mut chained = Vec::new();
    for (interface, index, id) in of_others.chain(closed) {
        let is_that_link = |(name, number): &&(String, u32)| match index {
            Some(index) => *number == index,
            None => *name == **interface,
        };
        if let Some((name, _)) = veths.iter().find(is_that_link) {
            let workload = id.map(|id| id.to_string());
            chained.push(CleanupItem::new(
                CleanupKind::ChainedInterface,
                &**name,
                workload,
            ));
        }
    }
    let present: BTreeSet<String> = veths.into_iter().map(|(name, _)| name).collect();
    let mut items = Vec::new();
    let mut known = BTreeSet::new();
    for record in &records {
        known.insert(record.interface.to_string());
        if !record.chained && present.contains(&*record.interface) {
            let workload = format!("{}/{}", record.namespace, record.name);
            items.push(CleanupItem::new(
                CleanupKind::Interface,
                &*record.interface,
                Some(workload),
            ));
        }
    }
    known.extend(chained.iter().map(|item| item.name.clone()));
    items.extend(chained);
    for name in present.difference(&known) {
        if is_generated_name(name, &sections.workloads.interface_prefix) {
            items.push(CleanupItem::new(CleanupKind::Interface, name, None));
        }
    }
    Ok(items)
}

/// Whether a name has the form of a generated name: the prefix, then hexadecimal digits up to the full
/// length.
fn is_generated_name(name: &str, prefix: &str) -> bool {
    let digits = (15 - prefix.len().min(15)).min(11);
    name.strip_prefix(prefix).is_some_and(|rest| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        rest.len() == digits && rest.bytes().all(is_hex)
    })
}

/// Deletes a pair; that of another plugin is set down.
pub(super) fn remove_interface(
    workloads: &mut Workloads,
    item: &CleanupItem,
) -> Result<bool, SubsystemError> {
    let network = &mut workloads.network;
    let removed = match item.kind {
        CleanupKind::ChainedInterface => network.close_link(&item.name),
        _ => network.delete_link(&item.name),
    };
    removed.map(|()| true).map_err(SubsystemError::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_made_are_ours() {
        for (name, prefix, ours) in [
            ("pal0123456789a", "pal", true),
            ("pal0123456789", "pal", false),
            ("palette", "pal", false),
            ("pal0123456789G", "pal", false),
            ("veth0123456789a", "pal", false),
            ("palisade0123456", "palisade", true),
        ] {
            assert_eq!(is_generated_name(name, prefix), ours, "{name}");
        }
    }
}

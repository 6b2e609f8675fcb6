//! Tells the driver which interfaces this host has: all of them at the start and after lost notifications, then each
//! change. That of a workload is told before its policy is written.
//!
//! Never: decides what an interface is for.

use crate::network_driver::NetworkDriver;
use palisade_dataplane::{Interface, InterfaceChange};
use palisade_enforcer::enforcer::Enforcer;
use palisade_node::host_changes::HostChanges;
use palisade_node::workload_store::WorkloadRecord;
use palisade_text::error_chain;

/// Tells the driver of all interfaces.
pub fn list_interfaces(network: &mut dyn NetworkDriver, enforcer: &mut Enforcer) {
    match network.interfaces() {
        Ok(interfaces) => {
            let result = enforcer.dataplane.interfaces_listed(&interfaces);
            enforcer.record_interfaces(result);
        }
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "listing the interfaces of this host failed");
        }
    }
}

/// Tells the driver of what changed on this host.
pub fn follow_interfaces(
    network: &mut dyn NetworkDriver,
    enforcer: &mut Enforcer,
    changes: &HostChanges,
) {
    if changes.is_all() {
        return list_interfaces(network, enforcer);
    }
    let changes: Vec<InterfaceChange> = changes.interfaces().cloned().collect();
    announce(enforcer, &changes);
}

/// Tells the driver of the interface of a workload, which is new.
pub fn announce_workload(enforcer: &mut Enforcer, record: &WorkloadRecord) {
    let interface = record.index.map(|index| Interface {
        name: record.interface.clone(),
        index,
    });
    let changes: Vec<InterfaceChange> = interface
        .map(InterfaceChange::Present)
        .into_iter()
        .collect();
    announce(enforcer, &changes);
}

fn announce(enforcer: &mut Enforcer, changes: &[InterfaceChange]) {
    if !changes.is_empty() {
        let result = enforcer.dataplane.interfaces_changed(changes);
        enforcer.record_interfaces(result);
    }
}

//! Detection and repair of foreign changes to the host side of workloads.
//!
//! Kernel notifications say what may have changed; only the workloads concerned are inspected. Changes
//! are reverted to the state that bringing the workload up created. A renamed interface is renamed
//! back, because no policy applies to the new name; if that fails it is set down. A workload whose
//! interface is gone is lost until it returns. An interface that lost its workload is kept closed: it
//! is followed when it is renamed, and forgotten when it is deleted. Never: changes an interface that
//! does not belong to a workload.

use super::Workloads;
use super::installed::{interface_items, remove_interface};
use palisade_api::{CleanupItem, EndpointState};
use palisade_network::network_driver::HostInterfaceState;
use palisade_network::node_state::NodeState;
use palisade_node::host_changes::HostChanges;
use palisade_node::subsystem::{ActionOutcome, Subsystem, SubsystemError};
use palisade_node::workload_store::{ClosedInterface, WorkloadRecord};
use palisade_text::error_chain;
use std::collections::BTreeSet;
use std::fmt;

/// What a run does with the host side of workloads.
pub enum WorkloadAction {
    /// Follows the closed interfaces: renamed ones are closed under the new name, deleted ones forgotten.
    TrackClosedInterfaces,
    /// Restores the intended state of a workload's interface.
    Repair(Box<WorkloadRecord>, HostInterfaceState),
    /// Removes what could not be rolled back or deleted before.
    RetryRemovals,
    /// Opens every workload that waits for its policy.
    OpenPending,
}

impl fmt::Display for WorkloadAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkloadAction::TrackClosedInterfaces => f.write_str("follow closed interfaces"),
            WorkloadAction::Repair(record, _) => write!(f, "inspect {}", record.interface),
            WorkloadAction::RetryRemovals => f.write_str("retry removals"),
            WorkloadAction::OpenPending => f.write_str("open workloads that wait for policy"),
        }
    }
}

impl Subsystem<NodeState> for Workloads {
    type Action = WorkloadAction;

    fn name(&self) -> &'static str {
        "workloads"
    }

    fn host_changed(&mut self, changes: &HostChanges) {
        self.host_changes.merge(changes.clone());
    }

    fn has_work(&self, node: &NodeState) -> bool {
        !self.host_changes.is_empty() || self.opened_at_flush != node.enforcer.flushes()
    }

    fn wants_retry(&self) -> bool {
        !self.leftovers.is_empty() || self.deletions_failed
    }

    fn retry(&mut self) {
        self.is_retry_due = true;
    }

    fn plan(&mut self, node: &mut NodeState) -> Result<Vec<WorkloadAction>, SubsystemError> {
        let mut actions = Vec::new();
        if std::mem::take(&mut self.is_retry_due) {
            actions.push(WorkloadAction::RetryRemovals);
        }
        let changes = std::mem::take(&mut self.host_changes);
        if changes.is_all() || !changes.indexes().is_empty() {
            actions.push(WorkloadAction::TrackClosedInterfaces);
        }
        actions.extend(plan_repairs(self, &changes));
        self.opened_at_flush = node.enforcer.flushes();
        actions.push(WorkloadAction::OpenPending);
        Ok(actions)
    }

    fn execute(
        &mut self,
        action: WorkloadAction,
        node: &mut NodeState,
    ) -> Result<ActionOutcome, SubsystemError> {
        match action {
            WorkloadAction::TrackClosedInterfaces => track_closed_interfaces(self, node),
            WorkloadAction::RetryRemovals => self.retry_failed(node),
            WorkloadAction::OpenPending => self.open_pending(node),
            WorkloadAction::Repair(record, state) => {
                let repairs = reconcile_workload(self, node, &record, state);
                if !repairs.is_empty() {
                    return Ok(ActionOutcome::Repaired(repairs));
                }
            }
        }
        Ok(ActionOutcome::Done)
    }

    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        interface_items(self)
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        remove_interface(self, item)
    }
}

/// The workloads whose host side may have changed, with its present state.
fn plan_repairs(workloads: &mut Workloads, changes: &HostChanges) -> Vec<WorkloadAction> {
    if changes.is_empty() {
        return Vec::new();
    }
    let known: BTreeSet<&str> = workloads
        .registry
        .records()
        .map(|r| &*r.interface)
        .collect();
    // A workload's interface may have been renamed to a foreign name. The interface of a workload
    // that was just detached is gone, and does not require inspecting all the others.
    let network = &mut workloads.network;
    let mut is_unknown_link = |name: &String| {
        !known.contains(&**name)
            && network
                .link_index(name)
                .map_or(true, |index| index.is_some())
    };
    let all = changes.is_all() || changes.workload_like().iter().any(&mut is_unknown_link);
    let affected = workloads.registry.records();
    let affected: Vec<WorkloadRecord> = affected
        .filter(|record| all || affects(changes, record))
        .cloned()
        .collect();
    if affected.is_empty() || palisade_sys::fault::is_injected("host-side-not-repaired") {
        return Vec::new();
    }
    match workloads.network.host_interface_states(&affected) {
        Ok(states) => (affected.into_iter().zip(states))
            .map(|(record, state)| WorkloadAction::Repair(Box::new(record), state))
            .collect(),
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "inspecting the workloads' interfaces failed");
            Vec::new()
        }
    }
}

/// Whether changes of this host may concern a workload.
fn affects(changes: &HostChanges, record: &WorkloadRecord) -> bool {
    let addresses = changes.addresses();
    changes.names().contains(&*record.interface)
        || record
            .index
            .is_some_and(|index| changes.indexes().contains(&index))
        || record.addresses.iter().any(|a| addresses.contains(a))
}

/// Updates the closed interfaces: a deleted one is forgotten, whatever has its name now, and a
/// renamed one is closed under the new name.
fn track_closed_interfaces(workloads: &mut Workloads, node: &mut NodeState) {
    let closed_interfaces: Vec<ClosedInterface> =
        workloads.registry.closed_interfaces().cloned().collect();
    let mut updates = Vec::new();
    for closed in closed_interfaces {
        let now = match workloads.network.link_name(closed.index) {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!(interface = %closed.interface, error = %error_chain(&error), "looking up a closed interface failed");
                continue;
            }
        };
        if now.as_deref() == Some(&*closed.interface) {
            continue;
        }
        let forgotten = workloads
            .registry
            .forget_closed_interface(&closed.interface);
        updates.extend(forgotten);
        match now {
            None => {
                tracing::info!(interface = %closed.interface, "a closed interface was deleted")
            }
            Some(now) => {
                tracing::warn!(interface = %closed.interface, now, "a closed interface was renamed; it stays closed");
                let interface = now.as_str().into();
                updates.push(workloads.registry.close_interface(ClosedInterface {
                    interface,
                    ..closed
                }));
            }
        }
    }
    if updates.is_empty() {
        return;
    }
    node.enforcer.apply(updates);
    if let Err(error) = workloads.save_records() {
        tracing::warn!(error = %error_chain(&error), "saving the closed interfaces failed");
    }
}

/// Restores the intended state of one workload; returns what was repaired.
fn reconcile_workload(
    workloads: &mut Workloads,
    node: &mut NodeState,
    record: &WorkloadRecord,
    interface_state: HostInterfaceState,
) -> Vec<String> {
    let id = record.id();
    let Some(state) = workloads.registry.get(&id).map(|workload| workload.state) else {
        return Vec::new();
    };
    let (name, mut repairs) = (&record.interface, Vec::new());
    match interface_state {
        HostInterfaceState::Missing if state != EndpointState::Lost => {
            let reason = if workloads.network.netns_exists(record) {
                format!("its interface {name} is gone")
            } else {
                format!("its network namespace {} is gone", record.netns)
            };
            mark_lost(workloads, node, record, reason);
        }
        HostInterfaceState::Missing => {}
        HostInterfaceState::Renamed(now) => match workloads.network.restore_name(record, &now) {
            Ok(()) => {
                repairs.push(format!("{name} was renamed to {now}"));
                repairs.extend(reopen(workloads, record));
            }
            Err(error) => {
                let why = error_chain(&error);
                let reason = format!(
                    "its interface {name} was renamed to {now} and cannot be renamed back, so it was set down: {why}"
                );
                mark_lost(workloads, node, record, reason);
            }
        },
        HostInterfaceState::Changed(what) if state == EndpointState::Ready => {
            if reopen(workloads, record).is_some() {
                repairs.extend(what);
            }
        }
        HostInterfaceState::Intact | HostInterfaceState::Changed(_)
            if state == EndpointState::Lost =>
        {
            mark_recovered(workloads, node, record)
        }
        HostInterfaceState::Intact | HostInterfaceState::Changed(_) => {}
    }
    repairs
}

fn mark_lost(
    workloads: &mut Workloads,
    node: &mut NodeState,
    record: &WorkloadRecord,
    reason: String,
) {
    let id = record.id();
    if let Some(workload) = workloads.registry.get_mut(&id) {
        tracing::warn!(workload = %id, %reason, "lost");
        workload.state = EndpointState::Lost;
        workload.reason = Some(reason);
    }
    if record.chained {
        node.enforcer
            .apply(workloads.registry.endpoint_updates(&id));
    }
}

/// Marks a lost workload as recovered: its interface is back, possibly created anew.
fn mark_recovered(workloads: &mut Workloads, node: &mut NodeState, record: &WorkloadRecord) {
    let id = record.id();
    let index = workloads.network.link_index(&record.interface);
    if let Some(workload) = workloads.registry.get_mut(&id) {
        workload.state = EndpointState::Closed;
        if let Ok(Some(index)) = index {
            workload.record.index = Some(index);
        }
    }
    if record.chained {
        node.enforcer
            .apply(workloads.registry.endpoint_updates(&id));
    }
}

/// Brings an open workload up again; `None` if that failed. A workload whose policy is not in the
/// kernel waits for it.
fn reopen(workloads: &mut Workloads, record: &WorkloadRecord) -> Option<String> {
    let id = record.id();
    let workload = workloads.registry.get_mut(&id)?;
    if workload.state != EndpointState::Ready {
        workload.state = EndpointState::Closed;
        return None;
    }
    match workloads.network.bring_up(record) {
        Ok(()) => {
            workload.reason = None;
            Some(format!("{} was brought up again", record.interface))
        }
        Err(error) => {
            tracing::warn!(workload = %id, error = %error_chain(&error), "bringing the workload's interface up failed");
            workload.reason = Some(error_chain(&error));
            workload.state = EndpointState::Closed;
            None
        }
    }
}

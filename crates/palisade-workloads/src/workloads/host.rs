//! Detection and repair of foreign changes to the host side of workloads.
//!
//! Kernel notifications say what may have changed; only the workloads concerned are inspected. Changes
//! are reverted to the state that bringing the workload up created. A renamed interface is renamed
//! back, because no policy applies to the new name; if that fails it is set down. A workload whose
//! interface is gone is lost until it returns. An interface that lost its workload is kept closed: it
//! is followed when it is renamed, and forgotten when it is deleted. Never: changes an interface that
//! does not belong to a workload.

use super::deletions::run_queued_deletions;
use super::installed::{interface_items, remove_interface};
use super::{Workloads, may_open};
use palisade_api::{CleanupItem, EndpointState};
use palisade_model::EndpointId;
use palisade_network::network_driver::HostInterfaceState;
use palisade_network::node_state::NodeState;
use palisade_node::host_changes::HostChanges;
use palisade_node::subsystem::{ActionOutcome, Subsystem, SubsystemError};
use palisade_node::workload_store::{ClosedInterface, WorkloadRecord};
use palisade_text::error_chain;
use std::collections::BTreeSet;
use std::fmt;

/// What a run does with the workloads of this host.
pub enum WorkloadAction {
    /// Removes a workload that could not be rolled back or deleted before.
    Remove(EndpointId),
    /// Runs the CNI DELs that failed before.
    RunQueuedDeletions,
    /// Follows a closed interface that was renamed, or forgets one that was deleted.
    FollowClosedInterface {
        /// The interface as it is recorded.
        closed: ClosedInterface,
        /// Its present name; `None`: it was deleted.
        name: Option<String>,
    },
    /// Restores the intended state of a workload's interface, or records that it is gone or back.
    Repair(Box<WorkloadRecord>, HostInterfaceState),
    /// Opens a workload that waited for its policy.
    Open(Box<WorkloadRecord>),
}

impl fmt::Display for WorkloadAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkloadAction::Remove(id) => write!(f, "remove {id}"),
            WorkloadAction::RunQueuedDeletions => f.write_str("run queued CNI DELs"),
            WorkloadAction::FollowClosedInterface { closed, name } => match name {
                Some(name) => write!(f, "close {name}, which was {}", closed.interface),
                None => write!(f, "forget the closed interface {}", closed.interface),
            },
            WorkloadAction::Repair(record, state) => {
                let interface = &record.interface;
                match state {
                    HostInterfaceState::Missing => write!(f, "record that {interface} is gone"),
                    HostInterfaceState::Intact => write!(f, "record that {interface} is back"),
                    HostInterfaceState::Renamed(now) => write!(f, "rename {now} to {interface}"),
                    HostInterfaceState::Changed(what) => write!(f, "restore {}", what.join(", ")),
                }
            }
            WorkloadAction::Open(record) => write!(f, "open {}", record.id()),
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
            actions.extend(plan_removals(self));
        }
        let changes = std::mem::take(&mut self.host_changes);
        if changes.is_all() || !changes.indexes().is_empty() {
            actions.extend(plan_closed_interfaces(self));
        }
        let repairs = plan_repairs(self, &changes);
        self.opened_at_flush = node.enforcer.flushes();
        let opened = plan_opening(self, node, &repairs);
        actions.extend(repairs);
        actions.extend(opened);
        Ok(actions)
    }

    fn execute(
        &mut self,
        action: WorkloadAction,
        node: &mut NodeState,
    ) -> Result<ActionOutcome, SubsystemError> {
        match action {
            WorkloadAction::Remove(id) => {
                if let Err(error) = self.clear_leftovers(node, Some(&id)) {
                    tracing::warn!(workload = %id, error = %error_chain(&error), "removing a workload whose rollback failed; will retry");
                }
            }
            WorkloadAction::RunQueuedDeletions => {
                if let Err(error) = run_queued_deletions(self, node) {
                    tracing::warn!(%error, "running queued CNI DELs failed");
                }
            }
            WorkloadAction::FollowClosedInterface { closed, name } => {
                follow_closed_interface(self, node, closed, name);
            }
            WorkloadAction::Repair(record, state) => {
                let repairs = reconcile_workload(self, node, &record, state);
                if !repairs.is_empty() {
                    return Ok(ActionOutcome::Repaired(repairs));
                }
            }
            WorkloadAction::Open(record) => self.open_waiting(node, &record),
        }
        Ok(ActionOutcome::Done)
    }

    fn describe(
        &mut self,
        action: &WorkloadAction,
        _: &mut NodeState,
    ) -> Result<Option<String>, SubsystemError> {
        if let WorkloadAction::Open(record) = action {
            let records = std::slice::from_ref(&**record);
            let states = self.network.host_interface_states(records);
            let mut states = states.map_err(SubsystemError::new)?.into_iter();
            // A former agent opened it.
            if states.all(|state| matches!(state, HostInterfaceState::Intact)) {
                return Ok(None);
            }
        }
        Ok(Some(action.to_string()))
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
            .filter(|(record, state)| needs_repair(workloads, record, state))
            .map(|(record, state)| WorkloadAction::Repair(Box::new(record), state))
            .collect(),
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "inspecting the workloads' interfaces failed");
            Vec::new()
        }
    }
}

/// Whether the host side of a workload is not as the workload's state says.
fn needs_repair(
    workloads: &Workloads,
    record: &WorkloadRecord,
    found: &HostInterfaceState,
) -> bool {
    let workload = workloads.registry.get(&record.id());
    workload.is_some_and(|workload| match found {
        HostInterfaceState::Missing => workload.state != EndpointState::Lost,
        HostInterfaceState::Renamed(_) => true,
        HostInterfaceState::Changed(_) => workload.state != EndpointState::Closed,
        HostInterfaceState::Intact => workload.state == EndpointState::Lost,
    })
}

/// The removal of what could not be rolled back or deleted before.
fn plan_removals(workloads: &Workloads) -> Vec<WorkloadAction> {
    let leftovers = workloads.leftovers.iter().map(WorkloadRecord::id);
    let leftovers: BTreeSet<EndpointId> = leftovers.collect();
    let deletions = (workloads.deletions_failed).then_some(WorkloadAction::RunQueuedDeletions);
    let removals = leftovers.into_iter().map(WorkloadAction::Remove);
    removals.chain(deletions).collect()
}

/// The closed interfaces that were renamed or deleted.
fn plan_closed_interfaces(workloads: &mut Workloads) -> Vec<WorkloadAction> {
    let network = &mut workloads.network;
    let closed_interfaces = workloads.registry.closed_interfaces();
    let moved = closed_interfaces.filter_map(|closed| match network.link_name(closed.index) {
        Ok(name) if name.as_deref() == Some(&*closed.interface) => None,
        Ok(name) => Some(WorkloadAction::FollowClosedInterface {
            closed: closed.clone(),
            name,
        }),
        Err(error) => {
            tracing::warn!(interface = %closed.interface, error = %error_chain(&error), "looking up a closed interface failed");
            None
        }
    });
    moved.collect()
}

/// The workloads that wait for policy that the kernel holds; also those that `repairs` find again.
fn plan_opening(
    workloads: &Workloads,
    node: &NodeState,
    repairs: &[WorkloadAction],
) -> Vec<WorkloadAction> {
    if !may_open(node) {
        return Vec::new();
    }
    let repaired = repairs.iter().filter_map(|action| match action {
        WorkloadAction::Repair(_, HostInterfaceState::Missing) => None,
        WorkloadAction::Repair(record, _) => Some(record.id()),
        _ => None,
    });
    let repaired: BTreeSet<EndpointId> = repaired.collect();
    let all = workloads.registry.iter();
    let waiting = all.filter(|(id, workload)| {
        let is_waiting = match workload.state {
            EndpointState::Closed => true,
            EndpointState::Lost => repaired.contains(*id),
            _ => false,
        };
        is_waiting && workloads.waits_for_policy_alone(id)
    });
    waiting
        .map(|(_, workload)| WorkloadAction::Open(Box::new(workload.record.clone())))
        .collect()
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

/// Forgets a closed interface that was deleted, whatever has its name now; one that was renamed is closed under its
/// present name.
fn follow_closed_interface(
    workloads: &mut Workloads,
    node: &mut NodeState,
    closed: ClosedInterface,
    name: Option<String>,
) {
    let registry = &mut workloads.registry;
    let mut updates = Vec::new();
    updates.extend(registry.forget_closed_interface(&closed.interface));
    match name {
        None => tracing::info!(interface = %closed.interface, "a closed interface was deleted"),
        Some(name) => {
            tracing::warn!(interface = %closed.interface, now = name, "a closed interface was renamed; it stays closed");
            updates.push(registry.close_interface(ClosedInterface {
                interface: name.as_str().into(),
                ..closed
            }));
        }
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

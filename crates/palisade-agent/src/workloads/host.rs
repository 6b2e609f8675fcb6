//! Detection and repair of foreign changes to the host side of workloads.
//!
//! Kernel notifications say what may have changed; only the workloads concerned are inspected. Changes
//! are reverted to the state that bringing the workload up created. A renamed interface is renamed
//! back, because no policy applies to the new name; if that fails it is set down. A workload whose
//! interface is gone is lost until it returns. An interface that lost its workload is kept closed: it
//! is followed when it is renamed, and forgotten when it is deleted. Never: changes an interface that
//! does not belong to a workload.

use super::Workloads;
use crate::enforcer::Enforcer;
use crate::network_driver::{HOST_MAC, HostInterfaceState};
use crate::settings::is_uplink;
use crate::workload_store::{ClosedInterface, WorkloadRecord};
use palisade_api::EndpointState;
use palisade_dataplane::{Interface, InterfaceChange};
use palisade_model::Prefix;
use palisade_source::error_chain;
use palisade_sys::link::{Link, LinkEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

/// The maximum number of named links and addresses; beyond it, everything is inspected.
const MAX_NAMED_CHANGES: usize = 1_000;

/// What may have changed on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostChanges {
    /// Notifications were lost: everything may have changed.
    all: bool,
    /// Links with these names.
    names: BTreeSet<String>,
    /// The indexes of the links, which survive a rename.
    indexes: BTreeSet<u32>,
    /// The links that look like a workload's interface.
    workload_like: BTreeSet<String>,
    /// The links that are uplinks.
    uplinks: BTreeSet<String>,
    /// Addresses whose routes or neighbours changed.
    addresses: BTreeSet<IpAddr>,
    /// Networks of more than one address whose routes changed.
    networks: BTreeSet<Prefix>,
    /// The interfaces that changed, by index, each as it was told last.
    interfaces: BTreeMap<u32, InterfaceChange>,
    /// Host-wide sysctls.
    settings: bool,
}

impl HostChanges {
    /// All of the host.
    pub fn all() -> Self {
        HostChanges {
            all: true,
            settings: true,
            ..HostChanges::default()
        }
    }

    /// Adds other changes.
    pub fn merge(&mut self, others: HostChanges) {
        if self.all || others.all {
            *self = HostChanges::all();
            return;
        }
        self.names.extend(others.names);
        self.indexes.extend(others.indexes);
        self.networks.extend(others.networks);
        self.workload_like.extend(others.workload_like);
        self.uplinks.extend(others.uplinks);
        self.addresses.extend(others.addresses);
        self.interfaces.extend(others.interfaces);
        self.settings |= others.settings;
        self.collapse();
    }

    /// Whether everything may have changed.
    pub(crate) fn is_all(&self) -> bool {
        self.all
    }

    /// The interfaces that changed, each as it was told last.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &InterfaceChange> {
        self.interfaces.values()
    }

    /// The names of the links that may have changed.
    pub(crate) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Networks of more than one address whose routes may have changed.
    pub(crate) fn networks(&self) -> &BTreeSet<Prefix> {
        &self.networks
    }

    /// Inspecting that many individually is not cheaper than inspecting everything.
    fn collapse(&mut self) {
        if self.names.len() + self.addresses.len() > MAX_NAMED_CHANGES {
            *self = HostChanges::all();
        }
    }

    /// The number of named links and addresses.
    pub fn len(&self) -> usize {
        self.names.len() + self.addresses.len()
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        *self == HostChanges::default()
    }

    /// Adds a kernel notification.
    pub fn add_event(&mut self, event: LinkEvent) {
        if self.all {
            return;
        }
        match &event {
            LinkEvent::Link(link) => self.add_interface(link, InterfaceChange::Present),
            LinkEvent::LinkRemoved(link) => self.add_interface(link, InterfaceChange::Gone),
            _ => {}
        }
        match event {
            LinkEvent::Link(link) | LinkEvent::LinkRemoved(link) => {
                if link.mac == Some(HOST_MAC) {
                    self.workload_like.insert(link.name.clone());
                }
                if is_uplink(&link) {
                    self.uplinks.insert(link.name.clone());
                }
                self.indexes.insert(link.index);
                self.names.insert(link.name);
            }
            LinkEvent::Route { destination } => {
                self.addresses.insert(destination.address);
                let network = Prefix::new(destination.address, destination.len);
                if !network.is_host() {
                    self.networks.insert(network);
                }
            }
            LinkEvent::Neighbour { address } => {
                self.addresses.insert(address);
            }
            LinkEvent::Netconf => self.settings = true,
            LinkEvent::Overrun => *self = HostChanges::all(),
            LinkEvent::Address { .. } | LinkEvent::AddressRemoved { .. } => {}
        }
        self.collapse();
    }

    fn add_interface(&mut self, link: &Link, change: fn(Interface) -> InterfaceChange) {
        let interface = Interface {
            name: link.name.as_str().into(),
            index: link.index,
        };
        self.interfaces.insert(link.index, change(interface));
    }

    fn affects(&self, record: &WorkloadRecord) -> bool {
        self.names.contains(&*record.interface)
            || record
                .index
                .is_some_and(|index| self.indexes.contains(&index))
            || record.addresses.iter().any(|a| self.addresses.contains(a))
    }
}

/// Inspects what changed, and repairs it.
pub(crate) fn repair_host(
    workloads: &mut Workloads,
    enforcer: &mut Enforcer,
    changes: &HostChanges,
    detected_at: Instant,
) {
    if workloads.forwarding_enabled && (changes.settings || !changes.uplinks.is_empty()) {
        match workloads.ensure_forwarding() {
            Ok(switched) if switched.is_empty() || !changes.settings => {}
            Ok(switched) => enforcer.record_repair(&switched, switched.len(), detected_at),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "enabling forwarding failed");
            }
        }
    }
    if changes.all || !changes.indexes.is_empty() {
        track_closed_interfaces(workloads, enforcer);
    }
    let known: BTreeSet<&str> = workloads
        .registry
        .records()
        .map(|r| &*r.interface)
        .collect();
    // A workload's interface may have been renamed to a foreign name. The interface of a workload
    // that was just detached is gone, and does not require inspecting all the others.
    let attach = &mut workloads.network;
    let mut is_unknown_link = |name: &String| {
        !known.contains(&**name)
            && attach
                .link_index(name)
                .map_or(true, |index| index.is_some())
    };
    let all = changes.all || changes.workload_like.iter().any(&mut is_unknown_link);
    let affected = workloads.registry.records();
    let affected: Vec<WorkloadRecord> = affected
        .filter(|record| all || changes.affects(record))
        .cloned()
        .collect();
    if affected.is_empty() || palisade_sys::fault::is_injected("host-side-not-repaired") {
        return;
    }
    let states = match workloads.network.host_interface_states(&affected) {
        Ok(found) => found,
        Err(error) => {
            return tracing::warn!(error = %error_chain(&error), "inspecting the workloads' interfaces failed");
        }
    };
    let mut repairs = Vec::new();
    for (record, state) in affected.iter().zip(states) {
        repairs.extend(reconcile_workload(workloads, enforcer, record, state));
    }
    if !repairs.is_empty() {
        enforcer.record_repair(&repairs, repairs.len(), detected_at);
    }
    workloads.open_pending(enforcer);
}

/// Updates the closed interfaces: a deleted one is forgotten, whatever has its name now, and a
/// renamed one is closed under the new name.
fn track_closed_interfaces(workloads: &mut Workloads, enforcer: &mut Enforcer) {
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
    workloads.apply(enforcer, updates);
    if let Err(error) = workloads.save_records() {
        tracing::warn!(error = %error_chain(&error), "saving the closed interfaces failed");
    }
}

/// Restores the intended state of one workload; returns what was repaired.
fn reconcile_workload(
    workloads: &mut Workloads,
    enforcer: &mut Enforcer,
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
            let reason = match workloads.network.netns_exists(record) {
                true => format!("its interface {name} is gone"),
                false => format!("its network namespace {} is gone", record.netns),
            };
            mark_lost(workloads, enforcer, record, reason);
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
                mark_lost(workloads, enforcer, record, reason);
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
            mark_recovered(workloads, enforcer, record)
        }
        HostInterfaceState::Intact | HostInterfaceState::Changed(_) => {}
    }
    repairs
}

fn mark_lost(
    workloads: &mut Workloads,
    enforcer: &mut Enforcer,
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
        workloads.apply(enforcer, workloads.registry.endpoint_updates(&id));
    }
}

/// Marks a lost workload as recovered: its interface is back, possibly created anew.
fn mark_recovered(workloads: &mut Workloads, enforcer: &mut Enforcer, record: &WorkloadRecord) {
    let id = record.id();
    let index = workloads.network.link_index(&record.interface);
    if let Some(workload) = workloads.registry.get_mut(&id) {
        workload.state = EndpointState::Closed;
        if let Ok(Some(index)) = index {
            workload.record.index = Some(index);
        }
    }
    if record.chained {
        workloads.apply(enforcer, workloads.registry.endpoint_updates(&id));
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

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_sys::link::{IpNet, Link, MacAddr};

    fn link(name: &str, mac: Option<MacAddr>) -> Link {
        Link {
            index: 1,
            name: name.to_owned(),
            kind: None,
            mac,
            mtu: 1500,
            flags: 0,
            peer_index: None,
            peer_netnsid: None,
            master: None,
        }
    }

    #[test]
    fn a_burst_names_what_it_is_about() {
        let address: IpAddr = [10, 0, 0, 1].into();
        let mut changes = HostChanges::default();
        changes.add_event(LinkEvent::Link(link("pal0", Some(HOST_MAC))));
        changes.add_event(LinkEvent::LinkRemoved(link("eth0", None)));
        changes.add_event(LinkEvent::Route {
            destination: IpNet::host(address),
        });
        let wanted = HostChanges {
            names: ["eth0".to_owned(), "pal0".to_owned()].into(),
            indexes: [1].into(),
            workload_like: ["pal0".to_owned()].into(),
            uplinks: ["eth0".to_owned(), "pal0".to_owned()].into(),
            addresses: [address].into(),
            ..HostChanges::default()
        };
        assert_eq!(changes, wanted);
        changes.add_event(LinkEvent::Overrun);
        assert_eq!(changes, HostChanges::all());
    }
}

//! What others do to the host side of workloads: noticed, put back, and told.
//!
//! The kernel's notices say what may have changed; only those workloads are looked at. What is found
//! changed is put back as it was when the workload was opened. An interface under another name is
//! renamed back, since nothing judges it there; where that is refused it is set down. One that is
//! gone is lost until it comes back. An interface that was a workload's and is kept closed is let go
//! when it is gone, and followed under another name. Never: touches an interface that is not a
//! workload's.

use crate::core::{Core, error_chain};
use crate::network_driver::{HOST_MAC, HostInterfaceState, NetworkDriverError};
use crate::settings::is_uplink;
use crate::workload_store::{ClosedInterface, WorkloadRecord};
use palisade_api::{EndpointState, RepairReport};
use palisade_sys::link::LinkEvent;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

/// How many repairs status remembers.
const MAX_REPAIRS: usize = 16;
/// How many links and addresses are named before everything is looked at.
const MAX_NAMED_CHANGES: usize = 1_000;
/// Of how many things one repair names each.
const MAX_NAMED_IN_REPAIR: usize = 4;

/// What may have changed on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostChanges {
    /// Notices were lost: anything.
    all: bool,
    /// Links of these names.
    names: BTreeSet<String>,
    /// Their numbers, which stay when they are renamed.
    indexes: BTreeSet<u32>,
    /// Those of them that look like a workload's.
    workload_like: BTreeSet<String>,
    /// Those by which routers may be reached.
    uplinks: BTreeSet<String>,
    /// Routes to these, and neighbours.
    addresses: BTreeSet<IpAddr>,
    /// Settings of the host as a whole.
    settings: bool,
}

impl HostChanges {
    /// Everything may have changed.
    pub fn all() -> Self {
        HostChanges {
            all: true,
            settings: true,
            ..HostChanges::default()
        }
    }

    /// Takes in others.
    pub fn merge(&mut self, others: HostChanges) {
        if self.all || others.all {
            *self = HostChanges::all();
            return;
        }
        self.names.extend(others.names);
        self.workload_like.extend(others.workload_like);
        self.uplinks.extend(others.uplinks);
        self.addresses.extend(others.addresses);
        self.settings |= others.settings;
        self.collapse();
    }

    /// Looking at so many one by one is no better than looking at everything.
    fn collapse(&mut self) {
        if self.names.len() + self.addresses.len() > MAX_NAMED_CHANGES {
            *self = HostChanges::all();
        }
    }

    /// How many links and addresses are named.
    pub fn len(&self) -> usize {
        self.names.len() + self.addresses.len()
    }

    /// Whether nothing is named, nor everything.
    pub fn is_empty(&self) -> bool {
        *self == HostChanges::default()
    }

    /// Takes in a notice.
    pub fn add_event(&mut self, event: LinkEvent) {
        if self.all {
            return;
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

    fn affects(&self, record: &WorkloadRecord) -> bool {
        self.names.contains(&*record.interface)
            || record
                .index
                .is_some_and(|index| self.indexes.contains(&index))
            || record.addresses.iter().any(|a| self.addresses.contains(a))
    }
}

impl Core {
    /// Sees to it that this host forwards, if that is the agent's business; says what was changed.
    fn ensure_forwarding(&mut self) -> Result<Vec<String>, NetworkDriverError> {
        if !self.config.manage_forwarding {
            return Ok(Vec::new());
        }
        let switched = self
            .network
            .ensure_forwarding(&self.config.interface_prefix, &self.settings)?;
        for setting in &switched {
            tracing::info!(setting, "changed, so that this host forwards");
        }
        Ok(switched)
    }

    /// Has this host forward, before its first workload opens.
    pub(crate) fn enable_forwarding(&mut self) -> Result<(), NetworkDriverError> {
        if !self.forwarding_enabled {
            self.ensure_forwarding()?;
            self.forwarding_enabled = true;
        }
        Ok(())
    }

    /// Looks at what changed since `seen`, and puts it back.
    pub(crate) fn repair_host(&mut self, changes: &HostChanges, detected_at: Instant) {
        if self.forwarding_enabled && (changes.settings || !changes.uplinks.is_empty()) {
            match self.ensure_forwarding() {
                Ok(switched) if switched.is_empty() || !changes.settings => {}
                Ok(switched) => self.record_repair(&switched, switched.len(), detected_at),
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "switching forwarding on");
                }
            }
        }
        if changes.all || !changes.indexes.is_empty() {
            self.track_closed_interfaces();
        }
        let known: BTreeSet<&str> = self.registry.records().map(|r| &*r.interface).collect();
        // One of ours may be there under a name that is not. One that has just been detached is not
        // there, and all others need not be looked at for its sake.
        let attach = &mut self.network;
        let mut is_unknown_link = |name: &String| {
            !known.contains(&**name)
                && attach
                    .link_index(name)
                    .map_or(true, |index| index.is_some())
        };
        let all = changes.all || changes.workload_like.iter().any(&mut is_unknown_link);
        let affected = self.registry.records();
        let affected: Vec<WorkloadRecord> = affected
            .filter(|record| all || changes.affects(record))
            .cloned()
            .collect();
        if affected.is_empty() || palisade_sys::fault::is_injected("host-side-not-repaired") {
            return;
        }
        let states = match self.network.host_interface_states(&affected) {
            Ok(found) => found,
            Err(error) => {
                return tracing::warn!(error = %error_chain(&error), "looking for our interfaces");
            }
        };
        let mut repairs = Vec::new();
        for (record, state) in affected.iter().zip(states) {
            repairs.extend(self.reconcile_workload(record, state));
        }
        if !repairs.is_empty() {
            self.record_repair(&repairs, repairs.len(), detected_at);
        }
        self.open_pending();
    }

    /// Looks where the interfaces are that are kept closed: one that is gone is let go, whatever has
    /// its name by now, and one under another name is closed there.
    fn track_closed_interfaces(&mut self) {
        let closed_interfaces: Vec<ClosedInterface> =
            self.registry.closed_interfaces().cloned().collect();
        let mut updates = Vec::new();
        for closed in closed_interfaces {
            let now = match self.network.link_name(closed.index) {
                Ok(now) => now,
                Err(error) => {
                    tracing::warn!(interface = %closed.interface, error = %error_chain(&error), "looking for a closed interface");
                    continue;
                }
            };
            if now.as_deref() == Some(&*closed.interface) {
                continue;
            }
            updates.extend(self.registry.forget_closed_interface(&closed.interface));
            match now {
                None => tracing::info!(interface = %closed.interface, "closed, and gone"),
                Some(now) => {
                    tracing::warn!(interface = %closed.interface, now, "renamed, and still closed");
                    let interface = now.as_str().into();
                    updates.push(self.registry.close_interface(ClosedInterface {
                        interface,
                        ..closed
                    }));
                }
            }
        }
        if updates.is_empty() {
            return;
        }
        self.apply(updates);
        if let Err(error) = self.save_records() {
            tracing::warn!(error = %error_chain(&error), "remembering which interfaces stay closed");
        }
    }

    /// Brings one workload to where it should be; says what was put back.
    fn reconcile_workload(
        &mut self,
        record: &WorkloadRecord,
        interface_state: HostInterfaceState,
    ) -> Vec<String> {
        let id = record.id();
        let Some(state) = self.registry.get(&id).map(|workload| workload.state) else {
            return Vec::new();
        };
        let (name, mut repairs) = (&record.interface, Vec::new());
        match interface_state {
            HostInterfaceState::Missing if state != EndpointState::Lost => {
                let reason = match self.network.netns_exists(record) {
                    true => format!("its interface {name} is gone"),
                    false => format!("its network namespace {} is gone", record.netns),
                };
                self.mark_lost(record, reason);
            }
            HostInterfaceState::Missing => {}
            HostInterfaceState::Renamed(now) => match self.network.restore_name(record, &now) {
                Ok(()) => {
                    repairs.push(format!("{name} was called {now}"));
                    repairs.extend(self.reopen(record));
                }
                Err(error) => {
                    let why = error_chain(&error);
                    let reason = format!("its interface {name} is called {now}, and closed: {why}");
                    self.mark_lost(record, reason);
                }
            },
            HostInterfaceState::Changed(what) if state == EndpointState::Ready => {
                if self.reopen(record).is_some() {
                    repairs.extend(what);
                }
            }
            HostInterfaceState::Intact | HostInterfaceState::Changed(_)
                if state == EndpointState::Lost =>
            {
                self.mark_recovered(record)
            }
            HostInterfaceState::Intact | HostInterfaceState::Changed(_) => {}
        }
        repairs
    }

    fn mark_lost(&mut self, record: &WorkloadRecord, reason: String) {
        let id = record.id();
        if let Some(workload) = self.registry.get_mut(&id) {
            tracing::warn!(workload = %id, %reason, "lost");
            workload.state = EndpointState::Lost;
            workload.reason = Some(reason);
        }
        if record.chained {
            self.apply(vec![self.registry.endpoint_update(&id)]);
        }
    }

    /// Takes in a workload again that was lost: its interface is there, maybe made anew.
    fn mark_recovered(&mut self, record: &WorkloadRecord) {
        let id = record.id();
        let index = self.network.link_index(&record.interface);
        if let Some(workload) = self.registry.get_mut(&id) {
            workload.state = EndpointState::Closed;
            if let Ok(Some(index)) = index {
                workload.record.index = Some(index);
            }
        }
        if record.chained {
            self.apply(vec![self.registry.endpoint_update(&id)]);
        }
    }

    /// Opens a workload again that was open; `None` if that failed. One whose policy is not in the
    /// kernel waits for it.
    fn reopen(&mut self, record: &WorkloadRecord) -> Option<String> {
        let id = record.id();
        let workload = self.registry.get_mut(&id)?;
        if workload.state != EndpointState::Ready {
            workload.state = EndpointState::Closed;
            return None;
        }
        match self.network.bring_up(record) {
            Ok(()) => {
                workload.reason = None;
                Some(format!("{} is open again", record.interface))
            }
            Err(error) => {
                tracing::warn!(workload = %id, error = %error_chain(&error), "opening again");
                workload.reason = Some(error_chain(&error));
                workload.state = EndpointState::Closed;
                None
            }
        }
    }

    /// Remembers a repair of what was noticed at `seen`.
    pub(crate) fn record_repair(&mut self, what: &[String], writes: usize, detected_at: Instant) {
        let millis = crate::clock::millis(self.clock.monotonic() - detected_at);
        let mut text = what
            .iter()
            .take(MAX_NAMED_IN_REPAIR)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if what.len() > MAX_NAMED_IN_REPAIR {
            text += &format!(" and {} more", what.len() - MAX_NAMED_IN_REPAIR);
        }
        tracing::warn!(what = %text, writes, millis, "somebody changed what is ours: repaired");
        self.repairs.push_back(RepairReport {
            at: crate::clock::rfc3339(self.clock.wall()),
            what: text,
            writes,
            millis,
        });
        self.repair_count += 1;
        if self.repairs.len() > MAX_REPAIRS {
            self.repairs.pop_front();
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

//! What others do to the host side of workloads: noticed, put back, and told.
//!
//! The kernel's notices say what may have changed; only those workloads are looked at. What is found
//! changed is put back as it was when the workload was opened. An interface under another name is
//! renamed back, since nothing judges it there; where that is refused it is set down. One that is
//! gone is lost until it comes back. An interface that was a workload's and is kept closed is let go
//! when it is gone, and followed under another name. Never: touches an interface that is not a
//! workload's.

use crate::attach::{AttachError, Found, HOST_MAC};
use crate::core::{Core, chain};
use crate::record::{ClosedInterface, Record};
use crate::settings::is_uplink;
use palisade_api::{EndpointState, Repair};
use palisade_sys::link::LinkEvent;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

/// How many repairs status remembers.
const REPAIRS_KEPT: usize = 16;
/// How many links and addresses are named before everything is looked at.
const NAMED_CHANGES: usize = 1_000;
/// Of how many things one repair names each.
const NAMED: usize = 4;

/// What may have changed on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Notices were lost: anything.
    everything: bool,
    /// Links of these names.
    names: BTreeSet<String>,
    /// Their numbers, which stay when they are renamed.
    indexes: BTreeSet<u32>,
    /// Those of them that look like a workload's.
    like_ours: BTreeSet<String>,
    /// Those by which routers may be reached.
    uplinks: BTreeSet<String>,
    /// Routes to these, and neighbours.
    addresses: BTreeSet<IpAddr>,
    /// Settings of the host as a whole.
    settings: bool,
}

impl Changes {
    /// Everything may have changed.
    pub fn everything() -> Self {
        Changes {
            everything: true,
            settings: true,
            ..Changes::default()
        }
    }

    /// Takes in others.
    pub fn merge(&mut self, others: Changes) {
        if self.everything || others.everything {
            *self = Changes::everything();
            return;
        }
        self.names.extend(others.names);
        self.like_ours.extend(others.like_ours);
        self.uplinks.extend(others.uplinks);
        self.addresses.extend(others.addresses);
        self.settings |= others.settings;
        self.bound();
    }

    /// Looking at so many one by one is no better than looking at everything.
    fn bound(&mut self) {
        if self.names.len() + self.addresses.len() > NAMED_CHANGES {
            *self = Changes::everything();
        }
    }

    /// How many links and addresses are named.
    pub fn len(&self) -> usize {
        self.names.len() + self.addresses.len()
    }

    /// Whether nothing is named, nor everything.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Takes in a notice.
    pub fn add(&mut self, event: LinkEvent) {
        if self.everything {
            return;
        }
        match event {
            LinkEvent::Link(link) | LinkEvent::LinkGone(link) => {
                if link.mac == Some(HOST_MAC) {
                    self.like_ours.insert(link.name.clone());
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
            LinkEvent::Settings => self.settings = true,
            LinkEvent::Lost => *self = Changes::everything(),
            LinkEvent::Address { .. } | LinkEvent::AddressGone { .. } => {}
        }
        self.bound();
    }

    fn is_about(&self, record: &Record) -> bool {
        self.names.contains(&*record.interface)
            || record
                .index
                .is_some_and(|index| self.indexes.contains(&index))
            || record.addresses.iter().any(|a| self.addresses.contains(a))
    }
}

impl Core {
    /// Sees to it that this host forwards, if that is the agent's business; says what was changed.
    fn keep_forwarding(&mut self) -> Result<Vec<String>, AttachError> {
        if !self.config.manage_forwarding {
            return Ok(Vec::new());
        }
        let switched = self
            .attach
            .keep_forwarding(&self.config.interface_prefix, &self.settings)?;
        for setting in &switched {
            tracing::info!(setting, "changed, so that this host forwards");
        }
        Ok(switched)
    }

    /// Has this host forward, before its first workload opens.
    pub(crate) fn forward(&mut self) -> Result<(), AttachError> {
        if !self.forwards {
            self.keep_forwarding()?;
            self.forwards = true;
        }
        Ok(())
    }

    /// Looks at what changed since `seen`, and puts it back.
    pub(crate) fn check_host(&mut self, changes: &Changes, seen: Instant) {
        if self.forwards && (changes.settings || !changes.uplinks.is_empty()) {
            match self.keep_forwarding() {
                Ok(switched) if switched.is_empty() || !changes.settings => {}
                Ok(switched) => self.repaired(&switched, switched.len(), seen),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "switching forwarding on");
                }
            }
        }
        if changes.everything || !changes.indexes.is_empty() {
            self.follow_closed();
        }
        let known: BTreeSet<&str> = self.registry.records().map(|r| &*r.interface).collect();
        // One of ours may be there under a name that is not. One that has just been detached is not
        // there, and all others need not be looked at for its sake.
        let attach = &mut self.attach;
        let mut strange = |name: &String| {
            !known.contains(&**name) && attach.index_of(name).map_or(true, |index| index.is_some())
        };
        let all = changes.everything || changes.like_ours.iter().any(&mut strange);
        let concerned = self.registry.records();
        let concerned: Vec<Record> = concerned
            .filter(|record| all || changes.is_about(record))
            .cloned()
            .collect();
        if concerned.is_empty() || palisade_sys::fault::is_on("host-side-not-repaired") {
            return;
        }
        let found = match self.attach.look(&concerned) {
            Ok(found) => found,
            Err(error) => {
                return tracing::warn!(error = %chain(&error), "looking for our interfaces");
            }
        };
        let mut repaired = Vec::new();
        for (record, found) in concerned.iter().zip(found) {
            repaired.extend(self.settle(record, found));
        }
        if !repaired.is_empty() {
            self.repaired(&repaired, repaired.len(), seen);
        }
        self.open_waiting();
    }

    /// Looks where the interfaces are that are kept closed: one that is gone is let go, whatever has
    /// its name by now, and one under another name is closed there.
    fn follow_closed(&mut self) {
        let known: Vec<ClosedInterface> = self.registry.closed().cloned().collect();
        let mut updates = Vec::new();
        for closed in known {
            let now = match self.attach.name_of(closed.index) {
                Ok(now) => now,
                Err(error) => {
                    tracing::warn!(interface = %closed.interface, error = %chain(&error), "looking for a closed interface");
                    continue;
                }
            };
            if now.as_deref() == Some(&*closed.interface) {
                continue;
            }
            updates.extend(self.registry.let_go(&closed.interface));
            match now {
                None => tracing::info!(interface = %closed.interface, "closed, and gone"),
                Some(now) => {
                    tracing::warn!(interface = %closed.interface, now, "renamed, and still closed");
                    let interface = now.as_str().into();
                    updates.push(self.registry.close(ClosedInterface {
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
        if let Err(error) = self.remember() {
            tracing::warn!(error = %chain(&error), "remembering which interfaces stay closed");
        }
    }

    /// Brings one workload to where it should be; says what was put back.
    fn settle(&mut self, record: &Record, found: Found) -> Vec<String> {
        let id = record.id();
        let Some(state) = self.registry.get(&id).map(|workload| workload.state) else {
            return Vec::new();
        };
        let (name, mut told) = (&record.interface, Vec::new());
        match found {
            Found::Gone if state != EndpointState::Lost => {
                let reason = match self.attach.netns_exists(record) {
                    true => format!("its interface {name} is gone"),
                    false => format!("its network namespace {} is gone", record.netns),
                };
                self.lose(record, reason);
            }
            Found::Gone => {}
            Found::Renamed(now) => match self.attach.rename_back(record, &now) {
                Ok(()) => {
                    told.push(format!("{name} was called {now}"));
                    told.extend(self.reopen(record));
                }
                Err(error) => {
                    let why = chain(&error);
                    let reason = format!("its interface {name} is called {now}, and closed: {why}");
                    self.lose(record, reason);
                }
            },
            Found::Changed(what) if state == EndpointState::Ready => {
                if self.reopen(record).is_some() {
                    told.extend(what);
                }
            }
            Found::Whole | Found::Changed(_) if state == EndpointState::Lost => self.find(record),
            Found::Whole | Found::Changed(_) => {}
        }
        told
    }

    fn lose(&mut self, record: &Record, reason: String) {
        let id = record.id();
        if let Some(workload) = self.registry.get_mut(&id) {
            tracing::warn!(workload = %id, %reason, "lost");
            workload.state = EndpointState::Lost;
            workload.reason = Some(reason);
        }
        if record.chained {
            self.apply(vec![self.registry.update(&id)]);
        }
    }

    /// Takes in a workload again that was lost: its interface is there, maybe made anew.
    fn find(&mut self, record: &Record) {
        let id = record.id();
        let index = self.attach.index_of(&record.interface);
        if let Some(workload) = self.registry.get_mut(&id) {
            workload.state = EndpointState::Closed;
            if let Ok(Some(index)) = index {
                workload.record.index = Some(index);
            }
        }
        if record.chained {
            self.apply(vec![self.registry.update(&id)]);
        }
    }

    /// Opens a workload again that was open; `None` if that failed. One whose policy is not in the
    /// kernel waits for it.
    fn reopen(&mut self, record: &Record) -> Option<String> {
        let id = record.id();
        let workload = self.registry.get_mut(&id)?;
        if workload.state != EndpointState::Ready {
            workload.state = EndpointState::Closed;
            return None;
        }
        match self.attach.open(record) {
            Ok(()) => {
                workload.reason = None;
                Some(format!("{} is open again", record.interface))
            }
            Err(error) => {
                tracing::warn!(workload = %id, error = %chain(&error), "opening again");
                workload.reason = Some(chain(&error));
                workload.state = EndpointState::Closed;
                None
            }
        }
    }

    /// Remembers a repair of what was noticed at `seen`.
    pub(crate) fn repaired(&mut self, what: &[String], writes: usize, seen: Instant) {
        let millis = crate::clock::millis(self.clock.monotonic() - seen);
        let mut text = what
            .iter()
            .take(NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if what.len() > NAMED {
            text += &format!(" and {} more", what.len() - NAMED);
        }
        tracing::warn!(what = %text, writes, millis, "somebody changed what is ours: repaired");
        self.repairs.push_back(Repair {
            at: crate::clock::rfc3339(self.clock.wall()),
            what: text,
            writes,
            millis,
        });
        self.repaired += 1;
        if self.repairs.len() > REPAIRS_KEPT {
            self.repairs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_sys::link::{Link, MacAddr, Prefix};

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
        let mut changes = Changes::default();
        changes.add(LinkEvent::Link(link("pal0", Some(HOST_MAC))));
        changes.add(LinkEvent::LinkGone(link("eth0", None)));
        changes.add(LinkEvent::Route {
            destination: Prefix::host(address),
        });
        let wanted = Changes {
            names: ["eth0".to_owned(), "pal0".to_owned()].into(),
            indexes: [1].into(),
            like_ours: ["pal0".to_owned()].into(),
            uplinks: ["eth0".to_owned(), "pal0".to_owned()].into(),
            addresses: [address].into(),
            ..Changes::default()
        };
        assert_eq!(changes, wanted);
        changes.add(LinkEvent::Lost);
        assert_eq!(changes, Changes::everything());
    }
}

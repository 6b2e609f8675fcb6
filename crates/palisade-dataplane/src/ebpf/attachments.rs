//! The interfaces that have the programs of the fast path, and those that cannot have them, with the reason.
//!
//! Never: attaches to an interface where another program already sees packets.

use std::collections::{BTreeMap, BTreeSet};

use palisade_bpf::{FastPathMaps, SlotInterface};
use palisade_model::Str;
use palisade_sys::bpf::AttachPoint;
use palisade_sys::fault;
use palisade_sys::link::{KernelLinks, Link};

use super::error::FastPathError;
use super::hooks::{Hooked, Hooks};
use super::pins::PinFolders;
use crate::fast_path_view::{FastPathCheck, FastPathDifference, FastPathPart};

/// What is behind an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterfaceRole {
    /// A workload.
    Workload,
    /// Other hosts.
    Uplink,
}

/// An interface with both programs.
#[derive(Debug)]
struct Attachment {
    role: InterfaceRole,
    /// Where programs are: their pins or filters keep them, so no descriptor is held.
    points: BTreeSet<AttachPoint>,
    mtu: u32,
}

/// The interfaces that have programs.
#[derive(Debug)]
pub(super) struct Attachments {
    hooks: Hooks,
    /// By index.
    attached: BTreeMap<u32, Attachment>,
    /// Interfaces that cannot have them, by index, with their names and the reasons.
    refused: BTreeMap<u32, (Str, String)>,
    /// The names of the interfaces to other hosts.
    uplinks: BTreeSet<Str>,
}

impl Attachments {
    pub(super) fn new(hooks: Hooks, uplinks: &[Str]) -> Self {
        Attachments {
            hooks,
            uplinks: uplinks.iter().cloned().collect(),
            attached: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// What is behind an interface, by its name.
    pub(super) fn role(&self, name: &str) -> InterfaceRole {
        if self.uplinks.contains(name) {
            InterfaceRole::Uplink
        } else {
            InterfaceRole::Workload
        }
    }

    /// The names of the interfaces to other hosts.
    pub(super) fn uplinks(&self) -> &BTreeSet<Str> {
        &self.uplinks
    }

    /// The interfaces to other hosts that have both programs.
    pub(super) fn armed_uplinks(&self) -> impl Iterator<Item = u32> {
        let armed = self.attached.iter().filter(|(_, attachment)| {
            attachment.role == InterfaceRole::Uplink && attachment.points.len() == 2
        });
        armed.map(|(index, _)| *index)
    }

    /// Looks at an interface that has programs again; whether it changed. If its packets are queued now, the programs are
    /// detached.
    pub(super) fn refresh(
        &mut self,
        links: &mut KernelLinks,
        pins: &PinFolders,
        index: u32,
    ) -> Result<bool, FastPathError> {
        let Some(attachment) = self.attached.get_mut(&index) else {
            return Ok(false);
        };
        let Some(link) = links.link_by_index(index)? else {
            return Ok(false);
        };
        let refusal = match attachment.role {
            InterfaceRole::Workload => queue_refusal(&link),
            InterfaceRole::Uplink => uplink_refusal(&link),
        };
        if refusal.is_some() {
            self.forget(pins, index)?;
            return Ok(true);
        }
        Ok(std::mem::replace(&mut attachment.mtu, link.mtu) != link.mtu)
    }

    /// The interface as programs know it, if it has both of them.
    pub(super) fn armed(&self, index: u32) -> Option<SlotInterface> {
        let attachment = self.attached.get(&index)?;
        (attachment.points.len() == 2).then_some(SlotInterface {
            index,
            mtu: attachment.mtu,
        })
    }

    /// The interfaces that cannot have programs, with the reasons.
    pub(super) fn refused(&self) -> impl Iterator<Item = &(Str, String)> {
        self.refused.values()
    }

    /// Attaches the program that sees what goes to an interface; whether it is up already. `None` if it cannot have
    /// programs.
    pub(super) fn attach_egress(
        &mut self,
        links: &mut KernelLinks,
        pins: &PinFolders,
        maps: &FastPathMaps,
        (name, index): (&Str, u32),
    ) -> Result<Option<bool>, FastPathError> {
        let Some(link) = links.link_by_index(index)? else {
            return Ok(None);
        };
        self.refused.remove(&index);
        let role = self.role(name);
        let refusal = match role {
            InterfaceRole::Workload => self.refusal(links, &link)?,
            InterfaceRole::Uplink => uplink_refusal(&link),
        };
        if let Some(reason) = refusal {
            self.refused.insert(index, (name.clone(), reason));
            return Ok(None);
        }
        let attachment = Attachment {
            role,
            points: BTreeSet::new(),
            mtu: link.mtu,
        };
        self.attached.insert(index, attachment);
        self.attach(links, pins, maps, (index, AttachPoint::Egress))?;
        Ok(Some(link.is_up()))
    }

    /// Attaches the program that sees what comes from an interface.
    pub(super) fn attach_ingress(
        &mut self,
        links: &mut KernelLinks,
        pins: &PinFolders,
        maps: &FastPathMaps,
        index: u32,
    ) -> Result<(), FastPathError> {
        self.attach(links, pins, maps, (index, AttachPoint::Ingress))
    }

    /// Leaves an interface whose programs cannot be attached to nftables, until it is tried again.
    pub(super) fn refuse(
        &mut self,
        pins: &PinFolders,
        (name, index): (&Str, u32),
        error: &FastPathError,
    ) {
        self.attached.remove(&index);
        // A program that stays passes all packets, since no slot is armed.
        let _ = pins.remove_links(index);
        let reason = format!("its programs cannot be attached: {error}");
        self.refused.insert(index, (name.clone(), reason));
    }

    fn attach(
        &mut self,
        links: &mut KernelLinks,
        pins: &PinFolders,
        maps: &FastPathMaps,
        (index, point): (u32, AttachPoint),
    ) -> Result<(), FastPathError> {
        let Some(attachment) = self.attached.get(&index) else {
            return Ok(());
        };
        let pin = pins.link(index, point);
        let program = program(maps, attachment.role, point)?;
        let is_attached = self.hooks.attach(links, &pin, program, (index, point))?;
        if !is_attached {
            // It is gone: nothing comes from it any more.
            self.attached.remove(&index);
        } else if let Some(attachment) = self.attached.get_mut(&index) {
            attachment.points.insert(point);
        }
        Ok(())
    }

    /// Puts new programs in place of those of an earlier agent, for each interface at once. Pins of interfaces that are
    /// gone, or that have only one program, are removed.
    pub(super) fn take_over(
        &mut self,
        links: &mut KernelLinks,
        pins: &PinFolders,
        maps: &FastPathMaps,
    ) -> Result<(), FastPathError> {
        for index in pins.linked_interfaces()? {
            let replaced = self.replace(links, pins, maps, index)?;
            if !replaced {
                self.attached.remove(&index);
                pins.remove_links(index)?;
            }
        }
        Ok(())
    }

    fn replace(
        &mut self,
        links: &mut KernelLinks,
        pins: &PinFolders,
        maps: &FastPathMaps,
        index: u32,
    ) -> Result<bool, FastPathError> {
        let Some(found) = links.link_by_index(index)? else {
            return Ok(false);
        };
        let mut attachment = Attachment {
            role: self.role(&found.name),
            points: BTreeSet::new(),
            mtu: found.mtu,
        };
        for point in [AttachPoint::Egress, AttachPoint::Ingress] {
            let pin = pins.link(index, point);
            let program = program(maps, attachment.role, point)?;
            if !self.hooks.replace(links, &pin, program, (index, point))? {
                return Ok(false);
            }
            attachment.points.insert(point);
            fault::reach("start-link-replaced");
        }
        self.attached.insert(index, attachment);
        Ok(true)
    }

    /// An interface is gone, and its links with it.
    pub(super) fn forget(&mut self, pins: &PinFolders, index: u32) -> Result<(), FastPathError> {
        self.refused.remove(&index);
        if self.attached.remove(&index).is_some() {
            pins.remove_links(index)?;
        }
        Ok(())
    }

    /// The interfaces whose programs another program has detached.
    pub(super) fn detached(
        &self,
        links: &mut KernelLinks,
        maps: &FastPathMaps,
    ) -> Result<Vec<u32>, FastPathError> {
        let attachment = self.hooks.attachment();
        let mut detached = Vec::new();
        for (index, attached) in &self.attached {
            for point in [AttachPoint::Egress, AttachPoint::Ingress] {
                let expected = Some(program(maps, attached.role, point)?.id()?);
                let found = self.hooks.list(links, (*index, point));
                let is_there = found.is_ok_and(|found| {
                    let mut programs = found.iter().map(|hooked| hooked.program(attachment));
                    programs.any(|program| program == expected)
                });
                if !is_there && !detached.contains(index) {
                    detached.push(*index);
                }
            }
        }
        Ok(detached)
    }

    /// Why an interface cannot have programs, if it was refused.
    pub(super) fn refusal_of(&self, index: u32) -> Option<&str> {
        self.refused.get(&index).map(|(_, reason)| reason.as_str())
    }

    /// Compares the programs at each interface, and the pins of their links, with those that should be there.
    pub(super) fn compare(
        &self,
        pins: &PinFolders,
        maps: &FastPathMaps,
        name: impl Fn(u32) -> String,
        check: &mut FastPathCheck,
    ) -> Result<(), FastPathError> {
        let mut differ = |part, object, [expected, found]: [String; 2]| {
            check.differences.push(FastPathDifference {
                part,
                object,
                address: None,
                expected,
                found,
            });
        };
        let mut links = self.hooks.open_links()?;
        for (index, attachment) in &self.attached {
            check.interfaces += 1;
            for point in AttachPoint::ALL {
                let expected = program(maps, attachment.role, point)?;
                let wanted = format!("program {} ({})", expected.id()?, expected.name());
                let object = format!("{}, {point}", name(*index));
                let found = match self.hooks.list(&mut links, (*index, point)) {
                    Ok(found) => found,
                    Err(error) => {
                        differ(FastPathPart::Program, object, [wanted, error.to_string()]);
                        continue;
                    }
                };
                // Beside others only at an interface to other hosts.
                let is_right = match attachment.role {
                    InterfaceRole::Workload => self.is_alone(&found, expected.id()?),
                    InterfaceRole::Uplink => self.is_among(&found, expected.id()?),
                };
                if !is_right {
                    differ(FastPathPart::Program, object, [wanted, text_of(&found)]);
                }
                check.pins += 1;
                let path = pins.link(*index, point);
                if let Some(problem) = self.hooks.pin_problem(&path, &found) {
                    let wanted = format!("the link of {}, {point}", name(*index));
                    let values = [wanted, problem];
                    differ(FastPathPart::Link, path.display().to_string(), values);
                }
            }
        }
        for index in pins.linked_interfaces()? {
            if !self.attached.contains_key(&index) {
                let path = pins.link(index, AttachPoint::Ingress);
                let values = ["nothing", "the link of an interface without programs"];
                let values = values.map(str::to_owned);
                differ(FastPathPart::Pin, path.display().to_string(), values);
            }
        }
        Ok(())
    }

    /// Whether this program of ours sees packets, and nothing else does.
    fn is_alone(&self, found: &[Hooked], program: u32) -> bool {
        match found {
            [hooked] => hooked.program(self.hooks.attachment()) == Some(program),
            _ => false,
        }
    }

    /// Whether this program of ours sees packets, beside others or not.
    fn is_among(&self, found: &[Hooked], program: u32) -> bool {
        let mut programs = found
            .iter()
            .map(|hooked| hooked.program(self.hooks.attachment()));
        programs.any(|known| known == Some(program))
    }

    /// Why an interface cannot have programs; `None` if it can.
    fn refusal(
        &self,
        links: &mut KernelLinks,
        link: &Link,
    ) -> Result<Option<String>, FastPathError> {
        if link.kind.as_deref() != Some("veth") || link.peer_netnsid.is_none() {
            return Ok(Some(
                "it is no veth pair into another network namespace".to_owned(),
            ));
        }
        if link.master.is_some() {
            return Ok(Some("it is a port of another interface".to_owned()));
        }
        if let Some(reason) = queue_refusal(link) {
            return Ok(Some(reason));
        }
        self.hooks.refusal(links, link.index)
    }
}

/// Why an interface to other hosts cannot have programs; `None` if it can. Programs of others see its packets as well:
/// those that came first, before ours.
fn uplink_refusal(link: &Link) -> Option<String> {
    if link.mac.is_none() || link.is_loopback() {
        return Some("it is no Ethernet interface".to_owned());
    }
    let is_port = link.master.is_some();
    is_port.then(|| "it is a port of another interface, which is to be named instead".to_owned())
}

/// What is attached, for people.
fn text_of(found: &[Hooked]) -> String {
    if found.is_empty() {
        return "nothing".to_owned();
    }
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// Why the queueing discipline of an interface forbids programs: packets would not be queued.
fn queue_refusal(link: &Link) -> Option<String> {
    // One that is down has `noop`.
    let qdisc = link.qdisc.as_ref();
    let qdisc = qdisc.filter(|qdisc| !["noqueue", "noop"].contains(&qdisc.as_str()))?;
    Some(format!(
        "its packets are queued by {qdisc}, which the fast path would pass by"
    ))
}

fn program(
    maps: &FastPathMaps,
    role: InterfaceRole,
    point: AttachPoint,
) -> Result<&palisade_sys::bpf::BpfProgram, FastPathError> {
    let name = match (role, point) {
        (InterfaceRole::Workload, AttachPoint::Ingress) => "from_pod",
        (InterfaceRole::Workload, AttachPoint::Egress) => "to_pod",
        (InterfaceRole::Uplink, AttachPoint::Ingress) => "from_net",
        (InterfaceRole::Uplink, AttachPoint::Egress) => "to_net",
    };
    maps.loaded()
        .program(name)
        .ok_or(FastPathError::Missing(name))
}

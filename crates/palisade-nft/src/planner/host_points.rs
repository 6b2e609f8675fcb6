//! How the kernel content of host points is planned: numbers of interfaces, points, and the chains that exist only with them.
//!
//! Promises: the kernel has the longest prefix resolved, ranges for what holds several addresses and single addresses
//! apart; the chains of a stage are there exactly while there are points of that stage.

use super::{Planner, mark_element};
use crate::edit_batch::EditBatch;
use crate::host_chains;
use crate::names::{self, ANY_INTERFACE};
use crate::{Element, ElementKey};
use alloc::collections::BTreeMap;
use palisade_layout::PrefixRanges;
use palisade_model::{Direction, Family, PolicyStage, Str, address_from_number};
use palisade_tables::{Point, PointInterface, PolicySetId, TableChange};

/// The points of host interfaces, as far as the kernel has them in another form.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostPointPlan {
    /// The networks of the local addresses of each interface, stage and direction, by family.
    networks: BTreeMap<(PointInterface, PolicyStage, Direction, Family), PrefixRanges<u32>>,
    /// The number of points of each interface and stage.
    counts: BTreeMap<(PointInterface, PolicyStage), usize>,
}

impl HostPointPlan {
    /// Whether there are points of a stage.
    fn has_stage(&self, stage: PolicyStage) -> bool {
        self.counts.keys().any(|(_, judged)| *judged == stage)
    }
}

/// Whose an interface is.
#[derive(Clone, Copy)]
struct InterfaceKind {
    /// Whether it is a workload's.
    is_managed: bool,
    /// Whether it is one of the host with points of its own.
    is_host: bool,
}

/// Plans the changes of points of host interfaces for a planner.
pub(super) struct HostPointPlanner<'a>(pub(super) &'a mut Planner);

impl HostPointPlanner<'_> {
    /// Whose an interface is now.
    fn kind(&self, name: &Str) -> InterfaceKind {
        let tables = &self.0.tables;
        InterfaceKind {
            is_managed: tables.interfaces.contains(name),
            is_host: tables.host_interfaces.contains(name),
        }
    }

    /// The number of an interface; a named interface gets one if it has none.
    fn interface_number(&mut self, interface: &PointInterface) -> u32 {
        let PointInterface::Host(name) = interface else {
            return ANY_INTERFACE;
        };
        self.0.numbers.objects.interfaces.get_or_allocate(name)
    }

    /// The element of an interface in the map of a stage: its number, or 0 where it is not judged at the stage although
    /// others are.
    fn interface_element(
        &mut self,
        name: &Str,
        stage: PolicyStage,
        InterfaceKind {
            is_managed,
            is_host,
        }: InterfaceKind,
    ) -> Option<Element> {
        let is_prefixed = name.starts_with(&*self.0.config.interface_prefix);
        if is_managed {
            return (!is_prefixed).then(|| mark_element(0));
        }
        let interface = PointInterface::Host(name.clone());
        let counts = &self.0.host_points.counts;
        let is_judged = counts.contains_key(&(interface.clone(), stage));
        is_host.then(|| {
            mark_element(if is_judged {
                self.interface_number(&interface)
            } else {
                0
            })
        })
    }

    fn edit_interface(
        &mut self,
        name: &Str,
        before: [Option<Element>; 4],
        batch: &mut EditBatch,
        kind: InterfaceKind,
    ) {
        for (stage, before) in PolicyStage::ALL.into_iter().zip(before) {
            let after = self.interface_element(name, stage, kind);
            let key = ElementKey::Exact(names::interface_name(name));
            batch.edit(names::interface_map(stage), key, before, after);
        }
    }

    /// Plans the elements of an interface that a change makes a workload's or one with points of its own, or no more.
    pub(super) fn change_interface(&mut self, change: &TableChange, batch: &mut EditBatch) {
        let (TableChange::Interface(name, _) | TableChange::HostInterface(name, _)) = change else {
            return;
        };
        let before = self.kind(name);
        let after = match change {
            TableChange::Interface(_, is_managed) => InterfaceKind {
                is_managed: *is_managed,
                ..before
            },
            TableChange::HostInterface(_, is_host) => InterfaceKind {
                is_host: *is_host,
                ..before
            },
            _ => before,
        };
        if **name == *palisade_tables::LOOPBACK {
            return;
        }
        let elements = PolicyStage::ALL.map(|stage| self.interface_element(name, stage, before));
        self.edit_interface(name, elements, batch, after);
        self.release_interface(name, after.is_host);
    }

    /// Releases the number of an interface that has no points any more.
    fn release_interface(&mut self, name: &Str, is_host: bool) {
        let interface = PointInterface::Host(name.clone());
        let counts = &self.0.host_points.counts;
        let is_used =
            PolicyStage::ALL.map(|stage| counts.contains_key(&(interface.clone(), stage)));
        if !is_host && !is_used.contains(&true) {
            self.0.numbers.objects.interfaces.release(name);
        }
    }

    /// Plans a point of a host interface.
    pub(super) fn change_host_point(
        &mut self,
        point: &Point,
        set: Option<PolicySetId>,
        batch: &mut EditBatch,
    ) {
        let before = self.0.tables.points.get(point).copied();
        let interface = self.interface_number(&point.interface);
        self.count_host_point(point, before.is_some(), set.is_some(), batch);
        let family = point.local.family();
        let before = before.map(|set| self.0.numbers.objects.sets.get_or_allocate(set));
        let after = set.map(|set| self.0.numbers.objects.sets.get_or_allocate(set));
        if point.local.is_host() {
            let local = names::address_bytes(point.local.address());
            let key = names::point_key(point.stage, point.direction, interface, &local);
            let map = names::host_point_map(family);
            let element = |set: Option<u32>| set.map(mark_element);
            batch.edit(map, ElementKey::Exact(key), element(before), element(after));
            return;
        }
        let key = (
            point.interface.clone(),
            point.stage,
            point.direction,
            family,
        );
        let networks = self.0.host_points.networks.entry(key.clone()).or_default();
        let map = names::host_point_range_map(family);
        networks.change(point.local, after, |(first, last, set), is_added| {
            let end = |number| {
                let local = names::address_bytes(address_from_number(family, number));
                names::point_key(point.stage, point.direction, interface, &local)
            };
            let key = ElementKey::Range(end(first), end(last));
            let element = Some(mark_element(set));
            if is_added {
                batch.edit(map, key, None, element);
            } else {
                batch.edit(map, key, element, None);
            }
        });
        if networks.is_empty() {
            self.0.host_points.networks.remove(&key);
        }
    }

    /// Counts a point; with the first and the last one of an interface the interface is looked up, or no more, and with the
    /// first and the last of a stage its chains come and go.
    fn count_host_point(
        &mut self,
        point: &Point,
        was_there: bool,
        is_there: bool,
        batch: &mut EditBatch,
    ) {
        if was_there == is_there {
            return;
        }
        let key = (point.interface.clone(), point.stage);
        let had_any = self.0.host_points.has_stage(point.stage);
        let name = match &point.interface {
            PointInterface::Host(name) => Some(name.clone()),
            PointInterface::Workload(_) | PointInterface::Hairpin(_) | PointInterface::AnyHost => {
                None
            }
        };
        let kind = name.as_ref().map(|name| self.kind(name));
        let before = name.as_ref().zip(kind).map(|(name, kind)| {
            PolicyStage::ALL.map(|stage| self.interface_element(name, stage, kind))
        });
        let count = self.0.host_points.counts.entry(key.clone()).or_default();
        *count = if is_there {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        let points = *count;
        if points == 0 {
            self.0.host_points.counts.remove(&key);
        }
        match (name.zip(kind), before) {
            (Some((name, kind)), Some(before)) => {
                self.edit_interface(&name, before, batch, kind);
                self.release_interface(&name, kind.is_host);
            }
            _ => {
                let any = || Some(mark_element(ANY_INTERFACE));
                let map = names::interface_map(point.stage);
                match (is_there, points) {
                    (true, 1) => batch.edit(map, ElementKey::CatchAll, None, any()),
                    (false, 0) => batch.edit(map, ElementKey::CatchAll, any(), None),
                    _ => {}
                }
            }
        }
        let has_any = self.0.host_points.has_stage(point.stage);
        if has_any != had_any {
            let chains = host_chains::chains(&self.0.config, point.stage);
            if has_any {
                batch.add_chains(chains);
            } else {
                batch.delete_chains(chains);
            }
        }
    }
}

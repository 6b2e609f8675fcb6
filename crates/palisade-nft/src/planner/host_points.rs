//! How the kernel content of host points is planned: places, points, and the chains that exist only with them.
//!
//! Promises: the kernel has the longest prefix resolved, ranges for what holds several addresses and single addresses
//! apart; the chains of a pass are there exactly while there are points of that pass.

use super::{Planner, mark_element};
use crate::address_ranges::AddressRanges;
use crate::edit_batch::EditBatch;
use crate::host_chains;
use crate::names::{self, ANY_PLACE};
use crate::{Element, ElementKey};
use alloc::collections::BTreeMap;
use palisade_model::{Direction, Family, Pass, Prefix, Str, address_from_number};
use palisade_tables::{Point, PointInterface, PolicySetId, TableChange};

/// The networks of the own addresses of one place, pass and direction, in one family.
type OwnNetworks = (BTreeMap<Prefix, u32>, AddressRanges<u32>);

/// The points of host interfaces, as far as the kernel has them in another form.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostPointPlan {
    networks: BTreeMap<(PointInterface, Pass, Direction, Family), OwnNetworks>,
    /// The number of points of each place and pass.
    counts: BTreeMap<(PointInterface, Pass), usize>,
}

impl HostPointPlan {
    /// Whether there are points of a pass.
    fn has_pass(&self, pass: Pass) -> bool {
        self.counts.keys().any(|(_, of)| *of == pass)
    }
}

/// Plans the changes of points of host interfaces for a planner.
pub(super) struct HostPointPlanner<'a>(pub(super) &'a mut Planner);

impl HostPointPlanner<'_> {
    /// The number of a place; a named interface gets one if it has none.
    fn place_number(&mut self, place: &PointInterface) -> u32 {
        let PointInterface::Host(name) = place else {
            return ANY_PLACE;
        };
        let places = &mut self.0.numbers.places;
        if let Some(number) = places.get(name) {
            return *number;
        }
        let used: alloc::collections::BTreeSet<u32> = places.values().copied().collect();
        let mut free = ANY_PLACE + 1;
        while used.contains(&free) {
            free += 1;
        }
        places.insert(name.clone(), free);
        free
    }

    /// The element of an interface in the map of places of a pass: its place, or 0 where it is not judged at the pass
    /// although others are.
    fn place_element(
        &mut self,
        name: &Str,
        pass: Pass,
        (is_managed, is_host): (bool, bool),
    ) -> Option<Element> {
        let is_prefixed = name.starts_with(&*self.0.config.interface_prefix);
        if is_managed {
            return (!is_prefixed).then(|| mark_element(0));
        }
        let place = PointInterface::Host(name.clone());
        let counts = &self.0.host_points.counts;
        let is_judged = counts.contains_key(&(place.clone(), pass));
        is_host.then(|| {
            mark_element(if is_judged {
                self.place_number(&place)
            } else {
                0
            })
        })
    }

    fn edit_place(
        &mut self,
        name: &Str,
        before: [Option<Element>; 4],
        batch: &mut EditBatch,
        is: (bool, bool),
    ) {
        for (pass, before) in Pass::ALL.into_iter().zip(before) {
            let after = self.place_element(name, pass, is);
            let key = ElementKey::Exact(names::interface_name(name));
            batch.edit(names::place_map(pass), key, before, after);
        }
    }

    /// Plans the places of an interface that a change makes a workload's or one with points of its own, or no more.
    pub(super) fn change_place(&mut self, change: &TableChange, batch: &mut EditBatch) {
        let (TableChange::Interface(name, _) | TableChange::HostInterface(name, _)) = change else {
            return;
        };
        let was = (
            self.0.tables.interfaces.contains(name),
            self.0.tables.host_interfaces.contains(name),
        );
        let is = match change {
            TableChange::Interface(_, is_managed) => (*is_managed, was.1),
            TableChange::HostInterface(_, is_host) => (was.0, *is_host),
            _ => was,
        };
        if **name == *palisade_tables::LOOPBACK {
            return;
        }
        let before = Pass::ALL.map(|pass| self.place_element(name, pass, was));
        self.edit_place(name, before, batch, is);
        self.release_place(name, is.1);
    }

    /// Releases the number of an interface that has no points any more.
    fn release_place(&mut self, name: &Str, is_host: bool) {
        let place = PointInterface::Host(name.clone());
        let counts = &self.0.host_points.counts;
        let is_used = Pass::ALL.map(|pass| counts.contains_key(&(place.clone(), pass)));
        if !is_host && !is_used.contains(&true) {
            self.0.numbers.places.remove(name);
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
        let place = self.place_number(&point.place);
        self.count_host_point(point, before.is_some(), set.is_some(), batch);
        let family = point.own.family();
        let before = before.map(|set| self.0.numbers.sets.get_or_allocate(set));
        let after = set.map(|set| self.0.numbers.sets.get_or_allocate(set));
        if point.own.is_host() {
            let own = names::address_bytes(point.own.address());
            let key = names::point_key(point.pass, point.direction, place, &own);
            let map = names::host_point_map(family);
            let element = |set: Option<u32>| set.map(mark_element);
            batch.edit(map, ElementKey::Exact(key), element(before), element(after));
            return;
        }
        let key = (point.place.clone(), point.pass, point.direction, family);
        let (networks, ranges) = self.0.host_points.networks.entry(key.clone()).or_default();
        match after {
            Some(set) => drop(networks.insert(point.own, set)),
            None => drop(networks.remove(&point.own)),
        }
        let map = names::host_point_range_map(family);
        ranges.recompute(networks, point.own, |(first, last, set), is_added| {
            let end = |number| {
                let own = names::address_bytes(address_from_number(family, number));
                names::point_key(point.pass, point.direction, place, &own)
            };
            let key = ElementKey::Range(end(first), end(last));
            let element = Some(mark_element(set));
            match is_added {
                true => batch.edit(map, key, None, element),
                false => batch.edit(map, key, element, None),
            }
        });
        if networks.is_empty() {
            self.0.host_points.networks.remove(&key);
        }
    }

    /// Counts a point; with the first and the last one of a place the interface is looked up, or no more, and with the
    /// first and the last of a pass its chains come and go.
    fn count_host_point(&mut self, point: &Point, was: bool, is: bool, batch: &mut EditBatch) {
        if was == is {
            return;
        }
        let key = (point.place.clone(), point.pass);
        let had_any = self.0.host_points.has_pass(point.pass);
        let name = match &point.place {
            PointInterface::Host(name) => Some(name.clone()),
            PointInterface::Workload(_) | PointInterface::Hairpin(_) | PointInterface::AnyHost => {
                None
            }
        };
        let flags = name.as_ref().map(|name| {
            (
                self.0.tables.interfaces.contains(name),
                self.0.tables.host_interfaces.contains(name),
            )
        });
        let before = name
            .as_ref()
            .zip(flags)
            .map(|(name, flags)| Pass::ALL.map(|pass| self.place_element(name, pass, flags)));
        let count = self.0.host_points.counts.entry(key.clone()).or_default();
        *count = match is {
            true => *count + 1,
            false => count.saturating_sub(1),
        };
        let now = *count;
        if now == 0 {
            self.0.host_points.counts.remove(&key);
        }
        match (name.zip(flags), before) {
            (Some((name, flags)), Some(before)) => {
                self.edit_place(&name, before, batch, flags);
                self.release_place(&name, flags.1);
            }
            _ => {
                let any = || Some(mark_element(ANY_PLACE));
                let map = names::place_map(point.pass);
                match (is, now) {
                    (true, 1) => batch.edit(map, ElementKey::CatchAll, None, any()),
                    (false, 0) => batch.edit(map, ElementKey::CatchAll, any(), None),
                    _ => {}
                }
            }
        }
        let has_any = self.0.host_points.has_pass(point.pass);
        if has_any != had_any {
            let chains = host_chains::chains(&self.0.config, point.pass);
            match has_any {
                true => batch.add_chains(chains),
                false => batch.delete_chains(chains),
            }
        }
    }
}

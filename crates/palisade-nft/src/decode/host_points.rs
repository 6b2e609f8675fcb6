//! Points of host interfaces in the kernel, read back.
//!
//! Promises: what is read is what [`crate::Planner`] writes for the same points in their canonical form: networks that
//! do not overlap, the fewest that hold the same addresses. Never: accepts a number that no interface has, or points of
//! every other interface where none leads to them.

use super::TableDecoder;
use super::elements::{SetContent, element_number, parse_address, parse_interface, read_mark};
use crate::names::{self, ANY_INTERFACE};
use crate::{Config, Element, ElementKey, Ruleset};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use palisade_layout::AddressRanges;
use palisade_model::{Direction, Family, NumberRange, PolicyStage, Prefix, Str, address_to_number};
use palisade_tables::{Point, PointInterface, PolicySetId, Tables};

/// An element of a map of points of host interfaces.
pub(super) struct HostPointElement {
    stage: PolicyStage,
    direction: Direction,
    /// The number of the interface.
    interface: u32,
    local: LocalNetwork,
    set: PolicySetId,
}

enum LocalNetwork {
    Address(Prefix),
    Range(Family, u128, u128),
}

impl LocalNetwork {
    fn prefixes(&self) -> Vec<Prefix> {
        match *self {
            LocalNetwork::Address(address) => [address].into(),
            LocalNetwork::Range(family, first, last) => {
                let range = NumberRange { first, last };
                range.prefixes(family).collect()
            }
        }
    }
}

impl HostPointElement {
    /// Decodes an element; `None` if it is of no form that is written to its map.
    pub(super) fn decode(content: SetContent, key: &ElementKey, element: &Element) -> Option<Self> {
        let set = PolicySetId(element_number(element)?);
        let address = |bytes: &[u8]| parse_address(bytes.get(8..)?);
        let (bytes, local) = match (content, key) {
            (SetContent::HostPoint, ElementKey::Exact(bytes)) => {
                let local = LocalNetwork::Address(Prefix::host(address(bytes)?));
                (bytes, local)
            }
            (SetContent::HostPointRange(family), ElementKey::Range(first, last)) => {
                (first.get(..8)? == last.get(..8)?).then_some(())?;
                let number = |bytes| address(bytes).map(address_to_number);
                let local = LocalNetwork::Range(family, number(first)?, number(last)?);
                (first, local)
            }
            _ => return None,
        };
        (bytes.get(1..4)? == [0; 3]).then_some(())?;
        let (stage, direction) = names::parse_point_code(*bytes.first()?)?;
        Some(HostPointElement {
            stage,
            direction,
            interface: read_mark(bytes, 4)?,
            local,
            set,
        })
    }
}

impl TableDecoder {
    /// Decodes an element of the map of interfaces of a stage.
    pub(super) fn decode_interface_number(
        &mut self,
        stage: PolicyStage,
        key: &ElementKey,
        number: u32,
    ) -> Option<()> {
        match key {
            ElementKey::CatchAll => {
                (number == ANY_INTERFACE).then_some(())?;
                self.any_interface.insert(stage);
                Some(())
            }
            ElementKey::Exact(bytes) => {
                (number != ANY_INTERFACE).then_some(())?;
                self.interface_numbers
                    .insert((parse_interface(bytes)?, stage), number);
                Some(())
            }
            ElementKey::Range(..) => None,
        }
    }

    /// The points of host interfaces, with the interfaces that have some of their own.
    pub(super) fn decode_host_points(&mut self, config: &Config) -> Option<()> {
        let tables = &mut self.observed.layout.tables;
        let mut names: BTreeMap<u32, Str> = BTreeMap::new();
        for ((name, stage), number) in &self.interface_numbers {
            // An interface is in the maps of all stages.
            let others = PolicyStage::ALL.into_iter().filter(|other| other != stage);
            let others =
                others.map(|other| self.interface_numbers.get(&(name.clone(), other)).copied());
            let others: Vec<u32> = others.collect::<Option<_>>()?;
            if tables.interfaces.contains(name) {
                (*number == 0 && !name.starts_with(&*config.interface_prefix)).then_some(())?;
                continue;
            }
            let is_same = |other: &u32| *number == 0 || *other == 0 || number == other;
            others.iter().all(is_same).then_some(())?;
            tables.host_interfaces.insert(name.clone());
            if *number != 0 {
                let previous = names.insert(*number, name.clone());
                previous
                    .is_none_or(|previous| previous == *name)
                    .then_some(())?;
                self.observed
                    .interface_numbers
                    .insert(name.clone(), *number);
            }
        }
        let unprefixed = |name: &&Str| !name.starts_with(&*config.interface_prefix);
        let mut managed = tables.interfaces.iter().filter(unprefixed);
        let is_listed = |name: &Str| {
            let mut stages = PolicyStage::ALL.into_iter();
            stages.all(|stage| self.interface_numbers.contains_key(&(name.clone(), stage)))
        };
        managed.all(is_listed).then_some(())?;
        let mut judged: BTreeSet<(u32, PolicyStage)> = BTreeSet::new();
        for element in &self.host_points {
            let interface = match element.interface {
                ANY_INTERFACE => PointInterface::AnyHost,
                number => {
                    // What an interface that lost its points leaves behind until they are deleted. No interface can
                    // have such a name, and no packet reaches them.
                    let unnamed = || Str::from(format!("/{number}"));
                    let name = names.entry(number).or_insert_with(unnamed).clone();
                    self.observed.interface_numbers.insert(name.clone(), number);
                    PointInterface::Host(name)
                }
            };
            judged.insert((element.interface, element.stage));
            let point = |local| Point {
                interface: interface.clone(),
                stage: element.stage,
                direction: element.direction,
                local,
            };
            for local in element.local.prefixes() {
                tables.points.insert(point(local), element.set);
            }
        }
        let named = self
            .interface_numbers
            .iter()
            .filter(|(_, number)| **number != 0);
        let mut named = named.map(|((_, stage), number)| (*number, *stage));
        named.all(|key| judged.contains(&key)).then_some(())?;
        let any = |stage: &PolicyStage| judged.contains(&(ANY_INTERFACE, *stage));
        let is_found = |stage: &PolicyStage| self.any_interface.contains(stage) == any(stage);
        PolicyStage::ALL.iter().all(is_found).then_some(())?;
        let judged_at: BTreeSet<PolicyStage> = judged.iter().map(|(_, stage)| *stage).collect();
        judged_at.iter().eq(&self.host_stages).then_some(())
    }
}

/// The points of host interfaces in a table, but for those of a number that no interface has.
pub(crate) fn installed_host_points(ruleset: &Ruleset) -> Vec<Point> {
    let elements = |set: &str| {
        let set = ruleset.sets.get(set).into_iter();
        set.flat_map(|set| &set.elements)
    };
    let mut interfaces = BTreeMap::from([(ANY_INTERFACE, PointInterface::AnyHost)]);
    for stage in PolicyStage::ALL {
        for (key, element) in elements(names::interface_map(stage)) {
            if let (ElementKey::Exact(name), Some(number)) = (key, element_number(element))
                && let Some(name) = parse_interface(name)
            {
                interfaces.insert(number, PointInterface::Host(name));
            }
        }
    }
    interfaces.remove(&0);
    let mut points = Vec::new();
    for family in Family::BOTH {
        let maps = [
            (names::host_point_map(family), SetContent::HostPoint),
            (
                names::host_point_range_map(family),
                SetContent::HostPointRange(family),
            ),
        ];
        for (map, content) in maps {
            for (key, element) in elements(map) {
                let Some(element) = HostPointElement::decode(content, key, element) else {
                    continue;
                };
                let Some(interface) = interfaces.get(&element.interface) else {
                    continue;
                };
                points.extend(element.local.prefixes().into_iter().map(|local| Point {
                    interface: interface.clone(),
                    stage: element.stage,
                    direction: element.direction,
                    local,
                }));
            }
        }
    }
    points
}

/// The tables with the points of host interfaces in their canonical form; `None` if they have it.
pub(crate) fn canonical_host_points(tables: &Tables) -> Option<Tables> {
    let mut networks: BTreeMap<
        (PointInterface, PolicyStage, Direction, Family),
        BTreeMap<Prefix, u32>,
    > = BTreeMap::new();
    // Interfaces of the host come after those of workloads.
    let first = Point {
        interface: PointInterface::Host(Str::default()),
        ..Point::of_workload(
            Str::default(),
            Ipv4Addr::UNSPECIFIED.into(),
            Direction::BOTH[0],
        )
    };
    let is_network = |(point, _): &(&Point, &PolicySetId)| !point.local.is_host();
    for (point, set) in tables.points.range(first..).filter(is_network) {
        let family = point.local.family();
        let key = (
            point.interface.clone(),
            point.stage,
            point.direction,
            family,
        );
        // The default value of a range is 0.
        networks
            .entry(key)
            .or_default()
            .insert(point.local, set.0 + 1);
    }
    if networks.values().all(|networks| networks.len() == 1) {
        return None;
    }
    let mut canonical = tables.clone();
    canonical
        .points
        .retain(|point, _| point.workload().is_some() || point.local.is_host());
    for ((interface, stage, direction, family), networks) in networks {
        let mut ranges = AddressRanges::default();
        ranges.recompute(&networks, Prefix::all(family), |_, _| {});
        for (first, last, set) in ranges.ranges() {
            for local in (NumberRange { first, last }).prefixes(family) {
                let point = Point {
                    interface: interface.clone(),
                    stage,
                    direction,
                    local,
                };
                canonical.points.insert(point, PolicySetId(set - 1));
            }
        }
    }
    Some(canonical)
}

//! The elements of each set and map, by the set's name.
//!
//! Promises: an element of a set that is not listed, or of a form that is not written there, is refused.

use super::{DecodeError, HostPointElement, TableDecoder};
use crate::names::{
    self, CLASS_BASE, CODE_VERDICT, COUNTED, DROP_VERDICT, IDENTITY_CLASS, IF_HAIRPIN, IF_OURS,
    PENDING_REVOCATION, REDIRECT, REDIRECT_PORTS, SET_CLASS, number_from_bytes,
};
use crate::source_ports::SourcePortChain;
use crate::{Element, ElementKey, MapValue, NftSet, NftVerdict};
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use palisade_model::{Direction, Family, PolicyStage, Prefix, Str};
use palisade_tables::{ClassId, IdentityId, Point, PolicySet, PolicySetId};

/// What the elements of a set are.
#[derive(Clone, Copy, Debug)]
pub(super) enum SetContent {
    /// Elements of classes, in the map of this name.
    Class(&'static str),
    /// Classes and their bases.
    ClassBase,
    /// Verdicts of source-port chains, in the map of this name.
    Verdict(&'static str),
    /// The numbers of the host's interfaces at a stage.
    InterfaceNumber(PolicyStage),
    /// Points of host interfaces with one address.
    HostPoint,
    /// Points of host interfaces with several addresses.
    HostPointRange(Family),
    /// Identities of single addresses.
    Address,
    /// Identities of several addresses.
    Network(Family),
    /// The local endpoints' addresses.
    LocalAddress,
    /// Points of workloads.
    Point(Direction),
    /// Points of workloads for hairpin traffic.
    HairpinPoint(Direction),
    /// Managed interfaces.
    Interface,
    /// Managed interfaces, twice.
    HairpinInterface,
    /// Whether a revocation is pending.
    PendingRevocation,
    /// The ports of classes that redirect packets.
    RedirectPort,
    /// Rows: the class of an identity in a policy set.
    IdentityClass,
    /// Policy sets with their default class, and pairs of set and class.
    SetClass,
}

/// The content of each set that has elements of tables.
pub(super) fn set_contents() -> BTreeMap<&'static str, SetContent> {
    let mut contents = BTreeMap::from([
        (CLASS_BASE, SetContent::ClassBase),
        (CODE_VERDICT, SetContent::Verdict(CODE_VERDICT)),
        (DROP_VERDICT, SetContent::Verdict(DROP_VERDICT)),
        (IF_OURS, SetContent::Interface),
        (IF_HAIRPIN, SetContent::HairpinInterface),
        (PENDING_REVOCATION, SetContent::PendingRevocation),
        (IDENTITY_CLASS, SetContent::IdentityClass),
        (SET_CLASS, SetContent::SetClass),
    ]);
    contents.extend(COUNTED.map(|map| (map, SetContent::Class(map))));
    contents.insert(REDIRECT, SetContent::Class(REDIRECT));
    contents.insert(REDIRECT_PORTS, SetContent::RedirectPort);
    contents.extend(PolicyStage::ALL.map(|stage| {
        let content = SetContent::InterfaceNumber(stage);
        (names::interface_map(stage), content)
    }));
    for family in Family::BOTH {
        contents.extend([
            (names::host_point_map(family), SetContent::HostPoint),
            (
                names::host_point_range_map(family),
                SetContent::HostPointRange(family),
            ),
            (names::host_map(family), SetContent::Address),
            (names::network_map(family), SetContent::Network(family)),
            (names::local_addresses_set(family), SetContent::LocalAddress),
        ]);
        for direction in Direction::BOTH {
            contents.extend([
                (
                    names::point_map(family, direction),
                    SetContent::Point(direction),
                ),
                (
                    names::hairpin_point_map(family, direction),
                    SetContent::HairpinPoint(direction),
                ),
            ]);
        }
    }
    contents
}

pub(super) fn read_bytes<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

pub(super) fn read_mark(bytes: &[u8], at: usize) -> Option<u32> {
    number_from_bytes(bytes.get(at..at + 4)?)
}

pub(crate) fn parse_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(read_bytes::<4>(bytes, 0)?)),
        16 => Some(IpAddr::from(read_bytes::<16>(bytes, 0)?)),
        _ => None,
    }
}

pub(crate) fn parse_interface(bytes: &[u8]) -> Option<Str> {
    let name = core::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    (!name.is_empty() && !name.contains('\0')).then(|| name.into())
}

pub(super) fn element_number(element: &Element) -> Option<u32> {
    match &element.data {
        Some(MapValue::Value(bytes)) => number_from_bytes(bytes),
        _ => None,
    }
}

/// The bytes of a key of one value.
fn exact(key: &ElementKey) -> Option<&[u8]> {
    match key {
        ElementKey::Exact(bytes) => Some(bytes),
        ElementKey::Range(..) | ElementKey::CatchAll => None,
    }
}

impl TableDecoder {
    pub(super) fn decode_set(
        &mut self,
        name: &Str,
        content: Option<SetContent>,
        fixed: &NftSet,
        stored: &NftSet,
    ) -> Result<(), DecodeError> {
        if stored.decl != fixed.decl {
            return Err(DecodeError("a set declaration differs"));
        }
        for (key, element) in &fixed.elements {
            if stored.elements.get(key) != Some(element) {
                return Err(DecodeError("a constant element is missing"));
            }
        }
        let has_zero_prefix = names::is_zero_prefixed(name);
        for (key, element) in &stored.elements {
            let ends: [&[u8]; 2] = match key {
                ElementKey::Exact(bytes) => [bytes, bytes],
                ElementKey::Range(first, last) => [first, last],
                ElementKey::CatchAll => [&[], &[]],
            };
            let is_prefix_wrong = |end: &&[u8]| end.get(..4).is_some_and(|prefix| prefix != [0; 4]);
            if has_zero_prefix && ends.iter().any(is_prefix_wrong) {
                return Err(DecodeError("a key with a wrong first field"));
            }
            if !fixed.elements.contains_key(key) {
                content
                    .and_then(|content| self.decode_element(content, key, element))
                    .ok_or(DecodeError("an unexpected element"))?;
            }
        }
        Ok(())
    }

    fn decode_element(
        &mut self,
        content: SetContent,
        key: &ElementKey,
        element: &Element,
    ) -> Option<()> {
        let tables = &mut self.observed.layout.tables;
        match content {
            SetContent::Class(map) => self.decode_class_element(map, key, element)?,
            SetContent::ClassBase => self.decode_class_base(key, element)?,
            SetContent::Verdict(map) => self.decode_verdict(map, key, element)?,
            SetContent::InterfaceNumber(stage) => {
                self.decode_interface_number(stage, key, element_number(element)?)?;
            }
            SetContent::HostPoint | SetContent::HostPointRange(_) => {
                let point = HostPointElement::decode(content, key, element)?;
                self.host_points.push(point);
            }
            SetContent::Address => {
                let prefix = Prefix::host(parse_address(exact(key)?)?);
                let id = IdentityId(element_number(element)?);
                tables.addresses.insert(prefix, id);
            }
            SetContent::Network(family) => {
                let ElementKey::Range(first, last) = key else {
                    return None;
                };
                let number = |bytes: &[u8]| Some(Prefix::host(parse_address(bytes)?).bounds().0);
                let id = IdentityId(element_number(element)?);
                let range = (number(first)?, number(last)?, id);
                self.ranges[family as usize].push(range);
            }
            SetContent::LocalAddress => {
                let address = parse_address(exact(key)?)?;
                self.observed.local_addresses.insert(address);
            }
            SetContent::Point(direction) => {
                let (interface, address) = interface_address(exact(key)?)?;
                let point = Point::of_workload(interface, address, direction);
                let set = PolicySetId(element_number(element)?);
                tables.points.insert(point, set);
            }
            SetContent::HairpinPoint(direction) => {
                let (interface, address) = interface_address(exact(key)?)?;
                let point = Point::of_hairpin(interface, address, direction);
                let set = PolicySetId(element_number(element)?);
                tables.points.insert(point, set);
            }
            SetContent::Interface => {
                tables.interfaces.insert(parse_interface(exact(key)?)?);
            }
            SetContent::HairpinInterface => {
                let (name, again) = exact(key)?.split_at_checked(16)?;
                (name == again).then_some(())?;
                self.hairpin_interfaces.insert(parse_interface(name)?);
            }
            SetContent::PendingRevocation => {
                (number_from_bytes(exact(key)?)? == 1).then_some(())?;
                self.observed.revocation_pending = true;
            }
            SetContent::RedirectPort => {
                self.redirect_ports.insert(key.clone());
            }
            SetContent::IdentityClass => {
                let bytes = exact(key)?;
                let set = PolicySetId(read_mark(bytes, 4)?);
                let id = IdentityId(read_mark(bytes, 8)?);
                let class = ClassId(element_number(element)?);
                tables.classes.insert((set, id), class);
            }
            SetContent::SetClass => self.decode_set_class(exact(key)?, element_number(element)?)?,
        }
        Some(())
    }

    fn decode_class_element(
        &mut self,
        map: &'static str,
        key: &ElementKey,
        element: &Element,
    ) -> Option<()> {
        let bytes = match key {
            ElementKey::Exact(bytes) | ElementKey::Range(bytes, _) => bytes,
            ElementKey::CatchAll => return None,
        };
        let class = read_mark(bytes, 4)?;
        self.add_class_element(class, map, key, element);
        Some(())
    }

    fn decode_class_base(&mut self, key: &ElementKey, element: &Element) -> Option<()> {
        let (class, base) = (read_mark(exact(key)?, 4)?, element_number(element)?);
        self.add_class_element(class, CLASS_BASE, key, element);
        self.observed.layout.base_of_class.insert(class, base);
        Some(())
    }

    fn decode_verdict(
        &mut self,
        map: &'static str,
        key: &ElementKey,
        element: &Element,
    ) -> Option<()> {
        let Some(MapValue::Verdict(NftVerdict::Goto(chain))) = &element.data else {
            return None;
        };
        let chain = SourcePortChain::parse(chain)?;
        (read_mark(exact(key)?, 4)? == chain.code && !chain.is_reply).then_some(())?;
        self.add_class_element(chain.class, map, key, element);
        Some(())
    }

    fn add_class_element(
        &mut self,
        class: u32,
        map: &'static str,
        key: &ElementKey,
        element: &Element,
    ) {
        let content = self.observed.classes.entry(class).or_default();
        content.elements.insert((map, key.clone()), element.clone());
    }

    fn decode_set_class(&mut self, bytes: &[u8], value: u32) -> Option<()> {
        let (set, class) = (read_mark(bytes, 4)?, read_mark(bytes, 8)?);
        if class == 0 {
            let default = ClassId(value);
            let sets = &mut self.observed.layout.tables.sets;
            sets.insert(PolicySetId(set), PolicySet { default });
        } else {
            (class == value).then_some(())?;
            self.pairs.insert((set, class));
        }
        Some(())
    }
}

/// The interface and the address of the key of a workload's point.
pub(crate) fn interface_address(bytes: &[u8]) -> Option<(Str, IpAddr)> {
    let (interface, address) = bytes.split_at_checked(16)?;
    Some((parse_interface(interface)?, parse_address(address)?))
}

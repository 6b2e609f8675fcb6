//! The maps of the kernel beside what should be in them: each element that differs, in words.
//!
//! Promises: every element that a program would trust is read from the kernel and compared, and none is there that should
//! not be; the number of differences that are told is bounded, that of those counted is not.
//!
//! Never: writes a map; compares what programs write (flows and counters), or what no program reads.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use palisade_fast_path::{FastProtocol, MAX_LENGTHS, MapWrite, SlotRow};

use crate::maps::{
    BUCKET_WORDS, CONFIG_BUCKET_MASK, CONFIG_EPOCH, CONFIG_PROOF_BIT, CONFIG_STATE, ClassRows,
    DESCRIPTOR_WORDS, FastPathMaps, MapsError, SLOT_ARMED, SLOT_WORDS, SlotInterface, UPLINK,
    class_row, complete_word, endpoint_row, find, length_word, load, pair, port_key, prefix_row,
};

/// How many differences are told.
const MAX_DIFFERENCES: usize = 1_000;

/// An element of a map that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDifference {
    /// The map.
    pub map: &'static str,
    /// The element, by what it is for.
    pub element: String,
    /// The address of a workload that the element is for, if it is for one.
    pub address: Option<IpAddr>,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// The maps of the kernel beside what should be in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapComparison {
    /// How many elements were compared.
    pub elements: usize,
    /// Those that differ, as many as are told.
    pub differences: Vec<MapDifference>,
    /// How many more differ.
    pub left_out: usize,
}

/// What should be in force beside the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedConfig {
    /// The half of the policy.
    pub half: usize,
    /// The bit of the packet mark.
    pub proof_bit: u32,
    /// The interfaces to other hosts that have programs.
    pub uplinks: Vec<u32>,
}

/// An element that should be in a map.
struct ExpectedElement {
    value: u64,
    element: String,
    address: Option<IpAddr>,
}

impl ExpectedElement {
    fn new(value: u64, element: String) -> Self {
        ExpectedElement {
            value,
            element,
            address: None,
        }
    }
}

/// The elements that should be in a hash, by key.
type ExpectedHash = BTreeMap<Vec<u8>, ExpectedElement>;

impl MapComparison {
    fn add(&mut self, map: &'static str, element: impl Into<String>, values: [String; 2]) {
        self.add_for(None, map, element, values);
    }

    fn add_for(
        &mut self,
        address: Option<IpAddr>,
        map: &'static str,
        element: impl Into<String>,
        [expected, found]: [String; 2],
    ) {
        if self.differences.len() == MAX_DIFFERENCES {
            self.left_out += 1;
            return;
        }
        self.differences.push(MapDifference {
            map,
            element: element.into(),
            address,
            expected,
            found,
        });
    }
}

impl FastPathMaps {
    /// Compares the maps with a listing of the projection. `interface` says where the workload of a slot is armed, if it
    /// is; nothing at all of a slot that has no workload any more.
    ///
    /// # Errors
    /// If a map cannot be read.
    pub fn compare(
        &self,
        listing: &[MapWrite],
        config: ExpectedConfig,
        interface: impl Fn(&SlotRow) -> Option<Option<SlotInterface>>,
    ) -> Result<MapComparison, MapsError> {
        let mut comparison = MapComparison::default();
        self.compare_config(&config, &mut comparison);
        self.compare_slots(listing, interface, &mut comparison);
        self.compare_sets(listing, &mut comparison);
        self.compare_lengths(listing, &mut comparison);
        self.compare_descriptors(listing, &mut comparison);
        let [endpoints, classes, ports, prefixes] = self.expected_hashes(listing);
        let uplinks = config.uplinks.iter().map(|index| {
            let key = index.to_ne_bytes().to_vec();
            let element = uplink_element(&key);
            (key, ExpectedElement::new(UPLINK, element))
        });
        for (map, expected, texts) in [
            (
                "endpoints",
                endpoints,
                HashTexts::new(endpoint_element, endpoint_text),
            ),
            (
                "classes",
                classes,
                HashTexts::new(class_element, classes_text),
            ),
            (
                "ports",
                ports,
                HashTexts::new(port_element, |value| word_text(value as u32)),
            ),
            (
                "prefixes",
                prefixes,
                HashTexts::new(prefix_element, prefix_text),
            ),
            (
                "uplinks",
                uplinks.collect(),
                HashTexts::new(uplink_element, |_| "attached".to_owned()),
            ),
        ] {
            self.compare_hash(map, expected, texts, &mut comparison)?;
        }
        Ok(comparison)
    }

    /// The elements of `endpoints`, `classes`, `ports` and `prefixes`.
    fn expected_hashes(&self, listing: &[MapWrite]) -> [ExpectedHash; 4] {
        let [mut endpoints, mut classes, mut ports, mut prefixes] =
            [const { ExpectedHash::new() }; 4];
        for write in listing {
            match write {
                MapWrite::Slot(row) => {
                    let word = load(&self.slots, usize::from(row.number) * SLOT_WORDS + 1);
                    let (key, value) = endpoint_row(row.address, row.number, word & 0xffff);
                    let expected = ExpectedElement {
                        value,
                        element: format!("address {}", row.address),
                        address: Some(row.address),
                    };
                    endpoints.insert(key.to_vec(), expected);
                }
                MapWrite::Row {
                    set,
                    identity,
                    classes: Some(values),
                } => {
                    let (key, value) = class_row(*set, identity.0, *values);
                    let expected = ExpectedElement::new(value, class_element(&key));
                    classes.insert(key.to_vec(), expected);
                }
                MapWrite::Class {
                    number,
                    content,
                    first_range,
                } => {
                    for (key, value) in ClassRows::new(*number, content, *first_range).ports {
                        let expected = ExpectedElement::new(value, port_element(&key));
                        ports.insert(key, expected);
                    }
                }
                MapWrite::Prefix {
                    prefix,
                    identities: Some(identities),
                } => {
                    let (key, value) = prefix_row(*prefix, *identities);
                    let expected = ExpectedElement::new(value, format!("prefix {prefix}"));
                    prefixes.insert(key.to_vec(), expected);
                }
                _ => {}
            }
        }
        [endpoints, classes, ports, prefixes]
    }

    fn compare_config(&self, expected: &ExpectedConfig, comparison: &mut MapComparison) {
        let buckets = self.flows.words().len() / BUCKET_WORDS;
        let found = |word| load(&self.config, word);
        for (element, expected, found) in [
            ("state", 2, found(CONFIG_STATE)),
            (
                "half in force",
                expected.half as u64,
                found(CONFIG_EPOCH) & 1,
            ),
            (
                "proof bit",
                expected.proof_bit.into(),
                found(CONFIG_PROOF_BIT),
            ),
            (
                "buckets of flows",
                (buckets as u64).saturating_sub(1),
                found(CONFIG_BUCKET_MASK),
            ),
        ] {
            comparison.elements += 1;
            if expected != found {
                let values = [expected, found].map(|value| format!("{value:#x}"));
                comparison.add("config", element, values);
            }
        }
    }

    fn compare_slots(
        &self,
        listing: &[MapWrite],
        interface: impl Fn(&SlotRow) -> Option<Option<SlotInterface>>,
        comparison: &mut MapComparison,
    ) {
        let rows = listing.iter().filter_map(|write| match write {
            MapWrite::Slot(row) => Some((usize::from(row.number), row)),
            _ => None,
        });
        let rows: BTreeMap<usize, &SlotRow> = rows.collect();
        for number in 0..self.slots.words().len() / SLOT_WORDS {
            let word = |at: usize| load(&self.slots, number * SLOT_WORDS + at);
            let is_armed = word(1) & SLOT_ARMED != 0;
            let place = is_armed.then(|| SlotInterface {
                index: word(0) as u32,
                mtu: (word(0) >> 32) as u32,
            });
            let Some(row) = rows.get(&number) else {
                if is_armed {
                    let values = [place_text(None), place_text(place)];
                    comparison.add("slots", format!("slot {number}, of nobody"), values);
                }
                continue;
            };
            comparison.elements += 1;
            let element = format!("slot {number}");
            let mut add = |what: &str, values| {
                let element = format!("{element}, {what}");
                comparison.add_for(Some(row.address), "slots", element, values);
            };
            if let Some(expected) = interface(row)
                && expected != place
            {
                add("interface", [expected, place].map(place_text));
            }
            let [first, second] = row.identities;
            let sets = |side: usize| pair(row.sets[0][side], row.sets[1][side]);
            for (what, expected, found) in [
                ("identity", pair(first, second), word(2)),
                ("set of egress", sets(0), word(3)),
                ("set of ingress", sets(1), word(4)),
            ] {
                if expected != found {
                    add(what, [expected, found].map(halves_text));
                }
            }
        }
    }

    fn compare_sets(&self, listing: &[MapWrite], comparison: &mut MapComparison) {
        let defaults = listing.iter().filter_map(|write| match write {
            MapWrite::Default { set, classes } => Some((*set as usize, *classes)),
            _ => None,
        });
        let defaults: BTreeMap<usize, [u32; 2]> = defaults.collect();
        for number in 0..self.sets.words().len() {
            let known = defaults.get(&number);
            let [first, second] = known.copied().unwrap_or_default();
            let (expected, found) = (pair(first, second), load(&self.sets, number));
            comparison.elements += usize::from(known.is_some());
            if expected != found {
                let values = [expected, found].map(halves_text);
                comparison.add("sets", format!("set {number}, default class"), values);
            }
        }
    }

    fn compare_lengths(&self, listing: &[MapWrite], comparison: &mut MapComparison) {
        let mut expected = [0; 1 + MAX_LENGTHS];
        for write in listing {
            let (at, word) = match write {
                MapWrite::PrefixLength { place, length } => (1 + place, length_word(*length)),
                MapWrite::Networks { complete } => (0, complete_word(*complete)),
                _ => continue,
            };
            if let Some(place) = expected.get_mut(at) {
                *place = word;
            }
        }
        for (at, expected) in expected.into_iter().enumerate() {
            let found = load(&self.lengths, at);
            comparison.elements += 1;
            if expected != found {
                let element = match at {
                    0 => "halves with all prefixes".to_owned(),
                    _ => format!("length {at}"),
                };
                let values = [expected, found].map(|value| format!("{value:#x}"));
                comparison.add("lengths", element, values);
            }
        }
    }

    fn compare_descriptors(&self, listing: &[MapWrite], comparison: &mut MapComparison) {
        for write in listing {
            let MapWrite::Class {
                number,
                content,
                first_range,
            } = write
            else {
                continue;
            };
            let rows = ClassRows::new(*number, content, *first_range);
            let first = *number as usize * DESCRIPTOR_WORDS;
            comparison.elements += 1 + rows.ranges.len();
            for (at, expected) in rows.descriptor.into_iter().enumerate() {
                let found = load(&self.descriptors, first + at);
                if expected != found {
                    let element = format!("class {number}, word {at}");
                    let values = [expected, found].map(|value| format!("{value:#018x}"));
                    comparison.add("descriptors", element, values);
                }
            }
            for (at, expected) in rows.ranges {
                let found = load(&self.ranges, at as usize);
                if expected != found {
                    let element = format!("class {number}, range {at}");
                    comparison.add("ranges", element, [expected, found].map(range_text));
                }
            }
        }
    }

    fn compare_hash(
        &self,
        map: &'static str,
        mut expected: ExpectedHash,
        texts: HashTexts,
        comparison: &mut MapComparison,
    ) -> Result<(), MapsError> {
        let HashTexts {
            element,
            value: text,
        } = texts;
        let nothing = || "nothing".to_owned();
        for found in find(&self.loaded, map)?.elements()? {
            let value = found.value.as_slice().try_into().map(u64::from_ne_bytes);
            let value = value.unwrap_or_default();
            comparison.elements += 1;
            match expected.remove(&found.key) {
                Some(known) if known.value == value => {}
                Some(known) => {
                    let values = [known.value, value].map(|value| hash_text(value, text));
                    comparison.add_for(known.address, map, known.element, values);
                }
                None => {
                    let values = [nothing(), hash_text(value, text)];
                    comparison.add(map, element(&found.key), values);
                }
            }
        }
        for known in expected.into_values() {
            let values = [hash_text(known.value, text), nothing()];
            comparison.add_for(known.address, map, known.element, values);
        }
        Ok(())
    }
}

/// How the elements of a hash are shown.
#[derive(Clone, Copy)]
struct HashTexts {
    element: fn(&[u8]) -> String,
    value: fn(u64) -> String,
}

impl HashTexts {
    fn new(element: fn(&[u8]) -> String, value: fn(u64) -> String) -> Self {
        HashTexts { element, value }
    }
}

/// A value of a hash; its echo tells whose it is.
fn hash_text(value: u64, text: fn(u64) -> String) -> String {
    format!("{} ({value:#018x})", text(value))
}

fn word_at(key: &[u8], at: usize) -> u32 {
    let bytes = key.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
}

fn endpoint_element(key: &[u8]) -> String {
    let octets = <[u8; 16]>::try_from(key).unwrap_or_default();
    format!("address {}", Ipv6Addr::from(octets).to_canonical())
}

fn endpoint_text(value: u64) -> String {
    format!(
        "slot {}, incarnation {}",
        value as u16,
        value >> 16 & 0xffff
    )
}

fn prefix_element(key: &[u8]) -> String {
    let octets = key
        .get(..16)
        .and_then(|octets| <[u8; 16]>::try_from(octets).ok());
    let address = Ipv6Addr::from(octets.unwrap_or_default()).to_canonical();
    let bits = word_at(key, 16);
    let bits = if address.is_ipv4() {
        bits.saturating_sub(96)
    } else {
        bits
    };
    format!("prefix {address}/{bits}")
}

fn prefix_text(value: u64) -> String {
    let identity = |shift: u32| match value >> shift & 0xf_ffff {
        0 => "none".to_owned(),
        known => (known - 1).to_string(),
    };
    format!("identity {} and {}", identity(0), identity(20))
}

fn uplink_element(key: &[u8]) -> String {
    format!("interface {}", word_at(key, 0))
}

fn class_element(key: &[u8]) -> String {
    format!("set {}, identity {}", word_at(key, 0), word_at(key, 4))
}

fn classes_text(value: u64) -> String {
    let class = |shift: u32| value >> shift & 0xf_ffff;
    format!("class {} and {}", class(0), class(20))
}

fn port_element(key: &[u8]) -> String {
    let class = word_at(key, 0);
    let (port, number) = (word_at(key, 4) as u16, (word_at(key, 4) >> 16) as u8);
    let mut known = FastProtocol::ALL.into_iter();
    let protocol = known.find(|known| port_key(class, *known, port).0 == key);
    match protocol {
        Some(FastProtocol::Tcp) => format!("class {class}, TCP {port}"),
        Some(FastProtocol::Udp) => format!("class {class}, UDP {port}"),
        Some(_) => format!(
            "class {class}, ICMP type {}, code {}",
            port >> 8,
            port & 255
        ),
        None => format!("class {class}, protocol {number}, {port}"),
    }
}

fn word_text(word: u32) -> String {
    let counter = word & 0x3fff_ffff;
    match word >> 30 {
        2 => format!("allow, counter {counter}"),
        1 => format!("deny, counter {counter}"),
        0 if word == 0 => "pass".to_owned(),
        _ => format!("{word:#010x}"),
    }
}

fn range_text(value: u64) -> String {
    let (first, last) = (value as u16, (value >> 16) as u16);
    format!("{first} to {last}: {}", word_text((value >> 32) as u32))
}

fn halves_text(value: u64) -> String {
    format!("{} and {}", value as u32, value >> 32)
}

fn place_text(place: Option<SlotInterface>) -> String {
    match place {
        Some(SlotInterface { index, mtu }) => format!("armed at interface {index}, MTU {mtu}"),
        None => "not armed".to_owned(),
    }
}

//! The maps of the kernel beside a projection: nothing differs after any update, and each element that somebody else
//! changes is found.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use palisade_bpf::{
    BpfObject, Epoch, ExpectedConfig, FastPathMaps, FastPathState, MapDifference, SlotInterface,
};
use palisade_engine::{Engine, EngineOptions};
use palisade_fast_path::{MapWrite, Projection, SlotRow};
use palisade_generators::lowered::ModelWorld;
use palisade_generators::{Dice, cases, seeded_cases};
use palisade_model::{Prefix, Update};
use palisade_sys::bpf::UpdateMode;
use palisade_testkit::need_root;

const PROOF_BIT: u32 = 1 << 7;

/// The maps and what should be in them.
struct Compared {
    maps: FastPathMaps,
    projection: Projection,
}

/// The interfaces to other hosts.
const UPLINKS: [u32; 2] = [3, 4];

impl Compared {
    fn new() -> Self {
        let sizes = [
            ("flows", 64),
            ("endpoints", 256),
            ("ports", 65_536),
            ("classes", 8_192),
            ("prefixes", 8_192),
        ];
        let loaded = BpfObject::FAST_PATH.load_sized(&sizes, |_, _| None);
        let maps = FastPathMaps::new(loaded.unwrap()).unwrap();
        maps.configure(PROOF_BIT, 0x5eed);
        maps.set_state(FastPathState::On);
        let networks = [Prefix::ALL_V4, Prefix::ALL_V6];
        let projection = Projection::new(maps.room().unwrap(), 1, &networks);
        for uplink in UPLINKS {
            maps.add_uplink(uplink).unwrap();
        }
        Compared { maps, projection }
    }

    /// The interface of a slot, which has its number.
    fn interface(slot: &SlotRow) -> SlotInterface {
        SlotInterface {
            index: u32::from(slot.number) + 10,
            mtu: 1_500,
        }
    }

    fn update(&mut self, engine: &Engine) {
        let writes = self.projection.update(engine.tables(), None).unwrap();
        self.maps.write(&writes).unwrap();
        self.maps.set_epoch(Epoch {
            generation: 1,
            half: self.projection.half(),
        });
        for slot in self.projection.slots() {
            self.maps.arm(slot.number, Self::interface(slot));
        }
    }

    fn differences(&self) -> Vec<MapDifference> {
        let config = ExpectedConfig {
            half: self.projection.half(),
            proof_bit: PROOF_BIT,
            uplinks: UPLINKS.to_vec(),
        };
        let listing = self.projection.listing();
        let compared = self
            .maps
            .compare(&listing, config, |slot| Some(Some(Self::interface(slot))));
        compared.unwrap().differences
    }

    /// Changes a bit of a word of an array; which map differs then. It is as before afterwards.
    fn differs_with_bit(&self, map: &'static str, word: usize, bit: u32) -> Vec<MapDifference> {
        let view = self.maps.loaded().map(map).unwrap().view().unwrap();
        view.words()[word].fetch_xor(1 << bit, Ordering::AcqRel);
        let differences = self.differences();
        view.words()[word].fetch_xor(1 << bit, Ordering::AcqRel);
        differences
    }

    /// Changes a bit of an element of a hash, removes it, and adds another one: what differs each time. It is as before
    /// afterwards.
    fn differ_in_hash(
        &self,
        map: &'static str,
        dice: &mut Dice,
    ) -> Option<[Vec<MapDifference>; 3]> {
        let hash = self.maps.loaded().map(map).unwrap();
        let elements = hash.elements().unwrap();
        if elements.is_empty() {
            return None;
        }
        let element = dice.pick(&elements).clone();
        let mut value = element.value.clone();
        value[dice.below(8)] ^= 1 << dice.below(8);
        hash.update(&element.key, &value, UpdateMode::Any).unwrap();
        let changed = self.differences();
        assert!(hash.delete(&element.key).unwrap());
        let removed = self.differences();
        hash.update(&element.key, &element.value, UpdateMode::Any)
            .unwrap();
        let mut key = element.key.clone();
        key.fill(0xab);
        hash.update(&key, &element.value, UpdateMode::Any).unwrap();
        let added = self.differences();
        hash.delete(&key).unwrap();
        Some([changed, removed, added])
    }
}

fn maps_of(differences: &[MapDifference]) -> Vec<&'static str> {
    differences
        .iter()
        .map(|difference| difference.map)
        .collect()
}

#[test]
fn every_element_that_somebody_else_changes_is_found() {
    if !need_root() {
        return;
    }
    let mut compared = Compared::new();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for (seed, case) in seeded_cases(1, cases(60)) {
        let about = format!("seed {seed}, case {case}");
        let world = ModelWorld::generate(seed, case, 0);
        let mut engine = Engine::new(EngineOptions::default());
        let _ = engine.apply(world.state.objects().map(Update::Upsert));
        compared.update(&engine);
        assert_eq!(compared.differences(), [], "{about}");
        let mut dice = Dice::new(seed, case);
        for map in ["endpoints", "classes", "ports", "prefixes", "uplinks"] {
            let Some(differences) = compared.differ_in_hash(map, &mut dice) else {
                continue;
            };
            for differences in differences {
                assert_eq!(maps_of(&differences), [map], "{about}: {differences:?}");
            }
            *found.entry(map).or_default() += 1;
        }
        for (map, word) in words_in_use(&compared.projection, &mut dice) {
            let differences = compared.differs_with_bit(map, word, dice.below(16) as u32);
            let others = maps_of(&differences);
            // The incarnation of a slot is that of its address.
            let is_found = others == [map] || (map == "slots" && others == ["endpoints"]);
            assert!(is_found, "{about}, {map}, word {word}: {differences:?}");
            *found.entry(map).or_default() += 1;
        }
        for word in [0, 2, 3] {
            assert_eq!(
                maps_of(&compared.differs_with_bit("config", word, 0)),
                ["config"],
                "{about}, {word}"
            );
        }
        assert_eq!(compared.differences(), [], "{about}");
    }
    for map in [
        "endpoints",
        "classes",
        "ports",
        "prefixes",
        "uplinks",
        "lengths",
        "slots",
        "sets",
        "descriptors",
        "ranges",
    ] {
        let count = found.get(map).copied().unwrap_or_default();
        assert!(count > 3, "{map}: {count}");
    }
}

/// A word in use of each array that has one.
fn words_in_use(projection: &Projection, dice: &mut Dice) -> Vec<(&'static str, usize)> {
    let mut words: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
    for write in projection.listing() {
        match write {
            MapWrite::Slot(row) => {
                let first = usize::from(row.number) * 5;
                words.entry("slots").or_default().extend(first..first + 5);
            }
            MapWrite::Default { set, .. } => words.entry("sets").or_default().push(set as usize),
            MapWrite::Class {
                number,
                content,
                first_range,
            } => {
                let first = number as usize * 8;
                let descriptors = words.entry("descriptors").or_default();
                descriptors.extend(first..first + 8);
                let count: usize = content.iter().map(|rows| rows.ranges().count()).sum();
                let ranges = words.entry("ranges").or_default();
                ranges.extend((first_range as usize..).take(count));
            }
            MapWrite::PrefixLength { place, .. } => {
                words.entry("lengths").or_default().push(1 + place);
            }
            MapWrite::Networks { .. } => words.entry("lengths").or_default().push(0),
            _ => {}
        }
    }
    words.retain(|_, words| !words.is_empty());
    let words = words.into_iter();
    words
        .map(|(map, words)| (map, *dice.pick(&words)))
        .collect()
}

#[test]
fn a_slot_that_is_not_armed_is_told_with_its_address() {
    if !need_root() {
        return;
    }
    let mut compared = Compared::new();
    let mut worlds = seeded_cases(1, 20).into_iter();
    let slot = loop {
        let (seed, case) = worlds.next().unwrap();
        let world = ModelWorld::generate(seed, case, 0);
        let mut engine = Engine::new(EngineOptions::default());
        let _ = engine.apply(world.state.objects().map(Update::Upsert));
        compared.update(&engine);
        if let Some(slot) = compared.projection.slots().next() {
            break slot.clone();
        }
    };
    compared.maps.disarm(slot.number);
    let differences = compared.differences();
    let [difference] = &differences[..] else {
        panic!("{differences:?}");
    };
    let address: Option<IpAddr> = Some(slot.address);
    assert_eq!(
        (difference.map, difference.address),
        ("slots", address),
        "{difference:?}"
    );
    assert_eq!(difference.found, "not armed");
}

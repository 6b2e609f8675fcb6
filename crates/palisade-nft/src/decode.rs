//! Decodes the kernel's content to decision tables, in the kernel's numbers.
//!
//! Anything that this layout could not have written (a changed rule, an unexpected element, a dangling
//! reference) is an error: then the whole table is rebuilt.

mod elements;
mod host_points;
mod program;

use crate::content::{ClassContent, KnownNumbers};
use crate::host_chains;
use crate::names::{FIRST_BASE, GENERATION};
use crate::redirect;
use crate::redirect_ports;
use crate::skeleton::{generation_of, skeleton};
use crate::source_ports::SourcePortChain;
use crate::{Config, ElementKey, Ruleset};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_layout::{AddressRanges, StoredTables, ValueRange};
use palisade_model::{Family, NumberRange, PolicyStage, Str};
use palisade_tables::{ClassId, IdentityId, Program, Tables};

use elements::set_contents;
pub(crate) use elements::{interface_address, parse_interface};
use host_points::HostPointElement;
pub(crate) use host_points::{canonical_host_points, installed_host_points};
use program::{decode_program, redirect_numbers};

/// Rule numbers from here on stand for unknown rules found in the kernel.
pub(crate) const UNKNOWN_RULE: u32 = 1 << 31;

/// The decoded content, in the kernel's numbers.
#[derive(Debug)]
pub(crate) struct DecodedTable {
    /// What every dataplane would read.
    pub(crate) layout: StoredTables,
    /// The content of each class, fingerprint included.
    pub(crate) classes: BTreeMap<u32, ClassContent>,
    /// The content of each base.
    pub(crate) bases: BTreeMap<u32, ClassContent>,
    /// The codes of the source-port chains of each class and base, ascending.
    pub(crate) source_port_codes: BTreeMap<u32, Vec<u32>>,
    /// The numbers of the DNS rules of each class, in the order of its elements.
    pub(crate) redirects: BTreeMap<u32, Vec<u32>>,
    /// (set, class) pairs without rows.
    pub(crate) unused_pairs: Vec<(u32, u32)>,
    /// The content of the sets of local addresses.
    pub(crate) local_addresses: BTreeSet<IpAddr>,
    /// The numbers of named interfaces of the host.
    pub(crate) interface_numbers: BTreeMap<Str, u32>,
    pub(crate) generation: u32,
    pub(crate) revocation_pending: bool,
}

impl DecodedTable {
    /// The numbers of a class or base that its program does not say.
    pub(crate) fn numbers(&self, number: u32) -> KnownNumbers<'_> {
        KnownNumbers {
            codes: self
                .source_port_codes
                .get(&number)
                .map_or(&[], |codes| codes),
            redirects: self
                .redirects
                .get(&number)
                .map_or(&[], |redirects| redirects),
        }
    }
}

/// Why the table must be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError(pub(crate) &'static str);

/// The generation that accepted flows are marked with, if it can be determined.
pub(crate) fn live_generation(config: &Config, ruleset: &Ruleset) -> Option<u32> {
    match ruleset.chains.get(GENERATION)?.rules.as_slice() {
        [rule] => generation_of(config, rule),
        _ => None,
    }
}

/// Decodes a table. Counts must be zero ([`Ruleset::without_counts`]).
pub(crate) fn decode(config: &Config, ruleset: &Ruleset) -> Result<DecodedTable, DecodeError> {
    let generation = live_generation(config, ruleset)
        .ok_or(DecodeError("the generation cannot be determined"))?;
    let mut fixed = skeleton(config, generation);
    let host_stages = host_chains::stages_of(&ruleset.chains);
    for stage in &host_stages {
        fixed.chains.extend(host_chains::chains(config, *stage));
    }
    let redirects = redirect::is_among(&ruleset.chains);
    if redirects {
        fixed.chains.extend(redirect::chains(config));
        fixed.chains.extend(redirect::own_chains(config));
    }
    let is_skeleton = ruleset.comment == fixed.comment
        && ruleset.flags == fixed.flags
        && ruleset.foreign.is_empty()
        && ruleset.sets.keys().eq(fixed.sets.keys())
        && fixed
            .chains
            .iter()
            .all(|(name, chain)| ruleset.chains.get(name) == Some(chain));
    if !is_skeleton || generation == 0 {
        return Err(DecodeError("the skeleton differs"));
    }
    let tables = Tables {
        judgement: config.judgement.clone(),
        ..Tables::default()
    };
    let mut decoder = TableDecoder::new(tables, generation, host_stages);
    let contents = set_contents();
    for (name, set) in &fixed.sets {
        let content = contents.get(&**name).copied();
        let stored = &ruleset.sets[name];
        decoder.decode_set(name, content, set, stored)?;
    }
    for (name, chain) in &ruleset.chains {
        if fixed.chains.contains_key(name) {
            continue;
        }
        let SourcePortChain { class, code, .. } =
            SourcePortChain::parse(name).ok_or(DecodeError("a foreign chain"))?;
        let content = decoder.observed.classes.entry(class).or_default();
        content.chains.push((name.clone(), chain.clone()));
        let codes = decoder.observed.source_port_codes.entry(class).or_default();
        if !codes.contains(&code) {
            codes.push(code);
            codes.sort_unstable();
        }
    }
    let decoded = decoder.finish(config)?;
    if redirects == decoded.redirects.is_empty() {
        return Err(DecodeError(
            "the chains that redirect and the classes differ",
        ));
    }
    Ok(decoded)
}

/// A table that is being decoded.
struct TableDecoder {
    observed: DecodedTable,
    /// The interfaces by which a packet may arrive and leave again.
    hairpin_interfaces: BTreeSet<Str>,
    pairs: BTreeSet<(u32, u32)>,
    redirect_ports: BTreeSet<ElementKey>,
    ranges: [Vec<ValueRange<IdentityId>>; 2],
    /// The numbers in the map of each stage.
    interface_numbers: BTreeMap<(Str, PolicyStage), u32>,
    /// The stages whose map has an entry for every other interface.
    any_interface: BTreeSet<PolicyStage>,
    host_points: Vec<HostPointElement>,
    /// The stages that have chains of host interfaces, in order.
    host_stages: Vec<PolicyStage>,
}

impl TableDecoder {
    fn new(tables: Tables, generation: u32, host_stages: Vec<PolicyStage>) -> Self {
        let layout = StoredTables {
            tables,
            identity_ranges: Default::default(),
            base_of_class: BTreeMap::new(),
            base_programs: BTreeMap::new(),
        };
        TableDecoder {
            observed: DecodedTable {
                layout,
                classes: BTreeMap::new(),
                bases: BTreeMap::new(),
                source_port_codes: BTreeMap::new(),
                redirects: BTreeMap::new(),
                unused_pairs: Vec::new(),
                local_addresses: BTreeSet::new(),
                interface_numbers: BTreeMap::new(),
                generation,
                revocation_pending: false,
            },
            hairpin_interfaces: BTreeSet::new(),
            pairs: BTreeSet::new(),
            redirect_ports: BTreeSet::new(),
            ranges: Default::default(),
            interface_numbers: BTreeMap::new(),
            any_interface: BTreeSet::new(),
            host_points: Vec::new(),
            host_stages,
        }
    }

    /// Checks that all references exist, and decodes the programs.
    fn finish(mut self, config: &Config) -> Result<DecodedTable, DecodeError> {
        for family in Family::BOTH {
            let runs = core::mem::take(&mut self.ranges[family as usize]);
            for (first, last, id) in &runs {
                let range = NumberRange::new(*first, *last);
                let range = range.ok_or(DecodeError("an empty range"))?;
                for prefix in range.prefixes(family) {
                    // Each range consists of prefixes with at least two addresses.
                    if prefix.is_host() {
                        return Err(DecodeError("a range that is not a union of prefixes"));
                    }
                    self.observed.layout.tables.addresses.insert(prefix, *id);
                }
            }
            self.observed.layout.identity_ranges[family as usize] =
                AddressRanges::from_ranges(runs)
                    .ok_or(DecodeError("ranges that are not maximal"))?;
        }
        self.decode_host_points(config).ok_or(DecodeError(
            "points of host interfaces that are not consistent",
        ))?;
        self.decode_programs(config)?;
        if self.redirect_ports != redirect_ports::elements_of(self.observed.classes.values()) {
            return Err(DecodeError(
                "the ports that are redirected and the classes differ",
            ));
        }
        let tables = &mut self.observed.layout.tables;
        if !config.judgement.judge_hairpin && self.hairpin_interfaces != tables.interfaces {
            return Err(DecodeError("the interface set and the hairpin map differ"));
        }
        let mut used = BTreeSet::new();
        for ((set, _), class) in &tables.classes {
            if !tables.sets.contains_key(set) || !tables.programs.contains_key(class) {
                return Err(DecodeError("a row without set or class"));
            }
            used.insert((set.0, class.0));
        }
        let is_whole = tables
            .sets
            .values()
            .all(|set| tables.programs.contains_key(&set.default))
            && tables
                .points
                .values()
                .all(|set| tables.sets.contains_key(set))
            && used.is_subset(&self.pairs);
        if !is_whole {
            return Err(DecodeError("a dangling reference"));
        }
        self.observed.unused_pairs = self.pairs.difference(&used).copied().collect();
        Ok(self.observed)
    }

    /// Decodes the programs of bases, and of the classes that refer to them or are whole.
    fn decode_programs(&mut self, config: &Config) -> Result<(), DecodeError> {
        let observed = &mut self.observed;
        observed.bases = observed.classes.split_off(&FIRST_BASE);
        let used: BTreeSet<u32> = observed.layout.base_of_class.values().copied().collect();
        if !used.iter().eq(observed.bases.keys()) {
            return Err(DecodeError("a missing or unreferenced base"));
        }
        for (class, content) in &observed.classes {
            let numbers = redirect_numbers(config, content)
                .ok_or(DecodeError("a redirect that cannot be decoded"))?;
            if !numbers.is_empty() {
                observed.redirects.insert(*class, numbers);
            }
        }
        let mut bases: BTreeMap<u32, (Program, u32)> = BTreeMap::new();
        for (number, content) in &observed.bases {
            let program = decode_program(config, *number, content, observed.numbers(*number), None);
            bases.insert(
                *number,
                program.ok_or(DecodeError("a base that cannot be decoded"))?,
            );
        }
        for (class, content) in &observed.classes {
            let base = observed.layout.base_of_class.get(class);
            let base = base.and_then(|number| Some((*number, bases.get(number)?)));
            let (program, _) =
                decode_program(config, *class, content, observed.numbers(*class), base)
                    .ok_or(DecodeError("a class that cannot be decoded"))?;
            let programs = &mut observed.layout.tables.programs;
            programs.insert(ClassId(*class), Arc::new(program));
        }
        let bases = bases.into_iter();
        observed.layout.base_programs = bases
            .map(|(number, (program, _))| (number, program))
            .collect();
        Ok(())
    }
}

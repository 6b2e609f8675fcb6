//! The nftables encoding of a class: its elements, and the chains that test source ports.

use crate::NftVerdict;
use crate::names::{
    self, CLASS_BASE, CLASS_DEFAULT, ICMP, ICMP_RANGE, PORT, PORT_RANGE, PROTO, REDIRECT,
};
use crate::names::{mark_bytes, zero_prefixed};
use crate::skeleton::{cell_code, verdict_element};
use crate::source_ports::{self, SourcePortChain};
use crate::{
    AttributedCounter, Chain, Config, CounterLocation, CounterValue, Element, ElementKey, MapValue,
    NftFault,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use palisade_model::{PortRange, Protocol, Str};
use palisade_tables::{Cell, DnsRules, Program, SourcePortMap, Tables, VerdictCause};

/// How a program is encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClassForm<'a> {
    /// Complete, as a class with this fingerprint.
    Whole(&'a str),
    /// As a class with this fingerprint that has only the elements that its base lacks: the base's number
    /// and program.
    Refining(&'a str, u32, &'a Program),
    /// Complete, as a base.
    Base,
}

/// The kernel content of one class or base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassContent {
    /// Its elements, by map and key.
    pub(crate) elements: BTreeMap<(&'static str, ElementKey), Element>,
    /// Its source-port chains, in the order of creation.
    pub(crate) chains: Vec<(Str, Chain)>,
    /// Its counters, also of cells without rules.
    pub(crate) counters: Vec<AttributedCounter>,
}

/// The numbers of a class that its program does not say.
pub(crate) trait ClassNumbers {
    /// The code of the next function of the source port.
    fn next_code(&mut self) -> u32;
    /// The number of the next DNS rules; 0 if there is none, so that their packets are not redirected.
    fn next_redirect(&mut self) -> u32;
}

/// The numbers that a class has, in order. Where one is missing it is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownNumbers<'a> {
    pub(crate) codes: &'a [u32],
    pub(crate) redirects: &'a [u32],
}

fn take_first(numbers: &mut &[u32]) -> u32 {
    let Some((first, rest)) = numbers.split_first() else {
        return 0;
    };
    *numbers = rest;
    *first
}

impl ClassNumbers for KnownNumbers<'_> {
    fn next_code(&mut self) -> u32 {
        take_first(&mut self.codes)
    }

    fn next_redirect(&mut self) -> u32 {
        take_first(&mut self.redirects)
    }
}

struct ClassContentBuilder<'a> {
    config: &'a Config,
    class: u32,
    content: ClassContent,
    /// The chains so far: the function of the source port, and its code.
    source_port_chains: Vec<(&'a SourcePortMap, u32)>,
    /// The DNS rules so far, and their numbers.
    redirects: Vec<(&'a DnsRules, u32)>,
    numbers: &'a mut dyn ClassNumbers,
}

/// The content of a class or base.
///
/// `numbers` gives the code of each function of the source port, and the number of each DNS rules.
pub(crate) fn class_content(
    config: &Config,
    class: u32,
    program: &Program,
    form: ClassForm<'_>,
    numbers: &mut dyn ClassNumbers,
) -> ClassContent {
    let base = match form {
        ClassForm::Refining(_, number, base) => Some((number, base)),
        ClassForm::Whole(_) | ClassForm::Base => None,
    };
    let comment: Option<Str> = match form {
        ClassForm::Whole(print) | ClassForm::Refining(print, ..) => Some(print.into()),
        ClassForm::Base => None,
    };
    let mut builder = ClassContentBuilder {
        config,
        class,
        content: ClassContent::default(),
        source_port_chains: Vec::new(),
        redirects: Vec::new(),
        numbers,
    };
    if !matches!(form, ClassForm::Base) {
        builder.add_redirects(program);
    }
    for (protocol, map) in program.protocols() {
        let number = [protocol.0];
        let shared = base.and_then(|(_, base)| base.protocol(*protocol));
        let entries = match shared {
            Some(shared) => map.entries_outside(shared),
            None => map
                .entries()
                .iter()
                .map(|(range, values)| (*range, values))
                .collect(),
        };
        for (range, values) in entries {
            if protocol.has_ports() {
                builder.add_ports(*protocol, range, values);
            } else if protocol.is_icmp() {
                builder.add_icmp(*protocol, range, values.default());
            }
        }
        if base.is_some() {
            continue;
        }
        let default = match protocol {
            p if p.has_ports() || p.is_icmp() => map.default(),
            _ => map.get(0),
        };
        let key = ElementKey::Exact(zero_prefixed(&[&mark_bytes(class), &number]));
        if !NftFault::ProtoDefaultLost.is_injected() || map.entries().is_empty() {
            builder.add_values(PROTO, key, default);
        }
    }
    let key = names::zero_prefixed_marks(&[class]);
    let end = match base {
        Some((number, _)) => {
            let element = Element {
                data: Some(MapValue::Value(mark_bytes(number))),
                ..Element::default()
            };
            builder
                .content
                .elements
                .insert((CLASS_BASE, key.clone()), element);
            CLASS_BASE
        }
        None => {
            builder.add_cell(CLASS_DEFAULT, key.clone(), program.default());
            CLASS_DEFAULT
        }
    };
    if let Some(element) = builder.content.elements.get_mut(&(end, key)) {
        element.comment = comment;
    }
    builder.content
}

impl<'a> ClassContentBuilder<'a> {
    fn add_ports(&mut self, protocol: Protocol, range: PortRange, values: &'a SourcePortMap) {
        let class = mark_bytes(self.class);
        let key = |port: u16| zero_prefixed(&[&class, &[protocol.0], &port.to_be_bytes()]);
        let PortRange { first, mut last } = range;
        if NftFault::IntervalEndOffByOne.is_injected() && first < last {
            last -= 1;
        }
        if u32::from(last) - u32::from(first) < u32::from(self.config.max_expanded_ports.max(1)) {
            let short = NftFault::RangeExpandedShort.is_injected() && first < last;
            for port in first..=last - u16::from(short) {
                self.add_values(PORT, ElementKey::Exact(key(port)), values);
            }
        } else {
            let range = ElementKey::Range(key(first), key(last));
            self.add_values(PORT_RANGE, range, values);
        }
    }

    /// An ICMP range, split by type; complete types stay together.
    fn add_icmp(&mut self, protocol: Protocol, range: PortRange, cell: &'a Cell) {
        let ([first_type, first_code], [last_type, last_code]) =
            (range.first.to_be_bytes(), range.last.to_be_bytes());
        let (mut from, mut to) = (first_type, last_type);
        let mut boxes: Vec<[u8; 4]> = Vec::new();
        if first_type == last_type {
            boxes.push([first_type, last_type, first_code, last_code]);
        } else {
            if first_code > 0 {
                boxes.push([first_type, first_type, first_code, 255]);
                from += 1;
            }
            if last_code < 255 {
                boxes.push([last_type, last_type, 0, last_code]);
                to -= 1;
            }
            if from <= to {
                boxes.push([from, to, 0, 255]);
            }
        }
        let class = mark_bytes(self.class);
        let key = |kind: u8, code: u8| zero_prefixed(&[&class, &[protocol.0], &[kind], &[code]]);
        for [type_first, type_last, code_first, mut code_last] in boxes {
            if NftFault::IcmpCodeLost.is_injected() {
                code_last = 255;
            }
            if (type_first, code_first) == (type_last, code_last) {
                self.add_cell(ICMP, ElementKey::Exact(key(type_first, code_first)), cell);
            } else {
                let range =
                    ElementKey::Range(key(type_first, code_first), key(type_last, code_last));
                self.add_cell(ICMP_RANGE, range, cell);
            }
        }
    }

    /// Adds the elements that redirect packets, by their destination port. Where the cell depends on the source port
    /// nothing is redirected.
    fn add_redirects(&mut self, program: &'a Program) {
        let Some(redirect) = self.config.redirect else {
            return;
        };
        for (protocol, map) in program.protocols() {
            if !protocol.has_ports() {
                continue;
            }
            let mut runs: Vec<(PortRange, u32)> = Vec::new();
            for (range, values) in map.segments() {
                let cell = values.as_constant();
                let rules = cell.and_then(|cell| cell.redirect.as_deref());
                let number = rules.map_or(0, |rules| self.redirect_number(rules));
                match runs.last_mut() {
                    Some((run, known)) if *known == number => run.last = range.last,
                    _ => runs.push((range, number)),
                }
            }
            for (range, number) in runs.into_iter().filter(|(_, number)| *number != 0) {
                let class = mark_bytes(self.class);
                let key = |port: u16| zero_prefixed(&[&class, &[protocol.0], &port.to_be_bytes()]);
                let element = Element {
                    data: Some(MapValue::Value(mark_bytes(redirect.mark(number)))),
                    ..Element::default()
                };
                let key = ElementKey::Range(key(range.first), key(range.last));
                self.content.elements.insert((REDIRECT, key), element);
            }
        }
    }

    fn redirect_number(&mut self, rules: &'a DnsRules) -> u32 {
        let mut known = self.redirects.iter();
        if let Some((_, number)) = known.find(|(other, _)| *other == rules) {
            return *number;
        }
        let number = self.numbers.next_redirect();
        self.redirects.push((rules, number));
        number
    }

    fn add_element(&mut self, map: &'static str, key: ElementKey, code: u32) {
        let element = Element {
            data: Some(MapValue::Value(mark_bytes(code))),
            counter: Some(CounterValue::default()),
            comment: None,
        };
        self.content.elements.insert((map, key), element);
    }

    fn add_cell(&mut self, map: &'static str, key: ElementKey, cell: &Cell) {
        let location = CounterLocation::Element {
            set: map.into(),
            key: key.clone(),
        };
        self.content.counters.push(cell_counter(location, cell));
        self.add_element(map, key, cell_code(cell));
    }

    fn add_values(&mut self, map: &'static str, key: ElementKey, values: &'a SourcePortMap) {
        if let Some(cell) = values.as_constant() {
            return self.add_cell(map, key, cell);
        }
        let existing = self.source_port_chains.iter().find(|(v, _)| *v == values);
        let code = match existing.map(|(_, code)| *code) {
            Some(code) => code,
            None => self.add_source_port_chains(values),
        };
        self.add_element(map, key, code);
    }

    /// Creates the chains of a function of the source port.
    fn add_source_port_chains(&mut self, values: &'a SourcePortMap) -> u32 {
        let code = self.numbers.next_code();
        self.source_port_chains.push((values, code));
        for chain in SourcePortChain::all_of(self.config, self.class, code) {
            let name = chain.name();
            if !chain.is_reply {
                let verdict = NftVerdict::Goto(name.clone());
                let (_, key, element) = verdict_element(code, verdict);
                let map = if chain.is_dropping {
                    names::DROP_VERDICT
                } else {
                    names::CODE_VERDICT
                };
                self.content.elements.insert((map, key), element);
            }
            let first = usize::from(!chain.is_reply);
            for (index, cell) in source_ports::cells(values).enumerate() {
                let location = CounterLocation::Rule {
                    chain: name.clone(),
                    index: first + index,
                };
                self.content.counters.push(cell_counter(location, cell));
            }
            let content = chain.content(self.config, values);
            self.content.chains.push((name, content));
        }
        code
    }
}

/// The DNS rules of a program that a class of it may redirect to, in the order of [`ClassNumbers::next_redirect`].
pub(crate) fn redirect_rules(program: &Program) -> Vec<Arc<DnsRules>> {
    let mut all: Vec<Arc<DnsRules>> = Vec::new();
    for (protocol, map) in program.protocols() {
        if !protocol.has_ports() {
            continue;
        }
        for (_, values) in map.segments() {
            let cell = values.as_constant();
            if let Some(rules) = cell.and_then(|cell| cell.redirect.as_ref())
                && !all.contains(rules)
            {
                all.push(rules.clone());
            }
        }
    }
    all
}

/// The fingerprint stored in a class's elements; none if it has no elements of a class.
pub(crate) fn stored_fingerprint(class: u32, content: &ClassContent) -> Option<&str> {
    let key = names::zero_prefixed_marks(&[class]);
    let element = |map| content.elements.get(&(map, key.clone()));
    element(CLASS_DEFAULT)
        .or_else(|| element(CLASS_BASE))?
        .comment
        .as_deref()
}

/// The 64-bit FNV-1a hash. Source: Fowler, Noll and Vo, offset basis and prime for 64 bits.
struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// The meaning of a program and the rules that its counters count for, as 16 digits, independent of rule numbers: two
/// classes with equal elements and equal fingerprints count for the same rules. The line of a rule in its source is
/// not included.
pub(crate) fn fingerprint(tables: &Tables, program: &Program) -> alloc::string::String {
    let mut hash = FingerprintHasher(0xcbf2_9ce4_8422_2325);
    for (protocol, map) in program.protocols() {
        protocol.hash(&mut hash);
        for (range, values) in map.segments() {
            (range.first, range.last).hash(&mut hash);
            for (range, cell) in values.segments() {
                (range.first, range.last).hash(&mut hash);
                hash_cell(tables, cell, &mut hash);
            }
        }
    }
    hash_cell(tables, program.default(), &mut hash);
    format!("{:016x}", hash.finish())
}

fn hash_cell(tables: &Tables, cell: &Cell, hash: &mut FingerprintHasher) {
    (cell.verdict, cell.causes.len()).hash(hash);
    if let Some(rules) = &cell.redirect {
        (6u8, rules).hash(hash);
    }
    if let Some(audit) = &cell.audit {
        (5u8, audit.direction, audit.verdict, audit.causes.len()).hash(hash);
    }
    for rule in cell.counted_rules() {
        match tables.rules.get(&rule).map(|cause| &**cause) {
            Some(VerdictCause::Rule {
                policy,
                direction,
                origin,
            }) => (
                1u8,
                policy,
                direction,
                origin.index,
                &origin.name,
                origin.fingerprint,
            )
                .hash(hash),
            Some(VerdictCause::ProfileRule {
                profile,
                direction,
                origin,
            }) => (
                2u8,
                profile,
                direction,
                origin.index,
                &origin.name,
                origin.fingerprint,
            )
                .hash(hash),
            Some(other) => (3u8, other).hash(hash),
            None => 4u8.hash(hash),
        }
    }
}

/// The counter of the packets of a cell.
fn cell_counter(location: CounterLocation, cell: &Cell) -> AttributedCounter {
    AttributedCounter {
        location,
        rules: cell.counted_rules().collect(),
        audit: cell.audit_comparison(),
    }
}

/// The counters that count for at least one rule, or are in audit.
pub(crate) fn to_attributed_counters(
    counters: Vec<AttributedCounter>,
) -> impl Iterator<Item = AttributedCounter> {
    let counters = counters.into_iter();
    counters.filter(|counter| !counter.rules.is_empty() || counter.audit.is_some())
}

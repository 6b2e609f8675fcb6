//! The program of a class or base, decoded from its elements and chains.
//!
//! Promises: `None` unless encoding the program again gives the same elements and chains.

use super::UNKNOWN_RULE;
use super::elements::{element_number, read_bytes};
use crate::content::{ClassContent, ClassForm, class_content, stored_fingerprint};
use crate::names::{
    CLASS_BASE, CLASS_DEFAULT, CODE_VERDICT, DROP_VERDICT, FIRST_BASE, ICMP, ICMP_RANGE,
    LAST_VERDICT, PORT, PORT_RANGE, PROTO,
};
use crate::skeleton::code_cell;
use crate::source_ports::{self, SourcePortChain};
use crate::{Config, Element, ElementKey};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::Protocol;
use palisade_tables::{Cell, PortMap, Program, RuleId, SourcePortMap};

/// What the elements of a program say so far.
#[derive(Default)]
struct ProgramParts {
    default: Option<Cell>,
    defaults: BTreeMap<Protocol, SourcePortMap>,
    /// By protocol and first port or ICMP number: the last one, and the value.
    entries: BTreeMap<Protocol, BTreeMap<u16, (u16, SourcePortMap)>>,
}

/// The values of elements: each cell gets a rule number of its own.
struct CellValues {
    last_rule: u32,
    /// The functions of the source port, by code.
    by_code: BTreeMap<u32, SourcePortMap>,
}

/// Decodes the program of a class or base, each cell with a rule number of its own, and returns the last
/// of these numbers. `base` is the class's base: its number, program and last rule number. `None` unless
/// encoding the program again gives the same elements and chains.
pub(super) fn decode_program(
    config: &Config,
    class: u32,
    content: &ClassContent,
    codes: &[u32],
    base: Option<(u32, &(Program, u32))>,
) -> Option<(Program, u32)> {
    let mut values = CellValues {
        last_rule: base.map_or(UNKNOWN_RULE, |(_, (_, last))| *last),
        by_code: BTreeMap::new(),
    };
    values.decode_chains(config, content)?;
    let mut parts = ProgramParts::default();
    for ((map, key), element) in &content.elements {
        parts.add_element(map, key, || values.get(element))?;
    }
    if let Some((_, (base, _))) = base {
        parts.add_base(base)?;
    }
    let program = parts.into_program()?;
    let fingerprint = stored_fingerprint(class, content).unwrap_or("");
    let form = match base {
        Some((number, (base, _))) => ClassForm::Refining(fingerprint, number, base),
        None if class >= FIRST_BASE => ClassForm::Base,
        None => ClassForm::Whole(fingerprint),
    };
    is_encoding(config, class, content, &program, codes, form)
        .then_some((program, values.last_rule))
}

impl CellValues {
    fn cell(&mut self, code: u32) -> Option<Cell> {
        self.last_rule += 1;
        let causes = [RuleId(self.last_rule)].into();
        Some(Cell {
            causes,
            ..code_cell(code)?
        })
    }

    fn decode_chains(&mut self, config: &Config, content: &ClassContent) -> Option<()> {
        for (name, chain) in &content.chains {
            let SourcePortChain {
                code,
                is_reply,
                is_dropping,
                ..
            } = SourcePortChain::parse(name)?;
            // The others follow from it, which encoding the program again shows.
            if !is_reply && !is_dropping {
                let rules = &chain.rules;
                let values = source_ports::decode(config, rules, &mut |code| self.cell(code))?;
                self.by_code.insert(code, values);
            }
        }
        Some(())
    }

    fn get(&mut self, element: &Element) -> Option<SourcePortMap> {
        Some(match element_number(element)? {
            code @ 1..=LAST_VERDICT => PortMap::constant(self.cell(code)?),
            code => self.by_code.get(&code)?.clone(),
        })
    }
}

impl ProgramParts {
    fn add_element(
        &mut self,
        map: &str,
        key: &ElementKey,
        value: impl FnOnce() -> Option<SourcePortMap>,
    ) -> Option<()> {
        match (map, key) {
            (CODE_VERDICT | DROP_VERDICT | CLASS_BASE, _) => {}
            (CLASS_DEFAULT, ElementKey::Exact(_)) => {
                self.default = Some(value()?.as_constant()?.clone());
            }
            (PROTO, ElementKey::Exact(bytes)) => {
                let [protocol] = read_bytes(bytes, 8)?;
                self.defaults.insert(Protocol(protocol), value()?);
            }
            (PORT | PORT_RANGE | ICMP | ICMP_RANGE, key) => {
                let (first, last) = match key {
                    ElementKey::Exact(bytes) => (bytes, bytes),
                    ElementKey::Range(first, last) => (first, last),
                    ElementKey::CatchAll => return None,
                };
                let [protocol] = read_bytes(first, 8)?;
                let number = |bytes: &[u8]| -> Option<u16> {
                    Some(match map {
                        PORT | PORT_RANGE => u16::from_be_bytes(read_bytes(bytes, 12)?),
                        _ => u16::from_be_bytes([*bytes.get(12)?, *bytes.get(16)?]),
                    })
                };
                let (first, last) = (number(first)?, number(last)?);
                let entries = self.entries.entry(Protocol(protocol)).or_default();
                let clash = entries.insert(first, (last, value()?));
                (clash.is_none() && first <= last).then_some(())?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Adds what a class has by its base; it has no defaults of its own.
    fn add_base(&mut self, base: &Program) -> Option<()> {
        (self.default.is_none() && self.defaults.is_empty()).then_some(())?;
        self.default = Some(base.default().clone());
        for (protocol, map) in base.protocols() {
            let default = if protocol.has_ports() || protocol.is_icmp() {
                map.default()
            } else {
                map.get(0)
            };
            self.defaults.insert(*protocol, default.clone());
            let entries = self.entries.entry(*protocol).or_default();
            for (range, values) in map.entries() {
                let clash = entries.insert(range.first, (range.last, values.clone()));
                clash.is_none().then_some(())?;
            }
        }
        for protocol in self.entries.keys() {
            let rest = || PortMap::constant(base.default().clone());
            self.defaults.entry(*protocol).or_insert_with(rest);
        }
        Some(())
    }

    fn into_program(mut self) -> Option<Program> {
        let mut protocols = BTreeMap::new();
        for (protocol, default) in &self.defaults {
            let entries = self.entries.remove(protocol).unwrap_or_default();
            let mut segments = Vec::new();
            for (first, (last, values)) in entries {
                if first > 0 {
                    segments.push((first - 1, default.clone()));
                }
                segments.push((last, values));
            }
            if segments.last().is_none_or(|(end, _)| *end < u16::MAX) {
                segments.push((u16::MAX, default.clone()));
            }
            protocols.insert(*protocol, PortMap::from_segments(segments)?);
        }
        self.entries
            .is_empty()
            .then_some(Program::new(protocols, self.default?))
    }
}

/// Whether a program is encoded as this content.
fn is_encoding(
    config: &Config,
    class: u32,
    content: &ClassContent,
    program: &Program,
    codes: &[u32],
    form: ClassForm<'_>,
) -> bool {
    let mut codes = codes.iter().copied();
    let mut encoded = class_content(config, class, program, form, &mut || {
        codes.next().unwrap_or_default()
    });
    encoded.chains.sort_by(|a, b| a.0.cmp(&b.0));
    let mut chains = content.chains.clone();
    chains.sort_by(|a, b| a.0.cmp(&b.0));
    encoded.elements == content.elements && encoded.chains == chains
}

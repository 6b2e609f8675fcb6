//! The chains that test the source port: what a packet of one class, protocol and destination gets by its source port.
//!
//! A function of the source port has a code, which leads to its chain; a second chain judges replies, where the port is
//! the destination port. If denials answer, both exist twice: for the hooks that can answer, and for those that drop.
//!
//! Promises: the name of a chain is its class and code, so that a table can be decoded. Never: decides by anything but
//! the port.

use crate::names::{LAST_VERDICT, SOURCE_PORT_PREFIX};
use crate::rule::RuleBuilder;
use crate::skeleton::{answering_verdict, cell_code, code_verdict};
use crate::{Chain, CmpOp, Config, Expr, NftFault, NftRule, PayloadBase, ct_state};
use alloc::format;
use alloc::vec::Vec;
use palisade_model::Str;
use palisade_tables::{Cell, PortMap, SourcePortMap};

const REPLY: &str = "_r";
const DROPPING: &str = "_d";

/// A source-port chain, as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourcePortChain {
    pub(crate) class: u32,
    pub(crate) code: u32,
    /// It judges replies, for the chain without this.
    pub(crate) is_reply: bool,
    /// Its denials drop although others answer.
    pub(crate) is_dropping: bool,
}

impl SourcePortChain {
    /// The chains of a code; each after those it leads to.
    pub(crate) fn all_of(config: &Config, class: u32, code: u32) -> impl Iterator<Item = Self> {
        let forms: &[bool] = if config.is_answering() {
            &[true, false]
        } else {
            &[false]
        };
        forms.iter().flat_map(move |is_dropping| {
            [true, false].map(|is_reply| SourcePortChain {
                class,
                code,
                is_reply,
                is_dropping: *is_dropping,
            })
        })
    }

    pub(crate) fn name(&self) -> Str {
        let reply = if self.is_reply { REPLY } else { "" };
        let dropping = if self.is_dropping { DROPPING } else { "" };
        let (class, code) = (self.class, self.code);
        format!("{SOURCE_PORT_PREFIX}{class}_{code}{reply}{dropping}").into()
    }

    /// The chain of this name; none if it is another's.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(SOURCE_PORT_PREFIX)?;
        let without = |rest, suffix| match str::strip_suffix(rest, suffix) {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let (rest, is_dropping) = without(rest, DROPPING);
        let (rest, is_reply) = without(rest, REPLY);
        let (class, code) = rest.split_once('_')?;
        let chain = SourcePortChain {
            class: class.parse().ok()?,
            code: code.parse().ok()?,
            is_reply,
            is_dropping,
        };
        (*chain.name() == *name && chain.code > LAST_VERDICT).then_some(chain)
    }

    /// The content of this chain: one rule per entry, then the rest; before them, what leads replies to their chain.
    pub(crate) fn content(&self, config: &Config, values: &SourcePortMap) -> Chain {
        let offset = if self.is_reply { 2 } else { 0 };
        let verdict = |cell| {
            if self.is_dropping {
                code_verdict(config, cell_code(cell))
            } else {
                answering_verdict(config, cell_code(cell))
            }
        };
        let tests = values.entries().iter().map(|(range, cell)| {
            let line = RuleBuilder::new()
                .payload(PayloadBase::Transport, offset, 2, 0)
                .cmp(0, CmpOp::Gte, &range.first.to_be_bytes())
                .cmp(0, CmpOp::Lte, &range.last.to_be_bytes());
            line.counter().verdict(verdict(cell))
        });
        let rest = RuleBuilder::new()
            .counter()
            .verdict(verdict(values.default()));
        let mut rules: Vec<NftRule> = tests.chain([rest]).collect();
        if NftFault::SourcePortOrderReversed.is_injected() {
            rules.reverse();
        }
        if !self.is_reply {
            let replies = SourcePortChain {
                is_reply: true,
                ..*self
            };
            let to_replies = RuleBuilder::new()
                .state(ct_state::ESTABLISHED)
                .reply()
                .goto(&replies.name());
            rules.insert(0, to_replies);
        }
        Chain {
            base_chain: None,
            rules,
        }
    }
}

/// The cells of a function of the source port, in the order of the rules of its chain.
pub(crate) fn cells(values: &SourcePortMap) -> impl Iterator<Item = &Cell> {
    let entries = values.entries().iter().map(|(_, cell)| cell);
    entries.chain([values.default()])
}

/// Decodes a function of the source port from its chain that answers: the first rule leads to the chain for replies.
pub(crate) fn decode(
    config: &Config,
    rules: &[NftRule],
    cell: &mut impl FnMut(u32) -> Option<Cell>,
) -> Option<SourcePortMap> {
    let (tests, rest) = rules
        .get(1..)?
        .split_at_checked(rules.len().checked_sub(2)?)?;
    let code = |rule: &NftRule| match rule.exprs.last()? {
        Expr::Verdict(verdict) => {
            (1..=LAST_VERDICT).find(|code| answering_verdict(config, *code) == *verdict)
        }
        _ => None,
    };
    let default = cell(code(rest.first()?)?)?;
    let mut segments = Vec::new();
    for rule in tests {
        let bound = |op| {
            rule.exprs.iter().find_map(|expr| match expr {
                Expr::Cmp {
                    op: operator,
                    value,
                    ..
                } if *operator == op => Some(u16::from_be_bytes(value.get(..2)?.try_into().ok()?)),
                _ => None,
            })
        };
        let (first, last) = (bound(CmpOp::Gte)?, bound(CmpOp::Lte)?);
        if first > 0 {
            segments.push((first - 1, default.clone()));
        }
        segments.push((last, cell(code(rule)?)?));
    }
    if segments.last().is_none_or(|(end, _)| *end < u16::MAX) {
        segments.push((u16::MAX, default));
    }
    PortMap::from_segments(segments)
}

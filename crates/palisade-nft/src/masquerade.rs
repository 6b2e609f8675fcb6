//! The masquerade table, which replaces the workloads' source addresses by the host's, as a value, and its
//! update from whatever the kernel holds.
//!
//! It is a separate table: NAT decides no verdicts, so neither the policy table nor this one is rebuilt
//! because of the other. Its elements are the workloads' addresses; other addresses are not translated. No
//! step needs a grace period: a packet in flight is translated as it was a moment before.

use crate::names::address_bytes;
use crate::rule::{RuleBuilder, chain};
use crate::{
    BaseChain, ChainPolicy, ChainType, CmpOp, Element, ElementKey, Expr, FieldType, Hook, MetaKey,
    NftRule, NftSet, Op, PayloadBase, Ruleset, SetDecl, Transaction, TxStep,
};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use palisade_model::{Family, NumberRange, Prefix, RangeSet, Str, address_from_number};
use palisade_tables::Phase;

/// The comment of the table. The number changes whenever the fixed part's meaning does.
const SCHEMA: &str = "palisade masquerade 1";
/// The priority of source NAT (`NF_IP_PRI_NAT_SRC`).
const SOURCE_NAT: i32 = 100;

/// The addresses that are masqueraded, and the exempt destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masquerade {
    /// The policy table's name, from which this table's is derived.
    pub table: Str,
    /// Prefix of the names of our interfaces: packets that leave by one are not translated.
    pub interface_prefix: Str,
    /// Destinations that see the workloads' own addresses.
    pub exempt_prefixes: Vec<Prefix>,
    /// The workload addresses that are masqueraded.
    pub addresses: BTreeSet<IpAddr>,
}

impl Masquerade {
    /// The name of the masquerade table.
    pub fn table_name(&self) -> Str {
        format!("{}_nat", self.table).as_str().into()
    }

    /// The whole table, with these table flags.
    pub fn ruleset(&self, flags: u32) -> Ruleset {
        let mut ruleset = Ruleset::empty(self.table_name());
        ruleset.comment = Some(SCHEMA.into());
        ruleset.flags = flags;
        for family in Family::BOTH {
            let field = match family {
                Family::V4 => FieldType::Ipv4,
                Family::V6 => FieldType::Ipv6,
            };
            let decl = |interval| SetDecl {
                key: vec![field],
                value_type: None,
                interval,
                counter: false,
                size: None,
                unknown: None,
            };
            let of_family = self.addresses.iter().filter(|a| Family::of(**a) == family);
            let sources = of_family.map(|a| ElementKey::Exact(address_bytes(*a)));
            let exempt = exempt_ranges(family, &self.exempt_prefixes);
            for (name, interval, keys) in [
                (source_set_name(family), false, sources.collect()),
                (exempt_set_name(family), true, exempt.collect::<Vec<_>>()),
            ] {
                let keys = keys.into_iter();
                let set = NftSet {
                    decl: decl(interval),
                    elements: keys.map(|key| (key, Element::default())).collect(),
                };
                ruleset.sets.insert(name.into(), set);
            }
        }
        let base = BaseChain {
            hook: Hook::Postrouting,
            priority: SOURCE_NAT,
            policy: ChainPolicy::Accept,
            chain_type: ChainType::Nat,
        };
        let rules = Family::BOTH.map(|family| self.rule(family));
        let (name, chain) = chain("p_outside", Some(base), rules.into());
        ruleset.chains.insert(name, chain);
        ruleset
    }

    fn rule(&self, family: Family) -> NftRule {
        let (source, destination, len) = match family {
            Family::V4 => (12, 16, 4),
            Family::V6 => (8, 24, 16),
        };
        RuleBuilder::new()
            .family(family)
            .payload(PayloadBase::Network, source, len, 0)
            .in_set(source_set_name(family), 0)
            .interface_prefix(MetaKey::OifName, CmpOp::Neq, &self.interface_prefix)
            .payload(PayloadBase::Network, destination, len, 0)
            .not_in_set(exempt_set_name(family), 0)
            .counter()
            .push(Expr::Masquerade)
            .build()
    }

    /// Plans the update of the kernel's table: the elements that differ, or the whole table if anything else
    /// differs, its flags included. Empty if nothing differs.
    pub fn plan(&self, observed: Option<&Ruleset>, flags: u32) -> Transaction {
        let wanted = self.ruleset(flags);
        let mut ops = Vec::new();
        match observed {
            Some(observed) if has_same_layout(observed, &wanted) => {
                for (name, set) in &wanted.sets {
                    let installed = observed.sets.get(name).map(|set| &set.elements);
                    let stale = installed.into_iter().flatten();
                    let stale = stale.filter(|(key, _)| !set.elements.contains_key(key));
                    ops.extend(stale.map(|(key, _)| Op::DeleteElement {
                        set: name.clone(),
                        key: key.clone(),
                    }));
                    let is_there = |key: &&ElementKey| {
                        installed.is_some_and(|elements| elements.contains_key(key))
                    };
                    let new = set.elements.keys().filter(|key| !is_there(key));
                    ops.extend(new.map(|key| add_element(name, key)));
                }
            }
            _ => {
                ops.extend(observed.map(|_| Op::DeleteTable));
                ops.push(Op::AddTable {
                    comment: wanted.comment.clone(),
                    flags,
                });
                for (name, set) in &wanted.sets {
                    ops.push(Op::AddSet {
                        set: name.clone(),
                        decl: set.decl.clone(),
                    });
                    ops.extend(set.elements.keys().map(|key| add_element(name, key)));
                }
                for (name, chain) in wanted.chains {
                    crate::edit_batch::push_chain(&mut ops, name, chain);
                }
            }
        }
        transaction(self.table_name(), ops)
    }

    /// Plans the removal of the table.
    pub fn plan_removal(&self) -> Transaction {
        transaction(self.table_name(), vec![Op::DeleteTable])
    }
}

/// The addresses that a table in the kernel masquerades.
pub fn masqueraded_addresses(observed: &Ruleset) -> BTreeSet<IpAddr> {
    let mut addresses = BTreeSet::new();
    for family in Family::BOTH {
        let set = observed.sets.get(source_set_name(family));
        for key in set.into_iter().flat_map(|set| set.elements.keys()) {
            if let ElementKey::Exact(bytes) = key {
                let v4 = || Some(IpAddr::from(<[u8; 4]>::try_from(&**bytes).ok()?));
                let v6 = || Some(IpAddr::from(<[u8; 16]>::try_from(&**bytes).ok()?));
                addresses.extend(v4().or_else(v6));
            }
        }
    }
    addresses
}

fn source_set_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "p_from4",
        Family::V6 => "p_from6",
    }
}

fn exempt_set_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "p_near4",
        Family::V6 => "p_near6",
    }
}

fn add_element(set: &Str, key: &ElementKey) -> Op {
    Op::AddElement {
        set: set.clone(),
        key: key.clone(),
        element: Element::default(),
    }
}

fn transaction(table: Str, ops: Vec<Op>) -> Transaction {
    let step = TxStep {
        phase: Phase::Loosen,
        retiring_counters: Vec::new(),
        ops,
        needs_grace_period: false,
    };
    Transaction::new(
        table,
        if step.ops.is_empty() {
            Vec::new()
        } else {
            vec![step]
        },
    )
}

/// Whether two tables are equal apart from elements and counters.
fn has_same_layout(observed: &Ruleset, wanted: &Ruleset) -> bool {
    let bare = |ruleset: &Ruleset| {
        let mut bare = ruleset.clone().without_counts();
        bare.sets.values_mut().for_each(|s| s.elements.clear());
        bare
    };
    bare(observed) == bare(wanted)
}

/// These prefixes of a family, and the link-local, multicast and reserved ones, as ranges that neither
/// overlap nor touch.
fn exempt_ranges(family: Family, prefixes: &[Prefix]) -> impl Iterator<Item = ElementKey> {
    let link_prefixes: [(IpAddr, u8); 4] = [
        (Ipv4Addr::new(169, 254, 0, 0).into(), 16),
        (Ipv4Addr::new(224, 0, 0, 0).into(), 3),
        (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10),
        (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8),
    ];
    let link = link_prefixes.map(|(address, length)| Prefix::new(address, length));
    let all = prefixes.iter().copied().chain(link);
    let of_family = all.filter(|prefix| prefix.family() == family);
    let merged: RangeSet<u128> = of_family.map(NumberRange::from).collect();
    let bytes = move |number| address_bytes(address_from_number(family, number));
    let ranges = merged.ranges().to_vec().into_iter();
    ranges.map(move |range| ElementKey::Range(bytes(range.first), bytes(range.last)))
}

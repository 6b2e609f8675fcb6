//! Prints rulesets and transactions for people and tests, close to nft's syntax.
//!
//! nft's language has no syntax for rules that carry values from one map to the next in registers, so
//! expressions are printed with their registers: `r9 = r0 map @p_id4`.

use crate::names::number_from_bytes;
use crate::{
    BaseChain, ChainType, CtKey, Element, ElementKey, Expr, FieldType, LookupMode, MapValue,
    MapValueType, RejectAnswer,
};
use crate::{CounterValue, NftRule, NftVerdict, Op, Ruleset, SetDecl, Transaction};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::IpAddr;
use palisade_model::{Family, NumberRange, Str};

/// Prints a whole table.
pub fn print_ruleset(ruleset: &Ruleset) -> String {
    let mut out = format!("table inet {} {{", ruleset.table);
    push_comment(&mut out, ruleset.comment.as_ref());
    out.push('\n');
    for (name, set) in &ruleset.sets {
        push_line(&mut out, 1, &format!("{} {{", set_header(name, &set.decl)));
        for (key, element) in &set.elements {
            push_line(&mut out, 2, &element_text(&set.decl, key, element));
        }
        push_line(&mut out, 1, "}");
    }
    for (name, chain) in &ruleset.chains {
        push_line(&mut out, 1, &format!("chain {name} {{"));
        if let Some(base) = &chain.base_chain {
            push_line(&mut out, 2, &base_text(base));
        }
        for rule in &chain.rules {
            push_line(&mut out, 2, &rule_text(rule));
        }
        push_line(&mut out, 1, "}");
    }
    for foreign in &ruleset.foreign {
        push_line(&mut out, 1, &format!("# {foreign}"));
    }
    out.push_str("}\n");
    out
}

/// Prints a transaction, step by step. `decl` returns the declarations of existing sets.
pub fn print_transaction(
    transaction: &Transaction,
    decl: impl Fn(&str) -> Option<SetDecl>,
) -> String {
    let mut added_sets: BTreeMap<&Str, &SetDecl> = BTreeMap::new();
    let mut out = String::new();
    let table = &transaction.table;
    for step in &transaction.steps {
        let waits = if step.needs_grace_period {
            ""
        } else {
            " without a grace period"
        };
        push_line(&mut out, 0, &format!("step {:?}{waits} {{", step.phase));
        for harvest in &step.retiring_counters {
            let rules: Vec<String> = harvest.rules.iter().map(ToString::to_string).collect();
            let location = match &harvest.location {
                crate::CounterLocation::Element { set, key } => {
                    let set_decl = added_sets.get(set).copied().cloned().or_else(|| decl(set));
                    format!("{set} {}", key_or_bytes(set_decl.as_ref(), key))
                }
                crate::CounterLocation::Rule { chain, index } => format!("{chain} rule {index}"),
            };
            push_line(
                &mut out,
                1,
                &format!("read counter {location} of rules {}", rules.join(" ")),
            );
        }
        for op in &step.ops {
            if let Op::AddSet { set, decl } = op {
                added_sets.insert(set, decl);
            }
            let set_decl = |set: &Str| added_sets.get(set).copied().cloned().or_else(|| decl(set));
            push_line(&mut out, 1, &op_text(table, op, set_decl));
        }
        push_line(&mut out, 0, "}");
    }
    out
}

fn op_text(table: &str, op: &Op, decl: impl Fn(&Str) -> Option<SetDecl>) -> String {
    match op {
        Op::AddTable {
            comment: text,
            flags,
        } => {
            let mut out = format!("create table inet {table}");
            if *flags == crate::table_flag::OWNED {
                out.push_str(" flags owner,persist");
            }
            push_comment(&mut out, text.as_ref());
            out
        }
        Op::DeleteTable => format!("delete table inet {table}"),
        Op::AddSet { set, decl } => format!("create {} }}", set_header(set, decl)),
        Op::DeleteSet { set } => format!("delete set {set}"),
        Op::AddChain {
            chain,
            base_chain: base,
        } => match base {
            Some(base) => format!("create chain {chain} {{ {} }}", base_text(base)),
            None => format!("create chain {chain}"),
        },
        Op::DeleteChain { chain } => format!("delete chain {chain}"),
        Op::AddRule { chain, rule } => format!("add rule {chain} {}", rule_text(rule)),
        Op::FlushChain { chain } => format!("flush chain {chain}"),
        Op::AddElement { set, key, element } => match decl(set) {
            Some(decl) => {
                let text = element_text(&decl, key, element);
                format!("create element {set} {{ {text} }}")
            }
            None => format!("create element {set} {{ {} }}", key_or_bytes(None, key)),
        },
        Op::DeleteElement { set, key } => {
            let text = key_or_bytes(decl(set).as_ref(), key);
            format!("delete element {set} {{ {text} }}")
        }
    }
}

fn push_line(out: &mut String, indent: usize, text: &str) {
    for _ in 0..indent {
        out.push('\t');
    }
    out.push_str(text);
    out.push('\n');
}

fn push_comment(out: &mut String, comment: Option<&Str>) {
    if let Some(comment) = comment {
        // Writing to a string cannot fail.
        let _ = write!(out, " comment \"{comment}\"");
    }
}

fn set_header(name: &str, decl: &SetDecl) -> String {
    let kind = if decl.value_type.is_some() {
        "map"
    } else {
        "set"
    };
    let fields: Vec<&str> = decl.key.iter().map(|field| field.name()).collect();
    let mut out = format!("{kind} {name} {{ type {}", fields.join(" . "));
    match decl.value_type {
        Some(MapValueType::Verdict) => out.push_str(" : verdict"),
        Some(MapValueType::Value(field)) => {
            out.push_str(" : ");
            out.push_str(field.name());
        }
        None => {}
    }
    if decl.interval {
        out.push_str("; flags interval");
    }
    if decl.counter {
        out.push_str("; counter");
    }
    if let Some(size) = decl.size {
        let _ = write!(out, "; size {size}");
    }
    if let Some(unknown) = &decl.unknown {
        let _ = write!(out, "; # {unknown}");
    }
    out
}

fn value_text(field: FieldType, bytes: &[u8]) -> String {
    let text = match field {
        FieldType::IfName => core::str::from_utf8(bytes)
            .ok()
            .map(|name| format!("\"{}\"", name.trim_end_matches('\0'))),
        FieldType::Ipv4 => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|a| IpAddr::from(a).to_string()),
        FieldType::Ipv6 => <[u8; 16]>::try_from(bytes)
            .ok()
            .map(|a| IpAddr::from(a).to_string()),
        FieldType::Mark | FieldType::CtState => number_from_bytes(bytes).map(|n| n.to_string()),
        FieldType::Port => <[u8; 2]>::try_from(bytes)
            .ok()
            .map(|port| u16::from_be_bytes(port).to_string()),
        FieldType::Proto => match bytes {
            [6] => Some("tcp".into()),
            [17] => Some("udp".into()),
            [132] => Some("sctp".into()),
            [1] => Some("icmp".into()),
            [58] => Some("ipv6-icmp".into()),
            [other] => Some(other.to_string()),
            _ => None,
        },
        FieldType::IcmpType | FieldType::IcmpCode | FieldType::CtDirection | FieldType::NfProto => {
            match bytes {
                [byte] => Some(byte.to_string()),
                _ => None,
            }
        }
        FieldType::Unknown { .. } => None,
    };
    text.unwrap_or_else(|| hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::from("0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn key_or_bytes(decl: Option<&SetDecl>, key: &ElementKey) -> String {
    match (decl, key) {
        (Some(decl), key) => key_text(decl, key),
        (None, ElementKey::Exact(bytes)) => hex(bytes),
        (None, ElementKey::Range(first, last)) => format!("{}-{}", hex(first), hex(last)),
        (None, ElementKey::CatchAll) => "*".into(),
    }
}

fn key_text(decl: &SetDecl, key: &ElementKey) -> String {
    let (first, last) = match key {
        ElementKey::CatchAll => return "*".into(),
        ElementKey::Exact(bytes) => (bytes, bytes),
        ElementKey::Range(first, last) => (first, last),
    };
    let mut fields = Vec::new();
    for (field, (at, len)) in decl.key.iter().zip(decl.fields()) {
        let part = |bytes: &[u8]| bytes.get(at..at + len).map(<[u8]>::to_vec);
        let (Some(first), Some(last)) = (part(first), part(last)) else {
            return hex(first);
        };
        let (a, b) = (value_text(*field, &first), value_text(*field, &last));
        fields.push(if first == last {
            a
        } else {
            range_as_prefix(*field, &first, &last).unwrap_or_else(|| format!("{a}-{b}"))
        });
    }
    fields.join(" . ")
}

/// A range of addresses as a prefix, if it is one.
fn range_as_prefix(field: FieldType, first: &[u8], last: &[u8]) -> Option<String> {
    let number = |bytes: &[u8]| match field {
        FieldType::Ipv4 => Some(u32::from_be_bytes(bytes.try_into().ok()?).into()),
        FieldType::Ipv6 => Some(u128::from_be_bytes(bytes.try_into().ok()?)),
        _ => None,
    };
    let family = match field {
        FieldType::Ipv4 => Family::V4,
        _ => Family::V6,
    };
    let range = NumberRange::new(number(first)?, number(last)?)?;
    let mut prefixes = range.prefixes(family);
    let prefix = prefixes.next()?;
    prefixes.next().is_none().then(|| prefix.to_string())
}

fn element_text(decl: &SetDecl, key: &ElementKey, element: &Element) -> String {
    let mut out = key_text(decl, key);
    if let Some(count) = element.counter {
        out.push_str(&count_text(count));
    }
    push_comment(&mut out, element.comment.as_ref());
    match (&element.data, &decl.value_type) {
        (Some(MapValue::Value(value)), Some(MapValueType::Value(field))) => {
            let _ = write!(out, " : {}", value_text(*field, value));
        }
        (Some(MapValue::Value(value)), _) => {
            let _ = write!(out, " : {}", hex(value));
        }
        (Some(MapValue::Verdict(verdict)), _) => {
            let _ = write!(out, " : {}", verdict_text(verdict));
        }
        (None, _) => {}
    }
    out
}

fn count_text(count: CounterValue) -> String {
    match count {
        CounterValue {
            packets: 0,
            bytes: 0,
        } => " counter".into(),
        CounterValue { packets, bytes } => format!(" counter packets {packets} bytes {bytes}"),
    }
}

fn verdict_text(verdict: &NftVerdict) -> String {
    match verdict {
        NftVerdict::Accept => "accept".into(),
        NftVerdict::Drop => "drop".into(),
        NftVerdict::Return => "return".into(),
        NftVerdict::Continue => "continue".into(),
        NftVerdict::Jump(chain) => format!("jump {chain}"),
        NftVerdict::Goto(chain) => format!("goto {chain}"),
    }
}

fn base_text(base: &BaseChain) -> String {
    let (hook, policy) = (base.hook.word(), base.policy.word());
    let kind = match base.chain_type {
        ChainType::Filter => "filter",
        ChainType::Nat => "nat",
        ChainType::Route => "route",
        ChainType::Other => "other",
    };
    let priority = base.priority;
    format!("type {kind} hook {hook} priority {priority}; policy {policy};")
}

fn rule_text(rule: &NftRule) -> String {
    let mut parts: Vec<String> = rule.exprs.iter().map(expr_text).collect();
    if let Some(comment) = &rule.comment {
        parts.push(format!("comment \"{comment}\""));
    }
    parts.join(" ; ")
}

fn expr_text(expr: &Expr) -> String {
    match expr {
        Expr::Meta { key, dreg } => {
            format!("r{} = {}", dreg.0, key.word())
        }
        Expr::Payload {
            base,
            offset,
            len,
            dreg,
        } => {
            let base = base.word();
            format!("r{} = @{base},{},{}", dreg.0, offset * 8, len * 8)
        }
        Expr::CtLoad { key, dreg } => format!("r{} = ct {}", dreg.0, key.word()),
        Expr::MetaSet { sreg, .. } => format!("mark = r{}", sreg.0),
        Expr::CtSet {
            key: CtKey::Zone,
            sreg,
        } => format!("ct original zone = r{}", sreg.0),
        Expr::CtSet { key, sreg } => format!("ct {} = r{}", key.word(), sreg.0),
        Expr::Bitwise {
            sreg,
            dreg,
            mask,
            xor,
        } => {
            let (mask, xor) = (hex(mask), hex(xor));
            format!("r{} = r{} & {mask} ^ {xor}", dreg.0, sreg.0)
        }
        Expr::Cmp { sreg, op, value } => {
            format!("r{} {} {}", sreg.0, op.word(), hex(value))
        }
        Expr::Lookup {
            set,
            sreg,
            mode: to,
        } => match to {
            LookupMode::Member => format!("r{} @{set}", sreg.0),
            LookupMode::NotMember => format!("r{} != @{set}", sreg.0),
            LookupMode::Register(dreg) => format!("r{} = r{} map @{set}", dreg.0, sreg.0),
            LookupMode::Verdict => format!("r{} vmap @{set}", sreg.0),
        },
        Expr::Immediate { dreg, value } => format!("r{} = {}", dreg.0, hex(value)),
        Expr::Counter(count) => count_text(*count).trim_start().into(),
        Expr::Limit { rate, burst } => format!("limit rate {rate}/second burst {burst} packets"),
        Expr::Log { group, prefix } => format!("log prefix \"{prefix}\" group {group}"),
        Expr::Masquerade => "masquerade".into(),
        Expr::Notrack => "notrack".into(),
        Expr::Tproxy {
            family,
            address,
            port,
        } => {
            let word = match family {
                Family::V4 => "ip",
                Family::V6 => "ip6",
            };
            format!("tproxy {word} to r{}:r{}", address.0, port.0)
        }
        Expr::Reject(RejectAnswer::TcpReset) => "reject with tcp reset".into(),
        Expr::Reject(RejectAnswer::AdminProhibited) => {
            "reject with icmpx type admin-prohibited".into()
        }
        Expr::Verdict(verdict) => verdict_text(verdict),
        Expr::Unknown(name) => format!("# {name}"),
    }
}

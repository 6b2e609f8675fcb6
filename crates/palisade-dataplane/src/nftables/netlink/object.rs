//! Encodes and decodes tables, chains and rules.
//!
//! Promises: what is written is read back equal, apart from counter values. Never: uses kernel handles;
//! objects are identified by name, rules by their position.

use palisade_model::Str;
use palisade_nft::{BaseChain, Chain, ChainPolicy, ChainType, Expr, Hook, NftRule};
use palisade_sys::netlink::{AttrWriter, Attrs, WireError};
use palisade_sys::nfnetlink::nf_tables::*;

use super::expr;
use super::userdata;

pub(super) fn write_table(w: &mut AttrWriter<'_>, table: &str, comment: Option<&str>, flags: u32) {
    w.text(NFTA_TABLE_NAME, table).be32(NFTA_TABLE_FLAGS, flags);
    if let Some(comment) = comment {
        w.bytes(NFTA_TABLE_USERDATA, &userdata::comment(comment));
    }
}

/// Decodes the comment and flags of a table.
pub(super) fn read_table(attrs: &Attrs<'_>) -> Result<(Option<Str>, u32), WireError> {
    let comment = attrs
        .find(NFTA_TABLE_USERDATA)?
        .and_then(|data| userdata::read_comment(data.payload));
    let flags = match attrs.find(NFTA_TABLE_FLAGS)? {
        Some(flags) => flags.be32()?,
        None => 0,
    };
    Ok((comment, flags))
}

pub(super) fn write_chain(
    w: &mut AttrWriter<'_>,
    table: &str,
    chain: &str,
    base: Option<&BaseChain>,
) {
    w.text(NFTA_CHAIN_TABLE, table).text(NFTA_CHAIN_NAME, chain);
    if let Some(base) = base {
        w.nest(NFTA_CHAIN_HOOK, |w| {
            w.be32(NFTA_HOOK_HOOKNUM, base.hook.number())
                .be32(NFTA_HOOK_PRIORITY, base.priority.cast_unsigned());
        })
        .be32(NFTA_CHAIN_POLICY, base.policy.number())
        .text(
            NFTA_CHAIN_TYPE,
            match base.chain_type {
                ChainType::Nat => "nat",
                ChainType::Route => "route",
                ChainType::Filter | ChainType::Other => "filter",
            },
        );
    }
}

/// Decodes the name and declaration of a chain; an error for a base chain that is not understood.
pub(super) fn read_chain(attrs: &Attrs<'_>) -> Result<(Str, Chain), WireError> {
    let name = attrs.require(NFTA_CHAIN_NAME, "chain")?.text()?.into();
    let base = match attrs.find(NFTA_CHAIN_HOOK)? {
        None => None,
        Some(hook) => {
            let hook = hook.nested();
            let number = hook.require(NFTA_HOOK_HOOKNUM, "hook")?.be32()?;
            let policy = attrs.find(NFTA_CHAIN_POLICY)?;
            let policy = policy.map(|policy| policy.be32()).transpose()?;
            let kind = attrs.require(NFTA_CHAIN_TYPE, "chain")?.text()?;
            Some(BaseChain {
                hook: Hook::from_number(number).ok_or(WireError::Unknown {
                    what: "hook",
                    value: number.into(),
                })?,
                priority: hook
                    .require(NFTA_HOOK_PRIORITY, "hook")?
                    .be32()?
                    .cast_signed(),
                policy: policy
                    .and_then(ChainPolicy::from_number)
                    .unwrap_or(ChainPolicy::Accept),
                chain_type: match kind {
                    "filter" => ChainType::Filter,
                    "nat" => ChainType::Nat,
                    "route" => ChainType::Route,
                    _ => ChainType::Other,
                },
            })
        }
    };
    Ok((
        name,
        Chain {
            base_chain: base,
            rules: Vec::new(),
        },
    ))
}

pub(super) fn write_rule(w: &mut AttrWriter<'_>, table: &str, chain: &str, rule: &NftRule) {
    w.text(NFTA_RULE_TABLE, table)
        .text(NFTA_RULE_CHAIN, chain)
        .nest(NFTA_RULE_EXPRESSIONS, |w| {
            for expr in &rule.exprs {
                w.nest(NFTA_LIST_ELEM, |w| expr::write(w, expr));
            }
        });
    if let Some(comment) = &rule.comment {
        w.bytes(NFTA_RULE_USERDATA, &userdata::comment(comment));
    }
}

/// A rule and the name of its chain.
pub(super) fn read_rule(attrs: &Attrs<'_>) -> Result<(Str, NftRule), WireError> {
    let chain = attrs.require(NFTA_RULE_CHAIN, "rule")?.text()?.into();
    let mut exprs = Vec::new();
    if let Some(list) = attrs.find(NFTA_RULE_EXPRESSIONS)? {
        for entry in list.nested() {
            exprs.push(expr::read(&entry?.nested())?);
        }
    }
    if attrs.find(NFTA_RULE_COMPAT)?.is_some() {
        exprs.push(Expr::Unknown("compat".into()));
    }
    let comment = attrs
        .find(NFTA_RULE_USERDATA)?
        .and_then(|data| userdata::read_comment(data.payload));
    Ok((chain, NftRule { exprs, comment }))
}

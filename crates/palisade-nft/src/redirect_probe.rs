//! Whether a kernel can redirect packets: operations that use all that a redirect needs, and leave nothing.
//!
//! Promises: a kernel that executes them can redirect. Never: touches a table that enforces.

use crate::rule::RuleBuilder;
use crate::{
    BaseChain, ChainPolicy, ChainType, CmpOp, CtKey, Expr, Hook, MetaKey, NftRule, Op, Reg,
};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use palisade_model::Family;

/// The operations, in one table of their own that is deleted in the same transaction.
pub fn redirect_probe() -> Vec<Op> {
    let mut operations = vec![Op::AddTable {
        comment: None,
        flags: 0,
    }];
    let mut add = |chain: &str, hook, priority, chain_type, rules: Vec<Vec<Expr>>| {
        operations.push(Op::AddChain {
            chain: chain.into(),
            base_chain: Some(BaseChain {
                hook,
                priority,
                policy: ChainPolicy::Accept,
                chain_type,
            }),
        });
        operations.extend(rules.into_iter().map(|exprs| Op::AddRule {
            chain: chain.into(),
            rule: NftRule {
                exprs,
                comment: None,
            },
        }));
    };
    let listeners = Family::BOTH.map(tproxy).into();
    add(
        "redirect",
        Hook::Prerouting,
        -90,
        ChainType::Filter,
        listeners,
    );
    let zone = RuleBuilder::new().immediate(0, &1_u16.to_ne_bytes());
    let zone = zone.push(Expr::CtSet {
        key: CtKey::Zone,
        sreg: Reg(0),
    });
    let zone = vec![zone.build().exprs];
    add("zone", Hook::Output, -290, ChainType::Filter, zone);
    add("route", Hook::Output, -150, ChainType::Route, Vec::new());
    add("nat", Hook::Postrouting, 100, ChainType::Nat, Vec::new());
    operations.push(Op::DeleteTable);
    operations
}

/// A rule that gives TCP of a family to a listener.
fn tproxy(family: Family) -> Vec<Expr> {
    const PORT: Reg = Reg(8);
    const ADDRESS: Reg = Reg(4);
    let address = match family {
        Family::V4 => Ipv4Addr::LOCALHOST.octets().to_vec(),
        Family::V6 => Ipv6Addr::LOCALHOST.octets().to_vec(),
    };
    let line = RuleBuilder::new().family(family);
    let line = line
        .meta(MetaKey::L4Proto, 0)
        .cmp(0, CmpOp::Eq, &[6])
        .immediate(ADDRESS.0, &address)
        .immediate(PORT.0, &[0, 53]);
    line.push(Expr::Tproxy {
        family,
        address: ADDRESS,
        port: PORT,
    })
    .build()
    .exprs
}

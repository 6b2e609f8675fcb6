//! Whether a kernel can redirect packets: operations that use all that a redirect needs, and leave nothing.
//!
//! Promises: a kernel that executes them can redirect. Never: touches a table that enforces.

use crate::{BaseChain, ChainPolicy, ChainType, Expr, Hook, NftRule, Op, Reg, SocketKey};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use palisade_model::Family;

/// The operations, in one table of their own that is deleted in the same transaction.
pub fn redirect_probe() -> Vec<Op> {
    let chain = || "redirect".into();
    let rule = |exprs| Op::AddRule {
        chain: chain(),
        rule: NftRule {
            exprs,
            comment: None,
        },
    };
    let socket = vec![
        Expr::Socket {
            key: SocketKey::Mark,
            dreg: Reg(0),
        },
        Expr::Notrack,
    ];
    let mut operations = vec![
        Op::AddTable {
            comment: None,
            flags: 0,
        },
        Op::AddChain {
            chain: chain(),
            base_chain: Some(BaseChain {
                hook: Hook::Prerouting,
                priority: 0,
                policy: ChainPolicy::Accept,
                chain_type: ChainType::Filter,
            }),
        },
        rule(socket),
    ];
    operations.extend(Family::BOTH.map(|family| rule(tproxy(family))));
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
    let line = crate::rule::RuleBuilder::new().family(family);
    let line = line
        .meta(crate::MetaKey::L4Proto, 0)
        .cmp(0, crate::CmpOp::Eq, &[6])
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

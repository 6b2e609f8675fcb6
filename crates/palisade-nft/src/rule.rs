//! A builder of rules: matches in order, then what the rule does. It decides nothing about policy.

use crate::names::interface_name;
use crate::{
    BaseChain, Chain, CmpOp, CounterValue, CtKey, Expr, LookupMode, MetaKey, PayloadBase, Reg,
};
use crate::{NftRule, NftVerdict, ct_status};
use alloc::vec::Vec;
use palisade_model::{Family, Protocol, Str};

/// A rule being built: each method appends one or two expressions.
#[derive(Default)]
pub(crate) struct RuleBuilder(Vec<Expr>);

impl RuleBuilder {
    pub(crate) fn new() -> Self {
        RuleBuilder::default()
    }

    pub(crate) fn push(mut self, expr: Expr) -> Self {
        self.0.push(expr);
        self
    }

    pub(crate) fn meta(self, key: MetaKey, to: u8) -> Self {
        self.push(Expr::Meta { key, dreg: Reg(to) })
    }

    pub(crate) fn payload(self, base: PayloadBase, offset: u32, len: u32, to: u8) -> Self {
        let dreg = Reg(to);
        self.push(Expr::Payload {
            base,
            offset,
            len,
            dreg,
        })
    }

    pub(crate) fn ct(self, key: CtKey, to: u8) -> Self {
        self.push(Expr::CtLoad { key, dreg: Reg(to) })
    }

    pub(crate) fn bitwise(self, at: u8, mask: &[u8], xor: &[u8]) -> Self {
        self.push(Expr::Bitwise {
            sreg: Reg(at),
            dreg: Reg(at),
            mask: mask.into(),
            xor: xor.into(),
        })
    }

    pub(crate) fn cmp(self, from: u8, op: CmpOp, value: &[u8]) -> Self {
        let (sreg, value) = (Reg(from), value.into());
        self.push(Expr::Cmp { sreg, op, value })
    }

    fn lookup(self, set: &str, from: u8, to: LookupMode) -> Self {
        let (set, sreg) = (set.into(), Reg(from));
        self.push(Expr::Lookup {
            set,
            sreg,
            mode: to,
        })
    }

    /// Continues only if the key is in the set.
    pub(crate) fn in_set(self, set: &str, from: u8) -> Self {
        self.lookup(set, from, LookupMode::Member)
    }

    /// Continues only if the key is not in the set.
    pub(crate) fn not_in_set(self, set: &str, from: u8) -> Self {
        self.lookup(set, from, LookupMode::NotMember)
    }

    /// Loads the map's value for the key.
    pub(crate) fn map_lookup(self, set: &str, from: u8, to: u8) -> Self {
        self.lookup(set, from, LookupMode::Register(Reg(to)))
    }

    /// Loads this number of zero bytes.
    pub(crate) fn zeros(self, to: u8, bytes: usize) -> Self {
        let (dreg, value) = (Reg(to), alloc::vec![0; bytes].into());
        self.push(Expr::Immediate { dreg, value })
    }

    /// Loads these bytes.
    pub(crate) fn immediate(self, to: u8, value: &[u8]) -> Self {
        let (dreg, value) = (Reg(to), value.into());
        self.push(Expr::Immediate { dreg, value })
    }

    /// Executes the map's verdict for the key; `continue` continues the rule.
    pub(crate) fn verdict_lookup(self, set: &str, from: u8) -> Self {
        self.lookup(set, from, LookupMode::Verdict)
    }

    pub(crate) fn counter(self) -> Self {
        self.push(Expr::Counter(CounterValue::default()))
    }

    /// Continues only for packets of this family.
    pub(crate) fn family(self, family: Family) -> Self {
        let number = family_number(family);
        self.meta(MetaKey::NfProto, 0).cmp(0, CmpOp::Eq, &[number])
    }

    /// Continues only if the connection's state is one of these.
    pub(crate) fn state(self, states: u32) -> Self {
        self.ct(CtKey::State, 0)
            .bitwise(0, &states.to_ne_bytes(), &[0; 4])
            .cmp(0, CmpOp::Neq, &[0; 4])
    }

    /// Continues only for packets in the reply direction of their connection.
    pub(crate) fn reply(self) -> Self {
        self.ct(CtKey::Direction, 0).cmp(0, CmpOp::Eq, &[1])
    }

    /// Continues only for packets in the original direction of their connection.
    pub(crate) fn original(self) -> Self {
        self.ct(CtKey::Direction, 0).cmp(0, CmpOp::Eq, &[0])
    }

    /// Continues only if NAT changes an address of the connection.
    pub(crate) fn translated(self) -> Self {
        self.ct(CtKey::Status, 0)
            .bitwise(0, &ct_status::TRANSLATED.to_ne_bytes(), &[0; 4])
            .cmp(0, CmpOp::Neq, &[0; 4])
    }

    /// Continues only if the masked connection mark compares to the value.
    pub(crate) fn ct_mark(self, mask: u32, op: CmpOp, value: u32) -> Self {
        self.ct(CtKey::Mark, 0)
            .bitwise(0, &mask.to_ne_bytes(), &[0; 4])
            .cmp(0, op, &value.to_ne_bytes())
    }

    /// Replaces these bits of the connection mark.
    pub(crate) fn set_ct_mark(self, mask: u32, value: u32) -> Self {
        let (key, sreg) = (CtKey::Mark, Reg(0));
        self.ct(CtKey::Mark, 0)
            .bitwise(0, &(!mask).to_ne_bytes(), &value.to_ne_bytes())
            .push(Expr::CtSet { key, sreg })
    }

    /// Continues only if this bit of the packet's own mark is set.
    pub(crate) fn packet_mark(self, bit: u32) -> Self {
        self.meta(MetaKey::Mark, 0)
            .bitwise(0, &bit.to_ne_bytes(), &[0; 4])
            .cmp(0, CmpOp::Neq, &[0; 4])
    }

    /// Sets or clears this bit of the packet's own mark.
    pub(crate) fn set_packet_mark(self, bit: u32, is_set: bool) -> Self {
        let value = if is_set { bit } else { 0 };
        self.meta(MetaKey::Mark, 0)
            .bitwise(0, &(!bit).to_ne_bytes(), &value.to_ne_bytes())
            .push(Expr::MetaSet {
                key: MetaKey::Mark,
                sreg: Reg(0),
            })
    }

    /// Continues only for TCP packets whose masked flags compare to the value.
    pub(crate) fn tcp_flags(self, mask: u8, op: CmpOp, value: u8) -> Self {
        self.protocol(Protocol::TCP)
            .payload(PayloadBase::Transport, 13, 1, 0)
            .bitwise(0, &[mask], &[0])
            .cmp(0, op, &[value])
    }

    /// Continues only for packets of this protocol.
    pub(crate) fn protocol(self, protocol: Protocol) -> Self {
        self.meta(MetaKey::L4Proto, 0)
            .cmp(0, CmpOp::Eq, &[protocol.0])
    }

    /// Continues only if the interface is one of ours.
    pub(crate) fn own_interface(self, key: MetaKey) -> Self {
        self.meta(key, 0).in_set(crate::names::IF_OURS, 0)
    }

    /// Continues only if the interface's name has, or does not have, this prefix.
    pub(crate) fn interface_prefix(self, key: MetaKey, op: CmpOp, prefix: &str) -> Self {
        let name = interface_name(prefix);
        let len = prefix.len().min(15);
        self.meta(key, 0).cmp(0, op, &name[..len])
    }

    pub(crate) fn interface(self, key: MetaKey, name: &str) -> Self {
        self.meta(key, 0).cmp(0, CmpOp::Eq, &interface_name(name))
    }

    /// Continues with the matches of another builder.
    pub(crate) fn and(mut self, other: RuleBuilder) -> Self {
        self.0.extend(other.0);
        self
    }

    pub(crate) fn verdict(self, verdict: NftVerdict) -> NftRule {
        let mut exprs = self.0;
        exprs.push(Expr::Verdict(verdict));
        NftRule {
            exprs,
            comment: None,
        }
    }

    pub(crate) fn goto(self, chain: &str) -> NftRule {
        self.verdict(NftVerdict::Goto(chain.into()))
    }

    pub(crate) fn jump(self, chain: &str) -> NftRule {
        self.verdict(NftVerdict::Jump(chain.into()))
    }

    /// Ends the rule with the map's verdict for the key.
    pub(crate) fn vmap(self, set: &str, from: u8) -> NftRule {
        self.verdict_lookup(set, from).build()
    }

    /// Ends the rule without a verdict.
    pub(crate) fn build(self) -> NftRule {
        NftRule {
            exprs: self.0,
            comment: None,
        }
    }
}

/// The kernel's number of a family.
pub(crate) fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

/// A named chain.
pub(crate) fn chain(name: &str, base: Option<BaseChain>, rules: Vec<NftRule>) -> (Str, Chain) {
    (
        name.into(),
        Chain {
            base_chain: base,
            rules,
        },
    )
}

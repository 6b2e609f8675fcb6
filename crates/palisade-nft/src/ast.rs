//! The words: what one nftables table of ours can hold, and the operations that change it.
//!
//! Every value is encoded to nf_tables netlink messages and decoded back one to one, so that what was
//! read compares equal to what was written (but for counts, see [`Ruleset::without_counts`]). What
//! Palisade never writes is kept only as far as needed to see that it is there.

use crate::FieldType;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::Str;
use palisade_tables::{Phase, RuleId};

/// Flags of a table (`NFT_TABLE_F_…`).
pub mod table_flag {
    /// Only the netlink socket that made the table, or took it over, may change it.
    pub const OWNER: u32 = 2;
    /// The table stays when its owner's socket is closed, and can be taken over then.
    pub const PERSIST: u32 = 4;
    /// A table that is protected while its agent runs and stays when it ends.
    pub const OWNED: u32 = OWNER | PERSIST;
}

/// The content of one table of family `inet`: desired, or observed in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The table's name.
    pub table: Str,
    /// The comment in the table's user data: it names the layout's schema.
    pub comment: Option<Str>,
    /// `NFTA_TABLE_FLAGS`: what [`table_flag`] has, or 0. A dormant table enforces nothing.
    pub flags: u32,
    /// Chains by name.
    pub chains: BTreeMap<Str, Chain>,
    /// Sets and maps by name. Anonymous sets are never made; an observed one stands here under the
    /// name the kernel gave it.
    pub sets: BTreeMap<Str, NftSet>,
    /// Observed objects of kinds that are never made here (flowtables, stateful objects): a
    /// description of each.
    pub foreign: Vec<Str>,
}

impl Ruleset {
    /// A table without content.
    pub fn empty(table: Str) -> Self {
        Ruleset {
            table,
            comment: None,
            flags: 0,
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            foreign: Vec::new(),
        }
    }

    /// The same content with every count zero: what is compared.
    #[must_use]
    pub fn without_counts(mut self) -> Self {
        let exprs = self
            .chains
            .values_mut()
            .flat_map(|chain| &mut chain.rules)
            .flat_map(|rule| &mut rule.exprs);
        for expr in exprs {
            if let Expr::Counter(count) = expr {
                *count = CounterValue::default();
            }
        }
        let elements = self.sets.values_mut().flat_map(|s| s.elements.values_mut());
        for element in elements {
            if let Some(count) = &mut element.counter {
                *count = CounterValue::default();
            }
        }
        self
    }
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Where the kernel calls it; `None` for one that is only jumped to.
    pub base_chain: Option<BaseChain>,
    /// Its rules, in order.
    pub rules: Vec<NftRule>,
}

/// Where the kernel calls a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// The hook.
    pub hook: Hook,
    /// Its place among the chains of the hook; lower comes first.
    pub priority: i32,
    /// What a packet gets that comes to the end.
    pub policy: ChainPolicy,
    /// Its type.
    pub chain_type: ChainType,
}

/// The type of a base chain; `Other` is one that is never made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub enum ChainType {
    Filter,
    Nat,
    Other,
}

/// A netfilter hook of family `inet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

impl Hook {
    /// `NF_INET_*`.
    pub fn number(self) -> u32 {
        match self {
            Hook::Prerouting => 0,
            Hook::Input => 1,
            Hook::Forward => 2,
            Hook::Output => 3,
            Hook::Postrouting => 4,
        }
    }
}

/// What a packet gets that comes to the end of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub enum ChainPolicy {
    Accept,
    Drop,
}

/// A rule: expressions evaluated in order until one breaks or gives a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NftRule {
    /// The expressions.
    pub exprs: Vec<Expr>,
    /// The comment in its user data, at most 128 bytes.
    pub comment: Option<Str>,
}

/// A 32-bit register, 0 to 15: `NFT_REG32_00` to `NFT_REG32_15`. Longer values take the registers
/// that follow; the last is padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reg(pub u8);

impl Reg {
    /// The kernel's number: `NFT_REG32_00` is 8.
    pub fn number(self) -> u32 {
        8 + u32::from(self.0)
    }
}

/// One expression of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// `meta`: loads a fact about the packet.
    Meta {
        /// Which.
        key: MetaKey,
        /// Where to.
        dreg: Reg,
    },
    /// `payload`: loads bytes of the packet. Breaks where the packet is too short.
    Payload {
        /// Where the offset counts from.
        base: PayloadBase,
        /// In bytes.
        offset: u32,
        /// In bytes.
        len: u32,
        /// Where to.
        dreg: Reg,
    },
    /// `ct`, loading: a fact about the packet's connection. Breaks where there is none (but for
    /// [`CtKey::State`]).
    CtLoad {
        /// Which.
        key: CtKey,
        /// Where to.
        dreg: Reg,
    },
    /// `meta`, setting: only [`MetaKey::Mark`] can be set.
    MetaSet {
        /// Which.
        key: MetaKey,
        /// Where from.
        sreg: Reg,
    },
    /// `ct`, setting.
    CtSet {
        /// Which; only [`CtKey::Mark`] can be set.
        key: CtKey,
        /// Where from.
        sreg: Reg,
    },
    /// `bitwise` with constants: `dreg = (sreg & mask) ^ xor`. Both have the same length.
    Bitwise {
        /// Where from.
        sreg: Reg,
        /// Where to.
        dreg: Reg,
        /// The mask.
        mask: Bytes,
        /// What is flipped afterwards.
        xor: Bytes,
    },
    /// `cmp`: breaks unless the comparison (of bytes, most significant first) holds.
    Cmp {
        /// Where from.
        sreg: Reg,
        /// The comparison.
        op: CmpOp,
        /// The constant.
        value: Bytes,
    },
    /// `lookup`: breaks where the set has no such element.
    Lookup {
        /// The set.
        set: Str,
        /// Where the key begins.
        sreg: Reg,
        /// What is done with the element.
        mode: LookupMode,
    },
    /// `immediate` into a register.
    Immediate {
        /// Where to.
        dreg: Reg,
        /// The constant.
        value: Bytes,
    },
    /// `counter`.
    Counter(CounterValue),
    /// `limit`, of packets a second: breaks once there are more.
    Limit {
        /// Packets a second.
        rate: u32,
        /// Packets at once.
        burst: u32,
    },
    /// `log` to an nflog group.
    Log {
        /// The group.
        group: u16,
        /// What is said in front of the packet; at most 127 bytes.
        prefix: Str,
    },
    /// `masq`: the packet leaves under this host's address. Ends the rule; in `nat` chains only.
    Masquerade,
    /// `immediate` into the verdict register: ends the rule.
    Verdict(NftVerdict),
    /// An observed expression that is never written here: its name.
    Unknown(Str),
}

/// A short constant.
pub type Bytes = Box<[u8]>;

/// What a lookup does with the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupMode {
    /// Goes on if it is there.
    Member,
    /// Goes on if it is not there.
    NotMember,
    /// Loads its value.
    Register(Reg),
    /// Gives its verdict; one to continue goes on in the rule.
    Verdict,
}

/// What `meta` loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// The name of the interface it came in by: 16 bytes, empty where there is none.
    IifName,
    /// The name of the interface it leaves by: 16 bytes, empty where there is none.
    OifName,
    /// The family: one byte, 2 for IPv4 and 10 for IPv6.
    NfProto,
    /// The transport protocol: one byte.
    L4Proto,
    /// The packet's mark: four bytes in host order.
    Mark,
}

impl MetaKey {
    /// `NFT_META_*`.
    pub fn number(self) -> u32 {
        match self {
            MetaKey::IifName => 6,
            MetaKey::OifName => 7,
            MetaKey::NfProto => 15,
            MetaKey::L4Proto => 16,
            MetaKey::Mark => 3,
        }
    }

    /// The length of what is loaded, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "nothing loaded is empty")]
    pub fn len(self) -> u32 {
        match self {
            MetaKey::IifName | MetaKey::OifName => 16,
            MetaKey::NfProto | MetaKey::L4Proto => 1,
            MetaKey::Mark => 4,
        }
    }
}

/// Where a payload offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadBase {
    /// The network header.
    Network,
    /// The transport header.
    Transport,
}

impl PayloadBase {
    /// `NFT_PAYLOAD_*_HEADER`.
    pub fn number(self) -> u32 {
        match self {
            PayloadBase::Network => 1,
            PayloadBase::Transport => 2,
        }
    }
}

/// What `ct` loads or sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtKey {
    /// The state: four bytes in host order, one of the bits in [`ct_state`].
    State,
    /// The direction: one byte, 0 original, 1 reply.
    Direction,
    /// The status: four bytes in host order, bits of [`ct_status`].
    Status,
    /// The mark: four bytes in host order.
    Mark,
}

impl CtKey {
    /// `NFT_CT_*`.
    pub fn number(self) -> u32 {
        match self {
            CtKey::State => 0,
            CtKey::Direction => 1,
            CtKey::Status => 2,
            CtKey::Mark => 3,
        }
    }

    /// The length of what is loaded, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "nothing loaded is empty")]
    pub fn len(self) -> u32 {
        match self {
            CtKey::State | CtKey::Status | CtKey::Mark => 4,
            CtKey::Direction => 1,
        }
    }
}

/// The bits of [`CtKey::State`].
pub mod ct_state {
    /// The packet fits no connection.
    pub const INVALID: u32 = 1;
    /// A packet of a connection that has seen both directions.
    pub const ESTABLISHED: u32 = 2;
    /// An ICMP error about a connection, or a connection that a helper expected.
    pub const RELATED: u32 = 4;
    /// A packet of a connection that has not seen a reply.
    pub const NEW: u32 = 8;
    /// Not tracked.
    pub const UNTRACKED: u32 = 64;
}

/// The bits of [`CtKey::Status`].
pub mod ct_status {
    /// An address of the flow is translated: its source, or its destination.
    pub const TRANSLATED: u32 = 0x10 | 0x20;
}

/// Bits of the flags of a TCP header.
pub mod tcp_flag {
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Acknowledges: set in every packet but the first.
    pub const ACK: u8 = 16;
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub enum CmpOp {
    Eq,
    Neq,
    Lt,
    Lte,
    Gt,
    Gte,
}

impl CmpOp {
    /// `NFT_CMP_*`.
    pub fn number(self) -> u32 {
        match self {
            CmpOp::Eq => 0,
            CmpOp::Neq => 1,
            CmpOp::Lt => 2,
            CmpOp::Lte => 3,
            CmpOp::Gt => 4,
            CmpOp::Gte => 5,
        }
    }
}

/// A count of packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CounterValue {
    pub packets: u64,
    pub bytes: u64,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub enum NftVerdict {
    Accept,
    Drop,
    Return,
    Continue,
    Jump(Str),
    Goto(Str),
}

impl NftVerdict {
    /// The chain it goes to.
    pub fn chain(&self) -> Option<&Str> {
        match self {
            NftVerdict::Jump(chain) | NftVerdict::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

/// A set or map with its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftSet {
    /// What it holds.
    pub decl: SetDecl,
    /// Its elements.
    pub elements: BTreeMap<ElementKey, Element>,
}

/// The declaration of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetDecl {
    /// The fields of a key, in order; each is padded to four bytes in a key of several.
    pub key: Vec<FieldType>,
    /// What an element maps to; `None` for a plain set.
    pub value_type: Option<MapValueType>,
    /// Whether elements are ranges: of one field (rbtree), or of several (pipapo; the kernel's
    /// `NFT_SET_CONCAT`). Keys are then [`ElementKey::Range`] throughout.
    pub interval: bool,
    /// Whether every element counts packets and bytes.
    pub counter: bool,
    /// The greatest number of elements; `None`: no bound. Small plain sets with a bound are faster.
    pub size: Option<u32>,
    /// Observed properties that are never made here (timeouts, other flags or expressions).
    pub unknown: Option<Str>,
}

impl SetDecl {
    /// The bytes of a key, padding included.
    pub fn key_len(&self) -> usize {
        match self.key.as_slice() {
            [one] => one.len(),
            fields => fields.iter().map(|field| field.padded()).sum(),
        }
    }
}

/// What a map's elements map to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapValueType {
    /// A value that is loaded into a register.
    Value(FieldType),
    /// A verdict.
    Verdict,
}

/// The key of an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementKey {
    /// One value: the bytes of its fields, each padded to four if there are several.
    Exact(Bytes),
    /// A range, both ends inside; of several fields, a range in each. For one field the kernel keeps
    /// two elements: the first value, and an interval end one past the last (none at the very end of
    /// the space); for several it keeps a key and a key end.
    Range(Bytes, Bytes),
    /// Whatever no other element matches.
    CatchAll,
}

/// An element's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// What it maps to; `None` in a plain set.
    pub data: Option<MapValue>,
    /// Its count; `Some` exactly in sets that count.
    pub counter: Option<CounterValue>,
    /// The comment in its user data, at most 128 bytes.
    pub comment: Option<Str>,
}

/// What an element maps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapValue {
    /// A value of the map's type.
    Value(Bytes),
    /// A verdict.
    Verdict(NftVerdict),
}

/// One operation on the table. Names and keys are the object's own; nothing needs a kernel handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes the table. It must not be there.
    AddTable {
        /// The comment in its user data.
        comment: Option<Str>,
        /// `NFTA_TABLE_FLAGS`.
        flags: u32,
    },
    /// Removes the table and everything in it.
    DeleteTable,
    /// Makes a set.
    AddSet {
        /// Its name.
        set: Str,
        /// What it holds.
        decl: SetDecl,
    },
    /// Removes a set and its elements.
    DeleteSet {
        /// Its name.
        set: Str,
    },
    /// Makes a chain.
    AddChain {
        /// Its name.
        chain: Str,
        /// Where the kernel calls it.
        base_chain: Option<BaseChain>,
    },
    /// Removes a chain and its rules.
    DeleteChain {
        /// Its name.
        chain: Str,
    },
    /// Appends a rule.
    AddRule {
        /// The chain.
        chain: Str,
        /// The rule.
        rule: NftRule,
    },
    /// Removes all rules of a chain.
    FlushChain {
        /// The chain.
        chain: Str,
    },
    /// Adds an element. None of the same key may be there (unless an earlier operation of the step
    /// deletes it: that is how one is replaced).
    AddElement {
        /// The set.
        set: Str,
        /// Its key.
        key: ElementKey,
        /// Its content.
        element: Element,
    },
    /// Removes an element, which must be there.
    DeleteElement {
        /// The set.
        set: Str,
        /// Its key.
        key: ElementKey,
    },
}

/// Steps, each applied whole or not at all, with a grace period after each that asks for it: until no
/// packet is still between two lookups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The table.
    pub table: Str,
    /// The steps, in order; none is empty.
    pub steps: Vec<TxStep>,
}

/// One atomic batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxStep {
    /// What it is for.
    pub phase: Phase,
    /// Counts to read before the operations, since these remove what counted. Nothing refers to
    /// these places any more once the grace period of the step before is over, so the counts stand.
    pub retiring_counters: Vec<CreditedCounter>,
    /// The operations, in an order in which the kernel takes them.
    pub ops: Vec<Op>,
    /// Whether a grace period must pass before the next step.
    pub needs_grace_period: bool,
}

/// A count that is about to go, and the rules that are credited with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditedCounter {
    /// Where the count is.
    pub location: CounterLocation,
    /// Each of these rules has met every counted packet.
    pub rules: Vec<RuleId>,
}

/// Where a count is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterLocation {
    /// In an element.
    Element {
        /// The set.
        set: Str,
        /// Its key.
        key: ElementKey,
    },
    /// In the counter of a rule.
    Rule {
        /// The chain.
        chain: Str,
        /// Its place in the chain, from 0.
        index: usize,
    },
}

impl Transaction {
    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

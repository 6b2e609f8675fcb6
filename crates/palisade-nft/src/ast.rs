//! The types for the content of one nftables table.
//!
//! Every value is encoded to nf_tables netlink messages and decoded one to one, so that what was read
//! compares equal to what was written (apart from counter values, see [`Ruleset::without_counts`]). What
//! Palisade never writes is kept only as far as needed to detect it.

use crate::FieldType;
use crate::kernel_enum::kernel_enum;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{Family, Str};
pub use palisade_tables::CounterValue;

/// Flags of a table (`NFT_TABLE_F_…`).
pub mod table_flag {
    /// Only the netlink socket that created the table, or took it over, may change it.
    pub const OWNER: u32 = 2;
    /// The table stays when its owner's socket is closed, and can then be taken over.
    pub const PERSIST: u32 = 4;
    /// A table that is protected while its agent runs and stays when the agent exits.
    pub const OWNED: u32 = OWNER | PERSIST;
}

/// The content of one table of family `inet`, desired or observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The table's name.
    pub table: Str,
    /// The comment in the table's user data: the version of the layout.
    pub comment: Option<Str>,
    /// `NFTA_TABLE_FLAGS`: bits of [`table_flag`]. A dormant table enforces nothing.
    pub flags: u32,
    /// Chains by name.
    pub chains: BTreeMap<Str, Chain>,
    /// Sets and maps by name. Palisade creates no anonymous sets; an observed one has the name that the
    /// kernel gave it.
    pub sets: BTreeMap<Str, NftSet>,
    /// Observed objects of kinds that Palisade never creates (flowtables, stateful objects): a description
    /// of each.
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

    /// The same content with all counters zero, for comparison.
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
    /// Its hook; `None` for a regular chain, which is only jumped to.
    pub base_chain: Option<BaseChain>,
    /// Its rules, in order.
    pub rules: Vec<NftRule>,
}

/// The hook, priority, policy and type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// The hook.
    pub hook: Hook,
    /// Its order among the chains of the hook; lower runs first.
    pub priority: i32,
    /// The verdict at the end of the chain.
    pub policy: ChainPolicy,
    /// Its type.
    pub chain_type: ChainType,
}

/// The type of a base chain; `Other` is one that Palisade never creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub enum ChainType {
    Filter,
    Nat,
    Route,
    Other,
}

kernel_enum! {
    /// A netfilter hook of family `inet` (`NF_INET_*`).
    #[allow(missing_docs, reason = "the kernel's own names")]
    Hook {
        Prerouting = 0 "prerouting",
        Input = 1 "input",
        Forward = 2 "forward",
        Output = 3 "output",
        Postrouting = 4 "postrouting",
    }
}

kernel_enum! {
    /// The verdict at the end of a base chain (`NF_*`).
    #[allow(missing_docs, reason = "the kernel's own names")]
    ChainPolicy {
        Drop = 0 "drop",
        Accept = 1 "accept",
    }
}

/// A rule: expressions evaluated in order until one breaks or gives a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NftRule {
    /// The expressions.
    pub exprs: Vec<Expr>,
    /// The comment in its user data, at most 128 bytes.
    pub comment: Option<Str>,
}

/// A 32-bit register, 0 to 15: `NFT_REG32_00` to `NFT_REG32_15`. Longer values continue in the next
/// registers; the last is padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reg(pub u8);

impl Reg {
    /// The kernel's register number: `NFT_REG32_00` is 8.
    pub fn number(self) -> u32 {
        8 + u32::from(self.0)
    }
}

/// One expression of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// `meta`: loads metadata of the packet.
    Meta {
        /// The key.
        key: MetaKey,
        /// The destination register.
        dreg: Reg,
    },
    /// `payload`: loads bytes of the packet. Breaks if the packet is too short.
    Payload {
        /// The header that the offset counts from.
        base: PayloadBase,
        /// In bytes.
        offset: u32,
        /// In bytes.
        len: u32,
        /// The destination register.
        dreg: Reg,
    },
    /// `ct`, loading: a property of the packet's connection. Breaks if there is none (except
    /// [`CtKey::State`]).
    CtLoad {
        /// The key.
        key: CtKey,
        /// The destination register.
        dreg: Reg,
    },
    /// `meta`, setting; only [`MetaKey::Mark`] can be set.
    MetaSet {
        /// The key.
        key: MetaKey,
        /// The source register.
        sreg: Reg,
    },
    /// `ct`, setting.
    CtSet {
        /// The key: [`CtKey::Mark`]; or before connection tracking [`CtKey::Zone`], of the original direction alone.
        key: CtKey,
        /// The source register.
        sreg: Reg,
    },
    /// `bitwise` with constants: `dreg = (sreg & mask) ^ xor`. Both have the same length.
    Bitwise {
        /// The source register.
        sreg: Reg,
        /// The destination register.
        dreg: Reg,
        /// The bits that are kept.
        mask: Bytes,
        /// The bits that are flipped afterwards.
        xor: Bytes,
    },
    /// `cmp`: breaks unless the comparison (of bytes, most significant first) holds.
    Cmp {
        /// The source register.
        sreg: Reg,
        /// The comparison.
        op: CmpOp,
        /// The constant.
        value: Bytes,
    },
    /// `lookup`: breaks if the set has no matching element.
    Lookup {
        /// The set.
        set: Str,
        /// The first register of the key.
        sreg: Reg,
        /// How the element is used.
        mode: LookupMode,
    },
    /// `immediate` into a register.
    Immediate {
        /// The destination register.
        dreg: Reg,
        /// The constant.
        value: Bytes,
    },
    /// `counter`.
    Counter(CounterValue),
    /// `limit`, in packets per second: breaks above the limit.
    Limit {
        /// Packets per second.
        rate: u32,
        /// Burst, in packets.
        burst: u32,
    },
    /// `log` to an nflog group.
    Log {
        /// The group.
        group: u16,
        /// The log prefix; at most 127 bytes.
        prefix: Str,
    },
    /// `tproxy`: gives the packet to a transparent socket, with its addresses as they are. Breaks if no such socket
    /// listens there; in prerouting only.
    Tproxy {
        /// The family.
        family: Family,
        /// The first register of the address that the socket listens at.
        address: Reg,
        /// The register of its port, in network byte order.
        port: Reg,
    },
    /// `notrack`: connection tracking leaves the packet out.
    Notrack,
    /// `masq`: replaces the source address by this host's. Ends the rule; in `nat` chains only.
    Masquerade,
    /// `reject`: drops the packet and answers it. Ends the rule; not in the postrouting hook.
    Reject(RejectAnswer),
    /// `immediate` into the verdict register: ends the rule.
    Verdict(NftVerdict),
    /// The name of an observed expression that is never written here.
    Unknown(Str),
}

/// What a packet is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectAnswer {
    /// A TCP reset; for TCP only.
    TcpReset,
    /// ICMP or ICMPv6: administratively prohibited.
    AdminProhibited,
}

/// A short constant.
pub type Bytes = Box<[u8]>;

/// How a lookup uses the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupMode {
    /// Continues if it exists.
    Member,
    /// Continues if it does not exist.
    NotMember,
    /// Loads its value into the register.
    Register(Reg),
    /// Executes its verdict; `continue` continues the rule.
    Verdict,
}

kernel_enum! {
    /// What `meta` loads (`NFT_META_*`).
    MetaKey {
        /// The packet's mark: four bytes in host byte order.
        Mark = 3 "mark",
        /// The name of the input interface: 16 bytes, empty if there is none.
        IifName = 6 "iifname",
        /// The name of the output interface: 16 bytes, empty if there is none.
        OifName = 7 "oifname",
        /// The family: one byte, 2 for IPv4 and 10 for IPv6.
        NfProto = 15 "nfproto",
        /// The transport protocol: one byte.
        L4Proto = 16 "l4proto",
    }
}

impl MetaKey {
    /// The length of the loaded value, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "nothing loaded is empty")]
    pub fn len(self) -> u32 {
        match self {
            MetaKey::IifName | MetaKey::OifName => 16,
            MetaKey::NfProto | MetaKey::L4Proto => 1,
            MetaKey::Mark => 4,
        }
    }
}

kernel_enum! {
    /// The header that a payload offset counts from (`NFT_PAYLOAD_*_HEADER`).
    PayloadBase {
        /// The network header.
        Network = 1 "nh",
        /// The transport header.
        Transport = 2 "th",
    }
}

kernel_enum! {
    /// What `ct` loads or sets (`NFT_CT_*`).
    CtKey {
        /// The state: four bytes in host byte order, one of the bits in [`ct_state`].
        State = 0 "state",
        /// The direction: one byte, 0 original, 1 reply.
        Direction = 1 "direction",
        /// The status: four bytes in host byte order, bits of [`ct_status`].
        Status = 2 "status",
        /// The mark: four bytes in host byte order.
        Mark = 3 "mark",
        /// The zone, also where it is of one direction alone: two bytes in host byte order.
        Zone = 17 "zone",
        /// The destination port of the first packet, before NAT: two bytes.
        OriginalPort = 12 "original proto-dst",
        /// The source address of the first packet, before NAT, of an IPv4 connection: four bytes.
        OriginalSource4 = 19 "original ip saddr",
        /// The destination address of the first packet, before NAT, of an IPv4 connection: four bytes.
        OriginalDestination4 = 20 "original ip daddr",
        /// The source address of the first packet, before NAT, of an IPv6 connection: 16 bytes.
        OriginalSource6 = 21 "original ip6 saddr",
        /// The destination address of the first packet, before NAT, of an IPv6 connection: 16 bytes.
        OriginalDestination6 = 22 "original ip6 daddr",
    }
}

impl CtKey {
    /// Whether it is of the tuple of the original direction (`NFTA_CT_DIRECTION` 0).
    pub fn is_of_tuple(self) -> bool {
        !matches!(
            self,
            CtKey::State | CtKey::Direction | CtKey::Status | CtKey::Mark | CtKey::Zone
        )
    }

    /// The length of the loaded value, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "nothing loaded is empty")]
    pub fn len(self) -> u32 {
        match self {
            CtKey::State | CtKey::Status | CtKey::Mark => 4,
            CtKey::Direction => 1,
            CtKey::OriginalPort | CtKey::Zone => 2,
            CtKey::OriginalSource4 | CtKey::OriginalDestination4 => 4,
            CtKey::OriginalSource6 | CtKey::OriginalDestination6 => 16,
        }
    }
}

/// The bits of [`CtKey::State`].
pub mod ct_state {
    /// The packet belongs to no connection and opens none.
    pub const INVALID: u32 = 1;
    /// A packet of a connection that has seen both directions.
    pub const ESTABLISHED: u32 = 2;
    /// An ICMP error about a connection, or a connection that a conntrack helper expects.
    pub const RELATED: u32 = 4;
    /// A packet of a connection that has not seen a reply.
    pub const NEW: u32 = 8;
    /// Not tracked.
    pub const UNTRACKED: u32 = 64;
}

/// The bits of [`CtKey::Status`].
pub mod ct_status {
    /// NAT changes the flow's source or destination address.
    pub const TRANSLATED: u32 = 0x10 | 0x20;
}

/// Bits of the flags in a TCP header.
pub mod tcp_flag {
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Ends a connection at once.
    pub const RST: u8 = 4;
    /// Set in every packet except the first.
    pub const ACK: u8 = 16;
}

kernel_enum! {
    /// A comparison (`NFT_CMP_*`).
    #[allow(missing_docs, reason = "the kernel's own names")]
    CmpOp {
        Eq = 0 "==",
        Neq = 1 "!=",
        Lt = 2 "<",
        Lte = 3 "<=",
        Gt = 4 ">",
        Gte = 5 ">=",
    }
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
    /// The target of a jump or goto.
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
    /// The fields of a key, in order; in a key of several fields each is padded to four bytes.
    pub key: Vec<FieldType>,
    /// The type of the values; `None` for a plain set.
    pub value_type: Option<MapValueType>,
    /// Whether elements are ranges: of one field (rbtree), or of several (pipapo; the kernel's
    /// `NFT_SET_CONCAT`). Keys are then [`ElementKey::Range`] throughout.
    pub interval: bool,
    /// Whether every element has a counter.
    pub counter: bool,
    /// The maximum number of elements; `None` for no limit. The kernel is faster on small plain sets with a
    /// limit.
    pub size: Option<u32>,
    /// Observed properties that are never written here (timeouts, other flags or expressions).
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

    /// Offset and length of each field in a key.
    pub fn fields(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0;
        self.key.iter().map(move |field| {
            let start = at;
            at += field.padded();
            (start, field.len())
        })
    }
}

/// The type of a map's values.
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
    /// One value: the bytes of its fields, each padded to four bytes if there are several.
    Exact(Bytes),
    /// A range with both ends included; for several fields, a range in each. For one field the kernel keeps
    /// two elements: the first value, and an interval end one past the last (none at the very end of the
    /// value space); for several it keeps a key and a key end.
    Range(Bytes, Bytes),
    /// Matches keys that no other element matches.
    CatchAll,
}

/// An element's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its value; `None` in a plain set.
    pub data: Option<MapValue>,
    /// Its counter; `Some` only in sets with counters.
    pub counter: Option<CounterValue>,
    /// The comment in its user data, at most 128 bytes.
    pub comment: Option<Str>,
}

/// The value of a map element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapValue {
    /// A value of the map's type.
    Value(Bytes),
    /// A verdict.
    Verdict(NftVerdict),
}

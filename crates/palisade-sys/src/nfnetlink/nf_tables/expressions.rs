//! Expressions of nf_tables rules and set elements.
//!
//! Promises: the kernel's numbers under the kernel's names. Never: other names.

// nf_tables expression netlink attributes

/// Name of the expression type.
pub const NFTA_EXPR_NAME: u16 = 1;
/// Type specific data.
pub const NFTA_EXPR_DATA: u16 = 2;

// nf_tables immediate expression netlink attributes

/// Destination register to load data into.
pub const NFTA_IMMEDIATE_DREG: u16 = 1;
/// Data to load.
pub const NFTA_IMMEDIATE_DATA: u16 = 2;

// nf_tables bitwise operations

/// Mask-and-xor operation used to implement NOT, AND, OR.
pub const NFT_BITWISE_MASK_XOR: u32 = 0;

// nf_tables bitwise expression netlink attributes

/// Source register.
pub const NFTA_BITWISE_SREG: u16 = 1;
/// Destination register.
pub const NFTA_BITWISE_DREG: u16 = 2;
/// Length of operands.
pub const NFTA_BITWISE_LEN: u16 = 3;
/// Mask value.
pub const NFTA_BITWISE_MASK: u16 = 4;
/// Xor value.
pub const NFTA_BITWISE_XOR: u16 = 5;
/// Type of operation.
pub const NFTA_BITWISE_OP: u16 = 6;

// nf_tables cmp expression netlink attributes

/// Source register of data to compare.
pub const NFTA_CMP_SREG: u16 = 1;
/// Cmp operation.
pub const NFTA_CMP_OP: u16 = 2;
/// Data to compare against.
pub const NFTA_CMP_DATA: u16 = 3;

// nft_lookup_flags

/// `NFT_LOOKUP_F_INV`.
pub const NFT_LOOKUP_F_INV: u32 = 1;

// nf_tables set lookup expression netlink attributes

/// Name of the set where to look for.
pub const NFTA_LOOKUP_SET: u16 = 1;
/// Source register of the data to look for.
pub const NFTA_LOOKUP_SREG: u16 = 2;
/// Destination register.
pub const NFTA_LOOKUP_DREG: u16 = 3;
/// Flags.
pub const NFTA_LOOKUP_FLAGS: u16 = 5;

// nf_tables payload expression netlink attributes

/// Destination register to load data into.
pub const NFTA_PAYLOAD_DREG: u16 = 1;
/// Payload base.
pub const NFTA_PAYLOAD_BASE: u16 = 2;
/// Payload offset relative to base.
pub const NFTA_PAYLOAD_OFFSET: u16 = 3;
/// Payload length.
pub const NFTA_PAYLOAD_LEN: u16 = 4;

// nf_tables meta expression netlink attributes

/// Destination register.
pub const NFTA_META_DREG: u16 = 1;
/// Meta data item to load.
pub const NFTA_META_KEY: u16 = 2;
/// Source register.
pub const NFTA_META_SREG: u16 = 3;

// nf_tables ct expression netlink attributes

/// Destination register.
pub const NFTA_CT_DREG: u16 = 1;
/// Conntrack data item to load.
pub const NFTA_CT_KEY: u16 = 2;
/// Direction in case of directional keys.
pub const NFTA_CT_DIRECTION: u16 = 3;
/// Source register.
pub const NFTA_CT_SREG: u16 = 4;

// nft_limit_type

/// `NFT_LIMIT_PKTS`.
pub const NFT_LIMIT_PKTS: u32 = 0;

// nf_tables limit expression netlink attributes

/// Refill rate.
pub const NFTA_LIMIT_RATE: u16 = 1;
/// Refill unit.
pub const NFTA_LIMIT_UNIT: u16 = 2;
/// Burst.
pub const NFTA_LIMIT_BURST: u16 = 3;
/// Type of limit.
pub const NFTA_LIMIT_TYPE: u16 = 4;
/// Flags.
pub const NFTA_LIMIT_FLAGS: u16 = 5;

// nf_tables counter expression netlink attributes

/// Number of bytes.
pub const NFTA_COUNTER_BYTES: u16 = 1;
/// Number of packets.
pub const NFTA_COUNTER_PACKETS: u16 = 2;

// nf_tables log expression netlink attributes

/// Netlink group to send messages to.
pub const NFTA_LOG_GROUP: u16 = 1;
/// Prefix to prepend to log messages.
pub const NFTA_LOG_PREFIX: u16 = 2;
/// Length of payload to include in netlink message.
pub const NFTA_LOG_SNAPLEN: u16 = 3;
/// Queue threshold.
pub const NFTA_LOG_QTHRESHOLD: u16 = 4;
/// Log level.
pub const NFTA_LOG_LEVEL: u16 = 5;
/// Logging flags.
pub const NFTA_LOG_FLAGS: u16 = 6;

// nf_tables reject expression netlink attributes

/// What the packet is answered with (`NFT_REJECT_…`).
pub const NFTA_REJECT_TYPE: u16 = 1;
/// The code of the ICMP message.
pub const NFTA_REJECT_ICMP_CODE: u16 = 2;
/// A TCP reset.
pub const NFT_REJECT_TCP_RST: u32 = 1;
/// ICMP or ICMPv6 by the family of the packet, with an abstract code.
pub const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
/// The abstract code of "administratively prohibited".
pub const NFT_REJECT_ICMPX_ADMIN_PROHIBITED: u8 = 3;

/// `NFTA_TPROXY_FAMILY`: `NFPROTO_IPV4` or `NFPROTO_IPV6`.
pub const NFTA_TPROXY_FAMILY: u16 = 1;
/// `NFTA_TPROXY_REG_ADDR`: the register of the listener's address.
pub const NFTA_TPROXY_REG_ADDR: u16 = 2;
/// `NFTA_TPROXY_REG_PORT`: the register of its port.
pub const NFTA_TPROXY_REG_PORT: u16 = 3;

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
/// Left-shift operation.
pub const NFT_BITWISE_LSHIFT: u32 = 1;
/// Right-shift operation.
pub const NFT_BITWISE_RSHIFT: u32 = 2;
/// `NFT_BITWISE_AND`.
pub const NFT_BITWISE_AND: u32 = 3;
/// `NFT_BITWISE_OR`.
pub const NFT_BITWISE_OR: u32 = 4;
/// `NFT_BITWISE_XOR`.
pub const NFT_BITWISE_XOR: u32 = 5;

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
/// Argument for non-boolean operations.
pub const NFTA_BITWISE_DATA: u16 = 7;
/// `NFTA_BITWISE_SREG2`.
pub const NFTA_BITWISE_SREG2: u16 = 8;

// nf_tables byteorder operators

/// Network to host operator.
pub const NFT_BYTEORDER_NTOH: u32 = 0;
/// Host to network operator.
pub const NFT_BYTEORDER_HTON: u32 = 1;

// nf_tables byteorder expression netlink attributes

/// Source register.
pub const NFTA_BYTEORDER_SREG: u16 = 1;
/// Destination register.
pub const NFTA_BYTEORDER_DREG: u16 = 2;
/// Operator.
pub const NFTA_BYTEORDER_OP: u16 = 3;
/// Length of the data.
pub const NFTA_BYTEORDER_LEN: u16 = 4;
/// Data size in bytes.
pub const NFTA_BYTEORDER_SIZE: u16 = 5;

// nf_tables relational operator

/// Equal.
pub const NFT_CMP_EQ: u32 = 0;
/// Not equal.
pub const NFT_CMP_NEQ: u32 = 1;
/// Less than.
pub const NFT_CMP_LT: u32 = 2;
/// Less than or equal to.
pub const NFT_CMP_LTE: u32 = 3;
/// Greater than.
pub const NFT_CMP_GT: u32 = 4;
/// Greater than or equal to.
pub const NFT_CMP_GTE: u32 = 5;

// nf_tables cmp expression netlink attributes

/// Source register of data to compare.
pub const NFTA_CMP_SREG: u16 = 1;
/// Cmp operation.
pub const NFTA_CMP_OP: u16 = 2;
/// Data to compare against.
pub const NFTA_CMP_DATA: u16 = 3;

// nf_tables range operator

/// Equal.
pub const NFT_RANGE_EQ: u32 = 0;
/// Not equal.
pub const NFT_RANGE_NEQ: u32 = 1;

// nf_tables range expression netlink attributes

/// Source register of data to compare.
pub const NFTA_RANGE_SREG: u16 = 1;
/// Cmp operation.
pub const NFTA_RANGE_OP: u16 = 2;
/// Data range from.
pub const NFTA_RANGE_FROM_DATA: u16 = 3;
/// Data range to.
pub const NFTA_RANGE_TO_DATA: u16 = 4;

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
/// Uniquely identifies a set in a transaction.
pub const NFTA_LOOKUP_SET_ID: u16 = 4;
/// Flags.
pub const NFTA_LOOKUP_FLAGS: u16 = 5;

// nft_dynset_ops

/// `NFT_DYNSET_OP_ADD`.
pub const NFT_DYNSET_OP_ADD: u32 = 0;
/// `NFT_DYNSET_OP_UPDATE`.
pub const NFT_DYNSET_OP_UPDATE: u32 = 1;
/// `NFT_DYNSET_OP_DELETE`.
pub const NFT_DYNSET_OP_DELETE: u32 = 2;

// nft_dynset_flags

/// `NFT_DYNSET_F_INV`.
pub const NFT_DYNSET_F_INV: u32 = 1;
/// `NFT_DYNSET_F_EXPR`.
pub const NFT_DYNSET_F_EXPR: u32 = 2;

// dynset expression attributes

/// Name of the set to add data to.
pub const NFTA_DYNSET_SET_NAME: u16 = 1;
/// Unique identifier of the set in the transaction.
pub const NFTA_DYNSET_SET_ID: u16 = 2;
/// Operation.
pub const NFTA_DYNSET_OP: u16 = 3;
/// Source register of the key.
pub const NFTA_DYNSET_SREG_KEY: u16 = 4;
/// Source register of the data.
pub const NFTA_DYNSET_SREG_DATA: u16 = 5;
/// Timeout value for the new element.
pub const NFTA_DYNSET_TIMEOUT: u16 = 6;
/// Expression.
pub const NFTA_DYNSET_EXPR: u16 = 7;
/// `NFTA_DYNSET_PAD`.
pub const NFTA_DYNSET_PAD: u16 = 8;
/// Flags.
pub const NFTA_DYNSET_FLAGS: u16 = 9;
/// List of expressions.
pub const NFTA_DYNSET_EXPRESSIONS: u16 = 10;

// nf_tables payload expression offset bases

/// Link layer header.
pub const NFT_PAYLOAD_LL_HEADER: u32 = 0;
/// Network header.
pub const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
/// Transport header.
pub const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
/// Inner header / payload.
pub const NFT_PAYLOAD_INNER_HEADER: u32 = 3;

// nf_tables payload expression netlink attributes

/// Destination register to load data into.
pub const NFTA_PAYLOAD_DREG: u16 = 1;
/// Payload base.
pub const NFTA_PAYLOAD_BASE: u16 = 2;
/// Payload offset relative to base.
pub const NFTA_PAYLOAD_OFFSET: u16 = 3;
/// Payload length.
pub const NFTA_PAYLOAD_LEN: u16 = 4;
/// Source register to load data from.
pub const NFTA_PAYLOAD_SREG: u16 = 5;
/// Checksum type.
pub const NFTA_PAYLOAD_CSUM_TYPE: u16 = 6;
/// Checksum offset relative to base.
pub const NFTA_PAYLOAD_CSUM_OFFSET: u16 = 7;
/// Checksum flags.
pub const NFTA_PAYLOAD_CSUM_FLAGS: u16 = 8;

// nft_exthdr_flags

/// `NFT_EXTHDR_F_PRESENT`.
pub const NFT_EXTHDR_F_PRESENT: u32 = 1;

// nf_tables match options

/// Match against ipv6 extension headers.
pub const NFT_EXTHDR_OP_IPV6: u32 = 0;
/// `NFT_EXTHDR_OP_TCPOPT`.
pub const NFT_EXTHDR_OP_TCPOPT: u32 = 1;
/// Match against ipv4 options.
pub const NFT_EXTHDR_OP_IPV4: u32 = 2;
/// Match against sctp chunks.
pub const NFT_EXTHDR_OP_SCTP: u32 = 3;
/// Match against dccp options.
pub const NFT_EXTHDR_OP_DCCP: u32 = 4;

// nf_tables extension header expression netlink attributes

/// Destination register.
pub const NFTA_EXTHDR_DREG: u16 = 1;
/// Extension header type.
pub const NFTA_EXTHDR_TYPE: u16 = 2;
/// Extension header offset.
pub const NFTA_EXTHDR_OFFSET: u16 = 3;
/// Extension header length.
pub const NFTA_EXTHDR_LEN: u16 = 4;
/// Extension header flags.
pub const NFTA_EXTHDR_FLAGS: u16 = 5;
/// Option match type.
pub const NFTA_EXTHDR_OP: u16 = 6;
/// Option match type.
pub const NFTA_EXTHDR_SREG: u16 = 7;

// nf_tables meta expression keys

/// Packet length (skb->len).
pub const NFT_META_LEN: u32 = 0;
/// Packet ethertype protocol (skb->protocol), invalid in OUTPUT.
pub const NFT_META_PROTOCOL: u32 = 1;
/// Packet priority (skb->priority).
pub const NFT_META_PRIORITY: u32 = 2;
/// Packet mark (skb->mark).
pub const NFT_META_MARK: u32 = 3;
/// Packet input interface index (dev->ifindex).
pub const NFT_META_IIF: u32 = 4;
/// Packet output interface index (dev->ifindex).
pub const NFT_META_OIF: u32 = 5;
/// Packet input interface name (dev->name).
pub const NFT_META_IIFNAME: u32 = 6;
/// Packet output interface name (dev->name).
pub const NFT_META_OIFNAME: u32 = 7;
/// `NFT_META_IFTYPE`.
pub const NFT_META_IFTYPE: u32 = 8;
/// Packet output interface type (dev->type).
pub const NFT_META_OIFTYPE: u32 = 9;
/// Originating socket UID (fsuid).
pub const NFT_META_SKUID: u32 = 10;
/// Originating socket GID (fsgid).
pub const NFT_META_SKGID: u32 = 11;
/// Packet nftrace bit.
pub const NFT_META_NFTRACE: u32 = 12;
/// Realm value of packet's route (skb->dst->tclassid).
pub const NFT_META_RTCLASSID: u32 = 13;
/// Packet secmark (skb->secmark).
pub const NFT_META_SECMARK: u32 = 14;
/// Netfilter protocol.
pub const NFT_META_NFPROTO: u32 = 15;
/// Layer 4 protocol number.
pub const NFT_META_L4PROTO: u32 = 16;
/// Packet input bridge interface name.
pub const NFT_META_BRI_IIFNAME: u32 = 17;
/// Packet output bridge interface name.
pub const NFT_META_BRI_OIFNAME: u32 = 18;
/// Packet type (skb->pkt_type), special handling for loopback.
pub const NFT_META_PKTTYPE: u32 = 19;
/// Cpu id through smp_processor_id().
pub const NFT_META_CPU: u32 = 20;
/// Packet input interface group.
pub const NFT_META_IIFGROUP: u32 = 21;
/// Packet output interface group.
pub const NFT_META_OIFGROUP: u32 = 22;
/// Socket control group (skb->sk->sk_classid).
pub const NFT_META_CGROUP: u32 = 23;
/// A 32bit pseudo-random number.
pub const NFT_META_PRANDOM: u32 = 24;
/// Boolean, secpath_exists (!!skb->sp).
pub const NFT_META_SECPATH: u32 = 25;
/// Packet input interface kind name (dev->rtnl_link_ops->kind).
pub const NFT_META_IIFKIND: u32 = 26;
/// Packet output interface kind name (dev->rtnl_link_ops->kind).
pub const NFT_META_OIFKIND: u32 = 27;
/// Packet input bridge port pvid.
pub const NFT_META_BRI_IIFPVID: u32 = 28;
/// Packet input bridge vlan proto.
pub const NFT_META_BRI_IIFVPROTO: u32 = 29;
/// Time since epoch (in nanoseconds).
pub const NFT_META_TIME_NS: u32 = 30;
/// Day of week (from 0 = Sunday to 6 = Saturday).
pub const NFT_META_TIME_DAY: u32 = 31;
/// Hour of day (in seconds).
pub const NFT_META_TIME_HOUR: u32 = 32;
/// Slave device interface index.
pub const NFT_META_SDIF: u32 = 33;
/// Slave device interface name.
pub const NFT_META_SDIFNAME: u32 = 34;

// nf_tables meta expression netlink attributes

/// Destination register.
pub const NFTA_META_DREG: u16 = 1;
/// Meta data item to load.
pub const NFTA_META_KEY: u16 = 2;
/// Source register.
pub const NFTA_META_SREG: u16 = 3;

// nf_tables ct expression keys

/// Conntrack state (bitmask of enum ip_conntrack_info).
pub const NFT_CT_STATE: u32 = 0;
/// Conntrack direction (enum ip_conntrack_dir).
pub const NFT_CT_DIRECTION: u32 = 1;
/// Conntrack status (bitmask of enum ip_conntrack_status).
pub const NFT_CT_STATUS: u32 = 2;
/// Conntrack mark value.
pub const NFT_CT_MARK: u32 = 3;
/// Conntrack secmark value.
pub const NFT_CT_SECMARK: u32 = 4;
/// Relative conntrack expiration time in ms.
pub const NFT_CT_EXPIRATION: u32 = 5;
/// Connection tracking helper assigned to conntrack.
pub const NFT_CT_HELPER: u32 = 6;
/// Conntrack layer 3 protocol.
pub const NFT_CT_L3PROTOCOL: u32 = 7;
/// Conntrack layer 3 protocol source (IPv4/IPv6 address, deprecated).
pub const NFT_CT_SRC: u32 = 8;
/// Conntrack layer 3 protocol destination (IPv4/IPv6 address, deprecated).
pub const NFT_CT_DST: u32 = 9;
/// Conntrack layer 4 protocol.
pub const NFT_CT_PROTOCOL: u32 = 10;
/// Conntrack layer 4 protocol source.
pub const NFT_CT_PROTO_SRC: u32 = 11;
/// Conntrack layer 4 protocol destination.
pub const NFT_CT_PROTO_DST: u32 = 12;
/// Conntrack labels.
pub const NFT_CT_LABELS: u32 = 13;
/// Conntrack packets.
pub const NFT_CT_PKTS: u32 = 14;
/// Conntrack bytes.
pub const NFT_CT_BYTES: u32 = 15;
/// Conntrack average bytes per packet.
pub const NFT_CT_AVGPKT: u32 = 16;
/// Conntrack zone.
pub const NFT_CT_ZONE: u32 = 17;
/// Ctnetlink events to be generated for this conntrack.
pub const NFT_CT_EVENTMASK: u32 = 18;
/// Conntrack layer 3 protocol source (IPv4 address).
pub const NFT_CT_SRC_IP: u32 = 19;
/// Conntrack layer 3 protocol destination (IPv4 address).
pub const NFT_CT_DST_IP: u32 = 20;
/// Conntrack layer 3 protocol source (IPv6 address).
pub const NFT_CT_SRC_IP6: u32 = 21;
/// Conntrack layer 3 protocol destination (IPv6 address).
pub const NFT_CT_DST_IP6: u32 = 22;
/// Conntrack id.
pub const NFT_CT_ID: u32 = 23;

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
/// `NFT_LIMIT_PKT_BYTES`.
pub const NFT_LIMIT_PKT_BYTES: u32 = 1;

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
/// `NFTA_LIMIT_PAD`.
pub const NFTA_LIMIT_PAD: u16 = 6;

// nf_tables counter expression netlink attributes

/// Number of bytes.
pub const NFTA_COUNTER_BYTES: u16 = 1;
/// Number of packets.
pub const NFTA_COUNTER_PACKETS: u16 = 2;
/// `NFTA_COUNTER_PAD`.
pub const NFTA_COUNTER_PAD: u16 = 3;

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

// nf_tables reject expression reject types

/// Reject using ICMP unreachable.
pub const NFT_REJECT_ICMP_UNREACH: u32 = 0;
/// Reject using TCP RST.
pub const NFT_REJECT_TCP_RST: u32 = 1;
/// Abstracted ICMP unreachable for bridge and inet.
pub const NFT_REJECT_ICMPX_UNREACH: u32 = 2;

// nf_tables reject expression netlink attributes

/// Packet type to use.
pub const NFTA_REJECT_TYPE: u16 = 1;
/// ICMP code to use.
pub const NFTA_REJECT_ICMP_CODE: u16 = 2;

// nft_fib_result

/// `NFT_FIB_RESULT_OIF`.
pub const NFT_FIB_RESULT_OIF: u32 = 1;
/// `NFT_FIB_RESULT_OIFNAME`.
pub const NFT_FIB_RESULT_OIFNAME: u32 = 2;
/// `NFT_FIB_RESULT_ADDRTYPE`.
pub const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;

// nft_fib_flags

/// `NFTA_FIB_F_SADDR`.
pub const NFTA_FIB_F_SADDR: u32 = 1;
/// `NFTA_FIB_F_DADDR`.
pub const NFTA_FIB_F_DADDR: u32 = 2;
/// `NFTA_FIB_F_MARK`.
pub const NFTA_FIB_F_MARK: u32 = 4;
/// `NFTA_FIB_F_IIF`.
pub const NFTA_FIB_F_IIF: u32 = 8;
/// `NFTA_FIB_F_OIF`.
pub const NFTA_FIB_F_OIF: u32 = 16;
/// `NFTA_FIB_F_PRESENT`.
pub const NFTA_FIB_F_PRESENT: u32 = 32;

// nf_tables fib expression netlink attributes

/// Destination register.
pub const NFTA_FIB_DREG: u16 = 1;
/// Desired result.
pub const NFTA_FIB_RESULT: u16 = 2;
/// Flowi fields to initialize when querying the FIB.
pub const NFTA_FIB_FLAGS: u16 = 3;

// nf_tables stateful object expression netlink attributes

/// Object type for immediate reference.
pub const NFTA_OBJREF_IMM_TYPE: u16 = 1;
/// Object name for immediate reference.
pub const NFTA_OBJREF_IMM_NAME: u16 = 2;
/// Source register of the data to look for.
pub const NFTA_OBJREF_SET_SREG: u16 = 3;
/// Name of the set where to look for.
pub const NFTA_OBJREF_SET_NAME: u16 = 4;
/// Id of the set where to look for in this transaction.
pub const NFTA_OBJREF_SET_ID: u16 = 5;

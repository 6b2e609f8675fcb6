//! The types of what keys and values are made of, with the numbers and lengths that the kernel and `nft`
//! know them by. It reads and writes no values.

/// The type of a key field or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// An interface name, 16 bytes, padded with zeros.
    IfName,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A number, four bytes in host order.
    Mark,
    /// An IP protocol, one byte.
    Proto,
    /// A port, two bytes in network order.
    Port,
    /// An ICMP type (of either family), one byte.
    IcmpType,
    /// An ICMP code (of either family), one byte.
    IcmpCode,
    /// A connection's state, four bytes in host order: one of the bits of [`ct_state`](crate::ct_state).
    CtState,
    /// A packet's direction in its connection, one byte: 0 original, 1 reply.
    CtDirection,
    /// A family, one byte: 2 for IPv4 and 10 for IPv6.
    NfProto,
    /// An observed type that is never written here.
    Unknown {
        /// The data type's number.
        id: u32,
        /// In bytes.
        len: u32,
    },
}

impl Field {
    /// The number of the data type as `nft` knows it.
    pub fn id(self) -> u32 {
        match self {
            Field::IfName => 41,
            Field::Ipv4 => 7,
            Field::Ipv6 => 8,
            Field::Mark => 19,
            Field::Proto => 12,
            Field::Port => 13,
            Field::IcmpType => 14,
            Field::IcmpCode => 32,
            Field::CtState => 26,
            Field::CtDirection => 27,
            Field::NfProto => 2,
            Field::Unknown { id, .. } => id,
        }
    }

    /// In bytes, without padding.
    #[allow(clippy::len_without_is_empty, reason = "no field is empty")]
    pub fn len(self) -> usize {
        match self {
            Field::IfName | Field::Ipv6 => 16,
            Field::Ipv4 | Field::Mark | Field::CtState => 4,
            Field::Port => 2,
            Field::Proto
            | Field::IcmpType
            | Field::IcmpCode
            | Field::CtDirection
            | Field::NfProto => 1,
            Field::Unknown { len, .. } => len as usize,
        }
    }

    /// In bytes, padded to whole registers.
    pub fn padded(self) -> usize {
        self.len().div_ceil(4) * 4
    }
}

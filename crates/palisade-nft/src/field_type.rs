//! The types of key fields and values, with the kernel's and `nft`'s type numbers and lengths.

/// The type of a key field or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// An interface name, 16 bytes, padded with zeros.
    IfName,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A number, four bytes in host byte order.
    Mark,
    /// An IP protocol, one byte.
    Proto,
    /// A port, two bytes in network byte order.
    Port,
    /// An ICMP type (of either family), one byte.
    IcmpType,
    /// An ICMP code (of either family), one byte.
    IcmpCode,
    /// A connection's state, four bytes in host byte order: one of the bits of
    /// [`ct_state`](crate::ct_state).
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

impl FieldType {
    /// `nft`'s number of the data type.
    pub fn id(self) -> u32 {
        match self {
            FieldType::IfName => 41,
            FieldType::Ipv4 => 7,
            FieldType::Ipv6 => 8,
            FieldType::Mark => 19,
            FieldType::Proto => 12,
            FieldType::Port => 13,
            FieldType::IcmpType => 14,
            FieldType::IcmpCode => 32,
            FieldType::CtState => 26,
            FieldType::CtDirection => 27,
            FieldType::NfProto => 2,
            FieldType::Unknown { id, .. } => id,
        }
    }

    /// The length in bytes, without padding.
    #[allow(clippy::len_without_is_empty, reason = "no field is empty")]
    pub fn len(self) -> usize {
        match self {
            FieldType::IfName | FieldType::Ipv6 => 16,
            FieldType::Ipv4 | FieldType::Mark | FieldType::CtState => 4,
            FieldType::Port => 2,
            FieldType::Proto
            | FieldType::IcmpType
            | FieldType::IcmpCode
            | FieldType::CtDirection
            | FieldType::NfProto => 1,
            FieldType::Unknown { len, .. } => len as usize,
        }
    }

    /// The length in bytes, padded to whole registers.
    pub fn padded(self) -> usize {
        self.len().div_ceil(4) * 4
    }
}

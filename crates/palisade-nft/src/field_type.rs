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
    /// Every type that is written here.
    pub const KNOWN: [FieldType; 11] = [
        FieldType::IfName,
        FieldType::Ipv4,
        FieldType::Ipv6,
        FieldType::Mark,
        FieldType::Proto,
        FieldType::Port,
        FieldType::IcmpType,
        FieldType::IcmpCode,
        FieldType::CtState,
        FieldType::CtDirection,
        FieldType::NfProto,
    ];

    /// `nft`'s number and name of the data type, and its length in bytes.
    fn properties(self) -> (u32, &'static str, usize) {
        match self {
            FieldType::IfName => (41, "ifname", 16),
            FieldType::Ipv4 => (7, "ipv4_addr", 4),
            FieldType::Ipv6 => (8, "ipv6_addr", 16),
            FieldType::Mark => (19, "mark", 4),
            FieldType::Proto => (12, "inet_proto", 1),
            FieldType::Port => (13, "inet_service", 2),
            FieldType::IcmpType => (14, "icmp_type", 1),
            FieldType::IcmpCode => (32, "icmp_code", 1),
            FieldType::CtState => (26, "ct_state", 4),
            FieldType::CtDirection => (27, "ct_dir", 1),
            FieldType::NfProto => (2, "nf_proto", 1),
            FieldType::Unknown { id, len } => (id, "unknown", len as usize),
        }
    }

    /// `nft`'s number of the data type.
    pub fn id(self) -> u32 {
        self.properties().0
    }

    pub(crate) fn name(self) -> &'static str {
        self.properties().1
    }

    /// The length in bytes, without padding.
    #[allow(clippy::len_without_is_empty, reason = "no field is empty")]
    pub fn len(self) -> usize {
        self.properties().2
    }

    /// The length in bytes, padded to whole registers.
    pub fn padded(self) -> usize {
        self.len().div_ceil(4) * 4
    }
}

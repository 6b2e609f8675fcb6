//! The names of ICMP messages, as Cilium's metrics have them.
//!
//! Promises: a type or code without a name is its number. Never: fails.

/// A type, its name, and the names of its codes from 0 on.
type MessageName = (u32, &'static str, &'static [&'static str]);

const ICMP: &[MessageName] = &[
    (0, "EchoReply", &[]),
    (
        3,
        "DestinationUnreachable",
        &[
            "Net",
            "Host",
            "Protocol",
            "Port",
            "FragmentationNeeded",
            "SourceRoutingFailed",
            "NetUnknown",
            "HostUnknown",
            "SourceIsolated",
            "NetAdminProhibited",
            "HostAdminProhibited",
            "NetTOS",
            "HostTOS",
            "CommAdminProhibited",
            "HostPrecedence",
            "PrecedenceCutoff",
        ],
    ),
    (4, "SourceQuench", &[]),
    (5, "Redirect", &["Net", "Host", "TOS+Net", "TOS+Host"]),
    (8, "EchoRequest", &[]),
    (9, "RouterAdvertisement", &[]),
    (10, "RouterSolicitation", &[]),
    (
        11,
        "TimeExceeded",
        &["TTLExceeded", "FragmentReassemblyTimeExceeded"],
    ),
    (
        12,
        "ParameterProblem",
        &["PointerIndicatesError", "MissingOption", "BadLength"],
    ),
    (13, "TimestampRequest", &[]),
    (14, "TimestampReply", &[]),
    (15, "InfoRequest", &[]),
    (16, "InfoReply", &[]),
    (17, "AddressMaskRequest", &[]),
    (18, "AddressMaskReply", &[]),
];

const ICMPV6: &[MessageName] = &[
    (
        1,
        "DestinationUnreachable",
        &[
            "NoRouteToDst",
            "AdminProhibited",
            "BeyondScopeOfSrc",
            "AddressUnreachable",
            "PortUnreachable",
            "SrcAddressFailedPolicy",
            "RejectRouteToDst",
        ],
    ),
    (2, "PacketTooBig", &[]),
    (
        3,
        "TimeExceeded",
        &["HopLimitExceeded", "FragmentReassemblyTimeExceeded"],
    ),
    (
        4,
        "ParameterProblem",
        &[
            "ErroneousHeaderField",
            "UnrecognizedNextHeader",
            "UnrecognizedIPv6Option",
        ],
    ),
    (128, "EchoRequest", &[]),
    (129, "EchoReply", &[]),
    (133, "RouterSolicitation", &[]),
    (134, "RouterAdvertisement", &[]),
    (135, "NeighborSolicitation", &[]),
    (136, "NeighborAdvertisement", &[]),
    (137, "Redirect", &[]),
];

/// The name of an ICMP message of IPv4.
pub(super) fn icmp_text(kind: u32, code: u32) -> String {
    message_text(ICMP, kind, code)
}

/// The name of an ICMP message of IPv6.
pub(super) fn icmpv6_text(kind: u32, code: u32) -> String {
    message_text(ICMPV6, kind, code)
}

fn message_text(names: &[MessageName], kind: u32, code: u32) -> String {
    let Some((_, name, codes)) = names.iter().find(|(known, ..)| *known == kind) else {
        return format!("{kind}({code})");
    };
    let code_name = usize::try_from(code).ok().and_then(|code| codes.get(code));
    match code_name {
        Some(code) => format!("{name}({code})"),
        None if codes.is_empty() && code == 0 => (*name).to_owned(),
        None => format!("{name}(Code: {code})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_names_of_cilium() {
        assert_eq!(icmp_text(8, 0), "EchoRequest");
        assert_eq!(icmp_text(8, 3), "EchoRequest(Code: 3)");
        assert_eq!(icmp_text(3, 3), "DestinationUnreachable(Port)");
        assert_eq!(icmp_text(3, 77), "DestinationUnreachable(Code: 77)");
        assert_eq!(icmp_text(5, 3), "Redirect(TOS+Host)");
        assert_eq!(icmp_text(42, 7), "42(7)");
        assert_eq!(icmpv6_text(128, 0), "EchoRequest");
        assert_eq!(icmpv6_text(1, 4), "DestinationUnreachable(PortUnreachable)");
    }
}

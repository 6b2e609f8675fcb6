//! ICMP messages of rules: by family, and by the number or the name of the type.

use crate::report::ObjectReport;
use crate::suggest::nearest;
use palisade_manifest::{Field, IntOrString, quote};
use palisade_model::{Family, IcmpMatch, Protocol, TrafficMatch};

const KNOWN: &[&str] = &["fields"];
const KNOWN_FIELD: &[&str] = &["family", "type"];
/// The maximum number of messages in an item.
const MAX_FIELDS: usize = 40;

/// Names of types of ICMP. Source: Cilium's API reference, `ICMPField`.
const TYPES_V4: [(&str, u8); 14] = [
    ("EchoReply", 0),
    ("DestinationUnreachable", 3),
    ("Redirect", 5),
    ("Echo", 8),
    ("EchoRequest", 8),
    ("RouterAdvertisement", 9),
    ("RouterSelection", 10),
    ("TimeExceeded", 11),
    ("ParameterProblem", 12),
    ("Timestamp", 13),
    ("TimestampReply", 14),
    ("Photuris", 40),
    ("ExtendedEchoRequest", 42),
    ("ExtendedEchoReply", 43),
];

/// Names of types of ICMPv6. Source: as above.
const TYPES_V6: [(&str, u8); 27] = [
    ("DestinationUnreachable", 1),
    ("PacketTooBig", 2),
    ("TimeExceeded", 3),
    ("ParameterProblem", 4),
    ("EchoRequest", 128),
    ("EchoReply", 129),
    ("MulticastListenerQuery", 130),
    ("MulticastListenerReport", 131),
    ("MulticastListenerDone", 132),
    ("RouterSolicitation", 133),
    ("RouterAdvertisement", 134),
    ("NeighborSolicitation", 135),
    ("NeighborAdvertisement", 136),
    ("RedirectMessage", 137),
    ("RouterRenumbering", 138),
    ("ICMPNodeInformationQuery", 139),
    ("ICMPNodeInformationResponse", 140),
    ("InverseNeighborDiscoverySolicitation", 141),
    ("InverseNeighborDiscoveryAdvertisement", 142),
    ("HomeAgentAddressDiscoveryRequest", 144),
    ("HomeAgentAddressDiscoveryReply", 145),
    ("MobilePrefixSolicitation", 146),
    ("MobilePrefixAdvertisement", 147),
    ("DuplicateAddressRequestCodeSuffix", 157),
    ("DuplicateAddressConfirmationCodeSuffix", 158),
    ("ExtendedEchoRequest", 160),
    ("ExtendedEchoReply", 161),
];

/// Reads an item of `icmps`.
pub(super) fn read(item: &Field<'_>, report: &mut ObjectReport) -> Vec<TrafficMatch> {
    let mut traffic = Vec::new();
    if !report.is_object(item) {
        return traffic;
    }
    report.check_fields(item, KNOWN, &[]);
    let fields = report.items(item, "fields");
    if fields.len() > MAX_FIELDS {
        report.error(
            item,
            format!(
                "too many types: {}, the maximum is {MAX_FIELDS}",
                fields.len()
            ),
        );
    }
    if fields.is_empty() {
        report.warn(item, "no types: it matches nothing");
    }
    for field in &fields {
        traffic.extend(message(field, report));
    }
    traffic
}

fn message(field: &Field<'_>, report: &mut ObjectReport) -> Option<TrafficMatch> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN_FIELD, &[]);
    let family = match report.text(field, "family") {
        None | Some(("IPv4" | "", _)) => Some(Family::V4),
        Some(("IPv6", _)) => Some(Family::V6),
        Some((other, at)) => {
            report.error(
                &at,
                format!("wrong family: {}; use IPv4 or IPv6", quote(other)),
            );
            None
        }
    };
    let Some(at) = report.child(field, "type") else {
        report.error(field, "`type` is required, but missing");
        return None;
    };
    let family = family?;
    let kind = match report.ok(at.as_int_or_string())? {
        IntOrString::Int(number) => u8::try_from(number).ok(),
        IntOrString::String(text) => {
            let names: &[(&str, u8)] = match family {
                Family::V4 => &TYPES_V4,
                Family::V6 => &TYPES_V6,
            };
            let named = names.iter().find(|(name, _)| *name == text);
            named.map(|(_, kind)| *kind).or_else(|| parse_type(text))
        }
    };
    let Some(kind) = kind else {
        report.error(&at, unknown_type(&at, family));
        return None;
    };
    if kind == 0 {
        report.warn(
            &at,
            "the type 0 matches messages of this type only; Cilium takes it for every type",
        );
    }
    let protocol = match family {
        Family::V6 => Protocol::ICMPV6,
        Family::V4 => Protocol::ICMP,
    };
    Some(TrafficMatch {
        icmp: Some(IcmpMatch { kind, code: None }),
        ..TrafficMatch::protocol(protocol)
    })
}

/// A number as text, as the pattern of the CRD has it.
fn parse_type(text: &str) -> Option<u8> {
    let is_plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_plain)
}

fn unknown_type(at: &Field<'_>, family: Family) -> String {
    let protocol = match family {
        Family::V4 => "ICMP",
        Family::V6 => "ICMPv6",
    };
    let names = match family {
        Family::V4 => TYPES_V4.map(|(name, _)| name).to_vec(),
        Family::V6 => TYPES_V6.map(|(name, _)| name).to_vec(),
    };
    let shown = match at.node.as_str() {
        Some(text) => quote(text),
        None => at.describe(),
    };
    let near = at.node.as_str().and_then(|text| nearest(text, &names));
    let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!("{shown} is not a type of {protocol}: a number from 0 to 255, or a name{hint}")
}

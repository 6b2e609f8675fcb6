//! Networks and addresses in Kubernetes objects, parsed as the API server does.
//!
//! The API server uses the rules of Go before 1.17: leading zeros are allowed and the number is decimal, and
//! an IPv4 address written as IPv6 (`::ffff:10.0.0.0`) is the IPv4 address. It accepts both with a warning,
//! because other programs read them differently; so does this module.

use palisade_manifest::quote;
use palisade_model::{Family, Prefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CidrLiteral {
    /// The network, with host bits cleared.
    pub(crate) net: Prefix,
    /// The prefix length as written; for an IPv4 network written as IPv6 it counts the IPv6 bits.
    pub(crate) written_length: u8,
    /// Warnings about how it is written.
    pub(crate) warnings: Vec<String>,
}

/// Parses `address/length`; the error is the reason.
pub(crate) fn parse_network(text: &str) -> Result<CidrLiteral, String> {
    let shown = quote(text);
    let Some((address, length)) = text.split_once('/') else {
        return Err(match parse_ip(text) {
            Some(address) => format!(
                "{shown} is not a CIDR: write one address as {}",
                Prefix::host(address)
            ),
            None => format!("{shown} is not a CIDR (address/length)"),
        });
    };
    let written = parse_ip(address).ok_or_else(|| not_an_address(address))?;
    let bits = Family::of(written).bits();
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let number = length.parse().ok().filter(|n| digits && *n <= bits);
    let Some(number) = number else {
        return Err(format!(
            "{shown} is not a CIDR: the part after the slash is not a prefix length (0-32 for IPv4, \
             0-128 for IPv6)"
        ));
    };
    let masked = Prefix::new(written, number);
    let (net, mapped) = match (masked.address(), number.checked_sub(96)) {
        (IpAddr::V6(inside), Some(rest)) => match inside.to_ipv4_mapped() {
            Some(inner) => (Prefix::new(inner.into(), rest), true),
            None => (masked, false),
        },
        _ => (masked, false),
    };
    let mut warnings = Vec::new();
    if has_leading_zeros(address) || length.len() > 1 && length.starts_with('0') {
        warnings.push(format!(
            "{shown} has leading zeros, which some programs read as octal; it is read as {net}"
        ));
    }
    if mapped {
        warnings.push(format!(
            "{shown} is an IPv4 network written as IPv6, which some programs read as IPv6; it is read as \
             {net}"
        ));
    }
    if masked.address() != written {
        warnings.push(format!(
            "{} has host bits set; it is read as {net}",
            shown.trim_matches('"')
        ));
    }
    Ok(CidrLiteral {
        net,
        written_length: number,
        warnings,
    })
}

/// Parses `address/length` as CRDs do (`isCIDR`): a way to write it that not all programs read alike is an
/// error. Host bits are allowed.
pub(crate) fn parse_unambiguous_network(text: &str) -> Result<CidrLiteral, String> {
    let literal = parse_network(text)?;
    let (address, length) = text.split_once('/').unwrap_or_default();
    if has_leading_zeros(address) || length.len() > 1 && length.starts_with('0') {
        return Err(format!(
            "{} has leading zeros, which some programs read as octal: write it as {}",
            quote(text),
            literal.net
        ));
    }
    let is_mapped =
        matches!(parse_ip(address), Some(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some());
    if is_mapped {
        return Err(format!(
            "{} is an IPv4 network written as IPv6: write it as IPv4",
            quote(text)
        ));
    }
    Ok(literal)
}

/// Parses an address; the second value is a warning about how it is written.
pub(crate) fn parse_address(text: &str) -> Result<(IpAddr, Option<String>), String> {
    let written = parse_ip(text).ok_or_else(|| not_an_address(text))?;
    let shown = quote(text);
    let address = match written {
        IpAddr::V6(inside) => inside.to_ipv4_mapped().map_or(written, IpAddr::V4),
        IpAddr::V4(_) => written,
    };
    let warning = if address != written {
        Some(format!(
            "{shown} is an IPv4 address written as IPv6; it is read as {address}"
        ))
    } else if has_leading_zeros(text) {
        Some(format!(
            "{shown} has leading zeros, which some programs read as octal; it is read as {address}"
        ))
    } else {
        None
    };
    Ok((address, warning))
}

/// Why an address cannot be the address of a pod.
pub(crate) fn unusable_reason(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_loopback() {
        Some("a loopback address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("the broadcast address")
    } else {
        None
    }
}

fn not_an_address(text: &str) -> String {
    format!("{} is not an IP address", quote(text))
}

/// Parses an address whose numbers may have any number of leading zeros.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        return decimal_octets(text)
            .parse::<Ipv4Addr>()
            .ok()
            .map(IpAddr::V4);
    }
    let groups: Vec<String> = text
        .split(':')
        .map(|group| {
            if group.contains('.') {
                decimal_octets(group)
            } else {
                without_zeros(group, u8::is_ascii_hexdigit).to_owned()
            }
        })
        .collect();
    groups.join(":").parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Removes the leading zeros of octets separated by dots.
fn decimal_octets(text: &str) -> String {
    let octets: Vec<&str> = text
        .split('.')
        .map(|octet| without_zeros(octet, u8::is_ascii_digit))
        .collect();
    octets.join(".")
}

/// Removes the leading zeros of a number; other text is returned unchanged.
fn without_zeros(text: &str, is_digit: fn(&u8) -> bool) -> &str {
    if text.is_empty() || !text.as_bytes().iter().all(is_digit) {
        return text;
    }
    match text.trim_start_matches('0') {
        "" => "0",
        number => number,
    }
}

/// Checks IPv4 octets only; IPv6 groups are hexadecimal in every parser.
fn has_leading_zeros(text: &str) -> bool {
    let octets = text.rsplit(':').next().unwrap_or_default();
    octets.contains('.') && octets.split('.').any(|o| o.len() > 1 && o.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (text, net, doubts) in [
            ("10.0.0.0/8", "10.0.0.0/8", ""),
            ("10.1.2.3/8", "10.0.0.0/8", "bits"),
            ("0.0.0.0/0", "0.0.0.0/0", ""),
            ("fd00::1/64", "fd00::/64", "bits"),
            ("FD00:0:0::/48", "fd00::/48", ""),
            ("::/0", "::/0", ""),
            // As Go before 1.17 and the API server.
            ("010.0.0.0/8", "10.0.0.0/8", "zeros"),
            ("10.0.0.010/32", "10.0.0.10/32", "zeros"),
            ("10.00.0.0/08", "10.0.0.0/8", "zeros"),
            ("10.0.0.0/08", "10.0.0.0/8", "zeros"),
            ("10.0.0.0/000000024", "10.0.0.0/24", "zeros"),
            ("fd00::/064", "fd00::/64", "zeros"),
            ("000fd00:0000000::/64", "fd00::/64", ""),
            ("010.1.0.0/8", "10.0.0.0/8", "zeros bits"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8", "IPv6"),
            ("::ffff:a00:0/104", "10.0.0.0/8", "IPv6"),
            ("::ffff:10.1.2.3/104", "10.0.0.0/8", "IPv6 bits"),
            ("::ffff:010.0.0.0/104", "10.0.0.0/8", "zeros IPv6"),
            ("::ffff:10.0.0.1/128", "10.0.0.1/32", "IPv6"),
            ("::ffff:0:0/96", "0.0.0.0/0", "IPv6"),
            // Shorter than the IPv4-mapped prefix: an IPv6 network.
            ("::ffff:0:0/90", "::ffc0:0:0/90", "bits"),
            ("::ffff:0:0/0", "::/0", "bits"),
        ] {
            let written = parse_network(text).unwrap();
            assert_eq!(written.net, net.parse().unwrap(), "{text}");
            let doubts: Vec<&str> = doubts.split_whitespace().collect();
            assert_eq!(written.warnings.len(), doubts.len(), "{text}: {written:?}");
            for (written, doubt) in written.warnings.iter().zip(doubts) {
                assert!(written.contains(doubt), "{text}: {written}");
                assert!(
                    written.ends_with(&format!("it is read as {net}")),
                    "{written}"
                );
            }
        }
        let length =
            "the part after the slash is not a prefix length (0-32 for IPv4, 0-128 for IPv6)";
        for (text, reason) in [
            ("", "\"\" is not a CIDR (address/length)"),
            (
                "10.0.0.1",
                "\"10.0.0.1\" is not a CIDR: write one address as 10.0.0.1/32",
            ),
            ("10.0.0/8", "\"10.0.0\" is not an IP address"),
            ("10.0.0.256/8", "\"10.0.0.256\" is not an IP address"),
            ("10..0.0/8", "\"10..0.0\" is not an IP address"),
            ("0x10.0.0.0/8", "\"0x10.0.0.0\" is not an IP address"),
            ("+10.0.0.0/8", "\"+10.0.0.0\" is not an IP address"),
            (" 10.0.0.0/8", "\" 10.0.0.0\" is not an IP address"),
            ("/8", "\"\" is not an IP address"),
            ("fd000::/8", "\"fd000::\" is not an IP address"),
            ("fe80::1%eth0/64", "\"fe80::1%eth0\" is not an IP address"),
        ] {
            assert_eq!(parse_network(text), Err(reason.to_owned()), "{text}");
        }
        for text in [
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-0",
            "10.0.0.0/8 ",
            "10.0.0.0/8/8",
            "10.0.0.0/256",
            "10.0.0.0/99999999999999999999",
            "fd00::/129",
        ] {
            let reason = format!("{text:?} is not a CIDR: {length}");
            assert_eq!(parse_network(text), Err(reason), "{text}");
        }
    }

    /// As `isCIDR` of CRDs: Go's `netip.ParsePrefix`, and no IPv4 written as IPv6.
    #[test]
    fn unambiguous_networks() {
        for text in [
            "10.0.0.0/8",
            "10.1.2.3/8",
            "fd00::/64",
            "FD00:0:0::/48",
            "::/0",
        ] {
            assert!(parse_unambiguous_network(text).is_ok(), "{text}");
        }
        for (text, reason) in [
            (
                "010.0.0.0/8",
                "\"010.0.0.0/8\" has leading zeros, which some programs read as octal: write it as \
                 10.0.0.0/8",
            ),
            (
                "10.0.0.0/08",
                "\"10.0.0.0/08\" has leading zeros, which some programs read as octal: write it as \
                 10.0.0.0/8",
            ),
            (
                "::ffff:10.0.0.0/104",
                "\"::ffff:10.0.0.0/104\" is an IPv4 network written as IPv6: write it as IPv4",
            ),
            (
                "::ffff:0:0/90",
                "\"::ffff:0:0/90\" is an IPv4 network written as IPv6: write it as IPv4",
            ),
            (
                "10.0.0.0",
                "\"10.0.0.0\" is not a CIDR: write one address as 10.0.0.0/32",
            ),
        ] {
            assert_eq!(parse_unambiguous_network(text), Err(reason.to_owned()));
        }
    }

    #[test]
    fn addresses() {
        for (text, expected, doubt) in [
            ("10.0.0.1", "10.0.0.1", ""),
            ("010.0.0.08", "10.0.0.8", "zeros"),
            ("::ffff:10.0.0.1", "10.0.0.1", "IPv6"),
            ("fd00::0001", "fd00::1", ""),
        ] {
            let (address, written) = parse_address(text).unwrap();
            assert_eq!(address, expected.parse::<IpAddr>().unwrap(), "{text}");
            let written = written.unwrap_or_default();
            assert_eq!(written.is_empty(), doubt.is_empty(), "{text}");
            assert!(written.contains(doubt), "{text}: {written}");
        }
        assert!(parse_address("10.0.0.1/32").is_err());
        for (text, expected) in [
            ("0.0.0.0", true),
            ("::", true),
            ("127.1.2.3", true),
            ("::1", true),
            ("224.0.0.5", true),
            ("ff02::1", true),
            ("255.255.255.255", true),
            ("10.0.0.1", false),
            ("169.254.1.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(
                unusable_reason(text.parse().unwrap()).is_some(),
                expected,
                "{text}"
            );
        }
    }

    /// A message quotes only a short part of a long text.
    #[test]
    fn long_texts_are_cut_in_messages() {
        let zeros = "0".repeat(1 << 20);
        for text in [
            "x".repeat(1 << 20),
            format!("10.0.0.{zeros}/8"),
            format!("10.0.0.0/{zeros}x"),
        ] {
            let problems = match parse_network(&text) {
                Err(reason) => vec![reason],
                Ok(written) => written.warnings,
            };
            assert!(!problems.is_empty());
            assert!(
                problems.iter().all(|t| t.len() < 400),
                "{}",
                problems[0].len()
            );
        }
        assert!(parse_address(&zeros).unwrap_err().len() < 400);
        let (_, doubt) = parse_address(&format!("10.0.0.{zeros}")).unwrap();
        assert!(doubt.unwrap().len() < 400);
    }
}

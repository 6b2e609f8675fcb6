//! Networks and addresses as Kubernetes objects write them.

use palisade_model::Prefix;
use std::net::IpAddr;

/// A network as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The network, masked.
    pub(crate) net: Prefix,
    /// Whether the address had bits beyond the length.
    pub(crate) host_bits: bool,
}

/// Reads `address/length`. Refused with a reason: anything else, octets with leading zeros (some
/// read them as octal), and IPv4 addresses written as IPv6 ones (some read them as IPv4).
pub(crate) fn network(text: &str) -> Result<Written, String> {
    let Some((address, length)) = text.split_once('/') else {
        return Err(match text.parse::<IpAddr>() {
            Ok(address) => format!(
                "{text:?} is not a CIDR: write one address as {}",
                Prefix::host(address)
            ),
            Err(_) => format!("{text:?} is not a CIDR (address/length)"),
        });
    };
    let address = plain_address(address)?;
    let net: Prefix = format!("{address}/{length}")
        .parse()
        .map_err(|error| format!("{text:?} is not a CIDR: {error}"))?;
    Ok(Written {
        net,
        host_bits: net.address() != address,
    })
}

/// Reads an address, with the refusals of [`network`].
pub(crate) fn plain_address(text: &str) -> Result<IpAddr, String> {
    match text.parse() {
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            None => Ok(IpAddr::V6(address)),
            Some(inner) => Err(format!(
                "{text:?} is an IPv4 address written as IPv6, which is ambiguous: write {inner}"
            )),
        },
        Ok(address) => Ok(address),
        Err(_) if has_leading_zeros(text) => Err(format!(
            "{text:?} has leading zeros, which some read as octal numbers"
        )),
        Err(_) => Err(format!("{text:?} is not an IP address")),
    }
}

fn has_leading_zeros(text: &str) -> bool {
    let octets: Vec<&str> = text.split('.').collect();
    let numeric = |octet: &&str| !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit());
    octets.len() == 4
        && octets.iter().all(numeric)
        && octets.iter().any(|o| o.len() > 1 && o.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (text, net, host_bits) in [
            ("10.0.0.0/8", "10.0.0.0/8", false),
            ("10.1.2.3/8", "10.0.0.0/8", true),
            ("0.0.0.0/0", "0.0.0.0/0", false),
            ("fd00::1/64", "fd00::/64", true),
            ("FD00:0:0::/48", "fd00::/48", false),
            ("::/0", "::/0", false),
        ] {
            let expected = Written {
                net: net.parse().unwrap(),
                host_bits,
            };
            assert_eq!(network(text), Ok(expected), "{text}");
        }
        for (text, reason) in [
            ("", "\"\" is not a CIDR (address/length)"),
            (
                "10.0.0.1",
                "\"10.0.0.1\" is not a CIDR: write one address as 10.0.0.1/32",
            ),
            ("10.0.0/8", "\"10.0.0\" is not an IP address"),
            (
                "010.0.0.0/8",
                "\"010.0.0.0\" has leading zeros, which some read as octal numbers",
            ),
            (
                "::ffff:10.0.0.0/104",
                "\"::ffff:10.0.0.0\" is an IPv4 address written as IPv6, which is ambiguous: write \
                 10.0.0.0",
            ),
            (
                "10.0.0.0/33",
                "\"10.0.0.0/33\" is not a CIDR: the part after the slash is not a prefix length \
                 (0-32 for IPv4, 0-128 for IPv6)",
            ),
            (
                "10.0.0.0/8/8",
                "\"10.0.0.0/8/8\" is not a CIDR: the part after the slash is not a prefix length \
                 (0-32 for IPv4, 0-128 for IPv6)",
            ),
            ("fe80::1%eth0/64", "\"fe80::1%eth0\" is not an IP address"),
        ] {
            assert_eq!(network(text), Err(reason.to_owned()), "{text}");
        }
    }
}

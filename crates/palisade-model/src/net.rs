//! Networks: addresses that share a prefix.
//!
//! A [`Prefix`] is always masked: host bits are zero, so equal networks are equal values. This module
//! never resolves names and never accesses an interface.

use crate::{Family, address_from_number, address_to_number};
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// A network: an address and a prefix length, host bits zero.
///
/// Ordered by family, then address, then length, so that a prefix sorts before those inside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The whole IPv4 address space.
    pub const ALL_V4: Prefix = Prefix {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        length: 0,
    };
    /// The whole IPv6 address space.
    pub const ALL_V6: Prefix = Prefix {
        address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        length: 0,
    };

    /// The network of `length` bits that contains `address`; host bits are cleared. A length greater than
    /// the family's is clamped to it.
    pub fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(Family::of(address).bits());
        let value = address_to_number(address) & mask(Family::of(address), length);
        Prefix {
            address: address_from_number(Family::of(address), value),
            length,
        }
    }

    /// The prefix of exactly this address.
    pub fn host(address: IpAddr) -> Self {
        Prefix {
            address,
            length: Family::of(address).bits(),
        }
    }

    /// The whole address space of a family.
    pub fn all(family: Family) -> Self {
        match family {
            Family::V4 => Prefix::ALL_V4,
            Family::V6 => Prefix::ALL_V6,
        }
    }

    /// The network address, which is the lowest address of the prefix.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The number of leading bits that are fixed.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The family.
    pub fn family(self) -> Family {
        Family::of(self.address)
    }

    /// Whether this prefix contains exactly one address.
    pub fn is_host(self) -> bool {
        self.length == self.family().bits()
    }

    /// Whether the prefix contains the address.
    pub fn contains(self, address: IpAddr) -> bool {
        self.family() == Family::of(address)
            && address_to_number(address) & mask(self.family(), self.length)
                == address_to_number(self.address)
    }

    /// Whether the prefix contains every address of `other` (a prefix covers itself).
    pub fn covers(self, other: Prefix) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// The lowest and highest address, as numbers (IPv4 in the low 32 bits).
    pub fn bounds(self) -> (u128, u128) {
        let low = address_to_number(self.address);
        let host = match self.family().bits() - self.length {
            128 => u128::MAX,
            n => (1u128 << n) - 1,
        };
        (low, low | host)
    }

    /// The highest address.
    pub fn last(self) -> IpAddr {
        address_from_number(self.family(), self.bounds().1)
    }

    /// The next shorter prefix that covers this one, or `None` for the whole address space.
    pub fn parent(self) -> Option<Prefix> {
        (self.length > 0).then(|| Prefix::new(self.address, self.length - 1))
    }
}

fn mask(family: Family, length: u8) -> u128 {
    let bits = family.bits();
    if length == 0 {
        return 0;
    }
    let all = match family {
        Family::V4 => u128::from(u32::MAX),
        Family::V6 => u128::MAX,
    };
    (all >> (bits - length)) << (bits - length)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a valid prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsePrefixError {
    /// There is no `/`.
    NoLength,
    /// The part before the `/` is not an IP address.
    BadAddress,
    /// The part after the `/` is not a prefix length of the address's family.
    BadLength,
}

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParsePrefixError::NoLength => "no prefix length: write it as address/length",
            ParsePrefixError::BadAddress => "the part before the slash is not an IP address",
            ParsePrefixError::BadLength => {
                "the part after the slash is not a prefix length (0-32 for IPv4, 0-128 for IPv6)"
            }
        })
    }
}

impl core::error::Error for ParsePrefixError {}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    /// Parses `address/length`. Host bits may be set and are cleared. The length must have no sign and
    /// no leading zero.
    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let (address, length) = text.split_once('/').ok_or(ParsePrefixError::NoLength)?;
        let address: IpAddr = address.parse().map_err(|_| ParsePrefixError::BadAddress)?;
        let plain = length.bytes().all(|b| b.is_ascii_digit())
            && (length.len() == 1 || !length.starts_with('0'));
        let length: u8 = length.parse().map_err(|_| ParsePrefixError::BadLength)?;
        if !plain || length > Family::of(address).bits() {
            return Err(ParsePrefixError::BadLength);
        }
        Ok(Prefix::new(address, length))
    }
}

impl TryFrom<String> for Prefix {
    type Error = ParsePrefixError;
    fn try_from(text: String) -> Result<Self, ParsePrefixError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> String {
        alloc::format!("{prefix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn p(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_are_masked_and_compare_by_network() {
        assert_eq!(p("10.1.2.3/8"), p("10.0.0.0/8"));
        assert_eq!(p("fd00::1/64").to_string(), "fd00::/64");
        assert_eq!(p("0.0.0.0/0"), Prefix::ALL_V4);
    }

    #[test]
    fn containment() {
        assert!(p("10.0.0.0/8").contains("10.255.0.1".parse().unwrap()));
        assert!(!p("10.0.0.0/8").contains("11.0.0.1".parse().unwrap()));
        assert!(!p("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(p("::/0").contains("::1".parse().unwrap()));
        assert!(p("10.0.0.0/8").covers(p("10.0.0.0/8")));
        assert!(!p("10.0.0.0/9").covers(p("10.0.0.0/8")));
        assert_eq!(p("::/0").bounds(), (0, u128::MAX));
        assert_eq!(p("10.0.0.0/30").last().to_string(), "10.0.0.3");
    }

    #[test]
    fn what_is_not_a_prefix() {
        for text in [
            "10.0.0.0",
            "10.0.0/8",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/08",
            "::/129",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}

//! Kinds of values: what a text must look like, and what it then is.
//!
//! A text is judged here alone, the same wherever it was said. What two parameters mean to each
//! other is in [`super::Config::resolve`].

use palisade_model::{Family, Prefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A path.
    Path,
    /// A path, or nothing.
    OptionalPath,
    /// The name of a file, without a folder.
    FileName,
    /// A whole number in these bounds.
    Number {
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// A whole number in these bounds, or 0 for a meaning of its own.
    NumberOrZero {
        /// The least but 0.
        least: u32,
        /// The most.
        most: u32,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `true` or `false`; as a flag without a value, `true`.
    Bool,
    /// A name of a-z, 0-9 and _, a letter first.
    Name {
        /// The most letters.
        most: usize,
    },
    /// The name of a group of users, or nothing.
    Group,
    /// At least 8 bits next to each other.
    Mask,
    /// One network of a family to give addresses from, or `none`.
    Network(Family),
    /// Networks that do not overlap, with commas between them.
    Networks {
        /// Whether `none` says: not one of them.
        none: bool,
    },
    /// Networks and ranges of addresses, with commas between them.
    Ranges,
    /// Kubernetes namespaces, with commas between them.
    Namespaces,
    /// An address and a port, or nothing.
    Address,
}

/// What a text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterValue {
    /// A path; empty where there is none.
    Path(PathBuf),
    /// A number; of a choice, which word it is, of a switch 0 or 1.
    Number(u32),
    /// A name.
    Text(String),
    /// Networks, `None` where nothing was said.
    Networks(Option<Vec<Prefix>>),
    /// Ranges of addresses.
    Ranges(Vec<AddressRange>),
    /// Names.
    Names(Vec<String>),
    /// An address and a port.
    Address(Option<SocketAddr>),
}

/// Addresses of one family from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first.
    pub first: IpAddr,
    /// The last; not before the first, and of the same family.
    pub last: IpAddr,
}

impl AddressRange {
    /// Whether it holds this address.
    pub fn contains(self, address: IpAddr) -> bool {
        Family::of(self.first) == Family::of(address) && (self.first..=self.last).contains(&address)
    }

    /// Whether it and the network have an address in common.
    pub fn overlaps(self, network: Prefix) -> bool {
        let bounds = AddressRange::from(network);
        Family::of(self.first) == network.family()
            && self.first <= bounds.last
            && bounds.first <= self.last
    }
}

impl From<Prefix> for AddressRange {
    fn from(network: Prefix) -> Self {
        AddressRange {
            first: network.address(),
            last: network.last(),
        }
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl ParameterKind {
    /// Whether several values may be said, with commas or by repeating the flag.
    pub fn is_list(self) -> bool {
        matches!(
            self,
            ParameterKind::Networks { .. } | ParameterKind::Ranges | ParameterKind::Namespaces
        )
    }

    /// What is taken, in words, for the documentation.
    pub fn describe(self) -> String {
        match self {
            ParameterKind::Path => "path".to_owned(),
            ParameterKind::OptionalPath => "path, or empty".to_owned(),
            ParameterKind::FileName => "file name".to_owned(),
            ParameterKind::Number { least, most } => format!("number from {least} to {most}"),
            ParameterKind::NumberOrZero { least, most } => {
                format!("0, or number from {least} to {most}")
            }
            ParameterKind::OneOf(words) => words.join(", "),
            ParameterKind::Bool => "true, false".to_owned(),
            ParameterKind::Name { most } => {
                format!("1 to {most} of a-z, 0-9 and _, a letter first")
            }
            ParameterKind::Group => "group, or empty".to_owned(),
            ParameterKind::Mask => "mask of at least 8 bits next to each other".to_owned(),
            ParameterKind::Network(family) => format!("{family} network, or none"),
            ParameterKind::Networks { none: true } => "networks, or none".to_owned(),
            ParameterKind::Networks { none: false } => "networks".to_owned(),
            ParameterKind::Ranges => "networks and ranges".to_owned(),
            ParameterKind::Namespaces => "namespaces".to_owned(),
            ParameterKind::Address => "address and port, or empty".to_owned(),
        }
    }

    /// What a text means.
    ///
    /// # Errors
    /// Why it means nothing, to be read after the value.
    pub fn parse(self, text: &str) -> Result<ParameterValue, String> {
        match self {
            ParameterKind::Path if text.is_empty() => Err("is no path".to_owned()),
            ParameterKind::Path | ParameterKind::OptionalPath => {
                Ok(ParameterValue::Path(PathBuf::from(text)))
            }
            ParameterKind::FileName => parse_file_name(text).map(ParameterValue::Text),
            ParameterKind::Number { least, most } => parse_number(text, least, most)
                .ok_or_else(|| format!("is no number from {least} to {most}"))
                .map(ParameterValue::Number),
            ParameterKind::NumberOrZero { least, most } => parse_number(text, 0, most)
                .filter(|n| *n == 0 || *n >= least)
                .ok_or_else(|| format!("is neither 0 nor a number from {least} to {most}"))
                .map(ParameterValue::Number),
            ParameterKind::OneOf(words) => parse_choice(text, words),
            ParameterKind::Bool => parse_choice(text, &["false", "true"]),
            ParameterKind::Name { most } => parse_name(text, most).map(ParameterValue::Text),
            ParameterKind::Group => parse_group(text).map(ParameterValue::Text),
            ParameterKind::Mask => parse_mask(text).map(ParameterValue::Number),
            ParameterKind::Network(family) => parse_pool(text, family),
            ParameterKind::Networks { none } => parse_networks(text, none),
            ParameterKind::Ranges => parse_ranges(text).map(ParameterValue::Ranges),
            ParameterKind::Namespaces => parse_namespaces(text).map(ParameterValue::Names),
            ParameterKind::Address => parse_socket_address(text).map(ParameterValue::Address),
        }
    }
}

fn parse_number(text: &str, least: u32, most: u32) -> Option<u32> {
    // What Rust takes besides digits is a plus sign, which is nobody's intention.
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|n| digits && (least..=most).contains(n))
}

fn parse_choice(text: &str, words: &[&str]) -> Result<ParameterValue, String> {
    match words.iter().position(|word| *word == text) {
        Some(index) => Ok(ParameterValue::Number(index as u32)),
        None => Err(format!("must be one of {}", words.join(", "))),
    }
}

fn parse_file_name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && !text.contains(['/', '\0']) && text != "." && text != "..";
    let has_extension = [".conflist", ".conf", ".json"]
        .iter()
        .any(|end| text.ends_with(end));
    match (is_name, has_extension) {
        (false, _) => Err("is no name of a file".to_owned()),
        (true, false) => Err("must end in .conflist, or runtimes pass it over".to_owned()),
        (true, true) => Ok(text.to_owned()),
    }
}

fn parse_name(text: &str, most: usize) -> Result<String, String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let fits = text.len() <= most
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(letter);
    match fits {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "must be 1 to {most} of a-z, 0-9 and _, a letter first"
        )),
    }
}

fn parse_group(text: &str) -> Result<String, String> {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match text.len() <= 32 && !text.starts_with('-') && text.chars().all(letter) {
        true => Ok(text.to_owned()),
        false => Err("is no name of a group".to_owned()),
    }
}

fn parse_mask(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let contiguous = |m: &u32| {
        m.count_ones() >= 8 && (m >> m.trailing_zeros()).trailing_ones() == m.count_ones()
    };
    parsed.filter(contiguous).ok_or_else(|| {
        "is no mask of at least 8 bits next to each other, such as 0xffff0000".to_owned()
    })
}

fn parse_pool(text: &str, family: Family) -> Result<ParameterValue, String> {
    if text == "none" {
        return Ok(ParameterValue::Networks(Some(Vec::new())));
    }
    let pool: Prefix = text
        .parse()
        .map_err(|error| format!("is no CIDR: {error}"))?;
    if pool.family() != family {
        return Err(format!("is no {family} network"));
    }
    if family.bits() - pool.length() < 2 {
        return Err("holds fewer than four addresses".to_owned());
    }
    Ok(ParameterValue::Networks(Some(vec![pool])))
}

/// The items of a list; blanks around them do not count.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let nothing = text.trim().is_empty();
    text.split(',').map(str::trim).filter(move |_| !nothing)
}

fn parse_networks(text: &str, none: bool) -> Result<ParameterValue, String> {
    if none && text == "none" {
        return Ok(ParameterValue::Networks(Some(Vec::new())));
    }
    let mut networks: Vec<Prefix> = Vec::new();
    for item in items(text) {
        let network: Prefix = item
            .parse()
            .map_err(|error| format!("holds {item:?}, which is no CIDR: {error}"))?;
        // Addresses are given from lists that may be `none`; such a network needs some.
        if none && network.family().bits() - network.length() < 2 {
            return Err(format!("holds {item}, which has fewer than four addresses"));
        }
        if let Some(other) = networks
            .iter()
            .find(|other| other.covers(network) || network.covers(**other))
        {
            return Err(format!("holds {network} and {other}, which overlap"));
        }
        networks.push(network);
    }
    Ok(ParameterValue::Networks(match networks.is_empty() {
        true => None,
        false => Some(networks),
    }))
}

fn parse_ranges(text: &str) -> Result<Vec<AddressRange>, String> {
    items(text).map(parse_range).collect()
}

fn parse_namespaces(text: &str) -> Result<Vec<String>, String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let name = |item: &str| {
        let inside = !item.starts_with('-') && !item.ends_with('-');
        let fits = inside && (1..=63).contains(&item.len()) && item.bytes().all(letter);
        fits.then(|| item.to_owned())
            .ok_or_else(|| format!("holds {item:?}, which is no name of a namespace"))
    };
    items(text).map(name).collect()
}

fn parse_range(item: &str) -> Result<AddressRange, String> {
    let Some((first, last)) = item.split_once('-') else {
        let network: Prefix = match item.parse::<IpAddr>() {
            Ok(address) => Prefix::host(address),
            Err(_) => item
                .parse()
                .map_err(|error| format!("holds {item:?}, which is no CIDR: {error}"))?,
        };
        return Ok(network.into());
    };
    let parse_end = |text: &str| {
        let text = text.trim();
        text.parse::<IpAddr>()
            .map_err(|_| format!("holds {item:?}, of which {text:?} is no address"))
    };
    let (first, last) = (parse_end(first)?, parse_end(last)?);
    if Family::of(first) != Family::of(last) {
        return Err(format!(
            "holds {item}, which begins and ends in two families"
        ));
    }
    if first > last {
        return Err(format!("holds {item}, which ends before it begins"));
    }
    Ok(AddressRange { first, last })
}

fn parse_socket_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let port = |host: &str| text.strip_prefix(host).and_then(|port| port.parse().ok());
    // The one name that means the same everywhere; no other is looked up.
    if let Some(port) = port("localhost:") {
        return Ok(Some((Ipv4Addr::LOCALHOST, port).into()));
    }
    let parsed: Option<SocketAddr> = text.parse().ok();
    let parsed = parsed.filter(|address| address.port() != 0);
    let unspecified = [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv6Addr::UNSPECIFIED.into(),
    ];
    match parsed {
        Some(address) if unspecified.contains(&address.ip()) => {
            Err("is every address of this host; name one of them".to_owned())
        }
        Some(address) => Ok(Some(address)),
        None => Err("is no address with a port, such as 127.0.0.1:9245 or [::1]:9245".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ParameterKind, text: &str) -> String {
        kind.parse(text).unwrap_err()
    }

    #[test]
    fn lists_are_read_item_by_item() {
        let pools = ParameterKind::Networks { none: true };
        let two = Some(vec![
            "10.0.0.0/24".parse().unwrap(),
            "fd00::/64".parse().unwrap(),
        ]);
        assert_eq!(
            pools.parse("10.0.0.0/24, fd00::/64"),
            Ok(ParameterValue::Networks(two))
        );
        assert_eq!(
            pools.parse("none"),
            Ok(ParameterValue::Networks(Some(Vec::new())))
        );
        assert_eq!(pools.parse(""), Ok(ParameterValue::Networks(None)));
        assert!(error(pools, "10.0.0.0/24,10.0.0.128/25").contains("overlap"));
        assert!(error(pools, "10.0.0.0/31").contains("fewer than four"));
        assert!(error(pools, "10.0.0.0/24,").contains("\"\", which is no CIDR"));
        assert!(error(ParameterKind::Networks { none: false }, "none").contains("no CIDR"));
    }

    #[test]
    fn ranges_hold_their_ends() {
        let Ok(ParameterValue::Ranges(ranges)) =
            ParameterKind::Ranges.parse("10.0.0.4-10.0.0.6,fd00::1,10.0.1.0/30")
        else {
            panic!("ranges")
        };
        let has = |a: &str| ranges.iter().any(|r| r.contains(a.parse().unwrap()));
        let asked = [
            "10.0.0.3", "10.0.0.4", "10.0.0.6", "10.0.0.7", "fd00::1", "fd00::2", "10.0.1.3",
        ];
        assert_eq!(
            asked.map(has),
            [false, true, true, false, true, false, true]
        );
        assert!(ranges[0].overlaps("10.0.0.6/31".parse().unwrap()));
        assert!(!ranges[0].overlaps("10.0.0.8/30".parse().unwrap()));
        assert!(!ranges[0].overlaps("::/0".parse().unwrap()));
        assert!(error(ParameterKind::Ranges, "10.0.0.6-10.0.0.4").contains("before it begins"));
        assert!(error(ParameterKind::Ranges, "10.0.0.6-fd00::1").contains("two families"));
        assert!(error(ParameterKind::Ranges, "10.0.0.6-x").contains("\"x\" is no address"));
    }

    #[test]
    fn namespaces_are_names() {
        let names = |text: &str| ParameterKind::Namespaces.parse(text);
        let two = vec!["shop".to_owned(), "team-a".to_owned()];
        assert_eq!(names("shop, team-a"), Ok(ParameterValue::Names(two)));
        assert_eq!(names(""), Ok(ParameterValue::Names(Vec::new())));
        for wrong in ["Shop", "-a", "a-", "a b", "a,,b", "a.b", &"x".repeat(64)] {
            assert!(error(ParameterKind::Namespaces, wrong).contains("no name of a namespace"));
        }
    }

    #[test]
    fn single_values() {
        let address = |text: &str| ParameterKind::Address.parse(text);
        let at = |text: &str| Ok(ParameterValue::Address(Some(text.parse().unwrap())));
        assert_eq!(address(""), Ok(ParameterValue::Address(None)));
        assert_eq!(address("localhost:80"), at("127.0.0.1:80"));
        assert_eq!(address("[::1]:80"), at("[::1]:80"));
        for wrong in [
            "127.0.0.1",
            "127.0.0.1:0",
            "example.org:80",
            "0.0.0.0:80",
            "[::]:80",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        let mtu = ParameterKind::NumberOrZero {
            least: 576,
            most: 9_000,
        };
        assert_eq!(mtu.parse("0"), Ok(ParameterValue::Number(0)));
        assert!(mtu.parse("575").is_err() && mtu.parse("+600").is_err());
        assert_eq!(
            ParameterKind::Bool.parse("true"),
            Ok(ParameterValue::Number(1))
        );
        assert!(error(ParameterKind::Bool, "yes").contains("false, true"));
        assert!(ParameterKind::FileName.parse("../x.conflist").is_err());
        assert!(error(ParameterKind::FileName, "10-palisade").contains("must end in"));
        assert!(
            ParameterKind::Group.parse("").is_ok() && ParameterKind::Group.parse("a b").is_err()
        );
        assert!(error(ParameterKind::Mask, "0xf0f0").contains("is no mask"));
        assert!(
            error(ParameterKind::Network(Family::V4), "fd00::/64").contains("is no IPv4 network")
        );
        assert!(error(ParameterKind::Name { most: 8 }, "Pal").contains("a letter first"));
    }
}

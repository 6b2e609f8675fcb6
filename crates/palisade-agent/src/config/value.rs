//! The kinds of parameter values: their syntax and their meaning.
//!
//! All parsing of values is done here, the same for every source. [`super::Config::resolve`] checks the
//! values of different parameters against each other.

use palisade_etcd::EtcdOptions;
use palisade_model::{FailsafePort, Family, Prefix, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A path.
    Path,
    /// A path, or nothing.
    OptionalPath,
    /// The name of a file, without a directory.
    FileName,
    /// An integer within these bounds.
    Number {
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// An integer within these bounds, or 0 with a special meaning.
    NumberOrZero {
        /// The minimum except for 0.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `true` or `false`; as a flag without a value, `true`.
    Bool,
    /// A name of a-z, 0-9 and _ that begins with a letter.
    Name {
        /// The maximum length.
        most: usize,
    },
    /// The name of a user group, or nothing.
    Group,
    /// At least 8 contiguous bits.
    Mask,
    /// A number with one bit.
    Bit,
    /// One network of a family from which addresses are allocated, or `none`.
    Network(Family),
    /// Networks that do not overlap, separated by commas.
    Networks,
    /// Networks from which addresses are allocated, separated by commas; or `none`, or `node`.
    Pools,
    /// Networks and ranges of addresses, separated by commas.
    Ranges,
    /// Failsafe ports, separated by commas; or `none`.
    FailsafePorts,
    /// The name of a Kubernetes node, or nothing.
    NodeName,
    /// Kubernetes namespaces, separated by commas.
    Namespaces,
    /// An address and a port, or nothing.
    Address,
    /// Endpoints of etcd, separated by commas.
    Endpoints,
    /// What keys of etcd begin with.
    KeyPrefix,
    /// Printable text, or nothing.
    OptionalText,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterValue {
    /// A path; empty if there is none.
    Path(PathBuf),
    /// A number; for `OneOf`, the index of the word; for `Bool`, 0 or 1.
    Number(u32),
    /// A name.
    Text(String),
    /// Networks; `None` if none were given.
    Networks(Option<Vec<Prefix>>),
    /// The networks of this host's Node object.
    NodeNetworks,
    /// Ranges of addresses.
    Ranges(Vec<AddressRange>),
    /// Failsafe ports.
    FailsafePorts(Vec<FailsafePort>),
    /// Names.
    Names(Vec<String>),
    /// An address and a port.
    Address(Option<SocketAddr>),
}

/// Addresses of one family from first to last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first.
    pub first: IpAddr,
    /// The last; not before the first, and of the same family.
    pub last: IpAddr,
}

impl AddressRange {
    /// Whether the range contains this address.
    pub fn contains(self, address: IpAddr) -> bool {
        Family::of(self.first) == Family::of(address) && (self.first..=self.last).contains(&address)
    }

    /// Whether the range and the network overlap.
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
    /// Whether it is a list, separated by commas or given by repeating the flag.
    pub fn is_list(self) -> bool {
        matches!(
            self,
            ParameterKind::Networks
                | ParameterKind::Pools
                | ParameterKind::Ranges
                | ParameterKind::FailsafePorts
                | ParameterKind::Namespaces
                | ParameterKind::Endpoints
        )
    }

    /// A description of the accepted values, for the documentation.
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
            ParameterKind::Mask => "mask of at least 8 contiguous bits".to_owned(),
            ParameterKind::Bit => "one bit".to_owned(),
            ParameterKind::Network(family) => format!("{family} network, or none"),
            ParameterKind::Networks => "networks".to_owned(),
            ParameterKind::Pools => "networks, or node, or none".to_owned(),
            ParameterKind::NodeName => "node name, or empty".to_owned(),
            ParameterKind::Ranges => "networks and ranges".to_owned(),
            ParameterKind::FailsafePorts => "ports".to_owned(),
            ParameterKind::Namespaces => "namespaces".to_owned(),
            ParameterKind::Address => "address and port, or empty".to_owned(),
            ParameterKind::Endpoints => "endpoints, or empty".to_owned(),
            ParameterKind::KeyPrefix => "prefix of keys, a slash first".to_owned(),
            ParameterKind::OptionalText => "text, or empty".to_owned(),
        }
    }

    /// Parses a text.
    ///
    /// # Errors
    /// Why the text is invalid, phrased to follow the value.
    pub fn parse(self, text: &str) -> Result<ParameterValue, String> {
        match self {
            ParameterKind::Path if text.is_empty() => Err("is not a path".to_owned()),
            ParameterKind::Path | ParameterKind::OptionalPath => {
                Ok(ParameterValue::Path(PathBuf::from(text)))
            }
            ParameterKind::FileName => parse_file_name(text).map(ParameterValue::Text),
            ParameterKind::Number { least, most } => parse_number(text, least, most)
                .ok_or_else(|| format!("is not a number from {least} to {most}"))
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
            ParameterKind::Bit => parse_bit(text).map(ParameterValue::Number),
            ParameterKind::Network(family) => parse_pool(text, family),
            ParameterKind::Networks => parse_networks(text, false),
            ParameterKind::Pools if text == "node" => Ok(ParameterValue::NodeNetworks),
            ParameterKind::Pools => parse_networks(text, true),
            ParameterKind::NodeName => parse_node_name(text).map(ParameterValue::Text),
            ParameterKind::Ranges => parse_ranges(text).map(ParameterValue::Ranges),
            ParameterKind::FailsafePorts => {
                parse_failsafe_ports(text).map(ParameterValue::FailsafePorts)
            }
            ParameterKind::Namespaces => parse_namespaces(text).map(ParameterValue::Names),
            ParameterKind::Address => parse_socket_address(text).map(ParameterValue::Address),
            ParameterKind::Endpoints => parse_endpoints(text).map(ParameterValue::Names),
            ParameterKind::KeyPrefix => EtcdOptions::parse_prefix(text)
                .map(ParameterValue::Text)
                .map_err(|error| error.to_string()),
            ParameterKind::OptionalText => match text.chars().any(char::is_control) {
                true => Err("contains control characters".to_owned()),
                false => Ok(ParameterValue::Text(text.to_owned())),
            },
        }
    }
}

fn parse_number(text: &str, least: u32, most: u32) -> Option<u32> {
    // Rust also accepts a leading plus sign, which is certainly a mistake.
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
        (false, _) => Err("is not a file name".to_owned()),
        (true, false) => Err("must end in .conflist, or runtimes ignore it".to_owned()),
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
        false => Err("is not a group name".to_owned()),
    }
}

/// A number in decimal, or in hexadecimal after `0x`.
fn parse_bits(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse_bit(text: &str) -> Result<u32, String> {
    parse_bits(text)
        .filter(|bits| bits.is_power_of_two())
        .ok_or_else(|| "is not a number with one bit, such as 0x1000".to_owned())
}

fn parse_mask(text: &str) -> Result<u32, String> {
    let contiguous = |m: &u32| {
        m.count_ones() >= 8 && (m >> m.trailing_zeros()).trailing_ones() == m.count_ones()
    };
    parse_bits(text)
        .filter(contiguous)
        .ok_or_else(|| "is not a mask of at least 8 contiguous bits, such as 0xffff0000".to_owned())
}

fn parse_pool(text: &str, family: Family) -> Result<ParameterValue, String> {
    if text == "none" {
        return Ok(ParameterValue::Networks(Some(Vec::new())));
    }
    let pool: Prefix = text
        .parse()
        .map_err(|error| format!("is not a CIDR: {error}"))?;
    if pool.family() != family {
        return Err(format!("is not an {family} network"));
    }
    if family.bits() - pool.length() < 2 {
        return Err("contains fewer than four addresses".to_owned());
    }
    Ok(ParameterValue::Networks(Some(vec![pool])))
}

/// The items of a list, without surrounding blanks.
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
            .map_err(|error| format!("contains {item:?}, which is not a CIDR: {error}"))?;
        // Addresses are allocated from lists that accept `none`; such a network needs free addresses.
        if none && network.family().bits() - network.length() < 2 {
            return Err(format!(
                "contains {item}, which has fewer than four addresses"
            ));
        }
        if let Some(other) = networks
            .iter()
            .find(|other| other.covers(network) || network.covers(**other))
        {
            return Err(format!("contains {network} and {other}, which overlap"));
        }
        networks.push(network);
    }
    Ok(ParameterValue::Networks(match networks.is_empty() {
        true => None,
        false => Some(networks),
    }))
}

fn parse_node_name(text: &str) -> Result<String, String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    match text.len() <= 253 && text.bytes().all(letter) {
        true => Ok(text.to_owned()),
        false => Err("is not a node name: a-z, 0-9, - and . are allowed".to_owned()),
    }
}

/// `PROTOCOL:PORT` or `PROTOCOL:CIDR:PORT`, as Calico writes them; the network of IPv6 may be in brackets.
fn parse_failsafe_ports(text: &str) -> Result<Vec<FailsafePort>, String> {
    match text.trim() {
        "none" => return Ok(Vec::new()),
        "" => return Err("is empty: `none` is the word for no failsafe port, and without the parameter the default ones are open".to_owned()),
        _ => {}
    }
    items(text).map(parse_failsafe_port).collect()
}

fn parse_failsafe_port(item: &str) -> Result<FailsafePort, String> {
    let wrong = |reason: &str| format!("contains {item:?}: {reason}");
    let form = || wrong("PROTOCOL:PORT or PROTOCOL:CIDR:PORT is expected, such as tcp:22");
    let (protocol, rest) = item.split_once(':').ok_or_else(form)?;
    let (net, port) = match rest.rsplit_once(':') {
        Some((net, port)) => (Some(net), port),
        None => (None, rest),
    };
    let protocol = Protocol::parse(protocol).filter(|protocol| protocol.has_ports());
    let protocol = protocol.ok_or_else(|| wrong("the protocol must be tcp, udp or sctp"))?;
    let port = parse_number(port, 1, u32::from(u16::MAX));
    let port = port.and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or_else(|| wrong("the port must be a number from 1 to 65535"))?;
    let net = net.map(|net| {
        let inner = net.strip_prefix('[').and_then(|net| net.strip_suffix(']'));
        let parsed = inner.unwrap_or(net).parse::<Prefix>();
        parsed.map_err(|error| wrong(&format!("{net:?} is not a CIDR: {error}")))
    });
    Ok(FailsafePort {
        protocol,
        port,
        net: net.transpose()?,
    })
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
            .ok_or_else(|| format!("contains {item:?}, which is not a namespace name"))
    };
    items(text).map(name).collect()
}

/// The endpoints as given: the scheme of one without any depends on other parameters.
fn parse_endpoints(text: &str) -> Result<Vec<String>, String> {
    let check = |item: &str| match EtcdOptions::parse_endpoint(item, false) {
        Ok(_) => Ok(item.to_owned()),
        Err(error) => Err(error.to_string()),
    };
    items(text).map(check).collect()
}

fn parse_range(item: &str) -> Result<AddressRange, String> {
    let Some((first, last)) = item.split_once('-') else {
        let network: Prefix = match item.parse::<IpAddr>() {
            Ok(address) => Prefix::host(address),
            Err(_) => item
                .parse()
                .map_err(|error| format!("contains {item:?}, which is not a CIDR: {error}"))?,
        };
        return Ok(network.into());
    };
    let parse_end = |text: &str| {
        let text = text.trim();
        text.parse::<IpAddr>()
            .map_err(|_| format!("contains {item:?}, where {text:?} is not an address"))
    };
    let (first, last) = (parse_end(first)?, parse_end(last)?);
    if Family::of(first) != Family::of(last) {
        return Err(format!(
            "contains {item}, whose ends are of different families"
        ));
    }
    if first > last {
        return Err(format!("contains {item}, which ends before it begins"));
    }
    Ok(AddressRange { first, last })
}

fn parse_socket_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let port = |host: &str| text.strip_prefix(host).and_then(|port| port.parse().ok());
    // The only name with a fixed meaning; no other name is resolved.
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
            Err("means every address of this host; use one of them".to_owned())
        }
        Some(address) => Ok(Some(address)),
        None => {
            Err("is not an address with a port, such as 127.0.0.1:9245 or [::1]:9245".to_owned())
        }
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
        let pools = ParameterKind::Pools;
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
        assert!(error(pools, "10.0.0.0/24,").contains("\"\", which is not a CIDR"));
        assert!(error(ParameterKind::Networks, "none").contains("not a CIDR"));
    }

    #[test]
    fn pools_may_be_those_of_the_node() {
        let node = ParameterKind::Pools.parse("node");
        assert_eq!(node, Ok(ParameterValue::NodeNetworks));
        assert!(error(ParameterKind::Networks, "node").contains("not a CIDR"));
        let name = ParameterKind::NodeName.parse("node-1.example");
        assert_eq!(name, Ok(ParameterValue::Text("node-1.example".to_owned())));
        assert!(error(ParameterKind::NodeName, "Node 1").contains("not a node name"));
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
        assert!(error(ParameterKind::Ranges, "10.0.0.6-fd00::1").contains("different families"));
        assert!(error(ParameterKind::Ranges, "10.0.0.6-x").contains("\"x\" is not an address"));
    }

    #[test]
    fn namespaces_are_names() {
        let names = |text: &str| ParameterKind::Namespaces.parse(text);
        let two = vec!["shop".to_owned(), "team-a".to_owned()];
        assert_eq!(names("shop, team-a"), Ok(ParameterValue::Names(two)));
        assert_eq!(names(""), Ok(ParameterValue::Names(Vec::new())));
        for wrong in ["Shop", "-a", "a-", "a b", "a,,b", "a.b", &"x".repeat(64)] {
            assert!(error(ParameterKind::Namespaces, wrong).contains("not a namespace name"));
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
        assert!(error(ParameterKind::Mask, "0xf0f0").contains("is not a mask"));
        for text in ["0x1800", "0", "0x", "bit"] {
            assert!(
                error(ParameterKind::Bit, text).contains("with one bit"),
                "{text}"
            );
        }
        assert!(
            error(ParameterKind::Network(Family::V4), "fd00::/64")
                .contains("is not an IPv4 network")
        );
        assert!(error(ParameterKind::Name { most: 8 }, "Pal").contains("a letter first"));
    }
}

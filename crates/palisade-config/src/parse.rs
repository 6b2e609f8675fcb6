//! Parsing of values: one function for each syntax, the same for every source.
//!
//! An error is phrased to follow the value. Values are not checked against each other here.

use crate::values::{AddressPools, AddressRange, DnsServers, EtcdEndpoint, KubernetesApi};
use palisade_model::{Encapsulation, Encapsulations, FailsafePort, Family, Prefix, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("is not a path".to_owned());
    }
    Ok(PathBuf::from(text))
}

pub(crate) fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    // Rust also accepts a leading plus sign, which is certainly a mistake.
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|n| digits && (least..=most).contains(n))
}

/// The position of a word among these.
pub(crate) fn choice(text: &str, words: &[&str]) -> Result<usize, String> {
    words
        .iter()
        .position(|word| *word == text)
        .ok_or_else(|| format!("must be one of {}", words.join(", ")))
}

pub(crate) fn file_name(text: &str) -> Result<String, String> {
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

pub(crate) fn name(text: &str, most: usize) -> Result<String, String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let fits = text.len() <= most
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(letter);
    if !fits {
        return Err(format!(
            "must be 1 to {most} of a-z, 0-9 and _, a letter first"
        ));
    }
    Ok(text.to_owned())
}

pub(crate) fn group(text: &str) -> Result<String, String> {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if text.len() > 32 || text.starts_with('-') || !text.chars().all(letter) {
        return Err("is not a group name".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn printable(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("contains control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// A mask in decimal, or in hexadecimal after `0x`.
pub(crate) fn mask(text: &str) -> Result<u32, String> {
    let bits = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let contiguous = |m: &u32| {
        m.count_ones() >= 8 && (m >> m.trailing_zeros()).trailing_ones() == m.count_ones()
    };
    bits.filter(contiguous)
        .ok_or_else(|| "is not a mask of at least 8 contiguous bits, such as 0xffff0000".to_owned())
}

/// The items of a list, without surrounding blanks.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let nothing = text.trim().is_empty();
    text.split(',').map(str::trim).filter(move |_| !nothing)
}

pub(crate) fn networks(text: &str) -> Result<Vec<Prefix>, String> {
    let mut networks: Vec<Prefix> = Vec::new();
    for item in items(text) {
        let network: Prefix = item
            .parse()
            .map_err(|error| format!("contains {item:?}, which is not a CIDR: {error}"))?;
        let overlaps = |other: &&Prefix| other.covers(network) || network.covers(**other);
        if let Some(other) = networks.iter().find(overlaps) {
            return Err(format!("contains {network} and {other}, which overlap"));
        }
        networks.push(network);
    }
    Ok(networks)
}

/// Words for DNS servers, and networks.
pub(crate) fn dns_servers(text: &str) -> Result<DnsServers, String> {
    let mut servers = DnsServers::default();
    let mut others = Vec::new();
    for item in items(text) {
        match item {
            "policy" => servers.of_policy = true,
            "cluster" => servers.of_cluster = true,
            "node" => servers.of_node = true,
            // An address alone is what most people write.
            _ => match item.parse() {
                Ok(address) => others.push(Prefix::host(address).to_string()),
                Err(_) => others.push(item.to_owned()),
            },
        }
    }
    servers.networks = networks(&others.join(","))?;
    Ok(servers)
}

/// `node`, `none`, or networks with room for addresses. `auto` is replaced before
/// ([`crate::sections::ipam::automatic_pools`]).
pub(crate) fn pools(text: &str) -> Result<AddressPools, String> {
    match text {
        "node" => return Ok(AddressPools::Node),
        "none" => return Ok(AddressPools::Networks(Vec::new())),
        _ => {}
    }
    let networks = networks(text)?;
    let is_small = |network: &&Prefix| network.family().bits() - network.length() < 2;
    if let Some(small) = networks.iter().find(is_small) {
        return Err(format!(
            "contains {small}, which has fewer than four addresses"
        ));
    }
    Ok(AddressPools::Networks(networks))
}

pub(crate) fn node_name(text: &str) -> Result<String, String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    if text.len() > 253 || !text.bytes().all(letter) {
        return Err("is not a node name: a-z, 0-9, - and . are allowed".to_owned());
    }
    Ok(text.to_owned())
}

/// Failsafe ports, separated by commas, or `none`: `PROTOCOL:PORT` or `PROTOCOL:CIDR:PORT`, as Calico writes
/// them; the network of IPv6 may be in brackets.
///
/// # Errors
/// Why the text is invalid, phrased to follow the value.
pub fn parse_failsafe_ports(text: &str) -> Result<Vec<FailsafePort>, String> {
    match text.trim() {
        "none" => return Ok(Vec::new()),
        "" => return Err("is empty: `none` is the word for no failsafe port, and without the parameter the default ones are open".to_owned()),
        _ => {}
    }
    items(text).map(failsafe_port).collect()
}

fn failsafe_port(item: &str) -> Result<FailsafePort, String> {
    let wrong = |reason: &str| format!("contains {item:?}: {reason}");
    let form = || wrong("PROTOCOL:PORT or PROTOCOL:CIDR:PORT is expected, such as tcp:22");
    let (protocol, rest) = item.split_once(':').ok_or_else(form)?;
    let (net, port) = match rest.rsplit_once(':') {
        Some((net, port)) => (Some(net), port),
        None => (None, rest),
    };
    let protocol = Protocol::parse(protocol).filter(|protocol| protocol.has_ports());
    let protocol = protocol.ok_or_else(|| wrong("the protocol must be tcp, udp or sctp"))?;
    let port = number(port, 1, u32::from(u16::MAX));
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

pub(crate) fn encapsulations(text: &str, words: &[&str]) -> Result<Encapsulations, String> {
    let encapsulation = |item: &str| {
        let mut all = Encapsulation::ALL.into_iter();
        let named = all.find(|encapsulation| encapsulation.name() == item);
        named.ok_or_else(|| format!("contains {item:?}, which is none of {}", words.join(", ")))
    };
    items(text).map(encapsulation).collect()
}

pub(crate) fn namespaces(text: &str) -> Result<Vec<String>, String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let name = |item: &str| {
        let inside = !item.starts_with('-') && !item.ends_with('-');
        let fits = inside && (1..=63).contains(&item.len()) && item.bytes().all(letter);
        fits.then(|| item.to_owned())
            .ok_or_else(|| format!("contains {item:?}, which is not a namespace name"))
    };
    items(text).map(name).collect()
}

/// Names that the kernel would give an interface.
pub(crate) fn interfaces(text: &str) -> Result<Vec<String>, String> {
    let letter = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b':';
    let name = |item: &str| {
        let fits = (1..=15).contains(&item.len()) && item.bytes().all(letter);
        let fits = fits && item != "." && item != ".." && item != "lo";
        fits.then(|| item.to_owned()).ok_or_else(|| {
            format!("contains {item:?}, which is not the name of an interface to other hosts")
        })
    };
    items(text).map(name).collect()
}

pub(crate) fn kubernetes_api(text: &str) -> Result<KubernetesApi, String> {
    match text {
        "off" => Ok(KubernetesApi::Off),
        "in-cluster" => Ok(KubernetesApi::InCluster),
        path if path.contains('/') => Ok(KubernetesApi::Kubeconfig(PathBuf::from(path))),
        _ => Err("must be off, in-cluster, or the path of a kubeconfig file".to_owned()),
    }
}

pub(crate) fn etcd_endpoints(text: &str) -> Result<Vec<EtcdEndpoint>, String> {
    items(text).map(etcd_endpoint).collect()
}

fn etcd_endpoint(item: &str) -> Result<EtcdEndpoint, String> {
    let wrong = || {
        format!(
            "contains {item:?}, which is not an endpoint such as https://etcd.example:2379 or 10.0.0.1:2379"
        )
    };
    let (has_tls, authority) = match item.split_once("://") {
        Some(("https", authority)) => (Some(true), authority),
        Some(("http", authority)) => (Some(false), authority),
        Some(_) => return Err(wrong()),
        None => (None, item),
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let uri: http::Uri = format!("http://{authority}").parse().map_err(|_| wrong())?;
    let has_user = uri
        .authority()
        .is_none_or(|authority| authority.as_str().contains('@'));
    let is_bare = uri.path() == "/" && uri.query().is_none();
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    if has_user || !is_bare || !has_host || uri.port_u16().is_none() {
        return Err(wrong());
    }
    Ok(EtcdEndpoint {
        has_tls,
        authority: authority.to_owned(),
    })
}

/// The prefix of keys, without a slash at its end.
pub(crate) fn key_prefix(text: &str) -> Result<String, String> {
    let prefix = text.trim_end_matches('/');
    let is_plain = prefix.chars().all(|c| c.is_ascii_graphic());
    if prefix.len() < 2 || !prefix.starts_with('/') || !is_plain {
        return Err(
            "is not a prefix such as /palisade: it begins with / and has a name".to_owned(),
        );
    }
    Ok(prefix.to_owned())
}

pub(crate) fn ranges(text: &str) -> Result<Vec<AddressRange>, String> {
    items(text).map(range).collect()
}

fn range(item: &str) -> Result<AddressRange, String> {
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

pub(crate) fn socket_address(text: &str) -> Result<Option<SocketAddr>, String> {
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

    #[test]
    fn lists_are_read_item_by_item() {
        let two = vec!["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()];
        assert_eq!(
            pools("10.0.0.0/24, fd00::/64"),
            Ok(AddressPools::Networks(two))
        );
        assert_eq!(pools("none"), Ok(AddressPools::Networks(Vec::new())));
        assert_eq!(networks(""), Ok(Vec::new()));
        let error = |text: &str| pools(text).unwrap_err();
        assert!(error("10.0.0.0/24,10.0.0.128/25").contains("overlap"));
        assert!(error("10.0.0.0/31").contains("fewer than four"));
        assert!(error("10.0.0.0/24,").contains("\"\", which is not a CIDR"));
        assert!(networks("none").unwrap_err().contains("not a CIDR"));
    }

    #[test]
    fn pools_may_be_those_of_the_node() {
        assert_eq!(pools("node"), Ok(AddressPools::Node));
        assert!(networks("node").unwrap_err().contains("not a CIDR"));
        assert_eq!(node_name("node-1.example").unwrap(), "node-1.example");
        assert!(node_name("Node 1").unwrap_err().contains("not a node name"));
    }

    #[test]
    fn ranges_contain_their_ends() {
        let parsed = ranges("10.0.0.4-10.0.0.6,fd00::1,10.0.1.0/30").unwrap();
        let has = |a: &str| parsed.iter().any(|r| r.contains(a.parse().unwrap()));
        let addresses = [
            "10.0.0.3", "10.0.0.4", "10.0.0.6", "10.0.0.7", "fd00::1", "fd00::2", "10.0.1.3",
        ];
        assert_eq!(
            addresses.map(has),
            [false, true, true, false, true, false, true]
        );
        assert!(parsed[0].overlaps("10.0.0.6/31".parse().unwrap()));
        assert!(!parsed[0].overlaps("10.0.0.8/30".parse().unwrap()));
        assert!(!parsed[0].overlaps("::/0".parse().unwrap()));
        let error = |text: &str| ranges(text).unwrap_err();
        assert!(error("10.0.0.6-10.0.0.4").contains("before it begins"));
        assert!(error("10.0.0.6-fd00::1").contains("different families"));
        assert!(error("10.0.0.6-x").contains("\"x\" is not an address"));
    }

    #[test]
    fn namespaces_are_names() {
        assert_eq!(namespaces("shop, team-a").unwrap(), ["shop", "team-a"]);
        assert_eq!(namespaces("").unwrap(), [""; 0]);
        for wrong in ["Shop", "-a", "a-", "a b", "a,,b", "a.b", &"x".repeat(64)] {
            assert!(
                namespaces(wrong)
                    .unwrap_err()
                    .contains("not a namespace name")
            );
        }
    }

    #[test]
    fn an_api_server_is_reached_in_the_cluster_or_by_a_file() {
        assert_eq!(kubernetes_api("off"), Ok(KubernetesApi::Off));
        assert_eq!(kubernetes_api("in-cluster"), Ok(KubernetesApi::InCluster));
        assert_eq!(
            kubernetes_api("/k"),
            Ok(KubernetesApi::Kubeconfig("/k".into()))
        );
        for wrong in ["", "on", "kubeconfig"] {
            assert!(kubernetes_api(wrong).unwrap_err().contains("the path of"));
        }
    }

    #[test]
    fn endpoints_of_etcd_have_a_host_and_a_port() {
        let parse = |text: &str| etcd_endpoint(text).map(|endpoint| endpoint.url(false));
        assert_eq!(parse("10.0.0.1:2379").unwrap(), "http://10.0.0.1:2379");
        assert_eq!(parse("https://[::1]:2379/").unwrap(), "https://[::1]:2379");
        let secure = etcd_endpoint("e.example:2379").unwrap().url(true);
        assert_eq!(secure, "https://e.example:2379");
        for wrong in [
            "",
            "e.example",
            "ftp://e:1",
            "http://e:1/path",
            "http://u:p@e:1",
            "e:x",
            "http://:1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_of_keys_is_a_path() {
        assert_eq!(key_prefix("/a/b/").unwrap(), "/a/b");
        for wrong in ["", "/", "palisade", "/a b"] {
            assert!(key_prefix(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn encapsulations_are_named() {
        let parse = |text: &str| encapsulations(text, &["vxlan"]);
        let two = [Encapsulation::Vxlan, Encapsulation::Ipip];
        assert_eq!(parse("ipip, vxlan"), Ok(two.into_iter().collect()));
        assert_eq!(parse(""), Ok(Encapsulations::NONE));
        assert!(parse("vxlan,policy").unwrap_err().contains("\"policy\""));
    }

    #[test]
    fn single_values() {
        let at = |text: &str| Ok(Some(text.parse().unwrap()));
        assert_eq!(socket_address(""), Ok(None));
        assert_eq!(socket_address("localhost:80"), at("127.0.0.1:80"));
        assert_eq!(socket_address("[::1]:80"), at("[::1]:80"));
        for wrong in [
            "127.0.0.1",
            "127.0.0.1:0",
            "example.org:80",
            "0.0.0.0:80",
            "[::]:80",
        ] {
            assert!(socket_address(wrong).is_err(), "{wrong}");
        }
        assert_eq!(number("+600", 0, 9_000), None);
        assert!(file_name("../x.conflist").is_err());
        assert!(
            file_name("10-palisade")
                .unwrap_err()
                .contains("must end in")
        );
        assert!(group("").is_ok() && group("a b").is_err());
        assert!(mask("0xf0f0").unwrap_err().contains("is not a mask"));
        assert!(name("Pal", 8).unwrap_err().contains("a letter first"));
    }
}

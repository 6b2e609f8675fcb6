//! Real DNS servers: dnsmasq, unbound, bind and CoreDNS, each with the same names.

use super::client::lookup;
use super::{NAMES, PATIENCE, addresses_of};
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::{Lab, NodeId};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A real DNS server, until dropped. It knows `n0.example.com` and so on, and `other.test`.
pub(crate) struct DnsServer {
    child: Child,
    dir: TempDir,
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl DnsServer {
    /// Starts a server, by the name or the path of its program, at addresses of a node, and waits until it answers.
    pub(crate) fn start(
        program: &Path,
        lab: &Lab,
        node: NodeId,
        addresses: [IpAddr; 2],
    ) -> DnsServer {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        let name = program.file_name().unwrap().to_str().unwrap();
        let (text, args): (String, &[&str]) = match name {
            "dnsmasq" => (dnsmasq_config(addresses), &["--keep-in-foreground", "-C"]),
            "unbound" => (unbound_config(addresses), &["-d", "-c"]),
            "coredns" => (coredns_config(dir.path(), addresses), &["-conf"]),
            _ => (
                named_config(dir.path(), addresses),
                &["-g", "-u", "root", "-c"],
            ),
        };
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(program);
        command.args(args).arg(&config);
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = lab.run_in(node, move || command.spawn()).unwrap();
        let child = child
            .unwrap_or_else(|error| panic!("{name}: {error}: scripts/setup --test installs it"));
        let server = DnsServer { child, dir };
        for address in addresses {
            let began = Instant::now();
            let answer = || lookup(lab, node, address, "n0.example.com", RecordType::A);
            while answer().is_none() {
                assert!(began.elapsed() < PATIENCE, "{name}: {}", server.log());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        server
    }

    /// What it printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// The program of dnsmasq.
pub(crate) fn dnsmasq() -> PathBuf {
    PathBuf::from("dnsmasq")
}

/// The first addresses that [`load_name`] gives names, of each family.
const LOAD_ADDRESSES: [[u16; 8]; 2] = [
    [198, 18, 0, 0, 0, 0, 0, 0],
    [0x2001, 0xdb8, 0x52, 0, 0, 0, 0, 0],
];

/// A name of which dnsmasq knows hundreds of thousands, and its address, of the family of its number.
pub(crate) fn load_name(number: u32) -> (String, RecordType, IpAddr) {
    let index = number / 2;
    if number.is_multiple_of(2) {
        let first: Vec<u8> = LOAD_ADDRESSES[0][..4].iter().map(|x| *x as u8).collect();
        let first = u32::from_be_bytes(first.try_into().unwrap());
        let address = std::net::Ipv4Addr::from(first + index);
        (
            format!("na{index}.example.com"),
            RecordType::A,
            address.into(),
        )
    } else {
        let first = u128::from(std::net::Ipv6Addr::from(LOAD_ADDRESSES[1]));
        let address = std::net::Ipv6Addr::from(first + u128::from(index));
        (
            format!("nb{index}.example.com"),
            RecordType::AAAA,
            address.into(),
        )
    }
}

/// The networks of these addresses.
pub(crate) const LOAD_NETWORKS: [&str; 2] = ["198.18.0.0/15", "2001:db8:52::/64"];

fn dnsmasq_config(addresses: [IpAddr; 2]) -> String {
    let mut text =
        "no-resolv\nno-hosts\nbind-interfaces\nuser=root\npid-file=\nlocal-ttl=60\naddress=/absent.test/\nlocal=/example.com/\nlocal=/other.test/\n".to_owned();
    for (prefix, network) in ["na*", "nb*"].into_iter().zip(LOAD_NETWORKS) {
        writeln!(text, "synth-domain=example.com,{network},{prefix}").unwrap();
    }
    for address in addresses {
        writeln!(text, "listen-address={address}").unwrap();
    }
    for (i, address) in (0..NAMES).flat_map(|i| addresses_of(i).map(|a| (i, a))) {
        writeln!(text, "address=/n{i}.example.com/{address}").unwrap();
    }
    let [address, _] = addresses_of(0);
    writeln!(text, "address=/other.test/{address}").unwrap();
    for last in 0..64 {
        writeln!(text, "address=/many.example.com/198.19.255.{last}").unwrap();
    }
    text
}

fn unbound_config(addresses: [IpAddr; 2]) -> String {
    let mut text = "server:\n  do-daemonize: no\n  username: \"\"\n  chroot: \"\"\n  pidfile: \"\"\n  use-syslog: no\n  \
        access-control: 0.0.0.0/0 allow\n  access-control: ::/0 allow\n  module-config: iterator\n  local-zone: example.com static\n  \
        local-zone: other.test static\n"
        .to_owned();
    for address in addresses {
        writeln!(text, "  interface: {address}").unwrap();
    }
    let mut data = |name: String, address: IpAddr| {
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        writeln!(text, "  local-data: \"{name} 60 IN {kind} {address}\"").unwrap();
    };
    for (i, address) in (0..NAMES).flat_map(|i| addresses_of(i).map(|a| (i, a))) {
        data(format!("n{i}.example.com."), address);
    }
    data("other.test.".to_owned(), addresses_of(0)[0]);
    text.push_str("remote-control:\n  control-enable: no\n");
    text
}

fn coredns_config(dir: &Path, [v4, v6]: [IpAddr; 2]) -> String {
    let hosts = dir.join("hosts");
    let mut text = String::new();
    for (i, address) in (0..NAMES).flat_map(|i| addresses_of(i).map(|a| (i, a))) {
        writeln!(text, "{address} n{i}.example.com").unwrap();
    }
    writeln!(text, "{} other.test", addresses_of(0)[0]).unwrap();
    std::fs::write(&hosts, text).unwrap();
    let hosts = hosts.display();
    // As a cluster has it, but for its source of names.
    format!(
        ".:53 {{\n  bind {v4} {v6}\n  errors\n  log\n  hosts {hosts} {{\n    ttl 60\n  }}\n  cache 30\n  loadbalance\n}}\n"
    )
}

fn named_config(dir: &Path, [v4, v6]: [IpAddr; 2]) -> String {
    let zone = |name: &str, records: &str| {
        let path = dir.join(name);
        let text = format!(
            "$TTL 60\n@ IN SOA ns.example.com. root.example.com. 1 60 60 60 60\n@ IN NS ns.example.com.\n{records}"
        );
        std::fs::write(&path, text).unwrap();
        format!(
            "zone \"{name}\" {{ type primary; file \"{}\"; }};\n",
            path.display()
        )
    };
    let mut records = String::new();
    for (i, address) in (0..NAMES).flat_map(|i| addresses_of(i).map(|a| (i, a))) {
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        writeln!(records, "n{i} IN {kind} {address}").unwrap();
    }
    writeln!(records, "ns IN A {v4}").unwrap();
    let example = zone("example.com", &records);
    let other = zone("other.test", &format!("@ IN A {}\n", addresses_of(0)[0]));
    format!(
        "options {{ directory \"{0}\"; pid-file none; session-keyfile \"{0}/key\"; recursion no; listen-on {{ {v4}; }}; \
         listen-on-v6 {{ {v6}; }}; allow-query {{ any; }}; }};\ncontrols {{ }};\n{example}{other}",
        dir.display()
    )
}

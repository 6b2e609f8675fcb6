//! Policy by domain name, end to end: the agent, the DNS proxy as a process of its own, and real DNS servers.

pub(crate) mod client;
mod enforced;
pub(crate) mod fake_server;
mod forged;
pub(crate) mod hostile;
mod metrics;
mod outages;
mod places;
mod resolvers;
mod servers;
mod trust;

use crate::agent::shop::Shop;
use crate::agent::{Agent, ip};
pub(crate) use client::{Answered, bind_any, exchange, lookup, lookup_over_tcp, open, query};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::{Lab, NodeId, OUTSIDE_ADDRESSES, OUTSIDE_INTERFACE, TcpEcho, connect};
pub(crate) use servers::{DnsServer, LOAD_NETWORKS, dnsmasq, load_name};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where workloads connect to.
pub(crate) const PORT: u16 = 8080;
/// A first packet that is lost is sent again after a second.
pub(crate) const FIRST_PACKET: Duration = Duration::from_millis(700);
/// How long a connection is waited for that must not open.
const DENIED: Duration = Duration::from_millis(200);
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How many names the servers know: `n0.example.com` and so on, each with an address of its own in each family.
pub(crate) const NAMES: usize = 200;
/// What is asked for in each family.
pub(crate) const KINDS: [RecordType; 2] = [RecordType::A, RecordType::AAAA];

/// The addresses of name number `i`.
pub(crate) fn addresses_of(i: usize) -> [IpAddr; 2] {
    let v4 = [203, 0, 113, 1 + (i % 250) as u8];
    let v6 = [0x2001, 0xdb8, 0x51, 0, 0, 0, 1, i as u16];
    [v4.into(), v6.into()]
}

/// The networks of these addresses.
const NETWORKS: [&str; 2] = ["203.0.113.0/24", "2001:db8:51::1:0/112"];

/// The addresses of the usual server, on the outside.
pub(crate) fn servers() -> [IpAddr; 2] {
    let v6 = OUTSIDE_ADDRESSES.iter().find(|address| address.is_ipv6());
    [OUTSIDE_ADDRESSES[0], *v6.unwrap()]
}

/// The outside has all addresses of these networks.
pub(crate) fn route_outside(lab: &Lab, networks: [&str; 2]) {
    for (network, via) in networks.into_iter().zip(servers()) {
        let family = if via.is_ipv4() { "-4" } else { "-6" };
        let local = [family, "route", "add", "local", network, "dev", "lo"];
        ip(lab, lab.outside(), &local);
        let via = via.to_string();
        let route = ["route", "add", network, "via", &via];
        let device = ["dev", OUTSIDE_INTERFACE, "onlink"];
        ip(lab, lab.host(), &[&route[..], &device].concat());
    }
}

/// The DNS proxy as a process of its own.
pub(crate) struct ProxyProcess(Child);

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ProxyProcess {
    pub(crate) fn start(agent: &Agent, lab: &Lab) -> ProxyProcess {
        ProxyProcess::start_with(agent, lab, &[])
    }

    /// With more arguments.
    fn start_with(agent: &Agent, lab: &Lab, more: &[&str]) -> ProxyProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command
            .args(["--socket", agent.socket().to_str().unwrap(), "proxy"])
            .args(["--state-dir", agent.state().to_str().unwrap()])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = lab.run_in(lab.host(), move || command.spawn().unwrap());
        ProxyProcess(child.unwrap())
    }
}

/// A policy for the workloads of these values of `app`: they may ask some peers for names below example.com and
/// absent.test, and connect to those below example.com.
pub(crate) fn names_policy(apps: &str, servers: &str) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: shop}}\nspec:\n  \
         endpointSelector: {{matchExpressions: [{{key: app, operator: In, values: [{apps}]}}]}}\n  egress:\n  - {servers}\n    toPorts:\n    \
         - ports: [{{port: '53', protocol: ANY}}]\n      rules: {{dns: [{{matchPattern: '*.example.com'}}, {{matchPattern: '*.absent.test'}}]}}\n  \
         - toFQDNs: [{{matchPattern: '*.example.com'}}]\n    toPorts: [{{ports: [{{port: '{PORT}', protocol: ANY}}]}}]\n"
    )
}

/// Servers by address, as peers of that policy.
pub(crate) fn by_address([v4, v6]: [IpAddr; 2]) -> String {
    format!("toCIDR: [{v4}/32, '{v6}/128']")
}

/// The shop with a proxy, and servers that know names; the workload web may ask for names below example.com, and
/// connect to them.
pub(crate) struct NamedShop {
    pub(crate) shop: Shop,
    pub(crate) proxy: Option<ProxyProcess>,
    /// Where the server is.
    pub(crate) servers: [IpAddr; 2],
    /// How many names were asked for.
    asked: AtomicUsize,
    _echo: TcpEcho,
    _server: DnsServer,
}

impl NamedShop {
    /// With a server on the outside.
    pub(crate) fn open(name: &str, program: &Path) -> NamedShop {
        let shop = Shop::open(name);
        let outside = shop.lab.outside();
        let policy = names_policy("web", &by_address(servers()));
        NamedShop::around(shop, program, (outside, servers()), &policy)
    }

    /// With a server anywhere, and a policy.
    pub(crate) fn around(
        shop: Shop,
        program: &Path,
        (node, servers): (NodeId, [IpAddr; 2]),
        policy: &str,
    ) -> NamedShop {
        route_outside(&shop.lab, NETWORKS);
        let echo = TcpEcho::start(&shop.lab, shop.lab.outside(), PORT).unwrap();
        let server = DnsServer::start(program, &shop.lab, node, servers);
        let proxy = ProxyProcess::start(&shop.agent, &shop.lab);
        shop.agent.apply("names.yaml", policy);
        let named = NamedShop {
            shop,
            proxy: Some(proxy),
            servers,
            asked: AtomicUsize::new(0),
            _echo: echo,
            _server: server,
        };
        named.wait_for_proxy();
        named
    }

    pub(crate) fn wait_for_proxy(&self) {
        self.shop.agent.wait("a proxy", |status| {
            status["names"]["proxies"].as_u64() >= Some(1)
        });
    }

    /// Starts the agent again with more arguments.
    fn restart_with(&mut self, args: &[&str]) {
        self.shop.agent.terminate();
        self.shop.agent.more(args);
        self.shop.agent.start(&self.shop.lab);
        self.wait_for_proxy();
    }

    pub(crate) fn lookup(&self, name: &str, server: IpAddr, kind: RecordType) -> Answered {
        lookup(&self.shop.lab, self.shop.pods[0], server, name, kind)
    }

    /// Whether web reaches an address with its first packet.
    pub(crate) fn connects(&self, to: IpAddr) -> bool {
        self.connects_from(self.shop.pods[0], to, FIRST_PACKET)
    }

    /// Whether web's first packet to an address is denied.
    fn is_denied(&self, to: IpAddr) -> bool {
        !self.connects_from(self.shop.pods[0], to, DENIED)
    }

    pub(crate) fn connects_from(&self, pod: NodeId, to: IpAddr, patience: Duration) -> bool {
        connect(&self.shop.lab, pod, SocketAddr::new(to, PORT), patience).is_ok()
    }

    /// The number of a name that was not asked for before.
    pub(crate) fn next_name(&self) -> usize {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(number < NAMES);
        number
    }

    /// A pod is answered by each server for names that nobody asked for yet, over UDP and TCP, and each answer opens;
    /// another name is refused.
    fn assert_served(&self, pod: NodeId, servers: &[IpAddr], what: &str) {
        let lab = &self.shop.lab;
        let ask = [lookup, lookup_over_tcp];
        for server in servers {
            for (family, kind) in KINDS.into_iter().enumerate() {
                for (at, ask) in ask.into_iter().enumerate() {
                    let what = format!("{what}: {server}, {kind}, {}", ["UDP", "TCP"][at]);
                    let number = self.next_name();
                    let wanted = addresses_of(number)[family];
                    let opens = |patience| self.connects_from(pod, wanted, patience);
                    assert!(!opens(DENIED), "{what}: before it is asked for");
                    let name = format!("N{number}.Example.com");
                    let answer = ask(lab, pod, *server, &name, kind);
                    let expected = Some((ResponseCode::NoError, vec![wanted]));
                    assert_eq!(answer, expected, "{what}");
                    assert!(opens(FIRST_PACKET), "{what}: the first packet");
                    let refused = ask(lab, pod, *server, "other.test", kind);
                    assert_eq!(refused, Some((ResponseCode::Refused, vec![])), "{what}");
                }
            }
        }
    }

    /// A pod gets no answer of these servers.
    fn assert_cut_off(&self, pod: NodeId, servers: &[IpAddr], what: &str) {
        for server in servers {
            let socket = open(&self.shop.lab, pod, *server);
            socket.set_read_timeout(Some(DENIED)).unwrap();
            let answer = exchange(&socket, "n0.example.com", RecordType::A);
            assert_eq!(answer, None, "{what}: {server}");
        }
    }

    /// The addresses that the agent holds for a name.
    pub(crate) fn held(&self, name: &str) -> Vec<IpAddr> {
        let detail = self.shop.agent.json(&["names", "get", name]);
        let addresses = detail["addresses"].as_array().unwrap().iter();
        addresses
            .map(|entry| entry["address"].as_str().unwrap().parse().unwrap())
            .collect()
    }
}

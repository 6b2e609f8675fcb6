//! Policy by domain name, end to end: the agent, the DNS proxy as a process of its own, and real DNS servers.

use crate::agent::shop::Shop;
use crate::agent::{Agent, ip};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use palisade_testkit::lab::{Lab, NodeId, OUTSIDE_ADDRESSES, OUTSIDE_INTERFACE, TcpEcho, connect};
use palisade_testkit::need_root;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where workloads connect to.
const PORT: u16 = 8080;
/// A first packet that is lost is sent again after a second.
const FIRST_PACKET: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(20);
/// How many names the servers know: `n0.example.com` and so on, each with an address of its own in each family.
const NAMES: usize = 200;

/// A real DNS server on the outside.
struct DnsServer {
    child: Child,
    _dir: TempDir,
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The addresses of name number `i`.
fn addresses_of(i: usize) -> [IpAddr; 2] {
    let v4 = [203, 0, 113, 1 + (i % 250) as u8];
    let v6 = [0x2001, 0xdb8, 0x51, 0, 0, 0, 1, i as u16];
    [v4.into(), v6.into()]
}

pub(crate) fn servers() -> [IpAddr; 2] {
    let v6 = OUTSIDE_ADDRESSES.iter().find(|address| address.is_ipv6());
    [OUTSIDE_ADDRESSES[0], *v6.unwrap()]
}

impl DnsServer {
    /// Starts a server by the name of its program.
    fn start(program: &str, lab: &Lab) -> DnsServer {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        let (text, args): (String, &[&str]) = match program {
            "dnsmasq" => (dnsmasq_config(), &["--keep-in-foreground", "-C"]),
            "unbound" => (unbound_config(), &["-d", "-c"]),
            _ => (named_config(dir.path()), &["-g", "-u", "root", "-c"]),
        };
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(program);
        command.args(args).arg(&config);
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = lab.run_in(lab.outside(), move || command.spawn()).unwrap();
        let child = child
            .unwrap_or_else(|error| panic!("{program}: {error}: scripts/setup --test installs it"));
        let server = DnsServer { child, _dir: dir };
        for address in servers() {
            let began = Instant::now();
            let answers = || lookup(lab, lab.outside(), address, "n0.example.com", RecordType::A);
            while answers().is_none() {
                let log = std::fs::read_to_string(server._dir.path().join("log"));
                assert!(began.elapsed() < PATIENCE, "{program}: {log:?}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        server
    }
}

fn dnsmasq_config() -> String {
    let mut text =
        "no-resolv\nno-hosts\nbind-interfaces\nuser=root\npid-file=\nlocal-ttl=60\n".to_owned();
    for address in servers() {
        writeln!(text, "listen-address={address}").unwrap();
    }
    for (i, address) in (0..NAMES).flat_map(|i| addresses_of(i).map(|a| (i, a))) {
        writeln!(text, "address=/n{i}.example.com/{address}").unwrap();
    }
    let [address, _] = addresses_of(0);
    writeln!(text, "address=/other.test/{address}").unwrap();
    text
}

fn unbound_config() -> String {
    let mut text = "server:\n  do-daemonize: no\n  username: \"\"\n  chroot: \"\"\n  pidfile: \"\"\n  use-syslog: no\n  \
        access-control: 0.0.0.0/0 allow\n  access-control: ::/0 allow\n  module-config: iterator\n  local-zone: example.com static\n  \
        local-zone: other.test static\n"
        .to_owned();
    for address in servers() {
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

fn named_config(dir: &Path) -> String {
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
    writeln!(records, "ns IN A {}", servers()[0]).unwrap();
    let example = zone("example.com", &records);
    let other = zone("other.test", &format!("@ IN A {}\n", addresses_of(0)[0]));
    let [v4, v6] = servers();
    format!(
        "options {{ directory \"{0}\"; pid-file none; session-keyfile \"{0}/key\"; recursion no; listen-on {{ {v4}; }}; \
         listen-on-v6 {{ {v6}; }}; allow-query {{ any; }}; }};\ncontrols {{ }};\n{example}{other}",
        dir.display()
    )
}

/// The DNS proxy as a process of its own.
pub(crate) struct ProxyProcess(pub(crate) Child);

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ProxyProcess {
    pub(crate) fn start(agent: &Agent, lab: &Lab) -> ProxyProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command
            .args(["--socket", agent.socket().to_str().unwrap(), "proxy"])
            .args(["--state-dir", agent.state().to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = lab.run_in(lab.host(), move || command.spawn().unwrap());
        ProxyProcess(child.unwrap())
    }
}

/// A response code and addresses; `None` without an answer.
fn exchange(
    socket: &UdpSocket,
    name: &str,
    kind: RecordType,
) -> Option<(ResponseCode, Vec<IpAddr>)> {
    static ID: AtomicUsize = AtomicUsize::new(1);
    let id = ID.fetch_add(1, Ordering::Relaxed) as u16;
    socket.send(&query(id, name, kind)).ok()?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).ok()?;
        let message = Message::from_vec(&buffer[..length]).unwrap();
        if message.metadata.id == id {
            return Some((message.metadata.response_code, addresses(&message)));
        }
    }
}

pub(crate) fn query(id: u16, name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let name = Name::from_ascii(format!("{name}.")).unwrap();
    message.add_query(Query::query(name, kind));
    message.to_vec().unwrap()
}

fn addresses(message: &Message) -> Vec<IpAddr> {
    let records = message.answers.iter();
    records
        .filter_map(|record| match &record.data {
            RData::A(address) => Some(address.0.into()),
            RData::AAAA(address) => Some(address.0.into()),
            _ => None,
        })
        .collect()
}

pub(crate) fn open(lab: &Lab, from: NodeId, server: IpAddr) -> UdpSocket {
    let socket = lab
        .run_in(from, || {
            let any: IpAddr = if server.is_ipv4() {
                [0; 4].into()
            } else {
                [0_u16; 8].into()
            };
            UdpSocket::bind((any, 0)).unwrap()
        })
        .unwrap();
    socket.connect((server, 53)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    socket
}

fn lookup(
    lab: &Lab,
    from: NodeId,
    server: IpAddr,
    name: &str,
    kind: RecordType,
) -> Option<(ResponseCode, Vec<IpAddr>)> {
    let socket = open(lab, from, server);
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    exchange(&socket, name, kind)
}

/// Sets a flag when it goes, also by a panic.
struct StopFlag<'a>(&'a AtomicBool);

impl Drop for StopFlag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Looks names up without pause, over one family, while something happens: none may be lost.
fn look_up_during(lab: &Lab, from: NodeId, family: usize, happens: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = open(lab, from, servers()[family]);
            let mut i = 0;
            while !stop.load(Ordering::Relaxed) {
                let name = format!("n{}.example.com", i % NAMES);
                let is_lost = exchange(&socket, &name, KINDS[family]).is_none();
                counts[usize::from(is_lost)].fetch_add(1, Ordering::Relaxed);
                i += 1;
            }
        });
        let _flag = StopFlag(&stop);
        happens();
    });
    let [answered, lost] = counts.map(AtomicUsize::into_inner);
    assert!(
        answered > 20 && lost == 0,
        "{answered} answered, {lost} lost"
    );
}

/// The shop with a proxy, and servers that know names; the workload web may ask for names below example.com, and
/// connect to them.
pub(crate) struct NamedShop {
    pub(crate) shop: Shop,
    pub(crate) proxy: Option<ProxyProcess>,
    _echo: TcpEcho,
    _server: DnsServer,
}

const KINDS: [RecordType; 2] = [RecordType::A, RecordType::AAAA];

impl NamedShop {
    pub(crate) fn open(name: &str, server: &str) -> NamedShop {
        let shop = Shop::open(name);
        let lab = &shop.lab;
        let outside = lab.outside();
        ip(
            lab,
            outside,
            &["route", "add", "local", "203.0.113.0/24", "dev", "lo"],
        );
        ip(
            lab,
            outside,
            &[
                "-6",
                "route",
                "add",
                "local",
                "2001:db8:51::1:0/112",
                "dev",
                "lo",
            ],
        );
        for (network, via) in [
            ("203.0.113.0/24", servers()[0]),
            ("2001:db8:51::1:0/112", servers()[1]),
        ] {
            let via = via.to_string();
            ip(
                lab,
                lab.host(),
                &[
                    "route",
                    "add",
                    network,
                    "via",
                    &via,
                    "dev",
                    OUTSIDE_INTERFACE,
                    "onlink",
                ],
            );
        }
        let echo = TcpEcho::start(lab, outside, PORT).unwrap();
        let server = DnsServer::start(server, lab);
        let proxy = ProxyProcess::start(&shop.agent, lab);
        let [v4, v6] = servers();
        shop.agent.apply(
            "names.yaml",
            &format!(
                "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: shop}}\nspec:\n  \
                 endpointSelector: {{matchLabels: {{app: web}}}}\n  egress:\n  - toCIDR: [{v4}/32, '{v6}/128']\n    toPorts:\n    \
                 - ports: [{{port: '53', protocol: ANY}}]\n      rules: {{dns: [{{matchPattern: '*.example.com'}}]}}\n  \
                 - toFQDNs: [{{matchPattern: 'n*.example.com'}}]\n    toPorts: [{{ports: [{{port: '{PORT}', protocol: TCP}}]}}]\n"
            ),
        );
        let named = NamedShop {
            shop,
            proxy: Some(proxy),
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

    pub(crate) fn lookup(
        &self,
        name: &str,
        server: IpAddr,
        kind: RecordType,
    ) -> Option<(ResponseCode, Vec<IpAddr>)> {
        lookup(&self.shop.lab, self.shop.pods[0], server, name, kind)
    }

    fn connects(&self, to: IpAddr) -> bool {
        connect(
            &self.shop.lab,
            self.shop.pods[0],
            SocketAddr::new(to, PORT),
            FIRST_PACKET,
        )
        .is_ok()
    }
}

/// What holds for each server: what is allowed is answered and opens, what is not is refused and opens nothing.
fn names_with(server: &str) {
    if !need_root() {
        return;
    }
    let named = NamedShop::open(&format!("names-{}", &server[..3]), server);
    for (asked, at) in servers().into_iter().enumerate() {
        for (family, kind) in KINDS.into_iter().enumerate() {
            let number = 2 * asked + family;
            let wanted = addresses_of(number)[family];
            assert!(!named.connects(wanted), "{server}: before it is asked for");
            let name = format!("N{number}.Example.com");
            let answer = named.lookup(&name, at, kind);
            assert_eq!(
                answer,
                Some((ResponseCode::NoError, vec![wanted])),
                "{server} {at}"
            );
            assert!(named.connects(wanted), "{server} {at}: the first packet");
            let other = addresses_of(number)[1 - family];
            assert!(!named.connects(other), "{server}: what was not answered");
        }
        let refused = named.lookup("other.test", at, RecordType::A);
        assert_eq!(
            refused,
            Some((ResponseCode::Refused, vec![])),
            "{server} {at}"
        );
    }
    assert!(!named.connects(addresses_of(100)[0]));
    // Over TCP as well.
    let mut stream = named
        .shop
        .lab
        .run_in(named.shop.pods[0], || {
            TcpStream::connect((servers()[0], 53)).unwrap()
        })
        .unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let message = query(7, "n100.example.com", RecordType::A);
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &message].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).unwrap();
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(addresses(&answer), [addresses_of(100)[0]]);
    assert!(
        named.connects(addresses_of(100)[0]),
        "{server}: the first packet after TCP"
    );
    let detail = named.shop.agent.json(&["names", "get", "n0.example.com"]);
    assert_eq!(detail["addresses"][0]["workload"], "shop/web", "{detail:#}");
    let source = detail["selectedBy"][0]["source"].as_str().unwrap();
    assert!(source.contains("names.yaml:"), "{detail:#}");
    // Another workload, which no policy selects, is not redirected; its answers teach nothing.
    let (api, at) = (named.shop.pods[1], servers()[0]);
    let answer = lookup(&named.shop.lab, api, at, "other.test", RecordType::A);
    assert_eq!(answer.map(|(code, _)| code), Some(ResponseCode::NoError));
    let detail = named.shop.agent.json(&["names", "get", "other.test"]);
    assert_eq!(
        detail["addresses"].as_array().unwrap().len(),
        0,
        "{detail:#}"
    );
}

#[test]
fn names_of_dnsmasq_are_enforced() {
    names_with("dnsmasq");
}

#[test]
fn names_of_unbound_are_enforced() {
    names_with("unbound");
}

#[test]
fn names_of_bind_are_enforced() {
    names_with("named");
}

#[test]
fn no_first_packet_is_lost_and_no_query_by_a_kill_of_the_agent() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-kill", "dnsmasq");
    for i in 0..NAMES {
        let family = i % 2;
        let answer = named.lookup(
            &format!("n{i}.example.com"),
            servers()[family],
            KINDS[family],
        );
        let wanted = addresses_of(i)[family];
        assert_eq!(answer, Some((ResponseCode::NoError, vec![wanted])), "{i}");
        assert!(
            named.connects(wanted),
            "the first packet to the address of n{i}"
        );
    }
    let (lab, web) = (&named.shop.lab, named.shop.pods[0]);
    let agent = &mut named.shop.agent;
    let known = SocketAddr::new(addresses_of(0)[0], PORT);
    look_up_during(lab, web, 0, || {
        for kill in 0..5 {
            agent.kill();
            let opened = connect(lab, web, known, FIRST_PACKET);
            assert!(opened.is_ok(), "without the agent, kill {kill}");
            agent.start(lab);
            let opened = connect(lab, web, known, FIRST_PACKET);
            assert!(opened.is_ok(), "after the restart, kill {kill}");
        }
    });
}

#[test]
fn a_proxy_hands_over_and_without_one_restricted_workloads_cannot_resolve() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-hand", "dnsmasq");
    let (lab, web) = (&named.shop.lab, named.shop.pods[0]);
    let (agent, proxy) = (&named.shop.agent, &mut named.proxy);
    look_up_during(lab, web, 1, || {
        for _ in 0..3 {
            let successor = ProxyProcess::start(agent, lab);
            let mut predecessor = proxy.replace(successor).unwrap();
            // It ends by itself.
            assert!(predecessor.0.wait().unwrap().success());
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    named.proxy = None;
    let answer = named.lookup("n0.example.com", servers()[0], RecordType::A);
    assert_eq!(answer, None, "a restricted workload");
    let status = named.shop.agent.wait("the loss of the proxy", |status| {
        status["names"]["proxies"] == 0
    });
    let reasons = status["reasons"].to_string();
    assert!(reasons.contains("no DNS proxy is connected"), "{reasons}");
    named.proxy = Some(ProxyProcess::start(&named.shop.agent, &named.shop.lab));
    named.wait_for_proxy();
    let answer = named.lookup("n0.example.com", servers()[0], RecordType::A);
    assert_eq!(
        answer,
        Some((ResponseCode::NoError, vec![addresses_of(0)[0]]))
    );
}

#[test]
fn a_server_that_may_not_teach_opens_nothing() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-trust", "dnsmasq");
    named.shop.agent.terminate();
    named
        .shop
        .agent
        .more(&["--dns-servers", "cluster,node,192.0.2.200"]);
    named.shop.agent.start(&named.shop.lab);
    named.wait_for_proxy();
    let [wanted, _] = addresses_of(3);
    let answer = named.lookup("n3.example.com", servers()[0], RecordType::A);
    assert_eq!(
        answer,
        Some((ResponseCode::NoError, vec![wanted])),
        "it is answered"
    );
    assert!(!named.connects(wanted), "and opens nothing");
    let status = named.shop.agent.wait("the untrusted server", |status| {
        !status["names"]["untrustedServers"].is_null()
    });
    assert_eq!(status["names"]["addresses"], 0, "{status:#}");
    // A rule for every address names no server either.
    named.shop.agent.terminate();
    named.shop.agent.more(&["--dns-servers", "policy"]);
    named.shop.agent.write(
        "names.yaml",
        &format!(
            "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: shop}}\nspec:\n  \
             endpointSelector: {{matchLabels: {{app: web}}}}\n  egress:\n  - toCIDR: [0.0.0.0/0]\n    toPorts:\n    \
             - ports: [{{port: '53', protocol: ANY}}]\n      rules: {{dns: [{{matchPattern: '*'}}]}}\n  \
             - toFQDNs: [{{matchPattern: '*'}}]\n    toPorts: [{{ports: [{{port: '{PORT}', protocol: TCP}}]}}]\n"
        ),
    );
    named.shop.agent.start(&named.shop.lab);
    named.wait_for_proxy();
    let answer = named.lookup("n3.example.com", servers()[0], RecordType::A);
    assert_eq!(answer, Some((ResponseCode::NoError, vec![wanted])));
    assert!(
        !named.connects(wanted),
        "its own resolver opens nothing for a workload"
    );
}

#[test]
fn cleanup_removes_what_names_need() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-clean", "dnsmasq");
    let lab = &named.shop.lab;
    let rules = |lab: &Lab| ip(lab, lab.host(), &["rule"]) + &ip(lab, lab.host(), &["-6", "rule"]);
    assert_eq!(rules(lab).matches("20053").count(), 4, "{}", rules(lab));
    // Another program removes a part of it.
    let [v4, _] = servers();
    for args in [
        &["rule", "del", "pref", "91"][..],
        &[
            "route", "del", "local", "default", "dev", "lo", "table", "20053",
        ],
    ] {
        let before = named.shop.agent.status()["dataplane"]["repairs"].clone();
        ip(lab, lab.host(), args);
        named.shop.agent.wait("the repair", |status| {
            status["dataplane"]["repairs"] != before
        });
        let answer = named.lookup("n0.example.com", v4, RecordType::A);
        assert_eq!(
            answer.map(|(code, _)| code),
            Some(ResponseCode::NoError),
            "{args:?}"
        );
    }
    named.shop.agent.terminate();
    named.proxy = None;
    let output = named.shop.agent.beside(lab, "cleanup", &["--yes"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(rules(lab).matches("20053").count(), 0, "{}", rules(lab));
    let routes = ip(lab, lab.host(), &["route", "show", "table", "all"]);
    assert!(!routes.contains("20053"), "{routes}");
}

/// Policies of the dialects that have no rules of DNS names: their workloads' queries are observed.
const OBSERVING: [(&str, &str); 2] = [
    (
        "policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy",
        "metadata: {name: names}\nspec:\n  tier: Admin\n  priority: 1\n  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}\n  \
         egress:\n  - action: Accept\n    to: [{domainNames: ['NAME', '*.example.org']}]\n  \
         - action: Accept\n    to: [{networks: [DNS]}]\n  - action: Deny\n    to: [{networks: [0.0.0.0/0, '::/0']}]\n",
    ),
    (
        "projectcalico.org/v3, kind: NetworkPolicy",
        "metadata: {name: names, namespace: shop}\nspec:\n  selector: app == 'web'\n  types: [Egress]\n  egress:\n  \
         - {action: Allow, protocol: UDP, destination: {nets: [DNS], ports: [53]}}\n  \
         - {action: Allow, protocol: TCP, destination: {domains: ['NAME', '*.example.org'], ports: [8080]}}\n",
    ),
];

#[test]
fn names_of_dialects_without_dns_rules_are_observed() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-seen", "dnsmasq");
    named.shop.agent.terminate();
    let [v4, v6] = servers();
    named
        .shop
        .agent
        .more(&["--dns-servers", &format!("{v4},{v6}")]);
    named.shop.agent.start(&named.shop.lab);
    named.wait_for_proxy();
    // Each has a name of its own, so that none has what another has taught.
    for (number, (kind, text)) in (1..).step_by(5).zip(OBSERVING) {
        let name_of = |i: usize| format!("n{i}.example.com");
        let text = text.replace("DNS", &format!("{v4}/32, '{v6}/128'"));
        let text = text.replace("NAME", &name_of(number));
        let kind = kind.replace(", ", "\n");
        let text = format!("apiVersion: {kind}\n{text}");
        named.shop.agent.apply("names.yaml", &text);
        for (family, query_kind) in KINDS.into_iter().enumerate() {
            let lookup = |i| named.lookup(&name_of(i), servers()[family], query_kind);
            let answer = |i: usize| Some((ResponseCode::NoError, vec![addresses_of(i)[family]]));
            let connects = |i: usize| named.connects(addresses_of(i)[family]);
            assert!(!connects(number), "{kind}: before it is asked for");
            assert_eq!(lookup(number), answer(number), "{kind}");
            assert!(connects(number), "{kind}: the first packet");
            // Every name may be asked for, and one that no rule has opens nothing.
            assert_eq!(lookup(number + 1), answer(number + 1), "{kind}");
            assert!(!connects(number + 1), "{kind}");
        }
    }
}

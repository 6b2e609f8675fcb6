//! A host with a proxy, two clients and a server; each has an address of both families.

use crate::server::TestServer;
use palisade_model::DomainPattern;
use palisade_proxy::{Config, Listeners, Proxy, ProxyCounts, RejectResponseCode, RuleSets};
use palisade_sys::transparent::force_receive_buffer;
use palisade_tables::{DnsRules, Verdict};
use palisade_testkit::lab::{Lab, NodeId, PodSpec};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The port on which the proxy listens.
const PORT: u16 = 15_353;
/// The mark of redirected packets, without the number of their rule set.
const REDIRECT_MARK: u32 = 0x0a00_0000;
/// The mark of packets towards servers.
const UPSTREAM_MARK: u32 = 0x0b00_0000;
/// The bits of both.
const MARK_BITS: u32 = 0xfe00_0000;
/// The mark of what a server of the host answers to the proxy.
const HOST_ANSWER_MARK: u32 = 0x0c00_0000;

/// The zone of the proxy's connections to servers.
const ZONE: u16 = 7;

/// Clients, in the first two pods. The second has a rule set that the proxy does not know.
pub(crate) const CLIENTS: [[&str; 2]; 3] = [
    ["10.1.0.1", "fd01::1"],
    ["10.1.0.2", "fd01::2"],
    ["10.1.0.3", "fd01::3"],
];
/// The server.
pub(crate) const SERVER: [&str; 2] = ["10.2.0.1", "fd02::1"];
/// Another address of the server's namespace.
pub(crate) const STRANGER: [&str; 2] = ["10.2.0.9", "fd02::9"];
/// Addresses of a service that is translated to the server.
pub(crate) const SERVICE: [&str; 2] = ["10.96.0.10", "fd96::10"];
/// The port of the service.
pub(crate) const SERVICE_PORT: u16 = 5_300;

/// The name that rule set 1 allows.
pub(crate) const ALLOWED: &str = "allowed.example";

/// All of it, until dropped.
pub(crate) struct Testbed {
    pub(crate) proxy: Option<Proxy>,
    listeners: Listeners,
    pub(crate) server: TestServer,
    pub(crate) config: Config,
    pub(crate) clients: Vec<NodeId>,
    pub(crate) lab: Lab,
    _folder: tempfile::TempDir,
}

impl Testbed {
    /// Makes the namespaces and starts the proxy.
    pub(crate) fn new(name: &str) -> Self {
        Testbed::with_config(name, |_| {})
    }

    /// The same, with other parameters.
    pub(crate) fn with_config(name: &str, change: impl FnOnce(&mut Config)) -> Self {
        Testbed::with_steering(name, change, |lab| {
            let mark = |mark: u32| format!("{mark:#x}/{MARK_BITS:#x}");
            configure_routes(lab, &mark(REDIRECT_MARK), &mark(HOST_ANSWER_MARK));
            run_program(lab, "nft", &["-f", "-"], &ruleset());
        })
    }

    /// The same, with other rules by which packets come to the proxy.
    pub(crate) fn with_steering(
        name: &str,
        change: impl FnOnce(&mut Config),
        steer: impl FnOnce(&Lab),
    ) -> Self {
        let mut lab = Lab::new(name).unwrap();
        let mut clients = Vec::new();
        for (at, addresses) in CLIENTS.iter().enumerate() {
            let spec = PodSpec::new(&format!("c{at}"), &format!("client{at}"), addresses);
            clients.push(lab.add_pod(spec).unwrap());
        }
        let addresses = [SERVER, STRANGER].concat();
        let server = lab
            .add_pod(PodSpec::new("s", "server0", &addresses))
            .unwrap();
        lab.set_sysctl(lab.host(), "net/ipv4/tcp_fwmark_accept", "1")
            .unwrap();
        steer(&lab);
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            port: PORT,
            mark_mask: 0xffff,
            mark_shift: 0,
            upstream_mark: UPSTREAM_MARK,
            answer_mark: 0,
            rule_sets: folder.path().join("rule-sets.json"),
            agent_socket: folder.path().join("answers.sock"),
            hold: Duration::from_millis(400),
            reject_response_code: RejectResponseCode::Refused,
            limits: Default::default(),
        };
        change(&mut config);
        let names = [ALLOWED, "*.wild.example"].map(|glob| DomainPattern::glob(glob).unwrap());
        let rules = DnsRules {
            names: names.into(),
            default: Verdict::Deny,
        };
        RuleSets::new([(1, Arc::new(rules))])
            .write(&config.rule_sets)
            .unwrap();
        let server = TestServer::start(&lab, server, SERVER, STRANGER);
        let mut testbed = Testbed {
            proxy: None,
            listeners: Listeners::default(),
            server,
            config,
            clients,
            lab,
            _folder: folder,
        };
        testbed.start_proxy();
        testbed
    }

    /// Starts the proxy, on the host.
    pub(crate) fn start_proxy(&mut self) {
        let config = self.config.clone();
        let start = || {
            let listeners = palisade_proxy::bind(&config).unwrap();
            let copy = listeners.try_clone().unwrap();
            (Proxy::start(config, listeners).unwrap(), copy)
        };
        let (proxy, listeners) = self.lab.run_in(self.lab.host(), start).unwrap();
        self.proxy = Some(proxy);
        self.listeners = listeners;
    }

    /// Ends the proxy, and closes its sockets.
    pub(crate) fn end_proxy(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop();
        }
        self.listeners = Listeners::default();
    }

    /// Hands the listening sockets to a new proxy, and ends the former one.
    pub(crate) fn replace_proxy(&mut self) {
        let (near, far) = UnixStream::pair().unwrap();
        self.listeners.send(&near).unwrap();
        self.listeners = Listeners::receive(&far).unwrap();
        let listeners = self.listeners.try_clone().unwrap();
        let config = self.config.clone();
        let start = || Proxy::start(config, listeners).unwrap();
        let successor = self.lab.run_in(self.lab.host(), start).unwrap();
        self.proxy.replace(successor).unwrap().stop();
    }

    /// What the proxy did.
    pub(crate) fn counts(&self) -> ProxyCounts {
        self.proxy.as_ref().unwrap().counts()
    }

    /// Waits until the counts are as expected.
    pub(crate) fn wait_for(&self, what: &str, is_reached: impl Fn(&ProxyCounts) -> bool) {
        let start = Instant::now();
        while !is_reached(&self.counts()) {
            let counts = self.counts();
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{what}: {counts:#?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A socket of a client, connected to a destination.
    pub(crate) fn open_udp(&self, client: usize, destination: SocketAddr) -> UdpSocket {
        let family = usize::from(destination.is_ipv6());
        let address: IpAddr = CLIENTS[client][family].parse().unwrap();
        let open = || {
            let socket = UdpSocket::bind((address, 0)).unwrap();
            socket.connect(destination).unwrap();
            force_receive_buffer(&socket, 1 << 20).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(2)))
                .unwrap();
            socket
        };
        self.lab.run_in(self.clients[client], open).unwrap()
    }

    /// Where the agent is looked for.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.config.agent_socket.clone()
    }
}

/// The server at its port, in both families.
pub(crate) fn servers() -> [SocketAddr; 2] {
    SERVER.map(|address| SocketAddr::new(address.parse().unwrap(), 53))
}

/// The service at its port, in both families.
pub(crate) fn services() -> [SocketAddr; 2] {
    SERVICE.map(|address| SocketAddr::new(address.parse().unwrap(), SERVICE_PORT))
}

/// Marked packets are delivered to the host; what it sends itself with the first mark goes its usual way.
pub(crate) fn configure_routes(lab: &Lab, mark: &str, host_answer_mark: &str) {
    for (family, all) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
        let script = format!(
            "rule add pref 89 fwmark {host_answer_mark} lookup 100\n\
             rule add pref 90 iif lo fwmark {mark} lookup main\n\
             rule add pref 91 fwmark {mark} lookup 100\n\
             route add local {all} dev lo table 100\n"
        );
        run_program(lab, "ip", &[family, "-batch", "-"], &script);
    }
}

/// The rules by which packets come to the proxy: the first client has rule set 1, the second 2, the third 1 too.
///
/// The proxy's connections to servers have a zone of their own in the original direction, so none is taken for one of the
/// client's, and their replies are known by it. Source NAT has them differ there.
fn ruleset() -> String {
    let mut redirects = String::new();
    for (client, number) in [(0, 1), (1, 2), (2, 1)] {
        let mark = REDIRECT_MARK | number;
        for (family, listener) in [("ip", "127.0.0.1"), ("ip6", "[::1]")] {
            for protocol in ["tcp", "udp"] {
                let nfproto = if family == "ip" { "ipv4" } else { "ipv6" };
                redirects += &format!(
                    "iifname client{client} meta nfproto {nfproto} {protocol} dport 53 \
                     meta mark set {mark:#x} tproxy {family} to {listener}:{PORT} accept\n"
                );
            }
        }
    }
    let translations = translations();
    format!(
        "table inet test {{
           chain upstream {{ type filter hook output priority raw;
             meta mark {UPSTREAM_MARK:#x} ct original zone set {ZONE}
           }}
           chain host_servers {{ type route hook output priority mangle;
             ct zone {ZONE} ct direction reply meta mark set {HOST_ANSWER_MARK:#x}
           }}
           chain ports {{ type nat hook postrouting priority srcnat; }}
           chain services {{ type nat hook prerouting priority dstnat;
             {translations}
           }}
           chain steering {{ type filter hook prerouting priority dstnat + 10;
             ct zone {ZONE} ct direction reply meta mark set {REDIRECT_MARK:#x} accept
             {redirects}
           }}
         }}\n"
    )
}

/// The rules that translate the service to the server.
pub(crate) fn translations() -> String {
    let mut translations = String::new();
    for (family, at) in [("ip", 0), ("ip6", 1)] {
        let (service, server) = (SERVICE[at], SERVER[at]);
        let server = if at == 0 {
            server.to_owned()
        } else {
            format!("[{server}]")
        };
        for protocol in ["tcp", "udp"] {
            translations += &format!(
                "{family} daddr {service} {protocol} dport {SERVICE_PORT} dnat {family} to {server}:53\n"
            );
        }
    }
    translations
}

/// Runs a program on the host of a lab.
pub(crate) fn run_program(lab: &Lab, program: &str, arguments: &[&str], input: &str) -> String {
    let namespace = lab.namespace_name(lab.host());
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace, program])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {errors}\n{input}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

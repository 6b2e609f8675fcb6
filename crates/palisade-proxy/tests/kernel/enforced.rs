//! The proxy with the table of the nftables driver in place of rules by hand: policy decides what is redirected, with
//! which names, and what passes without a proxy.

use crate::client::{ask, ask_over_tcp, connect, receive};
use crate::need_root;
use crate::testbed::{
    ALLOWED, CLIENTS, SERVER, Testbed, configure_routes, run_program, servers, services,
    translations,
};
use hickory_proto::op::ResponseCode;
use palisade_dataplane::nftables::{Config, RedirectConfig};
use palisade_engine::{Engine, EngineOptions};
use palisade_generators::line;
use palisade_model::{DomainPattern, Object, Policy, Rule, UnreadDnsAction, Update};
use palisade_proxy::RuleSets;
use palisade_sys::netns::NetNs;
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::Lab;
use palisade_testkit::test_driver::open_driver;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// The port of the proxy in the table's configuration.
const REDIRECT: RedirectConfig = RedirectConfig {
    port: 15_353,
    redirect_bit: 0x1000_0000,
    number_mask: 0x0fff_0000,
    upstream_bit: 0x2000_0000,
    answer_bit: 0x4000_0000,
    host_answer_bit: 0x8000_0000,
    upstream_zone: 20_053,
};

/// A host whose policy is enforced, with a proxy.
pub(crate) struct Enforced {
    pub(crate) testbed: Testbed,
    engine: Engine,
    driver: CountedDriver,
}

/// Allows queries for these names at port 53.
pub(crate) fn names(texts: &[&str]) -> Rule {
    let pattern = |text: &&str| DomainPattern::glob(text).unwrap();
    Rule {
        dns_names: Some(texts.iter().map(pattern).collect()),
        traffic: port_53(),
        ..line::rule("allow")
    }
}

pub(crate) fn port_53() -> Vec<palisade_model::TrafficMatch> {
    let [tcp, udp] = ["allow on TCP/53", "allow on UDP/53"].map(line::rule);
    [tcp.traffic, udp.traffic].concat()
}

/// A policy for the egress of the client with this number.
pub(crate) fn egress(client: usize, rules: Vec<Rule>) -> Policy {
    let mut policy = line::policy(&format!("n/p{client} client={client}"), rules);
    policy.egress = policy.ingress.take();
    policy
}

impl Enforced {
    pub(crate) fn new(name: &str) -> Self {
        Enforced::with_config(name, |_| {})
    }

    /// The same, with this action for queries that no proxy reads.
    fn with_unread_dns(name: &str, unread_dns: UnreadDnsAction) -> Self {
        let mut enforced = Enforced::new(name);
        let objects: Vec<Object> = enforced.engine.state().objects().collect();
        enforced.engine = Engine::new(EngineOptions {
            unread_dns,
            ..EngineOptions::default()
        });
        enforced
            .engine
            .apply(objects.into_iter().map(Update::Upsert));
        enforced
    }

    /// The same, with other parameters of the proxy.
    pub(crate) fn with_config(
        name: &str,
        also_change: impl FnOnce(&mut palisade_proxy::Config),
    ) -> Self {
        let mut driver = None;
        let steer = |lab: &Lab| {
            let [mark, host_answer_mark] = [REDIRECT.redirect_bit, REDIRECT.host_answer_bit]
                .map(|bit| format!("{bit:#x}/{bit:#x}"));
            configure_routes(lab, &mark, &host_answer_mark);
            let nat = format!(
                "table inet services {{ chain services {{ type nat hook prerouting priority dstnat; {} }}; }}\n",
                translations()
            );
            run_program(lab, "nft", &["-f", "-"], &nat);
            let config = Config {
                redirect: Some(REDIRECT),
                ..Config::default()
            };
            let netns = NetNs::open(lab.namespace_name(lab.host())).unwrap();
            driver = Some(open_driver(config, &netns).unwrap());
        };
        let change = |config: &mut palisade_proxy::Config| {
            config.mark_mask = REDIRECT.number_mask;
            config.mark_shift = REDIRECT.number_mask.trailing_zeros();
            config.upstream_mark = REDIRECT.upstream_bit;
            config.answer_mark = REDIRECT.answer_bit;
            also_change(config);
        };
        let testbed = Testbed::with_steering(name, change, steer);
        let mut engine = Engine::new(EngineOptions::default());
        let pods = CLIENTS.iter().enumerate().map(|(at, [v4, v6])| {
            line::endpoint(&format!("n/c{at} {v4} {v6} dev client{at} client={at}"))
        });
        let [v4, v6] = SERVER;
        let server = line::endpoint(&format!("n/server {v4} {v6} dev server0 role=server"));
        let pods = pods.chain([server]).map(Object::Endpoint);
        engine.apply(pods.map(Update::Upsert));
        Enforced {
            testbed,
            engine,
            driver: driver.unwrap().into(),
        }
    }

    /// Adds an object, which is enforced with the next policies.
    pub(crate) fn add(&mut self, object: Object) {
        self.engine.apply([Update::Upsert(object)]);
    }

    /// Has these policies and no others enforced, and their rule sets written.
    pub(crate) fn enforce(&mut self, policies: &[Policy]) {
        let former = self.engine.state().policies.into_keys();
        let gone: Vec<Update> = former
            .map(|id| Update::Delete(palisade_model::ObjectKey::Policy(id)))
            .collect();
        self.engine.apply(gone);
        let added = policies.iter().cloned().map(Object::Policy);
        self.engine.apply(added.map(Update::Upsert));
        self.driver.resync(self.engine.tables()).unwrap();
        RuleSets::new(self.driver.dns_rules())
            .write(&self.testbed.config.rule_sets)
            .unwrap();
        // The proxy looks for a change of what it knows ten times a second.
        std::thread::sleep(Duration::from_millis(150));
    }

    fn destinations() -> impl Iterator<Item = SocketAddr> {
        servers().into_iter().chain(services())
    }

    pub(crate) fn code(&self, socket: &UdpSocket, name: &str) -> Option<ResponseCode> {
        ask(socket, 7, name).map(|answer| answer.code)
    }
}

#[test]
fn policy_decides_which_names_are_asked_for() {
    if !need_root() {
        return;
    }
    let mut enforced = Enforced::new("names");
    let policies = [
        egress(0, vec![names(&[ALLOWED])]),
        egress(1, vec![names(&["a.wild.example"]), line::rule("allow")]),
    ];
    enforced.enforce(&policies);
    let (refused, success) = (Some(ResponseCode::Refused), Some(ResponseCode::NoError));
    for destination in Enforced::destinations() {
        let testbed = &enforced.testbed;
        // Client 0 may ask for one name; 1 for all, by its second rule; 2 is not isolated, and is not redirected.
        let expected = [(success, refused), (success, success), (success, success)];
        for (client, (of_allowed, of_other)) in expected.into_iter().enumerate() {
            let socket = testbed.open_udp(client, destination);
            assert_eq!(
                enforced.code(&socket, ALLOWED),
                of_allowed,
                "{client} {destination}"
            );
            let other = enforced.code(&socket, "other.wild.example");
            assert_eq!(other, of_other, "{client} {destination}");
            let mut stream = connect(testbed, client, destination);
            // A refusal may come first.
            let queries = [(1, ALLOWED), (2, "other.wild.example")];
            let mut answers = ask_over_tcp(&mut stream, &queries);
            answers.sort_by_key(|answer| answer.id);
            let codes = [answers[0].code, answers[1].code];
            assert_eq!(
                codes.map(Some),
                [of_allowed, of_other],
                "{client} {destination}"
            );
        }
    }
    let counts = enforced.testbed.counts().queries;
    // Of each of four destinations two over UDP and two over TCP, of two clients.
    assert_eq!(
        (counts.allowed, counts.refused, counts.unknown_rule_set),
        (24, 8, 0)
    );
    // What the server saw has the clients' addresses.
    let seen = enforced.testbed.server.take_seen();
    assert!(
        seen.iter().all(|(client, ..)| {
            let address = client.to_string();
            CLIENTS.iter().flatten().any(|known| **known == address)
        }),
        "{seen:?}"
    );
}

#[test]
fn an_ingress_policy_of_the_server_judges_the_client() {
    if !need_root() {
        return;
    }
    let mut enforced = Enforced::new("ingress");
    let from_third = Rule {
        peers: vec![palisade_model::Peer::from_selector(line::selector(
            "client=2",
        ))],
        ..line::rule("allow")
    };
    let ingress = |rules| line::policy("n/server role=server", rules);
    let all = egress(0, vec![names(&[ALLOWED])]);
    enforced.enforce(&[all.clone(), ingress(vec![from_third])]);
    for server in servers() {
        let socket = enforced.testbed.open_udp(0, server);
        socket
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        assert_eq!(ask(&socket, 7, ALLOWED), None, "{server}");
    }
    assert_eq!(enforced.testbed.server.take_seen(), []);
    let from_first = Rule {
        peers: vec![palisade_model::Peer::from_selector(line::selector(
            "client=0",
        ))],
        ..line::rule("allow")
    };
    enforced.enforce(&[all, ingress(vec![from_first])]);
    for server in servers() {
        let socket = enforced.testbed.open_udp(0, server);
        assert_eq!(
            enforced.code(&socket, ALLOWED),
            Some(ResponseCode::NoError),
            "{server}"
        );
    }
}

#[test]
fn without_a_proxy_only_restricted_clients_are_cut_off() {
    if !need_root() {
        return;
    }
    check_unread_dns("dead", UnreadDnsAction::Policy);
}

#[test]
fn without_a_proxy_nobody_is_cut_off_where_the_options_allow_it() {
    if !need_root() {
        return;
    }
    check_unread_dns("pass", UnreadDnsAction::Allow);
}

/// Asks while the proxy serves, while it is dead, and when it serves again.
fn check_unread_dns(name: &str, action: UnreadDnsAction) {
    let mut enforced = Enforced::with_unread_dns(name, action);
    let is_allowed = action == UnreadDnsAction::Allow;
    let policies = [
        egress(0, vec![names(&[ALLOWED])]),
        egress(1, vec![names(&[ALLOWED]), line::rule("allow")]),
    ];
    enforced.enforce(&policies);
    let refused = Some(ResponseCode::Refused);
    let first = enforced.testbed.open_udp(0, servers()[0]);
    assert_eq!(enforced.code(&first, "other.wild.example"), refused);
    enforced.testbed.end_proxy();
    for destination in Enforced::destinations() {
        for (client, passes) in [(0, is_allowed), (1, true), (2, true)] {
            let socket = enforced.testbed.open_udp(client, destination);
            socket
                .set_read_timeout(Some(Duration::from_millis(300)))
                .unwrap();
            let answer = ask(&socket, 7, ALLOWED);
            assert_eq!(answer.is_some(), passes, "{client} {destination}");
        }
    }
    // It serves again, with the same sockets of the clients.
    enforced.testbed.start_proxy();
    for server in servers() {
        let mut stream = connect(&enforced.testbed, 0, server);
        let queries = [(1, "other.wild.example")];
        let answers = ask_over_tcp(&mut stream, &queries);
        assert_eq!(answers[0].code, ResponseCode::Refused, "{server}");
    }
    for socket in [first, enforced.testbed.open_udp(0, servers()[0])] {
        assert_eq!(enforced.code(&socket, ALLOWED), Some(ResponseCode::NoError));
        assert_eq!(enforced.code(&socket, "other.wild.example"), refused);
    }
}

#[test]
fn the_chains_are_there_only_while_a_class_redirects() {
    if !need_root() {
        return;
    }
    let mut enforced = Enforced::new("chains");
    let is_redirecting = |enforced: &Enforced| {
        let listing = run_program(&enforced.testbed.lab, "nft", &["list", "ruleset"], "");
        let redirects = listing.contains("tproxy");
        // A mark of another program means nothing while nothing is redirected.
        assert_eq!(listing.contains("0x10000000"), redirects, "{listing}");
        redirects
    };
    let allow = egress(0, vec![line::rule("allow")]);
    enforced.enforce(std::slice::from_ref(&allow));
    assert!(!is_redirecting(&enforced));
    let socket = enforced.testbed.open_udp(0, servers()[0]);
    assert_eq!(
        enforced.code(&socket, "other.wild.example"),
        Some(ResponseCode::NoError)
    );
    // An established flow is redirected as well, from the next packet on.
    enforced.enforce(&[egress(0, vec![names(&[ALLOWED])])]);
    assert!(is_redirecting(&enforced));
    assert_eq!(
        enforced.code(&socket, "other.wild.example"),
        Some(ResponseCode::Refused)
    );
    assert_eq!(enforced.code(&socket, ALLOWED), Some(ResponseCode::NoError));
    // A driver that starts again finds what it wrote.
    let outcome = enforced.driver.resync(enforced.engine.tables()).unwrap();
    assert_eq!(outcome.writes, 0);
    enforced.enforce(&[allow]);
    assert!(!is_redirecting(&enforced));
    // Also while the proxy still has a socket towards the server.
    assert_ne!(enforced.testbed.counts().upstream.open, 0);
    assert_eq!(
        enforced.code(&socket, "other.wild.example"),
        Some(ResponseCode::NoError)
    );
    assert_eq!(receive_nothing(&socket), None);
}

/// Whether nothing more arrives.
fn receive_nothing(socket: &UdpSocket) -> Option<crate::client::Answer> {
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    receive(socket)
}

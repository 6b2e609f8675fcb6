//! What goes on while the agent is killed, and while one proxy hands over to the next.

use super::{
    FIRST_PACKET, KINDS, NAMES, NamedShop, PORT, ProxyProcess, addresses_of, dnsmasq, exchange,
    open, servers,
};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::{Lab, NodeId, connect};
use palisade_testkit::need_root;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

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

#[test]
fn no_first_packet_is_lost_and_no_query_by_a_kill_of_the_agent() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-kill", &dnsmasq());
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
    let mut named = NamedShop::open("names-hand", &dnsmasq());
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
fn without_a_proxy_queries_pass_where_the_configuration_says_so() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-pass", &dnsmasq());
    named.restart_with(&["--dns-when-down", "pass"]);
    let code = |named: &NamedShop, name: &str| {
        servers().map(|server| {
            let answer = named.lookup(name, server, RecordType::A);
            answer.map(|(code, _)| code)
        })
    };
    let (answered, refused) = (Some(ResponseCode::NoError), Some(ResponseCode::Refused));
    assert_eq!(code(&named, "n0.example.com"), [answered; 2]);
    assert_eq!(code(&named, "other.test"), [refused; 2]);
    named.proxy = None;
    assert_eq!(code(&named, "n1.example.com"), [answered; 2]);
    let other = code(&named, "other.test");
    assert!(
        other.iter().all(|code| code.is_some() && *code != refused),
        "{other:?}"
    );
    // Nobody read the answer: the name has no address. What was known stays.
    assert!(!named.connects(addresses_of(1)[0]));
    assert!(named.connects(addresses_of(0)[0]));
    named.proxy = Some(ProxyProcess::start(&named.shop.agent, &named.shop.lab));
    named.wait_for_proxy();
    assert_eq!(code(&named, "other.test"), [refused; 2]);
}

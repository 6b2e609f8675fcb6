//! Every kind of change or deletion by hand, for each object in turn: it is detected, repaired and reported
//! with its duration, in IPv4 and IPv6.
//!
//! Afterwards the whole ruleset is as before, every element and every expression, except the generation,
//! which is new: flows may have begun meanwhile without a policy evaluation. Those flows are cut, and no
//! others.

mod damage;
mod ruleset;

use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use crate::agent::{Agent, ip, nft};
use nix::sys::signal::Signal;
use ruleset::Ruleset;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use palisade_testkit::lab::{LongFlow, TcpEcho, UdpEcho};
use palisade_testkit::need_root;

/// Timeout of a repair on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn open(name: &str) -> Shop {
    let shop = Shop::under(Agent::changeable(), name);
    let more = "  - from: [{ipBlock: {cidr: 10.88.0.0/16, except: [10.88.3.0/24]}}, {ipBlock: {cidr: 'fd88::/64'}}]\n    \
                ports: [{port: 1000, endPort: 2000}]\n";
    let spec = format!("{FROM_WEB_8080}{more}");
    shop.agent.apply("api.yaml", &policy("api", "api", &spec));
    assert!(enforced(&shop));
    shop
}

/// Whether only web can connect to api, in both families.
fn enforced(shop: &Shop) -> bool {
    shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080)
}

fn repaired(shop: &Shop) -> u64 {
    shop.agent.status()["dataplane"]["repaired"]
        .as_u64()
        .unwrap_or_default()
}

/// Does damage, and waits until it is reported as repaired and everything is as before; returns the reported
/// duration.
fn harm(shop: &Shop, what: &str, harm: impl FnOnce()) -> f64 {
    let before = repaired(shop);
    harm();
    let status = shop.agent.wait(what, |status| {
        status["dataplane"]["repaired"].as_u64() > Some(before)
    });
    let began = Instant::now();
    while !enforced(shop) {
        assert!(began.elapsed() < PATIENCE, "{what}: {status:#}");
    }
    let status = shop.agent.status();
    let repairs = status["dataplane"]["repairs"].as_array().unwrap();
    let last = repairs.last().unwrap();
    let millis = last["millis"].as_f64().unwrap();
    println!("{millis:8.1} ms  {what}: {}", last["what"]);
    assert!(last["writes"].as_u64() > Some(0), "{what}: {last}");
    assert_eq!(status["health"], "Ready", "{what}: {status:#}");
    millis
}

/// Output of `nft` with an option.
fn nft_with(shop: &Shop, option: &str, script: &str) -> String {
    let name = shop.lab.namespace_name(shop.lab.host());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name, "nft", option, script]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The objects of one kind in the agent's table.
fn objects(shop: &Shop, kind: &str) -> Vec<serde_json::Value> {
    let listed = nft_with(shop, "-j", &format!("list {kind}s"));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let all = listed["nftables"].as_array().unwrap().iter();
    all.filter_map(|object| object.get(kind))
        .filter(|object| object["table"] == "palisade")
        .cloned()
        .collect()
}

/// Their names.
fn names(shop: &Shop, kind: &str) -> Vec<String> {
    let objects = objects(shop, kind).into_iter();
    objects
        .map(|object| object["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The present rules of a chain, each with its handle.
fn rules(shop: &Shop, chain: &str) -> Vec<(String, String)> {
    damage::rules(&nft_with(
        shop,
        "-a",
        &format!("list chain inet palisade {chain}"),
    ))
}

/// Damage to the table, and the check that the whole ruleset is as before.
struct Damages {
    shop: Shop,
    before: Ruleset,
    times: Vec<f64>,
}

impl Damages {
    fn open(name: &str) -> Self {
        let shop = open(name);
        // After one replacement of the table, a further one gives the same ruleset, including its numbers.
        harm(&shop, "made anew", || {
            drop(nft(&shop.lab, "delete table inet palisade"))
        });
        nft(
            &shop.lab,
            "add table inet theirs { chain c { type filter hook forward priority 30; }; }",
        );
        let before = Ruleset::read(&shop);
        println!("{:?} objects and their lines", before.size());
        assert!(before.size() > (200, 2_000) && !before.generation.is_empty());
        Damages {
            shop,
            before,
            times: Vec::new(),
        }
    }

    /// Damage after which the table is kept.
    fn harm(&mut self, what: &str, script: &str) {
        let before = self.before.generation.clone();
        self.harm_whole(what, script);
        assert_ne!(self.before.generation, before, "{what}: flows go on");
    }

    /// Damage after which the table may be replaced: then marks of flows are cleared, and the generation may
    /// be any.
    fn harm_whole(&mut self, what: &str, script: &str) {
        let took = harm(&self.shop, what, || drop(nft(&self.shop.lab, script)));
        self.times.push(took);
        let began = Instant::now();
        loop {
            let is = Ruleset::read(&self.shop);
            let differs = self.before.differs(&is);
            if differs.is_empty() {
                self.before = is;
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {differs:#?}");
        }
    }

    fn chains(&self) -> Vec<String> {
        let chains = names(&self.shop, "chain");
        assert!(chains.len() > 10, "{chains:?}");
        chains
    }

    fn end(mut self, at_least: usize) {
        self.times.sort_by(f64::total_cmp);
        println!(
            "account: repair: {} repairs: median {:.1} ms, longest {:.1} ms",
            self.times.len(),
            self.times[self.times.len() / 2],
            self.times[self.times.len() - 1]
        );
        assert!(self.times.len() >= at_least, "{}", self.times.len());
    }
}

#[test]
fn every_set_and_map_is_put_back() {
    if !need_root() {
        return;
    }
    let mut damages = Damages::open("mend-sets");
    for kind in ["set", "map"] {
        for name in names(&damages.shop, kind) {
            let listed = nft(
                &damages.shop.lab,
                &format!("list {kind} inet palisade {name}"),
            );
            if !listed.contains("elements") {
                continue;
            }
            let flush = format!("flush {kind} inet palisade {name}");
            damages.harm(&format!("{kind} {name} emptied"), &flush);
            let script = damage::altered_elements(&damages.shop, kind, &name);
            damages.harm(&format!("{kind} {name} altered"), &script);
        }
    }
    damages.harm("a foreign set", "add set inet palisade mine { type mark; }");
    damages.end(50);
}

#[test]
fn every_chain_that_loses_rules_is_put_back() {
    if !need_root() {
        return;
    }
    let mut damages = Damages::open("mend-rules");
    for chain in damages.chains() {
        let rules = rules(&damages.shop, &chain);
        let Some((_, handle)) = rules.first() else {
            continue;
        };
        let delete = format!("delete rule inet palisade {chain} handle {handle}");
        damages.harm(&format!("a rule of {chain} deleted"), &delete);
        if rules.len() > 1 {
            let flush = format!("flush chain inet palisade {chain}");
            damages.harm(&format!("chain {chain} emptied"), &flush);
        }
    }
    damages.end(100);
}

#[test]
fn every_chain_that_says_something_else_is_put_back() {
    if !need_root() {
        return;
    }
    let mut damages = Damages::open("mend-words");
    for chain in damages.chains() {
        let rules = rules(&damages.shop, &chain);
        let Some((rule, handle)) = rules.first() else {
            continue;
        };
        let other = damage::other_rule(rule);
        let replace = format!("replace rule inet palisade {chain} handle {handle} {other}");
        damages.harm(&format!("{chain}: {rule} -> {other}"), &replace);
    }
    for chain in objects(&damages.shop, "chain") {
        let Some(hook) = chain["hook"].as_str() else {
            continue;
        };
        let (name, priority) = (
            chain["name"].as_str().unwrap(),
            chain["prio"].as_i64().unwrap(),
        );
        let policy = format!("add chain inet palisade {name} {{ policy drop; }}");
        damages.harm(&format!("{name}: another policy"), &policy);
        let again = format!(
            "flush chain inet palisade {name}; delete chain inet palisade {name}; \
             add chain inet palisade {name} {{ type filter hook {hook} priority {}; }}",
            priority + 1
        );
        damages.harm(&format!("{name}: another priority, no rules"), &again);
    }
    for (what, script) in [
        ("a foreign chain", "add chain inet palisade mine"),
        (
            "an open door",
            "insert rule inet palisade p_forward tcp dport { 8080, 8081 } accept",
        ),
        (
            "a dormant table",
            "add table inet palisade { flags dormant; }",
        ),
    ] {
        damages.harm(what, script);
    }
    damages.harm_whole("the table deleted", "delete table inet palisade");
    // A table of another program, which the agent does not repair.
    nft(&damages.shop.lab, "delete table inet theirs");
    damages.before = Ruleset::read(&damages.shop);
    damages.harm_whole("the whole ruleset flushed", "flush ruleset");
    damages.end(100);
}

/// Sends a datagram and waits for its echo.
fn echoed(socket: &UdpSocket) -> bool {
    let mut answer = [0; 8];
    // A late datagram belongs to an earlier exchange.
    while socket.recv(&mut answer).is_ok() {}
    let sent = socket.send(b"ping");
    std::thread::sleep(Duration::from_millis(100));
    sent.is_ok() && socket.recv(&mut answer).is_ok()
}

#[test]
fn a_flow_that_began_in_a_gap_is_cut_and_no_other() {
    if !need_root() {
        return;
    }
    let shop = open("mend-gap");
    let spec = format!(
        "{FROM_WEB_8080}  - from: [{{podSelector: {{matchLabels: {{app: web}}}}}}]\n    \
         ports: [{{port: 8081, protocol: UDP}}]\n"
    );
    shop.agent.apply("api.yaml", &policy("api", "api", &spec));
    // The direction of a connection that was not tracked is unknown: neither direction is allowed.
    shop.agent.apply("db.yaml", &policy("db", "db", ""));
    let lab = &shop.lab;
    let _servers = (
        TcpEcho::start(lab, shop.pods[1], 8080).unwrap(),
        UdpEcho::start(lab, shop.pods[1], 8081).unwrap(),
    );
    let at = |family: usize, port| SocketAddr::new(address(ADDRESSES[1][family]), port);
    let tcp = |from: usize, family| {
        LongFlow::start(
            lab,
            shop.pods[from],
            at(family, 8080),
            Duration::from_millis(10),
        )
    };
    let udp = |from: usize, family: usize| {
        let open = || UdpSocket::bind((address(ADDRESSES[from][family]), 0)).unwrap();
        let socket = lab.run_in(shop.pods[from], open).unwrap();
        socket.connect(at(family, 8081)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let allowed: Vec<(LongFlow, UdpSocket)> = [0, 1]
        .map(|family| (tcp(0, family).unwrap(), udp(0, family)))
        .into();
    let judging = |chain: &str| {
        let rules = rules(&shop, chain).into_iter();
        let judging = rules.filter(|(rule, _)| rule.contains("oifname"));
        let delete = judging
            .map(|(_, handle)| format!("delete rule inet palisade {chain} handle {handle}; "));
        delete.collect::<String>()
    };
    let values = ["p_any", "p_portr", "p_port", "p_proto"]
        .map(|map| damage::all_altered(&shop, map, "0x00000001", "0x00000002"));
    for (what, script) in [
        ("values altered", values.concat()),
        ("rules missing", ["p_o4_p", "p_o6_p"].map(judging).concat()),
        ("the table missing", "delete table inet palisade".to_owned()),
    ] {
        assert!(enforced(&shop), "{what}");
        let before = repaired(&shop);
        // It does not notice anything until it continues.
        shop.agent.signal(Signal::SIGSTOP);
        nft(lab, &script);
        let begun: Vec<(LongFlow, UdpSocket)> = [0, 1]
            .map(|family| (tcp(2, family).unwrap(), udp(2, family)))
            .into();
        for (long, datagrams) in &begun {
            let began = Instant::now();
            while long.counts().received < 5 {
                assert!(began.elapsed() < PATIENCE, "{what}: it does not pass");
            }
            assert!(echoed(datagrams), "{what}: it does not pass");
        }
        shop.agent.signal(Signal::SIGCONT);
        shop.agent.wait(what, |status| {
            status["dataplane"]["repaired"].as_u64() > Some(before)
        });
        for (family, (long, datagrams)) in begun.iter().enumerate() {
            let began = Instant::now();
            while long.counts().silent_for < Duration::from_secs(1) {
                assert!(
                    began.elapsed() < PATIENCE,
                    "{what}: TCP goes on, family {family}"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(!echoed(datagrams), "{what}: UDP goes on, family {family}");
        }
        for (long, datagrams) in &allowed {
            let received = long.counts().received;
            std::thread::sleep(Duration::from_millis(200));
            let counts = long.counts();
            assert!(
                !counts.ended && counts.received > received,
                "{what}: {counts:?}"
            );
            assert!(echoed(datagrams), "{what}: what is allowed is cut");
        }
        println!("account: repair: {what}: 4 flows begun in the gap cut, 4 allowed ones not");
    }
}

#[test]
fn the_host_side_of_workloads_is_put_back() {
    if !need_root() {
        return;
    }
    let shop = open("hostside");
    let (lab, host) = (&shop.lab, shop.lab.host());
    let endpoints = shop.agent.json(&["endpoint", "list"]);
    let endpoints = endpoints["endpoints"].as_array().unwrap();
    let interfaces: BTreeMap<&str, &str> = endpoints
        .iter()
        .map(|e| {
            (
                e["name"].as_str().unwrap(),
                e["interface"].as_str().unwrap(),
            )
        })
        .collect();
    let api = interfaces["api"];
    let [v4, v6] = ADDRESSES[1];
    let cases: [(&str, &[&str]); 8] = [
        ("set down", &["link", "set", api, "down"]),
        (
            "another hardware address",
            &["link", "set", api, "address", "02:00:00:00:00:07"],
        ),
        ("IPv4 route deleted", &["route", "del", v4]),
        ("IPv6 route deleted", &["-6", "route", "del", v6]),
        ("IPv4 neighbour deleted", &["neigh", "del", v4, "dev", api]),
        ("IPv6 neighbour deleted", &["neigh", "del", v6, "dev", api]),
        (
            "neighbour elsewhere",
            &[
                "neigh",
                "replace",
                v4,
                "dev",
                api,
                "lladdr",
                "02:00:00:00:00:09",
                "nud",
                "permanent",
            ],
        ),
        ("renamed", &["link", "set", api, "name", "mine0"]),
    ];
    for (what, args) in cases {
        harm(&shop, what, || drop(ip(lab, host, args)));
    }
    for (what, key) in [
        ("IPv4 forwarding off", "net/ipv4/ip_forward"),
        ("IPv6 forwarding off", "net/ipv6/conf/all/forwarding"),
    ] {
        harm(&shop, what, || lab.set_sysctl(host, key, "0").unwrap());
    }

    // Renamed while no agent runs: the next one finds it by its peer.
    let mut shop = shop;
    shop.agent.kill();
    ip(
        &shop.lab,
        shop.lab.host(),
        &["link", "set", api, "name", "mine1"],
    );
    shop.agent.start(&shop.lab);
    shop.agent
        .wait("ready", |status| status["health"] == "Ready");
    let began = Instant::now();
    while !enforced(&shop) {
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }

    // A name that is in use: closed and reported; restored when the name is free.
    shop.agent.kill();
    ip(
        &shop.lab,
        shop.lab.host(),
        &["link", "set", api, "name", "mine2"],
    );
    ip(
        &shop.lab,
        shop.lab.host(),
        &["link", "add", api, "type", "veth", "peer", "name", "mine3"],
    );
    shop.agent.start(&shop.lab);
    let (lab, host) = (&shop.lab, shop.lab.host());
    let closed = |s: &serde_json::Value| {
        s["reasons"]
            .to_string()
            .contains("renamed to mine2 and cannot be renamed back")
    };
    shop.agent.wait("closed", closed);
    assert!(ip(lab, host, &["-o", "link", "show", "mine2"]).contains("state DOWN"));
    assert!(
        ip(lab, host, &["-o", "link", "show", api]).contains("state DOWN"),
        "not ours"
    );
    assert!(!shop.tcp(0, 1, 8080));
    ip(lab, host, &["link", "delete", api]);
    shop.agent
        .wait("its name again", |status| status["health"] == "Ready");
    let began = Instant::now();
    while !enforced(&shop) {
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }

    // Moved to another namespace: lost and reported.
    let web = interfaces["web"];
    let elsewhere = lab.namespace_name(shop.pods[2]);
    ip(lab, host, &["link", "set", web, "netns", elsewhere]);
    let status = shop
        .agent
        .wait("moved", |status| status["health"] == "Degraded");
    assert!(
        status["reasons"].to_string().contains("shop/web"),
        "{status:#}"
    );
    ip(
        lab,
        shop.pods[2],
        &["link", "set", web, "netns", lab.namespace_name(host)],
    );
    shop.agent
        .wait("back", |status| status["health"] == "Ready");
    let began = Instant::now();
    while !enforced(&shop) {
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }
}

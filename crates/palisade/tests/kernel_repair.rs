//! Whatever is changed or deleted by hand, each object in turn: it is noticed, put back, and told with
//! the time that took, in IPv4 and IPv6.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: other programs are its witnesses, real time its measure, a panic its verdict"
)]

mod agent;

use agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, policy};
use agent::{Agent, ip, nft};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use palisade_testkit::need_root;

/// How long a repair may take on a busy machine.
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

/// Whether web alone reaches api, in both families.
fn enforced(shop: &Shop) -> bool {
    shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080)
}

fn repaired(shop: &Shop) -> u64 {
    shop.agent.status()["dataplane"]["repaired"]
        .as_u64()
        .unwrap_or_default()
}

/// Does harm, and waits until it is told as repaired and everything is as it was; the time shown.
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
    assert_eq!(status["health"], "ready", "{what}: {status:#}");
    millis
}

/// What `nft` says under an option.
fn nft_with(shop: &Shop, option: &str, script: &str) -> String {
    let name = shop.lab.namespace_name(shop.lab.host());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name, "nft", option, script]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The named objects of our table of one kind.
fn names(shop: &Shop, kind: &str) -> Vec<String> {
    let listed = nft_with(shop, "-j", &format!("list {kind}s"));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let all = listed["nftables"].as_array().unwrap().iter();
    all.filter_map(|object| object.get(kind))
        .filter(|object| object["table"] == "palisade")
        .map(|object| object["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_kind_of_object_in_the_table_is_put_back() {
    if !need_root() {
        return;
    }
    let shop = open("mend");
    let host = &shop.lab;
    let mut times = Vec::new();
    for kind in ["set", "map"] {
        for name in names(&shop, kind) {
            let listed = nft(host, &format!("list {kind} inet palisade {name}"));
            if !listed.contains("elements") {
                continue;
            }
            let what = format!("{kind} {name} emptied");
            times.push(harm(&shop, &what, || {
                nft(host, &format!("flush {kind} inet palisade {name}"));
            }));
        }
    }
    let chains = names(&shop, "chain");
    assert!(chains.len() > 10, "{chains:?}");
    for chain in &chains {
        let listed = nft_with(&shop, "-a", &format!("list chain inet palisade {chain}"));
        let rules = listed
            .lines()
            .skip_while(|line| !line.contains("chain "))
            .skip(1);
        let handle = |line: &str| line.rsplit_once("# handle ").map(|(_, n)| n.to_owned());
        let Some(handle) = rules.filter_map(handle).next() else {
            continue;
        };
        let what = format!("a rule of {chain} deleted");
        times.push(harm(&shop, &what, || {
            nft(
                host,
                &format!("delete rule inet palisade {chain} handle {handle}"),
            );
        }));
        let what = format!("chain {chain} emptied");
        times.push(harm(&shop, &what, || {
            nft(host, &format!("flush chain inet palisade {chain}"));
        }));
    }
    for (what, script) in [
        ("a foreign chain", "add chain inet palisade mine"),
        ("a foreign set", "add set inet palisade mine { type mark; }"),
        (
            "an open door",
            "insert rule inet palisade p_fwd tcp dport { 8080, 8081 } accept",
        ),
        (
            "a dormant table",
            "add table inet palisade { flags dormant; }",
        ),
        ("the table deleted", "delete table inet palisade"),
        ("the whole ruleset flushed", "flush ruleset"),
    ] {
        // Chains' names are the layout's own; the first of a forwarding hook will do.
        let forward = chains
            .iter()
            .find(|c| c.contains("fwd") || c.contains("forward"));
        let script = match forward {
            Some(chain) => script.replace("p_fwd", chain),
            None => script.to_owned(),
        };
        times.push(harm(&shop, what, || drop(nft(host, &script))));
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{} repairs: median {:.1} ms, longest {:.1} ms",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
    assert!(times.len() > 40, "{}", times.len());
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
        harm(&shop, what, || lab.sysctl(host, key, "0").unwrap());
    }

    // Renamed while no agent runs: the next one finds it by its other end.
    let mut shop = shop;
    shop.agent.kill();
    ip(
        &shop.lab,
        shop.lab.host(),
        &["link", "set", api, "name", "mine1"],
    );
    shop.agent.start(&shop.lab);
    shop.agent
        .wait("ready", |status| status["health"] == "ready");
    let began = Instant::now();
    while !enforced(&shop) {
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }

    // A name that is taken: closed, and told; given back when the name is free.
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
            .contains("called mine2, and closed")
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
        .wait("its name again", |status| status["health"] == "ready");
    let began = Instant::now();
    while !enforced(&shop) {
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }

    // Moved to another namespace: lost, and told.
    let web = interfaces["web"];
    let elsewhere = lab.namespace_name(shop.pods[2]);
    ip(lab, host, &["link", "set", web, "netns", elsewhere]);
    let status = shop
        .agent
        .wait("moved", |status| status["health"] == "degraded");
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
        .wait("back", |status| status["health"] == "ready");
    let began = Instant::now();
    while !enforced(&shop) {
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }
}

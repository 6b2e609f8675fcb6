//! End to end: a file is written, packets are allowed or denied, the agent is killed and restarted.

use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use crate::agent::{Agent, nft};
use palisade_testkit::lab::{LongFlow, OUTSIDE_ADDRESSES, ProbeFlow, ProbeL4, TcpEcho};
use palisade_testkit::need_root;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[test]
fn policy_files_are_enforced_on_real_packets() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("enforce");
    assert!(
        shop.tcp(0, 1, 8080) && shop.tcp(2, 1, 8080) && shop.tcp(0, 1, 22),
        "open without policy"
    );
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    assert!(shop.tcp(0, 1, 8080), "allowed");
    assert!(!shop.tcp(0, 1, 22) && !shop.tcp(2, 1, 8080), "denied");
    assert!(shop.tcp(1, 0, 22), "web is not isolated");
    let outside = ProbeFlow::tcp(
        shop.lab.outside(),
        address(ADDRESSES[1][0]),
        8080,
        shop.pods[1],
    );
    assert_eq!(shop.arrives(&[outside]), [false]);
    let detail = shop.agent.json(&["policy", "get", "shop/api"]);
    let counters = detail["ruleCounters"].as_array().unwrap();
    assert!(
        counters[0]["count"]["packets"].as_u64() > Some(0),
        "{detail:#}"
    );
    assert!(
        counters[1]["count"]["packets"].as_u64() > Some(0),
        "{detail:#}"
    );
    assert!(
        counters[0]["line"]
            .as_str()
            .unwrap()
            .ends_with("api.yaml:7"),
        "{detail:#}"
    );
    shop.agent.delete("api.yaml");
    assert!(shop.tcp(2, 1, 8080) && shop.tcp(0, 1, 22), "open again");
}

#[test]
fn every_protocol_ranges_named_ports_and_networks() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("protocols");
    shop.agent.apply(
        "db.yaml",
        &policy(
            "db",
            "db",
            "  ingress:\n  - ports: [{protocol: UDP, port: 53}, {protocol: SCTP, port: 9899}, {port: 1000, endPort: 3000}]\n  \
             - from: [{ipBlock: {cidr: 10.77.0.0/24, except: [10.77.0.2/32]}}]\n    ports: [{port: 5432}]\n  policyTypes: [Ingress, Egress]\n",
        ),
    );
    let (web, api, db) = (shop.pods[0], shop.pods[1], shop.pods[2]);
    let to = |family: usize| address(ADDRESSES[2][family]);
    let icmp = |family: usize| ProbeFlow::echo(web, to(family), db);
    let flows = [
        (ProbeFlow::udp(web, to(0), 53, db), true),
        (ProbeFlow::udp(web, to(1), 53, db), true),
        (ProbeFlow::tcp(web, to(0), 53, db), false),
        (ProbeFlow::sctp(web, to(0), 9899, db), true),
        (ProbeFlow::sctp(web, to(1), 9898, db), false),
        (ProbeFlow::tcp(web, to(0), 999, db), false),
        (ProbeFlow::tcp(web, to(0), 1000, db), true),
        (ProbeFlow::tcp(web, to(1), 3000, db), true),
        (ProbeFlow::tcp(web, to(1), 3001, db), false),
        (ProbeFlow::tcp(web, to(0), 5432, db), true),
        (ProbeFlow::tcp(web, to(1), 5432, db), false),
        (ProbeFlow::tcp(api, to(0), 5432, db), false),
        (icmp(0), false),
        (icmp(1), false),
        (
            ProbeFlow::new(web, to(0), ProbeL4::Other { protocol: 47 }, db),
            false,
        ),
        (ProbeFlow::udp(db, address(ADDRESSES[0][0]), 53, web), false),
        (
            ProbeFlow::udp(db, OUTSIDE_ADDRESSES[0], 53, shop.lab.outside()),
            false,
        ),
        (
            ProbeFlow::udp(web, OUTSIDE_ADDRESSES[0], 53, shop.lab.outside()),
            true,
        ),
        (ProbeFlow::tcp(shop.lab.host(), to(0), 22, db), true),
        (
            ProbeFlow::tcp(web, to(0), 1000, db).with_source(address("10.77.0.9")),
            false,
        ),
    ];
    let (asked, wanted): (Vec<ProbeFlow>, Vec<bool>) = flows.into_iter().unzip();
    assert_eq!(shop.arrives(&asked), wanted);
}

#[test]
fn a_revoked_flow_stops_and_an_allowed_one_is_never_cut() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("revoke");
    let pace = Duration::from_millis(5);
    let _servers = [
        TcpEcho::start(&shop.lab, shop.pods[1], 8080),
        TcpEcho::start(&shop.lab, shop.pods[2], 8080),
    ];
    for family in [0, 1] {
        shop.agent
            .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
        let to = |pod: usize| SocketAddr::new(address(ADDRESSES[pod][family]), 8080);
        let revoked = LongFlow::start(&shop.lab, shop.pods[0], to(1), pace).unwrap();
        let allowed = LongFlow::start(&shop.lab, shop.pods[0], to(2), pace).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(revoked.counts().received > 10);
        shop.agent
            .apply("api.yaml", &policy("api", "api", "  ingress: []\n"));
        let began = Instant::now();
        while revoked.counts().silent_for < Duration::from_millis(200) {
            assert!(
                began.elapsed() < Duration::from_secs(1),
                "a revoked flow continues: {:?}",
                revoked.counts()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        for edit in 0..20 {
            shop.agent.apply(
                "more.yaml",
                &policy(
                    "more",
                    "web",
                    &format!("  ingress: [{{ports: [{{port: {}}}]}}]\n", 80 + edit),
                ),
            );
        }
        shop.agent.delete("more.yaml");
        let counts = allowed.counts();
        assert!(
            !counts.ended && counts.longest_silence < Duration::from_millis(150),
            "{counts:?}"
        );
        assert!(counts.received > 20, "{counts:?}");
    }
}

#[test]
fn enforcement_outlives_the_agent_and_a_restart_writes_nothing() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("restart");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    shop.agent.apply("db.yaml", &policy("db", "db", "  policyTypes: [Ingress, Egress]\n  egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 1, endPort: 999}]}]\n"));
    let holds = |shop: &Shop| {
        assert!(shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080) && !shop.tcp(0, 2, 80));
    };
    holds(&shop);
    for how in ["kill", "terminate"] {
        match how {
            "kill" => shop.agent.kill(),
            _ => shop.agent.terminate(),
        }
        holds(&shop);
        shop.agent.start(&shop.lab);
        let status = shop
            .agent
            .wait("in sync", |s| s["source"]["inSync"] == true);
        assert_eq!(
            status["dataplane"]["start"]["writes"],
            0,
            "{how}: {}",
            shop.agent.log()
        );
        assert_eq!(status["health"], "Ready");
        holds(&shop);
    }
    shop.agent.kill();
    shop.agent
        .write("api.yaml", &policy("api", "api", "  ingress: []\n"));
    shop.agent.start(&shop.lab);
    assert!(!shop.tcp(0, 1, 8080), "an edit made while it was down");
}

#[test]
fn what_others_change_is_repaired_and_what_is_theirs_is_left() {
    if !need_root() {
        return;
    }
    let shop = Shop::under(Agent::changeable(), "tamper");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    nft(
        &shop.lab,
        "add table inet theirs { chain c { type filter hook forward priority 10; tcp dport 4444 counter drop; }; }",
    );
    let theirs = nft(&shop.lab, "list table inet theirs");
    let repairs = |shop: &Shop| {
        shop.agent.status()["dataplane"]["repairs"]
            .as_array()
            .unwrap()
            .len()
    };
    for (n, damage) in [
        "delete table inet palisade",
        "flush table inet palisade",
        "flush chain inet palisade p_forward",
    ]
    .iter()
    .enumerate()
    {
        nft(&shop.lab, damage);
        shop.agent.wait(damage, |s| {
            s["dataplane"]["repairs"].as_array().map(Vec::len) > Some(n)
        });
        assert!(shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080), "{damage}");
    }
    assert_eq!(nft(&shop.lab, "list table inet theirs"), theirs);
    assert!(
        nft(&shop.lab, "list ruleset").contains("map p_class"),
        "operators list everything"
    );
    assert_eq!(repairs(&shop), 3, "the agent's own writes are not repaired");
}

#[test]
fn a_broken_file_takes_nothing_out_of_force() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("broken");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let broken = policy(
        "api",
        "api",
        "  ingress:\n  - ports: [{port: 80, endPort: 79}]\n",
    );
    shop.agent.write("api.yaml", &broken);
    let status = shop.agent.wait("degraded", |s| s["health"] == "Degraded");
    assert_eq!(status["source"]["problems"][0]["line"], 7, "{status:#}");
    assert!(shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080));
    shop.agent.kill();
    shop.agent.start(&shop.lab);
    let status = shop
        .agent
        .wait("in sync", |s| s["source"]["inSync"] == true);
    assert_eq!(
        status["dataplane"]["start"]["writes"],
        0,
        "{}",
        shop.agent.log()
    );
    assert!(
        shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080),
        "remembered over a restart"
    );
    shop.agent
        .apply("api.yaml", &policy("api", "api", "  ingress: []\n"));
    assert!(!shop.tcp(0, 1, 8080));
    shop.agent.wait("ready", |s| s["health"] == "Ready");
}

#[test]
fn a_workload_comes_and_goes_without_a_trace() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("trace");
    let elements = |shop: &Shop| {
        nft(&shop.lab, "list table inet palisade")
            .matches("10.245.0")
            .count()
    };
    let node = shop.lab.add_namespace("extra", vec![]).unwrap();
    let added = shop
        .agent
        .attach(&shop.lab, node, "shop/extra", &[], &["app=api"]);
    assert_eq!(added["addresses"].as_array().unwrap().len(), 2, "{added}");
    assert!(elements(&shop) > 0);
    let missing = shop
        .agent
        .run(&["workload", "add", "shop/none", "--netns", "pal-not-there"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("pal-not-there"));
    shop.agent.json(&["workload", "remove", "shop/extra"]);
    assert_eq!(elements(&shop), 0);
    let endpoints = shop.agent.json(&["endpoint", "list"]);
    assert_eq!(endpoints["endpoints"].as_array().unwrap().len(), 3);
}

#[test]
fn counts_outlive_edits_and_restarts() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("counts");
    // Counters of all rules, including removed ones, and of the default deny.
    let packets = |shop: &Shop| -> [u64; 2] {
        let detail = shop.agent.json(&["policy", "get", "shop/api"]);
        let mut sums = [0, 0];
        for row in detail["ruleCounters"].as_array().unwrap() {
            let sum = &mut sums[usize::from(row["action"] == "DefaultDeny")];
            *sum += row["count"]["packets"].as_u64().unwrap();
        }
        sums
    };
    let rules = policy("api", "api", FROM_WEB_8080);
    shop.agent.apply("api.yaml", &rules);
    assert!(shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080));
    let mut before = packets(&shop);
    assert!(before.iter().all(|n| *n > 0), "{before:?}");
    let mut no_fewer = |shop: &Shop, what: &str| {
        let now = packets(shop);
        let kept = before.iter().zip(&now).all(|(before, now)| now >= before);
        assert!(kept, "{what}: {before:?} became {now:?}");
        before = now;
    };
    shop.agent
        .apply("api.yaml", &format!("# moved down\n{rules}"));
    let status = shop.agent.status();
    assert_eq!(status["dataplane"]["last"]["writes"], 0, "{status:#}");
    assert_eq!(status["dataplane"]["last"]["revision"], status["revision"]);
    no_fewer(&shop, "a comment above");
    let wider = rules.replace("{port: 8080}", "{port: 8080}, {port: 8081}");
    shop.agent.apply("api.yaml", &wider);
    no_fewer(&shop, "an edit");
    assert!(shop.tcp(0, 1, 8081) && !shop.tcp(2, 1, 8081));
    for how in ["kill", "terminate"] {
        match how {
            "kill" => shop.agent.kill(),
            _ => shop.agent.terminate(),
        }
        shop.agent.start(&shop.lab);
        no_fewer(&shop, how);
        let other = rules.replace("8080", &format!("8080}}, {{port: {}", how.len()));
        shop.agent.apply("api.yaml", &other);
        no_fewer(&shop, "an edit after a restart");
    }
}

#[test]
fn a_pod_on_the_network_of_its_node_is_named_as_one() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("host-network");
    let refusal = |args: &[&str]| {
        let output = shop.agent.run(args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let explain = ["explain", "--from", "shop/web", "--to", "shop/proxy"];
    let explain = [&explain[..], &["--port", "80"]].concat();
    let get = ["endpoint", "get", "shop/proxy"];
    assert!(refusal(&explain).contains("there is no pod or workload shop/proxy"));
    let proxy = "apiVersion: v1\nkind: Pod\nmetadata: {name: proxy, namespace: shop}\n\
                 spec: {hostNetwork: true, nodeName: n1}\nstatus: {podIP: 192.0.2.1, phase: Running}\n";
    // Nothing in the kernel follows from it: it is waited for, not its revision.
    shop.agent.write("proxy.yaml", proxy);
    let of_node = "shop/proxy uses the network of its node: its packets are those of the node";
    shop.agent
        .wait("the pod", |_| refusal(&explain).contains(of_node));
    assert!(refusal(&explain).contains("ask about host:n1"));
    assert!(refusal(&get).contains(of_node));
    shop.agent.write("proxy.yaml", &proxy.replace("n1", "n2"));
    shop.agent.wait("its other node", |_| {
        refusal(&explain).contains("ask about host:n2")
    });
    std::fs::remove_file(shop.agent.policy().join("proxy.yaml")).unwrap();
    shop.agent.wait("its end", |_| {
        refusal(&explain).contains("there is no pod or workload shop/proxy")
    });
    assert!(refusal(&get).contains("there is no endpoint shop/proxy on this host"));
}

//! The output of `palisade monitor --flows` for real flows: each once at its begin and once at its end, with the rules of
//! both ends; and no flow that did not pass.

use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use crate::agent::site::Site;
use crate::monitor::Following;
use palisade_testkit::lab::{OUTSIDE_ADDRESSES, ProbeFlow, probe};
use palisade_testkit::need_root;
use palisade_testkit::spelling::misspelled_keys;
use serde_json::Value;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Timeout for lines.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long no further line is awaited.
const QUIET: Duration = Duration::from_millis(500);

/// Egress of web to db, and to nowhere else.
const TO_DB: &str =
    "  policyTypes: [Egress]\n  egress:\n  - to: [{podSelector: {matchLabels: {app: db}}}]\n";

/// The flows that are told until no more are.
fn flows(following: &Following) -> Vec<Value> {
    let mut flows = Vec::new();
    while let Ok(line) = following.lines.recv_timeout(QUIET) {
        if line["type"] == "Flow" {
            assert_eq!(misspelled_keys(&line), [""; 0], "{line:#}");
            flows.push(line);
        }
    }
    flows
}

/// The only flow of this state to an address and port, or type of ICMP.
fn find<'a>(flows: &'a [Value], state: &str, to: &str, port: u64) -> &'a Value {
    let is_wanted = |flow: &&Value| {
        let number = &flow["destination"]["port"];
        let number = number.as_u64().or(flow["icmp"]["type"].as_u64());
        flow["state"] == state && flow["destination"]["address"] == to && number == Some(port)
    };
    let found: Vec<&Value> = flows.iter().filter(is_wanted).collect();
    let [flow] = found[..] else {
        panic!("{state} {to} {port}: {found:#?} of {flows:#?}")
    };
    flow
}

/// The policy or profile of what decided in a direction, and the file of a policy.
fn decided(flow: &Value, direction: &str) -> Option<(String, Option<String>)> {
    let rule = flow[direction]["rule"].as_object()?;
    let line = rule.get("line").map(|line| line.as_str().unwrap());
    let reason = if line.is_some() { "Rule" } else { "Profile" };
    assert_eq!(flow[direction]["reason"], reason, "{flow:#}");
    let file = line.map(|line| line.rsplit('/').next().unwrap().split(':').next().unwrap());
    let name = rule["name"].as_str().unwrap();
    Some((name.to_owned(), file.map(str::to_owned)))
}

#[test]
fn flows_that_pass_are_told_with_the_rules_of_both_ends() {
    if !need_root() {
        return;
    }
    let shop = Shop::under(Agent::with_nftables().with(&["--flows", "on"]), "flows");
    shop.lab
        .run_in(shop.lab.host(), || {
            for name in ["acct", "timestamp"] {
                let file = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
                std::fs::write(file, "1").unwrap();
            }
        })
        .unwrap();
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    shop.agent.apply("web.yaml", &policy("web", "web", TO_DB));
    let following = Following::start(&shop, &["--flows"]);
    // It listens once a flow is told.
    let began = Instant::now();
    while flows(&following).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
        shop.lab
            .run_in(shop.pods[1], || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.send_to(b"x", ("10.77.0.1", 9)).unwrap();
            })
            .unwrap();
    }
    let (web, api, db) = (shop.pods[0], shop.pods[1], shop.pods[2]);
    let [(web4, web6), (db4, db6)] = [0, 2].map(|pod| (ADDRESSES[pod][0], ADDRESSES[pod][1]));
    let outside = shop.lab.outside();
    let asked = [
        (ProbeFlow::tcp(web, address(db4), 8080, db), true),
        (ProbeFlow::tcp(web, address(db6), 8080, db), true),
        (ProbeFlow::tcp(api, address(db4), 8080, db), false),
        (
            ProbeFlow::udp(web, address(ADDRESSES[1][0]), 53, api),
            false,
        ),
        (ProbeFlow::udp(api, address(web4), 53, web), true),
        (ProbeFlow::echo(api, address(web6), web), true),
        (ProbeFlow::tcp(outside, address(web4), 80, web), true),
    ];
    let (probes, wanted): (Vec<ProbeFlow>, Vec<bool>) = asked.into_iter().unzip();
    assert_eq!(shop.arrives(&probes), wanted);
    // A flow often ends after its workload: the end has the names and the rules of the begin.
    let removed = shop.agent.run(&["workload", "remove", "shop/web"]);
    assert!(removed.status.success(), "{removed:?}");
    shop.lab.flush_conntrack().unwrap();
    let told = flows(&following);

    let rule = |name: &str| Some((name.to_owned(), Some(format!("{name}.yaml"))));
    // What no policy selects has the profile that allows everything.
    let profile = || Some(("palisade.allow-all".to_owned(), None));
    for (to, port, from, egress, ingress) in [
        (db4, 8080, Some("web"), rule("web"), rule("db")),
        (db6, 8080, Some("web"), rule("web"), rule("db")),
        (web4, 53, Some("api"), profile(), profile()),
        (web6, 128, Some("api"), profile(), profile()),
        (web4, 80, None, None, profile()),
    ] {
        for state in ["Began", "Ended"] {
            let flow = find(&told, state, to, port);
            assert_eq!(flow["source"]["name"].as_str(), from, "{flow:#}");
            assert_eq!(decided(flow, "egress"), egress, "{flow:#}");
            assert_eq!(decided(flow, "ingress"), ingress, "{flow:#}");
            let time = |key: &str| flow[key].as_str().map(str::to_owned);
            assert_eq!(time("ended").is_some(), state == "Ended", "{flow:#}");
            assert!(
                time("ended").is_none_or(|ended| Some(ended) >= time("began")),
                "{flow:#}"
            );
            assert_eq!(flow["translation"], Value::Null, "{flow:#}");
        }
        let traffic = &find(&told, "Ended", to, port)["traffic"];
        assert!(traffic["packetsSent"].as_u64() >= Some(1), "{traffic:#}");
        assert!(traffic["bytesSent"].as_u64() >= Some(28), "{traffic:#}");
    }
    let from_outside = find(&told, "Began", web4, 80);
    let address = OUTSIDE_ADDRESSES[0].to_string();
    assert_eq!(
        from_outside["source"]["address"], address,
        "{from_outside:#}"
    );
    let of_probes = told.iter().filter(|flow| flow["state"] == "Began").count();
    assert_eq!(of_probes, 5, "no other flow is told: {told:#?}");

    let text = shop
        .agent
        .run(&["monitor", "--last", "1", "--no-follow", "--flows"]);
    assert!(text.status.success());
}

#[test]
fn without_the_parameter_asking_for_flows_is_an_error_with_a_hint() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("noflows");
    let output = shop.agent.run(&["monitor", "--flows"]);
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("does not follow flows"), "{errors}");
    assert!(errors.contains("flows: on"), "{errors}");
}

/// Both rules are of the node's endpoint, which governs every interface: which one it was does not matter.
const NODE: &str = "
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: nodes}
spec:
  nodeSelector: {}
  ingress:
  - fromEntities: [all]
    toPorts: [{ports: [{port: '8080', protocol: TCP}]}]
  egress:
  - toEntities: [all]
    toPorts: [{ports: [{port: '9090', protocol: TCP}]}]
";

#[test]
fn flows_of_the_host_have_the_rule_of_its_endpoint() {
    if !need_root() {
        return;
    }
    let site = Site::with("hostflows", &["--flows", "on"]);
    let (host, outside) = (site.host(), site.outside());
    let [v4, v6] = site.addresses(host);
    let node = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: n1}}, status: {{addresses: [\
         {{type: InternalIP, address: '{v4}'}}, {{type: InternalIP, address: '{v6}'}}]}}}}\n"
    );
    let agent = &site.shop.agent;
    agent.apply("node.yaml", &node);
    agent.apply("nodes.yaml", NODE);
    let following = Following::start(&site.shop, &["--flows"]);
    let began = Instant::now();
    while flows(&following).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{}", agent.log());
        assert!(site.tcp(outside, host, 8080));
    }
    assert!(site.tcp(outside, host, 8080) && !site.tcp(outside, host, 8081));
    assert!(site.tcp(host, outside, 9090) && !site.tcp(host, outside, 9091));
    let told = flows(&following);
    let began = |port: u64| -> Vec<&Value> {
        let is_wanted = |flow: &&Value| {
            flow["state"] == "Began" && flow["destination"]["port"].as_u64() == Some(port)
        };
        told.iter().filter(is_wanted).collect()
    };
    for (port, direction, other, end) in [
        (8080, "ingress", "egress", "destination"),
        (9090, "egress", "ingress", "source"),
    ] {
        let found = began(port);
        assert_eq!(found.len(), 2, "a flow of each family: {told:#?}");
        for flow in found {
            let name = Some(("nodes".to_owned(), Some("nodes.yaml".to_owned())));
            assert_eq!(decided(flow, direction), name, "{flow:#}");
            assert_eq!(flow[direction]["stage"], "Normal", "{flow:#}");
            assert_eq!(flow[other], Value::Null, "{flow:#}");
            assert_eq!(flow[end]["node"], "n1", "{flow:#}");
        }
    }
    assert!(
        began(8081).is_empty() && began(9091).is_empty(),
        "{told:#?}"
    );
}

/// UDP of web to port 8080 of db, and a rule that it does not match.
const FROM_WEB: &str = "  - from: [{podSelector: {matchLabels: {app: web}}}]\n    ports: [{protocol: UDP, port: 8080}]\n";
const FROM_API: &str =
    "  - from: [{podSelector: {matchLabels: {app: api}}}]\n    ports: [{protocol: UDP, port: 9}]\n";

/// What is told of flows to db, of both families: the state, and the index of the rule there.
fn changes(shop: &Shop, following: &Following, wanted: usize) -> Vec<(String, u64)> {
    let began = Instant::now();
    let mut told = Vec::new();
    loop {
        let lines = flows(following).into_iter();
        let to_db = lines.filter(|flow| flow["destination"]["port"] == 8080);
        told.extend(to_db.map(|flow| {
            let index = &flow["ingress"]["rule"]["index"];
            let state = flow["state"].as_str().unwrap().to_owned();
            (state, index.as_u64().unwrap_or_else(|| panic!("{flow:#}")))
        }));
        if told.len() >= 2 * wanted {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{told:?}\n{}", shop.agent.log());
    }
    told.sort();
    told
}

#[test]
fn a_flow_whose_verdict_changes_ends_and_begins_by_the_rules_of_each_time() {
    if !need_root() {
        return;
    }
    let shop = Shop::under(Agent::with_nftables().with(&["--flows", "on"]), "rejudged");
    let apply = |rules: &[&str]| {
        let rules = format!("  ingress:\n{}", rules.concat());
        shop.agent.apply("db.yaml", &policy("db", "db", &rules));
    };
    let packets = ADDRESSES[2].map(|to| {
        let flow = ProbeFlow::udp(shop.pods[0], address(to), 8080, shop.pods[2]);
        flow.with_source_port(4000)
    });
    let arrive = || probe(&shop.lab, &packets).unwrap();
    apply(&[FROM_WEB]);
    let following = Following::start(&shop, &["--flows"]);
    // It listens once a flow is told.
    let listens = Instant::now();
    while flows(&following).is_empty() {
        assert!(listens.elapsed() < PATIENCE, "{}", shop.agent.log());
        shop.arrives(&packets);
    }
    shop.lab.flush_conntrack().unwrap();
    flows(&following);

    let both = |lines: &[(&str, u64)]| -> Vec<(String, u64)> {
        let lines = lines.iter().flat_map(|(state, rule)| [(*state, *rule); 2]);
        lines
            .map(|(state, rule)| (state.to_owned(), rule))
            .collect()
    };
    assert_eq!(arrive(), [true, true]);
    assert_eq!(changes(&shop, &following, 1), both(&[("Began", 0)]));
    // Another rule allows it.
    apply(&[FROM_API, FROM_WEB]);
    let told = changes(&shop, &following, 2);
    assert_eq!(told, both(&[("Began", 1), ("Ended", 0)]));
    assert_eq!(arrive(), [true, true]);
    // It is cut, although the kernel tracks it on.
    apply(&[FROM_API]);
    assert_eq!(changes(&shop, &following, 1), both(&[("Ended", 1)]));
    assert_eq!(arrive(), [false, false]);
    // It may go on, and does.
    apply(&[FROM_WEB]);
    assert_eq!(changes(&shop, &following, 1), both(&[("Began", 0)]));
    assert_eq!(arrive(), [true, true]);
    // A change that is about other flows tells nothing.
    shop.agent.apply("web.yaml", &policy("web", "api", TO_DB));
    shop.lab.flush_conntrack().unwrap();
    assert_eq!(changes(&shop, &following, 1), both(&[("Ended", 0)]));
    assert_eq!(flows(&following), Vec::<Value>::new());
}

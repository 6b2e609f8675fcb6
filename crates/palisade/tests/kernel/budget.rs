//! A policy over its element budget: the last valid version stays enforced, the agent reports the number of
//! elements and the rules that need them, and an edit or a higher limit resolves it.

use crate::agent::shop::{FROM_WEB_8080, Shop, policy};
use crate::agent::{Agent, nft};
use palisade_testkit::need_root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

const WEB: usize = 0;
const API: usize = 1;
const DB: usize = 2;
/// A port that is in every list.
const LISTED: u16 = 9001;

/// Allows everyone on this many ports, no two of which are adjacent.
fn list(ports: u16) -> String {
    list_from(LISTED, ports)
}

fn list_from(first: u16, ports: u16) -> String {
    let mut text = "  ingress:\n  - ports:\n".to_owned();
    for port in 0..ports {
        writeln!(text, "    - port: {}", first + 2 * port).unwrap();
    }
    text
}

fn over(status: &Value) -> &[Value] {
    status["overBudget"].as_array().map_or(&[], |over| over)
}

/// An agent whose configuration file has the limit of a policy set.
struct World {
    shop: Shop,
    file: PathBuf,
}

impl World {
    fn open(name: &str, most: u32) -> Self {
        let mut agent = Agent::new();
        let file = agent.policy().with_file_name("palisade.yaml");
        agent.more(&["--config", file.to_str().unwrap()]);
        std::fs::write(&file, format!("policy-set-max-elements: {most}\n")).unwrap();
        let shop = Shop::under(agent, name);
        World { shop, file }
    }

    fn allow(&self, most: u32) {
        std::fs::write(&self.file, format!("policy-set-max-elements: {most}\n")).unwrap();
    }

    fn text(&self, args: &[&str]) -> String {
        String::from_utf8(self.shop.agent.run(args).stdout).unwrap()
    }

    /// Number of port elements in the kernel.
    fn port_elements(&self) -> usize {
        nft(&self.shop.lab, "list map inet palisade p_port")
            .matches("counter")
            .count()
    }
}

#[test]
fn past_the_budget_the_last_valid_version_is_enforced() {
    if !need_root() {
        return;
    }
    let mut world = World::open("budget", 2048);
    world
        .shop
        .agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let as_before = |world: &World| {
        assert!(world.shop.tcp(WEB, API, 8080), "still allowed");
        assert!(!world.shop.tcp(DB, API, 8080), "still denied");
        assert!(
            !world.shop.tcp(DB, API, LISTED),
            "the rejected version allows nothing"
        );
    };
    as_before(&world);

    world
        .shop
        .agent
        .write("api.yaml", &policy("api", "api", &list(3000)));
    let refused = |s: &Value| over(s).len() == 1 && s["revision"] == s["realised"];
    let status = world.shop.agent.wait("refused", refused);
    as_before(&world);
    assert!(world.port_elements() < 50, "{}", world.port_elements());
    assert_eq!(status["health"], "Degraded");
    let told = &over(&status)[0];
    assert_eq!(told["policies"][0], "NetworkPolicy shop/api");
    assert_eq!(told["enforced"], "LastValid");
    assert_eq!(told["parameter"], "policy-set-max-elements");
    assert_eq!(
        (&told["elements"], &told["budget"]),
        (&3003.into(), &2048.into())
    );
    assert_eq!(told["rules"][0]["elements"], 3000);
    let line = told["rules"][0]["line"].as_str().unwrap();
    assert!(line.ends_with("/api.yaml:7"), "{line}");
    let shown = world.text(&["status"]);
    for part in [
        "needs about 3003 kernel elements",
        "api.yaml:7) 3000",
        "1 over budget",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    let detail = world.shop.agent.json(&["policy", "get", "shop/api"]);
    assert_eq!(detail["overBudget"], *told);
    assert_eq!(detail["rules"], 1, "the version in force");
    let shown = world.text(&["policy", "get", "shop/api"]);
    assert!(
        shown.contains("the last valid version stays in force"),
        "{shown}"
    );
    assert!(world.text(&["policy", "list"]).contains("3003 of 2048"));
    let file = world.file.to_str().unwrap().to_owned();
    let dry = ["--dry-run", "--config", &file, "-o", "json"];
    let dry = world.shop.agent.beside(&world.shop.lab, "agent", &dry);
    let dry: Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert_eq!(over(&dry["status"])[0]["elements"], 3003);
    assert_eq!(dry["plan"]["writes"], 0);

    world.shop.agent.kill();
    world.shop.agent.start(&world.shop.lab);
    let status = world.shop.agent.wait("after a restart", refused);
    assert_eq!(status["dataplane"]["start"]["writes"], 0);
    as_before(&world);

    // A higher limit alone activates the policy, and an agent with a lower limit again denies all.
    world.allow(4096);
    world
        .shop
        .agent
        .wait("may take more", |s| over(s).is_empty());
    assert!(world.shop.tcp(DB, API, LISTED) && !world.shop.tcp(WEB, API, 8080));
    assert!(world.port_elements() >= 3000);
    world.allow(2048);
    world.shop.agent.wait("may take less", |s| {
        over(s).iter().any(|over| over["enforced"] == "Closed")
    });
    assert!(!world.shop.tcp(DB, API, LISTED) && world.port_elements() < 50);

    world
        .shop
        .agent
        .write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    world
        .shop
        .agent
        .wait("mended", |s| over(s).is_empty() && s["health"] == "Ready");
    as_before(&world);
}

#[test]
fn what_never_fitted_isolates_and_what_is_too_large_together_is_closed() {
    if !need_root() {
        return;
    }
    let world = World::open("budgets", 2048);
    let agent = &world.shop.agent;
    assert!(world.shop.tcp(WEB, DB, LISTED));
    agent.write("db.yaml", &policy("db", "db", &list(3000)));
    let status = agent.wait("refused", |s| over(s).len() == 1);
    assert_eq!(over(&status)[0]["enforced"], "Isolating");
    assert!(!world.shop.tcp(WEB, DB, LISTED));
    agent.delete("db.yaml");
    assert!(world.shop.tcp(WEB, DB, LISTED));

    // Two lists, each below the limit.
    agent.apply("list.yaml", &policy("list", "api", &list(1200)));
    assert!(world.shop.tcp(DB, API, LISTED) && agent.status()["health"] == "Ready");
    let more = list_from(LISTED + 20_000, 1100);
    agent.apply("more.yaml", &policy("more", "api", &more));
    let status = agent.status();
    assert_eq!(over(&status).len(), 1, "{status:#}");
    let told = &over(&status)[0];
    assert_eq!(told["enforced"], "Closed");
    assert_eq!(told["policies"].as_array().unwrap().len(), 2);
    assert_eq!(told["rules"][0]["policy"], "NetworkPolicy shop/list");
    let reason = status["reasons"][0].as_str().unwrap();
    assert!(
        reason.contains("NetworkPolicy shop/list, NetworkPolicy shop/more denies everything"),
        "{reason}"
    );
    assert!(!world.shop.tcp(DB, API, LISTED) && !world.shop.tcp(WEB, API, LISTED + 20_000));
    assert!(world.port_elements() < 50);
    agent.delete("more.yaml");
    assert!(world.shop.tcp(DB, API, LISTED) && agent.status()["health"] == "Ready");
}

/// This many ports for everyone in each of ten rules, and ten peers with their own port, of which only the
/// first runs here.
fn list_and_peers(each: u16, peers: u16) -> String {
    let mut text = "  ingress:\n".to_owned();
    for peer in 0..peers {
        let (app, port) = match peer {
            0 => ("web".to_owned(), 8080),
            _ => (format!("p{peer}"), 2 * peer),
        };
        writeln!(
            text,
            "  - {{from: [{{podSelector: {{matchLabels: {{app: {app}}}}}}}], ports: [{{port: {port}}}]}}"
        )
        .unwrap();
    }
    for rule in 0..10 {
        text.push_str("  - ports:\n");
        for port in 0..each {
            writeln!(text, "    - port: {}", LISTED + 2 * (rule * each + port)).unwrap();
        }
    }
    policy("api", "api", &text)
}

/// Counters of the policy's rules that are not zero. Denied packets are retransmitted by the sender, so their
/// count is less exact.
fn counted(shop: &Shop) -> BTreeMap<u64, u64> {
    let detail = shop.agent.json(&["policy", "get", "shop/api"]);
    let rows = detail["ruleCounters"].as_array().unwrap().iter();
    let row = |row: &Value| Some((row["index"].as_u64()?, row["count"]["packets"].as_u64()?));
    rows.filter_map(row)
        .filter(|(_, packets)| *packets > 0)
        .collect()
}

/// The 143 KB policy that took 88,068 elements: the list is in the kernel once, every peer gets the right
/// verdict, and counters of elements shared by classes survive a restart and the removal of the list.
#[test]
fn a_list_that_every_peer_has_is_written_once() {
    if !need_root() {
        return;
    }
    let mut world = World::open("shared", 1 << 17);
    let pods: String = (1..10)
        .map(|peer| {
            format!(
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{peer}, namespace: shop, labels: {{app: p{peer}}}}}\n\
                 spec: {{nodeName: elsewhere}}\nstatus: {{podIP: 10.78.0.{peer}}}\n"
            )
        })
        .collect();
    world.shop.agent.apply("pods.yaml", &pods);
    let text = list_and_peers(800, 10);
    assert!(text.len() > 100_000, "{}", text.len());
    world.shop.agent.apply("api.yaml", &text);
    let elements = |world: &World| -> usize {
        ["p_port", "p_portr", "p_proto", "p_any"]
            .iter()
            .map(|map| {
                let text = nft(&world.shop.lab, &format!("list map inet palisade {map}"));
                text.matches("counter packets").count()
            })
            .sum()
    };
    let held = elements(&world);
    let status = world.shop.agent.status();
    let told = status["budget"]["elements"].as_u64().unwrap() as usize;
    let flush = &status["dataplane"]["last"];
    println!(
        "{} bytes of policy: {held} elements, counted as {told}, flush {flush}",
        text.len()
    );
    assert!((8000..8200).contains(&held), "{held}");
    // Elements counted against the budget: these, and the entries of peers with their own class.
    assert!((held..held + 200).contains(&told), "{told}");
    assert!(nft(&world.shop.lab, "list map inet palisade p_base").contains("0x80000000"));

    // In both families: from a peer with its own class, and from one without.
    let last = LISTED + 2 * 7999;
    let judged = |world: &World| {
        let shop = &world.shop;
        for (from, port, passes) in [
            (WEB, LISTED, true),
            (WEB, last, true),
            (WEB, LISTED + 1, false),
            (WEB, 8080, true),
            (DB, LISTED + 1600, true),
            (DB, 8080, false),
            (DB, LISTED - 1, false),
        ] {
            assert_eq!(shop.tcp(from, API, port), passes, "{from} {port}");
        }
    };
    judged(&world);
    // One packet of each connection is evaluated: two families, and the rules that allowed them.
    let times = |n: u64| BTreeMap::from([(0, 2 * n), (10, 2 * n), (11, 2 * n), (19, 2 * n)]);
    assert_eq!(counted(&world.shop), times(1));

    world.shop.agent.kill();
    world.shop.agent.start(&world.shop.lab);
    let status = world
        .shop
        .agent
        .wait("after a restart", |s| s["health"] == "Ready");
    assert_eq!(status["dataplane"]["start"]["writes"], 0, "{status:#}");
    assert_eq!(
        counted(&world.shop),
        times(1),
        "a restart loses and adds nothing"
    );
    judged(&world);
    assert_eq!(counted(&world.shop), times(2));

    // Some classes are removed, then most of them; the base is removed with the last, and no counter is lost.
    let text = text.replace("app: p9", "app: nobody");
    world.shop.agent.apply("api.yaml", &text);
    assert_eq!(counted(&world.shop), times(2));
    judged(&world);
    world.shop.agent.delete("pods.yaml");
    assert_eq!(counted(&world.shop), times(3));
    judged(&world);
    assert!(elements(&world) < 8200, "{}", elements(&world));
    // Of the lists only two ports remain; their counters are still reported.
    let few = list_and_peers(1, 1).replace("app: web", "app: nobody");
    world.shop.agent.apply("api.yaml", &few);
    assert!(elements(&world) < 100, "{}", elements(&world));
    assert!(world.shop.tcp(WEB, API, LISTED) && !world.shop.tcp(WEB, API, last));
}

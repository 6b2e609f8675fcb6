//! A policy that would take more of the kernel than it may: what was valid last stays enforced, the
//! agent says what it would take and which rules do, and an edit or the parameter mends it.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: other programs are its witnesses, real time its measure, a panic its verdict"
)]

mod agent;

use agent::shop::{FROM_WEB_8080, Shop, policy};
use agent::{Agent, nft};
use palisade_testkit::need_root;
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;

const WEB: usize = 0;
const API: usize = 1;
const DB: usize = 2;
/// A port of every list.
const LISTED: u16 = 9001;

/// Everyone is let in at so many ports, no two of which are adjacent.
fn list(ports: u16) -> String {
    let mut text = "  ingress:\n  - ports:\n".to_owned();
    for port in 0..ports {
        writeln!(text, "    - port: {}", LISTED + 2 * port).unwrap();
    }
    text
}

fn over(status: &Value) -> &[Value] {
    status["overBudget"].as_array().map_or(&[], |over| over)
}

/// An agent whose configuration file says how much a policy set may take.
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

    /// How many elements the kernel holds for ports.
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
        assert!(world.shop.tcp(WEB, API, 8080), "what was allowed still is");
        assert!(!world.shop.tcp(DB, API, 8080), "what was denied still is");
        assert!(
            !world.shop.tcp(DB, API, LISTED),
            "what was refused opens nothing"
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
    assert_eq!(status["health"], "degraded");
    let told = &over(&status)[0];
    assert_eq!(told["policies"][0], "NetworkPolicy shop/api");
    assert_eq!(told["enforced"], "last-valid");
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
        "takes about 3003 kernel elements",
        "api.yaml:7) 3000",
        "1 over it",
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

    // The parameter alone takes it in force, and an agent that may take less again closes.
    world.allow(4096);
    world
        .shop
        .agent
        .wait("may take more", |s| over(s).is_empty());
    assert!(world.shop.tcp(DB, API, LISTED) && !world.shop.tcp(WEB, API, 8080));
    assert!(world.port_elements() >= 3000);
    world.allow(2048);
    world.shop.agent.wait("may take less", |s| {
        over(s).iter().any(|over| over["enforced"] == "closed")
    });
    assert!(!world.shop.tcp(DB, API, LISTED) && world.port_elements() < 50);

    world
        .shop
        .agent
        .write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    world
        .shop
        .agent
        .wait("mended", |s| over(s).is_empty() && s["health"] == "ready");
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
    assert_eq!(over(&status)[0]["enforced"], "isolating");
    assert!(!world.shop.tcp(WEB, DB, LISTED));
    agent.delete("db.yaml");
    assert!(world.shop.tcp(WEB, DB, LISTED));

    // A list, and peers with a port of their own: each is small.
    agent.apply("list.yaml", &policy("list", "api", &list(900)));
    assert!(world.shop.tcp(DB, API, LISTED) && agent.status()["health"] == "ready");
    let peers = "  ingress:\n  - from: [{podSelector: {matchLabels: {app: web}}}]\n    ports: [{port: 80}]\n  \
                 - from: [{podSelector: {matchLabels: {app: db}}}]\n    ports: [{port: 82}]\n";
    agent.apply("peers.yaml", &policy("peers", "api", peers));
    let status = agent.status();
    assert_eq!(over(&status).len(), 1, "{status:#}");
    let told = &over(&status)[0];
    assert_eq!(told["enforced"], "closed");
    assert_eq!(told["policies"].as_array().unwrap().len(), 2);
    assert_eq!(told["rules"][0]["policy"], "NetworkPolicy shop/list");
    let reason = status["reasons"][0].as_str().unwrap();
    assert!(
        reason.contains("NetworkPolicy shop/list, NetworkPolicy shop/peers denies everything"),
        "{reason}"
    );
    assert!(!world.shop.tcp(DB, API, LISTED) && !world.shop.tcp(WEB, API, 80));
    assert!(world.port_elements() < 50);
    agent.delete("peers.yaml");
    assert!(world.shop.tcp(DB, API, LISTED) && agent.status()["health"] == "ready");
}

//! Calico's policies with an agent and real packets: files are written, and packets pass or not.

use crate::agent::shop::Shop;
use palisade_testkit::need_root;
use serde_json::json;

const WEB: usize = 0;
const API: usize = 1;
const DB: usize = 2;

/// An object of Calico.
fn calico(kind: &str, metadata: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: projectcalico.org/v3, kind: {kind}, metadata: {{{metadata}}}, spec: {spec}}}\n"
    )
}

#[test]
fn tiers_order_pass_and_deny() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("calico");
    assert!(shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080));
    // One policy: ingress of the selected workloads is denied but for what it allows.
    let from_web = "{selector: app == 'api', ingress: [{action: Allow, protocol: TCP, source: \
                    {selector: app == 'web'}, destination: {ports: [8080]}}]}";
    let policy = calico("NetworkPolicy", "name: api, namespace: shop", from_web);
    shop.agent.apply("api.yaml", &policy);
    assert!(shop.tcp(WEB, API, 8080));
    assert!(!shop.tcp(WEB, API, 9090) && !shop.tcp(DB, API, 8080));
    assert!(shop.tcp(API, DB, 8080), "egress is not governed");
    // A policy of lower order decides before it.
    let deny = "{order: 10, selector: all(), types: [Ingress], ingress: [{action: Deny, \
                source: {selector: app == 'web'}}, {action: Pass}]}";
    let deny = calico("GlobalNetworkPolicy", "name: deny", deny);
    shop.agent.apply("deny.yaml", &deny);
    assert!(!shop.tcp(WEB, API, 8080) && !shop.tcp(WEB, DB, 8080));
    // Its Pass leaves the tier; after the last tier the profile of a workload allows.
    assert!(shop.tcp(DB, API, 8080) && shop.tcp(DB, API, 9090));
    // A tier before it decides first; its default action denies what its policies do not decide.
    let tier = calico("Tier", "name: security", "{order: 100}");
    let allow = "{tier: security, selector: app == 'api', ingress: [{action: Allow, source: \
                 {selector: app == 'web'}}]}";
    let allow = calico("GlobalNetworkPolicy", "name: security.allow", allow);
    shop.agent
        .apply("tier.yaml", &format!("{tier}---\n{allow}"));
    assert!(shop.tcp(WEB, API, 8080) && shop.tcp(WEB, API, 9090));
    assert!(!shop.tcp(DB, API, 8080), "the tier's default");
    assert!(shop.tcp(DB, WEB, 8080), "the tier has no policy about web");
    let tier = calico(
        "Tier",
        "name: security",
        "{order: 100, defaultAction: Pass}",
    );
    shop.agent
        .apply("tier.yaml", &format!("{tier}---\n{allow}"));
    assert!(shop.tcp(DB, API, 8080), "the tier passes on");
    // What is staged decides nothing, and what it would decide is counted.
    let staged = calico(
        "StagedGlobalNetworkPolicy",
        "name: staged",
        "{order: 1, selector: app == 'web', ingress: [{action: Deny}]}",
    );
    shop.agent.apply("staged.yaml", &staged);
    assert!(shop.tcp(DB, WEB, 8080));
    let explained = shop.agent.json(&[
        "explain", "--from", "shop/db", "--to", "shop/web", "--port", "8080",
    ]);
    assert_eq!(explained["verdict"], "Allow", "{explained:#}");
    assert_eq!(explained["auditVerdict"], "Deny", "{explained:#}");
    tiers_are_shown_with_their_order(&shop);
}

/// What the commands show of the tiers at the end of the test above.
fn tiers_are_shown_with_their_order(shop: &Shop) {
    let status = shop.agent.json(&["status"]);
    assert_eq!(
        status["tiers"],
        json!([
            {"name": "security", "order": 100.0, "default": "Pass", "policies": 1},
            {"name": "default", "order": 1_000_000.0, "default": "Deny", "policies": 3},
        ])
    );
    let list = shop.agent.json(&["policy", "list"]);
    let listed = list["policies"].as_array().unwrap().iter();
    let places = listed.map(|of| json!([of["name"], of["tier"], of["tierOrder"], of["order"]]));
    assert_eq!(
        places.collect::<Vec<_>>(),
        [
            json!(["security.allow", "security", 100.0, null]),
            json!(["staged", "default", 1_000_000.0, 1.0]),
            json!(["deny", "default", 1_000_000.0, 10.0]),
            json!(["api", "default", 1_000_000.0, null]),
        ]
    );
    let endpoint = shop.agent.json(&["endpoint", "get", "shop/api"]);
    let applied = &endpoint["ingress"][0];
    assert_eq!(
        [&applied["tier"], &applied["tierOrder"], &applied["name"]],
        [&json!("security"), &json!(100.0), &json!("security.allow")]
    );
    // A tier that does not exist stands last.
    let stray = "{tier: nowhere, selector: app == 'db', ingress: [{action: Allow}]}";
    let stray = calico("GlobalNetworkPolicy", "name: nowhere.stray", stray);
    shop.agent.apply("stray.yaml", &stray);
    let status = shop.agent.json(&["status"]);
    assert_eq!(
        status["tiers"][2],
        json!({"name": "nowhere", "default": "Deny", "missing": true, "policies": 1})
    );
}

#[test]
fn one_object_of_both_api_groups_is_one_policy() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("calico-crd");
    let policy = |order: u32| {
        let spec = format!("{{order: {order}, selector: app == 'api', types: [Ingress]}}");
        calico("NetworkPolicy", "name: api, namespace: shop", &spec)
    };
    let crd = policy(7).replace("projectcalico.org/v3", "crd.projectcalico.org/v1");
    shop.agent.apply("a.yaml", &crd);
    assert!(!shop.tcp(WEB, API, 8080));
    let listed = shop.agent.json(&["policy", "list"]);
    let listed = listed["policies"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{listed:#?}");
}

#[test]
fn services_as_peers_carry_their_ports() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("calico-services");
    let slice = |family: &str, addresses: &str, port: u16| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: {family}, metadata: {{name: api-{family}, \
             namespace: shop, labels: {{kubernetes.io/service-name: api}}}}, endpoints: [{{addresses: [{addresses}]}}], \
             ports: [{{port: {port}, protocol: TCP}}]}}\n"
        )
        .replace("api-IPv", "api-ipv")
    };
    let slices = |port| {
        let v4 = slice("IPv4", "10.77.0.2", port);
        format!("{v4}---\n{}", slice("IPv6", "'fd77::2'", port))
    };
    let policy = calico(
        "NetworkPolicy",
        "name: web, namespace: shop",
        "{selector: app == 'web', types: [Egress], egress: [{action: Allow, destination: {services: {name: api}}}]}",
    );
    shop.agent.apply("policy.yaml", &policy);
    assert!(!shop.tcp(WEB, API, 8080), "there is no such Service");
    shop.agent.apply("slices.yaml", &slices(8080));
    assert!(shop.tcp(WEB, API, 8080));
    assert!(!shop.tcp(WEB, API, 9090) && !shop.tcp(WEB, DB, 8080));
    shop.agent.apply("slices.yaml", &slices(9090));
    assert!(shop.tcp(WEB, API, 9090) && !shop.tcp(WEB, API, 8080));
    // As a source, its endpoints are meant with every port.
    let policy = calico(
        "NetworkPolicy",
        "name: web, namespace: shop",
        "{selector: app == 'db', ingress: [{action: Allow, source: {services: {name: api}}}]}",
    );
    shop.agent.apply("policy.yaml", &policy);
    assert!(shop.tcp(API, DB, 8080) && shop.tcp(API, DB, 9090) && !shop.tcp(WEB, DB, 8080));
}

//! The operations that read the fast path: what it says in the words of the model, and why it does not run.

use super::site::{Host, Site, reader, root};
use palisade_dataplane::{
    CountAccount, CounterValue, DriverCondition, FastPathCheck, FastPathCounter,
    FastPathDifference, FastPathEnd, FastPathEndpoint, FastPathFlow, FastPathFlows,
    FastPathObstacle, FastPathPair, FastPathPart, FastPathPolicy, FastPathProven,
};
use palisade_model::{Direction, ObjectId, ObjectKind, PolicyId, PortRange, Protocol, RuleOrigin};
use palisade_node::rate_limit::RateLimit;
use palisade_tables::VerdictCause;
use palisade_testkit::FakeFastPath;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const PATHS: [&str; 4] = [
    "/v1/bpf/endpoints",
    "/v1/bpf/flows",
    "/v1/bpf/policy",
    "/v1/bpf/check",
];

const RATE: RateLimit = RateLimit {
    per_second: 1_000,
    burst: 1_000,
};

async fn get(site: &Site, path: &str) -> (u16, Value) {
    let (status, answer) = site.ask(reader(), "GET", path, "").await;
    (status.as_u16(), answer)
}

/// Attaches a workload; its addresses.
async fn attach(site: &Site, name: &str) -> Vec<IpAddr> {
    let body = json!({"namespace": "shop", "name": name, "netns": name}).to_string();
    let (status, answer) = site.ask(root(), "POST", "/v1/workloads", &body).await;
    assert_eq!(status.as_u16(), 200, "{answer}");
    let addresses = answer["addresses"].as_array().unwrap().iter();
    addresses
        .map(|address| address.as_str().unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn where_it_does_not_run_each_operation_says_why() {
    let site = Site::new();
    for path in PATHS {
        let (status, answer) = get(&site, path).await;
        assert_eq!(status, 409, "{path}");
        let reason = "the fast path is off: the agent enforces with fake alone";
        assert_eq!(answer["error"], reason, "{path}");
        assert!(answer["hint"].as_str().unwrap().contains("dataplane: ebpf"));
    }
    site.dataplane.set_conditions(vec![DriverCondition {
        kind: "FastPathOff",
        reason: "TcxLinks",
        message: "the fast path is off, nftables delivers every packet: no tcx".to_owned(),
    }]);
    for path in PATHS {
        let (status, answer) = get(&site, path).await;
        assert_eq!((status, &answer["hint"]), (409, &json!("palisade status")));
        assert!(answer["error"].as_str().unwrap().ends_with(": no tcx"));
    }
    site.dataplane.set_conditions(Vec::new());
    let site = Site::on(RATE, &Host::default(), &[("dataplane", "ebpf")]);
    for path in PATHS {
        let (status, answer) = get(&site, path).await;
        assert_eq!(status, 409, "{path}");
        assert!(answer["error"].as_str().unwrap().contains("not written"));
    }
}

#[tokio::test]
async fn limits_are_bounds_and_names_are_of_workloads() {
    let site = Site::new();
    site.dataplane.set_fast_path(Some(FakeFastPath::default()));
    for (query, expected) in [
        ("/v1/bpf/flows", 200),
        ("/v1/bpf/flows?limit=100000&protocol=TCP", 200),
        ("/v1/bpf/flows?limit=100001", 422),
        ("/v1/bpf/flows?limit=0", 422),
        ("/v1/bpf/flows?protocol=Other", 422),
        ("/v1/bpf/flows?endpoint=shop/web", 404),
        ("/v1/bpf/policy?limit=10000", 200),
        ("/v1/bpf/policy?limit=10001", 422),
        ("/v1/bpf/policy?endpoint=shop/web", 404),
        ("/v1/bpf/policy?protocol=TCP", 400),
    ] {
        let (status, answer) = get(&site, query).await;
        assert_eq!(status, expected, "{query}: {answer}");
    }
}

#[tokio::test]
async fn addresses_and_flows_have_the_names_of_workloads() {
    let site = Site::new();
    let (web, db) = (attach(&site, "web").await, attach(&site, "db").await);
    let flow = FastPathFlow {
        protocol: Protocol::UDP,
        source: (web[0], 40_000),
        destination: (db[0], 53),
        is_via_stack: false,
        is_closing: false,
        is_answered: true,
        is_judged_again: false,
        age: Duration::from_millis(1_234),
        remaining: Duration::from_secs(178),
    };
    let echo = FastPathFlow {
        protocol: Protocol::ICMP,
        source: (web[0], 77),
        destination: ([192, 0, 2, 1].into(), 8),
        is_via_stack: true,
        ..flow
    };
    let endpoint = FastPathEndpoint {
        address: web[0],
        interface: "pal-web".into(),
        slot: 3,
        identity: 7,
        sets: [1, 2],
        mtu: None,
        obstacle: Some(FastPathObstacle::Refused("it is a port".to_owned())),
    };
    site.dataplane.set_fast_path(Some(FakeFastPath {
        endpoints: vec![endpoint],
        flows: FastPathFlows {
            owned: 1,
            via_stack: 1,
            evictions: 5,
            flows: vec![flow, echo],
            left_out: 0,
        },
        ..FakeFastPath::default()
    }));
    let (_, list) = get(&site, "/v1/bpf/endpoints").await;
    let endpoints = list["endpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), web.len() + db.len());
    let of = |address: &IpAddr| {
        let address = json!(address.to_string());
        let mut found = endpoints.iter().filter(|end| end["address"] == address);
        found.next().unwrap()
    };
    let expected = json!({
        "address": web[0].to_string(), "namespace": "shop", "name": "web",
        "interface": "pal-web", "armed": false, "reason": "it is a port",
        "slot": 3, "identity": 7, "egressSet": 1, "ingressSet": 2,
    });
    assert_eq!(of(&web[0]), &expected);
    let unknown = of(&db[0]);
    assert_eq!(
        (&unknown["name"], &unknown["armed"]),
        (&json!("db"), &json!(false))
    );
    assert!(unknown["reason"].is_string() && unknown["slot"].is_null());

    let (_, list) = get(&site, "/v1/bpf/flows").await;
    let expected = json!({
        "protocol": "UDP",
        "source": {"address": web[0].to_string(), "namespace": "shop", "name": "web"},
        "sourcePort": 40_000,
        "destination": {"address": db[0].to_string(), "namespace": "shop", "name": "db"},
        "destinationPort": 53,
        "delivery": "FastPath", "state": "Answered", "judgedAgain": false,
        "age": 1.2, "remaining": 178.0,
    });
    assert_eq!(list["flows"][0], expected);
    let echo = &list["flows"][1];
    assert_eq!(
        (&echo["icmpType"], &echo["icmpId"]),
        (&json!(8), &json!(77))
    );
    assert_eq!(
        (&echo["sourcePort"], &echo["delivery"]),
        (&Value::Null, &json!("Stack"))
    );
    assert_eq!(echo["destination"], json!({"address": "192.0.2.1"}));
    let counts = ["owned", "viaStack", "evictions", "leftOut"].map(|name| list[name].clone());
    assert_eq!(json!(counts), json!([1, 1, 5, 0]));
    let (_, list) = get(&site, "/v1/bpf/flows?endpoint=shop/db").await;
    assert_eq!(list["flows"].as_array().unwrap().len(), 1);
    let (_, list) = get(&site, "/v1/bpf/flows?limit=1").await;
    assert_eq!(list["leftOut"], json!(1));
}

#[tokio::test]
async fn policy_has_the_names_of_rules_and_a_check_says_what_to_do() {
    let site = Site::new();
    let web = attach(&site, "web").await;
    let rule = VerdictCause::Rule {
        policy: PolicyId {
            object: ObjectId {
                namespace: Some("shop".into()),
                name: "db".into(),
                kind: ObjectKind::new("networking.k8s.io", "NetworkPolicy"),
            },
            part: 0,
        },
        direction: Direction::Ingress,
        origin: RuleOrigin {
            index: 2,
            name: None,
            fingerprint: 1,
            line: None,
        },
    };
    let counter = FastPathCounter {
        accounts: vec![CountAccount::Rule(Arc::new(rule))],
        count: CounterValue {
            packets: 3,
            bytes: 300,
        },
    };
    let pair = FastPathPair {
        from: web[0],
        to: [192, 0, 2, 1].into(),
        ends: [1, 2].map(|class| FastPathEnd {
            set: 4,
            identity: 5,
            class,
        }),
        proven: vec![FastPathProven {
            protocol: Protocol::TCP,
            ports: PortRange {
                first: 80,
                last: 81,
            },
            counters: [0, 9],
        }],
    };
    let difference = |part| FastPathDifference {
        part,
        object: "endpoints: address".to_owned(),
        address: Some(web[0]),
        expected: "slot 1".to_owned(),
        found: "nothing".to_owned(),
    };
    let mut fast_path = FakeFastPath {
        policy: FastPathPolicy {
            pairs: vec![pair.clone(), pair],
            left_out: 0,
            counters: BTreeMap::from([(9, counter)]),
        },
        ..FakeFastPath::default()
    };
    site.dataplane.set_fast_path(Some(fast_path.clone()));
    let (_, list) = get(&site, "/v1/bpf/policy?limit=1").await;
    assert_eq!(list["leftOut"], json!(1));
    let expected = json!([{
        "protocol": "TCP", "first": 80, "last": 81,
        "egress": {"number": 0, "count": {"packets": 0, "bytes": 0}},
        "ingress": {
            "number": 9, "rules": ["networkpolicy/shop/db ingress[2]"],
            "count": {"packets": 3, "bytes": 300},
        },
    }]);
    assert_eq!(list["pairs"][0]["allowed"], expected);
    assert_eq!(
        list["pairs"][0]["ingress"],
        json!({"set": 4, "identity": 5, "class": 2})
    );

    for (parts, words) in [
        (&[][..], None),
        (&[FastPathPart::Map][..], Some("restart the agent")),
        (&[FastPathPart::Program][..], Some("reload the agent")),
        (
            &[FastPathPart::Program, FastPathPart::Link][..],
            Some("reload the agent"),
        ),
        (
            &[FastPathPart::Program, FastPathPart::Map][..],
            Some("restart the agent"),
        ),
    ] {
        fast_path.check = FastPathCheck {
            elements: 40,
            differences: parts.iter().copied().map(difference).collect(),
            ..FastPathCheck::default()
        };
        site.dataplane.set_fast_path(Some(fast_path.clone()));
        let (_, check) = get(&site, "/v1/bpf/check").await;
        assert_eq!(check["elements"], json!(40));
        let differences = check["differences"].as_array().unwrap();
        assert_eq!(differences.len(), parts.len());
        for difference in differences {
            assert_eq!(difference["workload"], "shop/web");
        }
        let next = check["nextStep"].as_str();
        assert_eq!(next.is_some(), words.is_some());
        assert!(
            next.unwrap_or_default()
                .starts_with(words.unwrap_or_default())
        );
    }
}

//! Tests of `explain`: answers as text and as JSON, and errors.

use crate::build::*;
use palisade_analysis::explain;
use palisade_api::{ExplainQuery, Explanation, IpFamily};
use palisade_model::Action::Allow;
use palisade_model::*;
use palisade_oracle::OracleOptions;
use serde_json::{Value, json};

fn query(from: &str, to: &str, port: &str) -> ExplainQuery {
    ExplainQuery {
        from: from.to_owned(),
        to: to.to_owned(),
        port: Some(port.to_owned()),
        ..ExplainQuery::default()
    }
}

fn line(line: u32) -> Option<SourceLine> {
    Some(SourceLine::new("shop/policies.yaml", line))
}

/// A shop: `api` may reach `db` on its port named `sql`; service `web` has two backend pods.
fn shop() -> State {
    let mut allow = from(
        Allow,
        Peer::from_selector(Selector::and([sel("app=api"), sel("is:namespace=shop")])),
    );
    allow.traffic = vec![TrafficMatch::to_port(
        Protocol::TCP,
        PortMatch::one_of([PortSpec::Named("sql".into())]),
    )];
    let cidr = from(Allow, Peer::net(net("198.51.100.0/24"), vec![]));
    let mut db = policy("shop/db", "app=db", vec![cidr, allow]);
    db.line = line(1);
    for (rule, at) in db
        .ingress
        .iter_mut()
        .flat_map(|rules| &mut rules.rules)
        .zip([9, 12])
    {
        rule.origin.line = line(at);
    }
    let mut db_pod = pod("shop/db", "10.0.0.3 fd00::3", "app=db");
    db_pod.ports = vec![port("sql", Protocol::TCP, 5432)];
    let mut web = vec![
        pod("shop/web-1", "10.0.0.4", "app=web,n=1"),
        pod("shop/web-2", "10.0.0.5", "app=web,n=2"),
    ];
    web[0].ports = vec![port("http", Protocol::TCP, 8080)];
    web[1].ports = vec![port("http", Protocol::TCP, 8081)];
    let service = |name: &str, selector: &str| {
        Object::Service(Service {
            namespace: "shop".into(),
            name: name.into(),
            selector: labels(selector),
            addresses: vec![ip("10.96.0.1")],
            ports: vec![ServicePort {
                name: Some("http".into()),
                protocol: Protocol::TCP,
                port: 80,
                target: PortSpec::Named("http".into()),
            }],
            headless: false,
        })
    };
    let mut objects = vec![
        Object::Endpoint(pod("shop/api", "10.0.0.2 fd00::2", "app=api")),
        Object::Endpoint(pod("shop/stranger", "10.0.0.7", "app=stranger")),
        Object::Endpoint(pod("shop/planned", "", "app=api")),
        Object::Endpoint(db_pod),
        Object::Policy(db),
        Object::Policy(policy("shop/web-2", "n=2", vec![on(Allow, tcp(9999))])),
        service("web", "app=web"),
        service("manual", ""),
        service("empty", "app=nobody"),
        service("db", "app=db"),
    ];
    objects.extend(web.into_iter().map(Object::Endpoint));
    state(objects)
}

#[allow(clippy::panic, reason = "the test cannot continue")]
#[track_caller]
fn asked(query: &ExplainQuery) -> Explanation {
    match explain(
        &shop(),
        query,
        &OracleOptions::default(),
        &FailsafePorts::default(),
    ) {
        Ok(explanation) => explanation,
        Err(error) => panic!("{query:?}: {error}"),
    }
}

#[test]
fn a_default_deny_names_the_nearest_rule() {
    let explanation = asked(&query("shop/stranger", "shop/db", "5432/TCP"));
    let text = explanation.to_string();
    println!("{text}");
    let expected = "\
DENY  TCP to port 5432 from port 49152 over IPv4
  from  Pod shop/stranger [10.0.0.7]
  to    Pod shop/db [10.0.0.3]

ALLOW by egress of Pod shop/stranger
  no policy decided; allowed by the default profile
  evaluation trace:
    tier default (order 1000000): skipped, none of its policies applies
      NetworkPolicy shop/db (shop/policies.yaml:1) does not apply: it does not govern egress
      NetworkPolicy shop/web-2 does not apply: it does not govern egress
    profile palisade.allow-all

DENY by ingress of Pod shop/db
  denied by the default of tier default; these policies apply default deny:
    - NetworkPolicy shop/db (shop/policies.yaml:1)
  nearest rule: NetworkPolicy shop/db ingress[1] (allow) at shop/policies.yaml:12
  it does not match because:
    - Pod shop/stranger is not labelled app = \"api\" (app is \"stranger\")
  evaluation trace:
    tier default (order 1000000)
      NetworkPolicy shop/db (shop/policies.yaml:1) applies, order 1000
        ingress[0] (allow) at shop/policies.yaml:9 does not match
          - the source 10.0.0.7 is not in 198.51.100.0/24
        ingress[1] (allow) at shop/policies.yaml:12 does not match
          - Pod shop/stranger is not labelled app = \"api\" (app is \"stranger\")
      NetworkPolicy shop/web-2 does not apply: Pod shop/db is not labelled n = \"2\" (it has no such label)
      end of tier default: deny (no rule matched; the tier's default deny applies)
";
    assert_eq!(text, expected);
}

/// A policy of a server is named by its resource version, its rule by the path; and a node that happens to have the
/// address of the pod that was asked about is not spoken of.
#[test]
fn an_object_of_a_server_is_named_by_its_version_and_a_reason_by_its_end() {
    let mut state = shop();
    let place = |file: &str| Some(SourceLine::new(file, 0));
    for policy in state.policies.values_mut() {
        policy.line = place("networkpolicies.networking.k8s.io, resource version 7");
        for (index, rule) in (policy.ingress.iter_mut())
            .flat_map(|list| &mut list.rules)
            .enumerate()
        {
            rule.origin.line = place(&format!("spec.ingress[{index}]"));
        }
    }
    state.apply(Update::Upsert(Object::Node(Node {
        name: "n1".into(),
        labels: labels(""),
        addresses: vec![ip("10.0.0.7"), ip("10.0.0.9")],
        internal_addresses: Vec::new(),
        pod_networks: Vec::new(),
        audit: false,
    })));
    let of = |question: &ExplainQuery| {
        let options = OracleOptions::default();
        explain(&state, question, &options, &FailsafePorts::default()).map(|it| it.to_string())
    };
    let denied = of(&query("shop/stranger", "shop/db", "5432/TCP")).unwrap_or_default();
    println!("{denied}");
    let nearest = "\
  nearest rule: NetworkPolicy shop/db ingress[1] (allow) at networkpolicies.networking.k8s.io, resource version 7: \
        spec.ingress[1]
  it does not match because:
    - Pod shop/stranger is not labelled app = \"api\" (app is \"stranger\")
";
    assert!(denied.contains(nearest));
    assert!(denied.contains(
        "- NetworkPolicy shop/db (networkpolicies.networking.k8s.io, resource version 7)\n"
    ));
    assert!(!denied.contains("Node n1"));
    // Asked about the node, the reason is the node's.
    let of_node = of(&query("10.0.0.9", "shop/db", "5432/TCP")).unwrap_or_default();
    assert!(of_node.contains("Node n1 is not labelled app"), "{of_node}");
}

#[test]
fn json_is_whole_and_can_be_read_back() {
    let explanation = asked(&query("shop/api", "shop/db", "sql"));
    let value = serde_json::to_value(&explanation).unwrap_or(Value::Null);
    let read: Option<Explanation> = serde_json::from_value(value.clone()).ok();
    assert_eq!(read.as_ref(), Some(&explanation));
    assert_eq!(value["apiVersion"], "palisade.io/v1");
    assert_eq!(value["verdict"], "Allow");
    assert_eq!(
        (&value["port"], &value["family"]),
        (&json!(5432), &json!("IPv4"))
    );
    let db = json!({"kind": "NetworkPolicy", "namespace": "shop", "name": "db", "line": "shop/policies.yaml:1"});
    let rule = json!({
        "type": "Rule", "policy": db, "direction": "Ingress", "index": 1,
        "line": "shop/policies.yaml:12", "action": "Allow",
    });
    assert_eq!(value["ingress"]["decidedBy"], rule);
    assert_eq!(value["ingress"]["verdict"], "Allow");
    assert_eq!(
        value["egress"]["decidedBy"],
        json!({"type": "AllowAllProfile"})
    );
    let steps = value["ingress"]["steps"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let kinds: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["step"].as_str())
        .collect();
    assert_eq!(kinds, ["Tier", "Policy", "Rule", "Rule"]);
    assert_eq!(
        steps[2]["reasons"],
        json!(["the source 10.0.0.2 is not in 198.51.100.0/24"])
    );
    let denied =
        serde_json::to_value(asked(&query("shop/api", "shop/db", "80"))).unwrap_or(Value::Null);
    let default = json!({"type": "TierDefault", "tier": "default", "isolating": [db]});
    assert_eq!(denied["ingress"]["decidedBy"], default);
    assert_eq!(
        denied["ingress"]["nearestMiss"]["unless"],
        json!(["it matches only destination port sql, not 80"])
    );
}

#[test]
fn a_service_stands_for_each_pod_behind_it() {
    let explanation = asked(&query("shop/api", "service:shop/web", "80/TCP"));
    let place = |case: &palisade_api::FlowReport| {
        let name = case.to.endpoint.as_ref().map(|e| e.name.clone());
        (
            name,
            case.port,
            case.to.service.clone(),
            case.verdict.to_string(),
        )
    };
    let service = Some("shop/web:80".to_owned());
    assert_eq!(
        place(&explanation.case),
        (
            Some("web-2".to_owned()),
            Some(8081),
            service.clone(),
            "DENY".to_owned()
        )
    );
    let others: Vec<_> = explanation.others.iter().map(place).collect();
    let web_1 = (
        Some("web-1".to_owned()),
        Some(8080),
        service,
        "ALLOW".to_owned(),
    );
    assert_eq!(others, [web_1]);
}

#[test]
fn families_addresses_and_protocols() {
    let mut ping = query("shop/api", "shop/db", "");
    (ping.port, ping.protocol) = (None, Some("icmpv6".to_owned()));
    let explanation = asked(&ping);
    assert_eq!(
        (explanation.case.family, explanation.case.icmp_type),
        (IpFamily::V6, Some([128, 0]))
    );
    ping.icmp_type = Some("3/4".to_owned());
    assert_eq!(asked(&ping).case.icmp_type, Some([3, 4]));
    let outside = asked(&query("198.51.100.9", "shop/db", "1/UDP"));
    assert_eq!(outside.case.verdict.to_string(), "ALLOW");
    assert_eq!(outside.case.from.endpoint, None);
    let unknown = asked(&query("shop/planned", "shop/stranger", "80"));
    assert_eq!((unknown.case.from.address, unknown.others.len()), (None, 0));
    let notes = asked(&query("shop/api", "10.96.0.1", "80")).notes;
    assert!(notes[0].contains("query service:shop/"), "{notes:?}");
    assert!(asked(&query("shop/api", "shop/api", "80")).notes[0].contains("its own address"));
}

#[test]
fn what_cannot_be_answered_says_why() {
    let protocol = |name: &str| ExplainQuery {
        from: "shop/api".to_owned(),
        to: "shop/db".to_owned(),
        protocol: Some(name.to_owned()),
        ..ExplainQuery::default()
    };
    let cases = [
        (
            query("shop/apy", "shop/db", "80"),
            "there is no pod or workload shop/apy; did you mean shop/api?",
        ),
        (
            query("api", "shop/db", "80"),
            "there is no pod or workload default/api; did you mean shop/api?",
        ),
        (
            query("10.0.0.300", "shop/db", "80"),
            "\"10.0.0.300\" is neither namespace/pod nor host:node nor an address (nor, as a destination, service:namespace/name or name:domain)",
        ),
        (
            query("shop/api", "service:shop/wed", "80"),
            "there is no service shop/wed; did you mean shop/web?",
        ),
        (
            query("service:shop/web", "shop/db", "80"),
            "\"service:shop/web\": a service cannot be the source (--from); use a pod, a workload or an address",
        ),
        (
            query("shop/api", "service:shop/web", "81"),
            "service shop/web has no port 81/TCP; it has 80/TCP",
        ),
        (
            query("shop/api", "service:shop/empty", "80"),
            "port 80 of service shop/empty has no backend: its selector matches no pod",
        ),
        (
            query("shop/api", "service:shop/manual", "80"),
            "port 80 of service shop/manual has no backend: it has no selector; its endpoints are managed manually",
        ),
        (
            query("shop/api", "service:shop/db", "80"),
            "port 80 of service shop/db has no backend: no selected pod has a port with the name in targetPort",
        ),
        (
            query("shop/api", "shop/db", "ssh"),
            "shop/db has no TCP port named \"ssh\"",
        ),
        (
            query("shop/api", "shop/db", "70000"),
            "port \"70000\" is neither a number from 0 to 65535 nor the name of a port",
        ),
        (
            query("shop/api", "shop/db", "80/ICMP"),
            "port \"80\": ICMP has no ports that policy can test",
        ),
        (
            query("shop/stranger", "fd00::3", "80"),
            "no packet can go from shop/stranger to fd00::3: they have no address family in common",
        ),
        (protocol("TCP"), "TCP needs a port: write it as PORT/TCP"),
        (
            protocol("none"),
            "protocol \"none\" is neither TCP, UDP, SCTP, ICMP, ICMPv6 nor a number from 0 to 255",
        ),
        (
            ExplainQuery {
                icmp_type: Some("x".to_owned()),
                ..protocol("ICMP")
            },
            "ICMP type \"x\": write it as TYPE or TYPE/CODE, each from 0 to 255",
        ),
        (
            ExplainQuery {
                icmp_type: Some("8".to_owned()),
                ..protocol("47")
            },
            "an ICMP type was given, but 47 is not ICMP",
        ),
        (
            ExplainQuery::default(),
            "no traffic given: specify a port (80/TCP) or a protocol (ICMP)",
        ),
    ];
    for (query, expected) in cases {
        match explain(
            &shop(),
            &query,
            &OracleOptions::default(),
            &FailsafePorts::default(),
        ) {
            Ok(explanation) => panic!("{query:?} answered: {explanation}"),
            Err(error) => assert_eq!(error.to_string(), expected, "{query:?}"),
        }
    }
}

#[test]
fn reasons_in_words() {
    let prod = Selector::and([
        sel("ns:env=prod"),
        sel("is:namespace=shop"),
        sel("is:kind=workload"),
        Selector::negate(sel("app=stranger")),
    ]);
    let udp = TrafficMatch {
        source: PortMatch::one_of([PortSpec::Range(PortRange::single(53))]),
        ..TrafficMatch::protocol(Protocol::UDP)
    };
    let mut rule = from(Allow, Peer::from_selector(prod));
    rule.peers.push(Peer {
        not_selector: Some(sel("app")),
        ..Peer::net(net("10.0.0.0/8"), vec![net("10.0.0.0/24")])
    });
    rule.traffic = vec![
        udp,
        TrafficMatch {
            icmp: Some(IcmpMatch {
                kind: 8,
                code: None,
            }),
            ..TrafficMatch::any()
        },
    ];
    let mut state = shop();
    state.apply(Update::Upsert(Object::Policy(policy(
        "shop/web-1",
        "n=1",
        vec![rule],
    ))));
    let reasons = |query: &ExplainQuery| {
        let explanation = explain(
            &state,
            query,
            &OracleOptions::default(),
            &FailsafePorts::default(),
        )
        .ok();
        let steps = explanation.map_or_else(Vec::new, |e| e.case.ingress.steps);
        steps.into_iter().find_map(|step| match step {
            palisade_api::StepReport::Rule { reasons, .. } => Some(reasons),
            _ => None,
        })
    };
    let told = |reasons: &[&str]| Some(reasons.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>());
    assert_eq!(
        reasons(&query("shop/stranger", "shop/web-1", "80")),
        told(&[
            "peers[0]: Pod shop/stranger is not in a namespace labelled env = \"prod\" (it has no such label) and is labelled app = \"stranger\" (app is \"stranger\")",
            "peers[1]: Pod shop/stranger is labelled app, which the rule excludes, and the source is in 10.0.0.0/24, which the rule excludes",
            "ports[0]: it matches only UDP, not TCP, and it matches only source port 53, not 49152",
            "ports[1]: it matches only ICMP type 8",
        ])
    );
    let ping = ExplainQuery {
        port: None,
        protocol: Some("ICMP".to_owned()),
        icmp_type: Some("0".to_owned()),
        ..query("192.0.2.1", "shop/web-1", "")
    };
    assert_eq!(
        reasons(&ping),
        told(&[
            "peers[0]: the source is not a pod, workload, node or network set; the rule matches only one that is in a namespace labelled env = \"prod\" and a pod or workload and in namespace \"shop\" and not labelled app = \"stranger\"",
            "peers[1]: the source 192.0.2.1 is not in 10.0.0.0/8",
            "ports[0]: it matches only UDP, not ICMP",
            "ports[1]: it matches only ICMP type 8",
        ])
    );
}

/// A pod that has finished is one, and holds no address any more.
#[test]
fn a_finished_pod_is_named_as_what_it_is() {
    let mut state = shop();
    let mut done = pod("shop/done", "", "app=api");
    done.kind = EndpointKind::Pod(PodState {
        completed: true,
        host_network: false,
    });
    state.apply(Update::Upsert(Object::Endpoint(done)));
    let options = OracleOptions::default();
    let query = query("shop/done", "shop/db", "5432/TCP");
    let answer = explain(&state, &query, &options, &FailsafePorts::default());
    assert_eq!(
        answer.map_err(|error| error.to_string()).err().as_deref(),
        Some(
            "shop/done has finished (Succeeded or Failed): it has no address any more, and no policy judges it"
        )
    );
}

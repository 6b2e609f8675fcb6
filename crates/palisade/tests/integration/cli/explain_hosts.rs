//! `palisade explain` where hosts are ends of a flow, or forward it: interfaces, stages, failsafe ports.

use super::World;
use serde_json::{Value, json};

const NODES: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: "2001:db8::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.0.0.3, podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {nodeName: node-2, containers: [{name: c, image: i}]}
status: {podIP: 10.0.1.3, podIPs: [{ip: 10.0.1.3}]}
"#;

const HOSTS: &str = r#"
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: node-1, labels: {role: node}}
spec: {node: node-1, interfaceName: "*"}
---
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: node-1-eth0, labels: {role: node, at: edge}}
spec: {node: node-1, interfaceName: eth0}
---
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: alone, labels: {role: node}}
spec: {node: node-2, interfaceName: eth0}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: node}
spec:
  selector: role == 'node'
  types: [Ingress, Egress]
  ingress: [{action: Allow, protocol: TCP, destination: {ports: [10250]}, source: {nets: [192.0.2.0/24]}}]
  egress: [{action: Allow}]
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: edge}
spec:
  selector: at == 'edge'
  applyOnForward: true
  order: 5
  types: [Ingress]
  ingress: [{action: Deny, protocol: TCP, destination: {ports: [5432]}}, {action: Pass}]
"#;

fn world() -> World {
    World::of(&[("nodes.yaml", NODES), ("hosts.yaml", HOSTS)])
}

/// The verdict, and of each judgement of a host the interface, the stage, the direction, the verdict and what
/// decided.
fn judged(case: &Value) -> (Value, Vec<[Value; 5]>) {
    let hosts = case["hosts"].as_array().cloned().unwrap_or_default();
    let of = |at: &Value| {
        [
            at["interface"].clone(),
            at["stage"].clone(),
            at["direction"].clone(),
            at["verdict"].clone(),
            at["decidedBy"]["type"].clone(),
        ]
    };
    (case["verdict"].clone(), hosts.iter().map(of).collect())
}

#[test]
fn a_host_is_judged_at_each_of_its_interfaces() {
    let world = world();
    let told = world.json(
        "explain",
        "--from 198.51.100.9 --to host:node-1 --port 8080",
    );
    assert_eq!(told["to"]["node"], "node-1");
    let at = |name: &str| {
        [
            json!(name),
            json!("Normal"),
            json!("Ingress"),
            json!("Deny"),
            json!("TierDefault"),
        ]
    };
    assert_eq!(judged(&told), (json!("Deny"), vec![at("*")]));
    let failsafe = "--from 198.51.100.9 --to host:node-1 --port 22";
    let told = world.json("explain", failsafe);
    assert_eq!(told["verdict"], "Allow");
    assert_eq!(told["hosts"][0]["decidedBy"]["type"], "Failsafe");
    // An address of the Node is the host as well; a named interface is the only one.
    let told = world.json(
        "explain",
        "--from 192.0.2.7 --to 192.0.2.1 --port 10250 --input-interface eth7",
    );
    let at = [
        json!("eth7"),
        json!("Normal"),
        json!("Ingress"),
        json!("Allow"),
        json!("Rule"),
    ];
    assert_eq!(judged(&told), (json!("Allow"), vec![at]));
    assert_eq!(told["others"], Value::Null);
    // Between hosts: one after the other. The second has neither Node nor address.
    let told = world.json(
        "explain",
        "--from host:node-1 --to host:node-2 --port 9 --output-interface eth0",
    );
    let (verdict, hosts) = judged(&told);
    assert_eq!(verdict, "Deny");
    assert_eq!(
        hosts[0][2..],
        [json!("Egress"), json!("Allow"), json!("Rule")]
    );
    assert_eq!(
        hosts[1][2..],
        [json!("Ingress"), json!("Deny"), json!("TierDefault")]
    );
    let text = world.run("explain", failsafe).out;
    for part in [
        "  to    host:node-1 [192.0.2.1]\n",
        "ALLOW by host:node-1 at any interface that no host endpoint names, to the host, ingress of HostEndpoint node-1\n",
        "a failsafe port of the host",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_a_host_forwards_is_judged_where_policies_apply_on_forward() {
    let world = world();
    let denied = [
        json!("eth0"),
        json!("Forward"),
        json!("Ingress"),
        json!("Deny"),
        json!("Rule"),
    ];
    for from in ["198.51.100.9", "shop/web"] {
        let told = world.json(
            "explain",
            &format!("--from {from} --to shop/db --port 5432"),
        );
        assert_eq!(
            judged(&told),
            (json!("Deny"), vec![denied.clone()]),
            "{from}"
        );
        // By the other interfaces it gets through.
        assert_eq!(
            judged(&told["others"][0]),
            (json!("Allow"), vec![]),
            "{from}"
        );
    }
    let told = world.json(
        "explain",
        "--from 198.51.100.9 --to shop/db --port 80 --input-interface eth0",
    );
    let passed = [
        json!("eth0"),
        json!("Forward"),
        json!("Ingress"),
        json!("Allow"),
        json!("ForwardEnd"),
    ];
    assert_eq!(judged(&told), (json!("Allow"), vec![passed]));
    // Between networks beyond a host, in the order of the packet.
    let foreign = "--from 198.51.100.9 --to 203.0.113.9 --port 5432";
    let told = world.json("explain", foreign);
    assert_eq!(judged(&told), (json!("Allow"), vec![]));
    let through = format!("{foreign} --node node-1 --input-interface eth0 --output-interface eth1");
    let told = world.json("explain", &through);
    let leaves = [
        json!("eth1"),
        json!("Forward"),
        json!("Egress"),
        json!("Allow"),
        json!("NoForwardPolicy"),
    ];
    assert_eq!(judged(&told), (json!("Deny"), vec![denied, leaves]));
    // A workload of the host reaches it by no interface of the host.
    let told = world.json("explain", "--from shop/db --to host:node-1 --port 9");
    assert_eq!(judged(&told), (json!("Allow"), vec![]));
}

#[test]
fn an_interface_that_is_not_crossed_is_refused() {
    let world = world();
    let cases = [
        (
            "--from 192.0.2.9 --to host:nod-1 --port 9",
            "did you mean node-1?",
        ),
        ("--from host: --to shop/db --port 9", "there is no host"),
        (
            "--from 192.0.2.9 --to shop/db --port 9 --output-interface eth0",
            "--output-interface",
        ),
        (
            "--from shop/db --to 192.0.2.9 --port 9 --input-interface eth0",
            "--input-interface",
        ),
        (
            "--from 198.51.100.9 --to 203.0.113.9 --port 9 --input-interface eth0",
            "name the host of the interface with --node: node-1, node-2",
        ),
    ];
    for (query, part) in cases {
        let ran = world.run("explain", query);
        assert_eq!(ran.code, 2, "{query}: {ran:?}");
        assert!(ran.err.contains(part), "{query}: {ran:?}");
    }
}

#[test]
fn an_endpoint_without_the_name_of_its_interface_is_judged_at_the_one_with_its_address() {
    let by_address = HOSTS.replace(
        "spec: {node: node-2, interfaceName: eth0}",
        "spec: {node: node-2, expectedIPs: [192.0.2.2]}",
    );
    let world = World::of(&[("nodes.yaml", NODES), ("hosts.yaml", &by_address)]);
    for to in ["host:node-2", "192.0.2.2"] {
        let query = format!("--from 198.51.100.9 --to {to} --port 8080");
        let told = world.json("explain", &query);
        assert_eq!(told["to"]["node"], "node-2");
        assert_eq!(told["to"]["address"], "192.0.2.2");
        let (verdict, hosts) = judged(&told);
        assert_eq!(verdict, "Deny");
        assert_eq!(hosts[0][0], "[192.0.2.2]");
        let text = world.run("explain", &query).out;
        let part = "DENY by host:node-2 at the interface with 192.0.2.2, to the host, ingress";
        assert!(text.contains(part), "{text}");
    }
    // Another name may be that of this interface: it is said, and the interface can be named by the address.
    let named = "--from 198.51.100.9 --to host:node-2 --port 8080 --input-interface";
    let told = world.json("explain", &format!("{named} eth0"));
    assert_eq!(judged(&told), (json!("Allow"), vec![]));
    let note = told["notes"][0].as_str().unwrap();
    assert!(note.ends_with("name it as [192.0.2.2]"), "{note}");
    let told = world.json("explain", &format!("{named} [192.0.2.2]"));
    assert_eq!(told["verdict"], "Deny");
}

const OF_NODES: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {role: edge}}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2, labels: {role: inner}}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.0.0.3, podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: edge}
spec:
  nodeSelector: {matchLabels: {role: edge}}
  ingress: [{fromEntities: [remote-node], toPorts: [{ports: [{port: "10250", protocol: TCP}]}]}]
"#;

#[test]
fn policies_of_nodes_judge_the_nodes_that_they_select() {
    let world = World::of(&[("nodes.yaml", OF_NODES)]);
    let asked = |from: &str, to: &str, port: &str| {
        world.json("explain", &format!("--from {from} --to {to} --port {port}"))
    };
    let at = |verdict: &str, decided: &str| {
        let words = [json!("Ingress"), json!(verdict), json!(decided)];
        [json!("*"), json!("Normal")]
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>()
    };
    let only = |told: &Value| {
        let (verdict, hosts) = judged(told);
        let of_ingress = hosts.iter().filter(|at| at[2] == "Ingress");
        (
            verdict,
            of_ingress.map(|at| at.to_vec()).collect::<Vec<_>>(),
        )
    };
    let told = asked("203.0.113.7", "host:node-1", "10250");
    assert_eq!(
        only(&told),
        (json!("Deny"), vec![at("Deny", "TierDefault")])
    );
    let told = asked("host:node-2", "host:node-1", "10250");
    assert_eq!(only(&told), (json!("Allow"), vec![at("Allow", "Rule")]));
    let told = asked("host:node-2", "host:node-1", "22");
    assert_eq!(only(&told), (json!("Allow"), vec![at("Allow", "Failsafe")]));
    // The other node is open, and so is what this one forwards.
    let told = asked("203.0.113.7", "host:node-2", "10250");
    let open = vec![at("Allow", "AllowAllProfile")];
    assert_eq!(only(&told), (json!("Allow"), open));
    let told = asked("203.0.113.7", "shop/db", "80");
    assert_eq!(judged(&told), (json!("Allow"), Vec::new()));
}

const EARLY: &str = r#"
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: node-ports}
spec:
  selector: at == 'edge'
  applyOnForward: true
  preDNAT: true
  order: 1
  types: [Ingress]
  ingress:
  - {action: Deny, protocol: TCP, destination: {ports: [30080]}}
  - {action: Allow, protocol: TCP, destination: {ports: [30081]}}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: dns}
spec:
  selector: at == 'edge'
  applyOnForward: true
  doNotTrack: true
  order: 1
  types: [Ingress, Egress]
  ingress: [{action: Allow, protocol: UDP, destination: {ports: [5300]}}]
  egress: [{action: Allow, protocol: UDP, source: {ports: [5300]}}]
"#;

#[test]
fn passes_before_connection_tracking_and_before_destination_nat_are_told_in_their_order() {
    let files = [
        ("nodes.yaml", NODES),
        ("hosts.yaml", HOSTS),
        ("early.yaml", EARLY),
    ];
    let world = World::of(&files);
    let of = |more: &str| {
        let told = world.json("explain", &format!("--from 198.51.100.9 {more}"));
        let (verdict, hosts) = judged(&told);
        let hosts = hosts.iter().map(|at| {
            let [_, stage, _, verdict, decider] = at;
            [stage, verdict, decider]
                .map(|text| text.as_str().unwrap().to_owned())
                .join(" ")
        });
        (
            verdict.as_str().unwrap().to_owned(),
            hosts.collect::<Vec<_>>(),
        )
    };
    let host = "--to host:node-1 --port 8080 --input-interface eth0";
    let translated = |port| of(&format!("{host} --original-destination 192.0.2.1:{port}"));
    let undecided = ["Untracked Allow StageEnd", "PreDnat Allow StageEnd"];
    let (verdict, hosts) = of(host);
    assert_eq!(
        (verdict.as_str(), &hosts[..2]),
        ("Deny", &undecided.map(String::from)[..]),
        "{hosts:?}"
    );
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    assert_eq!(
        translated(30080),
        (
            "Deny".into(),
            vec![undecided[0].into(), "PreDnat Deny Rule".into()]
        )
    );
    assert_eq!(
        translated(30081),
        (
            "Allow".into(),
            vec![undecided[0].into(), "PreDnat Allow Rule".into()]
        )
    );
    assert_eq!(
        of("--to host:node-1 --port 5300/UDP --input-interface eth0"),
        ("Allow".into(), vec!["Untracked Allow Rule".into()])
    );
    let text = world
        .run(
            "explain",
            &format!("--from 198.51.100.9 {host} --original-destination 192.0.2.1:30080"),
        )
        .out;
    for part in [
        "  sent  to 192.0.2.1 port 30080, before destination NAT\n",
        "before destination NAT, ingress of HostEndpoint",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (sent_to, message) in [
        ("[2001:db8::1]:80", "no addresses of this family"),
        ("shop", "write it as ADDRESS:PORT"),
        ("192.0.2.1:http", "write it as ADDRESS:PORT"),
    ] {
        let run = world.run(
            "explain",
            &format!("--from 198.51.100.9 {host} --original-destination {sent_to}"),
        );
        assert!(run.err.contains(message), "{message}: {}", run.err);
    }
}

#[test]
fn what_hosts_forward_is_listed_where_a_policy_judges_it() {
    let world = world();
    let row = |told: &Value| {
        let pick = |key: &str| told[key].clone();
        [
            pick("node"),
            pick("interface"),
            pick("direction"),
            pick("sources"),
            pick("destinations"),
        ]
    };
    let expected = |net: &str| {
        [
            json!("node-1"),
            json!("eth0"),
            json!("Ingress"),
            json!([net]),
            json!([net]),
        ]
    };
    let told = world.json("connections", "");
    let rows: Vec<_> = told["forwarded"]
        .as_array()
        .unwrap()
        .iter()
        .map(row)
        .collect();
    assert_eq!(rows, [expected("0.0.0.0/0"), expected("::/0")]);
    for row in told["forwarded"].as_array().unwrap() {
        let tcp = &row["connections"][0];
        assert!(tcp.to_string().contains("5433"), "all but 5432: {row:#}");
    }
    let text = world.run("connections", "").out;
    assert!(text.contains("host:node-1 (eth0, arriving)"), "{text}");

    // Of a change: the port is opened from some sources only.
    let changed = HOSTS.replace(
        "destination: {ports: [5432]}}, {action: Pass}",
        "source: {nets: [198.51.100.0/24]}, destination: {ports: [5432]}}, {action: Pass}",
    );
    let new = World::of(&[("nodes.yaml", NODES), ("hosts.yaml", &changed)]);
    let told = world.json("diff", &format!("-f {}", new.path()));
    assert_eq!(told["forwardedClosed"], json!([]));
    let opened = told["forwardedOpened"].as_array().unwrap();
    assert_eq!(opened.len(), 2, "{opened:#?}");
    let sources = opened.iter().map(|row| row["sources"].to_string());
    let sources: Vec<String> = sources.collect();
    assert!(
        sources.iter().any(|of| of.contains("198.51.100.0/24"))
            && sources.iter().any(|of| of.contains("::/0")),
        "all but the network: {sources:?}"
    );
}

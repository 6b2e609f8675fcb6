//! `palisade explain` on manifests: names, services, addresses, protocols, and the output format.

use super::{PODS, World, policy};
use serde_json::{Value, json};

const SERVICE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: front, namespace: shop}
spec: {selector: {app: web}, ports: [{name: web, port: 80, targetPort: http}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: batch, namespace: default}
spec:
  selector: {matchLabels: {app: batch}}
  template:
    metadata: {labels: {app: batch}}
    spec: {containers: [{name: c, image: i}]}
"#;

fn world() -> World {
    let spec = "ingress: [{from: [{podSelector: {}}], ports: [{port: http}]}, \
                {from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}], \
                ports: [{port: 80, endPort: 90}, {port: 53, protocol: UDP}]}, \
                {from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]";
    World::of(&[
        ("pods.yaml", PODS),
        ("p.yaml", &policy(spec)),
        ("s.yaml", SERVICE),
    ])
}

#[test]
fn the_shape_of_a_denial() {
    let world = world();
    let told = world.json(
        "explain",
        "--from other/guest --to shop/web --port 8080/TCP",
    );
    assert_eq!(told["verdict"], "Deny");
    assert_eq!(told["egress"]["verdict"], "Allow");
    let ingress = &told["ingress"];
    assert_eq!(ingress["verdict"], "Deny");
    assert_eq!(ingress["decidedBy"]["type"], "TierDefault");
    let isolating = &ingress["decidedBy"]["isolating"][0];
    assert_eq!(
        (
            &isolating["kind"],
            &isolating["namespace"],
            &isolating["name"]
        ),
        (&json!("NetworkPolicy"), &json!("shop"), &json!("p"))
    );
    assert_eq!(isolating["line"], "p.yaml:1");
    assert_eq!(ingress["nearestMiss"]["rule"]["index"], 0);
    for side in ["egress", "ingress"] {
        let steps = told[side]["steps"].as_array().unwrap();
        assert!(!steps.is_empty());
        assert!(steps.iter().all(|step| step["step"].is_string()));
    }
    let text = world
        .run(
            "explain",
            "--from other/guest --to shop/web --port 8080/TCP",
        )
        .out;
    for part in [
        "DENY  TCP to port 8080 from port 49152 over IPv4\n",
        "tier default; these policies apply default deny:\n    - NetworkPolicy shop/p (p.yaml:1)\n",
        "nearest rule: NetworkPolicy shop/p ingress[0] (allow) at p.yaml:4\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn tiers_are_shown_with_their_order() {
    let calico = |kind: &str, name: &str, spec: &str| {
        format!(
            "{{apiVersion: projectcalico.org/v3, kind: {kind}, metadata: {{name: {name}}}, spec: {spec}}}\n---\n"
        )
    };
    let pass = "{tier: platform, order: 2.5, selector: all(), ingress: [{action: Pass}]}";
    let manifests = [
        PODS.to_owned(),
        "---\n".to_owned(),
        calico("Tier", "platform", "{order: 200}"),
        calico("Tier", "unordered", "{}"),
        calico("GlobalNetworkPolicy", "platform.pass", pass),
        calico(
            "GlobalNetworkPolicy",
            "unordered.log",
            "{tier: unordered, selector: all(), ingress: [{action: Log}, {action: Pass}]}",
        ),
        calico(
            "GlobalNetworkPolicy",
            "gone.allow",
            "{tier: gone, selector: all(), ingress: [{action: Allow}]}",
        ),
    ];
    let world = World::of(&[("all.yaml", &manifests.concat())]);
    let query = "--from other/guest --to shop/web --port 8080/TCP";
    let report = world.json("explain", query);
    let steps = report["ingress"]["steps"].as_array().unwrap();
    let of = |step: &Value| json!([step["tier"], step["order"], step["missing"]]);
    let tiers = steps.iter().filter(|step| step["step"] == "Tier").map(of);
    assert_eq!(
        tiers.collect::<Vec<_>>(),
        [
            json!(["platform", 200.0, false]),
            json!(["unordered", null, false]),
            json!(["gone", null, true]),
        ]
    );
    let policy = steps.iter().find(|step| step["step"] == "Policy");
    assert_eq!(policy.unwrap()["order"], 2.5);
    let text = world.run("explain", query).out;
    for part in [
        "    tier platform (order 200)\n      GlobalNetworkPolicy platform.pass (all.yaml:",
        ") applies, order 2.5\n",
        "    tier unordered (no order; evaluated after tiers that have one)\n",
        "    tier gone (no such tier exists; evaluated last)\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_shape_of_what_is_allowed() {
    let told = world().json("explain", "--from 192.0.2.5 --to shop/web --port 53/UDP");
    assert_eq!(told["verdict"], "Allow");
    let decided = &told["ingress"]["decidedBy"];
    assert_eq!(decided["type"], "Rule");
    assert!(decided.to_string().contains("p.yaml:4"), "{decided}");
}

#[test]
fn ends_ports_and_protocols() {
    let cases = [
        ("--from 192.0.2.5 --to shop/web --port 85", "Allow"),
        ("--from 192.0.2.5 --to shop/web --port 91", "Deny"),
        ("--from 192.0.2.5 --to shop/web --port 85/udp", "Deny"),
        ("--from 192.0.2.5 --to 10.1.0.1 --port 53/UDP", "Allow"),
        ("--from 192.0.2.129 --to 10.1.0.1 --port 53/UDP", "Deny"),
        ("--from 192.0.2.5 --to shop/web --port http", "Deny"),
        (
            "--from 192.0.2.5 --to shop/web --port 80 --source-port 1",
            "Allow",
        ),
        ("--from shop/web --to service:shop/front --port 80", "Allow"),
        (
            "--from other/guest --to service:shop/front --port 80",
            "Deny",
        ),
        (
            "--from other/guest --to service:shop/front --port web",
            "Deny",
        ),
        // A rule without ports matches every protocol.
        ("--from 198.51.100.1 --to shop/web --protocol ICMP", "Allow"),
        (
            "--from 198.51.100.1 --to shop/web --protocol ICMP --icmp-type 3/4",
            "Allow",
        ),
        ("--from 198.51.100.1 --to shop/web --protocol 47", "Allow"),
        ("--from 198.51.100.1 --to shop/web --port 1/132", "Allow"),
        (
            "--from 192.0.2.5 --to shop/web --protocol icmp --icmp-type 8",
            "Deny",
        ),
        (
            "--from other/guest --to fd00:1::1 --protocol ICMPv6",
            "Deny",
        ),
        ("--from shop/web --to other/guest --protocol 89", "Allow"),
        // A pod template without known addresses; the default namespace is default.
        ("--from batch --to other/guest --port 1", "Allow"),
        ("--from default/batch --to shop/web --port 8080", "Deny"),
    ];
    let world = world();
    for (line, verdict) in cases {
        let ran = world.run("explain", &format!("{line} -o json"));
        assert_eq!((ran.code, &*ran.err), (0, ""), "{line}");
        assert_eq!(ran.json()["verdict"], verdict, "{line}");
        let ran = world.run("explain", &format!("{line} --exit-code"));
        assert_eq!(ran.code, i32::from(verdict == "Deny"), "{line}");
        let word = verdict.to_uppercase();
        assert!(ran.out.starts_with(&word), "{line}: {}", ran.out);
    }
}

#[test]
fn what_was_asked_is_in_the_answer() {
    let world = world();
    let told = world.json(
        "explain",
        "--from shop/web --to other/guest --protocol ICMP --icmp-type 3/4",
    );
    let field = |name: &str| told.get(name).cloned().unwrap_or(Value::Null);
    assert_eq!(
        (field("protocol"), field("icmpType"), field("family")),
        (json!("ICMP"), json!([3, 4]), json!("IPv4"))
    );
    let told = world.json(
        "explain",
        "--from shop/web --to service:shop/front --port 80 --source-port 7",
    );
    assert_eq!(
        (&told["port"], &told["sourcePort"]),
        (&json!(8080), &json!(7))
    );
}

#[test]
fn what_cannot_be_answered_is_exit_code_2_with_a_hint() {
    let cases = [
        (
            "--from shop/wep --to other/guest --port 1",
            "there is no pod or workload shop/wep; did you mean shop/web?",
        ),
        (
            "--from web --to other/guest --port 1",
            "there is no pod or workload default/web; did you mean shop/web?",
        ),
        (
            "--from shop/web --to other/gest --port 1",
            "there is no pod or workload other/gest; did you mean other/guest?",
        ),
        (
            "--from shop/web --to service:shop/frond --port 80",
            "there is no service shop/frond; did you mean shop/front?",
        ),
        (
            "--from shop/web --to service:shop/front --port 81",
            "has no port 81/TCP; it has 80/TCP",
        ),
        (
            "--from service:shop/front --to shop/web --port 1",
            "a service cannot be the source",
        ),
        (
            "--from 10.0.0.300 --to shop/web --port 1",
            "is neither namespace/pod nor host:node nor an address",
        ),
        (
            "--from 192.0.2.1 --to fd00:1::1 --port 1",
            "no address family in common",
        ),
        (
            "--from shop/web --to other/guest --port 70000",
            "port \"70000\" is neither",
        ),
        (
            "--from shop/web --to other/guest --port http",
            "has no TCP port named \"http\"",
        ),
        (
            "--from shop/web --to other/guest --port 80/QUIC",
            "protocol \"QUIC\" is neither",
        ),
        (
            "--from shop/web --to other/guest --protocol 256",
            "protocol \"256\" is neither",
        ),
        (
            "--from shop/web --to other/guest --protocol TCP",
            "TCP needs a port",
        ),
        (
            "--from shop/web --to other/guest --protocol ICMP --icmp-type 300",
            "each from 0 to 255",
        ),
        (
            "--from shop/web --to other/guest --port 80 --source-port 65536",
            "65536 is not in 0..=65535",
        ),
    ];
    let world = world();
    for (line, expected) in cases {
        let ran = world.run("explain", line);
        assert_eq!((ran.code, &*ran.out), (2, ""), "{line}: {ran:?}");
        assert!(ran.err.contains(expected), "{line}: {}", ran.err);
    }
}

/// There are no colours without a terminal, whatever NO_COLOR is.
#[test]
fn answers_carry_no_escape_codes() {
    let ran = world().run("explain", "--from shop/web --to other/guest --port 1");
    assert!(!ran.out.contains('\u{1b}'));
    let wrong = world().run("explain", "--from shop/web");
    assert!(wrong.code == 2 && !wrong.err.contains('\u{1b}'));
}

/// Two nodes, and an isolated pod on the first.
fn own_node_world() -> World {
    let node = |name: &str, v4: &str, v6: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{addresses: [\
             {{type: InternalIP, address: {v4}}}, {{type: InternalIP, address: \"{v6}\"}}]}}\n---\n"
        )
    };
    let nodes = node("n1", "192.0.2.1", "2001:db8::1") + &node("n2", "192.0.2.2", "2001:db8::2");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: db, namespace: shop}\nspec: {nodeName: n1}\n\
               status: {podIPs: [{ip: 10.0.0.1}, {ip: \"fd00::1\"}]}\n";
    World::of(&[
        ("nodes.yaml", nodes.trim_end_matches("---\n")),
        ("pod.yaml", pod),
        ("p.yaml", &policy("policyTypes: [Ingress]")),
    ])
}

#[test]
fn from_the_own_node() {
    let world = own_node_world();
    for (from, more, expected) in [
        ("host:n1", "", "Allow"),
        ("192.0.2.1", "", "Allow"),
        ("2001:db8::1", "", "Allow"),
        ("host:n1", "--host-to-endpoint allow", "Allow"),
        ("host:n1", "--host-to-endpoint policy", "Deny"),
        ("host:n2", "", "Deny"),
        ("192.0.2.2", "", "Deny"),
        ("192.0.2.3", "", "Deny"),
    ] {
        let arguments = format!("--from {from} --to shop/db --port 80 {more}");
        let answer = world.json("explain", &arguments);
        assert_eq!(answer["verdict"], expected, "{arguments}");
        if expected == "Allow" {
            assert_eq!(answer["ingress"]["decidedBy"]["type"], "HostOrigin");
        }
    }
}

#[test]
fn a_pod_that_is_no_endpoint_is_named_as_what_it_is() {
    let pod = |name: &str, spec: &str, phase: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n\
             status: {{podIP: 192.0.2.1, phase: {phase}}}\n---\n"
        )
    };
    let pods = pod("proxy", "{hostNetwork: true, nodeName: n1}", "Running")
        + &pod("pending", "{hostNetwork: true}", "Pending")
        + &pod("job", "{nodeName: n1}", "Succeeded")
        + &pod("failed", "{nodeName: n1}", "Failed");
    let world = World::of(&[
        ("pods.yaml", pods.trim_end_matches("---\n")),
        ("web.yaml", PODS),
    ]);
    for (name, expected) in [
        (
            "proxy",
            "shop/proxy uses the network of its node: its packets are those of the node",
        ),
        ("proxy", "ask about host:n1"),
        (
            "pending",
            "ask about host:NODE, with the node that it runs on",
        ),
        ("job", "shop/job has finished (Succeeded or Failed)"),
        ("failed", "shop/failed has finished (Succeeded or Failed)"),
        ("nobody", "there is no pod or workload shop/nobody"),
    ] {
        for (command, arguments) in [
            (
                "explain",
                format!("--from shop/{name} --to 192.0.2.9 --port 80"),
            ),
            (
                "explain",
                format!("--from 192.0.2.9 --to shop/{name} --port 80"),
            ),
            ("connections", format!("--from shop/{name}")),
            ("connections", format!("--to shop/{name}")),
        ] {
            let ran = world.run(command, &arguments);
            assert_eq!((ran.code, &*ran.out), (2, ""), "{command} {arguments}");
            assert!(
                ran.err.contains(expected),
                "{command} {arguments}: {}",
                ran.err
            );
        }
    }
}

/// What is denied is answered where the agents' denials do; a headless Service stands for the pods' own ports.
#[test]
fn a_denial_is_answered_where_denials_are() {
    let world = world();
    let asked = |rest: &str| {
        world.json(
            "explain",
            &format!("--from other/guest --to shop/web {rest}"),
        )
    };
    for (rest, expected) in [
        ("--port 8080", None),
        ("--port 8080 --deny-action drop", None),
        ("--port 8080 --deny-action reject", Some("TcpReset")),
        (
            "--port 8080/UDP --deny-action reject",
            Some("AdminProhibited"),
        ),
    ] {
        let told = asked(rest);
        assert_eq!(told["verdict"], "Deny", "{rest}");
        assert_eq!(told["rejectedWith"].as_str(), expected, "{rest}");
    }
    let allowed = world.json(
        "explain",
        "--from shop/web --to other/guest --port 1 --deny-action reject",
    );
    assert_eq!(
        (&allowed["verdict"], allowed.get("rejectedWith")),
        (&json!("Allow"), None)
    );
    let text = world.run(
        "explain",
        "--from other/guest --to shop/web --port 8080 --deny-action reject",
    );
    assert!(
        text.out
            .contains("the sender is answered with a TCP reset\n"),
        "{}",
        text.out
    );
    let headless = SERVICE.replace(
        "spec: {selector: {app: web}",
        "spec: {clusterIP: None, selector: {app: web}",
    );
    let world = World::of(&[("pods.yaml", PODS), ("s.yaml", &headless)]);
    let told = world.json(
        "explain",
        "--from other/guest --to service:shop/front --port 80",
    );
    assert_eq!(told["port"], 80);
}

/// A pod to itself, through a Service: as the agents' parameter says.
#[test]
fn a_pod_to_itself_is_judged_as_the_parameter_says() {
    let world = World::of(&[
        ("pods.yaml", PODS),
        ("p.yaml", &policy("policyTypes: [Ingress]")),
    ]);
    for (rest, verdict) in [
        ("", "Allow"),
        ("--hairpin by-kind", "Allow"),
        ("--hairpin allow", "Allow"),
        ("--hairpin judge", "Deny"),
    ] {
        let told = world.json(
            "explain",
            &format!("--from shop/web --to shop/web --port 80 {rest}"),
        );
        assert_eq!(told["verdict"], verdict, "{rest}");
    }
}

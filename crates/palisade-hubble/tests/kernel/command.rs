//! The forms of output of `hubble observe`, its ranges, and the other commands.

use crate::filters::{Key, key, keys, node_with_lines, observe};
use crate::lines::{LINES, Shown, lines};
use crate::node::{ServingNode, command, now, programs, run};
use palisade_hubble::HubblePeer;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// What follows, until dropped.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ranges_are_as_of_hubble() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, shown, first) = node_with_lines("n1");
    let all: Vec<Key> = shown.iter().map(key).collect();
    let denied: Vec<Key> = shown
        .iter()
        .filter(|f| f.verdict == "DROPPED")
        .map(key)
        .collect();
    let observe = |line: &str| {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        observe(&hubble, &node.server(), first, &arguments)
    };
    assert_eq!(observe(""), all[all.len() - 20..]);
    for last in [1, 2, 3, 7, 150] {
        assert_eq!(observe(&format!("--last {last}")), all[all.len() - last..]);
    }
    assert_eq!(observe("--last 9999"), all);
    assert_eq!(observe("--first 15"), all[..15]);
    assert_eq!(
        observe("--last 5 --verdict DROPPED"),
        denied[denied.len() - 5..]
    );
    assert_eq!(observe("--first 5 --verdict DROPPED"), denied[..5]);
    let time = |line: u64| jiff::Timestamp::from_second((first.as_secs() + line) as i64).unwrap();
    let within = |lines: std::ops::RangeInclusive<usize>| -> Vec<Key> {
        shown
            .iter()
            .filter(|f| lines.contains(&f.line))
            .map(key)
            .collect()
    };
    assert_eq!(
        observe(&format!("--since {}", time(120))),
        within(120..=LINES)
    );
    assert_eq!(observe(&format!("--until {}", time(30))), within(0..=30));
    assert_eq!(
        observe(&format!("--since {} --until {}", time(60), time(70))),
        within(60..=70)
    );
    assert_eq!(observe("--since 1h"), all);
}

#[test]
fn every_form_of_output_is_printed() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, shown, first) = node_with_lines("n1");
    let server = node.server();
    let print = |line: &str| {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        run(&hubble, &server, &arguments)
    };
    let json = print("observe --all -o json");
    assert_eq!(json.matches("\"uuid\":\"").count(), shown.len());
    let compact = print("observe --all -o compact --print-policy-names --ip-translation=false");
    for part in [
        "(ID:",
        "policy-verdict:L3-L4 EGRESS ALLOWED BY out (NetworkPolicy) (TCP Flags: SYN)",
        "policy-verdict:L3-L4 INGRESS ALLOWED BY in (NetworkPolicy)",
        "10.0.0.1:20000",
        "Policy denied by denylist DROPPED",
        "Policy denied DROPPED",
        "Invalid source ip DROPPED",
        "to-endpoint FORWARDED (TCP Flags: ACK, FIN)",
        "policy-verdict:L3-L4 EGRESS AUDITED",
        "EVENTS LOST: PERF_EVENT_RING_BUFFER CPU(0) 15",
    ] {
        assert!(compact.contains(part), "{part}: {compact}");
    }
    let named = print("observe --all -o compact");
    for part in [
        "shop/web-1:20000",
        "www.example.com:443",
        "192.168.0.1:20004 (host)",
        "(remote-node)",
    ] {
        assert!(named.contains(part), "{part}: {named}");
    }
    let dict = print("observe --last 1 -o dict --print-node-name");
    assert!(dict.contains("       NODE: default/n1"), "{dict}");
    let table = print("observe --last 3 -o table");
    assert_eq!(table.lines().count(), 4, "{table}");
    // What was printed is read again, and filtered by the command.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), print("observe --all -o jsonpb")).unwrap();
    let path = file.path().to_str().unwrap();
    let again = run(
        &hubble,
        &server,
        &[
            "observe",
            "--input-file",
            path,
            "-o",
            "jsonpb",
            "--verdict",
            "AUDIT",
        ],
    );
    let audited: Vec<Key> = shown
        .iter()
        .filter(|f| f.verdict == "AUDIT")
        .map(key)
        .collect();
    assert_eq!(keys(&again, first), audited);
    let masked =
        print("observe --last 1 -o jsonpb --experimental-field-mask time,source.namespace");
    let flow: serde_json::Value = serde_json::from_str(masked.lines().next().unwrap()).unwrap();
    let fields: Vec<&String> = flow["flow"].as_object().unwrap().keys().collect();
    assert!(
        fields
            .iter()
            .all(|field| ["time", "source"].contains(&field.as_str())),
        "{masked}"
    );
}

#[test]
fn a_flow_has_what_the_agent_knows() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, _, _) = node_with_lines("n1");
    let printed = run(
        &hubble,
        &node.server(),
        &["observe", "--first", "1", "-o", "jsonpb"],
    );
    let value: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let flow = &value["flow"];
    assert_eq!(value["node_name"], "default/n1");
    assert_eq!(flow["policy_log"], serde_json::json!(["out.yaml:7"]));
    let policy = &flow["egress_allowed_by"][0];
    assert_eq!(
        [
            &policy["name"],
            &policy["namespace"],
            &policy["kind"],
            &policy["revision"]
        ],
        ["out", "shop", "NetworkPolicy", "3"]
    );
    let detail = &flow["extensions"];
    assert_eq!(
        detail["@type"],
        "type.googleapis.com/google.protobuf.Struct"
    );
    assert_eq!(detail["value"]["egress"]["rule"]["line"], "out.yaml:7");
    assert_eq!(detail["value"]["state"], "Began");
    assert_eq!(
        flow["destination"]["workloads"],
        serde_json::json!([{"name": "db", "kind": "StatefulSet"}])
    );
    assert_eq!(
        flow["destination_service"],
        serde_json::json!({"name": "postgres", "namespace": "shop"})
    );
    assert_eq!(flow["is_reply"], false);
    let uuid = flow["uuid"].as_str().unwrap();
    let again = run(
        &hubble,
        &node.server(),
        &["observe", "--uuid", uuid, "-o", "jsonpb"],
    );
    let again: Vec<serde_json::Value> = again
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line.get("flow").is_some())
        .collect();
    assert_eq!(again, [value]);
}

#[test]
fn other_commands_are_answered() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, _, _) = node_with_lines("n1");
    let server = node.server();
    let print = |line: &str| {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        run(&hubble, &server, &arguments)
    };
    let status = print("status");
    for part in [
        "Healthcheck (via unix://",
        "): Ok",
        "Current/Max Flows: 200/1,000 (20.00%)",
        "Connected Nodes: 1/1",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let nodes = print("list nodes -o json");
    let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
    assert_eq!(nodes[0]["name"], "n1");
    assert_eq!(nodes[0]["version"], "palisade-test");
    assert!(print("list nodes").contains("Connected"));
    let namespaces = print("list namespaces");
    let namespaces: Vec<&str> = namespaces.split_whitespace().collect();
    assert_eq!(namespaces, ["NAMESPACE", "default", "shop", "six"]);
    let methods = print("reflect");
    for method in ["GetFlows", "ServerStatus", "Notify"] {
        assert!(methods.contains(method), "{method}: {methods}");
    }
    let events = |options: &str| -> Vec<String> {
        let lines = print(&format!("observe agent-events -o compact {options}"));
        lines.lines().map(str::to_owned).collect()
    };
    let all = events("--last 100");
    let kinds = [
        "AGENT_STARTED",
        "POLICY_UPDATED",
        "ENDPOINT_CREATED",
        "ENDPOINT_REGENERATE_SUCCESS",
        "ENDPOINT_DELETED",
        "POLICY_DELETED",
    ];
    assert_eq!(all.len(), kinds.len(), "{all:#?}");
    for (line, kind) in all.iter().zip(kinds) {
        assert!(line.contains(kind), "{kind}: {line}");
    }
    assert_eq!(events("--last 2"), all[4..]);
    assert_eq!(events("--since 1h"), all);
    assert_eq!(events("--until 1h"), [""; 0]);
    assert_eq!(print("observe debug-events"), "");
    let mode = std::fs::metadata(node.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn followers_see_what_comes() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, shown, first) = node_with_lines("n1");
    let mut child = command(
        &hubble,
        &node.server(),
        &[
            "observe",
            "--follow",
            "--last",
            "2",
            "-o",
            "jsonpb",
            "--verdict",
            "DROPPED",
        ],
    );
    let mut following = Following(child.stdout(Stdio::piped()).spawn().unwrap());
    let output = BufReader::new(following.0.stdout.take().unwrap());
    let mut printed = output
        .lines()
        .map(Result::unwrap)
        .filter(|line| line.contains("\"flow\""));
    let denied: Vec<Shown> = shown
        .iter()
        .filter(|f| f.verdict == "DROPPED")
        .copied()
        .collect();
    let mut next = || keys(&printed.next().unwrap(), first).remove(0);
    for before in &denied[denied.len() - 2..] {
        assert_eq!(next(), key(before));
    }
    for (number, line) in lines().0.into_iter().enumerate() {
        node.lines
            .push(first + Duration::from_secs(number as u64), line);
    }
    for expected in &denied {
        assert_eq!(next(), key(expected));
    }
}

#[test]
fn a_stream_ends_with_the_service() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, _, _) = node_with_lines("n1");
    let mut child = command(
        &hubble,
        &node.server(),
        &["observe", "--follow", "--last", "1"],
    );
    let mut following = Following(child.stdout(Stdio::piped()).spawn().unwrap());
    let output = BufReader::new(following.0.stdout.take().unwrap());
    let mut printed = output.lines();
    printed.next().unwrap().unwrap();
    let (socket, began) = (node.socket(), now());
    drop(node);
    assert!(now() - began < Duration::from_secs(2));
    assert!(!following.0.wait().unwrap().success());
    assert!(!socket.exists());
}

#[test]
fn peers_are_told_with_their_changes() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let node = ServingNode::start("n1", 10, None);
    let peer = |address: &str| HubblePeer {
        node: "n.2".to_owned(),
        address: address.to_owned(),
        tls: true,
    };
    node.peers.send_replace(vec![peer("10.0.0.2:4244")]);
    let mut child = command(&hubble, &node.server(), &["watch", "peers"]);
    let mut following = Following(child.stdout(Stdio::piped()).spawn().unwrap());
    let output = BufReader::new(following.0.stdout.take().unwrap());
    let mut printed = output.lines().map(Result::unwrap);
    let mut next = || printed.next().unwrap();
    let own = next();
    assert!(
        own.contains("PEER_ADDED") && own.contains("n1") && own.contains(&node.address.to_string()),
        "{own}"
    );
    let other = next();
    assert!(
        other.contains("n-2.default.hubble-grpc.cilium.io"),
        "{other}"
    );
    node.peers.send_replace(vec![peer("10.0.0.3:4244")]);
    let changed = next();
    assert!(
        changed.contains("PEER_UPDATED") && changed.contains("10.0.0.3:4244"),
        "{changed}"
    );
    node.peers.send_replace(Vec::new());
    let gone = next();
    assert!(gone.contains("PEER_DELETED"), "{gone}");
}

//! Hubble's relay in front of two nodes, without TLS and with mutual TLS.

use crate::filters::{Key, key, keys, push_lines};
use crate::lines::{LINES, lines};
use crate::node::{ServingNode, now, output, programs, run};
use palisade_hubble::{HubblePeer, HubbleTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running relay, until dropped.
struct Relay {
    child: Child,
    server: String,
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nothing listens on.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

impl Relay {
    fn start(relay: &Path, peer_service: &str, arguments: &[String]) -> Self {
        let server = free_address();
        let health = free_address();
        let mut command = Command::new(relay);
        command
            .args(["serve", "--gops=false", "--disable-server-tls"])
            .args([
                "--listen-address",
                &server,
                "--health-listen-address",
                &health,
            ])
            .args(["--peer-service", peer_service, "--retry-timeout", "1s"])
            .args(arguments)
            .env("HOME", "/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Relay {
            child: command.spawn().unwrap(),
            server,
        }
    }

    /// Waits until it has reached this many nodes.
    fn wait_for(&self, hubble: &Path, nodes: usize) {
        self.wait_until(hubble, &["list", "nodes"], |printed| {
            printed.matches("Connected").count() == nodes
        });
    }

    /// What it answers, once that is as wanted.
    fn wait_until(
        &self,
        hubble: &Path,
        command: &[&str],
        is_wanted: impl Fn(&str) -> bool,
    ) -> String {
        let began = now();
        loop {
            let output = output(hubble, &self.server, command);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            if is_wanted(&printed) {
                return printed;
            }
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(now() - began < Duration::from_secs(30), "{printed}{errors}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Two nodes that know each other, with the lines; the time of the first of them.
fn two_nodes(tls: [Option<HubbleTls>; 2]) -> ([ServingNode; 2], Duration) {
    let with_tls = tls[0].is_some();
    let mut tls = tls.into_iter();
    let mut start = |name| ServingNode::start(name, 1000, tls.next().unwrap());
    let nodes = [start("n1"), start("n2")];
    let first = Duration::from_secs(now().as_secs() - LINES as u64 - 100);
    for node in &nodes {
        push_lines(&node.lines, lines().0, first);
    }
    let other = HubblePeer {
        node: "n2".to_owned(),
        address: nodes[1].address.to_string(),
        tls: with_tls,
    };
    nodes[0].peers.send_replace(vec![other]);
    (nodes, first)
}

/// Whether the relay shows the flows of both nodes.
fn check_relay(hubble: &Path, relay: &Relay, first: Duration) {
    relay.wait_for(hubble, 2);
    let server = relay.server.as_str();
    let arguments = [
        "observe",
        "--all",
        "-o",
        "jsonpb",
        "--verdict",
        "DROPPED",
        "--type",
        "drop",
    ];
    let printed = run(hubble, server, &arguments);
    let denied: Vec<Key> = lines()
        .1
        .iter()
        .filter(|f| f.verdict == "DROPPED")
        .map(key)
        .collect();
    for name in ["default/n1", "default/n2"] {
        let own = printed
            .lines()
            .filter(|line| line.contains(&format!("\"node_name\":\"{name}\"")));
        let own: Vec<&str> = own.filter(|line| line.contains("\"flow\"")).collect();
        assert_eq!(keys(&own.join("\n"), first), denied, "{name}");
    }
    // Both are merged by their times.
    let lines: Vec<usize> = keys(&printed, first).into_iter().map(|key| key.0).collect();
    assert_eq!(lines.len(), 2 * denied.len());
    assert!(lines.is_sorted(), "{lines:?}");
    let only = run(
        hubble,
        server,
        &["observe", "--all", "-o", "jsonpb", "--node-name", "n2"],
    );
    let flows: Vec<&str> = only
        .lines()
        .filter(|line| line.contains("\"flow\""))
        .collect();
    assert!(!flows.is_empty());
    assert!(
        flows
            .iter()
            .all(|line| line.contains("\"node_name\":\"default/n2\""))
    );
    // It looks at its own health every few seconds.
    let status = relay.wait_until(hubble, &["status"], |printed| printed.contains("): Ok"));
    for part in ["Current/Max Flows: 400/2,000", "Connected Nodes: 2/2"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let namespaces = run(hubble, server, &["list", "namespaces"]);
    assert!(
        namespaces.contains("shop") && namespaces.contains("six"),
        "{namespaces}"
    );
}

#[test]
fn the_relay_shows_both_nodes() {
    let Some([hubble, relay]) = programs() else {
        return;
    };
    let (nodes, first) = two_nodes([None, None]);
    let arguments = ["--disable-client-tls".to_owned()];
    let relay = Relay::start(&relay, &nodes[0].server(), &arguments);
    check_relay(&hubble, &relay, first);
    // A node that is gone is told, and the other is still shown.
    let [n1, n2] = nodes;
    drop(n2);
    relay.wait_for(&hubble, 1);
    let printed = run(
        &hubble,
        &relay.server,
        &["observe", "--last", "5", "-o", "jsonpb"],
    );
    assert!(printed.contains("default/n1"), "{printed}");
    drop(n1);
}

#[test]
fn the_relay_needs_a_certificate() {
    let Some([hubble, relay]) = programs() else {
        return;
    };
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let certificate = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (
            params.signed_by(&key, &authority).unwrap().pem(),
            key.serialize_pem(),
        )
    };
    let server = |name: &str| {
        let (certificate, key) = certificate(&format!("{name}.default.hubble-grpc.cilium.io"));
        Some(HubbleTls {
            certificate: certificate.into_bytes(),
            key: key.into_bytes(),
            client_authority: Some(authority.pem().into_bytes()),
        })
    };
    let (nodes, first) = two_nodes([server("n1"), server("n2")]);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let (certificate, key) = certificate("relay");
    let files = [
        file("ca", &authority.pem()),
        file("certificate", &certificate),
        file("key", &key),
    ];
    let arguments = [
        format!("--tls-hubble-server-ca-files={}", files[0]),
        format!("--tls-hubble-client-cert-file={}", files[1]),
        format!("--tls-hubble-client-key-file={}", files[2]),
    ];
    let relay = Relay::start(&relay, &nodes[0].server(), &arguments);
    check_relay(&hubble, &relay, first);
    let name = "--tls-server-name=n1.default.hubble-grpc.cilium.io";
    let authority_flag = format!("--tls-ca-cert-files={}", files[0]);
    let with_certificate = [
        format!("--tls-client-cert-file={}", files[1]),
        format!("--tls-client-key-file={}", files[2]),
    ];
    let server = format!("tls://{}", nodes[0].address);
    let without = ["observe", "--last", "5", name, &authority_flag];
    assert!(!output(&hubble, &server, &without).status.success());
    let with = [&without[..], &[&with_certificate[0], &with_certificate[1]]].concat();
    assert!(run(&hubble, &server, &with).contains("shop/"));
}

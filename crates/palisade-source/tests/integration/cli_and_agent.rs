//! The command line and the agent report the same problems of the same files.

use crate::common;
use palisade_effective::{Diagnostic, EffectiveReport};
use palisade_source::{DirectoryOptions, LoadedInput, load};
use palisade_sys::watch::InotifyWatch;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

fn both(root: &Path) -> (LoadedInput, EffectiveReport) {
    let state = tempfile::tempdir().unwrap();
    let options = DirectoryOptions {
        path: root.to_owned(),
        settle: Duration::from_millis(20),
    };
    let mut report = None;
    let watch = InotifyWatch::new().unwrap();
    common::follow(options, state.path(), watch, &mut |batch| {
        report = Some(batch.report);
        ControlFlow::Break(())
    });
    (load(&[root]), report.unwrap())
}

fn lines(diagnostics: &[Diagnostic]) -> Vec<String> {
    let line = |d: &Diagnostic| {
        let severity = if d.is_error() { "error" } else { "warning" };
        format!(
            "{severity} {:?} {} {}",
            d.problem.object, d.problem, d.omitted
        )
    };
    diagnostics.iter().map(line).collect()
}

#[test]
fn the_examples_are_judged_alike() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let (loaded, report) = both(&examples);
    assert_eq!(lines(&loaded.diagnostics), lines(&report.problems));
    assert_eq!(loaded.objects, report.objects);
    assert_eq!(loaded.ignored, report.ignored);
    assert_eq!(loaded.files, report.files);
}

const POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n";

/// Files with every kind of problem, each with a part of the message it causes.
fn broken() -> Vec<(&'static str, String, &'static str)> {
    let pod = |name: &str, rest: &str, address: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: web}}}}\n\
             spec: {{{rest}}}\nstatus: {{podIP: {address}}}\n"
        )
    };
    let policy =
        |name: &str, spec: &str| format!("---\n{POLICY}metadata: {{name: {name}}}\nspec: {spec}\n");
    vec![
        (
            "a-truncated.yaml",
            format!("{POLICY}metadata:\n  name: \"cut"),
            "",
        ),
        ("b-empty.yaml", String::new(), ""),
        (
            "c-invalid.yaml",
            policy("bad", "{podSelector: {}, ingress: [{ports: [{port: 0}]}]}"),
            "0 is not a port",
        ),
        (
            "d-twice.yaml",
            policy("twice", "{podSelector: {}}") + &policy("twice", "{podSelector: {}}"),
            "is defined twice",
        ),
        (
            "e-twice.yaml",
            policy("twice", "{podSelector: {}, egress: []}"),
            "is defined twice",
        ),
        (
            "f-not-a-manifest.yaml",
            "hello: world\n".to_owned(),
            "not a Kubernetes manifest",
        ),
        (
            "g-host.yaml",
            pod("host", "hostNetwork: true", "192.0.2.1")
                + &policy("host", "{podSelector: {matchLabels: {app: web}}}"),
            "on the host network",
        ),
        (
            "h-addresses.yaml",
            pod("p1", "", "10.0.0.1") + &pod("p2", "", "10.0.0.1"),
            "is also claimed by",
        ),
        (
            "i-ports.yaml",
            policy(
                "ports",
                "{podSelector: {}, ingress: [{ports: [{port: http}]}]}",
            ),
            "port named `http`",
        ),
        (
            "j-namespaces.yaml",
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n".to_owned()
                + &policy(
                    "spaces",
                    "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: none}}}]}]}",
                ),
            "none of the namespaces",
        ),
        (
            "k-unknown.yaml",
            "apiVersion: networking.k8s.io/v1\nkind: Networkpolicy\nmetadata: {name: x}\n"
                .to_owned(),
            "unknown kind",
        ),
        (
            "l-egress.yaml",
            policy(
                "egress",
                "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: dns, protocol: UDP}]}]}",
            ),
            "UDP port named `dns`",
        ),
    ]
}

#[test]
fn broken_files_are_judged_alike() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let files = broken();
    for (name, text, _) in &files {
        fs::write(root.join(name), text).unwrap();
    }
    let (loaded, report) = both(&root);
    let shown = lines(&loaded.diagnostics);
    assert_eq!(shown, lines(&report.problems));
    for (name, _, message) in &files {
        let has = |line: &String| line.contains(name) && line.contains(message);
        assert!(
            message.is_empty() || shown.iter().any(has),
            "{name}: {message}: {shown:#?}"
        );
    }
    assert_eq!(loaded.ignored, report.ignored);
}

/// The warnings follow changes: those of an agent that saw every change are those of one that starts now.
#[test]
fn warnings_after_changes_are_those_of_a_start() {
    let mut scene = common::Scene::new();
    let files = broken();
    for (name, text, _) in &files {
        scene.write(name, text);
    }
    scene.start();
    scene.quiet();
    let changed = [
        ("g-host.yaml", "hostNetwork: true", "nodeName: n1"),
        ("h-addresses.yaml", "10.0.0.1}\n---", "10.0.0.2}\n---"),
        (
            "j-namespaces.yaml",
            "name: shop",
            "name: shop, labels: {team: none}",
        ),
        (
            "h-addresses.yaml",
            "spec: {}",
            "spec: {containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}",
        ),
        ("h-addresses.yaml", "name: p2", "name: p3"),
    ];
    for (name, from, to) in changed {
        let text = fs::read_to_string(scene.at(name)).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        scene.write(name, &text.replacen(from, to, 1));
        scene.quiet();
        let loaded = load(&[&scene.root]);
        let followed = scene.report().unwrap();
        let of = |all: &[Diagnostic]| -> Vec<String> {
            let warnings: Vec<Diagnostic> = all.iter().filter(|d| !d.is_error()).cloned().collect();
            lines(&warnings)
        };
        assert_eq!(
            of(&followed.problems),
            of(&loaded.diagnostics),
            "{name}: {to}"
        );
    }
}

//! Names, values and file names chosen to harm the reader of the output.

use super::{PODS, Ran, World, run, run_with};
use serde_json::{Value, json};
use std::process::Command;

/// Colours, cursor movements, a window title, a forged line, right-to-left text: C0, DEL, C1 and Unicode's
/// direction and line end characters.
const HOSTILE: &str = "\u{1b}[31m\u{1b}]0;t\u{7}\u{7f}\u{9b}2J\u{85}\r\n\tforged\u{202e}\u{2066}\u{2028}\u{2029}\u{0}";

fn assert_harmless(what: &str, ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        let found = text.chars().find(|c| {
            c.is_control() && *c != '\n'
                || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        });
        assert_eq!(found, None, "{what}: {text:?}");
        // A line forged by the input.
        let forged = text
            .lines()
            .find(|line| line.trim_start().starts_with("forged"));
        assert_eq!(forged, None, "{what}: {text:?}");
    }
}

/// Objects with the hostile text in every place that a message may quote.
fn objects() -> Vec<Value> {
    let h = HOSTILE;
    let policy = |metadata: Value, spec: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
               "metadata": metadata, "spec": spec})
    };
    let a = json!({"name": "a"});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": h, "metadata": {"name": "a"}}),
        json!({"apiVersion": h, "kind": "Pod", "metadata": {"name": "a"}}),
        json!({"apiVersion": format!("example.com/{h}"), "kind": h, "metadata": {"name": h}}),
        json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": {"name": h}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": h, "namespace": h}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": {h: h}}}),
        json!({"apiVersion": "v1", "kind": format!("Pod{h}"), "metadata": {"name": h}}),
        json!({"apiVersion": "v1", "kind": format!("{h}List"), "items": h}),
        json!([h]),
        policy(json!({"name": h}), json!({"podSelector": {}})),
        policy(json!({"name": "a", "namespace": h}), json!({})),
        policy(
            json!({"name": "a", "labels": {h: h}, h: h, "annotations": {h: 1}}),
            json!({}),
        ),
    ];
    for spec in [
        json!({h: h}),
        json!(h),
        json!({"podSelector": {"matchLabels": {h: h}}}),
        json!({"podSelector": {"matchExpressions": [{"key": h, "operator": h, "values": [h]}]}}),
        json!({"policyTypes": [h]}),
        json!({"ingress": [{h: h, "from": [{h: h, "ipBlock": {"cidr": h, "except": [h]}}]}]}),
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": format!("10.0.0.0/{h}")}}]}]}),
        json!({"ingress": [{"ports": [{"port": h, "protocol": h, "endPort": h, h: h}]}]}),
    ] {
        objects.push(policy(a.clone(), spec));
    }
    // Valid, as far as it is checked, and therefore in the results.
    objects.push(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "owned", "namespace": "shop", "creationTimestamp": h,
            "ownerReferences": [{"kind": h, "name": h, "controller": true}]},
        "spec": {"nodeName": h, "serviceAccountName": h},
        "status": {"podIP": "10.1.0.9", "phase": h, "podIPs": [{"ip": h}]}}));
    objects.push(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "sound", "namespace": "shop",
            "ownerReferences": [{"kind": h, "name": h, "controller": true}]},
        "spec": {"nodeName": h, "serviceAccountName": h}, "status": {"podIP": "10.1.0.10"}}));
    objects
}

/// A directory of them, one file each, with hostile names, and text that is not a manifest.
fn world() -> World {
    let mut files: Vec<(String, String)> = vec![("pods.yaml".to_owned(), PODS.to_owned())];
    let name = HOSTILE.replace('\0', "");
    for (n, object) in objects().iter().enumerate() {
        files.push((format!("{n}{name}.json"), object.to_string()));
    }
    for (n, text) in [
        format!("a: {HOSTILE}"),
        format!("{{\"{HOSTILE}\""),
        "\"\\e[31m\\x9B\\N\\P\": &a [1, \"\\e\"]\n\"\\e[31m\\x9B\\N\\P\": 2".to_owned(),
        "kind: \"\\e[31m\"\napiVersion: v1\nkind: \"\\e\"".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        files.push((format!("text-{n}{name}.yaml"), text));
    }
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
                  metadata: {name: sound, namespace: shop}\nspec: {podSelector: {}}\n";
    files.push((format!("sound{name}.yaml"), policy.to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (&**n, &**t)).collect();
    World::of(&files)
}

#[test]
fn nothing_printed_carries_control_characters_of_the_input() {
    let world = world();
    for format in ["text", "json"] {
        for (command, rest) in [
            ("validate", ""),
            ("connections", ""),
            ("lint", ""),
            ("explain", "--from other/guest --to shop/sound --port 80"),
            ("explain", "--from shop/sound --to shop/web --port 80"),
        ] {
            let ran = world.run(command, &format!("{rest} -o {format}"));
            assert_harmless(&format!("{command} {rest} {format}"), &ran);
            assert!(ran.code == 1 && !ran.out.is_empty(), "{ran:?}");
            if format == "json" {
                ran.json();
            }
        }
        let empty = World::of(&[]);
        let ran = run(&["diff", "-f", world.path(), "-f", empty.path(), "-o", format]);
        assert_harmless("diff", &ran);
        assert!(ran.out.contains("guest"), "{ran:?}");
    }
    // Harmless characters are still shown unchanged.
    let shown = world.run("validate", "");
    assert!(shown.out.contains("\\u{1b}[31m"), "{}", shown.out);
    let connections = world.json("connections", "").to_string();
    assert!(serde_json::from_str::<Value>(&connections).is_ok());
}

#[test]
fn nor_does_what_is_said_of_the_standard_input_and_of_the_command_line() {
    for object in objects() {
        let ran = run_with(&["validate", "-f", "-"], &object.to_string());
        assert_harmless("stdin", &ran);
    }
    let typed = HOSTILE.replace('\0', "");
    let flag = format!("--{typed}");
    for args in [
        &["validate", "-f", &typed][..],
        &[
            "explain", "-f", "-", "--from", &typed, "--to", &typed, "--port", &typed,
        ],
        &[
            "explain", "-f", "-", "--from", &typed, "--to", "10.0.0.1", "--port", "80",
        ],
        &["validate", &flag],
        &[&typed],
        &["status", "--socket", &typed],
        &["agent", "--dry-run", "--directory", "/", "--mtu", &typed],
        &["agent", "--dry-run", "--config", &typed],
        &["workload", "add", &typed, "--netns", "x", "--label", &typed],
    ] {
        let ran = run_with(args, PODS);
        assert_harmless(&format!("{args:?}"), &ran);
        assert!(ran.code > 0 && !ran.err.is_empty(), "{args:?}: {ran:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(["agent", "--dry-run", "--directory", "/"]);
    command.env("PALISADE_MTU", &typed);
    assert_harmless("environment", &super::finish(command, ""));
}

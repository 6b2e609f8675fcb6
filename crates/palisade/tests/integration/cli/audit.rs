//! What is in audit, on the command line: `connections`, `diff` and `explain` tell what is enforced, and with
//! `--audit` what would be if nothing were in audit.

use super::{World, run};
use serde_json::{Value, json};

const PODS: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, status: {podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, labels: {app: db}}, status: {podIP: 10.0.0.2}}
";

/// db is isolated, and would open for web.
fn policies(mode: &str) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: closed, annotations: \
         {{palisade.dev/mode: {mode}}}}}, spec: {{podSelector: {{matchLabels: {{app: db}}}}}}}}\n---\n\
         {{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: open}}, spec: {{podSelector: \
         {{matchLabels: {{app: web}}}}, policyTypes: [Egress], egress: [{{}}]}}}}\n"
    )
}

fn from_web(list: &Value) -> Vec<&Value> {
    let rows = list.as_array().unwrap().iter();
    rows.filter(|row| row["src"]["name"] == "web" && row["dst"]["name"] == "db")
        .collect()
}

#[test]
fn what_enforcing_would_close() {
    let world = World::of(&[("pods.yaml", PODS), ("policy.yaml", &policies("audit"))]);
    let path = world.path();
    let list = |more: &[&str]| {
        let args = ["connections", "-f", path, "-o", "json"];
        run(&[&args[..], more].concat()).json()["connections"].clone()
    };
    assert_eq!(from_web(&list(&[])).len(), 1);
    assert_eq!(from_web(&list(&["--audit"])).len(), 0);

    let ran = run(&["diff", "--audit", "-f", path, "-o", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let told = ran.json();
    assert_eq!(told["opened"], json!([]));
    assert_eq!(from_web(&told["closed"]).len(), 1, "{told:#}");

    // Once it is enforced there is nothing to tell.
    let enforced = World::of(&[("pods.yaml", PODS), ("policy.yaml", &policies("enforce"))]);
    let ran = run(&["diff", "--audit", "-f", enforced.path()]);
    assert_eq!(
        (ran.code, &*ran.out),
        (0, "no difference in allowed connections\n")
    );
    // Between two folders: what is enforced differs, what would be enforced does not.
    let two = ["diff", "-f", path, "-f", enforced.path()];
    assert_eq!(run(&two).code, 1);
    assert_eq!(run(&[&two[..], &["--audit"]].concat()).code, 0);
    let without = run(&["diff", "-f", path]);
    assert_eq!(without.code, 2);
    assert!(without.err.contains("--audit -f PATH"), "{}", without.err);
}

#[test]
fn explain_tells_both() {
    let world = World::of(&[("pods.yaml", PODS), ("policy.yaml", &policies("audit"))]);
    let args = [
        "explain",
        "-f",
        world.path(),
        "--from",
        "default/web",
        "--to",
        "default/db",
        "--port",
        "80",
    ];
    let text = run(&args).out;
    assert!(text.starts_with("ALLOW  TCP to port 80"), "{text}");
    for told in [
        "\n  DENY if nothing were in audit\n",
        "it is in audit: it selects the endpoint and is not enforced",
        "\nDENY by ingress if nothing were in audit\n  denied by the default of tier default",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let told = run(&[&args[..], &["-o", "json"]].concat()).json();
    assert_eq!(
        (&told["verdict"], &told["auditVerdict"]),
        (&json!("Allow"), &json!("Deny"))
    );
    assert_eq!(
        told["ingress"]["audit"]["decidedBy"]["isolating"][0]["name"],
        "closed"
    );
    assert_eq!(told["egress"].get("audit"), None);
}

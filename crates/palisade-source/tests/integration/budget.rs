//! A policy over its element budget leaves the last valid version in force, whatever came before or after it,
//! over a restart, and until it fits or the budget is raised.

use crate::common::{Scene, manifest};
use palisade_effective::{ElementBudget, ExceededLimit, OversizedPolicy};
use std::fmt::Write;

/// A policy that allows everyone at this many ports, no two of them adjacent, and each of some peers at one
/// more port.
fn wide(name: &str, ports: u32, peers: u32) -> String {
    let mut text = format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  podSelector: {{}}\n  ingress:\n"
    );
    for peer in 0..peers {
        let port = 2 + 2 * peer;
        writeln!(
            text,
            "  - {{from: [{{podSelector: {{matchLabels: {{app: p{peer}}}}}}}], ports: [{{port: {port}}}]}}"
        )
        .unwrap();
    }
    text.push_str("  - ports:\n");
    for port in 0..ports {
        writeln!(text, "    - port: {}", 1001 + 2 * port).unwrap();
    }
    text
}

fn scene(set: usize, host: usize) -> Scene {
    let mut scene = Scene::new();
    scene.budget = ElementBudget { set, host };
    scene
}

/// The first line of what is shown, and the retained objects.
fn short(scene: &Scene) -> Vec<String> {
    let shown = scene.shown();
    let mut lines = shown.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let kept = lines
        .filter(|line| line.starts_with("kept "))
        .map(ToOwned::to_owned);
    std::iter::once(first).chain(kept).collect()
}

fn over(scene: &Scene) -> Vec<OversizedPolicy> {
    let report = scene.report();
    report
        .map(|report| report.over_budget.clone())
        .unwrap_or_default()
}

#[test]
fn a_policy_past_the_budget_leaves_what_was_valid_last() {
    let mut scene = scene(2000, 1_000_000);
    scene.write("web.yaml", &manifest("web:80"));
    scene.write("db.yaml", &manifest("db:90"));
    scene.start();
    scene.expect("start", "db:90 web:80");
    scene.write("web.yaml", &wide("web", 2500, 10));
    let kept = ["db:90 web:80", "kept NetworkPolicy default/web"];
    scene.until("refused", |scene| short(scene) == kept);
    let told = over(&scene);
    assert_eq!(told.len(), 1, "{told:?}");
    let told = &told[0];
    assert_eq!(told.object, "NetworkPolicy default/web");
    assert_eq!((told.bound, told.budget), (ExceededLimit::Set, 2000));
    // Elements shared by all peers count once and are compiled for each: an eighth of the sum is above the
    // limit.
    assert!((3430..3500).contains(&told.elements), "{told:?}");
    let dear = &told.rules[0];
    assert_eq!((dear.index, dear.elements), (10, 2500));
    assert_eq!(dear.line.as_ref().unwrap().line, 18);
    let problem = &scene.report().unwrap().problems[0];
    assert!(problem.is_error());
    let said = problem.problem.to_string();
    for part in [
        "web.yaml:2",
        "spec: it needs about 34",
        "; the limit of a policy set is 2000 (policy-set-max-elements)",
        "largest rules by elements: ingress[10] (",
        "web.yaml:18) 2500, ingress[0]",
        "the last valid version stays in force",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    scene.restart();
    scene.until("after a restart", |scene| short(scene) == kept);
    assert_eq!(over(&scene).len(), 1);
    scene.put("web.yaml", "web:81");
    scene.expect("mended", "db:90 web:81");
    assert_eq!(over(&scene), []);
}

#[test]
fn one_that_never_fitted_isolates_until_it_may_take_more() {
    let mut scene = scene(2000, 1_000_000);
    scene.write("db.yaml", &manifest("db:90"));
    scene.write("web.yaml", &wide("web", 3000, 0));
    scene.start();
    let isolated = [
        "db:90 web:isolated",
        "kept NetworkPolicy default/web never valid",
    ];
    scene.until("isolated", |scene| short(scene) == isolated);
    scene.restart();
    scene.until("after a restart", |scene| short(scene) == isolated);
    // No file changes: the new parameter alone causes a scan.
    let allow = scene.allow.clone().unwrap();
    allow.set(ElementBudget {
        set: 4000,
        host: 1_000_000,
    });
    let open = |scene: &Scene| scene.shown().contains("web:1001,1003,");
    scene.until("it may take more", open);
    assert_eq!(over(&scene), []);
    allow.set(ElementBudget {
        set: 2000,
        host: 1_000_000,
    });
    scene.until("it may take less", |scene| over(scene).len() == 1);
    assert!(open(&scene), "what was valid last stays");
}

/// The wake-up for a new budget may coincide with events that require no scan: here those of files beside the
/// tree, as when the configuration is stored there.
#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "files that the source is not to look at"
)]
fn a_new_budget_is_taken_whatever_happens_beside_the_tree() {
    let mut scene = scene(2000, 1_000_000);
    scene.write("db.yaml", &manifest("db:90"));
    scene.write("web.yaml", &wide("web", 1500, 0));
    scene.start();
    scene.until("start", |scene| over(scene).is_empty());
    let allow = scene.allow.clone().unwrap();
    for round in 0..20 {
        let beside = |count: u32| {
            for file in 0..count {
                let path = scene.top.join(format!("beside-{file}"));
                std::fs::write(&path, "x").unwrap();
                std::fs::remove_file(path).unwrap();
            }
        };
        let (set, refused) = [(1000, 1), (2000, 0)][round % 2];
        let host = 1_000_000;
        beside(50);
        allow.set(ElementBudget { set, host });
        beside(50);
        scene.until("the new budget", |scene| over(scene).len() == refused);
    }
}

/// Which policies exceed the host limit depends on the files alone.
#[test]
fn room_on_the_host_goes_by_name() {
    let files = [("a", 900), ("b", 1500), ("c", 800), ("d", 300)];
    let mut seen: Vec<Vec<String>> = Vec::new();
    for turn in 0..files.len() {
        let mut scene = scene(1600, 2100);
        let mut order = files;
        order.rotate_left(turn);
        // The first two exist at the start, the others are added later.
        let (first, later) = order.split_at(2);
        for (name, ports) in first {
            scene.write(&format!("{name}.yaml"), &wide(name, *ports, 0));
        }
        scene.start();
        let files =
            |many| move |scene: &Scene| scene.report().is_some_and(|report| report.files == many);
        scene.until("the first two", files(2));
        for ((name, ports), many) in later.iter().zip(3..) {
            scene.write(&format!("{name}.yaml"), &wide(name, *ports, 0));
            scene.until("one more", files(many));
        }
        let refused = over(&scene);
        assert!(
            refused
                .iter()
                .all(|over| over.bound == ExceededLimit::Host && over.budget == 2100)
        );
        seen.push(refused.into_iter().map(|over| over.object).collect());
    }
    for refused in &seen {
        assert_eq!(*refused, ["NetworkPolicy default/b"]);
    }
}

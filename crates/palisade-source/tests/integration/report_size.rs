//! The cost of hostile files: the number of problems reported and the size of their messages.
//!
//! Nothing is timed. Memory and output are proportional to what is counted and measured here.

use crate::common;
use palisade_effective::{Diagnostic, EffectiveReport};
use palisade_source::{DirectoryOptions, LoadedInput, load};
use palisade_sys::watch::InotifyWatch;
use std::fmt::Write;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

const POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n";

fn bad_ports(name: &str, ports: usize) -> String {
    let mut text = format!(
        "{POLICY}metadata:\n  name: {name}\nspec:\n  podSelector: {{}}\n  ingress:\n  - ports:\n"
    );
    text.push_str(&"    - port: 0\n".repeat(ports));
    text
}

/// The size of all messages in bytes.
fn size(flaws: &[Diagnostic]) -> usize {
    let of = |flaw: &Diagnostic| {
        let problem = &flaw.problem;
        problem.to_string().len() + problem.object.as_ref().map_or(0, String::len)
    };
    flaws.iter().map(of).sum()
}

/// The diagnostics of the command line and of a source for these files.
fn both(files: &[(String, String)]) -> (LoadedInput, EffectiveReport) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    for (name, text) in files {
        fs::write(root.join(name), text).unwrap();
    }
    (load(&[&root]), followed(&root, &dir.path().join("state")))
}

fn followed(root: &Path, state: &Path) -> EffectiveReport {
    let options = DirectoryOptions {
        path: root.to_owned(),
        settle: Duration::from_millis(20),
    };
    let mut report = None;
    common::follow(options, state, InotifyWatch::new().unwrap(), &mut |batch| {
        report = Some(batch.report);
        ControlFlow::Break(())
    });
    report.unwrap()
}

fn one(text: String) -> Vec<(String, String)> {
    vec![("a.yaml".to_owned(), text)]
}

fn reasons(flaws: &[Diagnostic]) -> Vec<&str> {
    flaws.iter().map(|flaw| &*flaw.problem.reason).collect()
}

#[test]
fn an_object_tells_a_hundred_problems_and_counts_the_rest() {
    for (length, ports) in [(10, 101), (100_000, 2_000), (300_000, 10_000)] {
        let (loaded, report) = both(&one(bad_ports(&"a".repeat(length), ports)));
        let of_name = usize::from(length > 253);
        for flaws in [&loaded.diagnostics, &report.problems] {
            assert_eq!(flaws.len(), 101);
            assert!(size(flaws) < 40_000, "{length}: {}", size(flaws));
            assert_eq!(Diagnostic::count_by_severity(flaws), (ports + of_name, 0));
            let more = &flaws.iter().find(|flaw| flaw.omitted > 0).unwrap().problem;
            let count = ports + of_name - 100;
            let shown = match count {
                9_901 => "9,901".to_owned(),
                1_901 => "1,901".to_owned(),
                count => count.to_string(),
            };
            let noun = if count == 1 { "problem" } else { "problems" };
            assert_eq!(
                more.reason,
                format!("and {shown} more {noun} of this object")
            );
            assert_eq!(more.location.line as usize, 8 + ports, "the last place");
        }
        assert!(loaded.has_errors());
        assert_eq!(loaded.state.policies.len(), 1, "it isolates all the same");
        assert!(report.retained.iter().all(|kept| kept.object.len() < 600));
        if of_name > 0 {
            let first = reasons(&loaded.diagnostics)[0];
            assert_eq!(first, format!("{length} bytes are too long: at most 253"));
        }
    }
}

#[test]
fn a_valid_name_of_the_greatest_length_is_shown_whole() {
    let name = "a".repeat(253);
    let (loaded, _) = both(&one(bad_ports(&name, 1)));
    let object = loaded.diagnostics[0].problem.object.clone().unwrap();
    assert_eq!(object, format!("NetworkPolicy default/{name}"));
}

#[test]
fn two_names_that_are_too_long_are_two_objects() {
    let long = "a".repeat(1_000);
    let text = format!(
        "{}---\n{}",
        bad_ports(&format!("{long}b"), 1),
        bad_ports(&format!("{long}c"), 1)
    );
    let (loaded, report) = both(&one(text));
    assert_eq!(loaded.state.policies.len(), 2);
    assert_eq!(report.retained.len(), 2);
}

#[test]
fn files_and_inputs_tell_so_many_problems_and_count_the_rest() {
    let mut text = String::new();
    for policy in 0..60 {
        writeln!(text, "---\n{}", bad_ports(&format!("p{policy}"), 50)).unwrap();
    }
    let (loaded, report) = both(&one(text.clone()));
    for flaws in [&loaded.diagnostics, &report.problems] {
        assert_eq!(flaws.len(), 1_001);
        assert_eq!(Diagnostic::count_by_severity(flaws), (3_000, 0));
        assert!(reasons(flaws).contains(&"and 2,000 more problems of this file"));
    }
    // Each of the 20 files has 3,000.
    let files: Vec<(String, String)> = (0..20)
        .map(|file| {
            let text = text.replace("  name: p", &format!("  name: f{file}p"));
            (format!("{file:02}.yaml"), text)
        })
        .collect();
    let (loaded, report) = both(&files);
    for flaws in [&loaded.diagnostics, &report.problems] {
        assert!(flaws.len() < 10_100, "{}", flaws.len());
        assert!(size(flaws) < 4 << 20);
        assert_eq!(Diagnostic::count_by_severity(flaws).0, 60_000);
        let last = reasons(flaws)
            .into_iter()
            .find(|r| r.ends_with("of the whole input"));
        assert!(last.is_some());
    }
}

#[test]
fn what_there_was_no_room_for_is_told_when_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    let mut text = String::new();
    for policy in 0..20 {
        writeln!(text, "---\n{}", bad_ports(&format!("p{policy}"), 50)).unwrap();
    }
    for file in 0..10 {
        let text = text.replace("  name: p", &format!("  name: f{file}p"));
        fs::write(root.join(format!("{file:02}.yaml")), text).unwrap();
    }
    fs::write(root.join("late.yaml"), bad_ports("late", 3)).unwrap();
    let state = dir.path().join("state");
    let options = DirectoryOptions {
        path: root.clone(),
        settle: Duration::from_millis(20),
    };
    let mut looks = 0;
    let of_late = |report: &EffectiveReport| {
        let of = |flaw: &&Diagnostic| flaw.problem.location.file.ends_with("late.yaml");
        report
            .problems
            .iter()
            .filter(of)
            .filter(|flaw| flaw.omitted == 0)
            .count()
    };
    common::follow(options, &state, Overflows::default(), &mut |batch| {
        looks += 1;
        assert_eq!(
            Diagnostic::count_by_severity(&batch.report.problems).0,
            if looks == 1 { 10_003 } else { 9_003 }
        );
        if looks == 1 {
            assert_eq!(of_late(&batch.report), 0);
            fs::remove_file(root.join("03.yaml")).unwrap();
            return ControlFlow::Continue(());
        }
        assert_eq!(of_late(&batch.report), 3);
        ControlFlow::Break(())
    });
    assert_eq!(looks, 2);
}

/// Reports lost events at every wait.
#[derive(Default)]
struct Overflows(common::dir_watch::FakeDirWatch);

impl palisade_sys::watch::DirWatch for Overflows {
    fn add(
        &mut self,
        directory: &Path,
    ) -> Result<palisade_sys::watch::WatchId, palisade_sys::watch::WatchError> {
        self.0.add(directory)
    }

    fn remove(&mut self, watch: palisade_sys::watch::WatchId) {
        self.0.remove(watch);
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<palisade_sys::watch::WakeReason, palisade_sys::watch::WatchError> {
        use palisade_sys::watch::{WakeReason, WatchEvent};
        Ok(match timeout {
            None => WakeReason::Events(vec![WatchEvent::Overflow]),
            Some(_) => WakeReason::TimedOut,
        })
    }
}

#[test]
fn twenty_thousand_broken_things() {
    let cases = [
        ("objects without a name", "---\napiVersion: v1\nkind: Pod\n".repeat(20_000)),
        ("documents that are no YAML", "---\na: [\n".repeat(20_000)),
        ("anchors of nothing", "---\na: *b\n".repeat(20_000)),
        ("definitions of one policy", "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {}}}\n".repeat(10_000)),
        ("kinds", (0..10_000).fold(String::new(), |text, kind| text + &format!("---\n{{apiVersion: e.io/v1, kind: K{kind}x, metadata: {{name: a}}}}\n"))),
        ("levels", format!("a: {}", "[".repeat(20_000))),
        ("levels in block style", format!("a:\n  {}", "- ".repeat(20_000))),
        ("unknown fields", (0..20_000).fold(format!("{POLICY}metadata: {{name: a}}\nspec: {{}}\n"), |text, key| text + &format!("x{key}: 1\n"))),
        ("requirements", format!("{POLICY}metadata: {{name: a}}\nspec:\n  podSelector:\n    matchExpressions:\n{}", "    - {key: -, operator: X}\n".repeat(20_000))),
    ];
    for (what, text) in cases {
        let (loaded, report) = both(&one(text));
        for flaws in [&loaded.diagnostics, &report.problems] {
            assert!(flaws.len() <= 1_002, "{what}: {}", flaws.len());
            assert!(size(flaws) < 1 << 20, "{what}: {}", size(flaws));
        }
        for ignored in [&loaded.ignored, &report.ignored] {
            assert!(ignored.len() <= 101, "{what}: {}", ignored.len());
        }
    }
}

#[test]
fn a_value_of_two_megabytes_is_quoted_in_part() {
    let long = "x".repeat(2 << 20);
    let places = [
        format!("{POLICY}metadata: {{name: a, namespace: {long}}}\nspec: {{}}\n"),
        format!("{POLICY}metadata: {{name: a, labels: {{{long}: {long}}}}}\nspec: {{}}\n"),
        format!("{POLICY}metadata: {{name: a}}\n\"{long}\": 1\n"),
        format!("{POLICY}metadata: {{name: a}}\nspec: {{\"{long}\": {long}}}\n"),
        format!("{POLICY}metadata: {{name: a}}\nspec: {{podSelector: {long}}}\n"),
        format!("{POLICY}metadata: {{name: a}}\nspec: {{policyTypes: [{long}]}}\n"),
        format!(
            "{POLICY}metadata: {{name: a}}\nspec: {{ingress: [{{ports: [{{port: {long}, protocol: {long}}}]}}]}}\n"
        ),
        format!(
            "{POLICY}metadata: {{name: a}}\nspec: {{ingress: [{{from: [{{ipBlock: {{cidr: {long}}}}}]}}]}}\n"
        ),
        format!(
            "{POLICY}metadata: {{name: a}}\nspec: {{podSelector: {{matchExpressions: [{{key: {long}, operator: {long}, values: [{long}]}}]}}}}\n"
        ),
        format!("apiVersion: {long}\nkind: {long}\nmetadata: {{name: a}}\n"),
        format!("apiVersion: v1\nkind: {long}List\nitems: 3\n"),
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{nodeName: {long}}}\nstatus: {{podIP: {long}}}\n"
        ),
        format!("a: !{long} 1\n"),
        format!("a: !!int {long}\n"),
        format!("{long}: 1\n{long}: 2\n"),
        format!("? [{long}]\n: 1\n"),
    ];
    for (at, text) in places.into_iter().enumerate() {
        let (loaded, report) = both(&one(text));
        for flaws in [&loaded.diagnostics, &report.problems] {
            assert!(size(flaws) < 20_000, "{at}: {}", size(flaws));
        }
        for kind in loaded.ignored.keys() {
            assert!(kind.len() < 600, "{at}: {}", kind.len());
        }
    }
}

#[test]
fn aliases_are_charged_for_the_text_they_repeat() {
    let long = "x".repeat(1 << 20);
    let item = "- {apiVersion: v1, kind: Pod, metadata: {name: *a, labels: {k: *a}}}\n";
    let key = "- {*a : 1}\n";
    for items in [item, key] {
        let text = format!(
            "apiVersion: v1\nkind: List\nx: &a {long}\nitems:\n{}",
            items.repeat(1_000)
        );
        let (loaded, report) = both(&one(text));
        let expected = "anchors and aliases of this file expand to more than 16777216 bytes of text; the \
                        rest of it is not read";
        assert_eq!(reasons(&loaded.diagnostics), [expected]);
        assert_eq!(reasons(&report.problems), [expected]);
    }
    let few = format!(
        "apiVersion: v1\nkind: List\nx: &a web\nitems:\n{}",
        item.repeat(1_000)
    );
    let (loaded, _) = both(&one(few));
    assert!(
        !reasons(&loaded.diagnostics)
            .iter()
            .any(|reason| reason.starts_with("anchors"))
    );
}

//! A big tree is first read in parts. What is in force afterwards is as if it had been read at once.

use crate::common::{self, Scene, manifest, policies};
use palisade_model::State;
use palisade_source::{Source, UpdateBatch};
use std::fmt::Write;
use std::ops::ControlFlow;

/// Some 200 KB of pods, numbered from a number on.
fn pods(from: usize) -> String {
    let mut text = String::new();
    for pod in from..from + 800 {
        let (third, fourth) = (pod / 250, pod % 250);
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: pod-with-a-name-of-usual-length-{pod}\n  \
             namespace: shop\n  labels: {{app: app-{}, version: v1, part-of: some-application}}\n\
             spec:\n  nodeName: node-1\n  serviceAccountName: default\nstatus:\n  phase: Running\n  \
             podIP: 10.0.{third}.{fourth}\n",
            pod % 10
        );
    }
    text
}

/// Every batch of a start until it is in sync, with the policies in force after it.
fn start(scene: &Scene, state: &mut State) -> Vec<(UpdateBatch, common::Policies)> {
    let mut set = scene.open_set().unwrap();
    let mut source = palisade_source::Directory::open(scene.options(), set.restored(0)).unwrap();
    let mut batches = Vec::new();
    let mut sink = |batch: UpdateBatch| {
        for update in &batch.updates {
            state.apply(update.clone());
        }
        let in_sync = batch.in_sync;
        batches.push((batch, policies(state)));
        if in_sync {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    source
        .run(&mut |delta, at| set.apply(0, delta, at, &mut sink))
        .unwrap();
    batches
}

#[test]
fn a_start_in_parts_ends_as_one_at_once() {
    let mut scene = Scene::with(&[("z.yaml", "web:80")]);
    scene.expect("before", "web:80");
    scene.stop();
    for file in 0..12 {
        scene.write(&format!("pods-{file:02}.yaml"), &pods(file * 800));
    }
    // The last file defines a pod of the first one again.
    let again = "nodeName: node-2";
    let last = pods(0).replace("node-1", "node-2");
    let end = last.match_indices("---").nth(1).unwrap().0;
    assert!(last[..end].contains(again));
    scene.write("pods-12.yaml", &last[..end]);
    scene.write("a.yaml", &manifest("web:81 api:70"));
    scene.write("m.yaml", &manifest("bad:99999 db:90"));
    let mut state = State::default();
    let batches = start(&scene, &mut state);
    assert!(batches.len() > 2, "{} batches", batches.len());
    let (last, parts) = batches.split_last().unwrap();
    for (batch, policies) in parts {
        assert!(!batch.in_sync);
        assert!(
            policies.is_empty(),
            "chosen when all are there: {policies:?}"
        );
    }
    assert_eq!(
        format!("{:?}", last.1),
        r#"{"api": "70", "bad": "isolated", "db": "90", "web": "80"}"#,
        "of two, the version that was in force before; one that was never valid isolates"
    );
    assert_eq!(
        last.0.report.retained.len(),
        3,
        "{:?}",
        last.0.report.retained
    );
    let reasons: Vec<&str> = (last.0.report.problems.iter())
        .map(|problem| &*problem.problem.reason)
        .collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    let loaded = palisade_source::load(&[&scene.root]);
    assert_eq!(state.endpoints.len(), 12 * 800);
    assert_eq!(state.endpoints, loaded.state.endpoints, "the first of two");
}

#[test]
fn what_is_open_for_writing_is_not_in_a_part() {
    let scene = Scene::new();
    for file in 0..12 {
        scene.write(&format!("pods-{file:02}.yaml"), &pods(file * 800));
    }
    let half = pods(800);
    let held = scene.begin("pods-01.yaml", &half[..half.len() / 2]);
    let mut state = State::default();
    let batches = start(&scene, &mut state);
    assert!(batches.len() > 2, "{} batches", batches.len());
    assert_eq!(state.endpoints.len(), 11 * 800);
    let (last, _) = batches.last().unwrap();
    let reasons: Vec<&str> = (last.report.problems.iter())
        .map(|problem| &*problem.problem.reason)
        .collect();
    assert!(
        reasons
            .iter()
            .any(|reason| reason.starts_with("another process has the file open")),
        "{reasons:?}"
    );
    drop(held);
}

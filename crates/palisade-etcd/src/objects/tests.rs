//! What answers of etcd change in the state in force.

use super::*;
use crate::key_layout::BundlePointer;
use crate::messages::ResponseHeader;
use palisade_effective::{BudgetUse, EffectiveObjects, ElementBudget};
use palisade_model::State;
use palisade_source::SnapshotStore;
use std::path::Path;

const CLUSTER: u64 = 7;
const ENDPOINT: &str = "http://e:2379";
const POLICIES: &str = "networking.k8s.io/NetworkPolicy/shop";

/// A source without a connection, and what is in force by what it passed on.
struct ReceivedObjects {
    progress: RemoteProgress<EtcdObjects>,
    effective: EffectiveObjects,
    state: State,
    /// The number of deltas, and the last one's state.
    deltas: usize,
    in_sync: bool,
    stale: Option<String>,
}

impl ReceivedObjects {
    fn new(state_dir: Option<&Path>) -> Self {
        let store = |dir| SnapshotStore::new(dir, "etcd", "here");
        ReceivedObjects {
            progress: RemoteProgress::new(EtcdObjects::new("/p"), "etcd", state_dir.map(store)),
            effective: EffectiveObjects::new(
                ["etcd".into()],
                ElementBudget::default(),
                BudgetUse::Advisory,
            ),
            state: State::default(),
            deltas: 0,
            in_sync: false,
            stale: None,
        }
    }

    /// Calls the source with a sink that puts everything in force.
    fn run(&mut self, act: impl FnOnce(&mut RemoteProgress<EtcdObjects>, DeltaSink<'_>)) {
        let ReceivedObjects {
            progress,
            effective,
            state,
            deltas,
            in_sync,
            stale,
        } = self;
        act(progress, &mut |delta, _| {
            *deltas += 1;
            *in_sync |= delta.in_sync;
            stale.clone_from(&delta.stale);
            effective.apply(0, delta, 0, &mut |update| state.apply(update));
            ControlFlow::Continue(())
        });
    }

    /// A complete read at a revision.
    fn read(&mut self, revision: i64, bundle: Option<&str>, keys: &[(&str, &str)]) {
        let pointer = bundle.map(|bundle| BundlePointer::new(bundle, 1, 0));
        let point = ReadPoint {
            revision,
            cluster: CLUSTER,
            pointer,
            pointer_revision: 1,
        };
        let layout = KeyLayout::new("/p");
        let values: Vec<_> = keys
            .iter()
            .filter_map(|(key, value)| {
                let area_key = match layout.role(key) {
                    KeyRole::Direct(path) => (KeyArea::Direct, path.into()),
                    KeyRole::Bundle(_, path) => (KeyArea::Pushed, path.into()),
                    _ => return None,
                };
                Some((area_key, key_value(key, value, revision)))
            })
            .collect();
        self.run(|progress, sink| {
            let _ = take_read(progress, &point, values, sink);
        });
    }

    /// One answer of the watch; passes on what it changes.
    fn answer(&mut self, answer: WatchResponse) -> Result<AnswerEffect, EtcdError> {
        let mut changes = self.progress.no_changes();
        let objects = &mut self.progress.objects;
        let effect = objects.take_answer(ENDPOINT, answer, &mut changes);
        if effect.is_ok() {
            objects.set_followed();
        }
        self.run(|progress, sink| {
            let _ = progress.pass_on(changes, None, sink);
        });
        effect
    }

    /// A failure of the connection.
    fn fail(&mut self, error: &EtcdError) {
        self.run(|progress, sink| {
            if progress.objects.take_failure(error) {
                let _ = progress.pass_on(progress.no_changes(), None, sink);
            }
        });
    }

    fn names(&self) -> Vec<String> {
        let names = self.state.policies.keys().map(ToString::to_string);
        names
            .map(|name| name.replace("NetworkPolicy ", ""))
            .collect()
    }

    fn problems(&mut self) -> Vec<String> {
        let problems = self.effective.report().problems.into_iter();
        problems.map(|d| d.problem.to_string()).collect()
    }
}

fn key_value(key: &str, value: &str, revision: i64) -> KeyValue {
    KeyValue {
        key: key.as_bytes().to_vec(),
        mod_revision: revision,
        value: value.as_bytes().to_vec(),
    }
}

fn events(events: &[(&str, Option<&str>, i64)]) -> WatchResponse {
    let event = |(key, value, revision): &(&str, Option<&str>, i64)| KeyEvent {
        kind: match value {
            Some(_) => KeyEventType::Put.into(),
            None => KeyEventType::Delete.into(),
        },
        kv: Some(key_value(key, value.unwrap_or_default(), *revision)),
    };
    WatchResponse {
        events: events.iter().map(event).collect(),
        ..WatchResponse::default()
    }
}

fn policy(name: &str, app: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{podSelector: {{matchLabels: {{app: {app}}}}}}}\n"
    )
}

fn direct(name: &str) -> String {
    format!("/p/objects/{POLICIES}/{name}")
}

fn pushed(bundle: &str, name: &str) -> String {
    format!("/p/bundles/{bundle}/{POLICIES}/{name}")
}

fn pointer(bundle: &str) -> String {
    serde_json::to_string(&BundlePointer::new(bundle, 1, 1)).unwrap()
}

#[test]
fn events_change_what_a_read_found_and_old_ones_change_nothing() {
    let mut follower = ReceivedObjects::new(None);
    let (a, b) = (policy("a", "x"), policy("b", "x"));
    follower.read(5, Some("g"), &[(&direct("a"), &a), (&pushed("g", "b"), &b)]);
    assert!(follower.in_sync);
    assert_eq!(follower.names(), ["shop/a", "shop/b"]);
    // Before the read, of another bundle, and of none of ours.
    let old = events(&[
        (&direct("a"), None, 5),
        (&pushed("h", "c"), Some(&policy("c", "x")), 6),
        ("/p/else", Some("x"), 7),
    ]);
    assert_eq!(follower.answer(old).unwrap(), AnswerEffect::Applied);
    assert_eq!(follower.names(), ["shop/a", "shop/b"]);
    assert_eq!(follower.progress.objects.revision(), Some(7));
    // The same value in another notation costs no delta.
    let deltas = follower.deltas;
    let again = format!("# a comment\n{a}");
    follower
        .answer(events(&[(&direct("a"), Some(&again), 8)]))
        .unwrap();
    assert_eq!(follower.deltas, deltas);
    let new = events(&[
        (&direct("a"), None, 9),
        (&pushed("g", "b"), None, 9),
        (&pushed("g", "d"), Some(&policy("d", "x")), 9),
    ]);
    follower.answer(new).unwrap();
    assert_eq!(follower.names(), ["shop/d"]);
    assert_eq!(follower.deltas, deltas + 1);
}

#[test]
fn another_bundle_is_read_as_a_whole() {
    let mut follower = ReceivedObjects::new(None);
    let b = policy("b", "x");
    follower.read(5, Some("g"), &[(&pushed("g", "b"), &b)]);
    // A pointer to the same bundle comes with its events.
    let same = events(&[
        (&pushed("g", "c"), Some(&policy("c", "x")), 6),
        ("/p/bundle", Some(&pointer("g")), 6),
    ]);
    assert_eq!(follower.answer(same).unwrap(), AnswerEffect::Applied);
    assert_eq!(follower.names(), ["shop/b", "shop/c"]);
    let other = events(&[
        (&direct("x"), Some(&policy("x", "x")), 7),
        ("/p/bundle", Some(&pointer("h")), 7),
    ]);
    assert_eq!(follower.answer(other).unwrap(), AnswerEffect::OtherBundle);
    assert_eq!(
        follower.names(),
        ["shop/b", "shop/c"],
        "nothing of it is taken in"
    );
    let deltas = follower.deltas;
    let d = policy("d", "x");
    follower.read(
        7,
        Some("h"),
        &[(&pushed("h", "b"), &b), (&pushed("h", "d"), &d)],
    );
    assert_eq!(follower.names(), ["shop/b", "shop/d"]);
    assert_eq!(follower.deltas, deltas + 1, "all at once");
    let deleted = events(&[("/p/bundle", None, 8)]);
    assert_eq!(follower.answer(deleted).unwrap(), AnswerEffect::OtherBundle);
}

#[test]
fn a_pointer_that_cannot_be_read_changes_nothing() {
    let mut follower = ReceivedObjects::new(None);
    follower.read(5, Some("g"), &[(&pushed("g", "b"), &policy("b", "x"))]);
    let wrong = events(&[(&pushed("g", "b"), None, 6), ("/p/bundle", Some("x"), 6)]);
    let error = follower.answer(wrong).unwrap_err().to_string();
    assert!(
        error.starts_with("the key /p/bundle is not what"),
        "{error}"
    );
    assert_eq!(follower.names(), ["shop/b"]);
    assert_eq!(follower.progress.objects.revision(), Some(5));
}

#[test]
fn a_compacted_watch_reads_everything_and_deletes_what_is_gone() {
    let mut follower = ReceivedObjects::new(None);
    let a = policy("a", "x");
    follower.read(
        5,
        None,
        &[(&direct("a"), &a), (&direct("b"), &policy("b", "x"))],
    );
    let cancelled = WatchResponse {
        canceled: true,
        compact_revision: 9,
        ..WatchResponse::default()
    };
    let error = follower.answer(cancelled).unwrap_err();
    assert!(matches!(error, EtcdError::Compacted(9)), "{error}");
    follower.fail(&error);
    assert_eq!(
        (follower.progress.objects.revision(), &follower.stale),
        (None, &None)
    );
    assert_eq!(follower.names(), ["shop/a", "shop/b"]);
    follower.read(9, None, &[(&direct("a"), &a)]);
    assert_eq!(follower.names(), ["shop/a"]);
}

#[test]
fn failures_delete_nothing_and_are_reported_from_the_second_on() {
    let mut follower = ReceivedObjects::new(None);
    follower.read(5, None, &[(&direct("a"), &policy("a", "x"))]);
    let error = EtcdError::Connection("no route".to_owned());
    follower.fail(&error);
    assert_eq!(follower.stale, None);
    follower.fail(&error);
    assert!(
        follower
            .stale
            .as_ref()
            .is_some_and(|stale| stale.contains("no route"))
    );
    assert_eq!(follower.names(), ["shop/a"]);
    let created = WatchResponse {
        created: true,
        ..WatchResponse::default()
    };
    follower.answer(created).unwrap();
    assert_eq!(follower.stale, None);
}

#[test]
fn an_etcd_with_another_history_is_read_again_by_content() {
    let mut follower = ReceivedObjects::new(None);
    follower.read(5, None, &[(&direct("a"), &policy("a", "x"))]);
    let point = |revision, cluster| ReadPoint {
        revision,
        cluster,
        pointer: None,
        pointer_revision: 0,
    };
    follower.progress.objects.check_position(&point(6, CLUSTER));
    assert_eq!(follower.progress.objects.revision(), Some(5));
    for other in [point(4, CLUSTER), point(9, CLUSTER + 1)] {
        follower.read(5, None, &[(&direct("a"), &policy("a", "x"))]);
        follower.progress.objects.check_position(&other);
        assert_eq!(follower.progress.objects.revision(), None);
    }
    // The same revision with another value.
    follower.read(5, None, &[(&direct("a"), &policy("a", "z"))]);
    let policy = follower.state.policies.values().next().unwrap();
    assert!(format!("{policy:?}").contains("\"z\""), "{policy:?}");
}

#[test]
fn only_answers_of_the_watch_itself_say_how_far_it_is() {
    let mut follower = ReceivedObjects::new(None);
    follower.read(5, None, &[]);
    let header = |revision| {
        Some(ResponseHeader {
            cluster_id: CLUSTER,
            revision,
        })
    };
    let answer = |watch_id, created, revision| WatchResponse {
        header: header(revision),
        watch_id,
        created,
        ..WatchResponse::default()
    };
    follower.answer(answer(-1, false, 9)).unwrap();
    follower.answer(answer(0, true, 9)).unwrap();
    assert_eq!(follower.progress.objects.revision(), Some(5));
    follower.answer(answer(0, false, 9)).unwrap();
    assert_eq!(follower.progress.objects.revision(), Some(9));
}

#[test]
fn a_value_that_cannot_be_read_fails_alone_and_by_its_key() {
    let mut follower = ReceivedObjects::new(None);
    let a = policy("a", "x");
    let nobody = "/p/objects/core/Pod/web";
    let several = format!("{a}---\n{a}");
    follower.read(
        5,
        None,
        &[
            (&direct("a"), &a),
            (&direct("b"), "{"),
            (&direct("c"), &a),
            (&direct("d"), &several),
            (&direct("e"), ""),
            (nobody, "x"),
        ],
    );
    assert_eq!(follower.names(), ["shop/a"]);
    let problems = follower.problems().join("\n");
    for expected in [
        "objects/networking.k8s.io/NetworkPolicy/shop/b",
        "whose key ends in networking.k8s.io/NetworkPolicy/shop/a: write it to that key",
        "the value holds 2 objects; a key holds one",
        "the value is empty",
        "objects/core/Pod/web: the key is not of the form GROUP/KIND/NAMESPACE/NAME",
    ] {
        assert!(problems.contains(expected), "{expected}: {problems}");
    }
    // What was valid stays while the value is not, and goes with the key.
    follower
        .answer(events(&[(&direct("a"), Some("{"), 6)]))
        .unwrap();
    assert_eq!(follower.names(), ["shop/a"]);
    follower.answer(events(&[(&direct("a"), None, 7)])).unwrap();
    assert_eq!(follower.names(), [""; 0]);
}

#[test]
fn an_object_that_is_pushed_and_written_stays_as_it_was_first() {
    let mut follower = ReceivedObjects::new(None);
    let (x, z) = (policy("a", "x"), policy("a", "z"));
    let has_only = |follower: &ReceivedObjects, app: &str| {
        let policies: Vec<_> = follower.state.policies.values().collect();
        policies.len() == 1 && format!("{policies:?}").contains(&format!("{app:?}"))
    };
    follower.read(5, Some("g"), &[(&pushed("g", "a"), &x)]);
    follower
        .answer(events(&[(&direct("a"), Some(&z), 6)]))
        .unwrap();
    assert!(has_only(&follower, "x"));
    let problems = follower.problems().join("\n");
    assert!(problems.contains("is defined twice"), "{problems}");
    follower
        .answer(events(&[(&pushed("g", "a"), None, 7)]))
        .unwrap();
    assert!(has_only(&follower, "z"));
    assert_eq!(follower.problems(), [""; 0]);
    follower.answer(events(&[(&direct("a"), None, 8)])).unwrap();
    assert!(follower.state.policies.is_empty());
}

#[test]
fn objects_of_other_kinds_are_counted() {
    let mut follower = ReceivedObjects::new(None);
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}";
    follower.read(5, None, &[("/p/objects/core/ConfigMap/shop/a", map)]);
    let report = follower.progress.report();
    assert_eq!(report.ignored.values().sum::<usize>(), 1, "{report:?}");
    let gone = events(&[("/p/objects/core/ConfigMap/shop/a", None, 6)]);
    follower.answer(gone).unwrap();
    assert!(follower.progress.report().ignored.is_empty());
}

#[test]
fn a_source_that_starts_goes_on_from_its_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = ReceivedObjects::new(Some(dir.path()));
    let (a, b) = (policy("a", "x"), policy("b", "x"));
    first.run(|progress, sink| {
        let _ = progress.restore(sink);
    });
    assert!(!first.in_sync);
    first.read(5, Some("g"), &[(&direct("a"), &a), (&pushed("g", "b"), &b)]);
    drop(first);
    let mut second = ReceivedObjects::new(Some(dir.path()));
    second.run(|progress, sink| {
        let _ = progress.restore(sink);
    });
    assert!(second.in_sync);
    assert_eq!(second.stale.as_deref(), Some(NO_ANSWER));
    assert_eq!(second.names(), ["shop/a", "shop/b"]);
    second.read(9, Some("h"), &[(&pushed("h", "b"), &b)]);
    assert_eq!(second.names(), ["shop/b"]);
}

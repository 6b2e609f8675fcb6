//! The cost of an edit in a large tree.

use crate::common;
use crate::common::dir_watch::FakeDirWatch;
use palisade_model::{State, Update};
use palisade_source::DirectoryOptions;
use palisade_sys::watch::{DirChange, DirWatch, WakeReason, WatchError, WatchEvent, WatchId};
use std::cell::Cell;
use std::fmt::Write;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

thread_local! {
    /// When the watch last reported a timeout without events.
    static QUIET: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A watch that reports a written file, then a timeout.
struct Edits {
    fake: FakeDirWatch,
}

impl DirWatch for Edits {
    fn add(&mut self, directory: &Path) -> Result<WatchId, WatchError> {
        self.fake.add(directory)
    }

    fn remove(&mut self, watch: WatchId) {
        self.fake.remove(watch);
    }

    #[allow(clippy::disallowed_methods, reason = "time is what is measured")]
    fn wait(&mut self, timeout: Option<Duration>) -> Result<WakeReason, WatchError> {
        match timeout {
            Some(Duration::ZERO) => Ok(WakeReason::TimedOut),
            Some(_) => {
                QUIET.set(Some(Instant::now()));
                Ok(WakeReason::TimedOut)
            }
            None => {
                let mut tree = self
                    .fake
                    .watched
                    .iter()
                    .filter(|(_, path)| path.ends_with("tree"));
                let event = WatchEvent::Changed {
                    watch: *tree.next().unwrap().0,
                    name: Some("7.yaml".into()),
                    is_dir: false,
                    change: DirChange::CloseWrite,
                };
                Ok(WakeReason::Events(vec![event]))
            }
        }
    }
}

/// One of 300 files with 1,000 policies and 2,000 pods in all.
fn file(number: usize, port: usize) -> String {
    let mut text = String::new();
    for policy in (0..1000).filter(|policy| policy % 300 == number) {
        text += &common::manifest(&format!("p{policy}:{port}"));
    }
    for pod in (0..2000).filter(|pod| pod % 300 == number) {
        let (high, low) = (pod / 250, pod % 250 + 1);
        write!(
            text,
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: pod{pod}\n  labels: {{app: a{}, tier: t{}}}\nspec:\n  \
             containers:\n  - name: c\n    ports: [{{name: http, containerPort: 8080}}]\nstatus: {{podIP: 10.1.{high}.{low}}}\n",
            pod % 40,
            pod % 3,
        )
        .unwrap();
    }
    text
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "time is what is measured; tests write files"
)]
fn an_edit_costs_what_is_edited() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("{number}.yaml")), file(number, 80)).unwrap();
    }
    std::thread::park_timeout(Duration::from_millis(100));
    let options = DirectoryOptions {
        path: root.clone(),
        settle: Duration::from_millis(50),
    };
    let state_dir = dir.path().join("state");
    let fake = FakeDirWatch::default();
    let start = Instant::now();
    let mut state = State::default();
    let mut times = Vec::new();
    let mut first = Duration::ZERO;
    common::follow(options, &state_dir, Edits { fake }, &mut |batch| {
        let end = Instant::now();
        let updates = batch.updates.len();
        batch
            .updates
            .into_iter()
            .for_each(|update: Update| state.apply(update));
        assert!(
            batch.report.problems.is_empty(),
            "{:?}",
            batch.report.problems
        );
        match QUIET.take() {
            None => {
                assert_eq!((updates, batch.report.objects), (3000, 3000));
                first = end - start;
            }
            Some(quiet) => {
                times.push(end - quiet);
                assert_eq!(updates, 4, "the policies of one file");
            }
        }
        if times.len() == 20 {
            return ControlFlow::Break(());
        }
        fs::write(root.join("7.yaml"), file(7, 81 + times.len())).unwrap();
        ControlFlow::Continue(())
    });
    times.sort();
    let median = times[times.len() / 2];
    println!(
        "300 files, 3000 objects: first batch {first:?}; an edit of one file, end of settle to batch {:?} at best, median {median:?}",
        times[0]
    );
    // Far above the cost of one file, far below that of a full scan.
    assert!(
        median < first / 4,
        "an edit {median:?}, everything {first:?}"
    );
}

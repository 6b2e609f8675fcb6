//! Watches that fail, lose events or are never quiet, and what the source makes of it.

use crate::common::dir_watch::FakeDirWatch;
use crate::common::{self, IDLE, SETTLE, Scene, manifest};
use palisade_sys::watch::{
    DirChange, DirWatch, InotifyWatch, WakeReason, WatchError, WatchEvent, WatchId,
};
use std::collections::VecDeque;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A watch that fails for one folder for some time, as without free inotify watches.
struct Full {
    fake: FakeDirWatch,
    refusals: usize,
    waits: Arc<Mutex<Vec<Option<Duration>>>>,
}

impl DirWatch for Full {
    fn add(&mut self, directory: &Path) -> Result<WatchId, WatchError> {
        if directory.ends_with("sub") && self.refusals > 0 {
            self.refusals -= 1;
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            let path = directory.to_owned();
            return Err(WatchError::Add { path, source });
        }
        self.fake.add(directory)
    }

    fn remove(&mut self, watch: WatchId) {
        self.fake.remove(watch);
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<WakeReason, WatchError> {
        if timeout == Some(Duration::ZERO) {
            return Ok(WakeReason::TimedOut);
        }
        self.waits.lock().unwrap().push(timeout);
        Ok(match timeout {
            None => WakeReason::Stopped,
            Some(_) => WakeReason::TimedOut,
        })
    }
}

#[test]
fn a_folder_that_cannot_be_watched_is_tried_again_until_it_can() {
    let scene = Scene::new();
    scene.put("sub/web.yaml", "web:80");
    let waits = Arc::default();
    let watch = Full {
        fake: FakeDirWatch::default(),
        refusals: 9,
        waits: Arc::clone(&waits),
    };
    let mut told = Vec::new();
    common::follow(scene.options(), &scene.state_dir, watch, &mut |batch| {
        told.push(batch.report.problems);
        ControlFlow::Continue(())
    });
    let reasons: Vec<String> = (told.iter())
        .map(|flaws| flaws.iter().map(|f| f.problem.reason.clone()).collect())
        .collect();
    assert!(
        reasons[0].starts_with("cannot watch this folder; until it can be watched,"),
        "{reasons:?}"
    );
    assert!(reasons[0].ends_with("raise fs.inotify.max_user_watches"));
    assert_eq!(reasons.last().unwrap(), "", "{reasons:?}");
    // Whole seconds: a wait is the rest of the delay, and the first may be for the files to age.
    let seconds = |wait: &Option<Duration>| wait.map(|wait| wait.as_secs_f64().round() as u64);
    let waits: Vec<_> = waits.lock().unwrap().iter().map(seconds).collect();
    let delays: Vec<u64> = waits.iter().flatten().copied().filter(|s| *s > 0).collect();
    assert!(delays.ends_with(&[1, 2, 4, 8, 16, 32, 60]), "{delays:?}");
    assert_eq!(waits.last(), Some(&None), "then nothing is waited for");
}

/// A watch that loses events on request.
struct Lossy {
    real: InotifyWatch,
    lose: Arc<Mutex<bool>>,
}

impl DirWatch for Lossy {
    fn add(&mut self, directory: &Path) -> Result<WatchId, WatchError> {
        self.real.add(directory)
    }

    fn remove(&mut self, watch: WatchId) {
        self.real.remove(watch);
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<WakeReason, WatchError> {
        loop {
            let wake = self.real.wait(timeout)?;
            let mut lose = self.lose.lock().unwrap();
            match (&wake, *lose) {
                (WakeReason::Events(events), true) => {
                    // The last event of a burst reports that events were lost.
                    let end = |event: &WatchEvent| matches!(event, WatchEvent::Changed { name: Some(name), .. } if name == "end");
                    if events.iter().any(end) {
                        *lose = false;
                        return Ok(WakeReason::Events(vec![WatchEvent::Overflow]));
                    }
                }
                _ => return Ok(wake),
            }
        }
    }
}

#[test]
fn lost_events_lead_to_another_look() {
    let scene = Scene::new();
    scene.put("web.yaml", "web:80");
    scene.put("db.yaml", "db:90");
    let lose = Arc::new(Mutex::new(false));
    let real = InotifyWatch::new().unwrap();
    let stopper = real.stopper();
    let watch = Lossy {
        real,
        lose: Arc::clone(&lose),
    };
    let (options, state_dir) = (scene.options(), scene.state_dir.clone());
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let thread = std::thread::spawn(move || {
        let mut state = palisade_model::State::default();
        common::follow(options, &state_dir, watch, &mut |batch| {
            batch
                .updates
                .into_iter()
                .for_each(|update| state.apply(update));
            seen.lock().unwrap().push(common::policies(&state));
            ControlFlow::Continue(())
        });
    });
    let wait = || std::thread::park_timeout(IDLE * 2);
    wait();
    *lose.lock().unwrap() = true;
    // While no source runs: one file is half written and held open, a folder with a file is created, a file
    // is removed.
    let half = manifest("web:81");
    let held = scene.begin("web.yaml", &half[..half.len() / 2]);
    fs::create_dir(scene.at("new")).unwrap();
    scene.put("new/api.yaml", "api:70");
    scene.remove("db.yaml");
    scene.write("end", "");
    wait();
    let last = || told.lock().unwrap().last().cloned().unwrap();
    let shown = |moment: common::Policies| format!("{moment:?}");
    assert_eq!(
        shown(last()),
        r#"{"api": "70", "db": "90", "web": "80"}"#,
        "the file that is open counts as before, and so nothing goes"
    );
    drop(held);
    scene.put("web.yaml", "web:82");
    wait();
    assert_eq!(shown(last()), r#"{"api": "70", "web": "82"}"#);
    assert!(
        told.lock()
            .unwrap()
            .iter()
            .all(|moment| moment.contains_key("web"))
    );
    stopper.stop();
    thread.join().unwrap();
}

#[test]
#[allow(clippy::disallowed_methods, reason = "tests write files as tools do")]
fn a_tree_that_is_never_quiet_is_looked_at_but_loses_nothing() {
    let scene = Scene::new();
    scene.put("web.yaml", "web:80");
    // Ages the tree, so that the first scan finds it quiet.
    std::thread::park_timeout(SETTLE * 2);
    let fake = FakeDirWatch::default();
    let watch = Restless { fake, left: 400 };
    let mut moments = Vec::new();
    let mut state = palisade_model::State::default();
    let root = scene.root.clone();
    common::follow(scene.options(), &scene.state_dir, watch, &mut |batch| {
        batch
            .updates
            .into_iter()
            .for_each(|update| state.apply(update));
        moments.push(common::policies(&state));
        if moments.len() == 1 {
            fs::remove_file(root.join("web.yaml")).unwrap();
            fs::write(root.join("db.yaml"), manifest("db:90")).unwrap();
        }
        ControlFlow::Continue(())
    });
    let moments: Vec<String> = moments.iter().map(|moment| format!("{moment:?}")).collect();
    assert_eq!(
        moments,
        [
            r#"{"web": "80"}"#,
            r#"{"db": "90", "web": "80"}"#,
            r#"{"db": "90"}"#
        ],
        "what is new counts though it is never quiet; what is missing goes when it is"
    );
}

/// Events about one file, some milliseconds apart, then quiet, then stop.
struct Restless {
    fake: FakeDirWatch,
    left: u32,
}

impl DirWatch for Restless {
    fn add(&mut self, directory: &Path) -> Result<WatchId, WatchError> {
        self.fake.add(directory)
    }

    fn remove(&mut self, watch: WatchId) {
        self.fake.remove(watch);
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<WakeReason, WatchError> {
        if timeout == Some(Duration::ZERO) {
            return Ok(WakeReason::TimedOut);
        }
        if self.left == 0 {
            // A timeout first, then the stop.
            return self.fake.wait(timeout).map(|wake| match timeout {
                Some(_) => wake,
                None => WakeReason::Stopped,
            });
        }
        std::thread::park_timeout(Duration::from_millis(5));
        self.left -= 1;
        let mut tree = self
            .fake
            .watched
            .iter()
            .filter(|(_, path)| path.ends_with("tree"));
        let watch = *tree.next().unwrap().0;
        let event = WatchEvent::Changed {
            watch,
            name: Some("busy.yaml".into()),
            is_dir: false,
            change: DirChange::CloseWrite,
        };
        self.fake.wakes = VecDeque::new();
        Ok(WakeReason::Events(vec![event]))
    }
}

//! A tree of manifests on disk, a source that follows it, and the batches of the source.
//!
//! Policies are written `name:port` (a NetworkPolicy that allows that port), and shown the same way;
//! `name:isolated` is one that allows nothing. After every step the whole state is compared, as is every
//! batch on the way: a policy that exists before and after a step must not be missing in between, and must be
//! either its old or its new version.

pub(crate) mod dir_watch;

use palisade_effective::{EffectiveReport, ElementBudget};
use palisade_model::{PortRange, PortSpec, State};
use palisade_source::{
    Directory, DirectoryOptions, ElementBudgetHandle, Source, SourceHandle, SourceSet, UpdateBatch,
};
use palisade_sys::watch::DirWatch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const SETTLE: Duration = Duration::from_millis(25);
/// A state is final after no event for this long.
pub(crate) const IDLE: Duration = Duration::from_millis(130);
const PATIENCE: Duration = Duration::from_secs(10);

/// The manifest of policies written `name:port`, separated by spaces.
pub(crate) fn manifest(policies: &str) -> String {
    policies
        .split_whitespace()
        .map(|policy| {
            let (name, port) = policy.split_once(':').unwrap();
            format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: {name}\n\
                 spec:\n  podSelector: {{}}\n  ingress:\n  - ports:\n    - port: {port}\n"
            )
        })
        .collect()
}

pub(crate) type Policies = BTreeMap<String, String>;

/// The policies of a state.
pub(crate) fn policies(state: &State) -> Policies {
    let shown = state.policies.values().map(|policy| {
        let rules = policy.ingress.as_ref().map_or(&[][..], |d| &d.rules);
        let ports = rules.iter().flat_map(|rule| &rule.traffic).map(|traffic| {
            match traffic.destination.any_of.as_deref() {
                Some([PortSpec::Range(PortRange { first, .. })]) => first.to_string(),
                other => format!("{other:?}"),
            }
        });
        let ports: Vec<String> = ports.collect();
        let shown = if ports.is_empty() {
            "isolated".to_owned()
        } else {
            ports.join(",")
        };
        (policy.id.object.name.to_string(), shown)
    });
    shown.collect()
}

/// Changes the budget of a running source.
#[derive(Clone)]
pub(crate) struct Allow(ElementBudgetHandle, SourceHandle);

impl Allow {
    pub(crate) fn set(&self, budget: ElementBudget) {
        if self.0.set(budget) {
            self.1.refresh();
        }
    }
}

/// Follows a tree from this state directory until the sink breaks.
pub(crate) fn follow<W: DirWatch + Send>(
    options: DirectoryOptions,
    state_dir: &Path,
    watch: W,
    sink: &mut dyn FnMut(UpdateBatch) -> ControlFlow<()>,
) {
    let mut set =
        SourceSet::open(["directory".into()], state_dir, ElementBudget::default()).unwrap();
    let mut source = Directory::with_watch(options, set.restored(0), watch).unwrap();
    source
        .run(&mut |delta, at| set.apply(0, delta, at, sink))
        .unwrap();
}

pub(crate) struct Scene {
    _dir: TempDir,
    pub(crate) top: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) state_dir: PathBuf,
    /// The element budget.
    pub(crate) budget: ElementBudget,
    /// Changes the budget while the source runs.
    pub(crate) allow: Option<Allow>,
    running: Option<(SourceHandle, JoinHandle<()>)>,
    batches: Option<Receiver<UpdateBatch>>,
    state: State,
    last: Option<UpdateBatch>,
    pub(crate) history: Vec<Policies>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Scene {
    /// An empty tree without a source.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("tree");
        fs::create_dir(&root).unwrap();
        Scene {
            state_dir: top.join("state"),
            top,
            root,
            budget: ElementBudget::default(),
            allow: None,
            _dir: dir,
            running: None,
            batches: None,
            state: State::default(),
            last: None,
            history: Vec::new(),
        }
    }

    /// A tree with these files and a running source.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let mut scene = Scene::new();
        for (name, policies) in files {
            scene.write(name, &manifest(policies));
        }
        scene.start();
        scene
    }

    pub(crate) fn options(&self) -> DirectoryOptions {
        DirectoryOptions {
            path: self.root.clone(),
            settle: SETTLE,
        }
    }

    /// Opens the stored versions.
    pub(crate) fn open_set(&self) -> Result<SourceSet, palisade_source::SourceError> {
        SourceSet::open(["directory".into()], &self.state_dir, self.budget)
    }

    /// Starts a source, as after a reboot: only the files on disk remain.
    pub(crate) fn start(&mut self) {
        let mut set = self.open_set().unwrap();
        let mut source = Directory::open(self.options(), set.restored(0)).unwrap();
        let stop = source.handle();
        self.allow = Some(Allow(set.budget_handle(), source.handle()));
        let (send, batches) = channel();
        let thread = std::thread::spawn(move || {
            source
                .run(&mut |delta, at| {
                    set.apply(0, delta, at, &mut |batch| match send.send(batch) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    })
                })
                .unwrap();
        });
        self.state = State::default();
        self.last = None;
        self.running = Some((stop, thread));
        self.batches = Some(batches);
    }

    pub(crate) fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.stop();
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
        self.batches = None;
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start();
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes a file in place at once, as `cat > file` does.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn put(&self, name: &str, policies: &str) {
        self.write(name, &manifest(policies));
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.at(name)).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    /// Opens a file like an editor that truncates it, writes a first piece, and keeps it open.
    pub(crate) fn begin(&self, name: &str, piece: &str) -> File {
        let mut file = File::create(self.at(name)).unwrap();
        file.write_all(piece.as_bytes()).unwrap();
        file
    }

    /// Runs a program in the tree; fails the test if the program fails.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program)
            .args(arguments)
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .status()
            .unwrap();
        assert!(status.success(), "{program} {arguments:?}: {status}");
    }

    fn receive(&mut self, timeout: Duration) -> bool {
        match self.batches.as_ref().unwrap().recv_timeout(timeout) {
            Ok(batch) => {
                assert!(batch.in_sync);
                for update in &batch.updates {
                    self.state.apply(update.clone());
                }
                self.history.push(policies(&self.state));
                self.last = Some(batch);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => panic!("the source has ended"),
        }
    }

    /// The present state: the policies in force, `!` for each error (`?` for each warning), `kept` for each
    /// retained object.
    pub(crate) fn shown(&self) -> String {
        let mut lines: Vec<String> = policies(&self.state)
            .iter()
            .map(|(name, ports)| format!("{name}:{ports}"))
            .collect();
        let mut shown = lines.join(" ");
        lines.clear();
        let Some(batch) = &self.last else {
            return "nothing said".to_owned();
        };
        for flaw in &batch.report.problems {
            let file = flaw.problem.location.file.to_string();
            let below = |root: &Path| {
                let prefix = format!("{}/", root.display());
                file.strip_prefix(&prefix).map(str::to_owned)
            };
            let file = below(&self.root)
                .or(below(&self.top))
                .unwrap_or(file.clone());
            let mark = if flaw.is_error() { '!' } else { '?' };
            let field = &flaw.problem.field;
            let reason = flaw
                .problem
                .reason
                .replace(&format!("{}/", self.root.display()), "");
            let reason: String = reason.chars().take(48).collect();
            let reason = reason.trim();
            let line = flaw.problem.location.line;
            lines.push(format!("{mark} {file}:{line} {field}: {reason}"));
        }
        for kept in &batch.report.retained {
            let since = if kept.since.is_some() {
                ""
            } else {
                " never valid"
            };
            lines.push(format!("kept {}{since}", kept.object));
        }
        for line in lines {
            shown.push('\n');
            shown.push_str(&line);
        }
        shown
    }

    /// Waits until exactly this is shown and stays so.
    pub(crate) fn expect(&mut self, what: &str, expected: &str) {
        self.expect_among(what, expected, &BTreeMap::new());
    }

    /// The same, where policies may also have had these values in between: the files had them for
    /// longer than the settle time.
    pub(crate) fn expect_among(
        &mut self,
        what: &str,
        expected: &str,
        between: &BTreeMap<String, BTreeSet<Option<String>>>,
    ) {
        let before = policies(&self.state);
        let from = self.history.len();
        let expected: Vec<&str> = expected.lines().map(str::trim).collect();
        let expected = expected.join("\n");
        let start = Instant::now();
        loop {
            let news = self.receive(IDLE);
            if !news && (self.shown() == expected || start.elapsed() > PATIENCE) {
                break;
            }
        }
        assert_eq!(self.shown(), expected, "{what}");
        let after = policies(&self.state);
        for (number, moment) in self.history[from..].iter().enumerate() {
            for (name, old) in &before {
                let Some(new) = after.get(name) else { continue };
                let at_the_moment = moment.get(name);
                let among = between.get(name);
                assert!(
                    at_the_moment == Some(old)
                        || at_the_moment == Some(new)
                        || among.is_some_and(|values| values.contains(&at_the_moment.cloned())),
                    "{what}: batch {number}: {name} is {at_the_moment:?}, before {old}, after {new}"
                );
            }
        }
        assert_eq!(
            self.last.as_ref().unwrap().report.objects,
            self.state.policies.len(),
            "{what}: objects counted"
        );
    }

    /// Waits longer than the settle time; nothing may change.
    pub(crate) fn unchanged(&mut self, what: &str) {
        let shown = self.shown();
        self.expect(what, &shown);
    }

    /// Receives batches until there are no more.
    pub(crate) fn quiet(&mut self) {
        while self.receive(IDLE) {}
    }

    /// Waits until a condition holds and no more batches arrive.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Scene) -> bool) {
        let start = Instant::now();
        while self.receive(IDLE) || !holds(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.shown());
        }
    }

    /// When the changes of the last batch were detected.
    pub(crate) fn detected_at(&self) -> Option<Instant> {
        self.last.as_ref()?.detected_at
    }

    /// The last report of the source; `None` before the first.
    pub(crate) fn report(&self) -> Option<&EffectiveReport> {
        self.last.as_ref().map(|batch| &batch.report)
    }
}

//! A source that is followed, and the objects of a small server.

use palisade_effective::{EffectiveReport, ElementBudget};
use palisade_kubernetes::{ApiServer, Credentials};
use palisade_model::{ObjectKey, State, Update};
use palisade_remote::RemoteSource;
use palisade_source::{SnapshotStore, Source, SourceHandle, SourceSet};
use palisade_testkit::FakeApiServer;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const PODS: &str = "/api/v1/pods";
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
pub(crate) const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";

/// A source that is followed, and what it has in force.
pub(crate) struct RunningSource {
    pub(crate) seen: Arc<(Mutex<Seen>, Condvar)>,
    stop: SourceHandle,
    thread: Option<JoinHandle<()>>,
    dir: Option<tempfile::TempDir>,
}

#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub(crate) state: State,
    pub(crate) in_sync: bool,
    pub(crate) report: EffectiveReport,
    /// The number of batches with updates.
    pub(crate) batches: usize,
    /// The number of updates of all batches.
    pub(crate) updates: usize,
    /// The names of the policies that were deleted.
    pub(crate) deleted: Vec<String>,
}

impl RunningSource {
    pub(crate) fn start(server: &FakeApiServer) -> Self {
        RunningSource::start_in(tempfile::tempdir().unwrap(), server)
    }

    /// The same with the files of another.
    pub(crate) fn start_in(dir: tempfile::TempDir, server: &FakeApiServer) -> Self {
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, server.kubeconfig()).unwrap();
        let snapshot = SnapshotStore::new(dir.path(), "kubernetes", "here");
        let server = ApiServer::new(Credentials::Kubeconfig(path))
            .with_absent_interval(Duration::from_millis(100));
        let mut source = RemoteSource::new(server, Some(snapshot));
        let stop = source.handle();
        let names = ["kubernetes".into()];
        let mut sources = SourceSet::open(names, dir.path(), ElementBudget::default()).unwrap();
        let seen: Arc<(Mutex<Seen>, Condvar)> = Arc::default();
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let mut apply = |delta, detected_at| {
                sources.apply(0, delta, detected_at, &mut |batch| {
                    let mut seen = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.batches += usize::from(!batch.updates.is_empty());
                    seen.updates += batch.updates.len();
                    for update in batch.updates {
                        if let Update::Delete(ObjectKey::Policy(id)) = &update {
                            seen.deleted.push(id.object.name.to_string());
                        }
                        seen.state.apply(update);
                    }
                    (seen.in_sync, seen.report) = (batch.in_sync, batch.report);
                    shared.1.notify_all();
                    ControlFlow::Continue(())
                })
            };
            source.run(&mut apply).unwrap();
        });
        RunningSource {
            seen,
            stop,
            thread: Some(thread),
            dir: Some(dir),
        }
    }

    /// Ends it; returns its files.
    pub(crate) fn end(mut self) -> tempfile::TempDir {
        self.dir.take().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.as_ref().unwrap().path().join(name)
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, is_reached: impl Fn(&Seen) -> bool) -> Seen {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_reached(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "{what}: {:?}, {:#?}, {:#?}",
                names(&seen.state),
                seen.state,
                seen.report
            );
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
        seen.clone()
    }
}

impl Drop for RunningSource {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// The names of the endpoints and policies.
pub(crate) fn names(state: &State) -> Vec<String> {
    let pods = state.endpoints.keys().map(ToString::to_string);
    let policies = state.policies.keys().map(|id| id.object.to_string());
    pods.chain(policies).collect()
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}})
}

pub(crate) fn pod(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

pub(crate) fn policy(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"podSelector": {"matchLabels": {"app": app}}, "policyTypes": ["Ingress"]},
    })
}

pub(crate) fn shop() -> FakeApiServer {
    let server = FakeApiServer::start().unwrap();
    server.put(NAMESPACES, namespace("shop"));
    server.put(PODS, pod("web", "10.0.0.1"));
    server.put(POLICIES, policy("deny", "web"));
    server
}

//! A node that serves, and the published programs that ask it.

use palisade_flows::agent_event::{AgentEvent, EndpointEvent, PolicyEvent};
use palisade_flows::recent::RecentLines;
use palisade_hubble::{HubbleConfig, HubbleListener, HubblePeer, HubbleService, HubbleTls, serve};
use palisade_model::{ObjectId, ObjectKind};
use palisade_testkit::runtimes::RuntimePrograms;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

/// A serving node, until dropped.
pub(crate) struct ServingNode {
    dir: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) lines: RecentLines,
    pub(crate) peers: watch::Sender<Vec<HubblePeer>>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// When the process of a node started, since the epoch.
pub(crate) const STARTED: Duration = Duration::from_secs(1);

/// The time since the epoch.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
}

/// One event of each kind.
fn agent_events() -> RecentLines<AgentEvent> {
    let object = |kind, name: &str| ObjectId {
        namespace: Some("shop".into()),
        name: name.into(),
        kind,
    };
    let policy = |rules| PolicyEvent {
        object: object(ObjectKind::new("networking.k8s.io", "NetworkPolicy"), "db"),
        revision: 7,
        rules,
    };
    let endpoint = || EndpointEvent {
        id: object(ObjectKind::new("", "Pod"), "web"),
        labels: Arc::new([("app".into(), "web".into())].into()),
    };
    let events = RecentLines::new(16);
    for event in [
        AgentEvent::Started,
        AgentEvent::PolicyUpdated(policy(2)),
        AgentEvent::EndpointCreated(endpoint()),
        AgentEvent::EndpointChanged(endpoint()),
        AgentEvent::EndpointDeleted(endpoint()),
        AgentEvent::PolicyDeleted(policy(0)),
    ] {
        events.push(now(), event);
    }
    events
}

impl ServingNode {
    /// A node with room for this many lines, on a socket and an address.
    pub(crate) fn start(name: &str, capacity: usize, tls: Option<HubbleTls>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lines = RecentLines::new(capacity);
        let (peers, given_peers) = watch::channel(Vec::new());
        let (end, ended) = oneshot::channel::<()>();
        let (opened, opening) = std::sync::mpsc::channel();
        let socket = dir.path().join("hubble.sock");
        let (name, served) = (name.to_owned(), lines.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let with_tls = tls.is_some();
                let any = "127.0.0.1:0".parse().unwrap();
                let tcp = HubbleListener::tcp(any, tls).await.unwrap();
                let address = tcp.local_address().unwrap();
                let service = HubbleService::new(HubbleConfig {
                    node: name.clone(),
                    node_labels: vec!["zone=east".to_owned()],
                    cluster: "default".to_owned(),
                    version: "palisade-test".to_owned(),
                    lines: served,
                    events: agent_events(),
                    peers: given_peers,
                    own: Some(HubblePeer {
                        node: name,
                        address: address.to_string(),
                        tls: with_tls,
                    }),
                    started: STARTED,
                    clock: Arc::new(now),
                });
                let unix = HubbleListener::unix(&socket).unwrap();
                opened.send(address).unwrap();
                let end = async { drop(ended.await) };
                serve(service, vec![unix, tcp], end).await.unwrap();
            });
        });
        ServingNode {
            address: opening.recv().unwrap(),
            dir,
            lines,
            peers,
            end: Some(end),
            thread: Some(thread),
        }
    }

    /// What Hubble's command reaches it by.
    pub(crate) fn server(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("hubble.sock")
    }
}

impl Drop for ServingNode {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Hubble's command and relay; absent, after a loud line, where this machine cannot have them.
pub(crate) fn programs() -> Option<[PathBuf; 2]> {
    let hubble = RuntimePrograms::hubble()?;
    let relay = hubble.with_file_name("hubble-relay");
    Some([hubble, relay])
}

/// A command of Hubble that asks a server.
pub(crate) fn command(hubble: &Path, server: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(hubble);
    command
        .args(arguments)
        .args(["--server", server])
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    command
}

/// What a command prints; it must succeed.
pub(crate) fn run(hubble: &Path, server: &str, arguments: &[&str]) -> String {
    let output = output(hubble, server, arguments);
    let [printed, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{arguments:?}: {errors}{printed}");
    printed.into_owned()
}

pub(crate) fn output(hubble: &Path, server: &str, arguments: &[&str]) -> Output {
    command(hubble, server, arguments).output().unwrap()
}

//! Bootstrap: in what order an agent comes up, and how it goes down.
//!
//! State directory and lock, kernel settings, remembered workloads and their addresses, the source,
//! then the kernel read back and brought in line, and only then the API's socket. Each step is timed
//! for status. Going down stops the threads and leaves the kernel as it is: enforcement goes on.

use crate::attach::{Attach, AttachError, KernelAttach};
use crate::clock::{Clock, SystemClock, millis};
use crate::config::{Config, HostToEndpoint};
use crate::core::{Core, Event, Handle, Parts, chain};
use crate::host::Changes;
use crate::http::doors::{DoorError, Doors};
use crate::http::server::{self, Door, Room};
use crate::log::Log;
use crate::workloads::WorkloadError;
use palisade_api::Stage;
use palisade_dataplane::{Dataplane, NftConfig, NftDataplane, Tamper, TamperWatch};
use palisade_source::{Directory, DirectoryOptions, Source};
use palisade_sys::link::{KernelLinkEvents, LinkEvents};
use palisade_sys::lock::{InstanceLock, LockError};
use palisade_sys::netns::NetNs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long the start waits for the source before the socket opens anyway.
const SYNC_WAIT: Duration = Duration::from_secs(30);

/// Why the agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or directory of ours cannot be used.
    #[error("{doing} {path}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// Another agent runs.
    #[error("starting: {0}")]
    Lock(#[from] LockError),
    /// The host's namespace cannot be opened.
    #[error("opening this host's network namespace")]
    Host(#[from] AttachError),
    /// The dataplane cannot be used.
    #[error("opening the dataplane")]
    Dataplane(#[from] palisade_dataplane::Error),
    /// The remembered workloads cannot be taken over.
    #[error("restoring workloads")]
    Restore(#[from] WorkloadError),
    /// The source cannot be opened.
    #[error("opening the source")]
    Source(#[from] palisade_source::SourceError),
    /// A thread or the runtime could not be started.
    #[error("starting {0}")]
    Thread(&'static str, #[source] io::Error),
    /// A door of the API cannot be opened.
    #[error("opening the API")]
    Door(#[from] DoorError),
    /// The socket does not take connections any more.
    #[error("serving the API")]
    Serving(#[source] io::Error),
    /// A part of the agent ended by itself.
    #[error("{0} ended by itself")]
    Ended(&'static str),
}

/// Runs the agent until it is told to stop by SIGTERM or SIGINT.
///
/// # Errors
/// See [`RunError`].
pub fn run(config: Config, log: Log) -> Result<(), RunError> {
    let clock = SystemClock;
    let mut stages = Stages {
        clock: &clock,
        done: Vec::new(),
    };
    let lock = stages.time("state directory", || prepare_directories(&config))?;
    stages.time("kernel settings", || prepare_kernel(&config))?;
    let dataplane = stages.time("dataplane", || {
        NftDataplane::new(NftConfig {
            table: config.table.clone(),
            interface_prefix: config.interface_prefix.clone(),
            mark_mask: config.mark_mask,
            judge_host_traffic: config.host_to_endpoint == HostToEndpoint::Policy,
            log_group: Some(config.monitor_group),
        })
    })?;
    let tamper = dataplane.tamper_watch()?;
    let packets = dataplane.packet_watch().unwrap_or_else(|error| {
        tracing::warn!(error = %chain(&error), "`palisade monitor` shows no packets");
        None
    });
    let source = stages.time("source", || {
        Directory::open(DirectoryOptions {
            path: config.directory.clone(),
            settle: config.settle,
            state_dir: config.state_dir.clone(),
        })
    })?;
    let (handle, events) = Handle::channel();
    let doors = Doors::new(&config);
    let config_file = config.file.as_ref().map(|file| file.path.clone());
    let mut core = Core::new(Parts {
        config,
        dataplane: Box::new(dataplane),
        attach: Box::new(KernelAttach::current()?),
        clock: Box::new(clock),
        source: source.describe(),
    });
    stages.time("workloads restored", || core.restore())?;
    core.bootstrap = stages.done;
    let settle = source.settle_handle();
    core.on_config(Box::new(move |config| {
        log.set(&config.log_level, config.log_json);
        settle.set(config.settle);
    }));

    let stop_source = source.stop_handle();
    let to_core = handle.clone();
    let source_thread = thread("source", move || follow_source(source, &to_core))?;
    let to_core = handle.clone();
    thread("tamper-watch", move || watch_tampering(tamper, &to_core))?;
    if let Some(packets) = packets {
        let to_core = handle.clone();
        let follow = move || crate::monitor::feed::follow(packets, &to_core);
        // Not waited for at the end, as the other watchers: it waits for packets only.
        thread("packet-watch", follow)?;
    }
    let links = KernelLinkEvents::open_wide(&NetNs::current().map_err(AttachError::from)?)
        .map_err(AttachError::from)?;
    let to_core = handle.clone();
    thread("host-watch", move || watch_host(links, &to_core))?;
    // What happened before anybody listened.
    let (changes, seen) = (Changes::everything(), clock.monotonic());
    handle.send(Event::HostChanged { changes, seen });
    if let Some(path) = config_file {
        let to_core = handle.clone();
        thread("config-watch", move || {
            crate::reload::follow(&path, &to_core)
        })?;
    }
    let (core_ended, wait_for_core) = tokio::sync::oneshot::channel();
    let core_thread = thread("core", move || {
        core.run(&events);
        // The receiver is gone only when the agent is already going down.
        let _ = core_ended.send(());
    })?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Thread("the runtime", error))?;
    let served = runtime.block_on(async {
        let hangups = signal(SignalKind::hangup())
            .map_err(|error| RunError::Thread("signal handling", error))?;
        tokio::spawn(crate::reload::on_hangup(hangups, handle.clone()));
        serve(&handle, &doors, wait_for_core).await
    });
    tracing::info!("stopping; the kernel keeps enforcing");
    stop_source.stop();
    handle.send(Event::Stop);
    for ending in [core_thread, source_thread] {
        if ending.join().is_err() {
            tracing::error!("a thread panicked");
        }
    }
    drop(lock);
    served
}

/// Hands in what the source says, until it or the core ends.
fn follow_source(mut source: impl Source, core: &Handle) {
    let ended = source.run(&mut |batch| match core.send(Event::Source(batch)) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    // Without an error it was told to stop.
    if let Err(error) = ended {
        core.send(Event::SourceEnded(chain(&error)));
    }
}

/// Tells the core when somebody else changes our kernel state. It waits for the kernel alone, and
/// ends with the process.
fn watch_tampering(mut tamper: TamperWatch, core: &Handle) {
    loop {
        let first = match tamper.wait(Duration::MAX) {
            Ok(Some(first)) => first,
            Ok(None) => continue,
            Err(error) => {
                return tracing::error!(error = %chain(&error), "watching the kernel for changes by others");
            }
        };
        let seen = SystemClock.monotonic();
        // Everything is compared each time: once is enough for a burst.
        while let Ok(Some(_)) = tamper.wait(Duration::ZERO) {}
        let what = match first {
            Tamper::Changed { what } => what,
            Tamper::Unknown => "notices of the kernel were lost".to_owned(),
        };
        if !core.send(Event::Tampered { what, seen }) {
            return;
        }
    }
}

/// Tells the core what changes on this host. It waits for the kernel alone, and ends with the process.
fn watch_host(mut events: impl LinkEvents, core: &Handle) {
    loop {
        let first = match events.next_event(None) {
            Ok(Some(first)) => first,
            Ok(None) => continue,
            Err(error) => {
                return tracing::error!(error = %chain(&error), "watching this host's interfaces");
            }
        };
        let seen = SystemClock.monotonic();
        let mut changes = Changes::default();
        changes.add(first);
        while let Ok(Some(next)) = events.next_event(Some(Duration::ZERO)) {
            changes.add(next);
        }
        if !core.send(Event::HostChanged { changes, seen }) {
            return;
        }
    }
}

async fn serve(
    handle: &Handle,
    doors: &Doors,
    core_ended: tokio::sync::oneshot::Receiver<()>,
) -> Result<(), RunError> {
    let stop = |kind| signal(kind).map_err(|error| RunError::Thread("signal handling", error));
    let (mut terminate, mut interrupt) = (
        stop(SignalKind::terminate())?,
        stop(SignalKind::interrupt())?,
    );
    let (stop_serving, stopped) = tokio::sync::watch::channel(false);
    let guard = Arc::new(doors.guard());
    if let Some(listener) = doors.address().await? {
        let router = crate::http::health_router(handle.clone(), Arc::clone(&guard));
        let door = Door::Tcp(listener);
        tokio::spawn(server::serve(
            door,
            router,
            Room::default(),
            stopped.clone(),
        ));
    }
    tokio::select! {
        synced = wait_for_sync(handle) => if !synced {
            tracing::warn!("the source is not in sync after {} s; the kernel keeps what it had", SYNC_WAIT.as_secs());
        },
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    }
    let listener = doors.socket()?;
    // Only now: the plugin writes deletions down for as long as nobody listens.
    if let Some(Err(error)) = handle.ask(Core::carry_out_deletions).await {
        tracing::error!(%error, "deletions that wait cannot be carried out");
    }
    tracing::info!("ready");
    let router = crate::http::router(handle.clone(), guard);
    let server = server::serve(Door::Unix(listener), router, Room::default(), stopped);
    tokio::pin!(server);
    let ended = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        served = &mut server => served.map_err(RunError::Serving),
        _ = core_ended => Err(RunError::Ended("the core")),
    };
    // Nobody finds it any more while the requests under way end.
    doors.close();
    let _ = stop_serving.send(true);
    if ended.is_ok() {
        server.await.map_err(RunError::Serving)?;
    }
    ended
}

/// Waits until the source is in sync; false if it takes too long.
async fn wait_for_sync(handle: &Handle) -> bool {
    let (synced, wait) = tokio::sync::oneshot::channel();
    handle.ask(move |core| core.when_in_sync(synced)).await;
    tokio::time::timeout(SYNC_WAIT, wait)
        .await
        .is_ok_and(|answer| answer.is_ok())
}

fn prepare_directories(config: &Config) -> Result<InstanceLock, RunError> {
    let socket_dir = config.socket.parent().unwrap_or(Path::new("/"));
    for directory in [&*config.state_dir, socket_dir] {
        std::fs::create_dir_all(directory).map_err(|source| RunError::File {
            doing: "making",
            path: directory.to_path_buf(),
            source,
        })?;
    }
    Ok(InstanceLock::take(&config.state_dir.join("agent.lock"))?)
}

/// Without forwarding nothing passes between workloads.
fn prepare_kernel(config: &Config) -> Result<(), RunError> {
    if config.manage_forwarding {
        for name in KernelAttach::current()?.keep_forwarding()? {
            tracing::info!(name, "switched forwarding on");
        }
    }
    Ok(())
}

fn thread(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, RunError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| RunError::Thread(name, error))
}

struct Stages<'a> {
    clock: &'a dyn Clock,
    done: Vec<Stage>,
}

impl Stages<'_> {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let began = self.clock.monotonic();
        let result = work();
        self.done.push(Stage {
            name: name.to_owned(),
            millis: millis(self.clock.monotonic() - began),
        });
        result
    }
}

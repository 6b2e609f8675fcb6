//! Bootstrap: in what order an agent comes up, and how it goes down.
//!
//! First everything that the start needs is opened: the dataplane, the state directory and its lock,
//! the source, the API's doors. Nothing of the host changes until then, and what a start that fails
//! has made is removed again ([`crate::startup`]). Then remembered workloads and their addresses, the
//! source, the kernel read back and brought in line, and only then the API's socket. Each step is
//! timed for status. Going down stops the threads and leaves the kernel as it is: enforcement goes on.

use crate::attach::{AttachError, KernelAttach};
use crate::clock::{Clock, SystemClock, millis};
use crate::config::{Config, HostToEndpoint};
use crate::core::{Core, Event, Handle, Parts, chain};
use crate::host::Changes;
use crate::http::doors::{DoorError, Doors, allowance};
use crate::log::Log;
use crate::manager::Manager;
use crate::service::serve;
use crate::startup::Startup;
use crate::supervise::Supervisor;
use crate::watchers::{follow_source, watch_host, watch_tampering};
use crate::workloads::WorkloadError;
use palisade_api::Stage;
use palisade_dataplane::{Dataplane, NftConfig, NftDataplane};
use palisade_source::{Directory, DirectoryOptions, Source};
use palisade_sys::link::KernelLinkEvents;
use palisade_sys::lock::LockError;
use palisade_sys::netns::NetNs;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// A part of the agent ended by itself: the first that did.
    #[error("{name} ended: {why}")]
    Part {
        /// Which.
        name: &'static str,
        /// Why.
        why: String,
    },
}

/// Runs the agent until it is told to stop by SIGTERM or SIGINT.
///
/// # Errors
/// See [`RunError`].
pub fn run(config: Config, log: Log, manager: &Manager) -> Result<(), RunError> {
    let clock = SystemClock;
    let mut stages = Stages {
        clock: &clock,
        done: Vec::new(),
    };
    let mut dataplane = stages.time("dataplane", || NftDataplane::new(nft_config(&config)))?;
    let grace = dataplane.grace_method();
    tracing::debug!(grace, "how packets under way are waited for");
    let startup = stages.time("state directory", || Startup::begin(&config))?;
    let tamper = dataplane.tamper_watch()?;
    let packets = dataplane.packet_watch().unwrap_or_else(|error| {
        tracing::warn!(error = %chain(&error), "`palisade monitor` shows no packets");
        None
    });
    let source = stages.time("source", || Directory::open(source_options(&config)))?;
    let (handle, events) = Handle::channel();
    let mut doors = Doors::new(&config);
    doors.open_address()?;
    let attach = KernelAttach::current()?;
    let links = KernelLinkEvents::open_wide(&NetNs::current().map_err(AttachError::from)?)
        .map_err(AttachError::from)?;
    dataplane.claim()?;
    if config.own_table && !dataplane.is_owner() {
        tracing::warn!(
            "others can change the nftables tables, and it is put back: no owned tables before Linux 6.9"
        );
    }
    let lock = startup.complete()?;
    let config_file = config.file.as_ref().map(|file| file.path.clone());
    let guard = Arc::new(doors.guard());
    let mut supervisor = Supervisor::default();
    let mut core = Core::new(Parts {
        config,
        dataplane: Box::new(dataplane),
        attach: Box::new(attach),
        clock: Box::new(clock),
        source: source.describe(),
    });
    stages.time("workloads restored", || core.restore())?;
    core.bootstrap = stages.done;
    let (settle, tuned) = (source.settle_handle(), Arc::clone(&guard));
    let budget = source.budget_handle();
    core.on_config(Box::new(move |config| {
        log.set(&config.log_level, config.log_json);
        settle.set(config.settle);
        budget.set(config.budget);
        tuned.allow(allowance(config));
    }));

    let stop_source = source.stop_handle();
    let to_core = handle.clone();
    let started = |name| move |error| RunError::Thread(name, error);
    let source_thread = supervisor
        .keep("source", move || follow_source(source, &to_core))
        .map_err(started("source"))?;
    // Watchers are not waited for at the end: they wait for the kernel alone.
    let to_core = handle.clone();
    supervisor
        .keep("tamper-watch", move || watch_tampering(tamper, &to_core))
        .map_err(started("tamper-watch"))?;
    if let Some(packets) = packets {
        let to_core = handle.clone();
        let follow = move || crate::monitor::feed::follow(packets, &to_core);
        // Not kept: without it packets are not shown, and enforced all the same.
        thread("packet-watch", follow)?;
    }
    let to_core = handle.clone();
    supervisor
        .keep("host-watch", move || watch_host(links, &to_core))
        .map_err(started("host-watch"))?;
    // What happened before anybody listened.
    let (changes, seen) = (Changes::everything(), clock.monotonic());
    handle.send(Event::HostChanged { changes, seen });
    if let Some(path) = config_file {
        let to_core = handle.clone();
        // Not kept: without it the file is read again on SIGHUP only.
        thread("config-watch", move || {
            crate::reload::follow(&path, &to_core)
        })?;
    }
    let core_thread = supervisor
        .keep("core", move || {
            core.run(&events);
            Ok::<(), Infallible>(())
        })
        .map_err(started("core"))?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Thread("the runtime", error))?;
    let served = runtime.block_on(serve(
        &handle,
        &mut doors,
        &guard,
        manager,
        supervisor.ends(),
    ));
    tracing::info!("stopping; the kernel keeps enforcing");
    // What feeds the core ends before it does, so nothing that was handed in is lost.
    stop_source.stop();
    let source_ended = source_thread.join();
    handle.send(Event::Stop);
    if core_thread.join().is_err() || source_ended.is_err() {
        tracing::error!("a thread panicked");
    }
    drop(lock);
    served
}

/// What the configuration says of the dataplane.
pub(crate) fn nft_config(config: &Config) -> NftConfig {
    NftConfig {
        table: config.table.clone(),
        interface_prefix: config.interface_prefix.clone(),
        mark_mask: config.mark_mask,
        judge_host_traffic: config.host_to_endpoint == HostToEndpoint::Policy,
        own_table: config.own_table,
        log_group: Some(config.monitor_group),
    }
}

/// What the configuration says of the source.
pub(crate) fn source_options(config: &Config) -> DirectoryOptions {
    DirectoryOptions {
        path: config.directory.clone(),
        settle: config.settle,
        state_dir: config.state_dir.clone(),
        budget: config.budget,
    }
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

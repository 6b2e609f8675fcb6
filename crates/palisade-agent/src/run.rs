//! Bootstrap: in what order an agent comes up, and how it goes down.
//!
//! First everything that the start needs is opened: the dataplane, the state directory and its lock,
//! the source, the API's doors. Nothing of the host changes until then, and what a start that fails
//! has made is removed again ([`crate::startup`]). Then remembered workloads and their addresses, the
//! source, the kernel read back and brought in line, and only then the API's socket. Each step is
//! timed for status. Going down stops the threads and leaves the kernel as it is: enforcement goes on.

use crate::clock::{Clock, SystemClock, millis};
use crate::config::{Config, HostToEndpointAction};
use crate::core::{Core, CoreEvent, CoreHandle, CoreParts, error_chain};
use crate::host::HostChanges;
use crate::http::sockets::{ApiSocketError, ApiSockets, request_limits};
use crate::log::Log;
use crate::network_driver::{KernelNetworkDriver, NetworkDriverError};
use crate::service::serve;
use crate::service_manager::ServiceManager;
use crate::startup::StartupGuard;
use crate::supervisor::Supervisor;
use crate::watchers::{follow_source, watch_host, watch_tampering};
use crate::workloads::WorkloadError;
use palisade_api::BootstrapStage;
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
    Host(#[from] NetworkDriverError),
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
    ApiSocket(#[from] ApiSocketError),
    /// The socket does not take connections any more.
    #[error("serving the API")]
    Serving(#[source] io::Error),
    /// A part of the agent ended by itself: the first that did.
    #[error("{name} ended: {reason}")]
    ThreadEnded {
        /// Which.
        name: &'static str,
        /// Why.
        reason: String,
    },
}

/// Runs the agent until it is told to stop by SIGTERM or SIGINT.
///
/// # Errors
/// See [`RunError`].
pub fn run(config: Config, log: Log, manager: &ServiceManager) -> Result<(), RunError> {
    let clock = SystemClock;
    let mut stages = StageTimer {
        clock: &clock,
        done: Vec::new(),
    };
    let mut dataplane = stages.measure("dataplane", || NftDataplane::new(nft_config(&config)))?;
    let grace = dataplane.grace_method();
    tracing::debug!(grace, "how packets under way are waited for");
    let startup = stages.measure("state directory", || StartupGuard::begin(&config))?;
    let tamper = dataplane.tamper_watch()?;
    let packets = dataplane.packet_watch().unwrap_or_else(|error| {
        tracing::warn!(error = %error_chain(&error), "`palisade monitor` shows no packets");
        None
    });
    let source = stages.measure("source", || Directory::open(source_options(&config)))?;
    let (handle, events) = CoreHandle::channel();
    let mut sockets = ApiSockets::new(&config);
    sockets.bind_health_address()?;
    let attach = KernelNetworkDriver::current()?;
    let links =
        KernelLinkEvents::open_routing(&NetNs::current().map_err(NetworkDriverError::from)?)
            .map_err(NetworkDriverError::from)?;
    dataplane.acquire_lock()?;
    if config.own_table && !dataplane.owns_tables() {
        tracing::warn!(
            "others can change the nftables tables, and it is put back: no owned tables before Linux 6.9"
        );
    }
    let lock = startup.commit()?;
    let config_file = config.file.as_ref().map(|file| file.path.clone());
    let guard = Arc::new(sockets.admission_control());
    let mut supervisor = Supervisor::default();
    let mut core = Core::new(CoreParts {
        config,
        dataplane: Box::new(dataplane),
        network: Box::new(attach),
        clock: Box::new(clock),
        source: source.describe(),
    });
    stages.measure("workloads restored", || core.restore())?;
    core.startup_stages = stages.done;
    let (settle, tuned) = (source.settle_handle(), Arc::clone(&guard));
    let budget = source.budget_handle();
    core.add_config_listener(Box::new(move |config| {
        log.configure(&config.log_level, config.log_json);
        settle.set(config.settle);
        budget.set(config.budget);
        tuned.set_limits(request_limits(config));
    }));

    let stop_source = source.stop_handle();
    let to_core = handle.clone();
    let started = |name| move |error| RunError::Thread(name, error);
    let source_thread = supervisor
        .spawn_supervised("source", move || follow_source(source, &to_core))
        .map_err(started("source"))?;
    // Watchers are not waited for at the end: they wait for the kernel alone.
    let to_core = handle.clone();
    supervisor
        .spawn_supervised("tamper-watch", move || watch_tampering(tamper, &to_core))
        .map_err(started("tamper-watch"))?;
    if let Some(packets) = packets {
        let to_core = handle.clone();
        let follow = move || crate::monitor::packet_queue::forward_packets(packets, &to_core);
        // Not kept: without it packets are not shown, and enforced all the same.
        spawn_thread("packet-watch", follow)?;
    }
    let to_core = handle.clone();
    supervisor
        .spawn_supervised("host-watch", move || watch_host(links, &to_core))
        .map_err(started("host-watch"))?;
    // What happened before anybody listened.
    let (changes, seen) = (HostChanges::all(), clock.monotonic());
    handle.send(CoreEvent::HostChanged {
        changes,
        detected_at: seen,
    });
    if let Some(path) = config_file {
        let to_core = handle.clone();
        // Not kept: without it the file is read again on SIGHUP only.
        spawn_thread("config-watch", move || {
            crate::reload::watch_config_file(&path, &to_core)
        })?;
    }
    let core_thread = supervisor
        .spawn_supervised("core", move || {
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
        &mut sockets,
        &guard,
        manager,
        supervisor.take_exits(),
    ));
    tracing::info!("stopping; the kernel keeps enforcing");
    // What feeds the core ends before it does, so nothing that was handed in is lost.
    stop_source.stop();
    let source_ended = source_thread.join();
    handle.send(CoreEvent::Stop);
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
        judge_host_traffic: config.host_to_endpoint == HostToEndpointAction::Policy,
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

fn spawn_thread(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, RunError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| RunError::Thread(name, error))
}

struct StageTimer<'a> {
    clock: &'a dyn Clock,
    done: Vec<BootstrapStage>,
}

impl StageTimer<'_> {
    fn measure<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let started = self.clock.monotonic();
        let result = work();
        self.done.push(BootstrapStage {
            name: name.to_owned(),
            millis: millis(self.clock.monotonic() - started),
        });
        result
    }
}

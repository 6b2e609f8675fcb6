//! Startup and shutdown of the agent.
//!
//! First all resources of the start are opened: the dataplane, the state directory and its lock, the
//! source, the listeners of the API. The host is not changed until then, and a failed start removes the
//! files it created ([`crate::startup`]). Then workloads and their addresses are restored, the source
//! is read, the kernel is read and resynchronised, and only then the API's socket opens. Every stage is
//! timed for the status. Shutdown stops the threads and leaves the kernel as it is: enforcement
//! continues.

use crate::cluster_status::write_cluster_status;
use crate::core::{Core, CoreEvent, CoreParts};
use crate::core_queue::{CoreHandle, run_core};
use crate::driver::{fast_path_report, open_enforcing_driver};
use crate::flow_recording::start_recording;
use crate::http::admission::AdmissionControl;
use crate::http::sockets::ApiSockets;
use crate::hubble::{start_flow_consumer, start_hubble};
use crate::log::Log;
use crate::name_threads::start_names;
use crate::page::start_page;
use crate::run_error::RunError;
use crate::service::serve;
use crate::service_manager::ServiceManager;
use crate::service_thread::ServiceThread;
use crate::sources::{ConfiguredSources, SourceAccess};
use crate::startup::StartupGuard;
use crate::supervisor::Supervisor;
use crate::watchers::{follow_source, watch_config_file, watch_host, watch_tampering};
use palisade_api::BootstrapStage;
use palisade_config::Config;
use palisade_dataplane::{Dataplane, FlowEventBatch, PacketReportBatch, Subscription, TamperEvent};
use palisade_effective::SourceNumber;
use palisade_enforcer::policy_subsystem::element_budget;
use palisade_monitor::flow_watch::FollowedFlows;
use palisade_monitor::packet_queue::follow_packets;
use palisade_network::forwarding::sysctls::sysctl_directory;
use palisade_network::network_driver::{HostDrivers, NetworkDriverError};
use palisade_node::clock::{Clock, SystemClock, millis};
use palisade_node::host_changes::HostChanges;
use palisade_source::SourceHandle;
use palisade_sys::link::KernelLinkEvents;
use palisade_sys::netns::NetNs;
use palisade_text::error_chain;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::runtime::Runtime;

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// See [`RunError`].
pub fn run(config: Config, log: Log, manager: &ServiceManager) -> Result<(), RunError> {
    if let Err(error) = palisade_sys::descriptors::raise_limit() {
        tracing::warn!(%error, "raising the limit on file descriptors failed");
    }
    let clock = SystemClock;
    let mut stages = StageTimer {
        clock: &clock,
        done: Vec::new(),
    };
    let mut dataplane = stages.measure("dataplane", || open_enforcing_driver(&config))?;
    let startup = stages.measure("state directory", || {
        StartupGuard::begin(&config.state, &config.api)
    })?;
    let tamper_events = dataplane.tamper_events()?;
    let packet_reports = dataplane.packet_reports().unwrap_or_else(|error| {
        tracing::warn!(error = %error_chain(&error), "opening the nflog group failed; `palisade monitor` shows no packets");
        Vec::new()
    });
    let flow_events = flow_events(&config, &*dataplane);
    let sources = stages.measure("source", || {
        ConfiguredSources::open(&config, SourceAccess::ReadWrite)
    })?;
    let (handle, events) = CoreHandle::channel();
    let mut sockets = ApiSockets::new(&config.api);
    sockets.bind_health_address()?;
    let host = HostDrivers::current(sysctl_directory())?;
    let links =
        KernelLinkEvents::open_routing(&NetNs::current().map_err(NetworkDriverError::from)?)
            .map_err(NetworkDriverError::from)?;
    dataplane.acquire_lock()?;
    for condition in dataplane.conditions() {
        tracing::warn!("{}", condition.message);
    }
    let lock = startup.commit()?;
    let (kubernetes, nodes) = (config.kubernetes.clone(), config.nodes.clone());
    let config_file = config.file.as_ref().map(|file| file.path.clone());
    let guard = Arc::new(sockets.admission_control());
    let mut supervisor = Supervisor::default();
    let mut core = Core::new(CoreParts {
        config,
        dataplane,
        host,
        clock: Box::new(clock),
        sources: sources.describe(),
    });
    stages.measure("workloads restored", || core.restore())?;
    core.set_startup(stages.measure("fast path", fast_path_report), stages.done);
    let followed = follow_sources(sources, &mut core, &handle, &supervisor, log)?;
    let watches = Watches {
        tamper_events,
        packet_reports,
        flow_events,
        links,
        config_file,
    };
    watches.start(&supervisor, &core, &handle, &clock)?;
    start_names(&mut core, &handle)?;
    let services = start_services(&mut core, &handle, &guard)?;
    let recording = start_recording(&mut core)?;
    let core_thread = supervisor
        .spawn_supervised("core", move || {
            run_core(core, &events);
            Ok::<(), Infallible>(())
        })
        .map_err(started("core"))?;

    write_cluster_status(&kubernetes, &nodes, &handle)?;
    let exits = supervisor.take_exits();
    let runtime = new_runtime()?;
    let served = runtime.block_on(serve(&handle, &mut sockets, &guard, manager, exits));
    tracing::info!("stopping; the kernel keeps enforcing");
    // The threads that send to the core are joined before the core, so no event is lost.
    followed.iter().for_each(|(source, _)| source.stop());
    let ended = followed.into_iter().map(|(_, thread)| thread.join());
    let ended: Vec<_> = ended.collect();
    handle.send(CoreEvent::Stop);
    if core_thread.join().is_err() || ended.iter().any(Result::is_err) {
        tracing::error!("a thread panicked");
    }
    drop((services, recording, lock));
    served
}

/// What the agent serves beside its API.
fn start_services(
    core: &mut Core,
    handle: &CoreHandle,
    guard: &Arc<AdmissionControl>,
) -> Result<Vec<ServiceThread>, RunError> {
    let consumer = start_flow_consumer(core)?;
    let hubble = start_hubble(core)?;
    let page = start_page(&core.config().page, handle, guard)?;
    Ok(consumer.into_iter().chain(hubble).chain(page).collect())
}

/// The flows that the driver tells, if the configuration asks for them. Enforcement does not depend on them.
fn flow_events(config: &Config, dataplane: &dyn Dataplane) -> Vec<Subscription<FlowEventBatch>> {
    if !config.monitor.follows_flows {
        return Vec::new();
    }
    dataplane.flow_events().unwrap_or_else(|error| {
        tracing::warn!(error = %error_chain(&error), "following connections failed; `palisade monitor` shows no flows");
        Vec::new()
    })
}

/// Starts the threads of the sources, which send to the core; the handle of each, and its thread.
fn follow_sources(
    sources: ConfiguredSources,
    core: &mut Core,
    core_handle: &CoreHandle,
    supervisor: &Supervisor,
    log: Log,
) -> Result<Vec<(SourceHandle, JoinHandle<()>)>, RunError> {
    let ConfiguredSources { set, sources } = sources;
    let budget = set.budget_handle();
    let set = Arc::new(Mutex::new(set));
    let mut handles = Vec::new();
    let mut source_threads = Vec::new();
    for (number, opened) in (SourceNumber::MIN..).zip(sources) {
        handles.push(opened.handle.clone());
        let (to_core, set, source) = (core_handle.clone(), Arc::clone(&set), opened.source);
        let follow = move || follow_source(source, number, &set, &to_core);
        source_threads.push((opened.name, opened.handle, follow));
    }
    core.set_source_handles(handles.clone());
    core.add_config_listener(Box::new(move |config| {
        log.configure(config.log.level, config.log.is_json);
        if budget.set(element_budget(&config.policy)) {
            handles.iter().for_each(SourceHandle::refresh);
        }
    }));

    let mut followed = Vec::new();
    for (name, source, follow) in source_threads {
        let thread = supervisor.spawn_supervised(name, follow);
        followed.push((source, thread.map_err(started(name))?));
    }
    Ok(followed)
}

/// What is watched besides the sources.
struct Watches {
    tamper_events: Vec<Subscription<TamperEvent>>,
    packet_reports: Vec<Subscription<PacketReportBatch>>,
    flow_events: Vec<Subscription<FlowEventBatch>>,
    links: KernelLinkEvents,
    config_file: Option<PathBuf>,
}

impl Watches {
    /// Starts their threads, which send to the core.
    fn start(
        self,
        supervisor: &Supervisor,
        core: &Core,
        handle: &CoreHandle,
        clock: &dyn Clock,
    ) -> Result<(), RunError> {
        // Watchers are not joined at shutdown: they block on the kernel only.
        for tamper in self.tamper_events {
            let to_core = handle.clone();
            supervisor
                .spawn_supervised("tamper-watch", move || watch_tampering(tamper, &to_core))
                .map_err(started("tamper-watch"))?;
        }
        for packets in self.packet_reports {
            let monitor = core.monitor().clone();
            let follow = move || follow_packets(packets, &monitor);
            // Not supervised: without it packets are not reported, but enforcement is not affected.
            spawn_thread("packet-watch", follow)?;
        }
        for flows in self.flow_events {
            let followed = FollowedFlows::new(core.monitor().clone());
            let open = followed.clone();
            // Not supervised, for the same reason.
            spawn_thread("flow-watch", move || followed.follow(flows))?;
            spawn_thread("flow-judge", move || open.judge_again())?;
        }
        let to_core = handle.clone();
        supervisor
            .spawn_supervised("host-watch", move || watch_host(self.links, &to_core))
            .map_err(started("host-watch"))?;
        // Covers changes from before the subscription.
        let (changes, seen) = (HostChanges::all(), clock.monotonic());
        handle.send(CoreEvent::HostChanged {
            changes,
            detected_at: seen,
        });
        if let Some(path) = self.config_file {
            let to_core = handle.clone();
            // Not supervised: without it the file is reread on SIGHUP only.
            spawn_thread("config-watch", move || watch_config_file(&path, &to_core))?;
        }
        Ok(())
    }
}

/// The error of a thread of this name that does not start.
fn started(name: &'static str) -> impl FnOnce(std::io::Error) -> RunError {
    move |error| RunError::Thread(name, error)
}

/// What runs the API, on this thread.
fn new_runtime() -> Result<Runtime, RunError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(started("the runtime"))
}

fn spawn_thread(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, RunError> {
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

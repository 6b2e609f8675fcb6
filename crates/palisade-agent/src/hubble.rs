//! Hubble: its API, and the metrics and logs of flows, each on a thread and a runtime of its own: what its clients ask
//! for takes no time from the agent's API.
//!
//! Promises: the relay learns of other nodes as soon as their Node objects are there; certificates are read once, at the
//! start. Never: started without flows.

use crate::core::Core;
use crate::hubble_peers::HubblePeers;
use crate::run_error::RunError;
use crate::service_thread::ServiceThread;
use palisade_config::{ApiConfig, HubbleApiConfig};
use palisade_flows::agent_event::{AgentEvent, AgentEventRecorder};
use palisade_flows::recent::RecentLines;
use palisade_hubble::{
    FlowConsumer, FlowLogStatus, HubbleConfig, HubbleListener, HubbleMetrics, HubblePeer,
    HubbleService, HubbleTls, serve,
};
use palisade_model::{ObjectKey, Update};
use palisade_node::clock::{Clock, SystemClock};
use palisade_node::cluster_nodes::own_node_name;
use palisade_text::error_chain;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The name of the cluster in Hubble's API.
const CLUSTER: &str = "default";

/// Starts to count flows in metrics and to write logs of them, if the configuration asks for it.
///
/// # Errors
/// If the metrics are not known, or the thread does not start.
pub(crate) fn start_flow_consumer(core: &mut Core) -> Result<Option<ServiceThread>, RunError> {
    let config = core.config().hubble.clone();
    let Some(recent) = core.monitor().recent().filter(|_| config.is_consumed()) else {
        return Ok(None);
    };
    let metrics = config.metrics.as_deref().map(HubbleMetrics::new);
    let metrics = metrics.transpose()?;
    if let Some(metrics) = &metrics {
        for name in metrics.uncounted() {
            tracing::warn!(
                "hubble-metrics: {name} is never counted: this agent has no flows of requests within connections"
            );
        }
        let forgets = metrics.clone();
        core.add_update_listener(Box::new(move |updates| forget_pods(&forgets, updates)));
    }
    let logs = (config.flow_logs).map(|path| (path, FlowLogStatus::default()));
    let outputs = core.flow_outputs_mut();
    outputs.metrics.clone_from(&metrics);
    outputs.logs = logs.as_ref().map(|(_, status)| status.clone());
    let (_, peers) = watch::channel(Vec::new());
    // It reads flows alone.
    let events = RecentLines::new(1);
    let config = hubble_config(core, recent, events, peers);
    let consumer = FlowConsumer::new(config, metrics, logs);
    let runtime = ServiceThread::runtime("flow-consumer")?;
    let started = ServiceThread::start("flow-consumer", runtime, move |runtime, stopped| {
        runtime.block_on(consumer.run(async move {
            // Whoever holds the sender has gone, or stops this.
            let _ = stopped.await;
        }));
    });
    started.map(Some)
}

/// Makes the series of pods that are gone go.
fn forget_pods(metrics: &HubbleMetrics, updates: &[Update]) {
    for update in updates {
        if let Update::Delete(ObjectKey::Endpoint(pod)) = update {
            let namespace = pod.namespace.as_deref().unwrap_or_default();
            metrics.forget_pod(namespace, &pod.name, SystemClock.monotonic());
        }
    }
}

/// What Hubble is told of this node.
fn hubble_config(
    core: &Core,
    lines: RecentLines,
    events: RecentLines<AgentEvent>,
    peers: watch::Receiver<Vec<HubblePeer>>,
) -> HubbleConfig {
    let config = &core.config().hubble;
    let node = own_node_name(&core.config().nodes).to_string();
    let address = config
        .address
        .filter(|address| !address.ip().is_unspecified());
    HubbleConfig {
        node: node.clone(),
        node_labels: Vec::new(),
        cluster: CLUSTER.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lines,
        events,
        peers,
        own: address.map(|address| HubblePeer {
            node,
            address: address.to_string(),
            tls: config.tls_dir.is_some(),
        }),
        started: core.started(),
        clock: Arc::new(|| SystemClock.wall()),
    }
}

/// Starts Hubble's API, if the configuration asks for it.
///
/// # Errors
/// If a socket cannot be opened, or certificates cannot be read.
pub(crate) fn start_hubble(core: &mut Core) -> Result<Option<ServiceThread>, RunError> {
    let config = core.config().hubble.clone();
    let Some(recent) = core.monitor().recent().filter(|_| config.is_served()) else {
        return Ok(None);
    };
    let runtime = ServiceThread::runtime("hubble")?;
    let listeners = open_listeners(&config, &core.config().api, &runtime)?;
    let (peers, followed) = watch::channel(Vec::new());
    let has_tls = config.tls_dir.is_some();
    let events = record_agent_events(core);
    let service = HubbleService::new(hubble_config(core, recent, events, followed));
    if let Some(address) = config.address {
        let others = HubblePeers::new(peers, address, has_tls);
        core.add_node_listener(Box::new(move |nodes| others.set(nodes)));
    }
    let started = ServiceThread::start("hubble", runtime, move |runtime, stopped| {
        let end = async move {
            // Whoever holds the sender has gone, or stops this.
            let _ = stopped.await;
        };
        if let Err(error) = runtime.block_on(serve(service, listeners, end)) {
            tracing::error!(error = %error_chain(&error), "serving Hubble's API failed; enforcement goes on");
        }
    });
    started.map(Some)
}

/// Records what is done to policies and workloads from now on, and which workloads there are.
fn record_agent_events(core: &mut Core) -> RecentLines<AgentEvent> {
    let mut recorder = AgentEventRecorder::new(core.started());
    let events = recorder.events();
    let enforcer = &mut core.parts().1.enforcer;
    let restored: Vec<Update> = enforcer
        .state()
        .engine
        .state()
        .objects()
        .map(Update::Upsert)
        .collect();
    recorder.observe(&restored, SystemClock.wall());
    enforcer.set_update_observer(Box::new(move |updates| {
        recorder.observe(updates, SystemClock.wall());
    }));
    events
}

/// Opens the sockets of Hubble's API.
fn open_listeners(
    config: &HubbleApiConfig,
    api: &ApiConfig,
    runtime: &Runtime,
) -> Result<Vec<HubbleListener>, RunError> {
    let mut listeners = Vec::new();
    // Sockets belong to the runtime that serves them.
    let _entered = runtime.enter();
    if let Some(path) = &config.socket {
        listeners.push(HubbleListener::unix(path)?);
        crate::http::sockets::set_api_group(path, api).map_err(|source| RunError::File {
            doing: "protecting",
            path: path.clone(),
            source,
        })?;
    }
    if let Some(address) = config.address {
        let tls = config.tls_dir.as_deref().map(read_certificates);
        let listener = HubbleListener::tcp(address, tls.transpose()?);
        listeners.push(runtime.block_on(listener)?);
        tracing::info!(%address, tls = config.tls_dir.is_some(), "serving Hubble's API");
    }
    Ok(listeners)
}

/// Reads the certificates of a directory.
fn read_certificates(dir: &Path) -> Result<HubbleTls, RunError> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read(&path).map_err(|source: io::Error| RunError::File {
            doing: "reading",
            path,
            source,
        })
    };
    Ok(HubbleTls {
        certificate: read("tls.crt")?,
        key: read("tls.key")?,
        client_authority: Some(read("ca.crt")?),
    })
}

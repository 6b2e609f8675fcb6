//! An agent's core and API without a kernel: requests go to the router directly, with the credentials
//! that a test chooses, or through a real socket.

use crate::support::{OnHost, TestHost, host_drivers};
use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use palisade_agent::core::{Core, CoreEvent, CoreParts};
use palisade_agent::core_queue::{CoreHandle, run_core};
use palisade_agent::http::admission::{AdmissionControl, ApiPrincipals, RequestLimits};
use palisade_agent::http::router;
use palisade_config::Config;
use palisade_flows::recent::RecentLines;
use palisade_flows::recorder::FlowRecorder;
use palisade_flows::store::{FlowStore, RECORD_FILE, StoreLimits};
use palisade_hubble::{FlowConsumer, FlowLogStatus, HubbleConfig, HubbleMetrics};
use palisade_model::Update;
use palisade_network::network_driver::{
    AddressUse, NetnsFacts, NetnsInterface, NetworkDriverError,
};
use palisade_node::clock::{Clock, SystemClock};
use palisade_node::rate_limit::RateLimit;
use palisade_node::workload_store::WorkloadRecord;
use palisade_source::UpdateBatch;
use palisade_sys::credentials::SocketCredentials;
use palisade_sys::link::{IpNet, MacAddr};
use palisade_testkit::FakeDataplane;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// A host on which every operation succeeds.
#[derive(Clone, Default)]
pub(crate) struct Host(pub(crate) Arc<Mutex<HostState>>);

/// The state of namespaces and addresses on the host.
#[derive(Default)]
pub(crate) struct HostState {
    pub(crate) tenancy: NetnsFacts,
    pub(crate) used: BTreeMap<IpAddr, AddressUse>,
}

impl TestHost for Host {
    fn netns_facts(&mut self, _: &WorkloadRecord) -> Result<NetnsFacts, NetworkDriverError> {
        Ok(self.0.lock().unwrap().tenancy)
    }

    fn address_use(
        &mut self,
        address: IpAddr,
        _: Option<palisade_model::Prefix>,
        _: bool,
    ) -> Result<Option<AddressUse>, NetworkDriverError> {
        Ok(self.0.lock().unwrap().used.get(&address).cloned())
    }

    fn netns_interface(
        &mut self,
        record: &WorkloadRecord,
    ) -> Result<NetnsInterface, NetworkDriverError> {
        let everything = |address: &IpAddr| match address {
            IpAddr::V4(_) => IpNet::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            IpAddr::V6(_) => IpNet::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        Ok(NetnsInterface {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            addresses: record.addresses.clone(),
            routes: record.addresses.iter().map(everything).collect(),
        })
    }
}

/// The gid of the group whose members may make changes.
pub(crate) const GROUP: u32 = 900;

/// A user who may only read.
pub(crate) fn reader() -> SocketCredentials {
    SocketCredentials {
        pid: 1,
        uid: 1000,
        gid: 1000,
        groups: vec![27],
    }
}

/// Root.
pub(crate) fn root() -> SocketCredentials {
    SocketCredentials { uid: 0, ..reader() }
}

/// An API with its own core.
pub(crate) struct Site {
    pub(crate) core: CoreHandle,
    pub(crate) router: Router,
    pub(crate) guard: Arc<AdmissionControl>,
    pub(crate) dataplane: FakeDataplane,
    _dir: tempfile::TempDir,
}

/// What is known of a log of flows, of which there are none.
#[allow(clippy::disallowed_methods, reason = "a file of a test")]
fn flow_log(dir: &Path) -> FlowLogStatus {
    let definitions = dir.join("logs.yaml");
    let path = dir.join("flows.log");
    let text = format!("flowLogs: [{{name: a, filePath: {}}}]", path.display());
    std::fs::write(&definitions, text).unwrap();
    let status = FlowLogStatus::default();
    let config = HubbleConfig {
        node: "n1".to_owned(),
        node_labels: Vec::new(),
        cluster: "default".to_owned(),
        version: "test".to_owned(),
        lines: RecentLines::new(1),
        events: RecentLines::new(16),
        peers: watch::channel(Vec::new()).1,
        own: None,
        started: Duration::ZERO,
        clock: Arc::new(|| SystemClock.wall()),
    };
    let consumer = FlowConsumer::new(config, None, Some((definitions, status.clone())));
    let read = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        runtime.block_on(consumer.run(async {}));
    });
    read.join().unwrap();
    status
}

impl Site {
    /// A site that accepts many requests, and bodies of a kilobyte.
    pub(crate) fn new() -> Self {
        Site::with_rate(RateLimit {
            per_second: 1_000,
            burst: 1_000,
        })
    }

    /// A site with this request rate for each user.
    pub(crate) fn with_rate(rate: RateLimit) -> Self {
        Site::made(rate, SystemClock, &Host::default(), &[("flows", "on")])
    }

    /// The same, with its own clock for admission control.
    pub(crate) fn with(rate: RateLimit, clock: impl Clock + 'static) -> Self {
        Site::made(rate, clock, &Host::default(), &[])
    }

    /// A site on this host, with these parameters.
    pub(crate) fn on(rate: RateLimit, host: &Host, said: &[(&str, &str)]) -> Self {
        Site::made(rate, SystemClock, host, said)
    }

    fn made(
        rate: RateLimit,
        clock: impl Clock + 'static,
        host: &Host,
        said: &[(&str, &str)],
    ) -> Self {
        host.0.lock().unwrap().tenancy.named = true;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().display().to_string();
        let said = said.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let flags = said.chain([("state-dir".to_owned(), state)]).collect();
        let dataplane = FakeDataplane::new();
        let mut core = Core::new(CoreParts {
            config: Config::resolve(&flags, |_| None, None).unwrap(),
            dataplane: Box::new(dataplane.clone()),
            host: host_drivers(OnHost(host.clone())),
            clock: Box::new(SystemClock),
            sources: vec![("directory".to_owned(), "/x".to_owned())],
        });
        if let Some(recent) = core.monitor().recent() {
            let limits = StoreLimits {
                bytes: 1 << 20,
                age: Duration::from_secs(3_600),
            };
            let store = FlowStore::new(dir.path().join(RECORD_FILE), limits);
            let record = FlowRecorder::new(recent, store, Arc::new(|| SystemClock.wall()));
            core.flow_outputs_mut().record = Some(record);
        }
        let outputs = core.flow_outputs_mut();
        outputs.metrics = Some(HubbleMetrics::new("drop").unwrap());
        outputs.logs = Some(flow_log(dir.path()));
        let (handle, events) = CoreHandle::channel();
        std::thread::spawn(move || run_core(core, &events));
        let permit = ApiPrincipals {
            own_uid: 5,
            group_id: Some(GROUP),
            group_name: "palisade".to_owned(),
        };
        let allowance = RequestLimits {
            rate,
            body_limit: 1_024,
        };
        let guard = Arc::new(AdmissionControl::new(permit, allowance, Arc::new(clock)));
        let site = Site {
            router: router(handle.clone(), Arc::clone(&guard)),
            guard,
            core: handle,
            dataplane,
            _dir: dir,
        };
        site.says(Vec::new());
        while !site.core.health().unready.is_empty() {
            std::thread::yield_now();
        }
        site
    }

    /// Sends updates of the source.
    pub(crate) fn says(&self, updates: Vec<Update>) {
        self.core.send(CoreEvent::Source(UpdateBatch {
            updates,
            in_sync: true,
            ..UpdateBatch::default()
        }));
    }

    /// Sends a request with the credentials of a peer, and reads the response.
    pub(crate) async fn ask(
        &self,
        peer: SocketCredentials,
        method: &str,
        path: &str,
        body: &str,
    ) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .extension(peer)
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = TowerToHyperService::new(self.router.clone())
            .call(request)
            .await
            .unwrap();
        let status = response.status();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&text)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&text).into_owned()));
        (status, value)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.core.send(CoreEvent::Stop);
    }
}

//! An agent's core and API without a kernel: requests go straight to the router, from whichever peer
//! a test likes, or by a real socket.

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use palisade_agent::attach::{AddressUse, Attach, AttachError, Found, Inside, Tenancy};
use palisade_agent::clock::{Clock, SystemClock};
use palisade_agent::config::Config;
use palisade_agent::core::{Core, Event, Handle, Parts};
use palisade_agent::http::gate::{Allowance, Guard, Permit};
use palisade_agent::http::limiter::Rate;
use palisade_agent::http::router;
use palisade_agent::record::Record;
use palisade_agent::settings::SettingsFile;
use palisade_dataplane::FakeDataplane;
use palisade_model::Update;
use palisade_source::Batch;
use palisade_sys::link::{MacAddr, Prefix};
use palisade_sys::netns::{NetNs, Opener};
use palisade_sys::peer::Peer;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// A host on which everything works.
#[derive(Clone, Default)]
pub(crate) struct Host(pub(crate) Arc<Mutex<HostState>>);

/// What a host says of namespaces and addresses.
#[derive(Default)]
pub(crate) struct HostState {
    pub(crate) tenancy: Tenancy,
    pub(crate) used: BTreeMap<IpAddr, AddressUse>,
}

impl Attach for Host {
    fn join(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn furnish(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn opener(&self) -> Option<Opener> {
        None
    }

    fn hold(&mut self, _: Option<NetNs>) {}

    fn tenancy(&mut self, _: &Record) -> Result<Tenancy, AttachError> {
        Ok(self.0.lock().unwrap().tenancy)
    }

    fn address_use(
        &mut self,
        address: IpAddr,
        _: Option<palisade_model::Prefix>,
        _: bool,
    ) -> Result<Option<AddressUse>, AttachError> {
        Ok(self.0.lock().unwrap().used.get(&address).cloned())
    }

    fn index_of(&mut self, _: &str) -> Result<Option<u32>, AttachError> {
        Ok(None)
    }

    fn name_of(&mut self, _: u32) -> Result<Option<String>, AttachError> {
        Ok(None)
    }

    fn inside(&mut self, record: &Record) -> Result<Inside, AttachError> {
        let everything = |address: &IpAddr| match address {
            IpAddr::V4(_) => Prefix::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            IpAddr::V6(_) => Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        Ok(Inside {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            addresses: record.addresses.clone(),
            routes: record.addresses.iter().map(everything).collect(),
        })
    }

    fn open(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn part(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn is_joined(&mut self, _: &Record) -> Result<bool, AttachError> {
        Ok(true)
    }

    fn look(&mut self, records: &[Record]) -> Result<Vec<Found>, AttachError> {
        Ok(records.iter().map(|_| Found::Whole).collect())
    }

    fn rename_back(&mut self, _: &Record, _: &str) -> Result<(), AttachError> {
        Ok(())
    }

    fn keep_forwarding(&mut self, _: &str, _: &SettingsFile) -> Result<Vec<String>, AttachError> {
        Ok(Vec::new())
    }

    fn survey(&mut self, _: &str) -> Result<palisade_agent::addresses::Survey, AttachError> {
        Ok(Default::default())
    }

    fn outside_mtu(&mut self) -> Result<Option<u32>, AttachError> {
        Ok(None)
    }

    fn netns_exists(&self, _: &Record) -> bool {
        true
    }
}

/// The group whose members may change something.
pub(crate) const GROUP: u32 = 900;

/// A user who may only read.
pub(crate) fn reader() -> Peer {
    Peer {
        pid: 1,
        uid: 1000,
        gid: 1000,
        groups: vec![27],
    }
}

/// Root.
pub(crate) fn root() -> Peer {
    Peer { uid: 0, ..reader() }
}

/// The API of a core of its own.
pub(crate) struct Site {
    pub(crate) core: Handle,
    pub(crate) router: Router,
    pub(crate) guard: Arc<Guard>,
    pub(crate) dataplane: FakeDataplane,
    _dir: tempfile::TempDir,
}

impl Site {
    /// One that takes many requests and bodies of a kilobyte.
    pub(crate) fn new() -> Self {
        Site::with_rate(Rate {
            per_second: 1_000,
            burst: 1_000,
        })
    }

    /// One that takes so many requests of each user.
    pub(crate) fn with_rate(rate: Rate) -> Self {
        Site::made(rate, SystemClock, &Host::default(), &[])
    }

    /// The same, with a clock of its own at its gate.
    pub(crate) fn with(rate: Rate, clock: impl Clock + 'static) -> Self {
        Site::made(rate, clock, &Host::default(), &[])
    }

    /// One on this host, with these parameters.
    pub(crate) fn on(rate: Rate, host: &Host, said: &[(&str, &str)]) -> Self {
        Site::made(rate, SystemClock, host, said)
    }

    fn made(rate: Rate, clock: impl Clock + 'static, host: &Host, said: &[(&str, &str)]) -> Self {
        host.0.lock().unwrap().tenancy.named = true;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().display().to_string();
        let said = said.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let flags = said.chain([("state-dir".to_owned(), state)]).collect();
        let dataplane = FakeDataplane::new();
        let core = Core::new(Parts {
            config: Config::resolve(&flags, |_| None, None).unwrap(),
            dataplane: Box::new(dataplane.clone()),
            attach: Box::new(host.clone()),
            clock: Box::new(SystemClock),
            source: ("directory".to_owned(), "/x".to_owned()),
        });
        let (handle, events) = Handle::channel();
        std::thread::spawn(move || core.run(&events));
        let permit = Permit {
            own: 5,
            group: Some(GROUP),
            group_name: "palisade".to_owned(),
        };
        let allowance = Allowance {
            rate,
            body_limit: 1_024,
        };
        let guard = Arc::new(Guard::new(permit, allowance, Arc::new(clock)));
        let site = Site {
            router: router(handle.clone(), Arc::clone(&guard)),
            guard,
            core: handle,
            dataplane,
            _dir: dir,
        };
        site.says(Vec::new());
        while !site.core.pulse().unready.is_empty() {
            std::thread::yield_now();
        }
        site
    }

    /// The source says something.
    pub(crate) fn says(&self, updates: Vec<Update>) {
        self.core.send(Event::Source(Batch {
            updates,
            in_sync: true,
            ..Batch::default()
        }));
    }

    /// Hands a request in as a peer's, and reads the answer.
    pub(crate) async fn ask(
        &self,
        peer: Peer,
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
        self.core.send(Event::Stop);
    }
}

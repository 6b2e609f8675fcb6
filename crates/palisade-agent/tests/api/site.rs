//! An agent's core and API without a kernel: requests go straight to the router, from whichever peer
//! a test likes, or by a real socket.

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use palisade_agent::attach::{Attach, AttachError, Found, Inside};
use palisade_agent::clock::SystemClock;
use palisade_agent::config::Config;
use palisade_agent::core::{Core, Event, Handle, Parts};
use palisade_agent::http::gate::{Allowance, Guard, Permit};
use palisade_agent::http::limiter::Rate;
use palisade_agent::http::router;
use palisade_agent::record::Record;
use palisade_dataplane::FakeDataplane;
use palisade_model::Update;
use palisade_source::Batch;
use palisade_sys::link::{MacAddr, Prefix};
use palisade_sys::peer::Peer;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A host on which everything works.
struct Host;

impl Attach for Host {
    fn join(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn furnish(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn has_link(&mut self, _: &str) -> Result<bool, AttachError> {
        Ok(false)
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

    fn keep_forwarding(&mut self) -> Result<Vec<&'static str>, AttachError> {
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
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().display().to_string();
        let flags = BTreeMap::from([("state-dir".to_owned(), state)]);
        let core = Core::new(Parts {
            config: Config::resolve(&flags, |_| None, None).unwrap(),
            dataplane: Box::new(FakeDataplane::new()),
            attach: Box::new(Host),
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
        let guard = Arc::new(Guard::new(permit, allowance, Arc::new(SystemClock)));
        let site = Site {
            router: router(handle.clone(), Arc::clone(&guard)),
            guard,
            core: handle,
            _dir: dir,
        };
        site.says(Vec::new());
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

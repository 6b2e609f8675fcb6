//! Floods: the queue of the core stays bounded, probes are answered, and frequently requested pages are
//! built rarely.

use super::site::{Site, reader, root};
use palisade_agent::core::CoreEvent;
use palisade_agent::core_queue::CoreHandle;
use palisade_agent::core_queue::MAX_WAITING;
use palisade_agent::http::server::{ApiListener, ConnectionLimits, serve};
use palisade_agent::watchers::{watch_host, watch_tampering};
use palisade_dataplane::{DriverError, DriverErrorKind, Subscription, TamperEvent};
use palisade_node::clock::{Clock, SystemClock};
use palisade_node::host_changes::HostChanges;
use palisade_node::rate_limit::RateLimit;
use palisade_source::UpdateBatch;
use palisade_sys::link::{Link, LinkError, LinkEvent, LinkEvents};
use palisade_sys::netlink::OpenError;
use palisade_sys::netns::NetNsError;
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

const FLOOD: usize = 100_000;

/// This many links appear, each with its own name, and then the stream ends.
struct Flood(usize);

impl LinkEvents for Flood {
    fn next_event(&mut self, _: Option<Duration>) -> Result<Option<LinkEvent>, LinkError> {
        self.0 += 1;
        if self.0 > FLOOD {
            let name = "the flood is over".to_owned();
            return Err(OpenError::NetNs(NetNsError::Missing { name }).into());
        }
        Ok(Some(LinkEvent::Link(Link {
            index: 1,
            name: format!("eth{}", self.0),
            kind: None,
            mac: None,
            mtu: 1500,
            flags: 0,
            peer_index: None,
            peer_netnsid: None,
            master: None,
            qdisc: None,
        })))
    }
}

#[test]
fn notices_that_wait_are_one_however_many_came() {
    let (core, events) = CoreHandle::channel();
    watch_host(Flood(0), &core).unwrap_err();
    let mut left = FLOOD;
    let flood = move |_| {
        left = left.checked_sub(1).ok_or_else(|| {
            let kind = DriverErrorKind::Retryable;
            DriverError::new(kind, "flooding", "the queue", "the flood is over")
        })?;
        Ok(Some(TamperEvent::EventsLost))
    };
    watch_tampering(Subscription::new(flood), &core).unwrap_err();
    for _ in 0..FLOOD {
        assert!(core.send(CoreEvent::ConfigChanged));
    }
    assert_eq!(core.queue_length(), 3);
    let Ok(CoreEvent::HostChanged { changes, .. }) = events.next(None) else {
        panic!("the first that came");
    };
    assert_eq!(changes, HostChanges::all());
    assert!(matches!(events.next(None), Ok(CoreEvent::Tampered { .. })));
    assert!(matches!(events.next(None), Ok(CoreEvent::ConfigChanged)));
    assert_eq!(core.queue_length(), 0);
    // The queued notification was taken, so the next one is queued again.
    watch_host(Flood(FLOOD - 2), &core).unwrap_err();
    let Ok(CoreEvent::HostChanged { changes, .. }) = events.next(None) else {
        panic!("a notice");
    };
    assert_eq!(changes.len(), 2);
}

#[test]
fn a_source_waits_with_its_next_batch() {
    let (core, events) = CoreHandle::channel();
    assert!(core.send(CoreEvent::Source(UpdateBatch::default())));
    let source = {
        let core = core.clone();
        std::thread::spawn(move || {
            (0..10).all(|_| core.send(CoreEvent::Source(UpdateBatch::default())))
        })
    };
    for _ in 0..11 {
        assert!(core.queue_length() <= 1);
        assert!(matches!(events.next(None), Ok(CoreEvent::Source(_))));
    }
    assert!(source.join().unwrap());
    // A source that waits is released when the core ends.
    assert!(core.send(CoreEvent::Source(UpdateBatch::default())));
    let source = {
        let core = core.clone();
        std::thread::spawn(move || core.send(CoreEvent::Source(UpdateBatch::default())))
    };
    drop(events);
    assert!(!source.join().unwrap());
    assert!(!core.send(CoreEvent::ConfigChanged));
}

const PLENTY: RateLimit = RateLimit {
    per_second: 1_000_000,
    burst: 1_000_000,
};

/// Blocks the core inside an event until the sender is used or dropped.
fn stall(site: &Site) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel::<()>();
    let (began, begun) = mpsc::channel();
    site.core.send(CoreEvent::Request(Box::new(move |_| {
        began.send(()).unwrap();
        let _ = wait.recv();
    })));
    begun.recv().unwrap();
    go_on
}

#[tokio::test]
async fn ten_thousand_ask_how_it_is_and_the_core_is_asked_once() {
    let site = std::sync::Arc::new(Site::with_rate(PLENTY));
    let go_on = stall(&site);
    let (reads, began) = (site.dataplane.counter_reads(), SystemClock.monotonic());
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..10_000 {
        let site = site.clone();
        let path = if number % 2 == 0 {
            "/v1/status"
        } else {
            "/metrics"
        };
        asking.spawn(async move { site.ask(reader(), "GET", path, "").await });
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
        assert!(
            site.core.queue_length() <= 2,
            "{}",
            site.core.queue_length()
        );
    }
    go_on.send(()).unwrap();
    let mut pages = BTreeSet::new();
    while let Some(answered) = asking.join_next().await {
        let (status, page) = answered.unwrap();
        assert_eq!(status.as_u16(), 200);
        pages.extend(page["asOf"].as_str().map(str::to_owned));
    }
    // One per second, however long this took.
    let most = (SystemClock.monotonic() - began).as_secs() as usize + 2;
    let read = site.dataplane.counter_reads() - reads;
    assert!(
        pages.len() <= most && read <= most,
        "{} pages, {read} reads",
        pages.len()
    );
}

#[tokio::test]
async fn who_asks_after_a_change_sees_it() {
    let site = Site::new();
    for number in 0..20 {
        let (_, before) = site.ask(reader(), "GET", "/v1/status", "").await;
        let add = format!(r#"{{"namespace":"shop","name":"w{number}","netns":"w{number}"}}"#);
        let (status, answer) = site.ask(root(), "POST", "/v1/workloads", &add).await;
        assert_eq!(status.as_u16(), 200, "{answer}");
        let (_, after) = site.ask(reader(), "GET", "/v1/status", "").await;
        assert_eq!(
            after["endpoints"],
            before["endpoints"].as_u64().unwrap() + 1
        );
        assert_eq!(after["realised"], answer["revision"]);
        let (_, figures) = site.ask(reader(), "GET", "/metrics", "").await;
        let figure = format!("palisade_endpoints{{state=\"ready\"}} {}", number + 1);
        assert!(figures.as_str().unwrap().contains(&figure), "{figures}");
    }
}

#[tokio::test]
async fn a_full_queue_is_told_and_holds_no_probe_up() {
    let site = std::sync::Arc::new(Site::with_rate(PLENTY));
    let go_on = stall(&site);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..2 * MAX_WAITING {
        let site = site.clone();
        asking.spawn(async move { site.ask(reader(), "GET", "/v1/endpoints", "").await });
    }
    let mut refused = 0;
    while refused < MAX_WAITING {
        let (status, answer) = asking.join_next().await.unwrap().unwrap();
        assert_eq!(status.as_u16(), 503, "{answer}");
        assert_eq!(answer["code"], "Unavailable");
        refused += 1;
    }
    assert_eq!(site.core.queue_length(), MAX_WAITING);
    // Changes have their own queue limit.
    let change = {
        let site = site.clone();
        let add = r#"{"namespace":"shop","name":"web","netns":"web"}"#;
        tokio::spawn(async move { site.ask(root(), "POST", "/v1/workloads", add).await })
    };
    for path in ["/healthz", "/readyz"] {
        for _ in 0..1_000 {
            let (status, answer) = site.ask(reader(), "GET", path, "").await;
            assert_eq!(status.as_u16(), 200, "{path}: {answer}");
        }
    }
    go_on.send(()).unwrap();
    assert_eq!(change.await.unwrap().0.as_u16(), 200);
    while let Some(answered) = asking.join_next().await {
        assert_eq!(answered.unwrap().0.as_u16(), 200);
    }
}

/// The system clock, shifted into the future.
struct Ahead(Duration);

impl Clock for Ahead {
    fn wall(&self) -> Duration {
        SystemClock.wall() + self.0
    }

    fn monotonic(&self) -> std::time::Instant {
        SystemClock.monotonic() + self.0
    }
}

#[tokio::test]
async fn a_core_that_is_stuck_fails_its_probes_and_one_that_works_does_not() {
    let rate = RateLimit {
        per_second: 1,
        burst: 1,
    };
    let site = Site::with(rate, Ahead(Duration::from_secs(60)));
    let probe = async |path| site.ask(reader(), "GET", path, "").await;
    // By this clock, every event takes longer than a minute.
    while site.core.health().busy_since.is_some() || site.core.queue_length() > 0 {
        tokio::task::yield_now().await;
    }
    let (status, answer) = probe("/healthz").await;
    assert_eq!(status.as_u16(), 200, "{answer}");
    let go_on = stall(&site);
    for path in ["/healthz", "/readyz"] {
        let (status, answer) = probe(path).await;
        assert_eq!(status.as_u16(), 503, "{answer}");
        assert!(
            answer["reasons"][0]
                .as_str()
                .unwrap()
                .contains("busy with one event for ")
        );
    }
    go_on.send(()).unwrap();
    site.core.send(CoreEvent::Stop);
    while !site.core.health().stopped {
        tokio::task::yield_now().await;
    }
    let (status, answer) = probe("/healthz").await;
    assert_eq!(status.as_u16(), 503);
    assert_eq!(answer["reasons"][0], "the agent is stopping");
}

#[tokio::test]
async fn who_holds_all_connections_does_not_keep_probes_out() {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let usual = ConnectionLimits::default();
    let full = usual.per_user;
    // The test may run as root.
    let room = ConnectionLimits {
        root: full,
        ..usual
    };
    tokio::spawn(serve(
        ApiListener::Unix(listener),
        site.router.clone(),
        room,
        stopped,
    ));
    let mut held = Vec::new();
    for _ in 0..full {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        let request = b"GET /v1/config HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        held.push(stream);
    }
    let ask = async |path: &str| {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    // Other clients hold spare connections too, and send nothing.
    for _ in 0..200 {
        held.push(UnixStream::connect(&socket).await.unwrap());
    }
    for _ in 0..50 {
        for path in ["/healthz", "/readyz"] {
            let text = ask(path).await;
            assert!(text.starts_with("HTTP/1.1 200 "), "{path}: {text}");
        }
    }
    let text = ask("/v1/status").await;
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("too many connections"), "{text}");
}

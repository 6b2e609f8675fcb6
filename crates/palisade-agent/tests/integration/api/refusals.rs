//! Rejected requests: no permission, rate limit exceeded, body too large, client too slow.

use super::site::{GROUP, Site, reader, root};
use axum::body::{Body, Bytes, HttpBody};
use hyper::Request;
use hyper::body::Frame;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use palisade_agent::http::server::{ApiListener, ConnectionLimits, HEAD_LIMIT, serve};
use palisade_node::rate_limit::RateLimit;
use palisade_sys::credentials::SocketCredentials;
use serde_json::Value;
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

const ADD: &str = r#"{"namespace":"shop","name":"web","netns":"web"}"#;

#[tokio::test]
async fn only_root_and_the_group_change_anything() {
    let site = Site::new();
    let member = SocketCredentials {
        groups: vec![27, GROUP],
        ..reader()
    };
    for (method, body) in [
        ("POST", ADD),
        ("DELETE", r#"{"namespace":"shop","name":"web"}"#),
    ] {
        let (status, answer) = site.ask(reader(), method, "/v1/workloads", body).await;
        assert_eq!(
            (status.as_u16(), &answer["code"]),
            (403, &Value::from("Forbidden"))
        );
        assert_eq!(answer["hint"], "sudo, or become a member of group palisade");
    }
    let (_, answer) = site.ask(root(), "GET", "/v1/endpoints", "").await;
    assert_eq!(
        answer["endpoints"],
        Value::Array(Vec::new()),
        "nothing was done"
    );
    assert_eq!(
        site.ask(reader(), "GET", "/v1/status", "").await.0.as_u16(),
        200
    );
    assert_eq!(
        site.ask(member, "POST", "/v1/workloads", ADD)
            .await
            .0
            .as_u16(),
        200
    );
    let requests = site.guard.request_counts();
    assert_eq!(requests.get(&("POST", "/v1/workloads", 403)), Some(&1));
    assert_eq!(requests.get(&("POST", "/v1/workloads", 200)), Some(&1));
}

/// A body in chunks that counts the unread ones.
struct Pieces(Arc<AtomicUsize>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let took = self
            .0
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        Poll::Ready(
            took.ok()
                .map(|_| Ok(Frame::data(Bytes::from_static(b"{}")))),
        )
    }
}

/// A client that still writes when the connection closes would lose the response.
#[tokio::test]
async fn a_refusal_waits_until_the_body_was_sent() {
    let site = Site::new();
    let left = Arc::new(AtomicUsize::new(7));
    let request = Request::builder()
        .method("POST")
        .uri("/v1/workloads")
        .extension(reader())
        .body(Body::new(Pieces(left.clone())))
        .unwrap();
    let service = TowerToHyperService::new(site.router.clone());
    let response = service.call(request).await.unwrap();
    assert_eq!((response.status().as_u16(), left.load(SeqCst)), (403, 0));
}

#[tokio::test]
async fn who_asks_too_often_waits_alone() {
    let site = Site::with_rate(RateLimit {
        per_second: 1,
        burst: 3,
    });
    let mut refused = 0;
    for _ in 0..10 {
        let (status, answer) = site.ask(reader(), "GET", "/v1/config", "").await;
        if status.as_u16() == 429 {
            assert_eq!(answer["code"], "RateLimited");
            refused += 1;
        }
    }
    assert!(refused >= 5, "{refused} of 10 refused");
    assert_eq!(
        site.ask(root(), "GET", "/v1/config", "").await.0.as_u16(),
        200
    );
}

#[tokio::test]
async fn a_large_body_is_refused() {
    let site = Site::new();
    let body = format!(
        r#"{{"namespace":"shop","name":"web","netns":"{}"}}"#,
        "x".repeat(2_000)
    );
    let (status, answer) = site.ask(root(), "POST", "/v1/workloads", &body).await;
    assert_eq!(
        (status.as_u16(), &answer["code"]),
        (413, &Value::from("TooLarge"))
    );
}

/// A site with a real socket.
struct Served {
    _site: Site,
    _dir: tempfile::TempDir,
    socket: PathBuf,
    stop: watch::Sender<bool>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

fn served(room: ConnectionLimits) -> Served {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let (stop, stopped) = watch::channel(false);
    let server = tokio::spawn(serve(
        ApiListener::Unix(listener),
        site.router.clone(),
        room,
        stopped,
    ));
    Served {
        _site: site,
        _dir: dir,
        socket,
        stop,
        server,
    }
}

/// Sends a request and reads until the server closes the connection.
async fn answer(socket: &PathBuf, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    // The server may close the connection before everything is written.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let served = served(ConnectionLimits::default());
    let padding = "x".repeat(HEAD_LIMIT);
    let request = format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nx-padding: {padding}\r\n\r\n");
    let text = answer(&served.socket, &request).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    let many = "x-a: 1\r\n".repeat(200);
    let request = format!("GET /v1/status HTTP/1.1\r\nhost: x\r\n{many}\r\n");
    let text = answer(&served.socket, &request).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    let request = "GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let text = answer(&served.socket, request).await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[tokio::test(start_paused = true)]
async fn who_dawdles_is_cut() {
    let served = served(ConnectionLimits::default());
    // Half a head, and then nothing: the paused clock advances while all tasks wait.
    let text = answer(&served.socket, "GET /v1/status HTTP/1.1\r\nhost").await;
    assert!(!text.starts_with("HTTP/1.1 200"), "{text}");
    // A head that announces a body, which is never sent.
    let request =
        "POST /v1/workloads HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 9\r\n\r\n";
    let text = answer(&served.socket, request).await;
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    assert!(text.contains(r#""code":"Timeout""#), "{text}");
}

#[tokio::test]
async fn connections_are_bounded_and_end_with_the_server() {
    let served = served(ConnectionLimits {
        root: 2,
        per_user: 2,
        all_but_root: 2,
    });
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = UnixStream::connect(&served.socket).await.unwrap();
        stream
            .write_all(b"GET /v1/config HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        held.push(stream);
    }
    let request = "GET /v1/config HTTP/1.1\r\nhost: x\r\n\r\n";
    let text = answer(&served.socket, request).await;
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains(r#""code":"Unavailable""#), "{text}");
    held.pop();
    let request = "GET /v1/config HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut text = answer(&served.socket, request).await;
    for _ in 0..100 {
        if text.starts_with("HTTP/1.1 200 ") {
            break;
        }
        tokio::task::yield_now().await;
        text = answer(&served.socket, request).await;
    }
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    served.stop.send(true).unwrap();
    served.server.await.unwrap().unwrap();
    let mut rest = Vec::new();
    held[0].read_to_end(&mut rest).await.unwrap();
}

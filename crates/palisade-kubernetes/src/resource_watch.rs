//! Lists one resource, then watches it from the version of the list; again and again.
//!
//! A server with streaming lists sends the list as the first events of the watch, so that neither side holds
//! it; another, or one that fails to do so, is asked for pages. A watch that ends is continued from the last version. Everything is listed
//! again only if the server does not have the versions since then.

use crate::api_client::ApiServerClient;
use crate::api_discovery::ApiDiscovery;
use crate::api_error::ApiServerError;
use crate::line_reader::LineReader;
use crate::list::{ApiServerStatus, ListPage, ObjectIdentity, WatchLine};
use crate::resource::ResourceType;
use crate::resource_event::ResourceEvent;
use http::StatusCode;
use palisade_source::Backoff;
use rand::Rng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// The number of objects of a page.
pub(crate) const PAGE: &str = "500";
/// A watch in which nothing arrives for so long is continued on another connection: a server sends a bookmark
/// every minute.
const SILENCE: Duration = Duration::from_secs(90);
/// The seconds after which the server ends a watch. Random, so that the agents of a cluster do not return
/// together.
const WATCH_SECONDS: std::ops::Range<u32> = 240..480;

/// Why a watch ended.
enum WatchEnd {
    /// Nobody receives the events any more.
    Closed,
    /// The server, or the connection.
    Failed(ApiServerError),
}

impl From<ApiServerError> for WatchEnd {
    fn from(error: ApiServerError) -> Self {
        WatchEnd::Failed(error)
    }
}

/// How the next list is requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListMethod {
    /// As the first events of a watch.
    Stream,
    /// Page by page, and the one after that as a stream again: the server failed on a streaming list. It does
    /// so while it starts, and always if its etcd is older than 3.4.25 (Kubernetes, `RequestWatchProgress`).
    Pages,
    /// Page by page: the server does not know streaming lists.
    PagesOnly,
}

/// The state of one resource's watch.
pub(crate) struct ResourceWatch {
    client: ApiServerClient,
    /// Tells when a resource that the server did not have may be there.
    discovery: Arc<ApiDiscovery>,
    resource: ResourceType,
    /// The server did not have the resource.
    is_absent: bool,
    /// Its number, for the receiver.
    number: usize,
    events: Sender<(usize, ResourceEvent)>,
    random: SmallRng,
    /// The shortest delay until an optional resource that the server does not have is asked for again.
    absent_interval: Duration,
    /// The version up to which everything was passed on; `None` before a complete list.
    version: Option<String>,
    list_method: ListMethod,
    retries: WatchRetries,
}

/// When the server is asked again.
#[derive(Default)]
struct WatchRetries {
    /// The last attempt failed.
    has_failed: bool,
    /// The delays after failures.
    backoff: Backoff,
    /// The delays after watches that ended without an event: a server that ends every watch at once is not
    /// asked again at once.
    empty_backoff: Backoff,
}

impl ResourceWatch {
    pub(crate) fn new(
        (client, discovery): (ApiServerClient, Arc<ApiDiscovery>),
        resource: ResourceType,
        number: usize,
        events: Sender<(usize, ResourceEvent)>,
        random: SmallRng,
        absent_interval: Duration,
    ) -> Self {
        ResourceWatch {
            client,
            discovery,
            resource,
            is_absent: false,
            number,
            events,
            random,
            absent_interval,
            version: None,
            list_method: ListMethod::Stream,
            retries: WatchRetries::default(),
        }
    }

    /// Passes on events until nobody receives them.
    pub(crate) async fn run(mut self) {
        loop {
            let ended = match self.version.clone() {
                None if self.is_absent => self.discover().await,
                Some(version) => self.watch(&version).await,
                None if self.list_method == ListMethod::Stream => self.stream_list().await,
                None => self.list_pages().await,
            };
            let delay = match ended {
                Ok(()) => continue,
                Err(WatchEnd::Closed) => return,
                Err(WatchEnd::Failed(error)) => match self.take_failure(&error).await {
                    Ok(delay) => delay,
                    Err(_) => return,
                },
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// The delay after a failure. The first in a row is not reported: most connections that break can be
    /// continued at once.
    async fn take_failure(&mut self, error: &ApiServerError) -> Result<Duration, WatchEnd> {
        tracing::debug!(resource = %self.resource.name(), %error, "watch failed");
        if error.is_not_found() && self.resource.is_optional {
            self.version = None;
            self.is_absent = true;
            self.send(ResourceEvent::Absent).await?;
            return Ok(self.absent_delay());
        }
        if self.version.is_none() {
            match self.list_method {
                ListMethod::Stream if error.is_invalid() => {
                    self.list_method = ListMethod::PagesOnly;
                    return Ok(Duration::ZERO);
                }
                ListMethod::Stream if error.is_server_error() => {
                    self.list_method = ListMethod::Pages;
                }
                ListMethod::Pages => self.list_method = ListMethod::Stream,
                ListMethod::Stream | ListMethod::PagesOnly => {}
            }
        }
        // A list follows at once.
        let is_expired_watch = error.is_expired() && self.version.take().is_some();
        if self.retries.has_failed && !is_expired_watch {
            self.send(ResourceEvent::Interrupted(error.to_string()))
                .await?;
        }
        self.retries.has_failed = true;
        let requested = error.retry_after();
        Ok(self
            .retries
            .backoff
            .next_delay_after(requested, &mut self.random))
    }

    /// The delay until a resource that the server does not have is asked for again.
    fn absent_delay(&mut self) -> Duration {
        let factor = self.random.random_range(1.0..=1.5);
        self.absent_interval.mul_f64(factor)
    }

    /// Returns when a resource that the server did not have may be there.
    async fn discover(&mut self) -> Result<(), WatchEnd> {
        while !self.discovery.has(&self.resource).await? {
            // Also after a time in which the server could not be asked.
            self.send(ResourceEvent::Absent).await?;
            let delay = self.absent_delay();
            tokio::time::sleep(delay).await;
        }
        self.is_absent = false;
        Ok(())
    }

    async fn send(&self, event: ResourceEvent) -> Result<(), WatchEnd> {
        let sent = self.events.send((self.number, event)).await;
        sent.map_err(|_| WatchEnd::Closed)
    }

    /// Lists page by page; the watch follows.
    async fn list_pages(&mut self) -> Result<(), WatchEnd> {
        let mut token = String::new();
        self.send(ResourceEvent::ListBegins).await?;
        loop {
            let next = [("continue", &*token)];
            let next = if token.is_empty() { &[][..] } else { &next };
            let text = self
                .client
                .text(&self.path([("limit", PAGE)], next))
                .await?;
            let page: ListPage<'_> = parse(&text)?;
            for item in page.items.into_iter().flatten() {
                let text = item.get();
                let event = ResourceEvent::Object(ObjectIdentity::of(text), text.into());
                self.send(event).await?;
            }
            token = page.metadata.continue_token;
            if token.is_empty() {
                self.version = Some(page.metadata.resource_version);
                if self.list_method == ListMethod::Pages {
                    self.list_method = ListMethod::Stream;
                }
                return self.send(ResourceEvent::ListEnds).await;
            }
        }
    }

    /// Lists by the first events of a watch, and goes on with it.
    async fn stream_list(&mut self) -> Result<(), WatchEnd> {
        let initial = [
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
        ];
        let path = self.watch_path(&initial);
        let lines = self.client.lines(&path).await?;
        self.send(ResourceEvent::ListBegins).await?;
        self.follow(lines).await
    }

    /// Watches from a version on.
    async fn watch(&mut self, version: &str) -> Result<(), WatchEnd> {
        let path = self.watch_path(&[("resourceVersion", version)]);
        let lines = self.client.lines(&path).await?;
        self.follow(lines).await
    }

    fn watch_path(&mut self, parameters: &[(&str, &str)]) -> String {
        let seconds = self.random.random_range(WATCH_SECONDS).to_string();
        let watch = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &*seconds),
        ];
        self.path(watch, parameters)
    }

    fn path<const N: usize>(&self, first: [(&str, &str); N], others: &[(&str, &str)]) -> String {
        self.resource
            .path_with(first.into_iter().chain(others.iter().copied()))
    }

    /// Passes on the events of a watch until it ends.
    async fn follow(&mut self, mut lines: LineReader) -> Result<(), WatchEnd> {
        let mut is_empty = true;
        if self.version.is_some() {
            self.set_followed().await?;
        }
        while let Some(line) = lines.next_line(SILENCE).await? {
            if line.is_empty() {
                continue;
            }
            match LineEvent::parse(line)? {
                LineEvent::Object(identity, text) => {
                    let version = identity.resource_version.clone();
                    self.send(ResourceEvent::Object(identity, text)).await?;
                    self.advance(version);
                }
                LineEvent::Deleted(identity) => {
                    let version = identity.resource_version.clone();
                    self.send(ResourceEvent::Deleted(identity)).await?;
                    self.advance(version);
                }
                LineEvent::Bookmark(identity) => {
                    if self.version.is_none() && identity.ends_initial_events {
                        self.version = Some(identity.resource_version);
                        self.send(ResourceEvent::ListEnds).await?;
                        self.set_followed().await?;
                    } else {
                        self.advance(identity.resource_version);
                    }
                }
            }
            is_empty = false;
            self.retries.empty_backoff.reset();
        }
        if is_empty {
            tokio::time::sleep(self.retries.empty_backoff.next_delay(&mut self.random)).await;
        }
        Ok(())
    }

    /// A complete list was passed on, and the server sends what changes.
    async fn set_followed(&mut self) -> Result<(), WatchEnd> {
        self.retries.has_failed = false;
        self.retries.backoff.reset();
        self.send(ResourceEvent::Followed).await
    }

    /// Everything up to this version was passed on. Before the end of a list it is not known what was.
    fn advance(&mut self, version: String) {
        if let Some(known) = &mut self.version
            && !version.is_empty()
        {
            *known = version;
        }
    }
}

/// A line of a watch.
enum LineEvent {
    Object(ObjectIdentity, Box<str>),
    Deleted(ObjectIdentity),
    Bookmark(ObjectIdentity),
}

impl LineEvent {
    fn parse(line: &str) -> Result<Self, WatchEnd> {
        let WatchLine { kind, object } = parse(line)?;
        let text = object.get();
        let identity = ObjectIdentity::of(text);
        match &*kind {
            "ADDED" | "MODIFIED" => Ok(LineEvent::Object(identity, text.into())),
            "DELETED" => Ok(LineEvent::Deleted(identity)),
            "BOOKMARK" => Ok(LineEvent::Bookmark(identity)),
            _ => Err(WatchEnd::Failed(watch_error(&kind, text))),
        }
    }
}

fn parse<'t, T: serde::Deserialize<'t>>(text: &'t str) -> Result<T, WatchEnd> {
    let parsed = serde_json::from_str(text);
    parsed.map_err(|error| WatchEnd::Failed(ApiServerError::Answer(error.to_string())))
}

/// The error that a watch reports as an event.
fn watch_error(kind: &str, object: &str) -> ApiServerError {
    if kind != "ERROR" {
        return ApiServerError::Answer(format!("unknown watch event {kind}"));
    }
    let status: ApiServerStatus = serde_json::from_str(object).unwrap_or_default();
    let code = StatusCode::from_u16(status.code);
    ApiServerError::Status {
        code: code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        message: status.message,
        retry_after: None,
    }
}

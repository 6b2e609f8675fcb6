//! A Kubernetes API server in memory: lists, watches, resource versions, and the ways in which a server fails.
//!
//! It stores whatever it is given under the path of a resource, like an etcd behind no validation. Versions are
//! one counter for all objects. Resources can be opened for writing: objects are created, replaced if the
//! version is the present one, and applied, where the last writer wins. It listens on loopback, and ends when it
//! is dropped.

mod failures;
mod writes;

pub use failures::ApiFault;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Resources under this path are not there unless they are installed.
const OPTIONAL_GROUP: &str = "/apis/policy.networking.k8s.io/";

/// A server.
pub struct FakeApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    state: Mutex<ServerState>,
    changed: Condvar,
}

#[derive(Default)]
struct ServerState {
    /// The version of the last change.
    version: u64,
    /// The objects by resource path, then by `namespace/name`.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// Every change; watches that were open at a compaction still receive those before it.
    log: VecDeque<Change>,
    /// No watch begins before this version.
    compacted: u64,
    faults: VecDeque<ApiFault>,
    /// How slow it is.
    delay: Duration,
    /// While true no request is answered and no event is sent.
    is_paused: bool,
    /// While true connections are refused, and open ones end.
    is_down: bool,
    /// The status of a watch that begins with a list, if the server cannot do it.
    refused_streaming_lists: Option<u16>,
    /// The bearer token that requests must have.
    token: Option<String>,
    /// The target of every request, in order.
    requests: Vec<String>,
    /// The paths of the resources of [`OPTIONAL_GROUP`] that it has.
    installed: BTreeSet<String>,
    /// The paths of the resources that can be written.
    writable: BTreeSet<String>,
    /// The target and the body of every write, in order, also of those that were refused.
    writes: Vec<(String, Value)>,
    connections: Vec<TcpStream>,
    is_closed: bool,
}

#[derive(Clone)]
struct Change {
    version: u64,
    path: String,
    kind: &'static str,
    object: Value,
}

/// The answer to a request line.
struct Query {
    /// The path without the namespace.
    path: String,
    namespace: Option<String>,
    parameters: BTreeMap<String, String>,
}

impl FakeApiServer {
    /// A server without objects, on a free port of loopback.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = ServerState {
            version: 1,
            ..ServerState::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if accepting.lock().is_closed {
                    return;
                }
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || {
                    // An error is the end of the connection, of which another handle may exist.
                    let _ = shared.serve(&connection);
                    let _ = connection.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(FakeApiServer { shared, address })
    }

    /// The text of a kubeconfig for it, with the token that it requires now.
    pub fn kubeconfig(&self) -> String {
        let address = self.address;
        let user = match &self.shared.lock().token {
            Some(token) => json!({"token": token}),
            None => json!({}),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": user}],
        })
        .to_string()
    }

    /// Stores an object under the path of its resource; it gets the next resource version.
    pub fn put(&self, path: &str, object: Value) {
        self.shared.lock().put(path, object);
        self.shared.changed.notify_all();
    }

    /// Deletes an object by `namespace/name`, or its name alone; false if there is none.
    pub fn delete(&self, path: &str, key: &str) -> bool {
        let mut state = self.shared.lock();
        let objects = state.objects.entry(path.to_owned()).or_default();
        let Some(mut object) = objects.remove(key) else {
            return false;
        };
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.append(path, "DELETED", object);
        self.shared.changed.notify_all();
        true
    }

    /// Sends a bookmark to every watch.
    pub fn bookmark(&self, path: &str) {
        let mut state = self.shared.lock();
        state.version += 1;
        let version = state.version.to_string();
        let object = json!({"metadata": {"resourceVersion": version}});
        state.append(path, "BOOKMARK", object);
        self.shared.changed.notify_all();
    }

    /// Forgets all changes so far: watches from versions before now are answered with 410.
    pub fn compact(&self) {
        let mut state = self.shared.lock();
        state.compacted = state.version;
    }

    /// Requires this bearer token from now on, and ends all connections.
    pub fn set_token(&self, token: &str) {
        let mut state = self.shared.lock();
        state.token = Some(token.to_owned());
        state.close_connections();
    }

    /// The targets of the requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().requests)
    }
}

impl Drop for FakeApiServer {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.close_connections();
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl ServerState {
    /// Stores an object; returns it with its version.
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let version = self.version;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        }
        let key = key_of(&object);
        let objects = self.objects.entry(path.to_owned()).or_default();
        let kind = match objects.insert(key, object.clone()) {
            Some(_) => "MODIFIED",
            None => "ADDED",
        };
        self.append(path, kind, object.clone());
        object
    }

    fn append(&mut self, path: &str, kind: &'static str, object: Value) {
        self.log.push_back(Change {
            version: self.version,
            path: path.to_owned(),
            kind,
            object,
        });
    }

    fn close_connections(&mut self) {
        for connection in self.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn take_fault(&mut self, is_meant: impl Fn(&ApiFault) -> bool) -> Option<ApiFault> {
        if self.faults.front().is_some_and(is_meant) {
            self.faults.pop_front()
        } else {
            None
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the server is paused; fails once it is down.
    fn wait_until_active(&self) -> io::Result<MutexGuard<'_, ServerState>> {
        let mut state = self.lock();
        loop {
            if state.is_down || state.is_closed {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if !state.is_paused {
                return Ok(state);
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Answers the requests of a connection until it ends.
    fn serve(&self, connection: &TcpStream) -> io::Result<()> {
        {
            let mut state = self.lock();
            if state.is_down || state.is_closed {
                return Ok(());
            }
            state.connections.push(connection.try_clone()?);
        }
        connection.set_nodelay(true)?;
        let mut lines = BufReader::new(connection.try_clone()?);
        let mut output = connection.try_clone()?;
        loop {
            let mut request = String::new();
            if lines.read_line(&mut request)? == 0 {
                return Ok(());
            }
            let (mut token, mut length) = (None, 0);
            loop {
                let mut header = String::new();
                if lines.read_line(&mut header)? == 0 || header.trim().is_empty() {
                    break;
                }
                if let Some((name, value)) = header.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap_or(0);
                }
                let bearer = header.trim().split_once(": Bearer ");
                token = token.or(bearer.map(|(_, token)| token.to_owned()));
            }
            let mut body = vec![0; length];
            lines.read_exact(&mut body)?;
            let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let fault = {
                let mut state = self.wait_until_active()?;
                state.requests.push(target.clone());
                if state.token.is_some() && state.token != token {
                    Some(ApiFault::Status(401))
                } else {
                    state.take_fault(|f| matches!(f, ApiFault::Status(_) | ApiFault::Garbage))
                }
            };
            match fault {
                Some(ApiFault::Status(code)) => send_status(&mut output, code, "a fault")?,
                Some(_) => return output.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n"),
                None if request.starts_with("GET ") => {
                    self.answer(&Query::parse(&target), &mut output)?;
                }
                None => {
                    let body = serde_json::from_slice(&body).unwrap_or_default();
                    let mut state = self.lock();
                    let method = request.split(' ').next().unwrap_or_default();
                    let (code, answer) = state.write(method, &Query::parse(&target), &body);
                    state.writes.push((target, body));
                    drop(state);
                    self.changed.notify_all();
                    send_text(&mut output, code, &answer.to_string())?;
                }
            }
        }
    }

    /// The resources that are installed of an API group and version.
    fn answer_discovery(&self, api: &str, output: &mut TcpStream) -> io::Result<()> {
        let state = self.lock();
        let of_api = state.installed.iter().filter_map(|path| {
            let name = path.strip_prefix(api)?.strip_prefix('/')?;
            Some(serde_json::json!({ "name": name }))
        });
        let resources: Vec<Value> = of_api.collect();
        drop(state);
        if resources.is_empty() {
            send_text(output, 404, "404 page not found")
        } else {
            let list = serde_json::json!({ "kind": "APIResourceList", "resources": resources });
            send_text(output, 200, &list.to_string())
        }
    }

    fn answer(&self, query: &Query, output: &mut TcpStream) -> io::Result<()> {
        if let Some(version) = query.path.strip_prefix(OPTIONAL_GROUP)
            && !version.contains('/')
        {
            return self.answer_discovery(&query.path, output);
        }
        if query.path.starts_with(OPTIONAL_GROUP) && !self.lock().installed.contains(&query.path) {
            let text = "404 page not found";
            return send_text(output, 404, text);
        }
        if query.parameters.contains_key("watch") {
            return self.answer_watch(query, output);
        }
        let state = self.wait_until_active()?;
        let (parent, _) = query.path.rsplit_once('/').unwrap_or_default();
        if state.writable.contains(parent) {
            let objects = state.objects.get(parent);
            let object = objects
                .and_then(|all| all.get(&query.object_key()))
                .cloned();
            drop(state);
            return match object {
                Some(object) => send_text(output, 200, &object.to_string()),
                None => send_status(output, 404, "not found"),
            };
        }
        let mut objects = state.objects.get(&query.path).cloned().unwrap_or_default();
        let version = state.version;
        drop(state);
        if let Some(selector) = query.parameters.get("fieldSelector") {
            let name = selector.strip_prefix("metadata.name=").unwrap_or_default();
            let key = query.key(name);
            objects.retain(|other, _| *other == key);
        }
        let limit = query.parameters.get("limit");
        let limit: usize = limit
            .and_then(|limit| limit.parse().ok())
            .unwrap_or(usize::MAX);
        let after = query
            .parameters
            .get("continue")
            .cloned()
            .unwrap_or_default();
        let rest = objects.iter().filter(|(key, _)| **key > after);
        let page: Vec<(&String, &Value)> = rest.clone().take(limit).collect();
        let is_last = rest.count() <= limit;
        let next = page
            .last()
            .filter(|_| !is_last)
            .map(|(key, _)| (*key).clone());
        let items: Vec<Value> = page
            .into_iter()
            .map(|(_, object)| untyped(object))
            .collect();
        let list = json!({
            "kind": "TestList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version.to_string(), "continue": next.unwrap_or_default()},
            "items": items,
        });
        let text = list.to_string();
        let mut state = self.wait_until_active()?;
        let is_cut = state.take_fault(|f| *f == ApiFault::CutList).is_some();
        let delay = state.delay;
        drop(state);
        send_head(output, 200, text.len())?;
        let (first, second) = text.as_bytes().split_at(text.len() / 2);
        output.write_all(first)?;
        if is_cut {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        wait_delay(delay);
        output.write_all(second)
    }

    fn answer_watch(&self, query: &Query, output: &mut TcpStream) -> io::Result<()> {
        let mut state = self.wait_until_active()?;
        let is_list = query.parameters.contains_key("sendInitialEvents");
        if let Some(status) = state.refused_streaming_lists
            && is_list
        {
            drop(state);
            return send_status(output, status, "sendInitialEvents is forbidden");
        }
        let from = query.parameters.get("resourceVersion");
        let mut sent: u64 = from.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut first = Vec::new();
        if is_list {
            let objects = state.objects.get(&query.path);
            let objects = objects.into_iter().flat_map(BTreeMap::values);
            first.extend(objects.map(|object| event("ADDED", object)));
            sent = state.version;
            let bookmark = json!({"metadata": {
                "resourceVersion": sent.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }});
            first.push(event("BOOKMARK", &bookmark));
        } else if sent < state.compacted {
            first.push(event("ERROR", &status(410, "too old resource version")));
        }
        let fault = state.take_fault(|f| match f {
            ApiFault::WatchError(_) | ApiFault::CutObject => true,
            ApiFault::CutList => is_list,
            _ => false,
        });
        drop(state);
        output.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        match fault {
            Some(ApiFault::WatchError(code)) => {
                send_chunk(output, &event("ERROR", &status(code, "a fault")))?;
                return end_chunks(output);
            }
            Some(fault) => {
                let whole = match fault {
                    ApiFault::CutList => first.len() / 2,
                    _ => 0,
                };
                for line in &first[..whole] {
                    send_chunk(output, line)?;
                }
                let text = first.get(whole).cloned();
                let text = text.unwrap_or_else(|| event("ADDED", &json!({"metadata": {}})));
                return send_half(output, &text);
            }
            None => {}
        }
        for line in first {
            send_chunk(output, &line)?;
            if line.contains("\"ERROR\"") {
                return end_chunks(output);
            }
        }
        loop {
            let mut state = self.wait_until_active()?;
            let next = |state: &ServerState| -> Vec<Change> {
                let new = state.log.iter().filter(|change| change.version > sent);
                new.filter(|change| change.path == query.path)
                    .cloned()
                    .collect()
            };
            let mut changes = next(&state);
            if changes.is_empty() {
                let wait = self.changed.wait_timeout(state, Duration::from_millis(500));
                state = wait.unwrap_or_else(PoisonError::into_inner).0;
                if state.is_paused || state.is_down || state.is_closed {
                    continue;
                }
                changes = next(&state);
            }
            drop(state);
            for change in changes {
                let text = event(change.kind, &change.object);
                let mut state = self.lock();
                let is_cut = state.take_fault(|f| *f == ApiFault::CutEvent).is_some();
                let delay = state.delay;
                drop(state);
                if is_cut {
                    return send_half(output, &text);
                }
                wait_delay(delay);
                send_chunk(output, &text)?;
                sent = change.version;
            }
        }
    }
}

impl Query {
    fn parse(target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let decode = |text: &str| text.replace("%2F", "/").replace("%3D", "=");
        let (before, after) = path.split_once("/namespaces/").unwrap_or((path, ""));
        let namespaced = after.split_once('/');
        Query {
            path: namespaced.map_or(path.to_owned(), |(_, rest)| format!("{before}/{rest}")),
            namespace: namespaced.map(|(namespace, _)| namespace.to_owned()),
            parameters: pairs
                .map(|(key, value)| (key.to_owned(), decode(value)))
                .collect(),
        }
    }
}

fn key_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    match &metadata["namespace"] {
        Value::Null => text(&metadata["name"]),
        namespace => format!("{}/{}", text(namespace), text(&metadata["name"])),
    }
}

/// The items of a list have no type of their own.
fn untyped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message})
}

fn send_status(output: &mut TcpStream, code: u16, message: &str) -> io::Result<()> {
    send_text(output, code, &status(code, message).to_string())
}

fn send_text(output: &mut TcpStream, code: u16, text: &str) -> io::Result<()> {
    send_head(output, code, text.len())?;
    output.write_all(text.as_bytes())
}

fn send_head(output: &mut TcpStream, code: u16, length: usize) -> io::Result<()> {
    let later = if code == 429 {
        "Retry-After: 1\r\n"
    } else {
        ""
    };
    write!(
        output,
        "HTTP/1.1 {code} Status\r\n{later}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

fn wait_delay(delay: Duration) {
    #[allow(clippy::disallowed_methods, reason = "a slow server is one that waits")]
    std::thread::sleep(delay);
}

/// Half of a line, and the end of the connection.
fn send_half(output: &mut TcpStream, text: &str) -> io::Result<()> {
    let half: String = text.chars().take(text.chars().count() / 2).collect();
    send_chunk(output, &half)?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

fn send_chunk(output: &mut TcpStream, text: &str) -> io::Result<()> {
    write!(output, "{:x}\r\n{text}\r\n", text.len())
}

fn end_chunks(output: &mut TcpStream) -> io::Result<()> {
    output.write_all(b"0\r\n\r\n")
}

//! Writes to the server: what may be written, and the answers.

use super::{ApiFault, FakeApiServer, Query, ServerState, key_of, status};
use serde_json::Value;

impl FakeApiServer {
    /// Opens or closes the resource of this path for writing; a closed one is answered with 404.
    pub fn set_writable(&self, path: &str, is_writable: bool) {
        let mut state = self.shared.lock();
        if is_writable {
            state.writable.insert(path.to_owned())
        } else {
            state.writable.remove(path)
        };
    }

    /// The object of a resource by `namespace/name`, or its name alone.
    pub fn object(&self, path: &str, key: &str) -> Option<Value> {
        self.shared.lock().objects.get(path)?.get(key).cloned()
    }

    /// All objects of a resource.
    pub fn objects(&self, path: &str) -> Vec<Value> {
        let state = self.shared.lock();
        let objects = state.objects.get(path).into_iter();
        objects.flat_map(|all| all.values().cloned()).collect()
    }

    /// The targets and bodies of the writes since the last call.
    pub fn take_writes(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.shared.lock().writes)
    }
}

impl ServerState {
    /// The status and the answer to a write.
    pub(super) fn write(&mut self, method: &str, query: &Query, body: &Value) -> (u16, Value) {
        if let Some(ApiFault::Write(code)) = self.take_fault(|f| matches!(f, ApiFault::Write(_))) {
            return (code, status(code, "a fault"));
        }
        if let Some(object) = query.path.strip_suffix("/status") {
            return self.write_status(method, query, object, body);
        }
        let (parent, _) = query.path.rsplit_once('/').unwrap_or_default();
        let path = if method == "POST" {
            &*query.path
        } else {
            parent
        };
        if !self.writable.contains(path) {
            return refused(404, "the server could not find the requested resource");
        }
        let key = key_of(body);
        let present = self.objects.get(path).and_then(|all| all.get(&key));
        let version = present.map(|present| &present["metadata"]["resourceVersion"]);
        let is_applied = method == "PATCH" && query.parameters.contains_key("fieldManager");
        match (method, version) {
            ("POST", None) => (201, self.put(path, body.clone())),
            ("POST", Some(_)) => refused(409, "already exists"),
            ("PUT", None) => refused(404, "not found"),
            ("PUT", Some(version)) if body["metadata"]["resourceVersion"] != *version => {
                refused(409, "the object has been modified")
            }
            _ if method != "PUT" && !is_applied => refused(400, "this is no apply"),
            _ if query.object_key() != key => refused(400, "the name is another"),
            _ => (200, self.put(path, body.clone())),
        }
    }

    /// The answer to the apply of conditions: each replaces the one of its type.
    fn write_status(
        &mut self,
        method: &str,
        query: &Query,
        object: &str,
        body: &Value,
    ) -> (u16, Value) {
        let (path, name) = object.rsplit_once('/').unwrap_or_default();
        if method != "PATCH" || !query.parameters.contains_key("fieldManager") {
            return refused(400, "this is no apply");
        }
        if !self.writable.contains(&format!("{path}/status")) {
            return refused(404, "the server could not find the requested resource");
        }
        let key = query.key(name);
        if key != key_of(body) {
            return refused(400, "the name is another");
        }
        let present = self.objects.get(path).and_then(|all| all.get(&key));
        let Some(mut object) = present.cloned() else {
            return refused(404, "not found");
        };
        let list = |object: &Value| {
            let list = object["status"]["conditions"].as_array();
            list.cloned().unwrap_or_default()
        };
        let (mut conditions, applied) = (list(&object), list(body));
        conditions.retain(|old| applied.iter().all(|new| new["type"] != old["type"]));
        conditions.extend(applied);
        object["status"]["conditions"] = conditions.into();
        (200, self.put(path, object))
    }
}

fn refused(code: u16, message: &str) -> (u16, Value) {
    (code, status(code, message))
}

impl Query {
    /// The key of the object of this name.
    pub(super) fn key(&self, name: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
    }

    /// The key of the object that the path names.
    pub(super) fn object_key(&self) -> String {
        self.key(self.path.rsplit('/').next().unwrap_or_default())
    }
}

//! Objects as manifests, and their way through the dialect.
//!
//! Writing the JSON is outside the clock; reading it (with what the agent's own source keeps of it) and
//! lowering it is inside. An interface is added as the agent adds it, which no manifest says.

use crate::parsed_objects::{
    BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy, BenchRule, LabelTest,
};
use crate::states::BenchInput;
use crate::stopwatch::Stopwatch;
use palisade_dialects::{field_filter_of_kind, lower_object};
use palisade_manifest::{Limits, ObjectSink, Problem, RawObject, read_stream};
use palisade_model::{Object, Update};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};

/// How many objects are in one list.
const LIST: usize = 1_000;

/// Objects as updates, read list by list as they are asked for.
pub(crate) struct ManifestReading<'r> {
    objects: Box<dyn Iterator<Item = BenchObject> + 'r>,
    watch: &'r Stopwatch,
    taken: ReadObjects,
}

/// What came of the lists so far.
#[derive(Default)]
struct ReadObjects {
    updates: VecDeque<Update>,
    interfaces: BTreeMap<(String, String), String>,
    problems: Vec<String>,
}

impl<'r> ManifestReading<'r> {
    /// Of an input, with the time of writing kept out of `watch`.
    pub(crate) fn of(input: &'r BenchInput, watch: &'r Stopwatch) -> Self {
        ManifestReading {
            objects: Box::new(input.objects()),
            watch,
            taken: ReadObjects::default(),
        }
    }

    /// The first problem that there was, if any.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.taken.problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    fn list(&mut self) -> Option<String> {
        let mut items = Vec::new();
        self.taken.interfaces.clear();
        for written in self.objects.by_ref().take(LIST) {
            if let BenchObject::Pod(pod) = &written
                && let Some(interface) = &pod.interface
            {
                let name = (pod.namespace.clone(), pod.name.clone());
                self.taken.interfaces.insert(name, interface.clone());
            }
            items.push(json_of(&written));
        }
        let is_over = items.is_empty();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        (!is_over).then(|| list.to_string())
    }
}

impl Iterator for ManifestReading<'_> {
    type Item = Update;

    fn next(&mut self) -> Option<Update> {
        while self.taken.updates.is_empty() {
            let watch = self.watch;
            let list = watch.exclude(|| self.list())?;
            let limits = Limits {
                objects: usize::MAX,
                ..Limits::default()
            };
            let mut reader = list.as_bytes();
            let (keep, taken) = (field_filter_of_kind, &mut self.taken);
            if let Err(error) = read_stream("list.json", &mut reader, &limits, None, keep, taken) {
                self.taken.problems.push(error.to_string());
            }
            watch.exclude(|| drop(list));
        }
        self.taken.updates.pop_front()
    }
}

impl ObjectSink for ReadObjects {
    fn push_object(&mut self, object: RawObject) {
        let lowered = lower_object(&object);
        let problems = lowered.errors.iter().map(|problem| format!("{problem:?}"));
        self.problems.extend(problems);
        for mut object in lowered.objects {
            if let Object::Endpoint(endpoint) = &mut object
                && let Some(namespace) = &endpoint.id.namespace
            {
                let name = (namespace.to_string(), endpoint.id.name.to_string());
                let interface = self.interfaces.get(&name);
                endpoint.interface = interface.map(|name| name.as_str().into());
            }
            self.updates.push_back(Update::Upsert(object));
        }
    }

    fn push_problem(&mut self, problem: Problem) {
        self.problems.push(format!("{problem:?}"));
    }

    fn begin_document(&mut self) {}

    fn rollback_document(&mut self) {
        self.problems.push("a list was taken back".to_owned());
    }
}

fn json_of(written: &BenchObject) -> Value {
    match written {
        BenchObject::Namespace(namespace) => of_namespace(namespace),
        BenchObject::Pod(pod) => of_pod(pod),
        BenchObject::Policy(policy) => of_policy(policy),
        // Kubernetes has none; whoever asks for one reads a problem.
        BenchObject::Tier(tier) => {
            json!({"apiVersion": "v1", "kind": "Tier", "metadata": {"name": tier.name}})
        }
    }
}

fn labels(pairs: &[(String, String)]) -> Value {
    let pairs = pairs.iter();
    Value::Object(
        pairs
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect::<Map<_, _>>(),
    )
}

fn of_namespace(namespace: &BenchNamespace) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace.name, "labels": labels(&namespace.labels)}})
}

fn of_pod(pod: &BenchPod) -> Value {
    let addresses: Vec<Value> = pod.addresses.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": labels(&pod.labels)},
        "spec": {"nodeName": pod.node, "serviceAccountName": "default",
            "containers": [{"name": "main", "image": "registry.example.com/main:1"}]},
        "status": {"phase": "Running", "podIP": pod.addresses.first(), "podIPs": addresses}})
}

fn selector(tests: &[LabelTest]) -> Value {
    let expressions: Vec<Value> = tests
        .iter()
        .map(|test| match test {
            LabelTest::Has(key) => json!({"key": key, "operator": "Exists"}),
            LabelTest::Is(key, value) => json!({"key": key, "operator": "In", "values": [value]}),
        })
        .collect();
    json!({"matchExpressions": expressions})
}

fn of_policy(policy: &BenchPolicy) -> Value {
    let rules = |rules: &Option<Vec<BenchRule>>, peers: &str| {
        let rules = rules.iter().flatten().map(|rule| {
            let mut out = Map::new();
            out.insert(peers.into(), json!([peer(&rule.peer)]));
            if !rule.ports.is_empty() {
                let ports = rule.ports.iter();
                let ports = ports.map(|(protocol, port)| {
                    json!({"protocol": protocol.to_string().to_uppercase(), "port": port})
                });
                out.insert("ports".into(), ports.collect());
            }
            Value::Object(out)
        });
        rules.collect::<Vec<Value>>()
    };
    let directions = [("Ingress", &policy.ingress), ("Egress", &policy.egress)];
    let types = directions.into_iter().filter(|(_, rules)| rules.is_some());
    let types: Vec<&str> = types.map(|(name, _)| name).collect();
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": policy.name, "namespace": policy.namespace},
        "spec": {"podSelector": selector(&policy.subject), "policyTypes": types,
            "ingress": rules(&policy.ingress, "from"), "egress": rules(&policy.egress, "to")}})
}

fn peer(peer: &BenchPeer) -> Value {
    match peer {
        BenchPeer::Labelled(tests) => json!({"podSelector": selector(tests)}),
        BenchPeer::SameNamespace => json!({"podSelector": {}}),
        BenchPeer::Pods(namespace, tests) => json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "podSelector": selector(tests)}),
        BenchPeer::Net(net) => json!({"ipBlock": {"cidr": net.to_string()}}),
    }
}

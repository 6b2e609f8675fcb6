//! What holds an address for Calico's selectors, with all the labels that they can test.

use super::super::{at, in_cidr, is_kind, labels, list, namespace, namespace_labels, pod_at, text};
use super::is_calico;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A workload, a host endpoint or a set of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NaiveHolder {
    /// Its namespace; nothing for what belongs to the cluster.
    pub(super) namespace: Option<String>,
    /// Its own labels and those that Calico adds.
    pub(super) labels: BTreeMap<String, String>,
}

/// The objects, with the labels and annotations that Calico's clients keep in an annotation of its resources.
pub(in crate::naive) fn with_stored_metadata(objects: &[Value]) -> Cow<'_, [Value]> {
    let stored = |object: &Value| {
        let is_resource = text(object, "/apiVersion")?.starts_with("crd.projectcalico.org/");
        let annotations = at(object, "/metadata/annotations").filter(|_| is_resource)?;
        let stored = annotations.get("projectcalico.org/metadata")?.as_str()?;
        serde_json::from_str::<Value>(stored).ok()
    };
    if !objects.iter().any(|object| stored(object).is_some()) {
        return Cow::Borrowed(objects);
    }
    let mut restored = objects.to_vec();
    for object in &mut restored {
        let Some(stored) = stored(object) else {
            continue;
        };
        for part in ["labels", "annotations"] {
            for (key, value) in stored[part].as_object().into_iter().flatten() {
                object["metadata"][part][key] = value.clone();
            }
        }
    }
    Cow::Owned(restored)
}

/// The objects, with every workload and host endpoint of Calico having the labels that its profiles apply, for whatever policy: those of
/// the first profile that has one, and its own before them.
pub(in crate::naive) fn with_applied_labels(objects: &[Value]) -> Cow<'_, [Value]> {
    let applies = |object: &Value| {
        is_calico(object, "Profile") && at(object, "/spec/labelsToApply").is_some()
    };
    if !objects.iter().any(applies) {
        return Cow::Borrowed(objects);
    }
    let mut labelled = objects.to_vec();
    for endpoint in &mut labelled {
        if !is_calico(endpoint, "WorkloadEndpoint") && !is_calico(endpoint, "HostEndpoint") {
            continue;
        }
        let mut all = labels(endpoint);
        for name in list(at(endpoint, "/spec/profiles")) {
            let profile = objects.iter().find(|profile| {
                is_calico(profile, "Profile") && at(profile, "/metadata/name") == Some(name)
            });
            let applied = profile.and_then(|profile| at(profile, "/spec/labelsToApply"));
            for (key, value) in applied.and_then(Value::as_object).into_iter().flatten() {
                all.entry(key.clone()).or_insert(value.clone());
            }
        }
        endpoint["metadata"]["labels"] = Value::Object(all);
    }
    Cow::Owned(labelled)
}

impl NaiveHolder {
    /// Everything that holds an address.
    pub(super) fn all_at(objects: &[Value], address: IpAddr) -> Vec<NaiveHolder> {
        let pod =
            pod_at(objects, address).map(|pod| NaiveHolder::of_workload(objects, &objects[pod]));
        let others = objects.iter().filter_map(|object| {
            if is_calico(object, "GlobalNetworkSet") && in_set(object, address) {
                return Some(NaiveHolder::of_cluster(object));
            }
            if is_calico(object, "HostEndpoint") && is_expected(object, address) {
                return Some(NaiveHolder::of_cluster(object));
            }
            (is_calico(object, "NetworkSet") && in_set(object, address))
                .then(|| NaiveHolder::of_namespace(objects, object))
        });
        pod.into_iter().chain(others).collect()
    }

    /// A pod or a WorkloadEndpoint.
    pub(super) fn of_workload(objects: &[Value], object: &Value) -> NaiveHolder {
        let mut holder = NaiveHolder::of_namespace(objects, object);
        let of = namespace(object);
        let is_pod = is_kind(object, "", "Pod");
        let account = text(object, "/spec/serviceAccountName").filter(|name| !name.is_empty());
        let account = if is_pod {
            account.or(Some("default"))
        } else {
            account
        };
        let orchestrator = if is_pod {
            Some("k8s")
        } else {
            text(object, "/spec/orchestrator")
        };
        if let Some(name) = orchestrator {
            holder.add("projectcalico.org/orchestrator", name);
        }
        if let Some(name) = account {
            holder.add("projectcalico.org/serviceaccount", name);
            let is_it = |object: &&Value| {
                is_kind(object, "", "ServiceAccount")
                    && namespace(object) == of
                    && text(object, "/metadata/name") == Some(name)
            };
            let found = objects.iter().find(is_it).map(labels).unwrap_or_default();
            for (key, value) in text_map(Some(&found)) {
                holder.add(&format!("pcsa.{key}"), &value);
            }
            holder.add("pcsa.projectcalico.org/name", name);
        }
        holder
    }

    /// What has a namespace, without more.
    fn of_namespace(objects: &[Value], object: &Value) -> NaiveHolder {
        let mut holder = NaiveHolder::of_cluster(object);
        let of = namespace(object);
        holder.namespace = Some(of.to_owned());
        holder.add("projectcalico.org/namespace", of);
        for (key, value) in text_map(Some(&namespace_labels(objects, of))) {
            holder.add(&format!("pcns.{key}"), &value);
        }
        holder.add("pcns.projectcalico.org/name", of);
        holder
    }

    /// What has no namespace: a host endpoint, a set.
    pub(super) fn of_cluster(object: &Value) -> NaiveHolder {
        NaiveHolder {
            namespace: None,
            labels: text_map(Some(&labels(object))).collect(),
        }
    }

    fn add(&mut self, key: &str, value: &str) {
        self.labels.insert(key.to_owned(), value.to_owned());
    }
}

fn text_map(of: Option<&Map<String, Value>>) -> impl Iterator<Item = (String, String)> {
    let fields = of.into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
}

fn in_set(set: &Value, address: IpAddr) -> bool {
    let nets = list(at(set, "/spec/nets")).iter();
    nets.filter_map(Value::as_str)
        .any(|net| in_cidr(net, address) || net.parse() == Ok(address))
}

fn is_expected(host: &Value, address: IpAddr) -> bool {
    let expected = list(at(host, "/spec/expectedIPs")).iter();
    expected
        .filter_map(Value::as_str)
        .any(|ip| ip.parse() == Ok(address))
}

/// Whether a set of networks or a host endpoint holds an address.
pub(in super::super) fn holds(object: &Value, address: IpAddr) -> bool {
    in_set(object, address) || is_expected(object, address)
}

//! The labels that profiles apply to their endpoints.
//!
//! Promises: an endpoint is passed on with the labels of its profiles, and again when these change, and so is the
//! network set that holds the addresses of a host endpoint; the updates are a function of the objects in force alone. Endpoints without a profile of their own cost nothing. Never: decides what
//! is in force.

use alloc::collections::{BTreeMap, BTreeSet};
use palisade_model::{
    Endpoint, EndpointId, Labels, NetworkSet, NetworkSetKind, Object, ObjectKey, Profile, Str,
    Update,
};

/// The labels of profiles, and the endpoints that name a profile.
#[derive(Debug, Default)]
pub(crate) struct AppliedLabels {
    /// Of profiles that apply any.
    profiles: BTreeMap<Str, Labels>,
    /// As they were passed in, with their own labels only.
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// Endpoints by the profiles that they name.
    members: BTreeMap<Str, BTreeSet<EndpointId>>,
    /// The network sets with the addresses of host endpoints, as they were passed in.
    holders: BTreeMap<EndpointId, NetworkSet>,
}

impl AppliedLabels {
    /// Passes on an object, and every endpoint whose labels it changes.
    pub(crate) fn upsert(&mut self, object: Object, updates: &mut dyn FnMut(Update)) {
        match object {
            Object::Endpoint(endpoint) => {
                let before = self.labelled_holder(&endpoint.id);
                let id = endpoint.id.clone();
                let endpoint = self.put_endpoint(endpoint);
                updates(Update::Upsert(Object::Endpoint(endpoint)));
                self.pass_holder(&id, before, updates);
            }
            Object::NetworkSet(set) => {
                let set = self.put_holder(set);
                updates(Update::Upsert(Object::NetworkSet(set)));
            }
            Object::Profile(profile) => {
                let (name, labels) = (profile.name.clone(), profile.labels_to_apply.clone());
                updates(Update::Upsert(Object::Profile(profile)));
                self.set_labels(&name, labels, updates);
            }
            other => updates(Update::Upsert(other)),
        }
    }

    /// Passes on that an object is gone, and every endpoint whose labels that changes.
    pub(crate) fn delete(&mut self, key: ObjectKey, updates: &mut dyn FnMut(Update)) {
        match &key {
            ObjectKey::Endpoint(id) => {
                let before = self.labelled_holder(id);
                self.remove_endpoint(id);
                self.pass_holder(id, before, updates);
            }
            ObjectKey::NetworkSet(id) => drop(self.holders.remove(id)),
            ObjectKey::Profile(name) => self.set_labels(name, Labels::new(), updates),
            _ => {}
        }
        updates(Update::Delete(key));
    }

    /// Stores an endpoint that names profiles, and returns it with their labels.
    fn put_endpoint(&mut self, endpoint: Endpoint) -> Endpoint {
        self.remove_endpoint(&endpoint.id);
        let named = |name: &&Str| ***name != *Profile::ALLOW_ALL;
        if !endpoint.profiles.iter().any(|name| named(&name)) {
            return endpoint;
        }
        for name in endpoint.profiles.iter().filter(named) {
            let members = self.members.entry(name.clone()).or_default();
            members.insert(endpoint.id.clone());
        }
        let labelled = self.with_labels(&endpoint);
        self.endpoints.insert(endpoint.id.clone(), endpoint);
        labelled
    }

    fn remove_endpoint(&mut self, id: &EndpointId) {
        let Some(gone) = self.endpoints.remove(id) else {
            return;
        };
        for name in &gone.profiles {
            if let Some(members) = self.members.get_mut(name) {
                members.remove(id);
                if members.is_empty() {
                    self.members.remove(name);
                }
            }
        }
    }

    /// Stores a network set with the addresses of a host endpoint, and returns it with the labels of the profiles of
    /// that; any other is returned as it is.
    fn put_holder(&mut self, set: NetworkSet) -> NetworkSet {
        if set.kind != NetworkSetKind::HostEndpoint {
            return set;
        }
        let id = set.id.clone();
        self.holders.insert(id.clone(), set.clone());
        self.labelled_holder(&id).unwrap_or(set)
    }

    fn labelled_holder(&self, id: &EndpointId) -> Option<NetworkSet> {
        let mut holder = self.holders.get(id)?.clone();
        if let Some(endpoint) = self.endpoints.get(id) {
            let own = Endpoint {
                labels: holder.labels,
                ..endpoint.clone()
            };
            holder.labels = self.with_labels(&own).labels;
        }
        Some(holder)
    }

    /// Passes on a network set with the addresses of a host endpoint, if it is another than before.
    fn pass_holder(
        &self,
        id: &EndpointId,
        before: Option<NetworkSet>,
        updates: &mut dyn FnMut(Update),
    ) {
        let holder = self.labelled_holder(id);
        if let Some(holder) = holder.filter(|holder| before.as_ref() != Some(holder)) {
            updates(Update::Upsert(Object::NetworkSet(holder)));
        }
    }

    fn with_labels(&self, endpoint: &Endpoint) -> Endpoint {
        let mut labelled = endpoint.clone();
        let applied = endpoint.profiles.iter();
        labelled.inherit_labels(applied.filter_map(|name| self.profiles.get(name)));
        labelled
    }

    fn set_labels(&mut self, name: &Str, labels: Labels, updates: &mut dyn FnMut(Update)) {
        let before = if labels.is_empty() {
            self.profiles.remove(name)
        } else {
            self.profiles.insert(name.clone(), labels)
        };
        if before.as_ref() == self.profiles.get(name) {
            return;
        }
        for id in self.members.get(name).into_iter().flatten() {
            if let Some(endpoint) = self.endpoints.get(id) {
                let labelled = self.with_labels(endpoint);
                updates(Update::Upsert(Object::Endpoint(labelled)));
            }
            if let Some(holder) = self.labelled_holder(id) {
                updates(Update::Upsert(Object::NetworkSet(holder)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use palisade_model::{EndpointKind, ObjectId, ObjectKind};

    fn endpoint(profiles: &[&str]) -> Endpoint {
        let id = ObjectId {
            namespace: Some("a".into()),
            name: "w".into(),
            kind: ObjectKind::new("projectcalico.org", "WorkloadEndpoint"),
        };
        Endpoint {
            labels: Labels::from([("own".into(), "1".into())]),
            profiles: profiles.iter().map(|name| (*name).into()).collect(),
            ..Endpoint::pod(id)
        }
    }

    fn profile(name: &str, labels: &[(&str, &str)]) -> Object {
        Object::Profile(Profile {
            name: name.into(),
            ingress: vec![],
            egress: vec![],
            labels_to_apply: labels
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
        })
    }

    /// The labels of the endpoints in the updates that a change causes.
    fn labels_after(change: impl FnOnce(&mut dyn FnMut(Update))) -> Vec<Vec<(Str, Str)>> {
        let mut labels = Vec::new();
        change(&mut |update| {
            if let Update::Upsert(Object::Endpoint(endpoint)) = update {
                labels.push(endpoint.labels.into_iter().collect());
            }
        });
        labels
    }

    fn pairs(labels: &[(&str, &str)]) -> Vec<(Str, Str)> {
        let pair = |(key, value): &(&str, &str)| ((*key).into(), (*value).into());
        labels.iter().map(pair).collect()
    }

    /// The labels of the network sets in the updates that a change causes.
    fn holder_labels_after(change: impl FnOnce(&mut dyn FnMut(Update))) -> Vec<Vec<(Str, Str)>> {
        let mut labels = Vec::new();
        change(&mut |update| {
            if let Update::Upsert(Object::NetworkSet(set)) = update {
                labels.push(set.labels.into_iter().collect());
            }
        });
        labels
    }

    #[test]
    fn addresses_of_a_host_endpoint_have_its_labels() {
        let id = ObjectId {
            namespace: None,
            name: "h".into(),
            kind: ObjectKind::new("projectcalico.org", "HostEndpoint"),
        };
        let host = |profiles: &[&str]| {
            Object::Endpoint(Endpoint {
                id: id.clone(),
                kind: EndpointKind::HostInterface,
                ..endpoint(profiles)
            })
        };
        let holder = || {
            Object::NetworkSet(NetworkSet {
                id: id.clone(),
                kind: NetworkSetKind::HostEndpoint,
                labels: Labels::from([("own".into(), "1".into())]),
                nets: vec![],
            })
        };
        let own = [pairs(&[("own", "1")])];
        let all = [pairs(&[("own", "1"), ("x", "p")])];
        let mut applied = AppliedLabels::default();
        let after = holder_labels_after(|updates| applied.upsert(holder(), updates));
        assert_eq!(after, own);
        let after = holder_labels_after(|updates| applied.upsert(host(&["p"]), updates));
        assert!(after.is_empty(), "nothing changes: {after:?}");
        let labels = profile("p", &[("own", "2"), ("x", "p")]);
        let after = holder_labels_after(|updates| applied.upsert(labels.clone(), updates));
        assert_eq!(after, all);
        let after = holder_labels_after(|updates| applied.upsert(holder(), updates));
        assert_eq!(after, all);
        let after = holder_labels_after(|updates| applied.upsert(host(&[]), updates));
        assert_eq!(after, own);
        let after = holder_labels_after(|updates| applied.upsert(host(&["p"]), updates));
        assert_eq!(after, all);
        let after = holder_labels_after(|updates| applied.delete(host(&[]).key(), updates));
        assert_eq!(after, own);
        let after = holder_labels_after(|updates| {
            applied.delete(holder().key(), updates);
            applied.upsert(host(&["p"]), updates);
        });
        assert!(after.is_empty(), "{after:?}");
        assert!(applied.holders.is_empty());
    }

    #[test]
    fn labels_follow_the_profiles() {
        let mut applied = AppliedLabels::default();
        let first = labels_after(|updates| {
            applied.upsert(profile("p", &[("own", "2"), ("x", "p")]), updates);
            applied.upsert(Object::Endpoint(endpoint(&["p", "q"])), updates);
        });
        assert_eq!(first, [pairs(&[("own", "1"), ("x", "p")])]);
        let second = labels_after(|updates| {
            applied.upsert(profile("q", &[("x", "q"), ("y", "q")]), updates);
        });
        assert_eq!(second, [pairs(&[("own", "1"), ("x", "p"), ("y", "q")])]);
        let same = labels_after(|updates| {
            applied.upsert(profile("q", &[("x", "q"), ("y", "q")]), updates);
        });
        assert!(same.is_empty(), "nothing changes: {same:?}");
        let third = labels_after(|updates| applied.delete(profile("p", &[]).key(), updates));
        assert_eq!(third, [pairs(&[("own", "1"), ("x", "q"), ("y", "q")])]);
        let gone = labels_after(|updates| {
            applied.delete(Object::Endpoint(endpoint(&[])).key(), updates);
            applied.upsert(profile("q", &[]), updates);
        });
        assert!(gone.is_empty(), "{gone:?}");
        assert!(applied.members.is_empty() && applied.profiles.is_empty());
        let plain = labels_after(|updates| {
            applied.upsert(Object::Endpoint(endpoint(&[Profile::ALLOW_ALL])), updates);
        });
        assert_eq!(plain, [pairs(&[("own", "1")])]);
        assert!(applied.endpoints.is_empty(), "a pod is not kept");
    }
}

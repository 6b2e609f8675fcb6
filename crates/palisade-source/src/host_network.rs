//! Doubts about policies that select pods on the host network, kept up to date as objects change: an
//! edit of a policy looks at such pods of its namespace, an edit of such a pod at the policies
//! of its namespace.

use crate::piece::{Id, Piece};
use palisade_dialects::host_network_doubt;
use palisade_manifest::Problem;
use palisade_model::{Endpoint, Object, ObjectId, Str};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The doubts.
#[derive(Debug, Default)]
pub(crate) struct HostNetwork {
    pods: BTreeMap<Id, Endpoint>,
    policies: BTreeSet<Id>,
    doubts: BTreeMap<Id, Problem>,
}

impl HostNetwork {
    /// Takes in the objects that changed; `piece` is the first definition of an object.
    pub(crate) fn update<'a>(
        &mut self,
        changed: &BTreeSet<Id>,
        piece: impl Fn(&ObjectId) -> Option<&'a Piece>,
    ) {
        let mut namespaces: BTreeSet<Option<Str>> = BTreeSet::new();
        let mut stale: BTreeSet<&Id> = BTreeSet::new();
        for id in changed {
            let now = piece(id);
            let pod = now.and_then(|piece| piece.on_host_network.as_deref());
            if self.pods.get(id) != pod {
                namespaces.insert(id.namespace.clone());
                match pod {
                    Some(pod) => self.pods.insert(id.clone(), pod.clone()),
                    None => self.pods.remove(id),
                };
            }
            let is_policy = now.is_some_and(|piece| policies(piece).next().is_some());
            if is_policy {
                self.policies.insert(id.clone());
                stale.insert(id);
            } else if self.policies.remove(id) {
                self.doubts.remove(id);
            }
        }
        let of_pods = self.policies.iter().filter(|id| {
            !namespaces.is_empty() && (id.namespace.is_none() || namespaces.contains(&id.namespace))
        });
        stale.extend(of_pods);
        for id in stale {
            match piece(id).and_then(|piece| self.doubt(piece)) {
                Some(doubt) => self.doubts.insert(id.clone(), doubt),
                None => self.doubts.remove(id),
            };
        }
    }

    /// All of them.
    pub(crate) fn doubts(&self) -> impl Iterator<Item = &Problem> {
        self.doubts.values()
    }

    fn doubt(&self, piece: &Piece) -> Option<Problem> {
        let namespace = &piece.id.namespace;
        let start = match namespace {
            None => Bound::Unbounded,
            Some(_) => Bound::Included(ObjectId {
                namespace: namespace.clone(),
                name: "".into(),
                group: "".into(),
                kind: "".into(),
            }),
        };
        policies(piece).find_map(|policy| {
            let pods = self
                .pods
                .range((start.clone(), Bound::Unbounded))
                .take_while(|(id, _)| namespace.is_none() || id.namespace == *namespace);
            let subject = piece.subject.as_deref()?;
            host_network_doubt(policy, subject, pods.map(|(_, pod)| pod))
        })
    }
}

fn policies(piece: &Piece) -> impl Iterator<Item = &palisade_model::Policy> {
    let valid = (!piece.rejected).then_some(&piece.objects);
    valid
        .into_iter()
        .flat_map(|objects| objects.iter())
        .filter_map(|object| match object {
            Object::Policy(policy) => Some(policy),
            _ => None,
        })
}

//! The nodes whose host endpoints are attached here.
//!
//! Policies of nodes select host endpoints by the labels of their node, so the host endpoints of a node are recomputed
//! when its labels change. Nothing here is computed for other nodes.

use crate::faults::EngineFault;
use alloc::collections::BTreeMap;
use palisade_model::{Endpoint, EndpointId, Node, State, Str};

/// The nodes that attached host endpoints name, with the number of these.
#[derive(Debug, Default)]
pub(super) struct HostNodes {
    endpoints: BTreeMap<Str, usize>,
}

impl HostNodes {
    /// Counts an attached endpoint, before and after an update.
    pub(super) fn update(&mut self, before: Option<&Endpoint>, now: Option<&Endpoint>) {
        let node = |endpoint: Option<&Endpoint>| {
            let host = endpoint.filter(|endpoint| endpoint.is_host())?;
            host.node.clone()
        };
        let (before, now) = (node(before), node(now));
        if before == now {
            return;
        }
        if let Some(name) = now {
            *self.endpoints.entry(name).or_default() += 1;
        }
        if let Some(name) = before
            && let Some(count) = self.endpoints.get_mut(&name)
        {
            *count -= 1;
            if *count == 0 {
                self.endpoints.remove(&name);
            }
        }
    }

    /// The host endpoints of this host that are interfaces of a node.
    pub(super) fn host_endpoints<'a>(
        &self,
        state: &'a State,
        node: &'a Str,
    ) -> impl Iterator<Item = &'a EndpointId> {
        let is_known = self.endpoints.contains_key(node);
        let all = state.endpoints.values().filter(move |_| is_known);
        let of_node =
            all.filter(move |endpoint| endpoint.is_host() && endpoint.node.as_ref() == Some(node));
        of_node.map(|endpoint| &endpoint.id)
    }
}

/// Whether an update of a node changes what policies of nodes see of it.
pub(super) fn is_relabelled(old: Option<&Node>, new: Option<&Node>) -> bool {
    let is_same = match (old, new) {
        (Some(old), Some(new)) => old.labels == new.labels,
        (old, new) => old.is_none() && new.is_none(),
    };
    !is_same && !EngineFault::HostNodeLabelsStale.is_injected()
}

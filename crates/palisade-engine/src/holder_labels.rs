//! The labels of one holder, for a selector to test: its own, those that it inherits, and reserved
//! ones.
//!
//! Nothing is copied or cached here.

use crate::store::{HolderId, HolderKind, HolderStore, HolderView, SharedAttributes};
use palisade_model::{EndpointId, LabelKey, LabelLookup, LabelScope, reserved};

/// A holder's labels, for a selector to test.
pub(crate) struct HolderLabels<'a> {
    pub(crate) view: HolderView<'a>,
}

impl<'a> HolderLabels<'a> {
    /// The labels of an endpoint.
    pub(crate) fn endpoint(store: &'a HolderStore, id: &EndpointId) -> Option<Self> {
        let view = store.view(store.find_endpoint(id)?)?;
        Some(HolderLabels { view })
    }

    pub(crate) fn value(&self, scope: LabelScope, key: &str) -> Option<&'a str> {
        let (columns, namespace) = (self.view.store, self.view.namespace);
        match scope {
            LabelScope::Own => self.view.value(key),
            LabelScope::Namespace => {
                columns.namespace_label(namespace, key, columns.names.find(key))
            }
            LabelScope::ServiceAccount => {
                let account = self.view.shared()?.account.as_ref()?;
                columns.account_label(namespace, account, key)
            }
            LabelScope::Node => self.host_node()?.value(key),
            LabelScope::Reserved => self.reserved_label(key),
        }
    }

    /// The node whose interface a host endpoint is, if it is known.
    fn host_node(&self) -> Option<HolderView<'a>> {
        let is_host = self.view.shared().is_some_and(SharedAttributes::is_host);
        let name = self.view.node().filter(|_| is_host)?;
        let store = self.view.store;
        store.view(store.find(&HolderId::Node(name.into()))?)
    }

    fn reserved_label(&self, key: &str) -> Option<&'a str> {
        match key {
            reserved::KIND => Some(match self.view.kind() {
                HolderKind::NetworkSet => self.view.shared()?.network_set?.reserved_kind(),
                HolderKind::Node => reserved::KIND_NODE,
                HolderKind::Endpoint => self.view.shared()?.endpoint?.reserved_kind(),
            }),
            reserved::NAMESPACE => {
                let name = self.view.store.names.get(self.view.namespace)?;
                Some(name)
            }
            reserved::NAME => Some(self.view.name()),
            reserved::SERVICE_ACCOUNT => self.view.shared()?.account.as_deref(),
            reserved::NODE => self.view.node(),
            reserved::HOST_NODE => Some(self.host_node()?.name()),
            reserved::OWN_NODE => self.view.own_node_value(),
            _ => None,
        }
    }
}

impl LabelLookup for HolderLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        self.value(key.scope, &key.name)
    }
}

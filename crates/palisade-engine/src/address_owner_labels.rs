//! The labels of one owner of addresses, for a selector to test: its own, those that it inherits, and reserved
//! ones.
//!
//! Nothing is copied or cached here.

use crate::store::{
    AddressOwnerId, AddressOwnerKind, AddressOwnerSlot, AddressOwnerStore, AddressOwnerView,
    SharedAttributes,
};
use palisade_model::{
    EndpointId, LabelKey, LabelLookup, LabelScope, NetworkSetKind, Selector, reserved,
};

/// An owner's labels, for a selector to test.
pub(crate) struct AddressOwnerLabels<'a> {
    pub(crate) view: AddressOwnerView<'a>,
}

impl<'a> AddressOwnerLabels<'a> {
    /// The labels of an endpoint.
    pub(crate) fn endpoint(store: &'a AddressOwnerStore, id: &EndpointId) -> Option<Self> {
        let view = store.view(store.find_endpoint(id)?)?;
        Some(AddressOwnerLabels { view })
    }

    /// Whether a selector matches the owner in a slot, which is no template.
    pub(crate) fn matches(
        store: &'a AddressOwnerStore,
        slot: AddressOwnerSlot,
        selector: &Selector,
    ) -> bool {
        let view = store.view(slot);
        let view = view.filter(|view| !view.is_template());
        view.is_some_and(|view| selector.matches(&AddressOwnerLabels { view }))
    }

    pub(crate) fn value(&self, scope: LabelScope, key: &str) -> Option<&'a str> {
        let (columns, namespace) = (self.view.store, self.view.namespace);
        match scope {
            LabelScope::Own => self.view.value(key),
            LabelScope::Namespace => {
                columns.namespace_label(namespace, key, columns.names().find(key))
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
    fn host_node(&self) -> Option<AddressOwnerView<'a>> {
        let is_host = self.view.shared().is_some_and(SharedAttributes::is_host);
        let name = self.view.node().filter(|_| is_host)?;
        let store = self.view.store;
        store.view(store.find(&AddressOwnerId::Node(name.into()))?)
    }

    fn reserved_label(&self, key: &str) -> Option<&'a str> {
        match key {
            reserved::KIND => Some(match self.view.kind() {
                AddressOwnerKind::NetworkSet => self.view.shared()?.network_set?.reserved_kind(),
                AddressOwnerKind::Node => reserved::KIND_NODE,
                AddressOwnerKind::Endpoint => self.view.shared()?.endpoint?.reserved_kind(),
            }),
            reserved::NAMESPACE => {
                let name = self.view.store.names().get(self.view.namespace)?;
                Some(name)
            }
            reserved::NAME => Some(self.view.name()),
            reserved::SERVICE_ACCOUNT => self.view.shared()?.account.as_deref(),
            reserved::NODE => self.view.node(),
            reserved::HOST_NODE => Some(self.host_node()?.name()),
            reserved::OWN_NODE => self.view.own_node_value(),
            reserved::DOMAIN => {
                let kind = self.view.shared()?.network_set?;
                (kind == NetworkSetKind::DomainName).then(|| self.view.name())
            }
            _ => None,
        }
    }
}

impl LabelLookup for AddressOwnerLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        self.value(key.scope, &key.name)
    }
}

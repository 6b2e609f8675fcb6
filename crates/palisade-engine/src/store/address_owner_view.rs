//! An owner of addresses as the store has it, or as it was before an update, read without copying it.
//!
//! Nothing here modifies the store.

use super::address_owner_store::{AddressOwnerStore, REMOVED, ReplacedAddressOwner};
use super::address_owners::{
    AddressOwnerAttributes, AddressOwnerId, AddressOwnerKind, SharedAttributes, text,
};
use super::encoding::EncodedAddresses;
use super::numbers::AddressOwnerSlot;
use palisade_model::{Endpoint, EndpointMetadata, Owner};

/// An owner as it is, or as it was before an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressOwnerView<'a> {
    pub(crate) store: &'a AddressOwnerStore,
    pub(super) encoded: &'a [u8],
    pub(crate) namespace: u32,
    /// The number of its list of label keys.
    pub(crate) keys: u32,
    /// The number of its shared attributes.
    pub(crate) shared: u32,
}

impl<'a> AddressOwnerView<'a> {
    pub(super) fn attributes(&self) -> AddressOwnerAttributes<'a> {
        AddressOwnerAttributes::read(self.encoded)
    }

    pub(crate) fn shared(&self) -> Option<&'a SharedAttributes> {
        self.store.shared(self.shared)
    }

    pub(crate) fn kind(&self) -> AddressOwnerKind {
        self.shared()
            .map_or(AddressOwnerKind::Endpoint, |common| common.owner_kind)
    }

    /// Whether it is attached to this host.
    pub(crate) fn is_attached(&self) -> bool {
        self.shared().is_some_and(|shared| shared.attached)
    }

    pub(crate) fn is_template(&self) -> bool {
        self.shared().is_some_and(SharedAttributes::is_template)
    }

    /// The numbers of its label keys, in order.
    pub(crate) fn keys(&self) -> &'a [u32] {
        self.store.key_list(self.keys)
    }

    /// The values of those of its own labels whose keys are at these positions, in ascending order.
    pub(crate) fn values_at(
        &self,
        positions: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = &'a str> {
        let mut values = self.attributes().values;
        let mut at = 0;
        positions.map(move |position| {
            values.skip_texts(position - at);
            at = position + 1;
            values.text()
        })
    }

    pub(crate) fn addresses(&self) -> EncodedAddresses<'a> {
        self.attributes().addresses
    }

    /// When it was created, as its object says.
    pub(crate) fn created(&self) -> u64 {
        self.attributes().created
    }

    /// The value of one of its own labels.
    pub(crate) fn value(&self, key: &str) -> Option<&'a str> {
        let key = self.store.names().find(key)?;
        let at = self.keys().iter().position(|k| *k == key)?;
        self.values_at(core::iter::once(at)).next()
    }

    /// The name of the node that it says it runs on.
    pub(crate) fn node(&self) -> Option<&'a str> {
        let name = self.store.names().get(self.attributes().node)?;
        Some(name)
    }

    /// The value of [`palisade_model::reserved::OWN_NODE`], seen by the endpoints of this host.
    pub(crate) fn own_node_value(&self) -> Option<&'static str> {
        let is_node = self.kind() == AddressOwnerKind::Node;
        let own_node = self.store.host_node.as_deref().filter(|_| is_node);
        palisade_model::own_node_value(self.name(), own_node)
    }

    /// The text of its name.
    pub(crate) fn name(&self) -> &'a str {
        text(self.attributes().name)
    }

    /// Whether selectors see the same labels in both, apart from namespace and account labels.
    pub(crate) fn has_same_labels(&self, other: &AddressOwnerView<'_>) -> bool {
        let (a, b) = (self.attributes(), other.attributes());
        self.keys == other.keys
            && a.node == b.node
            && a.values.0 == b.values.0
            && match (self.shared(), other.shared()) {
                (Some(a), Some(b)) => {
                    (a.is_host(), a.is_template(), &a.account)
                        == (b.is_host(), b.is_template(), &b.account)
                }
                _ => false,
            }
    }

    /// Whether both have the same precedence as claimants of an address, and the same named ports.
    pub(crate) fn has_same_claim(&self, other: &AddressOwnerView<'_>) -> bool {
        self.attributes().created == other.attributes().created
            && match (self.shared(), other.shared()) {
                (Some(a), Some(b)) => a.attached == b.attached && a.ports == b.ports,
                _ => false,
            }
    }

    /// Whether both have the same interface.
    pub(crate) fn has_same_interface(&self, other: &AddressOwnerView<'_>) -> bool {
        self.attributes().interface == other.attributes().interface
    }
}

impl AddressOwnerStore {
    /// The owner in a slot, unless it is removed.
    pub(crate) fn view(&self, slot: AddressOwnerSlot) -> Option<AddressOwnerView<'_>> {
        let record = self.record(slot)?;
        (record.shared & REMOVED == 0).then_some(AddressOwnerView {
            store: self,
            encoded: &record.encoded,
            namespace: record.namespace,
            keys: record.keys,
            shared: record.shared,
        })
    }

    /// An owner as before an update.
    pub(crate) fn view_replaced<'a>(
        &'a self,
        before: &'a ReplacedAddressOwner,
    ) -> AddressOwnerView<'a> {
        AddressOwnerView {
            store: self,
            encoded: &before.encoded,
            namespace: before.namespace,
            keys: before.keys,
            shared: before.shared,
        }
    }

    /// The endpoint in a slot, exactly as it was given, but for its UID.
    pub(crate) fn endpoint(&self, slot: AddressOwnerSlot) -> Option<Endpoint> {
        let view = self.view(slot)?;
        let common = view.shared()?;
        let AddressOwnerId::Endpoint(id) = self.id(slot)? else {
            return None;
        };
        let own = view.attributes();
        let mut values = own.values;
        let labels = view.keys().iter().filter_map(|key| {
            let value = values.text();
            Some((self.names().get(*key)?.clone(), value.into()))
        });
        Some(Endpoint {
            id,
            kind: common.endpoint?,
            labels: labels.collect(),
            service_account: common.account.clone(),
            node: self.names().get(own.node).cloned(),
            interface: own.interface.map(|bytes| text(bytes).into()),
            addresses: own.addresses.collect(),
            ports: common.ports.clone(),
            profiles: common.profiles.clone(),
            created: own.created,
            metadata: EndpointMetadata {
                owner: own.owner.and_then(|(kind, name)| {
                    Some(Owner {
                        kind: self.names().get(kind)?.clone(),
                        name: self.names().get(name)?.clone(),
                    })
                }),
                uid: None,
            },
            audit: common.audit,
        })
    }

    /// The slots of all endpoints that are not removed.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = AddressOwnerSlot> {
        let slots = self.views();
        slots.filter_map(|(slot, view)| (view.kind() == AddressOwnerKind::Endpoint).then_some(slot))
    }

    /// All owners that are not removed.
    pub(crate) fn views(&self) -> impl Iterator<Item = (AddressOwnerSlot, AddressOwnerView<'_>)> {
        self.slots()
            .filter_map(|slot| Some((slot, self.view(slot)?)))
    }
}

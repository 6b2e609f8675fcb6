//! One owner of addresses (endpoint, network set or node): name, shared attributes, own attributes, object of an
//! update. Nothing here knows the store.

use super::encoding::{ByteReader, EncodedAddresses};
use super::numbers::NONE;
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, EndpointId, EndpointKind, Labels, NamedPort, NetworkSet, NetworkSetKind, Node,
    ObjectId, ObjectKind, Str,
};

/// The name of an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressOwnerId {
    Endpoint(EndpointId),
    NetworkSet(ObjectId),
    Node(Str),
}

/// The kind of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AddressOwnerKind {
    Endpoint,
    NetworkSet,
    Node,
}

/// Attributes that many owners have in common, interned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharedAttributes {
    pub(crate) owner_kind: AddressOwnerKind,
    /// Empty for a node, which has a name only.
    pub(crate) kind: ObjectKind,
    /// What an endpoint is.
    pub(crate) endpoint: Option<EndpointKind>,
    /// What a network set is.
    pub(crate) network_set: Option<NetworkSetKind>,
    /// Whether it is attached to this host.
    pub(crate) attached: bool,
    /// Whether it is in audit by itself.
    pub(crate) audit: bool,
    pub(crate) account: Option<Str>,
    pub(crate) profiles: Vec<Str>,
    pub(crate) ports: Vec<NamedPort>,
}

impl SharedAttributes {
    /// Whether it is an endpoint of a node rather than a workload.
    pub(crate) fn is_host(&self) -> bool {
        self.endpoint.is_some_and(EndpointKind::is_host)
    }

    /// Whether it stands for the pods of a workload template.
    pub(crate) fn is_template(&self) -> bool {
        self.endpoint.is_some_and(EndpointKind::is_template)
    }
}

/// The attributes that an owner does not share, decoded from its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressOwnerAttributes<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) addresses: EncodedAddresses<'a>,
    pub(crate) node: u32,
    pub(crate) interface: Option<&'a [u8]>,
    pub(crate) created: u64,
    pub(crate) owner: Option<(u32, u32)>,
    /// The label values, in the order of the keys.
    pub(crate) values: ByteReader<'a>,
}

pub(crate) mod flag {
    //! Bits of the first byte of an owner's encoded attributes: which of them it has.

    pub(crate) const INTERFACE: u8 = 1;
    pub(crate) const CREATED: u8 = 2;
    pub(crate) const OWNER: u8 = 4;
    pub(crate) const NODE: u8 = 8;
}

impl<'a> AddressOwnerAttributes<'a> {
    pub(crate) fn read(facts: &'a [u8]) -> Self {
        let mut reader = ByteReader(facts);
        let flags = reader.byte();
        let name = reader.text_bytes();
        let addresses = reader.addresses();
        let has = |bit: u8| flags & bit != 0;
        AddressOwnerAttributes {
            name,
            addresses,
            node: if has(flag::NODE) {
                reader.reference()
            } else {
                NONE
            },
            interface: has(flag::INTERFACE).then(|| reader.text_bytes()),
            created: if has(flag::CREATED) {
                reader.number()
            } else {
                0
            },
            owner: has(flag::OWNER).then(|| (reader.reference(), reader.reference())),
            values: reader,
        }
    }
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default()
}

/// The object of an update, as an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AddressOwnerObject<'a> {
    Endpoint(&'a Endpoint),
    NetworkSet(&'a NetworkSet),
    Node(&'a Node),
}

impl<'a> AddressOwnerObject<'a> {
    pub(crate) fn kind(&self) -> AddressOwnerKind {
        match self {
            AddressOwnerObject::Endpoint(_) => AddressOwnerKind::Endpoint,
            AddressOwnerObject::NetworkSet(_) => AddressOwnerKind::NetworkSet,
            AddressOwnerObject::Node(_) => AddressOwnerKind::Node,
        }
    }

    pub(crate) fn id(&self) -> Option<&'a ObjectId> {
        match self {
            AddressOwnerObject::Endpoint(e) => Some(&e.id),
            AddressOwnerObject::NetworkSet(s) => Some(&s.id),
            AddressOwnerObject::Node(_) => None,
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        match self {
            AddressOwnerObject::Node(n) => &n.name,
            _ => self.id().map_or("", |id| &id.name),
        }
    }

    pub(crate) fn labels(&self) -> &'a Labels {
        match self {
            AddressOwnerObject::Endpoint(e) => &e.labels,
            AddressOwnerObject::NetworkSet(s) => &s.labels,
            AddressOwnerObject::Node(n) => &n.labels,
        }
    }

    pub(crate) fn has_shared(&self, common: &SharedAttributes) -> bool {
        let id = self.id();
        common.owner_kind == self.kind()
            && common.kind == id.map_or_else(ObjectKind::default, |id| id.kind.clone())
            && match self {
                AddressOwnerObject::Endpoint(e) => {
                    common.endpoint == Some(e.kind)
                        && common.attached == e.interface.is_some()
                        && common.audit == e.audit
                        && common.account == e.service_account
                        && common.profiles == e.profiles
                        && common.ports == e.ports
                }
                AddressOwnerObject::NetworkSet(set) => common.network_set == Some(set.kind),
                AddressOwnerObject::Node(_) => true,
            }
    }

    pub(crate) fn shared_attributes(&self) -> SharedAttributes {
        let id = self.id();
        let endpoint = match self {
            AddressOwnerObject::Endpoint(endpoint) => Some(endpoint),
            _ => None,
        };
        SharedAttributes {
            owner_kind: self.kind(),
            kind: id.map_or_else(ObjectKind::default, |id| id.kind.clone()),
            endpoint: endpoint.map(|e| e.kind),
            network_set: match self {
                AddressOwnerObject::NetworkSet(set) => Some(set.kind),
                AddressOwnerObject::Endpoint(_) | AddressOwnerObject::Node(_) => None,
            },
            attached: endpoint.is_some_and(|e| e.interface.is_some()),
            audit: endpoint.is_some_and(|e| e.audit),
            account: endpoint.and_then(|e| e.service_account.clone()),
            profiles: endpoint.map_or_else(Vec::new, |e| e.profiles.clone()),
            ports: endpoint.map_or_else(Vec::new, |e| e.ports.clone()),
        }
    }
}

//! One holder: what it shares with others, what is its own, and how an update gives it.
//!
//! A view reads a holder out of the columns without copying it. Nothing here changes anything.

use crate::columns::{Columns, NONE};
use crate::facts::{Addresses, Reader};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::hash::{Hash, Hasher};
use palisade_model::{Endpoint, Labels, NamedPort, NetworkSet, Node, ObjectId, Str};

/// What a holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Endpoint,
    NetworkSet,
    Node,
}

/// What many holders have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Common {
    pub(crate) what: What,
    pub(crate) group: Str,
    pub(crate) kind: Str,
    pub(crate) host: bool,
    pub(crate) account: Option<Str>,
    pub(crate) profiles: Vec<Str>,
    pub(crate) ports: Vec<NamedPort>,
}

/// A sorted list of label keys, by the numbers of their names.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    pub(crate) keys: Box<[u32]>,
    /// Which of them selectors test: the place in the list and the key's number. True as of an epoch
    /// of the tested keys.
    pub(crate) tested: Vec<(u32, u32)>,
    pub(crate) epoch: u64,
}

impl Borrow<[u32]> for KeySet {
    fn borrow(&self) -> &[u32] {
        &self.keys
    }
}

impl Hash for KeySet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.hash(state);
    }
}

impl PartialEq for KeySet {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Eq for KeySet {}

/// What is a holder's own, read from its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own<'a> {
    flags: u8,
    pub(crate) name: &'a [u8],
    pub(crate) addresses: Addresses<'a>,
    pub(crate) node: u32,
    pub(crate) interface: Option<&'a [u8]>,
    pub(crate) created: u64,
    pub(crate) owner: Option<(u32, u32)>,
    /// The values of its labels, in the order of their keys.
    pub(crate) values: Reader<'a>,
}

pub(crate) mod flag {
    //! What the first byte of a holder's own facts says.

    /// It is removed.
    pub(crate) const GONE: u8 = 1;
    pub(crate) const TEMPLATE: u8 = 2;
    pub(crate) const INTERFACE: u8 = 4;
    pub(crate) const CREATED: u8 = 8;
    pub(crate) const OWNER: u8 = 16;
    pub(crate) const NODE: u8 = 32;
}

impl<'a> Own<'a> {
    pub(crate) fn read(facts: &'a [u8]) -> Self {
        let mut reader = Reader(facts);
        let flags = reader.byte();
        let name = reader.text_bytes();
        let addresses = reader.addresses();
        let has = |bit: u8| flags & bit != 0;
        Own {
            flags,
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

    /// Whether it is attached to this host.
    pub(crate) fn is_attached(&self) -> bool {
        self.flags & flag::INTERFACE != 0
    }

    pub(crate) fn is_template(&self) -> bool {
        self.flags & flag::TEMPLATE != 0
    }
}

/// A holder as it is, or as it was before an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) columns: &'a Columns,
    pub(crate) facts: &'a [u8],
    pub(crate) namespace: u32,
    pub(crate) keys: u32,
    pub(crate) common: u32,
}

impl<'a> View<'a> {
    pub(crate) fn own(&self) -> Own<'a> {
        Own::read(self.facts)
    }

    pub(crate) fn common(&self) -> Option<&'a Common> {
        self.columns.common(self.common)
    }

    pub(crate) fn what(&self) -> What {
        self.common().map_or(What::Endpoint, |common| common.what)
    }

    /// The numbers of its label keys, in order.
    pub(crate) fn keys(&self) -> &'a [u32] {
        let keys = self.columns.key_sets.get(self.keys);
        keys.map_or(&[], |set| &set.keys)
    }

    /// The value under one of its own label keys.
    pub(crate) fn value(&self, key: &str) -> Option<&'a str> {
        let key = self.columns.names.find(key)?;
        let at = self.keys().iter().position(|k| *k == key)?;
        let mut values = self.own().values;
        values.skip_texts(at);
        Some(values.text())
    }

    /// The text of its name.
    pub(crate) fn name(&self) -> &'a str {
        text(self.own().name)
    }

    /// Whether selectors see the same in both, but for namespace and account labels.
    pub(crate) fn looks_like(&self, other: &View<'_>) -> bool {
        let (a, b) = (self.own(), other.own());
        self.keys == other.keys
            && a.values.0 == b.values.0
            && a.is_template() == b.is_template()
            && match (self.common(), other.common()) {
                (Some(a), Some(b)) => a.host == b.host && a.account == b.account,
                _ => false,
            }
    }

    /// Whether both are as strong a claimant of an address, with the same named ports.
    pub(crate) fn weighs_like(&self, other: &View<'_>) -> bool {
        let (a, b) = (self.own(), other.own());
        a.created == b.created
            && a.is_attached() == b.is_attached()
            && match (self.common(), other.common()) {
                (Some(a), Some(b)) => a.ports == b.ports,
                _ => false,
            }
    }

    /// Whether its interface is the same.
    pub(crate) fn is_attached_like(&self, other: &View<'_>) -> bool {
        self.own().interface == other.own().interface
    }
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default()
}

/// A holder, as an update says it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'a> {
    Endpoint(&'a Endpoint),
    NetworkSet(&'a NetworkSet),
    Node(&'a Node),
}

impl<'a> Given<'a> {
    pub(crate) fn what(&self) -> What {
        match self {
            Given::Endpoint(_) => What::Endpoint,
            Given::NetworkSet(_) => What::NetworkSet,
            Given::Node(_) => What::Node,
        }
    }

    pub(crate) fn id(&self) -> Option<&'a ObjectId> {
        match self {
            Given::Endpoint(e) => Some(&e.id),
            Given::NetworkSet(s) => Some(&s.id),
            Given::Node(_) => None,
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        match self {
            Given::Node(n) => &n.name,
            _ => self.id().map_or("", |id| &id.name),
        }
    }

    pub(crate) fn labels(&self) -> &'a Labels {
        match self {
            Given::Endpoint(e) => &e.labels,
            Given::NetworkSet(s) => &s.labels,
            Given::Node(n) => &n.labels,
        }
    }

    pub(crate) fn has(&self, common: &Common) -> bool {
        let id = self.id();
        common.what == self.what()
            && *common.group == *id.map_or("", |id| &*id.group)
            && *common.kind == *id.map_or("", |id| &*id.kind)
            && match self {
                Given::Endpoint(e) => {
                    common.host == e.host
                        && common.account == e.service_account
                        && common.profiles == e.profiles
                        && common.ports == e.ports
                }
                _ => true,
            }
    }

    pub(crate) fn common(&self) -> Common {
        let id = self.id();
        let endpoint = match self {
            Given::Endpoint(endpoint) => Some(endpoint),
            _ => None,
        };
        Common {
            what: self.what(),
            group: id.map_or_else(|| "".into(), |id| id.group.clone()),
            kind: id.map_or_else(|| "".into(), |id| id.kind.clone()),
            host: endpoint.is_some_and(|e| e.host),
            account: endpoint.and_then(|e| e.service_account.clone()),
            profiles: endpoint.map_or_else(Vec::new, |e| e.profiles.clone()),
            ports: endpoint.map_or_else(Vec::new, |e| e.ports.clone()),
        }
    }
}

//! The labels of namespaces and service accounts, which the owners of addresses in them inherit, and the namespaces
//! in audit.
//!
//! A cluster may have a namespace for each pod, so the encoding is that of owners: an interned
//! list of keys, values as bytes. Labels are given back exactly as they came. Nothing here
//! interprets them.

use super::encoding::{ByteReader, write_text};
use super::name_pools::NamePools;
use super::numbers::NONE;
use super::pool::HashMap;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{Endpoint, Labels, Namespace, ServiceAccount, Str};

/// What has labels, by the numbers of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LabelOwner {
    namespace: u32,
    /// A service account in the namespace; `NONE` for the namespace itself.
    account: u32,
}

/// Labels: the number of the key list, and the encoded values.
#[derive(Debug, PartialEq, Eq)]
struct EncodedLabels {
    keys: u32,
    values: Box<[u8]>,
}

/// The labels of all namespaces and service accounts.
#[derive(Debug, Default)]
pub(crate) struct InheritedLabels {
    all: HashMap<LabelOwner, EncodedLabels>,
    /// The namespaces in audit.
    audit: BTreeSet<Str>,
}

impl InheritedLabels {
    /// The number of namespaces and service accounts with an object.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of namespaces in audit.
    pub(crate) fn audit_count(&self) -> usize {
        self.audit.len()
    }

    /// Whether an endpoint is in audit, by itself or with its namespace.
    pub(super) fn is_in_audit(&self, endpoint: &Endpoint) -> bool {
        let namespace = endpoint.id.namespace.as_ref();
        endpoint.audit || namespace.is_some_and(|name| self.audit.contains(name))
    }

    /// Sets whether a namespace is in audit. Returns whether that changed anything.
    pub(super) fn set_audit(&mut self, namespace: &Str, audit: bool) -> bool {
        if audit {
            self.audit.insert(namespace.clone())
        } else {
            self.audit.remove(namespace)
        }
    }

    /// Sets or, without `labels`, removes the labels of a namespace or of a service account in it.
    /// Returns whether that changed anything.
    pub(super) fn set(
        &mut self,
        pools: &mut NamePools,
        namespace: &Str,
        account: Option<&Str>,
        labels: Option<&Labels>,
    ) -> bool {
        let Some(labels) = labels else {
            return self.remove(pools, namespace, account);
        };
        let owner = LabelOwner {
            namespace: pools.acquire_name(namespace),
            account: account.map_or(NONE, |account| pools.acquire_name(account)),
        };
        let keys = pools.acquire_keys(labels);
        let mut values = Vec::new();
        for value in labels.values() {
            write_text(&mut values, value);
        }
        let encoded = EncodedLabels {
            keys,
            values: values.into(),
        };
        let previous = self.all.insert(owner, encoded);
        let same = previous.is_some() && previous.as_ref() == self.all.get(&owner);
        if let Some(previous) = previous {
            release_labels(pools, owner, &previous);
        }
        !same
    }

    fn remove(&mut self, pools: &mut NamePools, namespace: &Str, account: Option<&Str>) -> bool {
        let find = |name: &Str| pools.names.find::<str>(name);
        let (Some(namespace), Some(account)) = (find(namespace), account.map_or(Some(NONE), find))
        else {
            return false;
        };
        let owner = LabelOwner { namespace, account };
        let Some(previous) = self.all.remove(&owner) else {
            return false;
        };
        release_labels(pools, owner, &previous);
        if self.all.is_empty() {
            self.all = HashMap::default();
        }
        true
    }

    /// A label of a namespace, by its key and the number of the key if that is interned. A namespace
    /// without an object has only the label with its name.
    pub(super) fn namespace_label<'a>(
        &'a self,
        pools: &'a NamePools,
        namespace: u32,
        key: &str,
        number: Option<u32>,
    ) -> Option<&'a str> {
        match self.all.get(&LabelOwner {
            namespace,
            account: NONE,
        }) {
            Some(labels) => label_value(pools, labels, number?),
            None if key == Namespace::NAME_LABEL => Some(pools.names.get(namespace)?),
            None => None,
        }
    }

    /// A label of a service account, if it has an object.
    pub(super) fn account_label<'a>(
        &'a self,
        pools: &'a NamePools,
        namespace: u32,
        account: &str,
        key: &str,
    ) -> Option<&'a str> {
        let account = pools.names.find(account)?;
        let labels = self.all.get(&LabelOwner { namespace, account })?;
        label_value(pools, labels, pools.names.find(key)?)
    }

    /// All namespaces and service accounts with an object, exactly as they were given.
    #[allow(clippy::type_complexity, reason = "the two maps are those of `State`")]
    pub(super) fn namespaces_and_accounts(
        &self,
        pools: &NamePools,
    ) -> (
        BTreeMap<Str, Namespace>,
        BTreeMap<(Str, Str), ServiceAccount>,
    ) {
        let mut namespaces = BTreeMap::new();
        let mut accounts = BTreeMap::new();
        for (LabelOwner { namespace, account }, encoded) in &self.all {
            let Some(namespace) = pools.names.get(*namespace).cloned() else {
                continue;
            };
            let keys = pools.key_list(encoded.keys);
            let mut values = ByteReader(&encoded.values);
            let label = |key: &u32| Some((pools.names.get(*key)?.clone(), values.text().into()));
            let labels = keys.iter().filter_map(label).collect();
            if let Some(name) = pools.names.get(*account).cloned() {
                let account = ServiceAccount {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    labels,
                };
                accounts.insert((namespace, name), account);
            } else {
                let described = Namespace {
                    audit: self.audit.contains(&namespace),
                    name: namespace.clone(),
                    labels,
                };
                namespaces.insert(namespace, described);
            }
        }
        (namespaces, accounts)
    }
}

fn release_labels(pools: &mut NamePools, owner: LabelOwner, labels: &EncodedLabels) {
    pools.release_keys(labels.keys);
    pools.names.release(owner.namespace);
    pools.names.release(owner.account);
}

fn label_value<'a>(pools: &'a NamePools, labels: &'a EncodedLabels, key: u32) -> Option<&'a str> {
    let keys = pools.key_list(labels.keys);
    let at = keys.iter().position(|other| *other == key)?;
    let mut values = ByteReader(&labels.values);
    values.skip_texts(at);
    Some(values.text())
}

#[cfg(test)]
mod tests {
    use super::super::address_owner_store::AddressOwnerStore;
    use super::*;

    #[test]
    fn what_is_described_comes_back_and_leaves_nothing_behind() {
        let mut store = AddressOwnerStore::default();
        let labels = Labels::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let (space, account): (Str, Str) = ("space".into(), "account".into());
        assert!(store.set_inherited_labels(&space, None, Some(&labels)));
        assert!(
            !store.set_inherited_labels(&space, None, Some(&labels)),
            "said again"
        );
        assert!(store.set_inherited_labels(&space, Some(&account), Some(&labels)));
        let number_of = |store: &AddressOwnerStore| store.names().find::<str>("space").unwrap();
        let number = number_of(&store);
        let label = |store: &AddressOwnerStore, key| {
            let number = store.names().find(key);
            let value = store.namespace_label(number_of(store), key, number);
            value.map(Str::from)
        };
        assert_eq!(label(&store, "b"), Some("2".into()));
        assert_eq!(store.account_label(number, "account", "a"), Some("1"));
        assert_eq!(store.account_label(number, "account", "c"), None);
        let none = Labels::new();
        assert!(store.set_inherited_labels(&space, None, Some(&none)));
        assert_eq!(label(&store, Namespace::NAME_LABEL), None);
        let (namespaces, accounts) = store.namespaces_and_accounts();
        let expected = Namespace {
            name: space.clone(),
            labels: none,
            audit: false,
        };
        assert_eq!(namespaces, BTreeMap::from([(space.clone(), expected)]));
        let expected = ServiceAccount {
            namespace: space.clone(),
            name: account.clone(),
            labels,
        };
        let key = (space.clone(), account.clone());
        assert_eq!(accounts, BTreeMap::from([(key, expected)]));
        assert!(store.set_inherited_labels(&space, None, None));
        assert!(
            !store.set_inherited_labels(&space, None, None),
            "gone already"
        );
        assert_eq!(
            label(&store, Namespace::NAME_LABEL),
            Some("space".into()),
            "every namespace has a label with its name"
        );
        assert!(store.set_inherited_labels(&space, Some(&account), None));
        assert_eq!(store.pool_sizes(), [0; 5]);
    }
}

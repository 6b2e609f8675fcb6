//! The labels of namespaces and service accounts, which the owners of addresses in them inherit, and the namespaces in audit.
//!
//! A cluster may have a namespace for each pod, so the encoding is that of owners: an interned
//! list of keys, values as bytes. Labels are given back exactly as they came. Nothing here
//! interprets them.

use super::address_owner_store::AddressOwnerStore;
use super::encoding::{ByteReader, write_text};
use super::numbers::NONE;
use super::pool::HashMap;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{Endpoint, Labels, Namespace, ServiceAccount, Str};

/// A namespace and a service account in it, or `NONE`, by the numbers of their names.
type LabelOwner = (u32, u32);

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
}

impl AddressOwnerStore {
    /// Whether an endpoint is in audit, by itself or with its namespace.
    pub(crate) fn is_in_audit(&self, endpoint: &Endpoint) -> bool {
        let namespace = endpoint.id.namespace.as_ref();
        endpoint.audit || namespace.is_some_and(|name| self.inherited_labels.audit.contains(name))
    }

    /// Sets whether a namespace is in audit. Returns whether that changed anything.
    pub(crate) fn set_namespace_audit(&mut self, namespace: &Str, audit: bool) -> bool {
        match audit {
            true => self.inherited_labels.audit.insert(namespace.clone()),
            false => self.inherited_labels.audit.remove(namespace),
        }
    }

    /// Sets or, without `labels`, removes the labels of a namespace or of a service account in it.
    /// Returns whether that changed anything.
    pub(crate) fn set_inherited_labels(
        &mut self,
        namespace: &Str,
        account: Option<&Str>,
        labels: Option<&Labels>,
    ) -> bool {
        let Some(labels) = labels else {
            return self.remove_inherited_labels(namespace, account);
        };
        let owner = (
            self.acquire_name(namespace),
            account.map_or(NONE, |account| self.acquire_name(account)),
        );
        let keys = self.acquire_keys(labels);
        let mut values = Vec::new();
        for value in labels.values() {
            write_text(&mut values, value);
        }
        let encoded = EncodedLabels {
            keys,
            values: values.into(),
        };
        let was = self.inherited_labels.all.insert(owner, encoded);
        let same = was.is_some() && was.as_ref() == self.inherited_labels.all.get(&owner);
        if let Some(was) = was {
            self.release_labels(owner, &was);
        }
        !same
    }

    fn remove_inherited_labels(&mut self, namespace: &Str, account: Option<&Str>) -> bool {
        let find = |name: &Str| self.names.find::<str>(name);
        let (Some(namespace), Some(account)) = (find(namespace), account.map_or(Some(NONE), find))
        else {
            return false;
        };
        let owner = (namespace, account);
        let Some(was) = self.inherited_labels.all.remove(&owner) else {
            return false;
        };
        self.release_labels(owner, &was);
        if self.inherited_labels.all.is_empty() {
            self.inherited_labels.all = HashMap::default();
        }
        true
    }

    fn release_labels(&mut self, owner: LabelOwner, was: &EncodedLabels) {
        self.release_keys(was.keys);
        self.names.release(owner.0);
        self.names.release(owner.1);
    }

    /// A label of a namespace, by its key and the number of the key if that is interned. A namespace
    /// without an object has only the label with its name.
    pub(crate) fn namespace_label(
        &self,
        namespace: u32,
        key: &str,
        number: Option<u32>,
    ) -> Option<&str> {
        match self.inherited_labels.all.get(&(namespace, NONE)) {
            Some(labels) => self.label_value(labels, number?),
            None if key == Namespace::NAME_LABEL => Some(self.names.get(namespace)?),
            None => None,
        }
    }

    /// A label of a service account, if it has an object.
    pub(crate) fn account_label(&self, namespace: u32, account: &str, key: &str) -> Option<&str> {
        let account = self.names.find(account)?;
        let labels = self.inherited_labels.all.get(&(namespace, account))?;
        self.label_value(labels, self.names.find(key)?)
    }

    fn label_value<'a>(&'a self, labels: &'a EncodedLabels, key: u32) -> Option<&'a str> {
        let keys = self.key_list(labels.keys);
        let at = keys.iter().position(|other| *other == key)?;
        let mut values = ByteReader(&labels.values);
        values.skip_texts(at);
        Some(values.text())
    }

    /// All namespaces and service accounts with an object, exactly as they were given.
    #[allow(clippy::type_complexity, reason = "the two maps are those of `State`")]
    pub(crate) fn namespaces_and_accounts(
        &self,
    ) -> (
        BTreeMap<Str, Namespace>,
        BTreeMap<(Str, Str), ServiceAccount>,
    ) {
        let mut namespaces = BTreeMap::new();
        let mut accounts = BTreeMap::new();
        for ((namespace, account), said) in &self.inherited_labels.all {
            let Some(namespace) = self.names.get(*namespace).cloned() else {
                continue;
            };
            let keys = self.key_list(said.keys);
            let mut values = ByteReader(&said.values);
            let label = |key: &u32| Some((self.names.get(*key)?.clone(), values.text().into()));
            let labels = keys.iter().filter_map(label).collect();
            if let Some(name) = self.names.get(*account).cloned() {
                let account = ServiceAccount {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    labels,
                };
                accounts.insert((namespace, name), account);
            } else {
                let described = Namespace {
                    audit: self.inherited_labels.audit.contains(&namespace),
                    name: namespace.clone(),
                    labels,
                };
                namespaces.insert(namespace, described);
            }
        }
        (namespaces, accounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_comes_back_and_leaves_nothing_behind() {
        let mut columns = AddressOwnerStore::default();
        let labels = Labels::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let (space, account): (Str, Str) = ("space".into(), "account".into());
        assert!(columns.set_inherited_labels(&space, None, Some(&labels)));
        assert!(
            !columns.set_inherited_labels(&space, None, Some(&labels)),
            "said again"
        );
        assert!(columns.set_inherited_labels(&space, Some(&account), Some(&labels)));
        let number_of = |columns: &AddressOwnerStore| columns.names.find::<str>("space").unwrap();
        let number = number_of(&columns);
        let label = |columns: &AddressOwnerStore, key| {
            let number = columns.names.find(key);
            let value = columns.namespace_label(number_of(columns), key, number);
            value.map(Str::from)
        };
        assert_eq!(label(&columns, "b"), Some("2".into()));
        assert_eq!(columns.account_label(number, "account", "a"), Some("1"));
        assert_eq!(columns.account_label(number, "account", "c"), None);
        let none = Labels::new();
        assert!(columns.set_inherited_labels(&space, None, Some(&none)));
        assert_eq!(label(&columns, Namespace::NAME_LABEL), None);
        let (namespaces, accounts) = columns.namespaces_and_accounts();
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
        assert!(columns.set_inherited_labels(&space, None, None));
        assert!(
            !columns.set_inherited_labels(&space, None, None),
            "gone already"
        );
        assert_eq!(
            label(&columns, Namespace::NAME_LABEL),
            Some("space".into()),
            "every namespace has a label with its name"
        );
        assert!(columns.set_inherited_labels(&space, Some(&account), None));
        assert_eq!(columns.pool_sizes(), [0; 5]);
    }
}

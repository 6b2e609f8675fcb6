//! The labels of namespaces and service accounts.
//!
//! A cluster may have a namespace for each pod, so these are kept as those of holders are: keys as a
//! list that is shared, values as bytes. They come back as they were given. Nothing here knows what a
//! label means.

use crate::columns::{Columns, NONE};
use crate::facts::{Reader, write_text};
use crate::pool::HashMap;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{Labels, Namespace, ServiceAccount, Str};

/// A namespace, and a service account in it or none, by the numbers of their names.
type Place = (u32, u32);

/// Labels.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    keys: u32,
    values: Box<[u8]>,
}

/// What is said of namespaces and service accounts.
#[derive(Debug, Default)]
pub(crate) struct Described {
    all: HashMap<Place, Said>,
}

impl Described {
    /// How many namespaces and service accounts are described.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

impl Columns {
    /// What is said of a namespace, or of a service account in it; nothing any more where there are
    /// no `labels`. Returns whether that is another thing than before.
    pub(crate) fn describe(
        &mut self,
        namespace: &Str,
        account: Option<&Str>,
        labels: Option<&Labels>,
    ) -> bool {
        let Some(labels) = labels else {
            return self.undescribe(namespace, account);
        };
        let place = (
            self.take_name(namespace),
            account.map_or(NONE, |account| self.take_name(account)),
        );
        let keys = self.take_keys(labels);
        let mut values = Vec::new();
        for value in labels.values() {
            write_text(&mut values, value);
        }
        let said = Said {
            keys,
            values: values.into(),
        };
        let was = self.described.all.insert(place, said);
        let same = was.is_some() && was.as_ref() == self.described.all.get(&place);
        if let Some(was) = was {
            self.unsay(place, &was);
        }
        !same
    }

    fn undescribe(&mut self, namespace: &Str, account: Option<&Str>) -> bool {
        let Some(place) = self.place(namespace, account.map(|account| &**account)) else {
            return false;
        };
        let Some(was) = self.described.all.remove(&place) else {
            return false;
        };
        self.unsay(place, &was);
        if self.described.all.is_empty() {
            self.described = Described::default();
        }
        true
    }

    fn unsay(&mut self, place: Place, was: &Said) {
        self.give_keys(was.keys);
        self.names.give(place.0);
        self.names.give(place.1);
    }

    fn place(&self, namespace: &str, account: Option<&str>) -> Option<Place> {
        let account = match account {
            Some(account) => self.names.find(account)?,
            None => NONE,
        };
        Some((self.names.find(namespace)?, account))
    }

    /// A label of a namespace. One that was never described has only that of its name.
    pub(crate) fn namespace_label(&self, namespace: u32, key: &str) -> Option<&str> {
        let name = self.names.get(namespace)?;
        match self.described.all.get(&(namespace, NONE)) {
            Some(said) => self.said(said, key),
            None => (key == Namespace::NAME_LABEL).then_some(&**name),
        }
    }

    /// A label of a service account, if it was described.
    pub(crate) fn account_label(&self, namespace: u32, account: &str, key: &str) -> Option<&str> {
        let account = self.names.find(account)?;
        self.said(self.described.all.get(&(namespace, account))?, key)
    }

    fn said<'a>(&'a self, said: &'a Said, key: &str) -> Option<&'a str> {
        let key = self.names.find(key)?;
        let keys = &self.key_sets.get(said.keys)?.keys;
        let at = keys.iter().position(|other| *other == key)?;
        let mut values = Reader(&said.values);
        values.skip_texts(at);
        Some(values.text())
    }

    /// Every namespace and service account that was described, as it was given.
    #[allow(
        clippy::type_complexity,
        reason = "two maps as the state of all objects has them"
    )]
    pub(crate) fn all_described(
        &self,
    ) -> (
        BTreeMap<Str, Namespace>,
        BTreeMap<(Str, Str), ServiceAccount>,
    ) {
        let mut namespaces = BTreeMap::new();
        let mut accounts = BTreeMap::new();
        for ((namespace, account), said) in &self.described.all {
            let Some(namespace) = self.names.get(*namespace).cloned() else {
                continue;
            };
            let keys = self.key_sets.get(said.keys).map_or(&[][..], |k| &k.keys);
            let mut values = Reader(&said.values);
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
                let name = namespace.clone();
                namespaces.insert(namespace, Namespace { name, labels });
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
        let mut columns = Columns::default();
        let labels = Labels::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let (space, account): (Str, Str) = ("space".into(), "account".into());
        assert!(columns.describe(&space, None, Some(&labels)));
        assert!(!columns.describe(&space, None, Some(&labels)), "said again");
        assert!(columns.describe(&space, Some(&account), Some(&labels)));
        let number = columns.names.find::<str>("space").unwrap();
        assert_eq!(columns.namespace_label(number, "b"), Some("2"));
        assert_eq!(columns.account_label(number, "account", "a"), Some("1"));
        assert_eq!(columns.account_label(number, "account", "c"), None);
        let none = Labels::new();
        assert!(columns.describe(&space, None, Some(&none)));
        assert_eq!(columns.namespace_label(number, Namespace::NAME_LABEL), None);
        let (namespaces, accounts) = columns.all_described();
        let expected = Namespace {
            name: space.clone(),
            labels: none,
        };
        assert_eq!(namespaces, BTreeMap::from([(space.clone(), expected)]));
        let expected = ServiceAccount {
            namespace: space.clone(),
            name: account.clone(),
            labels,
        };
        let key = (space.clone(), account.clone());
        assert_eq!(accounts, BTreeMap::from([(key, expected)]));
        assert!(columns.describe(&space, None, None));
        assert!(!columns.describe(&space, None, None), "gone already");
        assert_eq!(
            columns.namespace_label(number, Namespace::NAME_LABEL),
            Some("space"),
            "its name is a label that every namespace has"
        );
        assert!(columns.describe(&space, Some(&account), None));
        assert_eq!(columns.kept(), [0; 5]);
    }
}

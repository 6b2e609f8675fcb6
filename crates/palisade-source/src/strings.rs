//! Equal words are kept once.
//!
//! The objects of a file repeat their namespaces, nodes, label keys and values. It never changes what
//! an object says.

use palisade_model::{Endpoint, Object, ObjectId, Str};
use std::collections::BTreeSet;
use std::mem::take;

/// The words seen so far.
#[derive(Debug, Default)]
pub(crate) struct Strings(BTreeSet<Str>);

impl Strings {
    /// Has an object use the words seen before.
    pub(crate) fn share(&mut self, object: &mut Object) {
        // Of these there are many.
        if let Object::Endpoint(endpoint) = object {
            self.share_endpoint(endpoint);
        }
    }

    /// The same with an object's name.
    pub(crate) fn share_id(&mut self, id: &mut ObjectId) {
        let ObjectId {
            namespace,
            name,
            group,
            kind,
        } = id;
        for word in [name, group, kind].into_iter().chain(namespace) {
            self.word(word);
        }
    }

    fn share_endpoint(&mut self, endpoint: &mut Endpoint) {
        self.share_id(&mut endpoint.id);
        let labels = take(&mut endpoint.labels).into_iter();
        endpoint.labels = labels
            .map(|(mut key, mut value)| {
                self.word(&mut key);
                self.word(&mut value);
                (key, value)
            })
            .collect();
        let ports = endpoint.ports.iter_mut().map(|port| &mut port.name);
        let words = endpoint.service_account.iter_mut();
        let words = words
            .chain(&mut endpoint.node)
            .chain(&mut endpoint.profiles);
        words.chain(ports).for_each(|word| self.word(word));
        endpoint.addresses.shrink_to_fit();
        endpoint.ports.shrink_to_fit();
        endpoint.profiles.shrink_to_fit();
    }

    fn word(&mut self, word: &mut Str) {
        if !word.is_heap_allocated() {
            return;
        }
        match self.0.get(word) {
            Some(known) => *word = Str::clone(known),
            None => drop(self.0.insert(Str::clone(word))),
        }
    }
}

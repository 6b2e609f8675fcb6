//! Stores equal strings once.
//!
//! The objects of a file repeat their namespaces, nodes, label keys and values. The content of an object
//! never changes.

use palisade_dialects::LoweredObject;
use palisade_model::{Endpoint, Object, ObjectId, Str};
use std::collections::BTreeSet;
use std::mem::take;

/// The strings seen so far.
#[derive(Debug, Default)]
pub(crate) struct StringInterner(BTreeSet<Str>);

impl StringInterner {
    /// Replaces the strings of a lowered object by equal ones seen before.
    pub(crate) fn intern_lowered(&mut self, lowered: &mut LoweredObject) {
        self.intern_id(&mut lowered.id);
        let objects = lowered.objects.iter_mut();
        objects.for_each(|object| self.intern_object(object));
    }

    fn intern_object(&mut self, object: &mut Object) {
        // Only endpoints: there are many of them.
        if let Object::Endpoint(endpoint) = object {
            self.intern_endpoint(endpoint);
        }
    }

    fn intern_id(&mut self, id: &mut ObjectId) {
        let ObjectId {
            namespace,
            name,
            kind: _,
        } = id;
        for word in [name].into_iter().chain(namespace) {
            self.intern(word);
        }
    }

    fn intern_endpoint(&mut self, endpoint: &mut Endpoint) {
        self.intern_id(&mut endpoint.id);
        let labels = take(&mut endpoint.labels).into_iter();
        endpoint.labels = labels
            .map(|(mut key, mut value)| {
                self.intern(&mut key);
                self.intern(&mut value);
                (key, value)
            })
            .collect();
        let ports = endpoint.ports.iter_mut().map(|port| &mut port.name);
        let words = endpoint.service_account.iter_mut();
        let words = words
            .chain(&mut endpoint.node)
            .chain(&mut endpoint.profiles);
        words.chain(ports).for_each(|word| self.intern(word));
        endpoint.addresses.shrink_to_fit();
        endpoint.ports.shrink_to_fit();
        endpoint.profiles.shrink_to_fit();
    }

    fn intern(&mut self, word: &mut Str) {
        if !word.is_heap_allocated() {
            return;
        }
        match self.0.get(word) {
            Some(known) => *word = Str::clone(known),
            None => drop(self.0.insert(Str::clone(word))),
        }
    }
}

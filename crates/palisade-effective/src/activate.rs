//! Puts the chosen version of an object in force, and passes on what that changes.

use crate::SharedId;
use crate::definition::{Definition, ObjectOrigin};
use crate::definition_problems::ClosedParts;
use crate::effective_object::{
    EffectiveContent, EffectiveObject, ObjectEntry, effective_keys, inventory_type, is_saved,
};
use crate::lint::PodFacts;
use crate::objects::{CidrMatchMode, EffectiveObjects};
use crate::policy_cost::isolation_policies;
use crate::source::SourceNumber;
use crate::version_choice::{ValidVersion, VersionChoice};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_dialects::match_nodes_by_cidr;
use palisade_model::{Object, ObjectId, ObjectKey, Update};

impl EffectiveObjects {
    /// Puts the choice for an object in force.
    pub(crate) fn activate(
        &mut self,
        id: &SharedId,
        entry: &mut ObjectEntry,
        choice: VersionChoice,
        now: u64,
        updates: &mut dyn FnMut(Update),
    ) {
        let ObjectEntry {
            definitions,
            effective,
            pod,
            ..
        } = entry;
        match choice {
            VersionChoice::Nothing => {
                if let Some(before) = effective.take() {
                    self.unsaved.insert(id.clone());
                    self.lint.update_object(id, pod, None);
                    self.announce(id, Some(&before), Arc::default(), updates);
                }
            }
            VersionChoice::Unchanged | VersionChoice::LastValid => {
                let Some(current) = effective else { return };
                if let (VersionChoice::LastValid, Some((source, first))) =
                    (choice, definitions.first())
                {
                    current.source = *source;
                    current.origin = first.origin.clone();
                    self.unsaved.insert(id.clone());
                }
                if let (false, EffectiveContent::Kept(objects)) =
                    (current.is_announced, &current.content)
                {
                    self.announce(id, None, Arc::clone(objects), updates);
                }
                current.is_announced = true;
            }
            VersionChoice::Isolation => {
                let Some((source, first)) = definitions.first() else {
                    return;
                };
                let objects = if first.isolation.is_empty() {
                    isolation_policies(first.objects())
                } else {
                    first
                        .isolation
                        .iter()
                        .cloned()
                        .map(Object::Policy)
                        .collect()
                };
                let origin = (*source, first.origin.clone());
                let content = (Arc::new(objects), None);
                self.replace(id, (effective, pod), None, origin, content, updates);
            }
            VersionChoice::Definition(index) => {
                let is_only = definitions.len() == 1;
                if let Some((source, definition)) = definitions.get_mut(index) {
                    let may_forget = is_only && self.is_final(*source, &definition.origin);
                    let definition = (*source, &mut **definition);
                    self.put_definition(id, (effective, pod), definition, may_forget, now, updates);
                }
            }
        }
    }

    /// Whether the only definition of an object cannot be displaced any more while it lasts. Before everything is in
    /// sync a source of higher precedence can displace it, and an earlier file of the same source.
    fn is_final(&self, source: SourceNumber, origin: &ObjectOrigin) -> bool {
        let is_unique = matches!(origin, ObjectOrigin::Resource { .. });
        self.sources.len() == 1 || self.in_sync() || source == 0 && is_unique
    }

    /// Puts a definition in force. If no other can take its place, its content is forgotten where only the
    /// hash is needed.
    fn put_definition(
        &mut self,
        id: &SharedId,
        (effective, pod): (&mut Option<EffectiveObject>, &mut Option<PodFacts>),
        (source, definition): (SourceNumber, &mut Definition),
        may_forget: bool,
        now: u64,
        updates: &mut dyn FnMut(Update),
    ) {
        let may_forget = may_forget && inventory_type(id, definition.objects()).is_some();
        let before = effective.as_mut().and_then(|e| Some((e.version?, e)));
        let same = before.filter(|(version, _)| version.hash == definition.hash);
        let since = same.as_ref().map_or(now, |(version, _)| version.since);
        if let Some((_, same)) = same
            && matches!(same.content, EffectiveContent::HandedOut(_))
        {
            same.source = source;
            same.origin = definition.origin.clone();
            self.lint.move_object(id, definition.origin.location());
            if may_forget {
                definition.objects = None;
            }
            return;
        }
        let objects = if may_forget {
            definition.objects.take()
        } else {
            definition.objects.clone()
        };
        if let Some(objects) = objects {
            let hash = definition.hash;
            let version = Some(ValidVersion { hash, since });
            let origin = (source, definition.origin.clone());
            let content = (objects, definition.closed.clone());
            self.replace(id, (effective, pod), version, origin, content, updates);
        }
    }

    /// Puts a version in force, and passes on the difference.
    fn replace(
        &mut self,
        id: &SharedId,
        (effective, pod): (&mut Option<EffectiveObject>, &mut Option<PodFacts>),
        version: Option<ValidVersion>,
        (source, origin): (SourceNumber, ObjectOrigin),
        (objects, closed): (Arc<Vec<Object>>, Option<Arc<ClosedParts>>),
        updates: &mut dyn FnMut(Update),
    ) {
        let was_saved = effective
            .as_ref()
            .is_some_and(|before| match &before.content {
                EffectiveContent::Kept(objects) => is_saved(objects),
                EffectiveContent::HandedOut(_) => false,
            });
        if was_saved || is_saved(&objects) {
            self.unsaved.insert(id.clone());
        }
        self.lint
            .update_object(id, pod, Some((&objects, origin.location())));
        let content = match inventory_type(id, &objects) {
            Some(types) => EffectiveContent::HandedOut(types),
            None => EffectiveContent::Kept(Arc::clone(&objects)),
        };
        let before = effective.replace(EffectiveObject {
            version,
            source,
            origin,
            content,
            closed,
            is_announced: true,
            is_restored: false,
        });
        self.announce(id, before.as_ref(), objects, updates);
    }

    /// Passes on the difference between two versions of an object.
    fn announce(
        &mut self,
        id: &ObjectId,
        before: Option<&EffectiveObject>,
        objects: Arc<Vec<Object>>,
        updates: &mut dyn FnMut(Update),
    ) {
        let before = before.filter(|before| before.is_announced);
        let previous_objects: &[Object] = match before.map(|before| &before.content) {
            Some(EffectiveContent::Kept(previous_objects))
                if Arc::ptr_eq(previous_objects, &objects) =>
            {
                return;
            }
            Some(EffectiveContent::Kept(previous_objects)) => previous_objects,
            _ => &[],
        };
        let previous = before.map(|before| before.content.keys(id));
        for key in previous.into_iter().flatten() {
            if !effective_keys(&objects).any(|other| other == key) {
                match &key {
                    ObjectKey::Namespace(name) => self.lint.remove_namespace(name),
                    ObjectKey::ServiceAccount { namespace, name } => self
                        .lint
                        .remove_service_account(&(namespace.clone(), name.clone())),
                    _ => {}
                }
                self.dependents.delete(key, updates);
            }
        }
        let mode = self.cidr_match;
        let dependents = &mut self.dependents;
        let mut pass_on = |mut object: Object| {
            if let (Object::Policy(policy), CidrMatchMode::Nodes) = (&mut object, mode) {
                // What is saved is as written: another mode after a restart holds for it as well.
                match_nodes_by_cidr(policy);
            }
            if let Some(object) = object.into_effective() {
                dependents.upsert(object, updates);
            }
        };
        match Arc::try_unwrap(objects) {
            Ok(objects) => objects.into_iter().for_each(pass_on),
            Err(shared) => {
                let new = shared
                    .iter()
                    .filter(|object| !previous_objects.contains(object));
                new.cloned().for_each(&mut pass_on);
            }
        }
    }
}

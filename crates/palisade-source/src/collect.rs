//! An input of any size, taken in object by object: of each only what it says of policy is kept.

use crate::Flaw;
use crate::strings::Strings;
use crate::unrendered::{Contents, explain};
use palisade_dialects::{
    Doubts, Ledger, Lowered, Mark, OF_OBJECT, Quota, claimed_twice, count_ignored, defined_twice,
    host_network_selected, isolate, more_definitions, read,
};
use palisade_manifest::{Location, Problem, RawObject, Sink};
use palisade_model::{Endpoint, EndpointId, Object, ObjectId, Policy, State, Update};
use std::collections::BTreeMap;
use std::mem::take;
use std::path::Path;

/// Everything that was read so far.
#[derive(Default)]
pub(crate) struct Collection {
    entries: Vec<Entry>,
    /// The endpoints of all entries, in their order: there are far more than of anything else, so they
    /// lie together, as the state is made of them.
    endpoints: Vec<(EndpointId, Endpoint)>,
    /// Policies as they were written, each with its place in `entries`.
    written: Vec<(usize, RawObject)>,
    ledger: Ledger,
    ignored: BTreeMap<String, usize>,
    /// Of the file that is being read: its objects, and what could not be read.
    seen: Contents,
    unread: Vec<Problem>,
    strings: Strings,
    /// What there was when the document began that is being read.
    before: Before,
}

#[derive(Default)]
struct Before {
    entries: usize,
    endpoints: usize,
    written: usize,
    ledger: Mark,
    unread: usize,
    seen: Contents,
    ignored: BTreeMap<String, usize>,
}

/// One object that a dialect knows.
struct Entry {
    id: ObjectId,
    location: Location,
    content: Content,
}

enum Content {
    /// It is valid.
    Valid {
        /// All but the endpoints.
        objects: Vec<Object>,
        /// How many endpoints.
        endpoints: u32,
        on_host_network: Option<Box<Endpoint>>,
        completed: bool,
    },
    /// It has errors; what isolates in its place.
    Invalid(Option<Box<Policy>>),
}

impl Entry {
    /// How many endpoints it has.
    fn endpoints(&self) -> usize {
        match &self.content {
            Content::Valid { endpoints, .. } => *endpoints as usize,
            Content::Invalid(_) => 0,
        }
    }
}

/// What an input comes to.
pub(crate) struct Collected {
    /// The valid objects, and the isolation in the place of invalid policies; without pods that ran
    /// to their end.
    pub(crate) state: State,
    pub(crate) flaws: Vec<Flaw>,
    /// How many valid objects there are.
    pub(crate) objects: usize,
    pub(crate) ignored: BTreeMap<String, usize>,
}

impl Sink for Collection {
    fn object(&mut self, object: RawObject) {
        if !self.seen.add(&object) {
            return;
        }
        let mut lowered = read(&object);
        self.ledger.add_all(false, take(&mut lowered.warnings));
        self.ledger.add_more_all(take(&mut lowered.more));
        if let Some(kind) = lowered.ignored.take() {
            count_ignored(&mut self.ignored, kind);
            return;
        }
        let is_policy = |object: &Object| matches!(object, Object::Policy(_));
        let content = match lowered.errors.is_empty() {
            true => self.valid(&mut lowered),
            false => Content::Invalid(isolate(&object).map(Box::new)),
        };
        self.ledger.add_all(true, take(&mut lowered.errors));
        if let Content::Valid { objects, .. } = &content
            && objects.iter().any(is_policy)
        {
            self.written.push((self.entries.len(), object));
        }
        self.strings.share_id(&mut lowered.id);
        self.entries.push(Entry {
            id: lowered.id,
            location: lowered.location,
            content,
        });
    }

    fn problem(&mut self, problem: Problem) {
        self.unread.push(problem);
    }

    fn begin(&mut self) {
        self.before = Before {
            entries: self.entries.len(),
            endpoints: self.endpoints.len(),
            written: self.written.len(),
            ledger: self.ledger.mark(),
            unread: self.unread.len(),
            seen: self.seen,
            ignored: self.ignored.clone(),
        };
    }

    fn undo(&mut self) {
        self.entries.truncate(self.before.entries);
        self.endpoints.truncate(self.before.endpoints);
        self.written.truncate(self.before.written);
        self.ledger.back_to(self.before.ledger.clone());
        self.unread.truncate(self.before.unread);
        self.seen = self.before.seen;
        self.ignored = self.before.ignored.clone();
    }
}

impl Collection {
    /// Counts folders that could not be looked into and are not told of.
    pub(crate) fn leave_out(&mut self, folders: usize) {
        self.ledger.leave_out(true, folders);
    }

    fn valid(&mut self, lowered: &mut Lowered) -> Content {
        let mut objects = Vec::new();
        let mut endpoints = 0;
        for mut object in take(&mut lowered.objects) {
            self.strings.share(&mut object);
            match object {
                Object::Endpoint(endpoint) => {
                    self.endpoints.push((endpoint.id.clone(), endpoint));
                    endpoints += 1;
                }
                object => objects.push(object),
            }
        }
        Content::Valid {
            objects,
            endpoints,
            on_host_network: lowered.on_host_network.take().map(Box::new),
            completed: lowered.completed,
        }
    }

    /// A file or folder could not be read, or not to its end.
    pub(crate) fn refuse(&mut self, problem: Problem) {
        self.seen = Contents::default();
        self.ledger.add_all(true, take(&mut self.unread));
        self.ledger.add(true, problem);
    }

    /// A file has been read to its end; `head` is how it begins.
    pub(crate) fn end_file(&mut self, path: &Path, head: &[u8]) {
        let seen = take(&mut self.seen);
        explain(path, head, seen, &mut self.unread);
        self.ledger.add_all(true, take(&mut self.unread));
    }

    /// All of it, with what is doubtful about the whole.
    pub(crate) fn end(mut self) -> Collected {
        self.ledger.add_all(true, take(&mut self.unread));
        drop(take(&mut self.strings));
        let first = self.first_definitions();
        let claimed = self.claimed_twice(&first);
        self.ledger.add_all(false, claimed);
        let mut again: BTreeMap<ObjectId, Quota> = BTreeMap::new();
        let mut places: BTreeMap<ObjectId, Location> = BTreeMap::new();
        let mut objects = 0;
        let mut completed = Vec::new();
        let mut on_host_network = Vec::new();
        let mut state = State::default();
        let mut endpoints = take(&mut self.endpoints);
        // How many endpoints the entries so far had, and which of them do not count.
        let mut passed = 0;
        let mut again_defined = Vec::new();
        let mut policies: Vec<Option<Policy>> = vec![None; self.written.len()];
        let mut written = self.written.iter().map(|(entry, _)| *entry).peekable();
        let mut policy = 0;
        for (at, entry) in self.entries.into_iter().enumerate() {
            let of_policy = written.next_if_eq(&at).map(|_| {
                policy += 1;
                policy - 1
            });
            let of_entry = entry.endpoints();
            passed += of_entry;
            if let Some(first) = &first[at] {
                again_defined.extend(passed - of_entry..passed);
                let quota = again.entry(entry.id.clone());
                let quota = quota.or_insert_with(|| Quota::of(OF_OBJECT));
                if quota.admit(true) {
                    let problem = defined_twice(&entry.id, &entry.location, first);
                    self.ledger.add(true, problem);
                } else {
                    places.insert(entry.id, first.clone());
                }
                continue;
            }
            match entry.content {
                Content::Invalid(isolation) => {
                    let isolation = isolation.map(|policy| Object::Policy(*policy));
                    isolation
                        .into_iter()
                        .for_each(|o| state.apply(Update::Upsert(o)));
                }
                Content::Valid {
                    objects: said,
                    endpoints: _,
                    on_host_network: pod,
                    completed: is_completed,
                } => {
                    objects += 1;
                    completed.extend(is_completed.then(|| entry.id.clone()));
                    on_host_network.extend(pod.map(|pod| *pod));
                    for object in said {
                        match (object, of_policy) {
                            (Object::Policy(p), Some(at)) => {
                                policies[at] = Some(p.clone());
                                state.apply(Update::Upsert(Object::Policy(p)));
                            }
                            (object, _) => state.apply(Update::Upsert(object)),
                        }
                    }
                }
            }
        }
        if !again_defined.is_empty() {
            let mut at = 0;
            endpoints.retain(|_| {
                at += 1;
                again_defined.binary_search(&(at - 1)).is_err()
            });
        }
        state.endpoints = endpoints.into_iter().collect();
        let written = self.written.iter().map(|(_, raw)| raw);
        let pairs = || {
            let pairs = policies.iter().zip(written.clone());
            pairs.filter_map(|(policy, raw)| Some((policy.as_ref()?, raw)))
        };
        let doubts = Doubts::new(&state);
        let doubtful = pairs().flat_map(|(policy, raw)| doubts.of(policy, raw));
        self.ledger.add_all(false, doubtful);
        drop(doubts);
        self.ledger
            .add_all(false, host_network_selected(pairs(), &on_host_network));
        let placed = pairs().map(|(policy, raw)| (policy, &raw.location));
        self.ledger.add_all(false, crate::budget::doubts(placed));
        for id in completed {
            state.endpoints.remove(&id);
        }
        for (id, at) in places {
            let untold = again.get(&id).map(Quota::untold).unwrap_or_default();
            self.ledger.add_more_all(more_definitions(&id, &at, untold));
        }
        let (errors, warnings, more) = self.ledger.end();
        let mut flaws = Flaw::all(errors, warnings, more);
        Flaw::sort(&mut flaws);
        Collected {
            state,
            flaws,
            objects,
            ignored: self.ignored,
        }
    }

    fn claimed_twice(&self, first: &[Option<Location>]) -> Vec<Problem> {
        let mut endpoints = self.endpoints.iter();
        let pods = self.entries.iter().zip(first).flat_map(|(entry, first)| {
            let of_entry = endpoints.by_ref().take(entry.endpoints());
            let counts = first.is_none();
            let of_entry: Vec<&(EndpointId, Endpoint)> = of_entry.collect();
            let pods = of_entry.into_iter().filter(move |_| counts);
            pods.map(|(_, pod)| (pod, &entry.location))
        });
        claimed_twice(pods)
    }

    /// For each entry where the first of its name is, unless it is that.
    fn first_definitions(&self) -> Vec<Option<Location>> {
        let mut first: BTreeMap<&ObjectId, &Location> = BTreeMap::new();
        let places = self.entries.iter().map(|entry| {
            let known = first.get(&entry.id).map(|first| (*first).clone());
            first.entry(&entry.id).or_insert(&entry.location);
            known
        });
        places.collect()
    }
}

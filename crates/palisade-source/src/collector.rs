//! An input of any size, taken in object by object: of each only what it says of policy is kept.

use crate::Diagnostic;
use crate::string_interner::StringInterner;
use crate::templates::{FileSummary, reword_problems};
use palisade_dialects::{
    CollectorCheckpoint, LoweredObject, MAX_PROBLEMS_PER_OBJECT, PolicyLinter, ProblemCollector,
    ProblemQuota, count_ignored, duplicate_addresses, duplicate_definition, host_network_warnings,
    isolate, lower_object, omitted_definitions,
};
use palisade_manifest::{Location, ObjectSink, Problem, RawObject};
use palisade_model::{Endpoint, EndpointId, Object, ObjectId, Policy, State, Update};
use std::collections::BTreeMap;
use std::mem::take;
use std::path::Path;

/// Everything that was read so far.
#[derive(Default)]
pub(crate) struct InputCollector {
    entries: Vec<CollectedObject>,
    /// The endpoints of all entries, in their order: there are far more than of anything else, so they
    /// lie together, as the state is made of them.
    endpoints: Vec<(EndpointId, Endpoint)>,
    /// Policies as they were written, each with its place in `entries`.
    raw_policies: Vec<(usize, RawObject)>,
    problems: ProblemCollector,
    ignored: BTreeMap<String, usize>,
    /// Of the file that is being read: its objects, and what could not be read.
    file_summary: FileSummary,
    unparsed_problems: Vec<Problem>,
    strings: StringInterner,
    /// What there was when the document began that is being read.
    checkpoint: DocumentCheckpoint,
}

#[derive(Default)]
struct DocumentCheckpoint {
    entries: usize,
    endpoints: usize,
    raw_policies: usize,
    problems: CollectorCheckpoint,
    unparsed_problems: usize,
    file_summary: FileSummary,
    ignored: BTreeMap<String, usize>,
}

/// One object that a dialect knows.
struct CollectedObject {
    id: ObjectId,
    location: Location,
    content: CollectedContent,
}

enum CollectedContent {
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

impl CollectedObject {
    /// How many endpoints it has.
    fn endpoint_count(&self) -> usize {
        match &self.content {
            CollectedContent::Valid { endpoints, .. } => *endpoints as usize,
            CollectedContent::Invalid(_) => 0,
        }
    }
}

/// What an input comes to.
pub(crate) struct CollectedInput {
    /// The valid objects, and the isolation in the place of invalid policies; without pods that ran
    /// to their end.
    pub(crate) state: State,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// How many valid objects there are.
    pub(crate) objects: usize,
    pub(crate) ignored: BTreeMap<String, usize>,
}

impl ObjectSink for InputCollector {
    fn push_object(&mut self, object: RawObject) {
        if !self.file_summary.add(&object) {
            return;
        }
        let mut lowered = lower_object(&object);
        self.problems.add_all(false, take(&mut lowered.warnings));
        self.problems.add_all_omitted(take(&mut lowered.omitted));
        if let Some(kind) = lowered.ignored.take() {
            count_ignored(&mut self.ignored, kind);
            return;
        }
        let is_policy = |object: &Object| matches!(object, Object::Policy(_));
        let content = match lowered.errors.is_empty() {
            true => self.take_valid(&mut lowered),
            false => CollectedContent::Invalid(isolate(&object).map(Box::new)),
        };
        self.problems.add_all(true, take(&mut lowered.errors));
        if let CollectedContent::Valid { objects, .. } = &content
            && objects.iter().any(is_policy)
        {
            self.raw_policies.push((self.entries.len(), object));
        }
        self.strings.intern_id(&mut lowered.id);
        self.entries.push(CollectedObject {
            id: lowered.id,
            location: lowered.location,
            content,
        });
    }

    fn push_problem(&mut self, problem: Problem) {
        self.unparsed_problems.push(problem);
    }

    fn begin_document(&mut self) {
        self.checkpoint = DocumentCheckpoint {
            entries: self.entries.len(),
            endpoints: self.endpoints.len(),
            raw_policies: self.raw_policies.len(),
            problems: self.problems.checkpoint(),
            unparsed_problems: self.unparsed_problems.len(),
            file_summary: self.file_summary,
            ignored: self.ignored.clone(),
        };
    }

    fn rollback_document(&mut self) {
        self.entries.truncate(self.checkpoint.entries);
        self.endpoints.truncate(self.checkpoint.endpoints);
        self.raw_policies.truncate(self.checkpoint.raw_policies);
        self.problems.rollback(self.checkpoint.problems.clone());
        self.unparsed_problems
            .truncate(self.checkpoint.unparsed_problems);
        self.file_summary = self.checkpoint.file_summary;
        self.ignored = self.checkpoint.ignored.clone();
    }
}

impl InputCollector {
    /// Counts folders that could not be looked into and are not told of.
    pub(crate) fn omit_folders(&mut self, folders: usize) {
        self.problems.omit(true, folders);
    }

    fn take_valid(&mut self, lowered: &mut LoweredObject) -> CollectedContent {
        let mut objects = Vec::new();
        let mut endpoints = 0;
        for mut object in take(&mut lowered.objects) {
            self.strings.intern_object(&mut object);
            match object {
                Object::Endpoint(endpoint) => {
                    self.endpoints.push((endpoint.id.clone(), endpoint));
                    endpoints += 1;
                }
                object => objects.push(object),
            }
        }
        CollectedContent::Valid {
            objects,
            endpoints,
            on_host_network: lowered.on_host_network.take().map(Box::new),
            completed: lowered.completed,
        }
    }

    /// A file or folder could not be read, or not to its end.
    pub(crate) fn add_unreadable(&mut self, problem: Problem) {
        self.file_summary = FileSummary::default();
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
        self.problems.add(true, problem);
    }

    /// A file has been read to its end; `head` is how it begins.
    pub(crate) fn end_file(&mut self, path: &Path, head: &[u8]) {
        let file_summary = take(&mut self.file_summary);
        reword_problems(path, head, file_summary, &mut self.unparsed_problems);
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
    }

    /// All of it, with what is doubtful about the whole.
    pub(crate) fn finish(mut self) -> CollectedInput {
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
        drop(take(&mut self.strings));
        let first = self.first_definitions();
        let claimed = self.duplicate_addresses(&first);
        self.problems.add_all(false, claimed);
        let mut duplicate_quotas: BTreeMap<ObjectId, ProblemQuota> = BTreeMap::new();
        let mut first_locations: BTreeMap<ObjectId, Location> = BTreeMap::new();
        let mut objects = 0;
        let mut completed = Vec::new();
        let mut on_host_network = Vec::new();
        let mut state = State::default();
        let mut endpoints = take(&mut self.endpoints);
        // How many endpoints the entries so far had, and which of them do not count.
        let mut endpoint_total = 0;
        let mut duplicate_endpoints = Vec::new();
        let mut policies: Vec<Option<Policy>> = vec![None; self.raw_policies.len()];
        let mut written = self.raw_policies.iter().map(|(entry, _)| *entry).peekable();
        let mut policy = 0;
        for (at, entry) in self.entries.into_iter().enumerate() {
            let of_policy = written.next_if_eq(&at).map(|_| {
                policy += 1;
                policy - 1
            });
            let of_entry = entry.endpoint_count();
            endpoint_total += of_entry;
            if let Some(first) = &first[at] {
                duplicate_endpoints.extend(endpoint_total - of_entry..endpoint_total);
                let quota = duplicate_quotas.entry(entry.id.clone());
                let quota = quota.or_insert_with(|| ProblemQuota::uniform(MAX_PROBLEMS_PER_OBJECT));
                if quota.admit(true) {
                    let problem = duplicate_definition(&entry.id, &entry.location, first);
                    self.problems.add(true, problem);
                } else {
                    first_locations.insert(entry.id, first.clone());
                }
                continue;
            }
            match entry.content {
                CollectedContent::Invalid(isolation) => {
                    let isolation = isolation.map(|policy| Object::Policy(*policy));
                    isolation
                        .into_iter()
                        .for_each(|o| state.apply(Update::Upsert(o)));
                }
                CollectedContent::Valid {
                    objects: definitions,
                    endpoints: _,
                    on_host_network: pod,
                    completed: is_completed,
                } => {
                    objects += 1;
                    completed.extend(is_completed.then(|| entry.id.clone()));
                    on_host_network.extend(pod.map(|pod| *pod));
                    for object in definitions {
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
        if !duplicate_endpoints.is_empty() {
            let mut at = 0;
            endpoints.retain(|_| {
                at += 1;
                duplicate_endpoints.binary_search(&(at - 1)).is_err()
            });
        }
        state.endpoints = endpoints.into_iter().collect();
        let written = self.raw_policies.iter().map(|(_, raw)| raw);
        let pairs = || {
            let pairs = policies.iter().zip(written.clone());
            pairs.filter_map(|(policy, raw)| Some((policy.as_ref()?, raw)))
        };
        let linter = PolicyLinter::new(&state);
        let lint_warnings = pairs().flat_map(|(policy, raw)| linter.check(policy, raw));
        self.problems.add_all(false, lint_warnings);
        drop(linter);
        self.problems
            .add_all(false, host_network_warnings(pairs(), &on_host_network));
        let placed = pairs().map(|(policy, raw)| (policy, &raw.location));
        self.problems
            .add_all(false, crate::policy_cost::budget_warnings(placed));
        for id in completed {
            state.endpoints.remove(&id);
        }
        for (id, at) in first_locations {
            let omitted = duplicate_quotas
                .get(&id)
                .map(ProblemQuota::omitted)
                .unwrap_or_default();
            self.problems
                .add_all_omitted(omitted_definitions(&id, &at, omitted));
        }
        let (errors, warnings, more) = self.problems.finish();
        let mut flaws = Diagnostic::from_lowered(errors, warnings, more);
        Diagnostic::sort(&mut flaws);
        CollectedInput {
            state,
            diagnostics: flaws,
            objects,
            ignored: self.ignored,
        }
    }

    fn duplicate_addresses(&self, first: &[Option<Location>]) -> Vec<Problem> {
        let mut endpoints = self.endpoints.iter();
        let pods = self.entries.iter().zip(first).flat_map(|(entry, first)| {
            let of_entry = endpoints.by_ref().take(entry.endpoint_count());
            let counts = first.is_none();
            let of_entry: Vec<&(EndpointId, Endpoint)> = of_entry.collect();
            let pods = of_entry.into_iter().filter(move |_| counts);
            pods.map(|(_, pod)| (pod, &entry.location))
        });
        duplicate_addresses(pods)
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

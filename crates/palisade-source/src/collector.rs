//! Collects an input of any size object by object and keeps only what policy evaluation needs.

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

/// Everything read so far.
#[derive(Default)]
pub(crate) struct InputCollector {
    entries: Vec<CollectedObject>,
    /// The endpoints of all entries, in order. They are the bulk of an input, so they are stored in one
    /// vector that becomes part of the state.
    endpoints: Vec<(EndpointId, Endpoint)>,
    /// Policies as written, each with its index in `entries`.
    raw_policies: Vec<(usize, RawObject)>,
    problems: ProblemCollector,
    ignored: BTreeMap<String, usize>,
    /// Counts for the file being read: its objects and what could not be read.
    file_summary: FileSummary,
    unparsed_problems: Vec<Problem>,
    strings: StringInterner,
    /// The state at the beginning of the current document, for rollback.
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

/// One object of a known kind.
struct CollectedObject {
    id: ObjectId,
    location: Location,
    content: CollectedContent,
}

enum CollectedContent {
    /// A valid object.
    Valid {
        /// All objects except the endpoints.
        objects: Vec<Object>,
        /// The number of endpoints.
        endpoints: u32,
        on_host_network: Option<Box<Endpoint>>,
        completed: bool,
    },
    /// An object with errors, and its isolation policy.
    Invalid(Option<Box<Policy>>),
}

impl CollectedObject {
    /// The number of its endpoints.
    fn endpoint_count(&self) -> usize {
        match &self.content {
            CollectedContent::Valid { endpoints, .. } => *endpoints as usize,
            CollectedContent::Invalid(_) => 0,
        }
    }
}

/// The result of reading an input.
pub(crate) struct CollectedInput {
    /// The valid objects and the isolation policies of invalid ones, without completed pods.
    pub(crate) state: State,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The number of valid objects.
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
    /// Counts folders that cannot be read and are not listed.
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

    /// Records a file or folder that could not be read completely.
    pub(crate) fn add_unreadable(&mut self, problem: Problem) {
        self.file_summary = FileSummary::default();
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
        self.problems.add(true, problem);
    }

    /// Finishes a file; `head` is its beginning.
    pub(crate) fn end_file(&mut self, path: &Path, head: &[u8]) {
        let file_summary = take(&mut self.file_summary);
        reword_problems(path, head, file_summary, &mut self.unparsed_problems);
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
    }

    /// The result, with the warnings about the input as a whole.
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
        // The number of endpoints of the entries so far, and the indexes of duplicate ones.
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

    /// For each entry the location of the first definition of its name; `None` for that definition itself.
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

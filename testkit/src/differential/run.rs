//! Runs cases, counts, and stops at what failed.

use super::report::{self, ReplayCase};
use super::{
    CaseOutcome, EXTRA, FLOWS, FeatureTally, StageFailure, StageFilter, cluster, lowered, shrink,
};
use palisade_generators::kubernetes::{self, Features};
use palisade_generators::lowered as lower;
use palisade_model::{Flow, State};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// Which kind of world, in the order of the tallies of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GeneratorKind {
    /// Kubernetes objects: NetworkPolicies.
    Kubernetes,
    /// Kubernetes objects: cluster-wide policies, and NetworkPolicies.
    PolicyApi,
    /// Kubernetes objects: Cilium's policies, and those of the other dialects.
    Cilium,
    /// Kubernetes objects: Calico's policies, and those of the other dialects.
    Calico,
    /// Lowered policies over the whole model.
    Lowered,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// How many cases; rounded up to whole worlds.
    pub cases: u64,
    /// What the worlds are drawn from.
    pub seed: u64,
    /// Only this kind of world; all in turn otherwise.
    pub only: Option<GeneratorKind>,
}

/// How many failing worlds are shrunk and shown before a run gives up.
const SHOWN: u64 = 3;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Cases in which everything agreed.
    pub passed: u64,
    /// Cases in which something did not.
    pub failed: u64,
    /// What the cases tried, by kind of world.
    pub tallies: Vec<FeatureTally>,
    /// What was tried too little.
    pub shortcomings: Vec<String>,
}

/// Runs the cases on every processor; tells `print` how it goes, and of every failing case how to have it again.
pub fn run(options: &RunOptions, print: &mut dyn FnMut(&str)) -> RunReport {
    let mut tallies = [
        FeatureTally::new("Kubernetes worlds", kubernetes::FEATURES),
        FeatureTally::new(
            "worlds of cluster-wide policies",
            kubernetes::POLICY_API_FEATURES,
        ),
        FeatureTally::new("worlds of Cilium's policies", kubernetes::CILIUM_FEATURES),
        FeatureTally::new("worlds of Calico's policies", kubernetes::CALICO_FEATURES),
        FeatureTally::new("lowered worlds", lower::FEATURES),
    ];
    let (mut passed, mut failed, mut done) = (0, 0, 0);
    let worlds = options.cases.div_ceil(FLOWS as u64);
    let next = AtomicU64::new(0);
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let world = next.fetch_add(1, Ordering::Relaxed);
                    if world >= worlds || sender.send(WorldResult::of(options, world)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for WorldResult { kind, outcome } in results {
            match outcome {
                Ok(tried) => {
                    passed += FLOWS as u64;
                    let tally = &mut tallies[kind as usize];
                    tried
                        .into_iter()
                        .for_each(|(features, allowed)| tally.add(features, allowed));
                }
                Err(failing) => {
                    let (case, failure) = *failing;
                    failed += 1;
                    print(&case.reproduce(failure));
                    if failed == SHOWN {
                        print("enough failing worlds: the rest is not run");
                        break;
                    }
                }
            }
            done += 1;
            if done % (worlds / 10).max(1) == 0 {
                print(&format!("{} cases, {failed} failed", done * FLOWS as u64));
            }
        }
    });
    let tallies: Vec<FeatureTally> = tallies.into_iter().filter(|t| t.cases > 0).collect();
    let shortcomings = match failed {
        0 => tallies.iter().flat_map(FeatureTally::undertested).collect(),
        _ => Vec::new(),
    };
    RunReport {
        passed,
        failed,
        tallies,
        shortcomings,
    }
}

/// What one world came to.
struct WorldResult {
    kind: GeneratorKind,
    /// What each case tried, and whether it was allowed; or the world that failed, and how.
    outcome: Result<TriedCases, Box<(GeneratedInput, StageFailure)>>,
}

/// What each case tried, and whether it was allowed.
type TriedCases = Vec<(Features, bool)>;

impl WorldResult {
    fn of(options: &RunOptions, world: u64) -> WorldResult {
        let kind = generator_kind(options.only, world);
        let case = GeneratedInput::make(kind, options.seed, world);
        let outcome = match case.check(StageFilter::ANY) {
            Ok(verdicts) => Ok(case.tried(&verdicts)),
            Err(failure) => Err(Box::new((case, failure))),
        };
        WorldResult { kind, outcome }
    }
}

/// The number of cases until the first failing one, itself included, and how it failed; nothing
/// where all of them pass, or fail by a stage that is not sought. Nothing is shrunk or counted.
#[must_use]
pub fn first_failure(options: &RunOptions, sought: StageFilter) -> Option<(u64, StageFailure)> {
    (0..options.cases.div_ceil(FLOWS as u64)).find_map(|world| {
        let half = generator_kind(options.only, world);
        let case = GeneratedInput::make(half, options.seed, world);
        let failure = sought.filter(case.check(sought)).err()?;
        let flow = failure.flow.unwrap_or(0).min(FLOWS - 1) as u64;
        Some((world * FLOWS as u64 + flow + 1, failure))
    })
}

/// Judges one world by its number, which is that of the case that a run tells; nothing is shrunk.
///
/// # Errors
/// What does not agree.
pub fn check_world(seed: u64, world: u64) -> Result<(), StageFailure> {
    let half = generator_kind(None, world);
    GeneratedInput::make(half, seed, world)
        .check(StageFilter::ANY)
        .map(drop)
}

/// Judges a case that was left behind once more.
///
/// # Errors
/// What the file system refuses, and files that this program did not write.
pub fn replay(directory: &Path) -> io::Result<Result<(), StageFailure>> {
    let (left, seed, case) = report::read_case(directory)?;
    let outcome = catch_panic(|| match &left {
        ReplayCase::Cluster(world, files) => {
            cluster::check_cluster(world, files, seed, case, StageFilter::ANY)
        }
        ReplayCase::State(state, flows) => {
            lowered::check_state(state, flows, seed, case, StageFilter::ANY)
        }
    });
    Ok(outcome.map(drop))
}

/// The kind of a world by its number: every second one is lowered, and the others are of each dialect in turn.
pub(super) fn generator_kind(only: Option<GeneratorKind>, world: u64) -> GeneratorKind {
    match (only, world % 8) {
        (Some(half), _) => half,
        (None, 0) => GeneratorKind::Kubernetes,
        (None, 2) => GeneratorKind::PolicyApi,
        (None, 4) => GeneratorKind::Cilium,
        (None, 6) => GeneratorKind::Calico,
        (None, _) => GeneratorKind::Lowered,
    }
}

/// A world that was drawn.
enum GeneratedInput {
    Kubernetes(kubernetes::ClusterWorld, u64, u64),
    PolicyApi(kubernetes::ClusterWorld, u64, u64),
    Cilium(kubernetes::ClusterWorld, u64, u64),
    Calico(kubernetes::ClusterWorld, u64, u64),
    Lowered(Box<lower::ModelWorld>, u64, u64),
}

impl GeneratedInput {
    fn make(half: GeneratorKind, seed: u64, case: u64) -> GeneratedInput {
        match half {
            GeneratorKind::Kubernetes => GeneratedInput::Kubernetes(
                kubernetes::ClusterWorld::generate(seed, case, FLOWS + EXTRA),
                seed,
                case,
            ),
            GeneratorKind::PolicyApi => {
                let make = kubernetes::ClusterWorld::generate_with_cluster_policies;
                GeneratedInput::PolicyApi(make(seed, case, FLOWS + EXTRA), seed, case)
            }
            GeneratorKind::Cilium => {
                let make = kubernetes::ClusterWorld::generate_with_cilium_policies;
                GeneratedInput::Cilium(make(seed, case, FLOWS + EXTRA), seed, case)
            }
            GeneratorKind::Calico => {
                let make = kubernetes::ClusterWorld::generate_with_calico_policies;
                GeneratedInput::Calico(make(seed, case, FLOWS + EXTRA), seed, case)
            }
            GeneratorKind::Lowered => {
                let world = lower::ModelWorld::generate(seed, case, FLOWS + EXTRA);
                GeneratedInput::Lowered(Box::new(world), seed, case)
            }
        }
    }

    fn check(&self, sought: StageFilter) -> CaseOutcome {
        match self {
            GeneratedInput::Kubernetes(world, seed, case)
            | GeneratedInput::PolicyApi(world, seed, case)
            | GeneratedInput::Cilium(world, seed, case)
            | GeneratedInput::Calico(world, seed, case) => {
                let files = cluster::render_manifests(world, *seed, *case, false);
                catch_panic(|| cluster::check_cluster(world, &files, *seed, *case, sought))
            }
            GeneratedInput::Lowered(world, seed, case) => {
                let flows = flows_of(world);
                catch_panic(|| lowered::check_state(&world.state, &flows, *seed, *case, sought))
            }
        }
    }

    /// What each case tried, and whether it was allowed.
    fn tried(&self, verdicts: &[(bool, bool)]) -> TriedCases {
        let cases = verdicts.iter().take(FLOWS).enumerate();
        let tried = cases.map(|(index, (egress, ingress))| {
            let features = match self {
                GeneratedInput::Kubernetes(world, ..) => tried_features(world, index),
                GeneratedInput::PolicyApi(world, ..) => {
                    // What NetworkPolicies try is counted in worlds that have more of them.
                    let mut tried = tried_features(world, index);
                    tried.retain(|feature| kubernetes::POLICY_API_FEATURES.contains(feature));
                    tried
                }
                GeneratedInput::Cilium(world, ..) => {
                    let mut tried = tried_features(world, index);
                    tried.retain(|feature| kubernetes::CILIUM_FEATURES.contains(feature));
                    tried
                }
                GeneratedInput::Calico(world, ..) => {
                    let mut tried = tried_features(world, index);
                    tried.retain(|feature| kubernetes::CALICO_FEATURES.contains(feature));
                    tried
                }
                GeneratedInput::Lowered(world, ..) => world.tried_features(&world.trials[index]),
            };
            (features, *egress && *ingress)
        });
        tried.collect()
    }

    /// Shrinks the failing world and leaves it behind.
    fn reproduce(self, failure: StageFailure) -> String {
        let (left, failure, seed, case) = match self {
            GeneratedInput::Kubernetes(world, seed, case)
            | GeneratedInput::PolicyApi(world, seed, case)
            | GeneratedInput::Cilium(world, seed, case)
            | GeneratedInput::Calico(world, seed, case) => {
                // Plain manifests are easier to read, if they fail as well.
                let same = |f: &StageFailure| f.stage == failure.stage;
                let plain = cluster_outcome(&world, seed, case, true);
                let plain = plain.err().filter(same).is_some();
                let fails =
                    |w: &kubernetes::ClusterWorld| cluster_outcome(w, seed, case, plain).err();
                let (world, failure) =
                    shrink::shrink(world, failure, shrink::smaller_clusters, fails);
                let files = cluster::render_manifests(&world, seed, case, plain);
                (ReplayCase::Cluster(world, files), failure, seed, case)
            }
            GeneratedInput::Lowered(world, seed, case) => {
                let fails = |(state, flows): &(State, Vec<Flow>)| {
                    state_outcome(state, flows, seed, case).err()
                };
                let whole = (world.state.clone(), flows_of(&world));
                let ((state, flows), failure) =
                    shrink::shrink(whole, failure, shrink::smaller_states, fails);
                (ReplayCase::State(state, flows), failure, seed, case)
            }
        };
        report::write_case(&left, &failure, seed, case).unwrap_or_else(|error| {
            format!(
                "FAILED case {case} of seed {seed}: {}: {}\n  not written down: {error}",
                failure.stage, failure.detail
            )
        })
    }
}

fn tried_features(world: &kubernetes::ClusterWorld, index: usize) -> Features {
    let trial = &world.trials[index];
    let reading = palisade_generators::naive::read(&world.objects(), &trial.flow);
    world.tried_features(trial, &reading)
}

pub(crate) fn flows_of(world: &lower::ModelWorld) -> Vec<Flow> {
    world.trials.iter().map(|trial| trial.flow).collect()
}

fn cluster_outcome(
    world: &kubernetes::ClusterWorld,
    seed: u64,
    case: u64,
    plain: bool,
) -> CaseOutcome {
    let files = cluster::render_manifests(world, seed, case, plain);
    catch_panic(|| cluster::check_cluster(world, &files, seed, case, StageFilter::ANY))
}

fn state_outcome(state: &State, flows: &[Flow], seed: u64, case: u64) -> CaseOutcome {
    catch_panic(|| lowered::check_state(state, flows, seed, case, StageFilter::ANY))
}

/// A panic is a failure like any other.
fn catch_panic(check: impl FnOnce() -> CaseOutcome) -> CaseOutcome {
    catch_unwind(AssertUnwindSafe(check))
        .unwrap_or_else(|payload| Err(StageFailure::new("panicked", panic_message(&*payload))))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    })
    .unwrap_or_else(|| "without a message".to_owned())
}

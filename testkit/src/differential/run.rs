//! Runs cases, counts, and stops at what failed.

use super::report::{self, Left};
use super::{EXTRA, FLOWS, Failure, Outcome, Sought, Tally, cluster, lowered, shrink};
use palisade_generators::{kubernetes, lowered as lower};
use palisade_model::{Flow, State};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Which kind of world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Kubernetes objects.
    Kubernetes,
    /// Lowered policies over the whole model.
    Lowered,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many cases; rounded up to whole worlds.
    pub cases: u64,
    /// What the worlds are drawn from.
    pub seed: u64,
    /// Only this kind of world; both in turn otherwise.
    pub only: Option<Half>,
}

/// How many failing worlds are shrunk and shown before a run gives up.
const SHOWN: u64 = 3;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Cases in which everything agreed.
    pub passed: u64,
    /// Cases in which something did not.
    pub failed: u64,
    /// What the cases tried, by kind of world.
    pub tallies: Vec<Tally>,
    /// What was tried too little.
    pub shortcomings: Vec<String>,
}

/// Runs the cases; tells `say` how it goes, and of every failing case how to have it again.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Report {
    let mut tallies = [
        Tally::new("Kubernetes worlds", kubernetes::FEATURES),
        Tally::new("lowered worlds", lower::FEATURES),
    ];
    let (mut passed, mut failed) = (0, 0);
    let worlds = options.cases.div_ceil(FLOWS as u64);
    for world in 0..worlds {
        let half = half_of(options.only, world);
        let case = Case::make(half, options.seed, world);
        match case.check(Sought::ANY) {
            Ok(verdicts) => {
                passed += FLOWS as u64;
                let tally = &mut tallies[usize::from(half == Half::Lowered)];
                case.count(&verdicts, tally);
            }
            Err(failure) => {
                failed += 1;
                say(&case.reproduce(failure));
                if failed == SHOWN {
                    say("enough failing worlds: the rest is not run");
                    break;
                }
            }
        }
        if (world + 1) % (worlds / 10).max(1) == 0 {
            let done = (world + 1) * FLOWS as u64;
            say(&format!("{done} cases, {failed} failed"));
        }
    }
    let tallies: Vec<Tally> = tallies.into_iter().filter(|t| t.cases > 0).collect();
    let shortcomings = match failed {
        0 => tallies.iter().flat_map(Tally::shortcomings).collect(),
        _ => Vec::new(),
    };
    Report {
        passed,
        failed,
        tallies,
        shortcomings,
    }
}

/// The number of cases until the first failing one, itself included, and how it failed; nothing
/// where all of them pass, or fail by a stage that is not sought. Nothing is shrunk or counted.
#[must_use]
pub fn first_failure(options: &Options, sought: Sought) -> Option<(u64, Failure)> {
    (0..options.cases.div_ceil(FLOWS as u64)).find_map(|world| {
        let half = half_of(options.only, world);
        let case = Case::make(half, options.seed, world);
        let failure = sought.take(case.check(sought)).err()?;
        let flow = failure.flow.unwrap_or(0).min(FLOWS - 1) as u64;
        Some((world * FLOWS as u64 + flow + 1, failure))
    })
}

/// Judges one world by its number, which is that of the case that a run tells; nothing is shrunk.
///
/// # Errors
/// What does not agree.
pub fn check_world(seed: u64, world: u64) -> Result<(), Failure> {
    let half = half_of(None, world);
    Case::make(half, seed, world).check(Sought::ANY).map(drop)
}

/// Judges a case that was left behind once more.
///
/// # Errors
/// What the file system refuses, and files that this program did not write.
pub fn replay(directory: &Path) -> io::Result<Result<(), Failure>> {
    let (left, seed, case) = report::take(directory)?;
    let outcome = guarded(|| match &left {
        Left::Cluster(world, files) => cluster::check(world, files, seed, case, Sought::ANY),
        Left::State(state, flows) => lowered::check(state, flows, seed, case, Sought::ANY),
    });
    Ok(outcome.map(drop))
}

fn half_of(only: Option<Half>, world: u64) -> Half {
    match only {
        Some(half) => half,
        None if world.is_multiple_of(2) => Half::Kubernetes,
        None => Half::Lowered,
    }
}

/// A world that was drawn.
enum Case {
    Kubernetes(kubernetes::World, u64, u64),
    Lowered(Box<lower::World>, u64, u64),
}

impl Case {
    fn make(half: Half, seed: u64, case: u64) -> Case {
        match half {
            Half::Kubernetes => Case::Kubernetes(
                kubernetes::World::generate(seed, case, FLOWS + EXTRA),
                seed,
                case,
            ),
            Half::Lowered => {
                let world = lower::World::generate(seed, case, FLOWS + EXTRA);
                Case::Lowered(Box::new(world), seed, case)
            }
        }
    }

    fn check(&self, sought: Sought) -> Outcome {
        match self {
            Case::Kubernetes(world, seed, case) => {
                let files = cluster::files(world, *seed, *case, false);
                guarded(|| cluster::check(world, &files, *seed, *case, sought))
            }
            Case::Lowered(world, seed, case) => {
                let flows = flows_of(world);
                guarded(|| lowered::check(&world.state, &flows, *seed, *case, sought))
            }
        }
    }

    fn count(&self, verdicts: &[(bool, bool)], tally: &mut Tally) {
        for (index, (egress, ingress)) in verdicts.iter().take(FLOWS).enumerate() {
            let tried = match self {
                Case::Kubernetes(world, ..) => {
                    let trial = &world.trials[index];
                    let reading = palisade_generators::naive::read(&world.objects(), &trial.flow);
                    world.tried(trial, &reading)
                }
                Case::Lowered(world, ..) => world.tried(&world.trials[index]),
            };
            tally.add(tried, *egress && *ingress);
        }
    }

    /// Shrinks the failing world and leaves it behind.
    fn reproduce(self, failure: Failure) -> String {
        let (left, failure, seed, case) = match self {
            Case::Kubernetes(world, seed, case) => {
                // Plain manifests are easier to read, if they fail as well.
                let same = |f: &Failure| f.stage == failure.stage;
                let plain = cluster_outcome(&world, seed, case, true);
                let plain = plain.err().filter(same).is_some();
                let fails = |w: &kubernetes::World| cluster_outcome(w, seed, case, plain).err();
                let (world, failure) =
                    shrink::shrink(world, failure, shrink::smaller_cluster, fails);
                let files = cluster::files(&world, seed, case, plain);
                (Left::Cluster(world, files), failure, seed, case)
            }
            Case::Lowered(world, seed, case) => {
                let fails = |(state, flows): &(State, Vec<Flow>)| {
                    state_outcome(state, flows, seed, case).err()
                };
                let whole = (world.state.clone(), flows_of(&world));
                let ((state, flows), failure) =
                    shrink::shrink(whole, failure, shrink::smaller_state, fails);
                (Left::State(state, flows), failure, seed, case)
            }
        };
        report::leave(&left, &failure, seed, case).unwrap_or_else(|error| {
            format!(
                "FAILED case {case} of seed {seed}: {}: {}\n  not written down: {error}",
                failure.stage, failure.detail
            )
        })
    }
}

pub(crate) fn flows_of(world: &lower::World) -> Vec<Flow> {
    world.trials.iter().map(|trial| trial.flow).collect()
}

fn cluster_outcome(world: &kubernetes::World, seed: u64, case: u64, plain: bool) -> Outcome {
    let files = cluster::files(world, seed, case, plain);
    guarded(|| cluster::check(world, &files, seed, case, Sought::ANY))
}

fn state_outcome(state: &State, flows: &[Flow], seed: u64, case: u64) -> Outcome {
    guarded(|| lowered::check(state, flows, seed, case, Sought::ANY))
}

/// A panic is a failure like any other.
fn guarded(check: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(check))
        .unwrap_or_else(|payload| Err(Failure::of("panicked", message(&*payload))))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    })
    .unwrap_or_else(|| "without a message".to_owned())
}

//! The engine's benches: what is measured, and how.
//!
//! Inside the clock: the lowering of each object from its parsed form (see `written`), and
//! [`Engine::apply`] with the delta it returns. Outside: writing the parsed form, dropping deltas and
//! parsed objects, and everything the oracle does.

use crate::case::BenchCase;
use crate::check;
use crate::heap;
use crate::manifest;
use crate::parsed_objects::BenchObject;
use crate::report::Figure;
use crate::states::{self, BenchInput, Families};
use crate::stopwatch::{Stopwatch, now};
use crate::updates::{self, EndpointScenario, PolicySetScenario, SelectorScenario};
use palisade_engine::{Engine, EngineOptions};
use palisade_model::{Object, State, Update};
use std::time::Duration;

/// How long one figure's repetitions may take together.
const BUDGET: Duration = Duration::from_secs(10);

/// How often an update is timed, at most.
const REPETITIONS: usize = 1_000;

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    let mut cases = vec![
        start("tags", Families::V4, Some([0.33, 45.0])),
        start("tags", Families::Both, None),
        start("tenants", Families::V4, Some([0.45, 50.0])),
        start("tenants", Families::Both, None),
        start("tenants-differing", Families::V4, Some([0.90, 100.0])),
        start_of_manifests(),
    ];
    cases.extend([10, 100, 1_000, 10_000].map(endpoint_update));
    cases.extend([100, 1_000, 10_000, 100_000].map(selector_update));
    cases.push(change());
    for (set, name, aim) in [
        (PolicySetScenario::Cidrs, "cidrs", 800.0),
        (
            PolicySetScenario::CidrsWithDenies,
            "cidrs-with-denies",
            4_500.0,
        ),
        (PolicySetScenario::Labels, "labels", 1_000.0),
        (PolicySetScenario::KnownLabels, "known-labels", 1_000.0),
    ] {
        cases.push(policy_set(set, name, aim));
    }
    cases.extend(crate::tiers::cases());
    cases
}

fn start(state: &'static str, families: Families, aims: Option<[f64; 2]>) -> BenchCase {
    let name = match families {
        Families::V4 => format!("engine/start/{state}"),
        Families::Both => format!("engine/start/{state}/dual"),
    };
    let figure = |what: &str, unit, aim: Option<f64>| {
        let figure = Figure::of(format!("{name}/{what}"), unit);
        match aim {
            Some(aim) => figure.with_reference("aim", aim),
            None => figure,
        }
    };
    let at = |n: usize| aims.map(|aims| aims[n]);
    BenchCase {
        figures: vec![
            figure("seconds", "s", at(0)),
            figure("live_heap_mib", "MiB", at(1)),
            figure("peak_rss_mib", "MiB", None),
        ],
        name,
        processes: 3,
        asks_the_oracle: true,
        limits: 1,
        measure: Box::new(move |scale, samples| {
            let input = match state {
                "tags" => states::tags::input(scale, families),
                "tenants" => states::tenants::input(scale, families, 1),
                _ => states::tenants::input(scale, families, states::tenants::BODIES),
            };
            let before = heap::live();
            let mut engine = Engine::new(EngineOptions::default());
            let watch = Stopwatch::start();
            let delta = engine.apply(input.updates(&watch));
            let seconds = watch.elapsed().as_secs_f64();
            drop(delta);
            let live = heap::live().saturating_sub(before) as u64;
            let peak = heap::peak_resident().map_err(|e| e.to_string())?;
            samples(vec![seconds]);
            samples(vec![heap::mebibytes(live)]);
            samples(vec![heap::mebibytes(peak)]);
            check_engine_agreement(&state_of(&input), &engine)
        }),
    }
}

/// The same tenants as manifests: JSON lists, read, lowered by the dialect and taken in by the engine.
/// A ratio says what that takes to the same from the model's own objects, just before.
fn start_of_manifests() -> BenchCase {
    let name = "engine/start/tenants-differing/manifests";
    let figure = |what: &str, unit| Figure::of(format!("{name}/{what}"), unit);
    BenchCase {
        figures: vec![
            figure("model", "s"),
            figure("seconds", "s"),
            figure("ratio", "ratio").relative_to(&format!("{name}/model")),
            figure("live_heap_mib", "MiB"),
        ],
        name: name.to_owned(),
        processes: 3,
        asks_the_oracle: true,
        limits: 2,
        measure: Box::new(|scale, samples| {
            let bodies = states::tenants::BODIES;
            let input = states::tenants::input(scale, Families::V4, bodies);
            let watch = Stopwatch::start();
            let mut engine = Engine::new(EngineOptions::default());
            drop(engine.apply(input.updates(&watch)));
            let model = watch.elapsed().as_secs_f64();
            drop(engine);
            let before = heap::live();
            let mut engine = Engine::new(EngineOptions::default());
            let watch = Stopwatch::start();
            let mut reading = manifest::ManifestReading::of(&input, &watch);
            let delta = engine.apply(&mut reading);
            let seconds = watch.elapsed().as_secs_f64();
            drop(delta);
            reading.end()?;
            let live = heap::live().saturating_sub(before) as u64;
            samples(vec![model]);
            samples(vec![seconds]);
            samples(vec![seconds / model]);
            samples(vec![heap::mebibytes(live)]);
            check_engine_agreement(&state_of(&input), &engine)
        }),
    }
}

fn endpoint_update(selectors: usize) -> BenchCase {
    let name = format!("engine/endpoint-update/{selectors}");
    BenchCase {
        figures: vec![
            Figure::of(name.clone(), "micros").with_reference("aim", 2.0),
            Figure::of(format!("{name}/new-signature"), "micros").with_reference("aim", 20.0),
        ],
        name,
        processes: 1,
        asks_the_oracle: true,
        limits: 1,
        measure: Box::new(move |_, samples| {
            let state = SelectorScenario(selectors);
            let mut bench = EngineBench::of(&state.input());
            samples(bench.time(REPETITIONS, |n| {
                let pod = n % SelectorScenario::PODS;
                // Far enough that the labels always change, with ten selectors too.
                vec![state.pod(pod, pod + 37 * (1 + n / SelectorScenario::PODS))]
            }));
            let novelties = state.new_label_combinations();
            samples(bench.time(novelties, |n| {
                vec![state.pod_with_new_labels(n % SelectorScenario::PODS, n)]
            }));
            bench.check_agreement()
        }),
    }
}

fn selector_update(endpoints: usize) -> BenchCase {
    let name = format!("engine/selector-update/{endpoints}");
    let new_key = Figure::of(format!("{name}/new-key"), "micros");
    BenchCase {
        figures: vec![
            Figure::of(name.clone(), "micros").with_reference("aim", 20.0),
            match endpoints {
                100_000 => new_key.with_reference("aim", 2_000.0),
                _ => new_key,
            },
            Figure::of(format!("{name}/half"), "micros"),
        ],
        name,
        processes: 1,
        asks_the_oracle: true,
        limits: 1,
        measure: Box::new(move |scale, samples| {
            let mut bench =
                EngineBench::of(&EndpointScenario(states::scaled(endpoints, scale)).input());
            // The edit number 0 stands already.
            samples(bench.time(REPETITIONS, |n| {
                vec![EndpointScenario::policy_with_known_tests(n + 1)]
            }));
            samples(bench.time(REPETITIONS, |n| {
                vec![EndpointScenario::policy_with_new_key(n)]
            }));
            samples(bench.time(REPETITIONS, |n| {
                vec![EndpointScenario::policy_matching_half(n)]
            }));
            bench.check_agreement()
        }),
    }
}

fn change() -> BenchCase {
    let figure = |what: &str| Figure::of(format!("engine/change/{what}"), "micros");
    BenchCase {
        name: "engine/change".to_owned(),
        figures: ["pod-added", "pod-relabelled", "policy-edited"]
            .map(|what| figure(what).with_reference("aim", 100.0))
            .into(),
        processes: 1,
        asks_the_oracle: true,
        limits: 1,
        measure: Box::new(|scale, samples| {
            use states::tags;
            let (pods, policies) = (tags::pods(scale), tags::policies(scale));
            let mut bench = EngineBench::of(&tags::input(scale, Families::Both));
            let pod =
                |number, like| BenchObject::Pod(tags::pod(number, like, pods, Families::Both));
            samples(bench.time(REPETITIONS, |n| vec![pod(pods + n, n)]));
            // Each takes the labels of another, which is known.
            samples(bench.time(REPETITIONS, |n| vec![pod(pods + n, n + 7)]));
            // A sixth rule comes and goes.
            samples(bench.time(REPETITIONS, |n| {
                let policy = (n / 2) * 37 % policies;
                vec![BenchObject::Policy(tags::policy(policy, (n + 1) % 2))]
            }));
            bench.check_agreement()
        }),
    }
}

fn policy_set(set: PolicySetScenario, name: &str, aim: f64) -> BenchCase {
    let name = format!("engine/policy-set/{name}");
    BenchCase {
        figures: vec![Figure::of(name.clone(), "micros").with_reference("aim", aim)],
        name,
        processes: 1,
        asks_the_oracle: true,
        limits: 1,
        measure: Box::new(move |_, samples| {
            let mut bench = EngineBench::of(&set.input());
            let local = updates::local();
            // The endpoint comes, and goes outside the clock; it stays after the last time.
            samples(bench.time_after(50, |bench| bench.remove(&local), |_| vec![local.clone()]));
            bench.check_agreement()
        }),
    }
}

/// An engine in a state, and the same objects for the oracle.
struct EngineBench {
    engine: Engine,
    state: State,
}

impl EngineBench {
    fn of(input: &BenchInput) -> Self {
        let mut engine = Engine::new(EngineOptions::default());
        engine.apply(input.objects().map(|written| written.update()));
        EngineBench {
            engine,
            state: state_of(input),
        }
    }

    /// Times one flush for each of what `write` gives, in microseconds: as often as asked, or as
    /// often as the budget allows.
    fn time(&mut self, times: usize, write: impl Fn(usize) -> Vec<BenchObject>) -> Vec<f64> {
        self.time_after(times, |_| {}, write)
    }

    /// The same, after something that is not timed.
    fn time_after(
        &mut self,
        times: usize,
        before: impl Fn(&mut EngineBench),
        write: impl Fn(usize) -> Vec<BenchObject>,
    ) -> Vec<f64> {
        let began = now();
        let mut samples = Vec::new();
        while samples.len() < times && (samples.is_empty() || began.elapsed() < BUDGET) {
            before(self);
            let written = write(samples.len());
            let watch = now();
            let delta = self.engine.apply(written.iter().map(BenchObject::update));
            let took = watch.elapsed();
            drop(delta);
            samples.push(took.as_secs_f64() * 1e6);
            for object in &written {
                self.state.apply(object.update());
            }
        }
        samples
    }

    fn remove(&mut self, written: &BenchObject) {
        let gone = Update::Delete(written.lower().key());
        self.state.apply(gone.clone());
        self.engine.apply([gone]);
    }

    fn check_agreement(&self) -> Result<(), String> {
        check_engine_agreement(&self.state, &self.engine)
    }
}

fn state_of(input: &BenchInput) -> State {
    State::from_updates(input.objects().map(|written| written.update()))
}

/// The verdicts of an engine against the oracle's, in this state.
pub(crate) fn check_engine_agreement(state: &State, engine: &Engine) -> Result<(), String> {
    let compared = check::check(state, engine.tables())?;
    let counts = engine.counts();
    let objects = state.objects().fold([0_usize; 3], |mut n, object| {
        match object {
            Object::Endpoint(_) => n[0] += 1,
            Object::Policy(_) => n[1] += 1,
            _ => n[2] += 1,
        }
        n
    });
    eprintln!(
        "    {} endpoints, {} policies, {} others: {} identities, {} address entries, {} policy sets, \
         {} class entries, {} classes; {} flows as by the oracle ({} allowed, {} denied)",
        objects[0],
        objects[1],
        objects[2],
        counts.identities,
        counts.addresses,
        counts.policy_sets,
        counts.class_entries,
        counts.classes,
        check::FLOWS,
        compared.allowed,
        compared.denied
    );
    Ok(())
}

//! What a node's boot costs: the runtime adds all pods at once, and deletes all at once.

use super::manifests;
use super::process::AgentProcess;
use super::runtime::{CniRuntime, Container, NAMESPACE};
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::stopwatch::now;
use palisade_testkit::lab::Lab;
use std::time::Duration;

/// The pods of a burst.
const PODS: usize = 200;
const BURSTS: usize = 5;
const APPS: usize = 10;

/// Beside each burst the same program is asked for its versions as often at once, which asks no agent:
/// what is measured more than that is the agent's work.
pub(super) fn case() -> BenchCase {
    let name = format!("agent/cni-burst/{PODS}");
    let figure = |of: &str| Figure::of(format!("{name}/{of}"), "ms");
    BenchCase {
        figures: vec![
            figure("version"),
            figure("p50"),
            figure("p99"),
            figure("all-open"),
            figure("all-deleted"),
        ],
        name,
        processes: 1,
        asks_the_oracle: false,
        limits: 5,
        measure: Box::new(measure),
    }
}

/// Calls the plugin for every container at once; how long each call took, in order, and all of them.
fn burst(
    runtime: &CniRuntime,
    command: &str,
    containers: &[Container],
) -> Result<(Vec<f64>, f64), String> {
    let began = now();
    let mut took = std::thread::scope(|scope| {
        let spawn = |of| scope.spawn(move || runtime.call(command, Some(of)));
        let calls: Vec<_> = containers.iter().map(spawn).collect();
        let join = |call: std::thread::ScopedJoinHandle<'_, Result<Duration, String>>| {
            let took = call
                .join()
                .map_err(|_| format!("a call of {command} panicked"))??;
            Ok(millis(took))
        };
        calls
            .into_iter()
            .map(join)
            .collect::<Result<Vec<f64>, String>>()
    })?;
    took.sort_by(f64::total_cmp);
    Ok((took, millis(began.elapsed())))
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

fn measure(_scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let mut lab = Lab::new("bursts").map_err(|error| error.to_string())?;
    let mut agent = AgentProcess::new()?;
    let app = |number: usize| format!("app-{}", number % APPS);
    let mut objects = manifests::namespace(NAMESPACE);
    for pod in 0..PODS {
        let labels = [("app", app(pod))];
        objects += &manifests::pod(NAMESPACE, &format!("p{pod}"), &labels, "here", &[]);
    }
    agent.write("objects.yaml", &objects)?;
    for policy in 0..APPS {
        let (own, from) = (app(policy), app(policy + 1));
        let text = manifests::policy(NAMESPACE, &own, &own, &[("app", &from)], &[("TCP", 8080)]);
        agent.write(&format!("{own}.yaml"), &text)?;
    }
    agent.start(&lab)?;
    let runtime = CniRuntime::new(&agent)?;
    let containers = (0..PODS).map(|pod| Container::new(&mut lab, pod));
    let containers: Vec<Container> = containers.collect::<Result<_, _>>()?;
    let mut figures: [Vec<f64>; 5] = Default::default();
    for _ in 0..BURSTS {
        let (_, versions) = burst(&runtime, "VERSION", &containers)?;
        let (adds, all) = burst(&runtime, "ADD", &containers)?;
        let (_, deleted) = burst(&runtime, "DEL", &containers)?;
        let (p50, p99) = (adds[PODS / 2], adds[PODS * 99 / 100]);
        for (figure, sample) in figures.iter_mut().zip([versions, p50, p99, all, deleted]) {
            figure.push(sample);
        }
    }
    for figure in figures {
        samples(figure);
    }
    Ok(())
}

//! How long a container runtime waits for ADD: the plugin's program from its start to its end.

use super::manifests;
use super::process::AgentProcess;
use super::runtime::{CniRuntime, Container, NAMESPACE};
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use palisade_testkit::lab::Lab;
use std::time::Duration;

/// How many pods the host has while another one is added, again and again.
const AMONG: [usize; 3] = [0, 100, 200];
/// ADDs of each figure: enough for a p90, and a minute and a half in all.
const ROUNDS: usize = 200;
const APPS: usize = 10;

/// Beside each ADD the same program is asked for its versions, which asks no agent: what is measured
/// less that is the agent's work.
pub(super) fn case() -> BenchCase {
    let name = "agent/cni-add";
    let mut figures = vec![Figure::of(format!("{name}/version"), "ms")];
    for among in AMONG {
        figures.push(Figure::of(format!("{name}/among-{among}"), "ms"));
        figures.push(Figure::of(format!("{name}/among-{among}/p90"), "ms"));
    }
    BenchCase {
        name: name.to_owned(),
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 5,
        measure: Box::new(measure),
    }
}

fn app(number: usize) -> String {
    format!("app-{}", number % APPS)
}

fn measure(_scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let mut lab = Lab::new("adds").map_err(|error| error.to_string())?;
    let mut agent = AgentProcess::new()?;
    let most = AMONG.into_iter().max().unwrap_or(0);
    let mut objects = manifests::namespace(NAMESPACE);
    for pod in 0..=most {
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
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    let version = (0..ROUNDS).map(|_| runtime.call("VERSION", None).map(millis));
    samples(version.collect::<Result<_, _>>()?);
    let measured = Container::new(&mut lab, most)?;
    let mut there = 0;
    for among in AMONG {
        while there < among {
            runtime.call("ADD", Some(&Container::new(&mut lab, there)?))?;
            there += 1;
        }
        let mut took = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            took.push(millis(runtime.call("ADD", Some(&measured))?));
            runtime.call("DEL", Some(&measured))?;
        }
        samples(took.clone());
        took.sort_by(f64::total_cmp);
        samples(vec![took[ROUNDS * 9 / 10]]);
        eprintln!("    measured among {there} pods");
    }
    Ok(())
}

//! From the close of an edited file to the first packet with the new verdict.

use super::manifests;
use super::prober::{NEW, Prober, STANDING};
use super::process::AgentProcess;
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::stopwatch::now;
use palisade_testkit::lab::{Lab, NodeId};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const TEAMS: usize = 20;
const PODS: usize = 10;
const POLICIES: usize = 50;
/// Pairs of edits: one that opens, one that closes.
const EDITS: usize = 60;
/// The agent's own default.
const SETTLE: Duration = Duration::from_millis(100);
const PORT: u16 = 9_000;
/// How long an edit may take to show.
const PATIENCE: Duration = Duration::from_secs(5);
/// A flow that no packet of arrived for so long has stopped.
const SILENCE: Duration = Duration::from_millis(60);

/// 200 local endpoints in 20 namespaces, 1,000 policies, one of which is edited: a port comes and goes,
/// or, to split an identity, a label that no other policy asks for.
pub(super) fn case(split: bool) -> BenchCase {
    let name = if split {
        "agent/edit-to-enforced/split"
    } else {
        "agent/edit-to-enforced"
    };
    let figure = |what: &str| Figure::of(format!("{name}/{what}"), "ms");
    // Of 120 edits there is no p99 to speak of.
    let p90 = if split {
        figure("p90")
    } else {
        figure("p90").with_reference("aim", 10.0)
    };
    BenchCase {
        name: format!("{name}/all"),
        figures: vec![
            figure("opened"),
            figure("closed"),
            figure("closed-standing-flow"),
            figure("p50"),
            p90,
            figure("max"),
            figure("settle"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(move |_, samples| measure(split, samples)),
    }
}

struct EditScenario {
    lab: Lab,
    agent: AgentProcess,
    pods: Vec<NodeId>,
}

fn team(number: usize) -> String {
    format!("team-{number}")
}

/// The two pods of an app differ only in a label that no standing policy asks for.
fn labels(pod: usize) -> Vec<(&'static str, String)> {
    let track = if pod < PODS / 2 { "canary" } else { "stable" };
    vec![
        ("app", app(pod)),
        ("track", track.to_owned()),
        ("release", "r1".to_owned()),
    ]
}

fn app(pod: usize) -> String {
    format!("app-{}", pod % (PODS / 2))
}

fn address(team: usize, pod: usize) -> IpAddr {
    let third = u8::try_from(team).unwrap_or(0);
    let fourth = u8::try_from(pod + 1).unwrap_or(0);
    Ipv4Addr::new(10, 77, third, fourth).into()
}

impl EditScenario {
    fn new() -> Result<Self, String> {
        let mut lab = Lab::new("edits").map_err(|error| error.to_string())?;
        let mut agent = AgentProcess::new()?;
        let mut objects = String::new();
        for of in 0..TEAMS {
            objects += &manifests::namespace(&team(of));
            for pod in 0..PODS {
                let (name, labels) = (format!("pod-{pod}"), labels(pod));
                let addresses = [address(of, pod)];
                objects += &manifests::pod(&team(of), &name, &labels, "here", &addresses);
            }
        }
        agent.write("objects.yaml", &objects)?;
        for of in 0..TEAMS {
            for policy in 0..POLICIES {
                let name = format!("policy-{policy}");
                let port = 8_000 + u16::try_from(policy).unwrap_or(0);
                let text = manifests::policy(
                    &team(of),
                    &name,
                    &app(policy),
                    &[("app", &app(policy + 1 + policy / 5))],
                    &[("TCP", port)],
                );
                agent.write(&format!("{}-{name}.yaml", team(of)), &text)?;
            }
        }
        agent.start(&lab)?;
        let mut pods = Vec::new();
        for of in 0..TEAMS {
            for pod in 0..PODS {
                let name = format!("t{of}-{pod}");
                let node = lab.add_namespace(&name, vec![address(of, pod)]);
                let node = node.map_err(|error| error.to_string())?;
                agent.attach(&lab, node, &team(of), &format!("pod-{pod}"))?;
                pods.push(node);
            }
        }
        eprintln!("    {} workloads attached", pods.len());
        Ok(EditScenario { lab, agent, pods })
    }

    /// Writes the edited policy; says when it was closed.
    fn edit(&self, split: bool, open: bool) -> Result<Instant, String> {
        let (own, canary) = (app(0), ("track", "canary"));
        let (rest, port) = (("UDP", PORT + 1), ("UDP", PORT));
        let (from, ports) = match (split, open) {
            (false, true) => (vec![("app", &*own)], vec![rest, port]),
            (false, false) => (vec![("app", &*own)], vec![rest]),
            (true, true) => (vec![("app", &*own), canary], vec![port]),
            (true, false) => (vec![("app", "nobody")], vec![port]),
        };
        let text = manifests::policy(&team(0), "edited", &app(1), &from, &ports);
        self.agent.write("edited.yaml", &text)?;
        Ok(now())
    }
}

fn measure(split: bool, samples: &mut Samples<'_>) -> Result<(), String> {
    let scene = EditScenario::new()?;
    let server = SocketAddr::new(address(0, 1), PORT);
    let prober = Prober::start(&scene.lab, scene.pods[0], scene.pods[1], server)?;
    let (mut opened, mut closed, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
    let took = |from: Instant, to: Instant| {
        let took = to.saturating_duration_since(from);
        took.saturating_sub(SETTLE).as_secs_f64() * 1e3
    };
    for edit in 0..=EDITS {
        let began = scene.edit(split, true)?;
        let arrived =
            wait(|| prober.first_arrival(NEW, began)).ok_or("what an edit allows does not pass")?;
        wait(|| prober.first_arrival(STANDING, began)).ok_or("the standing flow does not pass")?;
        pause(Duration::from_millis(70 + edit as u64 % 7));
        let ended = scene.edit(split, false)?;
        let silent = |kind| {
            let silent_since = |last: &Instant| now().duration_since(*last) > SILENCE;
            let last = prober
                .first_send_after_last_arrival(kind)
                .filter(silent_since);
            last.filter(|last| *last > ended)
        };
        let cut = wait(|| silent(NEW)).ok_or("what an edit denies goes on passing")?;
        let over = wait(|| silent(STANDING)).ok_or("what an edit denies goes on")?;
        // The first pair only warms up.
        if edit > 0 {
            opened.push(took(began, arrived));
            closed.push(took(ended, cut));
            stopped.push(took(ended, over));
        }
    }
    let mut all: Vec<f64> = opened.iter().chain(&closed).copied().collect();
    all.sort_by(f64::total_cmp);
    for figure in [opened, closed, stopped] {
        samples(figure);
    }
    samples(vec![all[all.len() / 2]]);
    samples(vec![all[all.len() * 9 / 10]]);
    samples(vec![all[all.len() - 1]]);
    samples(vec![SETTLE.as_secs_f64() * 1e3]);
    Ok(())
}

#[allow(
    clippy::disallowed_methods,
    reason = "edits come at a human's pace, packets prove them"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until something is seen; `None` if it is not in time.
pub(crate) fn wait<T>(seen: impl Fn() -> Option<T>) -> Option<T> {
    let began = now();
    while began.elapsed() < PATIENCE {
        if let Some(seen) = seen() {
            return Some(seen);
        }
        pause(Duration::from_millis(5));
    }
    None
}

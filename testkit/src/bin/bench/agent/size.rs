//! How much memory the agent of one node holds in a big cluster.

use super::manifests;
use super::process::AgentProcess;
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::states::scaled;
use palisade_testkit::lab::Lab;
use std::net::{IpAddr, Ipv4Addr};

const NAMESPACES: usize = 100;
const APPS: usize = 10;
/// Pods of this node.
const LOCAL: usize = 50;
/// Objects in one file.
const CHUNK: usize = 500;

/// 1,000 nodes, 50,000 pods in 100 namespaces, 250 policies; 50 of the pods are on this node.
pub(super) fn case() -> BenchCase {
    let name = "agent/rss";
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            Figure::of(name, "MiB").with_reference("aim", 64.0),
            Figure::of(format!("{name}/pss"), "MiB"),
            Figure::of(format!("{name}/peak"), "MiB"),
            Figure::of(format!("{name}/start"), "s").with_reference("aim", 2.0),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 3,
        measure: Box::new(measure),
    }
}

fn namespace(number: usize) -> String {
    format!("team-{number}")
}

fn address(pod: usize) -> IpAddr {
    let pod = u32::try_from(pod).unwrap_or(0);
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 1)) + pod).into()
}

fn labels(pod: usize) -> Vec<(&'static str, String)> {
    let app = pod / NAMESPACES % APPS;
    vec![
        ("app", format!("app-{app}")),
        ("tier", format!("tier-{}", app % 3)),
        ("version", format!("v{}", pod % 4)),
        ("pod-template-hash", format!("{:08x}", app * 7919)),
    ]
}

fn measure(scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let (nodes, pods) = (scaled(1_000, scale), scaled(50_000, scale));
    let policies = scaled(250, scale);
    let mut lab = Lab::new("rss").map_err(|error| error.to_string())?;
    let mut agent = AgentProcess::new()?;
    let mut objects: Vec<String> = (0..NAMESPACES)
        .map(|n| manifests::namespace(&namespace(n)))
        .collect();
    for node in 0..nodes {
        let number = u32::try_from(node).unwrap_or(0);
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 1)) + number);
        objects.push(manifests::node(&format!("node-{node}"), address.into()));
    }
    for pod in 0..pods {
        let node = format!("node-{}", pod % nodes);
        let (of, name) = (namespace(pod % NAMESPACES), format!("pod-{pod}"));
        let text = manifests::pod(&of, &name, &labels(pod), &node, &[address(pod)]);
        objects.push(text);
    }
    for (number, chunk) in objects.chunks(CHUNK).enumerate() {
        agent.write(&format!("objects-{number}.yaml"), &chunk.concat())?;
    }
    drop(objects);
    for policy in 0..policies {
        let (app, from) = (policy / NAMESPACES, policy / NAMESPACES + 1);
        let text = manifests::policy(
            &namespace(policy % NAMESPACES),
            &format!("policy-{policy}"),
            &format!("app-{app}"),
            &[("app", &format!("app-{from}")), ("version", "v1")],
            &[("TCP", 8080)],
        );
        agent.write(&format!("policy-{policy}.yaml"), &text)?;
    }
    let took = agent.start(&lab)?;
    for pod in (0..pods).filter(|pod| pod % nodes == 0).take(LOCAL) {
        let node = lab.add_namespace(&format!("p{pod}"), vec![address(pod)]);
        let node = node.map_err(|error| error.to_string())?;
        agent.attach(
            &lab,
            node,
            &namespace(pod % NAMESPACES),
            &format!("pod-{pod}"),
        )?;
    }
    let status = agent.status()?;
    if status["health"] != "Ready" || status["revision"] != status["realised"] {
        return Err(format!("the agent is not ready: {status}"));
    }
    eprintln!(
        "    {} objects in {} files, {} local endpoints, {} policies in force",
        status["source"]["objects"],
        status["source"]["files"],
        status["endpoints"],
        status["policies"]
    );
    let mebibytes = |file, field| Ok::<f64, String>(agent.proc_kilobytes(file, field)? / 1024.0);
    samples(vec![mebibytes("status", "VmRSS")?]);
    samples(vec![mebibytes("smaps_rollup", "Pss")?]);
    samples(vec![mebibytes("status", "VmHWM")?]);
    samples(vec![took.as_secs_f64()]);
    Ok(())
}

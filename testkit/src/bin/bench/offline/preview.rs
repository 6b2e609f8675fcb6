//! `palisade preview` over recorded flows: 100,000 that all differ, and a day's entries of 4,000 that come again.
//!
//! "Past reading" is what it takes longer than with a record of one flow and the same policies, in the same round; of the
//! day, most of the rest is reading 380 MB of JSON, which an agent that previews its own record does not do.

use super::{Folder, run};
use crate::agent;
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::states::scaled;
use palisade_testkit::dump::ClusterDump;
use std::fs::File;
use std::io::{self, BufWriter, Write};

const ROUNDS: usize = 3;
/// Workloads with two pods each, and five policies.
const WORKLOADS: usize = 200;
const NAMESPACES: usize = 20;
/// The ports of flows.
const PORTS: usize = 1_000;

pub(super) fn case() -> BenchCase {
    let name = "offline/preview";
    let figure = |what: &str, unit| Figure::of(format!("{name}/{what}"), unit);
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            figure("distinct/past-reading", "s"),
            figure("distinct/peak_rss", "MiB"),
            figure("day", "s").with_reference("aim", 2.0),
            figure("day/peak_rss", "MiB"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 5,
        measure: Box::new(measure),
    }
}

/// The number of different flows of a record, and of its entries.
#[derive(Clone, Copy)]
struct RecordSize {
    flows: usize,
    entries: usize,
}

/// An end: a workload of the dump.
fn end_json(workload: usize) -> String {
    let namespace = workload % NAMESPACES;
    format!(
        r#"{{"namespace":"team-{namespace}","controller":{{"kind":"Deployment","name":"app-{workload}"}},"labels":{{"app":"app-{workload}"}}}}"#
    )
}

/// A record in which the flows come in turn. Nothing is random: flow by flow another source, destination and port.
fn write_record(out: &mut dyn Write, size: RecordSize) -> io::Result<()> {
    writeln!(
        out,
        r#"{{"apiVersion":"{}","node":"node-1","since":"2026-01-01T00:00:00Z","lost":0,"truncated":false,"flows":["#,
        palisade_api::api_version()
    )?;
    for entry in 0..size.entries {
        let flow = entry % size.flows.max(1);
        let source = flow % WORKLOADS;
        let destination = flow / WORKLOADS % WORKLOADS;
        let port = 1_024 + flow * 7 % PORTS;
        let comma = if entry == 0 { "" } else { "," };
        writeln!(
            out,
            r#"{comma}{{"source":{},"destination":{},"protocol":"TCP","port":{port},"verdict":"Allowed","first":"2026-01-01T00:00:00Z","last":"2026-01-01T00:05:00Z","count":3}}"#,
            end_json(source),
            end_json(destination),
        )?;
    }
    writeln!(out, "]}}")
}

fn measure(scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let program = agent::program()?;
    let folder = Folder::new()?;
    let dump = ClusterDump {
        pods: 2 * WORKLOADS,
        workloads: WORKLOADS,
        namespaces: NAMESPACES,
        policies: scaled(1_000, scale),
    };
    let (base, _) = folder.write("base.json", dump)?;
    let record = |name: &str, size: RecordSize| {
        let path = folder.0.join(name);
        let write = || {
            let mut file = BufWriter::new(File::create(&path)?);
            write_record(&mut file, size)?;
            file.flush()
        };
        let written: io::Result<()> = write();
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<String, String>(path.display().to_string())
    };
    let one = RecordSize {
        flows: 1,
        entries: 1,
    };
    let distinct = scaled(100_000, scale);
    let distinct = RecordSize {
        flows: distinct,
        entries: distinct,
    };
    let day = RecordSize {
        flows: scaled(4_000, scale),
        entries: scaled(1_000_000, scale),
    };
    let [one, distinct, day] = [
        record("one.json", one)?,
        record("distinct.json", distinct)?,
        record("day.json", day)?,
    ];
    let preview = |flows: &str| {
        let change = ["--delete", "networkpolicy/team-0/app-0-0"];
        let arguments = ["preview", "--base", &base, "--flows", flows];
        run(&program, &[&arguments[..], &change].concat(), &[0, 1])
    };
    let mut all: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let (one, distinct, day) = (preview(&one)?, preview(&distinct)?, preview(&day)?);
        let figures = [
            distinct.seconds - one.seconds,
            distinct.peak,
            day.seconds,
            day.peak,
        ];
        for (all, figure) in all.iter_mut().zip(figures) {
            all.push(figure);
        }
    }
    for figure in all {
        samples(figure);
    }
    Ok(())
}

//! Leaves a failing case behind as files, and reads them again.

use super::{StageFailure, cluster};
use palisade_generators::kubernetes::{ClusterTrial, ClusterWorld, Features, GeneratedObject};
use palisade_generators::manifest::{self, RenderedFile};
use palisade_generators::naive;
use palisade_manifest::{Limits, extract_objects, parse, to_json};
use palisade_model::{Flow, L4, Object, State, Update};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// Beside the manifests, or alone: what a replay needs besides them. Sources read no such name.
const REPLAY: &str = "replay.txt";

/// A case as it was left behind.
#[derive(Clone, Debug)]
pub(crate) enum ReplayCase {
    /// Manifests, and the flows to judge.
    Cluster(ClusterWorld, Vec<RenderedFile>),
    /// A lowered state, and the flows to judge.
    State(State, Vec<Flow>),
}

impl ReplayCase {
    fn flows(&self) -> Vec<Flow> {
        match self {
            ReplayCase::Cluster(world, _) => {
                let flow = |trial: &ClusterTrial| cluster::model_flow(&trial.flow);
                world.trials.iter().map(flow).collect()
            }
            ReplayCase::State(_, flows) => flows.clone(),
        }
    }
}

/// Writes a failing case to a directory of its own and says how to have it again.
///
/// # Errors
/// What the file system refuses.
pub(crate) fn write_case(
    left: &ReplayCase,
    failure: &StageFailure,
    seed: u64,
    case: u64,
) -> io::Result<String> {
    let directory = create_directory(seed, case)?;
    let mut note = json!({ "seed": seed, "case": case, "stage": failure.stage,
        "detail": failure.detail, "flows": left.flows() });
    match left {
        ReplayCase::Cluster(_, files) => manifest::write(&directory, files)?,
        ReplayCase::State(state, _) => {
            note["objects"] = json!(state.objects().collect::<Vec<_>>());
            note["hostNode"] = json!(state.host_node);
        }
    }
    let text = format!("{note:#}\n");
    manifest::write(
        &directory,
        &[RenderedFile {
            path: REPLAY.to_owned(),
            text,
        }],
    )?;
    Ok(case_text(left, failure, &directory, seed, case))
}

fn case_text(
    left: &ReplayCase,
    failure: &StageFailure,
    directory: &Path,
    seed: u64,
    case: u64,
) -> String {
    let mut out = String::new();
    let place = directory.display();
    let _ = writeln!(out, "FAILED case {case} of seed {seed}: {}", failure.stage);
    let _ = writeln!(out, "  {}", failure.detail);
    if let ReplayCase::Cluster(_, files) = left {
        for file in files {
            let _ = writeln!(out, "  --- {}", directory.join(&file.path).display());
            for line in file.text.lines().take(200) {
                let _ = writeln!(out, "  {line}");
            }
        }
        let flows = left.flows();
        let named = failure.flow.and_then(|index| flows.get(index));
        for flow in named.map_or(&flows[..], std::slice::from_ref) {
            let _ = writeln!(
                out,
                "  palisade explain -f {place} {}",
                explain_arguments(flow)
            );
        }
    }
    let _ = write!(out, "  differential --replay {place}");
    out
}

/// A flow as `palisade explain` takes it.
fn explain_arguments(flow: &Flow) -> String {
    let ends = format!("--from {} --to {}", flow.source, flow.destination);
    match flow.l4 {
        L4::Ports {
            source,
            destination,
        } => format!(
            "{ends} --port {destination}/{} --source-port {source}",
            flow.protocol
        ),
        L4::Icmp { kind, code } => {
            format!(
                "{ends} --protocol {} --icmp-type {kind}/{code}",
                flow.protocol
            )
        }
        L4::None => format!("{ends} --protocol {}", flow.protocol),
    }
}

fn create_directory(seed: u64, case: u64) -> io::Result<PathBuf> {
    for n in 0.. {
        let path = std::env::temp_dir().join(format!("palisade-case-{seed}-{case}-{n}"));
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A case that was left behind, with its seed and number.
///
/// # Errors
/// What the file system refuses, and files that this program did not write.
pub(crate) fn read_case(directory: &Path) -> io::Result<(ReplayCase, u64, u64)> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let note: Value = serde_json::from_slice(&std::fs::read(directory.join(REPLAY))?)?;
    let number = |key: &str| note[key].as_u64().ok_or_else(|| wrong(key));
    let (seed, case) = (number("seed")?, number("case")?);
    let flows: Vec<Flow> = serde_json::from_value(note["flows"].clone())?;
    if let Some(objects) = note.get("objects") {
        let objects: Vec<Object> = serde_json::from_value(objects.clone())?;
        let state = State {
            host_node: serde_json::from_value(note["hostNode"].clone())?,
            ..State::from_updates(objects.into_iter().map(Update::Upsert))
        };
        return Ok((ReplayCase::State(state, flows), seed, case));
    }
    let mut files = Vec::new();
    manifests(directory, directory, &mut files)?;
    let limits = Limits::default();
    let mut made = Vec::new();
    for file in &files {
        let read = extract_objects(parse(&file.path, file.text.as_bytes(), &limits), &limits);
        made.extend(read.objects.iter().map(|object| GeneratedObject {
            object: with_kind(object),
            features: Features::new(),
        }));
    }
    let trials = flows
        .iter()
        .map(|flow| ClusterTrial {
            flow: naive_flow(flow),
            features: Features::new(),
        })
        .collect();
    Ok((
        ReplayCase::Cluster(ClusterWorld { made, trials }, files),
        seed,
        case,
    ))
}

/// The object as its author meant it: an item of a typed list has the list's kind.
fn with_kind(object: &palisade_manifest::RawObject) -> Value {
    let mut value = to_json(&object.root);
    value["apiVersion"] = object.api_version.as_str().into();
    value["kind"] = object.kind.as_str().into();
    value
}

fn manifests(root: &Path, directory: &Path, into: &mut Vec<RenderedFile>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            manifests(root, &path, into)?;
        } else if path.file_name().is_some_and(|name| name != REPLAY) {
            let below = path.strip_prefix(root).unwrap_or(&path);
            into.push(RenderedFile {
                path: below.display().to_string(),
                text: std::fs::read_to_string(&path)?,
            });
        }
    }
    into.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

pub(crate) fn naive_flow(flow: &Flow) -> naive::NaiveFlow {
    let (ports, icmp) = match flow.l4 {
        L4::Ports {
            source,
            destination,
        } => (Some((source, destination)), None),
        L4::Icmp { kind, code } => (None, Some((kind, code))),
        L4::None => (None, None),
    };
    naive::NaiveFlow {
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol.0,
        ports,
        icmp,
        path: naive::NaivePath::default(),
        query: naive::NaiveQuery::default(),
    }
}

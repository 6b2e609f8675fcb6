//! `make conformance`: upstream's end-to-end specs of NetworkPolicy against Palisade in a real cluster, on one
//! node and on two; the results as a table in `docs/conformance.md`.
//!
//! Exit code 1 if a spec failed. However it ends, everything it created is removed.

mod table;

use palisade_testkit::cluster::{Cluster, Controllers, SpecOutcome, SpecResult};
use palisade_testkit::interrupt::Interrupt;
use palisade_testkit::runtimes::{RuntimeError, RuntimePrograms};
use std::path::PathBuf;
use std::process::ExitCode;
use table::ConformanceRun;

const HELP: &str = "\
usage: conformance --image FILE [--manifest FILE] [--nodes N]... [--focus REGEX] [--log FILE] [--table FILE]

  --image FILE     the image to install, as an archive
  --manifest FILE  what is applied; deploy/palisade.yaml where it is not said
  --nodes N        the number of nodes of a run; without, one run on one node and one on two
  --focus REGEX    only the specs whose names it finds
  --log FILE       where the suite prints; target/conformance.log where it is not said
  --table FILE     write the results there, as a page; never with --focus";

struct Arguments {
    image: PathBuf,
    manifest: PathBuf,
    nodes: Vec<usize>,
    focus: String,
    log: PathBuf,
    table: Option<PathBuf>,
}

fn main() -> ExitCode {
    let ended = match parse_arguments(std::env::args().skip(1)) {
        Ok(Some(arguments)) => run(&arguments),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("conformance: {problem}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("conformance: {failed} specs failed; they are named above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `None` if help is asked for.
fn parse_arguments(mut given: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut wanted = Arguments {
        image: PathBuf::new(),
        manifest: "deploy/palisade.yaml".into(),
        nodes: Vec::new(),
        focus: String::new(),
        log: "target/conformance.log".into(),
        table: None,
    };
    while let Some(name) = given.next() {
        if matches!(&*name, "--help" | "-h") {
            return Ok(None);
        }
        let value = given
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        match &*name {
            "--image" => wanted.image = value.into(),
            "--manifest" => wanted.manifest = value.into(),
            "--nodes" => {
                let number = value.parse().ok().filter(|number| (1..=9).contains(number));
                let wrong = || format!("--nodes: {value} is not a number from 1 to 9");
                wanted.nodes.push(number.ok_or_else(wrong)?);
            }
            "--focus" => wanted.focus = value,
            "--log" => wanted.log = value.into(),
            "--table" => wanted.table = Some(value.into()),
            _ => return Err(format!("{name} is not known")),
        }
    }
    if wanted.image.as_os_str().is_empty() {
        return Err("--image is needed".into());
    }
    if wanted.table.is_some() && !wanted.focus.is_empty() {
        return Err(
            "a table of some specs would say less than it seems to: --table and --focus".into(),
        );
    }
    if wanted.nodes.is_empty() {
        wanted.nodes = vec![1, 2];
    }
    Ok(Some(wanted))
}

/// Runs the suite as often as asked; the number of specs that failed.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let missing =
        "a part of a Kubernetes cluster cannot be had on this machine; the line above says which";
    let programs = RuntimePrograms::cluster().ok_or(missing)?;
    let interrupt =
        Interrupt::listen().map_err(|error| format!("listening for signals: {error}"))?;
    let mut runs = Vec::new();
    for nodes in &arguments.nodes {
        let run = run_once(arguments, &programs, *nodes, &interrupt);
        runs.push(run.map_err(|error| error.to_string())?);
    }
    let failed = runs.iter().map(|run| count_failed(&run.specs)).sum();
    if let Some(path) = &arguments.table {
        let page = table::page(&runs);
        palisade_sys::atomic_file::write_atomically(path, page.as_bytes())
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
        println!("written: {}", path.display());
    }
    Ok(failed)
}

/// Runs the suite on a cluster of so many nodes.
fn run_once(
    arguments: &Arguments,
    programs: &RuntimePrograms,
    nodes: usize,
    interrupt: &Interrupt,
) -> Result<ConformanceRun, RuntimeError> {
    println!("\na cluster of {nodes} with Palisade");
    let mut cluster = Cluster::start("conformance", programs, Controllers::All)?;
    for _ in 0..nodes {
        cluster.add_node()?;
    }
    cluster.import_image(&arguments.image)?;
    cluster.roll_out(&arguments.manifest, "palisade")?;
    cluster.wait_for_nodes()?;
    println!(
        "the suite; what it prints goes to {}",
        arguments.log.display()
    );
    let specs = cluster.run_specs(&arguments.focus, &arguments.log, Some(interrupt))?;
    for spec in &specs {
        let took = spec.took.as_secs_f64();
        match &spec.outcome {
            SpecOutcome::Passed => println!("   passed  {took:5.1} s  {}", spec.name),
            SpecOutcome::LeftOut => println!("   left out         {}", spec.name),
            SpecOutcome::Failed(why) => println!("   FAILED  {took:5.1} s  {}: {why}", spec.name),
        }
    }
    let failed = count_failed(&specs);
    let left_out = specs
        .iter()
        .filter(|spec| spec.outcome == SpecOutcome::LeftOut)
        .count();
    println!(
        "{nodes} nodes: {} passed, {failed} failed, {left_out} left out",
        specs.len() - failed - left_out
    );
    let node = cluster.kubectl().get(&["node", "node1"])?;
    Ok(ConformanceRun::new(
        nodes,
        specs,
        &node["status"]["nodeInfo"],
    ))
}

fn count_failed(specs: &[SpecResult]) -> usize {
    let failed = |spec: &&SpecResult| matches!(spec.outcome, SpecOutcome::Failed(_));
    specs.iter().filter(failed).count()
}

//! `make conformance`: upstream's own suites against Palisade in a real cluster, on one node and on two; the
//! results as tables in `docs/conformance.md` and a page for each suite in `docs/conformance`.
//!
//! Exit code 1 if a test failed. However it ends, everything it created is removed.

mod table;

use palisade_testkit::cluster::{Cluster, Controllers, PolicySuite, SpecOutcome, SpecResult};
use palisade_testkit::interrupt::Interrupt;
use palisade_testkit::runtimes::{RuntimeError, RuntimePrograms};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use table::ConformanceRun;

const HELP: &str = "\
usage: conformance --image FILE [--manifest FILE] [--nodes N]... [--suite NAME]... [--focus REGEX] [--log FILE]
                   [--table FILE]

  --image FILE     the image to install, as an archive
  --manifest FILE  what is applied; deploy/palisade.yaml where it is not said
  --nodes N        the number of nodes of a run; without, one run on one node and one on two
  --suite NAME     network-policy, cluster-network-policy or admin-network-policy; without, all of them; the last
                   two need two nodes and are left out where there is one
  --focus REGEX    only the tests whose names it finds
  --log FILE       where the suites print; target/conformance.log where it is not said
  --table FILE     write the results there, as a page, and those of each suite in a folder beside it; never with
                   --suite or --focus";

/// A suite of upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suite {
    /// Kubernetes' own specs of `NetworkPolicy`.
    NetworkPolicy,
    /// The conformance tests of the Network Policy API.
    Policies(PolicySuite),
}

impl Suite {
    const ALL: [(&str, Self); 3] = [
        ("network-policy", Self::NetworkPolicy),
        (
            "cluster-network-policy",
            Self::Policies(PolicySuite::ClusterNetworkPolicy),
        ),
        (
            "admin-network-policy",
            Self::Policies(PolicySuite::AdminNetworkPolicy),
        ),
    ];

    /// How many nodes it needs.
    fn nodes(self) -> usize {
        match self {
            Self::NetworkPolicy => 1,
            Self::Policies(_) => 2,
        }
    }
}

struct Arguments {
    image: PathBuf,
    manifest: PathBuf,
    nodes: Vec<usize>,
    suites: Vec<Suite>,
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
            eprintln!("conformance: {failed} tests failed; they are named above");
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
        suites: Vec::new(),
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
            "--suite" => {
                let known = Suite::ALL.iter().find(|(name, _)| *name == value);
                let (_, suite) = known.ok_or_else(|| format!("--suite: {value} is not known"))?;
                wanted.suites.push(*suite);
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
    if wanted.table.is_some() && !(wanted.focus.is_empty() && wanted.suites.is_empty()) {
        let problem = "a page of some tests would say less than it seems to: --table";
        return Err(format!("{problem}, and --suite or --focus"));
    }
    if wanted.nodes.is_empty() {
        wanted.nodes = vec![1, 2];
    }
    if wanted.suites.is_empty() {
        wanted.suites = Suite::ALL.map(|(_, suite)| suite).into();
    }
    Ok(Some(wanted))
}

/// Runs the suites as often as asked; the number of tests that failed.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let missing =
        "a part of a Kubernetes cluster cannot be had on this machine; the line above says which";
    let programs = RuntimePrograms::conformance().ok_or(missing)?;
    let interrupt =
        Interrupt::listen().map_err(|error| format!("listening for signals: {error}"))?;
    let mut runs = Vec::new();
    for nodes in &arguments.nodes {
        let run = run_once(arguments, &programs, *nodes, &interrupt);
        runs.push(run.map_err(|error| error.to_string())?);
    }
    let suites = runs.iter().flat_map(|run| &run.suites);
    let failed = suites.map(|(_, specs)| count_failed(specs)).sum();
    if let Some(path) = &arguments.table {
        write_pages(path, &runs)?;
    }
    Ok(failed)
}

/// Writes the page of all suites, and that of each into the folder of its name.
fn write_pages(path: &Path, runs: &[ConformanceRun]) -> Result<(), String> {
    let write = |path: &Path, page: String| {
        palisade_sys::atomic_file::write_atomically(path, page.as_bytes())
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
        println!("written: {}", path.display());
        Ok::<_, String>(())
    };
    let folder = path.with_extension("");
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    #[allow(
        clippy::disallowed_methods,
        reason = "a folder of pages in the repository"
    )]
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("creating {}: {error}", folder.display()))?;
    for (suite_name, suite) in Suite::ALL {
        if let Some(page) = table::suite_page(runs, suite) {
            write(&folder.join(format!("{suite_name}.md")), page)?;
        }
    }
    write(path, table::page(runs, &name))
}

/// Runs the suites on a cluster of so many nodes.
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
    // Agents ask for it again once a minute; they find it at their start.
    cluster.install_policy_api()?;
    cluster.import_image(&arguments.image)?;
    cluster.roll_out(&arguments.manifest, "palisade")?;
    cluster.wait_for_nodes()?;
    println!(
        "the suites; what they print goes to {}",
        arguments.log.display()
    );
    let mut suites = Vec::new();
    for suite in &arguments.suites {
        if nodes < suite.nodes() {
            println!("   {suite:?} needs {} nodes", suite.nodes());
            continue;
        }
        let (focus, log) = (&arguments.focus, &arguments.log);
        let specs = match suite {
            Suite::NetworkPolicy => cluster.run_specs(focus, log, Some(interrupt))?,
            Suite::Policies(suite) => {
                cluster.run_policy_suite(*suite, focus, log, Some(interrupt))?
            }
        };
        print_results(nodes, *suite, &specs);
        suites.push((*suite, specs));
    }
    let node = cluster.kubectl().get(&["node", "node1"])?;
    Ok(ConformanceRun::new(
        nodes,
        suites,
        &node["status"]["nodeInfo"],
    ))
}

fn print_results(nodes: usize, suite: Suite, specs: &[SpecResult]) {
    for spec in specs {
        let took = spec.took.as_secs_f64();
        match &spec.outcome {
            SpecOutcome::Passed => println!("   passed  {took:5.1} s  {}", spec.name),
            SpecOutcome::LeftOut => println!("   left out         {}", spec.name),
            SpecOutcome::Failed(why) => println!("   FAILED  {took:5.1} s  {}: {why}", spec.name),
        }
    }
    let failed = count_failed(specs);
    let left_out = specs
        .iter()
        .filter(|spec| spec.outcome == SpecOutcome::LeftOut)
        .count();
    println!(
        "{nodes} nodes, {suite:?}: {} passed, {failed} failed, {left_out} left out",
        specs.len() - failed - left_out
    );
}

fn count_failed(specs: &[SpecResult]) -> usize {
    let failed = |spec: &&SpecResult| matches!(spec.outcome, SpecOutcome::Failed(_));
    specs.iter().filter(failed).count()
}

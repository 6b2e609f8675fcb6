//! `bench`: the figures that the project holds itself to, as a table and as `target/bench.jsonl`.

mod agent;
mod case;
mod check;
mod children;
mod cluster;
mod datapath;
mod engine;
mod heap;
mod manifest;
mod names;
mod nft;
mod offline;
mod parsed_objects;
mod report;
mod states;
mod stopwatch;
mod tiers;
mod updates;

use case::BenchCase;
use children::Bounds;
use report::BenchReport;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
Measures, prints a table, and writes one JSON object a figure.

  bench [engine | datapath | all]    engine: what needs no root, offline/… as well

  --scale F      sizes of the big states, as a part of the whole (default 1)
  --limit S      seconds that one case may take, building its state included (default 120)
  --only NAME    one case, or all below that name (engine/start)
  --output FILE  where the objects go (default target/bench.jsonl)
  --case NAME    one case in this very process, its samples on standard output

Exit codes: 0 every figure is there and the oracle agrees, 1 not so, 2 usage.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match BenchArgs::parse(&arguments) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            eprintln!("bench: {reason}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let done = match &wanted.case {
        Some(case) => wanted.measure(case),
        None => wanted.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("bench: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
struct BenchArgs {
    engine: bool,
    datapath: bool,
    bounds: Bounds,
    only: String,
    output: PathBuf,
    case: Option<String>,
}

impl BenchArgs {
    fn parse(arguments: &[String]) -> Result<Option<BenchArgs>, String> {
        let mut wanted = BenchArgs {
            engine: true,
            datapath: true,
            bounds: Bounds {
                scale: 1.0,
                limit: Duration::from_secs(120),
            },
            only: String::new(),
            output: PathBuf::from("target/bench.jsonl"),
            case: None,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
            let positive = |text: &String| match text.parse::<f64>() {
                Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
                _ => Err(format!("{argument}: `{text}` is not a positive number")),
            };
            match argument.as_str() {
                "--help" | "-h" => return Ok(None),
                "all" => (wanted.engine, wanted.datapath) = (true, true),
                "engine" => (wanted.engine, wanted.datapath) = (true, false),
                "datapath" => (wanted.engine, wanted.datapath) = (false, true),
                "--scale" => wanted.bounds.scale = positive(value()?)?,
                "--limit" => {
                    wanted.bounds.limit = Duration::try_from_secs_f64(positive(value()?)?)
                        .map_err(|error| format!("{argument}: {error}"))?;
                }
                "--only" => wanted.only.clone_from(value()?),
                "--output" => wanted.output = value()?.into(),
                "--case" => wanted.case = Some(value()?.clone()),
                other => return Err(format!("unknown argument {other}")),
            }
        }
        Ok(Some(wanted))
    }

    fn wants(&self, case: &str) -> bool {
        let rest = case.strip_prefix(&self.only);
        self.only.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// One case, here.
    fn measure(&self, name: &str) -> Result<(), String> {
        let rootless = engine::cases().into_iter().chain(offline::cases());
        let case = rootless
            .chain(kernel_cases())
            .find(|case| case.name == name);
        let case = case.ok_or_else(|| format!("no case is called {name}"))?;
        let scale = self.bounds.scale;
        case.measure(scale, &mut |samples| {
            println!("{}", serde_json::Value::from(samples));
        })
        .map_err(|reason| format!("{name}: {reason}"))
    }

    /// Every case that is asked for, each in a process of its own.
    fn run(&self) -> Result<(), String> {
        let mut cases = Vec::new();
        if self.engine {
            cases.extend(engine::cases());
            cases.extend(offline::cases());
        }
        cases.retain(|case| self.wants(&case.name));
        let rootless = cases.len();
        if self.datapath {
            cases.extend(kernel_cases());
        }
        cases.retain(|case| self.wants(&case.name));
        if cases.is_empty() {
            return Err(format!(
                "no case is called {} or stands below it",
                self.only
            ));
        }
        let in_kernel = cases.len() > rootless;
        if in_kernel && !nix::unistd::geteuid().is_root() {
            return Err("NOTHING WAS MEASURED: the datapath's benches need root".to_owned());
        }
        if self.bounds.scale < 1.0 {
            println!(
                "at a scale of {}: not the figures to hold up",
                self.bounds.scale
            );
        }
        let mut report = BenchReport::begin();
        for case in &cases {
            children::measure(case, self.bounds, &mut report);
        }
        let written = report.write(&self.output);
        written.map_err(|error| format!("{}: {error}", self.output.display()))?;
        println!("written to {}", self.output.display());
        match report.problems() {
            short if short.is_empty() => Ok(()),
            short => Err(short.join("; ")),
        }
    }
}

/// The cases that need a kernel to try things on, and root.
fn kernel_cases() -> Vec<BenchCase> {
    let mut cases = nft::cases();
    cases.extend(datapath::cases());
    cases.extend(agent::cases());
    cases.extend(names::cases());
    cases.extend(cluster::cases());
    cases
}

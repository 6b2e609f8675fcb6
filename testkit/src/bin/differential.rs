//! `differential`: random worlds through every reading of policy, which must all agree.

use palisade_testkit::differential::{GeneratorKind, RunOptions, replay, run, run_kernel};
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Random worlds through every reading of policy there is, which must all agree.

  --cases N           cases to judge without a kernel (default 20000)
  --kernel-cases N    cases to judge with real packets as well, as root (default 0)
  --seed N            what the worlds are drawn from (default 1)
  --kubernetes-only   only worlds of Kubernetes objects
  --policy-api-only   only worlds with cluster-wide policies
  --cilium-only       only worlds with Cilium's policies
  --calico-only       only worlds with Calico's policies
  --lowered-only      only worlds of lowered policies
  --replay DIR        judge a case once more that was left behind in DIR
  --fault NAME        with a mistake switched on (builds with the feature `faults`)
  --faults            every mistake in turn: each must be found within 12,000 cases

Exit codes: 0 all agreed, 1 something did not, 2 usage.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match DifferentialArgs::parse(&arguments) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            eprintln!("differential: {reason}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    // Panics of what is tested are caught and told as failures.
    std::panic::set_hook(Box::new(|_| {}));
    if wanted.execute() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What the command line asks for.
struct DifferentialArgs {
    options: RunOptions,
    kernel_cases: u64,
    replay: Option<PathBuf>,
    every_fault: bool,
}

#[cfg(feature = "faults")]
fn switch_on(name: &str) -> Result<(), String> {
    use palisade_testkit::faults::InjectedFault;
    let fault = InjectedFault::parse(name).ok_or_else(|| {
        let names: Vec<String> = InjectedFault::all()
            .into_iter()
            .map(InjectedFault::name)
            .collect();
        format!("no mistake is called {name}: {}", names.join(" "))
    })?;
    fault.inject();
    Ok(())
}

#[cfg(not(feature = "faults"))]
fn switch_on(name: &str) -> Result<(), String> {
    Err(format!("{name}: {NO_FAULTS}"))
}

#[cfg(feature = "faults")]
fn hunt_all(options: &RunOptions) -> bool {
    use palisade_testkit::faults::{HuntPart, InjectedFault, find_all};
    let whole = HuntPart::WHOLE;
    let count = find_all(options.seed, options.only, whole, &mut |line| {
        println!("{line}")
    });
    println!("{count}");
    count.is_complete() && (options.only.is_some() || count.hunted == InjectedFault::all().len())
}

#[cfg(not(feature = "faults"))]
fn hunt_all(_: &RunOptions) -> bool {
    eprintln!("differential: --faults: {NO_FAULTS}");
    false
}

#[cfg(not(feature = "faults"))]
const NO_FAULTS: &str = "this build has no mistakes in it; build with --features faults";

impl DifferentialArgs {
    fn parse(arguments: &[String]) -> Result<Option<DifferentialArgs>, String> {
        let mut wanted = DifferentialArgs {
            options: RunOptions {
                cases: 20_000,
                seed: 1,
                only: None,
            },
            kernel_cases: 0,
            replay: None,
            every_fault: false,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
            let number = |text: &String| {
                text.parse::<u64>()
                    .map_err(|_| format!("{argument}: `{text}` is not a number"))
            };
            match argument.as_str() {
                "--help" | "-h" => return Ok(None),
                "--cases" => wanted.options.cases = number(value()?)?,
                "--kernel-cases" => wanted.kernel_cases = number(value()?)?,
                "--seed" => wanted.options.seed = number(value()?)?,
                "--kubernetes-only" => wanted.options.only = Some(GeneratorKind::Kubernetes),
                "--policy-api-only" => wanted.options.only = Some(GeneratorKind::PolicyApi),
                "--cilium-only" => wanted.options.only = Some(GeneratorKind::Cilium),
                "--calico-only" => wanted.options.only = Some(GeneratorKind::Calico),
                "--lowered-only" => wanted.options.only = Some(GeneratorKind::Lowered),
                "--fault" => switch_on(value()?)?,
                "--faults" => wanted.every_fault = true,
                "--replay" => wanted.replay = Some(PathBuf::from(value()?)),
                other => return Err(format!("unknown argument {other}")),
            }
        }
        Ok(Some(wanted))
    }

    /// Whether all went well.
    fn execute(&self) -> bool {
        if self.every_fault {
            return hunt_all(&self.options);
        }
        if let Some(directory) = &self.replay {
            return match replay(directory) {
                Ok(Ok(())) => {
                    println!("all agreed");
                    true
                }
                Ok(Err(failure)) => {
                    println!("FAILED: {}\n  {}", failure.stage, failure.detail);
                    false
                }
                Err(error) => {
                    eprintln!("differential: {}: {error}", directory.display());
                    false
                }
            };
        }
        let report = run(&self.options, &mut |line| println!("{line}"));
        for tally in &report.tallies {
            println!("{tally}");
        }
        for line in &report.shortcomings {
            println!("TOO LITTLE: {line}");
        }
        println!("{} passed, {} failed", report.passed, report.failed);
        let pure = report.failed == 0 && report.shortcomings.is_empty();
        pure && self.kernel()
    }

    /// Whether the kernel agrees; without root that is loudly not known.
    fn kernel(&self) -> bool {
        if self.kernel_cases == 0 {
            return true;
        }
        let only = self.options.only;
        let say = &mut |line: &str| println!("{line}");
        match run_kernel(self.kernel_cases, self.options.seed, only, say) {
            Ok(report) => {
                let share = report.arrived as f64 * 100.0 / report.passed.max(1) as f64;
                println!(
                    "kernel: {} passed, {} failed; {share:.1} % of the packets arrived; \
                     {} sent between deltas, {} answered, {} between a pod and its node, {} at a host endpoint, \
                     {} of these translated; with a fast path {} passed, {} of them arrived from pod to pod, {} of these by it, and {} by it between a pod and another host",
                    report.passed,
                    report.failed,
                    report.between,
                    report.replies,
                    report.with_node,
                    report.at_host,
                    report.translated,
                    report.fast.passed,
                    report.fast.between_pods,
                    report.fast.delivered,
                    report.fast.delivered_outside
                );
                report.failed == 0
            }
            Err(error) => {
                eprintln!("differential: real packets: {error}");
                false
            }
        }
    }
}

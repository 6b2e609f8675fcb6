//! `faults`: every named mistake, switched on, must make the differential fail.
//!
//! A mistake is on for a whole process, so several jobs are several processes: each hunts a part.

use palisade_testkit::faults::{HuntCount, HuntPart, InjectedFault, find_all};
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

/// What the command line asks for.
struct HuntArgs {
    seed: u64,
    jobs: usize,
    part: Option<HuntPart>,
}

impl HuntArgs {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<HuntArgs> {
        let mut parsed = HuntArgs {
            seed: 1,
            jobs: 1,
            part: None,
        };
        while let Some(flag) = arguments.next() {
            let value = arguments.next()?;
            match &*flag {
                "--seed" => parsed.seed = value.parse().ok()?,
                "--jobs" => parsed.jobs = value.parse().ok().filter(|jobs| *jobs > 0)?,
                "--part" => {
                    let (index, of) = value.split_once('/')?;
                    parsed.part = Some(HuntPart {
                        index: index.parse().ok()?,
                        of: of.parse().ok()?,
                    });
                }
                _ => return None,
            }
        }
        Some(parsed)
    }
}

fn main() -> ExitCode {
    let Some(arguments) = HuntArgs::parse(std::env::args().skip(1)) else {
        eprintln!("usage: faults [--seed N] [--jobs N] [--part INDEX/OF]");
        return ExitCode::from(2);
    };
    let is_complete = match arguments.part {
        Some(part) => hunt(arguments.seed, part).is_complete(),
        None if arguments.jobs == 1 => {
            let count = hunt(arguments.seed, HuntPart::WHOLE);
            println!("{count}");
            count.is_complete() && count.hunted == InjectedFault::all().len()
        }
        None => match hunt_in_processes(&arguments) {
            Ok(is_complete) => is_complete,
            Err(error) => {
                eprintln!("faults: the parts of the hunt: {error}");
                false
            }
        },
    };
    if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn hunt(seed: u64, part: HuntPart) -> HuntCount {
    // Panics of what is tested are caught and told as failures.
    std::panic::set_hook(Box::new(|_| {}));
    find_all(seed, None, part, &mut |line| println!("{line}"))
}

/// Hunts in as many processes as there are jobs. What each says is shown as it comes, and counted.
#[allow(
    clippy::disallowed_methods,
    reason = "a program of the tests, which starts itself"
)]
fn hunt_in_processes(arguments: &HuntArgs) -> io::Result<bool> {
    let program = std::env::current_exe()?;
    let start = |index: usize| -> io::Result<Child> {
        let part = format!("{index}/{}", arguments.jobs);
        let seed = arguments.seed.to_string();
        Command::new(&program)
            .args(["--seed", &seed, "--part", &part])
            .stdout(Stdio::piped())
            .spawn()
    };
    let mut parts = (0..arguments.jobs)
        .map(start)
        .collect::<io::Result<Vec<_>>>()?;
    let mut count = HuntCount::default();
    let counts = std::thread::scope(|scope| {
        let readers: Vec<_> = parts
            .iter_mut()
            .filter_map(|part| part.stdout.take())
            .map(|output| scope.spawn(move || show_and_count(BufReader::new(output))))
            .collect();
        let joined = readers.into_iter().map(|reader| reader.join());
        joined.map(Result::unwrap_or_default).collect::<Vec<_>>()
    });
    for part in counts {
        count.hunted += part.hunted;
        count.found += part.found;
    }
    for mut part in parts {
        count.is_unsound |= !part.wait()?.success();
    }
    println!("{count}");
    Ok(count.is_complete() && count.hunted == InjectedFault::all().len())
}

fn show_and_count(lines: impl BufRead) -> HuntCount {
    let mut count = HuntCount::default();
    for line in lines.lines().map_while(Result::ok) {
        println!("{line}");
        let is_found = line.contains(" found at case ");
        count.found += usize::from(is_found);
        count.hunted += usize::from(is_found || line.contains(" NOT FOUND in "));
    }
    count
}

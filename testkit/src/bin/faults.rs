//! `faults`: every named mistake, switched on, must make the differential fail.

use palisade_testkit::faults::find_all;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Some(1),
        ["--seed", seed] => seed.parse().ok(),
        _ => None,
    };
    let Some(seed) = seed else {
        eprintln!("usage: faults [--seed N]");
        return ExitCode::from(2);
    };
    // Panics of what is tested are caught and told as failures.
    std::panic::set_hook(Box::new(|_| {}));
    if find_all(seed, None, &mut |line| println!("{line}")) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

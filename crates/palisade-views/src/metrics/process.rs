//! Metrics of this process, from `/proc`.

use super::exposition::Exposition;
use super::table::{PROCESS_CPU, PROCESS_FDS, PROCESS_RSS, PROCESS_THREADS};

/// Clock ticks per second in `/proc`, independent of the kernel's configuration.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds the metrics that can be read; the others are omitted.
pub(crate) fn collect(out: &mut Exposition) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    if let Some(kilobytes) = field("VmRSS") {
        out.add_sample(&PROCESS_RSS, &[], kilobytes * 1024.0);
    }
    if let Some(threads) = field("Threads") {
        out.add_sample(&PROCESS_THREADS, &[], threads);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program name may contain any character; after its closing parenthesis all fields are numbers.
    // User and system time are fields 14 and 15. Source: proc_pid_stat(5).
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: Vec<f64> = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse().ok())
        .collect();
    if ticks.len() == 2 {
        out.add_sample(
            &PROCESS_CPU,
            &[],
            ticks.iter().sum::<f64>() / TICKS_PER_SECOND,
        );
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the descriptor that reads the directory.
        out.add_sample(&PROCESS_FDS, &[], open.count().saturating_sub(1) as f64);
    }
}

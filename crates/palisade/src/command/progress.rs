//! Progress of reading files, on a terminal.
//!
//! Shows nothing within the first second, or if standard error is not a terminal, and updates at most ten
//! times a second.

use palisade_source::LoadProgress;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time from the start of a file to the first progress line.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Minimum time between two updates.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Displays the progress of reading one file after another.
pub(crate) struct ProgressMeter<W> {
    out: Option<W>,
    clock: fn() -> Instant,
    began: Instant,
    shown: Option<Instant>,
    last: u64,
}

#[allow(clippy::disallowed_methods, reason = "the command's clock")]
fn now() -> Instant {
    Instant::now()
}

impl ProgressMeter<std::io::Stderr> {
    /// A meter on standard error, if that is a terminal.
    pub(crate) fn on_terminal() -> Self {
        let stderr = std::io::stderr();
        ProgressMeter::new(stderr.is_terminal().then_some(stderr), now)
    }
}

impl<W: Write> ProgressMeter<W> {
    fn new(out: Option<W>, clock: fn() -> Instant) -> Self {
        ProgressMeter {
            out,
            clock,
            began: clock(),
            shown: None,
            last: 0,
        }
    }

    /// Updates the display.
    pub(crate) fn update(&mut self, progress: LoadProgress<'_>) {
        let Some(out) = &mut self.out else { return };
        let now = (self.clock)();
        if progress.read < self.last {
            self.began = now;
        }
        self.last = progress.read;
        let since = now.duration_since(self.began);
        let due = self
            .shown
            .is_none_or(|shown| now.duration_since(shown) >= REDRAW_INTERVAL);
        if since < INITIAL_DELAY || !due {
            return;
        }
        self.shown = Some(now);
        // A progress line may be lost.
        let _ = write!(out, "\r\x1b[K{}", progress_line(progress, since));
        let _ = out.flush();
    }

    /// Clears the progress line.
    pub(crate) fn clear(&mut self) {
        if let (Some(out), Some(_)) = (&mut self.out, self.shown.take()) {
            let _ = write!(out, "\r\x1b[K");
            let _ = out.flush();
        }
    }
}

fn progress_line(progress: LoadProgress<'_>, since: Duration) -> String {
    const MEGABYTE: u64 = 1_000_000;
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = progress.read.saturating_mul(1_000) / millis / MEGABYTE;
    let read = progress.read / MEGABYTE;
    let size = progress
        .size
        .map_or(String::new(), |size| format!(" of {}", size / MEGABYTE));
    let name = progress.file.display().to_string();
    let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    format!("reading {name}: {read}{size} MB, {rate} MB/s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::path::Path;

    thread_local! {
        static MILLIS: Cell<u64> = const { Cell::new(0) };
        static START: Instant = now();
    }

    fn clock() -> Instant {
        START.with(|start| *start) + Duration::from_millis(MILLIS.get())
    }

    fn shown(out: Option<Vec<u8>>) -> String {
        MILLIS.set(0);
        let mut meter = ProgressMeter::new(out, clock);
        for step in 1..=30 {
            MILLIS.set(step * 50);
            meter.update(LoadProgress {
                file: Path::new("pods\u{1b}.json"),
                read: step * 10_000_000,
                size: Some(500_000_000),
            });
        }
        meter.clear();
        String::from_utf8(meter.out.unwrap_or_default()).unwrap()
    }

    #[test]
    fn a_line_after_a_second_and_ten_a_second_and_none_is_left() {
        let shown = shown(Some(Vec::new()));
        let lines: Vec<&str> = shown.split("\r\x1b[K").collect();
        assert_eq!(lines.len(), 8, "{lines:?}");
        assert_eq!(lines[1], "reading pods.json: 200 of 500 MB, 200 MB/s");
        assert_eq!(lines[7], "");
    }

    #[test]
    fn nothing_without_a_terminal() {
        assert_eq!(shown(None), "");
    }
}

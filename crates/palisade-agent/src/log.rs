//! The log: one line per event on standard error, as text or JSON.
//!
//! Promises: both formats have the same fields (`time` in UTC, `level`, `component`, `message`, then
//! the event's own fields); an event is always one line, whatever it contains; a repeated message is
//! written at most twenty times per minute, and the number of suppressed repetitions is logged. Level
//! and format can change while the agent runs. It never drops an event without counting it, and never
//! writes anywhere else.

mod line;
mod rate_limit;

use line::{LogFields, LogLine};
use palisade_node::clock::Clock;
use rate_limit::{LogDecision, LogLimiter, LogMessage};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Level, Metadata};

/// The output of log lines.
pub type LogSink = Box<dyn Fn(&str) + Send + Sync>;

/// Why the log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The process already has a log.
    #[error("starting the log: this process has one already")]
    AlreadyStarted,
    /// The thread that reports suppressed messages could not be started.
    #[error("starting the log's thread")]
    Thread(#[source] std::io::Error),
}

/// The running log; clones share their state.
#[derive(Clone)]
pub struct Log(Arc<LogState>);

struct LogState {
    /// In the order of [`verbosity`].
    level: AtomicU8,
    json: AtomicBool,
    clock: Box<dyn Clock>,
    sink: LogSink,
    limiter: Mutex<LogLimiter>,
    /// Wakes the thread that reports suppressed messages; `None` in tests, which flush explicitly.
    reporter_wake: Option<Sender<()>>,
}

impl Log {
    /// Starts the log of this process on standard error.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn start(level: &str, json: bool, clock: impl Clock + 'static) -> Result<Log, LogError> {
        let (wake, woken) = channel();
        let log = Log::with_sink(level, json, clock, Box::new(write_to_stderr), Some(wake));
        let reporter = log.clone();
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || reporter.run_reporter(&woken))
            .map_err(LogError::Thread)?;
        tracing::subscriber::set_global_default(log.clone())
            .map_err(|_| LogError::AlreadyStarted)?;
        Ok(log)
    }

    fn with_sink(
        level: &str,
        json: bool,
        clock: impl Clock + 'static,
        sink: LogSink,
        wake: Option<Sender<()>>,
    ) -> Log {
        let log = Log(Arc::new(LogState {
            level: AtomicU8::new(0),
            json: AtomicBool::new(json),
            clock: Box::new(clock),
            sink,
            limiter: Mutex::default(),
            reporter_wake: wake,
        }));
        log.configure(level, json);
        log
    }

    /// Sets the level (`error` to `trace`; an unknown one means `info`) and the format.
    pub fn configure(&self, level: &str, json: bool) {
        let level = level.parse().unwrap_or(LevelFilter::INFO);
        self.0.level.store(verbosity(level), Ordering::Relaxed);
        self.0.json.store(json, Ordering::Relaxed);
    }

    /// Writes the counts of suppressed messages, for example at shutdown.
    pub fn flush(&self) {
        let counts = self.with_limiter(|limiter| limiter.take_all());
        self.write_counts(counts);
    }

    fn with_limiter<T>(&self, work: impl FnOnce(&mut LogLimiter) -> T) -> T {
        // Only counters are inside, which are consistent at any time, so a poisoned lock is usable.
        let mut limiter = self
            .0
            .limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        work(&mut limiter)
    }

    /// Reports suppressed messages at the end of their windows. Runs until the process ends.
    fn run_reporter(&self, woken: &Receiver<()>) {
        loop {
            let window_end = self.with_limiter(|limiter| limiter.next_window_end());
            let now = self.0.clock.monotonic();
            let woken = match window_end {
                None => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(end) => woken.recv_timeout(end.saturating_duration_since(now)),
            };
            match woken {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.write_ended_counts(),
            }
        }
    }

    fn write_ended_counts(&self) {
        let now = self.0.clock.monotonic();
        let counts = self.with_limiter(|limiter| limiter.take_ended(now));
        self.write_counts(counts);
    }

    fn write_counts(&self, counts: Vec<(LogMessage, u64)>) {
        for (message, count) in counts {
            self.write_count(&message, count);
        }
    }

    /// Writes a message with the number of its suppressed repetitions.
    fn write_count(&self, message: &LogMessage, count: u64) {
        let mut fields = LogFields::with_message(message.text.clone());
        fields.add_number("suppressed", count);
        self.write(message.level, message.component, &fields);
    }

    fn write(&self, level: Level, component: &str, fields: &LogFields) {
        let line = LogLine {
            time: self.0.clock.wall(),
            level,
            component,
            fields,
        };
        let text = if self.0.json.load(Ordering::Relaxed) {
            line.json()
        } else {
            line.text()
        };
        (self.0.sink)(&text);
    }
}

impl Subscriber for Log {
    /// Evaluated for each event, since the level may change.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    /// Other crates are limited to warnings; kube reports each failed request, which its caller does too.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = self.0.level.load(Ordering::Relaxed);
        let most = match metadata.target().starts_with("palisade") {
            true => most,
            false if metadata.target().starts_with("kube_client") => return false,
            false => most.min(verbosity(LevelFilter::WARN)),
        };
        metadata.is_event() && verbosity(LevelFilter::from_level(*metadata.level())) <= most
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let (level, component) = (
            *event.metadata().level(),
            component(event.metadata().target()),
        );
        // Debug and trace messages are not rate-limited.
        if level > Level::INFO {
            return self.write(level, component, &fields);
        }
        let message = LogMessage {
            level,
            component,
            text: fields.message().to_owned(),
        };
        let now = self.0.clock.monotonic();
        match self.with_limiter(|limiter| limiter.admit(&message, now)) {
            LogDecision::Write {
                suppressed: left_out,
            } => {
                if left_out > 0 {
                    self.write_count(&message, left_out);
                }
                self.write(level, component, &fields);
            }
            LogDecision::Suppress { first } => {
                if let (true, Some(wake)) = (first, &self.0.reporter_wake) {
                    // Without the thread, the next event of this message reports the count.
                    let _ = wake.send(());
                }
            }
        }
    }

    // Spans are not used here, and those of other crates are ignored.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Greater is more verbose.
fn verbosity(level: LevelFilter) -> u8 {
    match level {
        LevelFilter::OFF => 0,
        LevelFilter::ERROR => 1,
        LevelFilter::WARN => 2,
        LevelFilter::INFO => 3,
        LevelFilter::DEBUG => 4,
        _ => 5,
    }
}

/// The crates whose modules are components of their own, as they are parts of the agent.
const AGENT_CRATES: [&str; 5] = ["agent", "enforcer", "network", "node", "workloads"];

/// The component of a log line: a module of the agent, or a crate.
fn component(target: &'static str) -> &'static str {
    let mut parts = target.split("::");
    let (package, module) = (parts.next().unwrap_or(target), parts.next());
    match package.strip_prefix("palisade_") {
        Some(name) if AGENT_CRATES.contains(&name) => module.unwrap_or(name),
        Some(name) => name,
        None => package,
    }
}

fn write_to_stderr(line: &str) {
    use std::io::Write;
    // If standard error fails, there is no other place to report it.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A clock that tests advance.
    struct ManualClock {
        zero: Instant,
        passed: Arc<Mutex<Duration>>,
    }

    impl Clock for ManualClock {
        fn wall(&self) -> Duration {
            Duration::from_secs(1_795_246_325) + *self.passed.lock().unwrap()
        }
        fn monotonic(&self) -> Instant {
            self.zero + *self.passed.lock().unwrap()
        }
    }

    struct LogFixture {
        log: Log,
        lines: Arc<Mutex<Vec<String>>>,
        passed: Arc<Mutex<Duration>>,
    }

    fn log_fixture(level: &str, json: bool) -> LogFixture {
        let (lines, passed) = (Arc::new(Mutex::new(Vec::new())), Arc::default());
        let to = Arc::clone(&lines);
        let clock = ManualClock {
            zero: palisade_node::clock::SystemClock.monotonic(),
            passed: Arc::clone(&passed),
        };
        let sink = Box::new(move |line: &str| to.lock().unwrap().push(line.to_owned()));
        let log = Log::with_sink(level, json, clock, sink, None);
        LogFixture { log, lines, passed }
    }

    impl LogFixture {
        fn lines(&self, work: impl FnOnce()) -> Vec<String> {
            tracing::subscriber::with_default(self.log.clone(), work);
            std::mem::take(&mut *self.lines.lock().unwrap())
        }
    }

    #[test]
    fn lines_have_the_same_names_in_both_forms() {
        let speak = || {
            let error = "no such\n\"file\"";
            tracing::warn!(%error, retry_ms = 5_u64, again = true, object = None::<&str>, "reading {}", "x");
            tracing::info!("ready");
        };
        let text = log_fixture("info", false).lines(speak);
        assert_eq!(
            text,
            [
                "2026-11-21T07:32:05.000000Z WARN log: reading x error=\"no such\\n\\\"file\\\"\" retry_ms=5 again=true\n",
                "2026-11-21T07:32:05.000000Z INFO log: ready\n",
            ]
        );
        let json = log_fixture("info", true).lines(speak);
        assert_eq!(
            json,
            [
                "{\"time\":\"2026-11-21T07:32:05.000000Z\",\"level\":\"warn\",\"component\":\"log\",\"message\":\"reading x\",\
                 \"fields\":{\"error\":\"no such\\n\\\"file\\\"\",\"retry_ms\":5,\"again\":true}}\n",
                "{\"time\":\"2026-11-21T07:32:05.000000Z\",\"level\":\"info\",\"component\":\"log\",\"message\":\"ready\",\"fields\":{}}\n",
            ]
        );
    }

    #[test]
    fn one_event_is_one_line_whatever_is_in_it() {
        let speak = || {
            let object = "x\u{7f}\u{9b}31m\u{202e}";
            tracing::info!(object, "a\nb\u{1b}[0m\tc\u{85}\u{2028}");
        };
        let lines = log_fixture("info", false).lines(speak);
        assert_eq!(
            lines,
            [
                "2026-11-21T07:32:05.000000Z INFO log: a\\nb\\u{1b}[0m\\tc\\u{85}\\u{2028} \
                 object=\"x\\u007f\\u009b31m\\u202e\"\n"
            ]
        );
        let lines = log_fixture("info", true).lines(speak);
        assert_eq!(
            lines,
            [
                "{\"time\":\"2026-11-21T07:32:05.000000Z\",\"level\":\"info\",\"component\":\"log\",\
                 \"message\":\"a\\nb\\u001b[0m\\tc\\u0085\\u2028\",\
                 \"fields\":{\"object\":\"x\\u007f\\u009b31m\\u202e\"}}\n"
            ]
        );
    }

    #[test]
    fn the_level_counts_and_can_change_and_strangers_only_warn() {
        let bench = log_fixture("info", false);
        let speak = || {
            tracing::debug!("fine");
            tracing::info!(target: "hyper::server", "strange");
            tracing::warn!(target: "hyper::server", "warned");
        };
        assert_eq!(bench.lines(speak).len(), 1);
        bench.log.configure("debug", false);
        let lines = bench.lines(speak);
        assert!(
            lines[0].ends_with("DEBUG log: fine\n") && lines[1].ends_with("WARN hyper: warned\n")
        );
        assert_eq!(lines.len(), 2);
        bench.log.configure("error", false);
        assert_eq!(bench.lines(speak).len(), 0);
    }

    #[test]
    fn repeats_are_counted_and_the_count_is_told() {
        let bench = log_fixture("debug", false);
        let many = rate_limit::MAX_PER_WINDOW as u64 + 5;
        let speak = || {
            for n in 0..many {
                tracing::warn!(n, "again");
            }
            tracing::warn!("another");
        };
        let lines = bench.lines(speak);
        assert_eq!(
            lines.len(),
            rate_limit::MAX_PER_WINDOW as usize + 1,
            "others are not held up"
        );
        bench.log.write_ended_counts();
        assert_eq!(
            bench.lines(|| {}),
            Vec::<String>::new(),
            "the window has not ended"
        );
        *bench.passed.lock().unwrap() += rate_limit::WINDOW;
        bench.log.write_ended_counts();
        let lines = bench.lines(|| {});
        assert_eq!(
            lines,
            ["2026-11-21T07:33:05.000000Z WARN log: again suppressed=5\n"]
        );
        // A new window; messages suppressed at the end of the last one are reported there.
        assert_eq!(
            bench.lines(speak).len(),
            rate_limit::MAX_PER_WINDOW as usize + 1
        );
        bench.log.flush();
        let lines = bench.lines(|| {});
        assert!(
            lines[0].ends_with("again suppressed=5\n") && lines.len() == 1,
            "{lines:?}"
        );
        // The next event of the same message reports them too.
        assert_eq!(
            bench.lines(speak).len(),
            rate_limit::MAX_PER_WINDOW as usize + 1
        );
        *bench.passed.lock().unwrap() += rate_limit::WINDOW;
        let lines = bench.lines(|| tracing::warn!(n = 1, "again"));
        assert!(lines[0].ends_with("suppressed=5\n") && lines[1].ends_with("again n=1\n"));
        // Debug messages are never suppressed.
        let all = bench.lines(|| (0..many).for_each(|_| tracing::debug!("fine")));
        assert_eq!(all.len() as u64, many);
    }

    #[test]
    fn components_are_modules_of_the_agent_or_crates() {
        let all = [
            ("palisade_monitor::packet_queue", "monitor"),
            ("palisade_workloads::workloads::host", "workloads"),
            ("palisade_enforcer::counts", "counts"),
            ("palisade_agent", "agent"),
            ("palisade_agent::core", "core"),
            ("palisade_source::memory", "source"),
            ("palisade::command", "palisade"),
            ("hyper::proto", "hyper"),
        ];
        for (target, name) in all {
            assert_eq!(component(target), name);
        }
    }
}

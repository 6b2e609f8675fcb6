//! Chromium without a window, driven by its debugging pipe: requests are written to its descriptor 3, answers and events
//! are read from its descriptor 4, each as JSON that ends with a zero byte. It ends with the value that stands for it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use palisade_testkit::ring::report_skip;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// One browser at a time: two of them take longer than one after the other.
static TURN: Mutex<()> = Mutex::new(());

const PATIENCE: Duration = Duration::from_secs(20);

/// A running browser.
pub(crate) struct Chromium {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
    events: VecDeque<Value>,
    last_id: u64,
    profile: TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium-headless-shell", "chromium"];
    let folders = std::env::split_paths(&path);
    let candidates = folders.flat_map(|folder| names.map(|name| folder.join(name)));
    candidates.into_iter().find(|file| file.is_file())
}

impl Chromium {
    /// A browser, where one is installed; else the test is reported as skipped.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = program() else {
            report_skip("needs chromium-headless-shell (`scripts/setup --test` installs it)");
            return None;
        };
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = tempfile::tempdir().unwrap();
        // The shell gives it the descriptors, and becomes it.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            ])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-default-apps",
                "--disable-extensions",
                "--no-first-run",
                "--force-device-scale-factor=1",
                "--hide-scrollbars",
                // Nothing but this machine has a name.
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while reader.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                bytes.pop();
                let Ok(message) = serde_json::from_slice(&bytes) else {
                    break;
                };
                bytes.clear();
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        Some(Chromium {
            child,
            input,
            output,
            events: VecDeque::new(),
            last_id: 0,
            profile,
            _turn: turn,
        })
    }

    /// Sends a request and returns its result.
    pub(crate) fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        let result = self.try_call(session, method, parameters);
        result.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a request and returns its result or its error; events that come meanwhile are kept.
    pub(crate) fn try_call(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<Value, Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut request = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            request["sessionId"] = json!(session);
        }
        write!(self.input, "{request}\0").unwrap();
        self.input.flush().unwrap();
        loop {
            let answer = self.output.recv_timeout(PATIENCE);
            let answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == id {
                let error = &answer["error"];
                return if error.is_null() {
                    Ok(answer["result"].clone())
                } else {
                    Err(error.clone())
                };
            }
            if answer["method"].is_string() {
                self.events.push_back(answer);
            }
        }
    }

    /// Every event so far.
    pub(crate) fn events(&mut self) -> impl Iterator<Item = &Value> {
        while let Ok(event) = self.output.try_recv() {
            self.events.push_back(event);
        }
        self.events.iter()
    }

    /// Ends the browser and checks that nothing of it is left.
    pub(crate) fn end(self) {
        let (group, folder) = (self.group(), self.profile.path().to_owned());
        assert_ne!(processes_of(&folder), [""; 0], "it runs, and is found");
        drop(self);
        assert_eq!(processes_of(&folder), [""; 0], "processes of group {group}");
        assert!(!folder.exists());
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // The group has only what this started.
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
        let start = Instant::now();
        while !processes_of(self.profile.path()).is_empty() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The command lines of processes that name a folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap();
    let lines =
        processes.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&folder))
        .collect()
}

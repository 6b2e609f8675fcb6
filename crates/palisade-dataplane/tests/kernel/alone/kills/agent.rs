//! A process that runs the driver, and dies.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use palisade_dataplane::{Dataplane as _, PolicyDriver as _};
use palisade_model::{Direction, Prefix};
use palisade_sys::netns::NetNs;
use palisade_tables::{ClassId, IdentityId, Point, PolicySet, PolicySetId, Tables};
use palisade_testkit::CountedDriver;
use palisade_testkit::need_root;
use palisade_testkit::test_driver::{open_fast_path, open_nftables};

use super::THIRD;
use crate::alone::traffic::{ALWAYS, CLOSED_PORT, OPEN, TURNING};
use crate::flows::fast::{CLOSED, config};
use crate::flows::place::{A, Allowed, B, Place, tables};

/// The variable that has the mode and the first policy of such a process.
const ORDER: &str = "PALISADE_KILLED_AGENT";
/// What it writes begins so.
const MARK: &str = "agent: ";
/// How long it may take on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an agent enforces with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Fast,
    Nftables,
}

/// What an agent that does something came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Line(String),
    Died,
}

/// A process with a driver, until dropped.
pub(super) struct Agent {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Agent {
    /// Starts one in the host's namespace. It may die where it comes to a point so often.
    pub(super) fn start(place: &Place, mode: Mode, policy: u64, target: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("alone::kills::agent::an_agent_that_may_die")
            .env(ORDER, format!("{mode:?} {policy}"))
            .env("PALISADE_KILL", target.unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // A child process starts in the namespace of the thread that spawns it.
        let lab = &place.lab;
        let mut child = lab
            .run_in(lab.host(), move || command.spawn().unwrap())
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(MARK) {
                    // Nobody may wait for it any more.
                    let _ = sender.send(line.to_owned());
                }
            }
        });
        Agent {
            child,
            input,
            lines,
        }
    }

    /// Waits until it has done what it was told.
    pub(super) fn wait(&mut self) -> Answer {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Answer::Line(line),
            Err(Disconnected) => Answer::Died,
            Err(Timeout) => panic!("an agent hangs"),
        }
    }

    /// Tells it to do something.
    pub(super) fn send(&mut self, order: &str) {
        // It may have died.
        let _ = writeln!(self.input, "{order}");
    }

    /// Has it enforce another policy.
    pub(super) fn change(&mut self, policy: u64) -> Answer {
        self.send(&format!("policy {policy}"));
        self.wait()
    }

    /// Has it do something, of which it does not die.
    pub(super) fn ask(&mut self, order: &str) -> String {
        self.send(&format!("{order} now"));
        match self.wait() {
            Answer::Line(line) => line,
            Answer::Died => panic!("{order}: the agent has died"),
        }
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It has died by its point, and not otherwise.
    pub(super) fn expect_killed(mut self, target: &str) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{target}: {status}");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tables of a policy: what is allowed always, more of other ports, and a third pod or none.
fn policy(number: u64) -> Tables {
    let more: [&[Allowed]; 4] = [
        &[],
        &[(A, B, 17, Some(TURNING)), (B, A, 6, Some(90))],
        &[(A, B, 6, Some(85)), (A, B, 6, Some(86))],
        &[(A, B, 17, Some(TURNING)), (B, A, 17, Some(90))],
    ];
    assert!(![OPEN, TURNING, 53, 80, 85, 86, 90].contains(&CLOSED_PORT));
    let more = more[(number % 4) as usize];
    let allowed: Vec<Allowed> = ALWAYS.iter().chain(more).copied().collect();
    let mut tables = tables(&CLOSED, &allowed);
    if number / 2 % 2 == 1 {
        add_third_pod(&mut tables);
    }
    tables
}

/// A pod that nothing may be sent to, and that may send nothing.
fn add_third_pod(tables: &mut Tables) {
    let (interface, addresses) = THIRD;
    tables.interfaces.insert(interface.into());
    for direction in Direction::BOTH {
        let set = PolicySetId(90 + direction as u32);
        let default = ClassId(2);
        tables.sets.insert(set, PolicySet { default });
        for address in addresses {
            let address = address.parse().unwrap();
            let point = Point::of_workload(interface.into(), address, direction);
            tables.points.insert(point, set);
            tables
                .addresses
                .insert(Prefix::host(address), IdentityId(90));
        }
    }
}

/// The other process: it does what the lines of its input say, and nothing if it was not started as an agent.
#[test]
fn an_agent_that_may_die() {
    if !need_root() {
        return;
    }
    let Some(order) = std::env::var(ORDER).ok() else {
        return;
    };
    let answer = |text: &str| println!("\n{MARK}{text}");
    let (mode, first) = order.split_once(' ').unwrap();
    let netns = NetNs::current().unwrap();
    let is_fast = mode == "Fast";
    let mut driver: CountedDriver = if is_fast {
        open_fast_path(config(), &netns).unwrap().into()
    } else {
        open_nftables(config(), &netns).unwrap().into()
    };
    driver.resync(&policy(first.parse().unwrap())).unwrap();
    assert_eq!(driver.is_fast(), is_fast, "{:?}", driver.conditions());
    answer("ready");
    for line in std::io::stdin().lines() {
        match line.unwrap().split_once(' ').unwrap_or(("", "")) {
            ("policy", number) => {
                driver.resync(&policy(number.parse().unwrap())).unwrap();
                assert_eq!(driver.is_fast(), is_fast, "{:?}", driver.conditions());
                answer("done");
            }
            ("check", _) => {
                let conditions = driver.conditions();
                let checked = driver.fast_path_reader().map(|reader| reader.check());
                match checked.transpose().unwrap() {
                    Some(check) if !check.differences.is_empty() => {
                        answer(&format!("{:?}", check.differences));
                    }
                    _ if !conditions.is_empty() => answer(&format!("{conditions:?}")),
                    _ => answer("equal"),
                }
            }
            ("remove", _) => {
                driver.remove().unwrap();
                answer("done");
            }
            other => panic!("{other:?}"),
        }
    }
}

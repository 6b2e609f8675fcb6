//! `palisade demo`: policy being enforced between real workloads, and the proof of each step.
//!
//! A small shop in network namespaces of its own: its host, its pods and an outside address. The agent
//! is this executable, run as a user would run it; everything shown is measured with real packets and
//! compared with what the manifests say. A check that fails is told where it failed and makes the
//! command end with 1. Whatever ends the demo, everything it made is removed, and nothing else.

mod daemon;
mod interrupt;
mod matrix;
mod place;
mod plugin;
mod probe;
mod screen;
mod shop;
mod site;

use crate::cli::{DemoArgs, ExplainArgs, Format, PolicyCommand};
use crate::exit::{Exit, Failure, Outcome};
use daemon::Daemon;
use interrupt::Interrupt;
use matrix::Matrix;
use palisade_agent::clock::{Clock, SystemClock};
use palisade_api::Status;
use palisade_sys::netns::NetNs;
use place::{Place, Pulse};
use plugin::Plugin;
use screen::{Screen, time};
use shop::{EDIT, INVENTORY, PARTIES, POLICIES};
use site::Site;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon a revoked connection must stop.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
/// For how long a stopped connection must have been silent to count as stopped.
const SILENCE: Duration = Duration::from_millis(400);

/// Shows it, and removes what it made.
pub(crate) fn run(args: &DemoArgs) -> Outcome {
    let screen = Screen::of_this_process();
    let interrupt = Interrupt::listen()?;
    let began = SystemClock.monotonic();
    screen.line(
        screen.bold("palisade demo: a small shop behind network policies, with real packets"),
    );
    let mut demo = Demo::build(screen, interrupt, args.keep)?;
    let open = demo.without_policy()?;
    let (strict, realised) = demo.with_policies(&open)?;
    let held = demo.one_edit(&strict, realised)?;
    demo.explained()?;
    demo.counted()?;
    demo.killed_and_restarted(&held)?;
    let wrong = if args.keep {
        demo.leave()?
    } else {
        demo.remove()?
    };
    let took = time(SystemClock.monotonic() - began);
    if wrong > 0 {
        return Err(Failure::found(format!(
            "{wrong} of the demo's checks failed; they are marked above"
        )));
    }
    screen.line(format_args!(
        "\n{}",
        screen.bold(&format!("Every check held. {took} in all."))
    ));
    if !args.keep {
        suggest(screen);
    }
    Ok(Exit::Fine)
}

/// What the demo is made of; it goes in this order.
struct Demo {
    places: Vec<Place>,
    daemon: Daemon,
    plugin: Plugin,
    site: Site,
    screen: Screen,
    interrupt: Interrupt,
    keep: bool,
    interfaces: Vec<String>,
    steps: usize,
    wrong: usize,
}

/// The connections opened before the edit, and the matrix after it.
struct Held {
    kept: Arc<Pulse>,
    matrix: Matrix,
}

fn step(screen: Screen, steps: &mut usize, text: &str) {
    *steps += 1;
    screen.step(*steps, text);
}

impl Demo {
    /// Step 1: the place, the agent, the workloads.
    fn build(screen: Screen, interrupt: Interrupt, keep: bool) -> Result<Self, Failure> {
        let mut steps = 0;
        step(
            screen,
            &mut steps,
            "A host, four pods and an outside, each a network namespace of its own",
        );
        let site = Site::make()?;
        for (name, text) in INVENTORY {
            site.write(name, text)?;
        }
        let (daemon, status) = Daemon::start(&site, &interrupt, keep)?;
        screen.detail(format_args!(
            "namespaces {0}-*; this machine's own network is not touched",
            site.prefix()
        ));
        screen.detail(format_args!(
            "palisade agent, process {}, follows the manifests in {}",
            status.pid,
            site.policy().display()
        ));
        let plugin = Plugin::find(&site, &daemon::socket(&site))?;
        screen.detail(
            "the pods are attached by palisade-cni, called as a container runtime calls it",
        );
        let (places, interfaces) = (Vec::new(), Vec::new());
        let mut demo = Demo {
            places,
            daemon,
            plugin,
            site,
            screen,
            interrupt,
            keep,
            interfaces,
            steps,
            wrong: 0,
        };
        demo.attach()?;
        Ok(demo)
    }

    /// Attaches the pods as a runtime does, and opens the servers in each namespace.
    fn attach(&mut self) -> Result<(), Failure> {
        for party in PARTIES.iter().copied() {
            self.interrupt.check()?;
            let netns = self.site.name(party.name);
            let addresses = match party.namespace {
                Some(namespace) => {
                    let attached = self.plugin.add(namespace, party.name)?;
                    self.interfaces.push(attached.interface);
                    attached.addresses
                }
                None => {
                    let both = [
                        IpAddr::from(shop::OUTSIDE_V4),
                        IpAddr::from(shop::OUTSIDE_V6),
                    ];
                    both.into_iter()
                        .filter(|address| address.is_ipv4() || self.site.ipv6)
                        .collect()
                }
            };
            let inside = NetNs::open(&netns)
                .map_err(|error| Failure::found(format!("opening {netns}: {error}")))?;
            let shown: Vec<String> = addresses
                .iter()
                .map(|address| format!("{address:<20}"))
                .collect();
            self.screen.detail(format_args!(
                "{:<20} {} serves {}/TCP and {}/UDP",
                party.full_name(),
                shown.join(" "),
                party.tcp,
                party.udp
            ));
            self.places.push(Place::open(party, addresses, inside)?);
        }
        Ok(())
    }

    /// Step 2: everything passes.
    fn without_policy(&mut self) -> Result<Matrix, Failure> {
        self.step("Without policy: everyone reaches everyone");
        self.legend();
        self.measure(None)
    }

    /// Step 3: the policies.
    fn with_policies(&mut self, open: &Matrix) -> Result<(Matrix, u64), Failure> {
        self.step("Four policies are copied into the directory");
        let before = self.daemon.status()?;
        let written = self.now();
        for policy in POLICIES {
            self.site.write(policy.name, policy.text)?;
            self.screen
                .detail(format_args!("{:<18} {}", policy.name, policy.says));
        }
        let status = self.daemon.wait_for(before.revision, POLICIES.len())?;
        self.in_force(written, &status);
        let strict = self.measure(None)?;
        self.check(
            strict.answered() < open.answered(),
            &format!(
                "{} of {} attempts are answered; every other packet is dropped silently",
                strict.answered(),
                strict.len()
            ),
        );
        Ok((strict, status.revision))
    }

    /// Step 4: an edit, while connections run over what it closes and what it does not.
    fn one_edit(&mut self, strict: &Matrix, revision: u64) -> Result<Held, Failure> {
        self.step("One edit, while two long connections run: web to api, and api to db");
        let (file, old, new) = EDIT;
        let revoked = self.hold("web", "api", true)?;
        let kept = self.hold("api", "db", !self.site.ipv6)?;
        self.interrupt.wait(SILENCE)?;
        self.screen
            .detail(format_args!("{file}, who may call api:"));
        for (sign, text) in [('-', old), ('+', new)] {
            for line in text.lines() {
                self.screen.edit(sign, line);
            }
        }
        let busy = revoked.beats().count > 0 && kept.beats().count > 0;
        let written = self.now();
        self.site.write(file, &shop::edited())?;
        let status = self.daemon.wait_for(revision, POLICIES.len())?;
        self.in_force(written, &status);
        let stopped = self.silence_of(&revoked, written)?;
        let (count, alive) = (kept.beats().count, self.is_alive(&kept)?);
        match stopped.filter(|_| busy) {
            Some(after) => self.check(
                after < STOPS_WITHIN,
                &format!(
                    "web to api: the established connection stopped {} after the writing",
                    time(after)
                ),
            ),
            None => self.check(false, "web to api: the established connection stops"),
        }
        self.check(
            alive,
            &format!(
                "api to db: goes on, {count} answers so far, never more than {} between two",
                time(kept.beats().gap)
            ),
        );
        let matrix = self.measure(Some(strict))?;
        Ok(Held { kept, matrix })
    }

    /// Step 5: why one packet was dropped.
    fn explained(&mut self) -> Result<(), Failure> {
        self.step("Why is web no longer let in? The agent is asked");
        self.screen
            .command("palisade explain --from shop/web --to shop/api --port 8080/TCP");
        let question = ExplainArgs {
            files: Vec::new(),
            from: "shop/web".to_owned(),
            to: "shop/api".to_owned(),
            port: Some("8080/TCP".to_owned()),
            protocol: None,
            icmp_type: None,
            source_port: None,
            exit_code: false,
            all: false,
        };
        super::explain::run(&question, &self.daemon.client, Format::Text)?;
        self.interrupt.check()
    }

    /// Step 6: the counters, which lead back to rules.
    fn counted(&mut self) -> Result<(), Failure> {
        self.step("What each rule counted: an established connection is judged once, a dropped packet each time");
        self.screen.command("palisade policy get shop/api");
        let question = PolicyCommand::Get {
            name: "shop/api".to_owned(),
        };
        super::policy::run(&question, &self.daemon.client, Format::Text)?;
        self.interrupt.check()
    }

    /// Step 7: without an agent, and with a new one.
    fn killed_and_restarted(&mut self, held: &Held) -> Result<(), Failure> {
        self.step("The agent is killed with SIGKILL: the kernel goes on");
        self.daemon.kill()?;
        let without = Matrix::measure(&self.places)?;
        self.unchanged(&without, &held.matrix, "without an agent");
        let (daemon, status) = Daemon::start(&self.site, &self.interrupt, self.keep)?;
        self.daemon = daemon;
        let writes = status.dataplane.start.as_ref().map(|start| start.writes);
        let shown = writes.map_or("unknown".to_owned(), |writes| writes.to_string());
        self.check(
            writes == Some(0),
            &format!(
                "restarted, process {}: kernel writes at start: {shown}",
                status.pid
            ),
        );
        let again = Matrix::measure(&self.places)?;
        self.unchanged(&again, &held.matrix, "with the new agent");
        let alive = self.is_alive(&held.kept)?;
        let beats = held.kept.beats();
        self.check(
            alive,
            &format!(
                "api to db: the same connection, {} answers by now, never more than {} between two",
                beats.count,
                time(beats.gap)
            ),
        );
        Ok(())
    }

    /// Step 8: nothing is left. Says how many checks failed in all.
    fn remove(mut self) -> Result<usize, Failure> {
        self.step("Everything is removed");
        for party in PARTIES {
            let Some(namespace) = party.namespace else {
                continue;
            };
            self.plugin.del(namespace, party.name)?;
        }
        let mut left = self.site.host_links()?;
        left.retain(|link| link != "lo" && link != site::UPLINK_NAME);
        self.check(
            left.is_empty(),
            &format!(
                "palisade-cni DEL: {} detached; interfaces of theirs on the host: {}",
                self.interfaces.len(),
                left.len()
            ),
        );
        let Demo {
            places,
            mut daemon,
            site,
            screen,
            interfaces,
            mut wrong,
            ..
        } = self;
        daemon.kill()?;
        drop(places);
        drop(daemon);
        let left = site.remove(&interfaces)?;
        if left.is_empty() {
            screen.good("left on this machine: 0 namespaces, 0 processes, 0 interfaces, 0 nftables tables, 0 files");
        } else {
            wrong += 1;
            screen.bad(format_args!("left: {}", left.join(", ")));
        }
        Ok(wrong)
    }

    /// Instead of step 8: how to look around, and how to remove it.
    fn leave(mut self) -> Result<usize, Failure> {
        self.step("Everything stands (--keep)");
        let palisade = format!(
            "sudo {} --socket {}",
            program(),
            daemon::socket(&self.site).display()
        );
        self.screen.detail("look around:");
        for command in ["status", "endpoint list", "policy list"] {
            self.screen.command(&format!("{palisade} {command}"));
        }
        let find = |name| self.places.iter().find(|place| place.party.name == name);
        if let Some(address) = find("api").and_then(|api| api.address(true)) {
            self.screen.detail(
                "nobody serves any more, so a connection that passes is refused at once, and a dropped one hangs:",
            );
            for from in ["stranger", "web"] {
                self.screen.command(&format!(
                    "sudo ip netns exec {} timeout 2 bash -c '</dev/tcp/{address}/8080'",
                    self.site.name(from)
                ));
            }
        }
        self.screen.detail(format_args!(
            "edit the policies and watch the status: {}",
            self.site.policy().display()
        ));
        self.screen.detail("remove it:");
        self.screen.command(&site::removal(
            self.site.prefix(),
            &self.site.directory,
            self.daemon.process(),
        ));
        self.site.keep();
        self.daemon.keep();
        Ok(self.wrong)
    }

    fn step(&mut self, text: &str) {
        step(self.screen, &mut self.steps, text);
    }

    fn legend(&self) {
        use screen::Mark::{Closed, Dropped, Opened, Passed};
        let mark = |mark| self.screen.mark(mark);
        let families = if self.site.ipv6 {
            "each over IPv4, then IPv6"
        } else {
            "over IPv4"
        };
        self.screen.detail(format_args!(
            "a cell: TCP, UDP, ping, {families}; {} answered, {} dropped; later {} opened, {} closed",
            mark(Passed),
            mark(Dropped),
            mark(Opened),
            mark(Closed)
        ));
    }

    /// Measures, prints, and compares with what the manifests say.
    fn measure(&mut self, before: Option<&Matrix>) -> Result<Matrix, Failure> {
        self.interrupt.check()?;
        let began = self.now();
        let measured = Matrix::measure(&self.places)?;
        let took = self.now() - began;
        measured.print(self.screen, before);
        let written = Matrix::as_written(&self.site.policy(), &self.places)?;
        self.compare(&measured, &written, |cells| {
            format!(
                "{cells} cells as palisade explain says of these files; measured in {}",
                time(took)
            )
        });
        Ok(measured)
    }

    fn unchanged(&mut self, now: &Matrix, before: &Matrix, when: &str) {
        self.compare(now, before, |cells| {
            format!("{when}: {cells} cells as before")
        });
    }

    fn compare(&mut self, got: &Matrix, expected: &Matrix, words: impl Fn(String) -> String) {
        let differences = got.differences(expected);
        let cells = format!("{} of {}", got.len() - differences.len(), got.len());
        self.check(differences.is_empty(), &words(cells));
        for difference in differences.iter().take(12) {
            self.screen.detail(format_args!("  {difference}"));
        }
    }

    fn check(&mut self, holds: bool, text: &str) {
        if holds {
            self.screen.good(text);
        } else {
            self.wrong += 1;
            self.screen.bad(text);
        }
    }

    fn in_force(&self, written: Instant, status: &Status) {
        let took = time(self.now() - written);
        let writes = status
            .dataplane
            .last
            .as_ref()
            .map_or(0, |flush| flush.writes);
        self.screen.detail(format_args!(
            "revision {} is in the kernel {took} after the writing (100 ms of it the directory settles): {writes} kernel writes",
            status.realised
        ));
    }

    /// Opens a long connection between two parties.
    fn hold(&self, from: &str, to: &str, v4: bool) -> Result<Arc<Pulse>, Failure> {
        let find = |name: &str| self.places.iter().find(|place| place.party.name == name);
        let (from, to) = (find(from), find(to));
        let address = to.and_then(|to| Some(SocketAddr::new(to.address(v4)?, to.party.tcp)));
        match (from, address) {
            (Some(from), Some(address)) => from.hold(address),
            _ => Err(Failure::found("the shop has no such party")),
        }
    }

    /// When a connection fell silent, counted from `since`; nothing if it does not.
    fn silence_of(&self, pulse: &Pulse, since: Instant) -> Result<Option<Duration>, Failure> {
        while self.now() - since < STOPS_WITHIN + SILENCE {
            let Some(last) = pulse.beats().last else {
                return Ok(None);
            };
            if self.now().saturating_duration_since(last) >= SILENCE {
                return Ok(Some(last.saturating_duration_since(since)));
            }
            self.interrupt.wait(Duration::from_millis(20))?;
        }
        Ok(None)
    }

    /// Whether something more comes back over a connection.
    fn is_alive(&self, pulse: &Pulse) -> Result<bool, Failure> {
        let count = pulse.beats().count;
        let since = self.now();
        while self.now() - since < STOPS_WITHIN {
            if pulse.beats().count > count {
                return Ok(true);
            }
            self.interrupt.wait(Duration::from_millis(10))?;
        }
        Ok(false)
    }

    fn now(&self) -> Instant {
        SystemClock.monotonic()
    }
}

/// How this program was called, as near as it can be typed.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let here = std::env::current_dir().map(|here| format!("{}/", here.display()));
    let called = here
        .ok()
        .and_then(|here| called.strip_prefix(&here).map(str::to_owned))
        .unwrap_or(called);
    if called.is_empty() {
        "palisade".to_owned()
    } else {
        called
    }
}

/// Two commands to try next.
fn suggest(screen: Screen) {
    let program = program();
    screen.line("Try next:");
    if std::path::Path::new("examples/shop").is_dir() {
        screen.command(&format!("{program} explain -f examples/shop --from elsewhere/stranger --to shop/db --port 5432/TCP"));
        screen.command("make test");
    } else {
        screen.command(&format!("sudo {program} demo --keep"));
        screen.command(&format!("{program} connections -f DIRECTORY-OF-MANIFESTS"));
    }
}

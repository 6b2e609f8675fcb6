//! `palisade demo`: policy enforcement between real workloads, with a check of each step.
//!
//! A small shop in its own network namespaces: a host, pods and an outside address. The agent is this
//! executable, run as a user would run it. All results are measured with real packets and compared with the
//! manifests. A failed check is reported where it occurs and leads to exit code 1. However the demo ends,
//! everything it created is removed, and nothing else.

mod daemon;
mod interrupt;
mod matrix;
mod party_netns;
mod plugin;
mod probe;
mod screen;
mod shop;
mod site;

use crate::cli::{DemoArgs, ExplainArgs, OutputFormat, PolicyCommand};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use daemon::Daemon;
use interrupt::Interrupt;
use matrix::ProbeMatrix;
use palisade_agent::clock::{Clock, SystemClock};
use palisade_api::Status;
use palisade_sys::netns::NetNs;
use party_netns::{ConnectionMonitor, PartyNetns};
use plugin::Plugin;
use screen::{Screen, duration_text};
use shop::{EDIT, INVENTORY, PARTIES, POLICIES};
use site::Site;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit on the time until a revoked connection stops.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Silence after which a connection counts as stopped.
const SILENCE: Duration = Duration::from_millis(400);

/// Runs the demo and removes everything it created.
pub(crate) fn run(args: &DemoArgs) -> CommandResult {
    let screen = Screen::from_stdout();
    let interrupt = Interrupt::listen()?;
    let began = SystemClock.monotonic();
    screen.line(
        screen.bold("palisade demo: a small shop behind network policies, with real packets"),
    );
    let mut demo = Demo::build(screen, interrupt, args.keep)?;
    let open = demo.show_without_policy()?;
    let (strict, realised) = demo.apply_policies(&open)?;
    let held = demo.apply_edit(&strict, realised)?;
    demo.show_explanation()?;
    demo.show_counters()?;
    demo.restart_agent(&held)?;
    let wrong = if args.keep {
        demo.keep_running()?
    } else {
        demo.remove()?
    };
    let took = duration_text(SystemClock.monotonic() - began);
    if wrong > 0 {
        return Err(CommandError::problem(format!(
            "{wrong} of the demo's checks failed; they are marked above"
        )));
    }
    screen.line(format_args!(
        "\n{}",
        screen.bold(&format!("All checks passed in {took}."))
    ));
    if !args.keep {
        suggest(screen);
    }
    Ok(ExitStatus::Success)
}

/// The parts of the demo; dropped in this order.
struct Demo {
    places: Vec<PartyNetns>,
    daemon: Daemon,
    plugin: Plugin,
    site: Site,
    screen: Screen,
    interrupt: Interrupt,
    keep: bool,
    interfaces: Vec<String>,
    steps: usize,
    failed_checks: usize,
}

/// The connection opened before the edit that must survive, and the matrix after the edit.
struct EditResult {
    surviving: Arc<ConnectionMonitor>,
    matrix: ProbeMatrix,
}

fn step(screen: Screen, steps: &mut usize, text: &str) {
    *steps += 1;
    screen.step(*steps, text);
}

impl Demo {
    /// Step 1: the namespaces, the agent, the workloads.
    fn build(screen: Screen, interrupt: Interrupt, keep: bool) -> Result<Self, CommandError> {
        let mut steps = 0;
        step(
            screen,
            &mut steps,
            "A host, four pods and an outside host, each in its own network namespace",
        );
        let site = Site::create()?;
        for (name, text) in INVENTORY {
            site.write(name, text)?;
        }
        let (daemon, status) = Daemon::start(&site, &interrupt, keep)?;
        screen.detail(format_args!(
            "namespaces {0}-*; this machine's own network is not touched",
            site.prefix()
        ));
        screen.detail(format_args!(
            "palisade agent, process {}, watches the manifests in {}",
            status.pid,
            site.policy().display()
        ));
        let plugin = Plugin::locate(&site, &daemon::socket(&site))?;
        screen.detail("the pods are attached by palisade-cni, called as by a container runtime");
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
            failed_checks: 0,
        };
        demo.attach()?;
        Ok(demo)
    }

    /// Attaches the pods as a runtime does, and starts the servers in each namespace.
    fn attach(&mut self) -> Result<(), CommandError> {
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
                .map_err(|error| CommandError::problem(format!("opening {netns}: {error}")))?;
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
            self.places
                .push(PartyNetns::open(party, addresses, inside)?);
        }
        Ok(())
    }

    /// Step 2: without policy, all traffic is allowed.
    fn show_without_policy(&mut self) -> Result<ProbeMatrix, CommandError> {
        self.step("Without policy: all connections are allowed");
        self.legend();
        self.measure(None)
    }

    /// Step 3: the policies.
    fn apply_policies(&mut self, open: &ProbeMatrix) -> Result<(ProbeMatrix, u64), CommandError> {
        self.step("Four policies are copied into the directory");
        let before = self.daemon.status()?;
        let written = self.now();
        for policy in POLICIES {
            self.site.write(policy.name, policy.text)?;
            self.screen
                .detail(format_args!("{:<18} {}", policy.name, policy.summary));
        }
        let status = self
            .daemon
            .wait_for_revision(before.revision, POLICIES.len())?;
        self.report_flush(written, &status);
        let strict = self.measure(None)?;
        self.check(
            strict.answered() < open.answered(),
            &format!(
                "{} of {} probes are answered; all others are dropped silently",
                strict.answered(),
                strict.len()
            ),
        );
        Ok((strict, status.revision))
    }

    /// Step 4: an edit, with one established connection that it denies and one that it does not affect.
    fn apply_edit(
        &mut self,
        strict: &ProbeMatrix,
        revision: u64,
    ) -> Result<EditResult, CommandError> {
        self.step("One edit, with two established connections: web to api, and api to db");
        let (file, old, new) = EDIT;
        let revoked = self.open_connection("web", "api", true)?;
        let kept = self.open_connection("api", "db", !self.site.ipv6)?;
        self.interrupt.wait(SILENCE)?;
        self.screen
            .detail(format_args!("{file}, allowed clients of api:"));
        for (sign, text) in [('-', old), ('+', new)] {
            for line in text.lines() {
                self.screen.edit(sign, line);
            }
        }
        let busy = revoked.stats().count > 0 && kept.stats().count > 0;
        let written = self.now();
        self.site.write(file, &shop::edited())?;
        let status = self.daemon.wait_for_revision(revision, POLICIES.len())?;
        self.report_flush(written, &status);
        let stopped = self.wait_for_silence(&revoked, written)?;
        let (count, alive) = (kept.stats().count, self.is_alive(&kept)?);
        match stopped.filter(|_| busy) {
            Some(after) => self.check(
                after < STOP_LIMIT,
                &format!(
                    "web to api: the established connection stopped {} after the edit",
                    duration_text(after)
                ),
            ),
            None => self.check(false, "web to api: the established connection stops"),
        }
        self.check(
            alive,
            &format!(
                "api to db: still established, {count} replies so far, at most {} between two",
                duration_text(kept.stats().gap)
            ),
        );
        let matrix = self.measure(Some(strict))?;
        Ok(EditResult {
            surviving: kept,
            matrix,
        })
    }

    /// Step 5: the explanation of a dropped packet.
    fn show_explanation(&mut self) -> Result<(), CommandError> {
        self.step("Why is web denied? The agent explains");
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
        super::explain::run(&question, &self.daemon.client, OutputFormat::Text)?;
        self.interrupt.check()
    }

    /// Step 6: the counters of each rule.
    fn show_counters(&mut self) -> Result<(), CommandError> {
        self.step("Counters of each rule: an established connection is counted once, every dropped packet is counted");
        self.screen.command("palisade policy get shop/api");
        let question = PolicyCommand::Get {
            name: "shop/api".to_owned(),
        };
        super::policy::run(&question, &self.daemon.client, OutputFormat::Text)?;
        self.interrupt.check()
    }

    /// Step 7: without an agent, and with a restarted one.
    fn restart_agent(&mut self, held: &EditResult) -> Result<(), CommandError> {
        self.step("The agent is killed with SIGKILL: the kernel keeps enforcing");
        self.daemon.kill()?;
        let without = ProbeMatrix::measure(&self.places)?;
        self.check_unchanged(&without, &held.matrix, "without an agent");
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
        let again = ProbeMatrix::measure(&self.places)?;
        self.check_unchanged(&again, &held.matrix, "with the new agent");
        let alive = self.is_alive(&held.surviving)?;
        let beats = held.surviving.stats();
        self.check(
            alive,
            &format!(
                "api to db: the same connection, {} replies so far, at most {} between two",
                beats.count,
                duration_text(beats.gap)
            ),
        );
        Ok(())
    }

    /// Step 8: removal. Returns the number of failed checks.
    fn remove(mut self) -> Result<usize, CommandError> {
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
                "palisade-cni DEL: {} detached; remaining interfaces on the host: {}",
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
            failed_checks: mut wrong,
            ..
        } = self;
        daemon.kill()?;
        drop(places);
        drop(daemon);
        let left = site.remove(&interfaces)?;
        if left.is_empty() {
            screen.pass("left on this machine: 0 namespaces, 0 processes, 0 interfaces, 0 nftables tables, 0 files");
        } else {
            wrong += 1;
            screen.fail(format_args!("left: {}", left.join(", ")));
        }
        Ok(wrong)
    }

    /// Replaces step 8 with --keep: prints how to inspect and how to remove everything.
    fn keep_running(mut self) -> Result<usize, CommandError> {
        self.step("Everything is kept (--keep)");
        let palisade = format!(
            "sudo {} --socket {}",
            program(),
            daemon::socket(&self.site).display()
        );
        self.screen.detail("inspect it:");
        for command in ["status", "endpoint list", "policy list"] {
            self.screen.command(&format!("{palisade} {command}"));
        }
        let find = |name| self.places.iter().find(|place| place.party.name == name);
        if let Some(address) = find("api").and_then(|api| api.address(true)) {
            self.screen.detail(
                "the servers have stopped: an allowed connection is refused at once, a denied one times out:",
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
        self.screen.command(&site::removal_command(
            self.site.prefix(),
            &self.site.directory,
            self.daemon.pid(),
        ));
        self.site.keep();
        self.daemon.keep();
        Ok(self.failed_checks)
    }

    fn step(&mut self, text: &str) {
        step(self.screen, &mut self.steps, text);
    }

    fn legend(&self) {
        use screen::CellMark::{Closed, Dropped, Opened, Passed};
        let mark = |mark| self.screen.mark(mark);
        let families = if self.site.ipv6 {
            "each over IPv4, then IPv6"
        } else {
            "over IPv4"
        };
        self.screen.detail(format_args!(
            "cell: TCP, UDP, ping, {families}; {} answered, {} dropped; later {} newly allowed, {} newly denied",
            mark(Passed),
            mark(Dropped),
            mark(Opened),
            mark(Closed)
        ));
    }

    /// Measures and prints the matrix, and compares it with the manifests.
    fn measure(&mut self, before: Option<&ProbeMatrix>) -> Result<ProbeMatrix, CommandError> {
        self.interrupt.check()?;
        let began = self.now();
        let measured = ProbeMatrix::measure(&self.places)?;
        let took = self.now() - began;
        measured.print(self.screen, before);
        let written = ProbeMatrix::from_manifests(&self.site.policy(), &self.places)?;
        self.compare(&measured, &written, |cells| {
            format!(
                "{cells} cells match palisade explain; measured in {}",
                duration_text(took)
            )
        });
        Ok(measured)
    }

    fn check_unchanged(&mut self, now: &ProbeMatrix, before: &ProbeMatrix, when: &str) {
        self.compare(now, before, |cells| {
            format!("{when}: {cells} cells unchanged")
        });
    }

    fn compare(
        &mut self,
        got: &ProbeMatrix,
        expected: &ProbeMatrix,
        words: impl Fn(String) -> String,
    ) {
        let differences = got.differences(expected);
        let cells = format!("{} of {}", got.len() - differences.len(), got.len());
        self.check(differences.is_empty(), &words(cells));
        for difference in differences.iter().take(12) {
            self.screen.detail(format_args!("  {difference}"));
        }
    }

    fn check(&mut self, holds: bool, text: &str) {
        if holds {
            self.screen.pass(text);
        } else {
            self.failed_checks += 1;
            self.screen.fail(text);
        }
    }

    fn report_flush(&self, written: Instant, status: &Status) {
        let took = duration_text(self.now() - written);
        let writes = status
            .dataplane
            .last
            .as_ref()
            .map_or(0, |flush| flush.writes);
        self.screen.detail(format_args!(
            "revision {} is in the kernel {took} after the edit (including 100 ms settle time): {writes} kernel writes",
            status.realised
        ));
    }

    /// Opens a long connection between two parties.
    fn open_connection(
        &self,
        from: &str,
        to: &str,
        v4: bool,
    ) -> Result<Arc<ConnectionMonitor>, CommandError> {
        let find = |name: &str| self.places.iter().find(|place| place.party.name == name);
        let (from, to) = (find(from), find(to));
        let address = to.and_then(|to| Some(SocketAddr::new(to.address(v4)?, to.party.tcp)));
        match (from, address) {
            (Some(from), Some(address)) => from.open_connection(address),
            _ => Err(CommandError::problem("the shop has no such party")),
        }
    }

    /// Time from `since` until a connection fell silent; `None` if it does not.
    fn wait_for_silence(
        &self,
        pulse: &ConnectionMonitor,
        since: Instant,
    ) -> Result<Option<Duration>, CommandError> {
        while self.now() - since < STOP_LIMIT + SILENCE {
            let Some(last) = pulse.stats().last else {
                return Ok(None);
            };
            if self.now().saturating_duration_since(last) >= SILENCE {
                return Ok(Some(last.saturating_duration_since(since)));
            }
            self.interrupt.wait(Duration::from_millis(20))?;
        }
        Ok(None)
    }

    /// Whether a connection still receives replies.
    fn is_alive(&self, pulse: &ConnectionMonitor) -> Result<bool, CommandError> {
        let count = pulse.stats().count;
        let since = self.now();
        while self.now() - since < STOP_LIMIT {
            if pulse.stats().count > count {
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

/// How this program was called, for commands to type.
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

/// Prints commands to try next.
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

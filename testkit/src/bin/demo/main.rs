//! `make demo`: policy enforcement between real workloads, with a check of each step.
//!
//! A small shop in its own network namespaces: a host, pods and an outside address. Agent, commands and
//! plugin are the programs of the product, run as a user would run them. All results are measured with real
//! packets and compared with the manifests. A failed check is reported where it occurs and leads to exit
//! code 1. However the demo ends, everything it created is removed, and nothing else.

mod agent;
mod arguments;
mod checks;
mod cluster;
mod error;
mod hosts;
mod interrupt;
mod matrix;
mod participants;
mod plugin;
mod screen;
mod shop;
mod site;

use agent::AgentProcess;
use arguments::{DemoArgs, HELP, parse_arguments};
use checks::Checks;
use cluster::Installation;
use error::DemoError;
use interrupt::DemoInterrupt;
use matrix::ProbeMatrix;
use palisade_api::Status;
use palisade_testkit::lab::LongFlow;
use participants::PartyNode;
use plugin::Plugin;
use screen::{Screen, duration_text};
use shop::{EDIT, INVENTORY, PARTIES, POLICIES};
use site::Site;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Limit on the time until a revoked connection stops.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Silence after which a connection counts as stopped.
const SILENCE: Duration = Duration::from_millis(400);

fn main() -> ExitCode {
    let ended = match parse_arguments(std::env::args().skip(1)) {
        Ok(Some(arguments)) => run(&arguments),
        Ok(None) => {
            println!("{HELP}");
            Ok(())
        }
        Err(error) => Err(error),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit)
        }
    }
}

/// Runs the demo and removes everything it created.
fn run(arguments: &DemoArgs) -> Result<(), DemoError> {
    let keep = arguments.keep;
    let screen = Screen::from_stdout();
    let interrupt = DemoInterrupt::listen()?;
    if arguments.cluster {
        return run_cluster(screen, interrupt, &arguments.installation);
    }
    for name in ["palisade", "palisade-cni"] {
        let program = arguments.programs.join(name);
        if !program.exists() {
            let text = format!("{} does not exist", program.display());
            return Err(DemoError::problem(text).with_hint("make demo, which builds it"));
        }
    }
    let began = now();
    if arguments.hosts {
        screen.line(screen.bold(
            "palisade demo: protecting a host, the steps of docs/hosts.md with real packets",
        ));
        let demo = Demo::build(screen, interrupt, arguments, &hosts::arguments())?;
        return conclude(screen, hosts::run(demo)?, began);
    }
    screen.line(
        screen.bold("palisade demo: a small shop behind network policies, with real packets"),
    );
    let mut demo = Demo::build(screen, interrupt, arguments, &[])?;
    let open = demo.show_without_policy()?;
    let (strict, realised) = demo.apply_policies(&open)?;
    let held = demo.apply_edit(&strict, realised)?;
    demo.show_explanation()?;
    demo.show_counters()?;
    demo.restart_agent(&held)?;
    drop(held);
    let program = program(&arguments.programs);
    let wrong = if keep {
        demo.keep_running(&program)?
    } else {
        demo.remove()?
    };
    conclude(screen, wrong, began)?;
    if !keep {
        screen.line("Try next:");
        screen.command(&format!("{program} explain -f examples/shop --from elsewhere/stranger --to shop/db --port 5432/TCP"));
        screen.command("make test");
    }
    Ok(())
}

/// Runs the demo in a cluster and removes everything it created.
fn run_cluster(
    screen: Screen,
    interrupt: DemoInterrupt,
    installation: &Installation,
) -> Result<(), DemoError> {
    let began = now();
    screen.line(
        screen.bold("palisade demo: a Kubernetes cluster, with real packets between its pods"),
    );
    let wrong = cluster::run(screen, interrupt, installation)?;
    conclude(screen, wrong, began)
}

/// Reports the end of the demo; an error if a check failed.
fn conclude(screen: Screen, wrong: usize, began: Instant) -> Result<(), DemoError> {
    if wrong > 0 {
        return Err(DemoError::problem(format!(
            "{wrong} of the demo's checks failed; they are marked above"
        )));
    }
    let took = duration_text(now() - began);
    let text = format!("All checks passed in {took}.");
    screen.line(format_args!("\n{}", screen.bold(&text)));
    Ok(())
}

/// The parts of the demo; dropped in this order.
struct Demo {
    parties: Vec<PartyNode>,
    agent: AgentProcess,
    plugin: Plugin,
    site: Site,
    screen: Screen,
    interrupt: DemoInterrupt,
    keep: bool,
    interfaces: Vec<String>,
    steps: usize,
    checks: Checks,
}

/// The connection opened before the edit that must survive, and the matrix after the edit.
struct EditResult {
    surviving: LongFlow,
    matrix: ProbeMatrix,
}

fn step(screen: Screen, steps: &mut usize, text: &str) {
    *steps += 1;
    screen.step(*steps, text);
}

impl Demo {
    /// Step 1: the namespaces, the agent, the workloads.
    fn build(
        screen: Screen,
        interrupt: DemoInterrupt,
        arguments: &DemoArgs,
        of_agent: &[&str],
    ) -> Result<Self, DemoError> {
        let keep = arguments.keep;
        let mut steps = 0;
        step(
            screen,
            &mut steps,
            "A host, four pods and an outside host, each in its own network namespace",
        );
        let site = Site::create(&arguments.programs, &arguments.dataplane)?;
        for (name, text) in INVENTORY {
            site.write(name, text)?;
        }
        let (agent, status) = AgentProcess::start(&site, &interrupt, keep, of_agent)?;
        screen.detail(format_args!(
            "namespaces {0}-*; this machine's own network is not touched",
            site.lab.prefix()
        ));
        screen.detail(format_args!(
            "palisade agent, process {}, watches the manifests in {}",
            status.pid,
            site.policy().display()
        ));
        let plugin = Plugin::of(&site);
        screen.detail("the pods are attached by palisade-cni, called as by a container runtime");
        let (parties, interfaces) = (Vec::new(), Vec::new());
        let mut demo = Demo {
            parties,
            agent,
            plugin,
            site,
            screen,
            interrupt,
            keep,
            interfaces,
            steps,
            checks: Checks::new(screen),
        };
        demo.attach()?;
        Ok(demo)
    }

    /// Attaches the pods as a runtime does, and starts the servers in each namespace.
    fn attach(&mut self) -> Result<(), DemoError> {
        for party in PARTIES.iter().copied() {
            self.interrupt.check()?;
            let addresses = match party.namespace {
                Some(_) => {
                    let attached = self.plugin.add(&self.site, &party)?;
                    self.interfaces.push(attached.interface);
                    attached.addresses
                }
                None => self.site.lab.addresses(self.site.lab.outside()).to_vec(),
            };
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
            let node = self.site.node(&party)?;
            self.parties
                .push(PartyNode::start(&self.site.lab, node, party, addresses)?);
        }
        Ok(())
    }

    /// The IPv4 address of a party.
    fn party_address(&self, name: &str) -> Result<IpAddr, DemoError> {
        let mut parties = self.parties.iter();
        let found = parties.find(|party| party.party.name == name);
        let address = found.and_then(|party| party.address(true));
        address.ok_or_else(|| DemoError::problem(format!("{name} has no IPv4 address")))
    }

    /// Step 2: without policy, all traffic is allowed.
    fn show_without_policy(&mut self) -> Result<ProbeMatrix, DemoError> {
        self.step("Without policy: all connections are allowed");
        self.legend();
        self.measure(None)
    }

    /// Step 3: the policies.
    fn apply_policies(&mut self, open: &ProbeMatrix) -> Result<(ProbeMatrix, u64), DemoError> {
        self.step("Four policies are copied into the directory");
        let before = self.agent.status()?;
        let written = now();
        for policy in POLICIES {
            self.site.write(policy.name, policy.text)?;
            self.screen
                .detail(format_args!("{:<18} {}", policy.name, policy.summary));
        }
        let status = self
            .agent
            .wait_for_revision(before.revision, POLICIES.len())?;
        self.report_flush(written, &status);
        let strict = self.measure(None)?;
        self.checks.check(
            strict.answered() < open.answered(),
            format_args!(
                "{} of {} probes are answered; all others are dropped silently",
                strict.answered(),
                strict.len()
            ),
        );
        Ok((strict, status.revision))
    }

    /// Step 4: an edit, with one established connection that it denies and one that it does not affect.
    fn apply_edit(&mut self, strict: &ProbeMatrix, revision: u64) -> Result<EditResult, DemoError> {
        self.step("One edit, with two established connections: web to api, and api to db");
        let (file, old, new) = EDIT;
        let revoked = self.open_connection("web", "api", true)?;
        let kept = self.open_connection("api", "db", !self.site.has_ipv6())?;
        self.interrupt.wait(SILENCE)?;
        self.screen
            .detail(format_args!("{file}, allowed clients of api:"));
        for (sign, text) in [('-', old), ('+', new)] {
            for line in text.lines() {
                self.screen.edit(sign, line);
            }
        }
        let busy = revoked.counts().received > 0 && kept.counts().received > 0;
        let written = now();
        self.site.write(file, &shop::edited())?;
        let status = self.agent.wait_for_revision(revision, POLICIES.len())?;
        self.report_flush(written, &status);
        let stopped = self.wait_for_silence(&revoked, written)?;
        let (count, alive) = (kept.counts().received, self.is_alive(&kept)?);
        match stopped.filter(|_| busy) {
            Some(after) => self.checks.check(
                after < STOP_LIMIT,
                format_args!(
                    "web to api: the established connection stopped {} after the edit",
                    duration_text(after)
                ),
            ),
            None => self
                .checks
                .check(false, "web to api: the established connection stops"),
        }
        self.checks.check(
            alive,
            format_args!(
                "api to db: still established, {count} replies so far, at most {} between two",
                duration_text(kept.counts().longest_silence)
            ),
        );
        let matrix = self.measure(Some(strict))?;
        Ok(EditResult {
            surviving: kept,
            matrix,
        })
    }

    /// Step 5: the explanation of a dropped packet.
    fn show_explanation(&mut self) -> Result<(), DemoError> {
        self.step("Why is web denied? The agent explains");
        self.screen
            .command("palisade explain --from shop/web --to shop/api --port 8080/TCP");
        let question = ["explain", "--from", "shop/web", "--to", "shop/api"];
        self.agent
            .run(&[&question[..], &["--port", "8080/TCP"]].concat())?;
        self.interrupt.check()
    }

    /// Step 6: the counters of each rule.
    fn show_counters(&mut self) -> Result<(), DemoError> {
        self.step("Counters of each rule: an established connection is counted once, every dropped packet is counted");
        self.screen.command("palisade policy get shop/api");
        self.agent.run(&["policy", "get", "shop/api"])?;
        self.interrupt.check()
    }

    /// Step 7: without an agent, and with a restarted one.
    fn restart_agent(&mut self, held: &EditResult) -> Result<(), DemoError> {
        self.step("The agent is killed with SIGKILL: the kernel keeps enforcing");
        self.agent.kill()?;
        let without = ProbeMatrix::measure(&self.site.lab, &self.parties)?;
        self.checks
            .check_unchanged(&without, &held.matrix, "without an agent");
        let (agent, status) = AgentProcess::start(&self.site, &self.interrupt, self.keep, &[])?;
        self.agent = agent;
        let writes = status.dataplane.start.as_ref().map(|start| start.writes);
        let shown = writes.map_or("unknown".to_owned(), |writes| writes.to_string());
        self.checks.check(
            writes == Some(0),
            format_args!(
                "restarted, process {}: kernel writes at start: {shown}",
                status.pid
            ),
        );
        let again = ProbeMatrix::measure(&self.site.lab, &self.parties)?;
        self.checks
            .check_unchanged(&again, &held.matrix, "with the new agent");
        let alive = self.is_alive(&held.surviving)?;
        let counts = held.surviving.counts();
        self.checks.check(
            alive,
            format_args!(
                "api to db: the same connection, {} replies so far, at most {} between two",
                counts.received,
                duration_text(counts.longest_silence)
            ),
        );
        Ok(())
    }

    /// Step 8: removal. Returns the number of failed checks.
    fn remove(mut self) -> Result<usize, DemoError> {
        self.step("Everything is removed");
        for party in PARTIES {
            if party.namespace.is_some() {
                self.plugin.del(&self.site, party)?;
            }
        }
        let left = self.site.workload_interfaces()?;
        self.checks.check(
            left.is_empty(),
            format_args!(
                "palisade-cni DEL: {} detached; remaining interfaces on the host: {}",
                self.interfaces.len(),
                left.len()
            ),
        );
        let Demo {
            parties,
            mut agent,
            site,
            interfaces,
            mut checks,
            ..
        } = self;
        agent.kill()?;
        drop(parties);
        drop(agent);
        let left = site.remove(&interfaces)?;
        let text = if left.is_empty() {
            "left on this machine: 0 namespaces, 0 processes, 0 interfaces, 0 nftables tables, 0 files".to_owned()
        } else {
            format!("left: {}", left.join(", "))
        };
        checks.check(left.is_empty(), text);
        Ok(checks.failed())
    }

    /// Replaces step 8 with --keep: prints how to inspect and how to remove everything.
    fn keep_running(mut self, program: &str) -> Result<usize, DemoError> {
        self.step("Everything is kept (--keep)");
        let palisade = format!("sudo {} --socket {}", program, self.site.socket().display());
        self.screen.detail("inspect it:");
        for command in ["status", "endpoint list", "policy list"] {
            self.screen.command(&format!("{palisade} {command}"));
        }
        let find = |name| self.parties.iter().find(|party| party.party.name == name);
        if let Some(address) = find("api").and_then(|api| api.address(true)) {
            self.screen.detail(
                "the servers have stopped: an allowed connection is refused at once, a denied one times out:",
            );
            for from in ["stranger", "web"] {
                self.screen.command(&format!(
                    "sudo ip netns exec {} timeout 2 bash -c '</dev/tcp/{address}/8080'",
                    format_args!("{}-{from}", self.site.lab.prefix())
                ));
            }
        }
        self.screen.detail(format_args!(
            "edit the policies and watch the status: {}",
            self.site.policy().display()
        ));
        self.screen.detail("remove it:");
        self.screen
            .command(&self.site.removal_command(self.agent.pid()));
        self.agent.keep();
        self.site.keep();
        Ok(self.checks.failed())
    }

    fn step(&mut self, text: &str) {
        step(self.screen, &mut self.steps, text);
    }

    fn legend(&self) {
        use screen::CellMark::{Closed, Dropped, Opened, Passed};
        let mark = |mark| self.screen.mark(mark);
        let families = if self.site.has_ipv6() {
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
    fn measure(&mut self, before: Option<&ProbeMatrix>) -> Result<ProbeMatrix, DemoError> {
        self.interrupt.check()?;
        let began = now();
        let measured = ProbeMatrix::measure(&self.site.lab, &self.parties)?;
        let took = now() - began;
        measured.print(self.screen, before);
        let written = ProbeMatrix::from_manifests(&self.site.policy(), &self.parties)?;
        self.checks.compare(&measured, &written, |cells| {
            format!(
                "{cells} cells match palisade explain; measured in {}",
                duration_text(took)
            )
        });
        Ok(measured)
    }

    fn report_flush(&self, written: Instant, status: &Status) {
        let took = duration_text(now() - written);
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
    fn open_connection(&self, from: &str, to: &str, v4: bool) -> Result<LongFlow, DemoError> {
        let find = |name: &str| self.parties.iter().find(|party| party.party.name == name);
        let (from, to) = (find(from), find(to));
        let address = to.and_then(|to| Some(SocketAddr::new(to.address(v4)?, to.party.tcp)));
        match (from, address) {
            (Some(from), Some(address)) => from.open_connection(&self.site.lab, address),
            _ => Err(DemoError::problem("the shop has no such party")),
        }
    }

    /// Time from `since` until a connection fell silent; `None` if it does not.
    fn wait_for_silence(
        &self,
        connection: &LongFlow,
        since: Instant,
    ) -> Result<Option<Duration>, DemoError> {
        while now() - since < STOP_LIMIT + SILENCE {
            let silent_for = connection.counts().silent_for;
            if silent_for >= SILENCE {
                return Ok(Some((now() - since).saturating_sub(silent_for)));
            }
            self.interrupt.wait(Duration::from_millis(20))?;
        }
        Ok(None)
    }

    /// Whether a connection still receives replies.
    fn is_alive(&self, connection: &LongFlow) -> Result<bool, DemoError> {
        let count = connection.counts().received;
        let since = now();
        while now() - since < STOP_LIMIT {
            if connection.counts().received > count {
                return Ok(true);
            }
            self.interrupt.wait(Duration::from_millis(10))?;
        }
        Ok(false)
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the demo tells how long things take on a real machine"
)]
fn now() -> Instant {
    Instant::now()
}

/// The product's program, for commands to type.
fn program(folder: &Path) -> String {
    let program = folder.join("palisade");
    let here = std::env::current_dir().unwrap_or_default();
    let short = program.strip_prefix(here).unwrap_or(&program);
    short.display().to_string()
}

//! `make demo-hosts`: the steps of docs/hosts.md, from audit to enforced, on the host of the shop.
//!
//! The manifests are those of the page, so a page that is wrong fails here. An SSH-like session to the host is open
//! from before the first step to the end.

use crate::agent::AgentProcess;
use crate::error::DemoError;
use crate::{Demo, now};
use palisade_api::Status;
use palisade_testkit::lab::{
    LongFlow, NodeId, TcpEcho, connect, has_ipv6, ping, translate_destination,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const PAGE: &str = include_str!("../../../../docs/hosts.md");

/// The node of the page.
const NODE: [&str; 2] = ["--node-name", "node-1"];
/// The argument of the page that puts every host endpoint in audit.
const AUDIT: &str = "--host-policy-audit";

/// The ports at which the host itself is served: any, the kubelet's, SSH.
const HOST_PORTS: [u16; 3] = [8080, 10250, 22];
/// The port of the host that is translated to the shop's web.
const NODE_PORT: u16 = 30080;

/// Timeouts of the first and the second attempt of a probe.
const ATTEMPTS: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(700)];
/// Time in which the session has had its first answers.
const SESSION_BEGINS: Duration = Duration::from_millis(200);
/// Interval between two messages of the session.
const PACE: Duration = Duration::from_millis(10);

/// What is asked with packets, in the order of [`PROBES`].
#[derive(Clone, Copy)]
enum Probe {
    HostPort(u16),
    Ping,
    FromHost,
    Forwarded,
    NodePort,
}

/// Each probe with its text and whether it is answered once the page is enforced.
const PROBES: [(&str, Probe, bool); 7] = [
    (
        "outside to the host, 8080/TCP",
        Probe::HostPort(8080),
        false,
    ),
    (
        "outside to the host, 10250/TCP: the kubelet, from 10.0.0.0/8 only",
        Probe::HostPort(10250),
        false,
    ),
    (
        "outside to the host, 22/TCP: failsafe",
        Probe::HostPort(22),
        true,
    ),
    ("outside pings the host", Probe::Ping, true),
    ("the host to outside, 443/TCP", Probe::FromHost, true),
    (
        "outside to shop/db, 5432/TCP: forwarded",
        Probe::Forwarded,
        false,
    ),
    (
        "outside to the host, 30080/TCP: translated to shop/web",
        Probe::NodePort,
        false,
    ),
];

/// Runs the steps; the demo is built already, its agent with [`arguments`].
pub(crate) fn run(mut demo: Demo) -> Result<usize, DemoError> {
    let blocks = blocks();
    let [endpoint, node, forward, node_ports, ..] = &blocks[..] else {
        return Err(DemoError::problem(
            "docs/hosts.md has fewer manifests than steps",
        ));
    };
    let host = HostSide::serve(&demo)?;
    demo.interrupt.wait(SESSION_BEGINS)?;
    demo.step("Without a host endpoint: everything is open, and an SSH-like session is opened");
    host.check(&mut demo, "open", |_| true)?;
    let steps = [
        (
            "1.yaml",
            endpoint,
            0,
            "In audit: a host endpoint for every interface",
        ),
        ("2.yaml", node, 1, "In audit: what the host needs"),
        ("3.yaml", forward, 2, "In audit: what the host forwards"),
        (
            "4.yaml",
            node_ports,
            3,
            "In audit: ports that are translated",
        ),
    ];
    for (name, text, policies, title) in steps {
        demo.step(title);
        let before = demo.agent.status()?;
        demo.site.write(name, text)?;
        for line in text.lines().take_while(|line| *line != "spec:") {
            demo.screen.edit('+', line);
        }
        let written = now();
        let status = demo.agent.wait_for_revision(before.revision, policies)?;
        demo.report_flush(written, &status);
        host.check(&mut demo, "in audit nothing is denied", |_| true)?;
    }
    demo.step("What would be denied");
    demo.screen
        .command("palisade monitor --audit --last 5 --no-follow");
    demo.agent
        .run(&["monitor", "--audit", "--last", "5", "--no-follow"])?;
    let counted = would_deny(&mut demo)?;
    demo.checks.check(
        counted > 0,
        format_args!("palisade status: {counted} packets would be denied"),
    );
    demo.step("Enforced: the agent is restarted without --host-policy-audit");
    demo.agent.kill()?;
    let (agent, _) = AgentProcess::start(&demo.site, &demo.interrupt, demo.keep, &NODE)?;
    demo.agent = agent;
    demo.agent.wait_for_revision(0, 3)?;
    host.check(&mut demo, "as the page says", |enforced| enforced)?;
    demo.screen
        .command("palisade explain --from 203.0.113.9 --to host:node-1 --port 8080/TCP");
    let question = ["explain", "--from", "203.0.113.9", "--to", "host:node-1"];
    demo.agent
        .run(&[&question[..], &["--port", "8080/TCP"]].concat())?;
    demo.step("The host endpoint is deleted: the host is open again");
    let before = demo.agent.status()?;
    demo.site.remove_manifest("1.yaml")?;
    demo.agent.wait_for_revision(before.revision, 3)?;
    host.check(&mut demo, "open", |_| true)?;
    drop(host);
    demo.remove()
}

/// The arguments of the agent at first.
pub(crate) fn arguments() -> Vec<&'static str> {
    [&NODE[..], &[AUDIT]].concat()
}

/// The manifests of the page.
fn blocks() -> Vec<String> {
    let blocks = PAGE.split("```yaml\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// The packets that would be denied, once the kernel's counters were read.
fn would_deny(demo: &mut Demo) -> Result<u64, DemoError> {
    let read = |status: Status| status.audit.would_deny.packets;
    for _ in 0..100 {
        let counted = read(demo.agent.status()?);
        if counted > 0 {
            return Ok(counted);
        }
        demo.interrupt.wait(Duration::from_millis(50))?;
    }
    Ok(0)
}

/// The host's own servers, and the session to it.
struct HostSide {
    addresses: Vec<IpAddr>,
    _servers: Vec<TcpEcho>,
    session: LongFlow,
}

impl HostSide {
    fn serve(demo: &Demo) -> Result<HostSide, DemoError> {
        let lab = &demo.site.lab;
        let failed = |error| DemoError::caused("opening ports of the host", &error);
        let servers = HOST_PORTS.map(|port| TcpEcho::start(lab, lab.host(), port));
        let servers = servers.into_iter().collect::<Result<Vec<_>, _>>();
        let all = lab.addresses(lab.host()).iter().copied();
        let addresses: Vec<IpAddr> = all.filter(|at| at.is_ipv4() || has_ipv6()).collect();
        let first = *addresses
            .iter()
            .find(|address| address.is_ipv4())
            .ok_or_else(|| DemoError::problem("the host has no IPv4 address"))?;
        let web = demo.party_address("web")?;
        let sent_to = SocketAddr::new(first, NODE_PORT);
        translate_destination(lab, "tcp", sent_to, SocketAddr::new(web, 80))
            .map_err(|error| DemoError::caused("translating a port of the host", &error))?;
        let servers = servers.map_err(failed)?;
        let session = LongFlow::start(lab, lab.outside(), SocketAddr::new(first, 22), PACE)
            .map_err(|error| DemoError::caused("opening the session", &error))?;
        Ok(HostSide {
            addresses,
            _servers: servers,
            session,
        })
    }

    /// Sends every probe, prints what is answered, and compares it with what is wanted, given whether it is answered
    /// once the page is enforced.
    fn check(
        &self,
        demo: &mut Demo,
        text: &str,
        wanted: impl Fn(bool) -> bool,
    ) -> Result<(), DemoError> {
        let mut right = 0;
        for (name, probe, enforced) in PROBES {
            demo.interrupt.check()?;
            let answered = self.is_answered(demo, probe)?;
            let word = if answered { "answered" } else { "dropped" };
            demo.screen.detail(format_args!("{word:<9} {name}"));
            right += usize::from(answered == wanted(enforced));
        }
        demo.checks.check(
            right == PROBES.len(),
            format_args!("{text}: {right} of {} probes", PROBES.len()),
        );
        let counts = self.session.counts();
        demo.checks.check(
            !counts.ended && counts.silent_for < Duration::from_secs(1) && counts.received > 0,
            format_args!(
                "the session to the host: {} replies so far",
                counts.received
            ),
        );
        Ok(())
    }

    /// Whether a probe is answered over every IP version that it is sent over; these must agree.
    fn is_answered(&self, demo: &Demo, probe: Probe) -> Result<bool, DemoError> {
        let lab = &demo.site.lab;
        let (host, outside) = (lab.host(), lab.outside());
        let own = |port| {
            self.addresses
                .iter()
                .map(move |at| SocketAddr::new(*at, port))
        };
        let (from, targets): (NodeId, Vec<SocketAddr>) = match probe {
            Probe::HostPort(port) => (outside, own(port).collect()),
            Probe::Ping => (outside, own(0).collect()),
            Probe::FromHost => {
                let all = lab.addresses(outside).iter();
                (host, all.map(|at| SocketAddr::new(*at, 443)).collect())
            }
            Probe::Forwarded => (
                outside,
                vec![SocketAddr::new(demo.party_address("db")?, 5432)],
            ),
            Probe::NodePort => {
                let v4 = own(NODE_PORT).filter(SocketAddr::is_ipv4);
                (outside, v4.take(1).collect())
            }
        };
        let send = |to: SocketAddr, timeout| match probe {
            Probe::Ping => ping(lab, from, to.ip(), timeout),
            _ => connect(lab, from, to, timeout),
        };
        let mut answers = Vec::new();
        for to in targets {
            let mut answered = false;
            for timeout in ATTEMPTS {
                match send(to, timeout) {
                    Ok(()) => {
                        answered = true;
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                    Err(error) => return Err(DemoError::caused(&format!("probing {to}"), &error)),
                }
            }
            answers.push(answered);
        }
        if answers.iter().all(|answered| *answered == answers[0]) {
            Ok(answers[0])
        } else {
            Err(DemoError::problem(format!(
                "IP versions differ: {answers:?}"
            )))
        }
    }
}

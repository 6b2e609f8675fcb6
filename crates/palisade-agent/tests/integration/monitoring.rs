//! Packet reports of the core: rules with file and line, names, past tables, rate limits and losses.

use crate::requests::CoreRequests;
use crate::support::{OnHost, TestHost, host_drivers};
use palisade_agent::core::{Core, CoreEvent, CoreParts};
use palisade_api::{
    LossCause, MonitorLine, MonitorQuery, MonitorVerdict, PacketEvent, PacketReason,
    WorkloadAddRequest,
};
use palisade_config::Config;
use palisade_dataplane::{PacketReport, PacketReportBatch};
use palisade_generators::line;
use palisade_model::{
    Action, Direction, Endpoint, L4, Object, ObjectKey, Policy, PolicyId, Protocol, SourceLine,
    Update,
};
use palisade_monitor::MonitorBatch;
use palisade_node::clock::Clock;
use palisade_node::workload_store::pod_id;
use palisade_source::UpdateBatch;
use palisade_tables::Packet;
use palisade_tables::ReportReason;
use palisade_testkit::FakeDataplane;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A host on which every operation succeeds.
struct Host;

impl TestHost for Host {}

/// A clock that tests set, in milliseconds.
#[derive(Clone)]
struct Stopped(Arc<AtomicU64>, Instant);

impl Stopped {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl Clock for Stopped {
    fn wall(&self) -> Duration {
        self.now()
    }

    fn monotonic(&self) -> Instant {
        self.1 + self.now()
    }
}

struct Site {
    core: Core,
    clock: Stopped,
    interface: String,
    own: IpAddr,
    _dir: tempfile::TempDir,
}

const PEER: [u8; 4] = [10, 9, 0, 1];

fn peer(addresses: &[[u8; 4]]) -> Update {
    Update::Upsert(Object::Endpoint(Endpoint {
        addresses: addresses.iter().map(|a| (*a).into()).collect(),
        created: 1,
        ..line::endpoint("far/peer")
    }))
}

/// An ingress policy for all endpoints: port 80 is logged, then allowed; port 81 is denied; the rest is
/// denied by default. The rules begin at this line of p.yaml.
fn policy(line: u32, denied: u16) -> Update {
    let at = |line| SourceLine::new("p.yaml", line);
    let written = [
        "log on TCP/80".to_owned(),
        "allow on TCP/80".to_owned(),
        format!("deny on TCP/{denied}"),
    ];
    let rules = (0..).zip(written).map(|(index, written)| {
        let mut rule = line::rule(&written);
        let port = if index == 2 { denied } else { 80 };
        rule.origin.fingerprint = u64::from(index) + 1 + u64::from(port) * 10;
        rule.origin.line = Some(at(line + index));
        rule
    });
    let policy = line::policy("shop/p", rules);
    Update::Upsert(Object::Policy(Policy {
        id: PolicyId {
            object: pod_id("shop", "p"),
            part: 0,
        },
        line: Some(at(line - 1)),
        ..policy
    }))
}

impl Site {
    fn open() -> Self {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let clock = Stopped(Arc::new(AtomicU64::new(100_000)), Instant::now());
        let dir = tempfile::tempdir().unwrap();
        let flags = BTreeMap::from([
            ("state-dir".to_owned(), dir.path().display().to_string()),
            ("monitor-rate".to_owned(), "3".to_owned()),
        ]);
        let mut core = Core::new(CoreParts {
            config: Config::resolve(&flags, |_| None, None).unwrap(),
            dataplane: Box::new(FakeDataplane::new()),
            host: host_drivers(OnHost(Host)),
            clock: Box::new(clock.clone()),
            sources: vec![("directory".to_owned(), "/x".to_owned())],
        });
        core.handle_event(CoreEvent::Source(UpdateBatch {
            updates: vec![peer(&[PEER])],
            in_sync: true,
            ..UpdateBatch::default()
        }));
        let added = core
            .add_workload(&WorkloadAddRequest {
                netns: "web".to_owned(),
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                ..WorkloadAddRequest::default()
            })
            .unwrap();
        Site {
            core,
            clock,
            interface: added.host_interface,
            own: added.addresses[0].parse().unwrap(),
            _dir: dir,
        }
    }

    fn update(&mut self, update: Update) {
        self.core.handle_event(CoreEvent::Source(UpdateBatch {
            updates: vec![update],
            in_sync: true,
            ..UpdateBatch::default()
        }));
    }

    /// A packet from the peer to the workload's port.
    fn sighting(&self, why: ReportReason, port: u16, at: u64) -> PacketReport {
        PacketReport {
            time: Some(Duration::from_millis(at)),
            reason: why,
            reply: false,
            packet: Packet {
                input_interface: Some("eth0".into()),
                output_interface: Some(self.interface.as_str().into()),
                source: PEER.into(),
                destination: self.own,
                protocol: Protocol::TCP,
                l4: L4::Ports {
                    source: 40_000,
                    destination: port,
                },
                pre_dnat: None,
            },
            is_pre_dnat_known: true,
            length: 60,
        }
    }

    fn see(&mut self, packets: Vec<PacketReport>) {
        self.core.monitor().report_packets(MonitorBatch {
            reports: PacketReportBatch {
                packets,
                ..PacketReportBatch::default()
            },
            ..MonitorBatch::default()
        });
    }

    /// The event of one packet.
    fn told(&mut self, sighting: PacketReport) -> PacketEvent {
        // Long enough after the last packet for any rate limit.
        self.clock.set(self.clock.now().as_millis() as u64 + 10_000);
        let mut lines = self.core.monitor().subscribe(MonitorQuery::default());
        self.see(vec![sighting]);
        match serde_json::from_slice(&lines.try_recv().unwrap()).unwrap() {
            MonitorLine::Packet(packet) => *packet,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_packet_is_told_with_the_rule_that_decided_and_its_line() {
    let mut site = Site::open();
    site.update(policy(10, 81));
    let denied = site.told(site.sighting(ReportReason::Denied, 81, 100_500));
    let rule = denied.rule.unwrap();
    assert_eq!((rule.index, rule.action), (2, Some(Action::Deny)));
    assert_eq!(rule.policy.line.as_deref(), Some("p.yaml:12"));
    assert_eq!(
        (denied.reason, denied.verdict),
        (PacketReason::Rule, MonitorVerdict::Denied)
    );
    assert_eq!(denied.endpoint.as_deref(), Some("shop/web"));
    assert_eq!(denied.source.name.as_deref(), Some("peer"));
    assert_eq!(denied.time, "1970-01-01T00:01:40.500000Z");
    assert!(denied.logged.is_empty() && !denied.stale && denied.revision.is_some());

    let logged = site.told(site.sighting(ReportReason::Logged(Direction::Ingress), 80, 100_500));
    assert_eq!(logged.verdict, MonitorVerdict::Allowed);
    assert_eq!(logged.rule.unwrap().index, 1);
    assert_eq!(logged.logged.len(), 1);
    assert_eq!(logged.logged[0].policy.line.as_deref(), Some("p.yaml:10"));

    let default = site.told(site.sighting(ReportReason::Denied, 90, 100_500));
    assert_eq!(
        (default.reason, default.rule),
        (PacketReason::DefaultDeny, None)
    );
    assert_eq!(default.policies[0].line.as_deref(), Some("p.yaml:9"));

    // A denial that these tables would not have made is attributed to nothing.
    let unknown = site.told(site.sighting(ReportReason::Denied, 80, 100_500));
    assert_eq!(
        (unknown.reason, unknown.revision),
        (PacketReason::Unknown, None)
    );

    // A reply of the workload, evaluated as the flow it replies to.
    let mut answer = site.sighting(ReportReason::Denied, 81, 100_500);
    let packet = &mut answer.packet;
    std::mem::swap(&mut packet.input_interface, &mut packet.output_interface);
    std::mem::swap(&mut packet.source, &mut packet.destination);
    packet.l4 = L4::Ports {
        source: 81,
        destination: 40_000,
    };
    answer.reply = true;
    let answer = site.told(answer);
    assert_eq!((answer.rule.unwrap().index, answer.reply), (2, true));
    assert_eq!(answer.source.name.as_deref(), Some("web"));

    // After moving in its file, it is the same rule with another line.
    site.update(policy(20, 81));
    let moved = site.told(site.sighting(ReportReason::Denied, 81, 900_000));
    assert_eq!(
        moved.rule.unwrap().policy.line.as_deref(),
        Some("p.yaml:22")
    );
}

#[test]
fn a_packet_that_was_judged_before_a_change_is_led_back_to_what_judged_it() {
    let mut site = Site::open();
    site.update(policy(10, 81));
    site.clock.set(101_000);
    site.update(policy(10, 82));
    let revision = site.core.status().revision;
    let before = site.told(site.sighting(ReportReason::Denied, 81, 100_900));
    assert_eq!((before.reason, before.stale), (PacketReason::Rule, true));
    assert_eq!(before.revision, Some(revision - 1));
    let rule = before.rule.unwrap();
    assert_eq!(
        (rule.action, rule.policy.line),
        (None, None),
        "that rule is gone"
    );
    let after = site.told(site.sighting(ReportReason::Denied, 81, 101_500));
    assert_eq!(
        (after.reason, after.stale),
        (PacketReason::DefaultDeny, false)
    );
    assert_eq!(after.revision, Some(revision));
}

#[test]
fn an_address_that_was_given_up_is_known_by_name() {
    let mut site = Site::open();
    site.update(policy(10, 81));
    site.clock.set(101_000);
    site.update(Update::Delete(ObjectKey::Endpoint(pod_id("far", "peer"))));
    let event = site.told(site.sighting(ReportReason::Denied, 81, 100_900));
    assert_eq!(event.source.name.as_deref(), Some("peer"));
}

#[test]
fn more_of_one_rule_than_the_rate_is_counted_by_rule_and_others_are_told() {
    let mut site = Site::open();
    site.update(policy(10, 81));
    let mut lines = site.core.monitor().subscribe(MonitorQuery::default());
    let mut packets = vec![site.sighting(ReportReason::Denied, 81, 100_500); 10];
    packets.push(site.sighting(ReportReason::Denied, 90, 100_500));
    site.see(packets);
    site.core.monitor().report_packets(MonitorBatch {
        reports: PacketReportBatch {
            lost: [(ReportReason::Denied, 4)].into(),
            ..PacketReportBatch::default()
        },
        dropped: [(ReportReason::Spoofed, 2)].into(),
    });
    let (mut told, mut lost) = (Vec::new(), Vec::new());
    while let Ok(line) = lines.try_recv() {
        match serde_json::from_slice(&line).unwrap() {
            MonitorLine::Packet(packet) => told.push(packet.reason),
            MonitorLine::Lost(l) => {
                lost.push((l.cause, l.reason, l.rule.map(|r| r.index), l.count))
            }
            MonitorLine::Flow(flow) => panic!("{flow:?}"),
        }
    }
    let rule = PacketReason::Rule;
    assert_eq!(told, [rule, rule, rule, PacketReason::DefaultDeny]);
    let row = |cause, reason, rule, count| (cause, Some(reason), rule, count);
    lost.sort();
    assert_eq!(
        lost,
        [
            row(LossCause::Agent, PacketReason::Spoofed, None, 2),
            row(LossCause::Kernel, PacketReason::Denied, None, 4),
            row(LossCause::Rate, PacketReason::Rule, Some(2), 7),
        ]
    );
}

//! What the core tells of packets that a dataplane saw: rules with file and line, names, the past,
//! rates and losses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use palisade_agent::addresses::Survey;
use palisade_agent::attach::{AddressUse, Attach, AttachError, Found, Inside, Tenancy};
use palisade_agent::clock::Clock;
use palisade_agent::config::Config;
use palisade_agent::core::{Core, Event, Parts};
use palisade_agent::monitor::Seen;
use palisade_agent::record::{Record, pod_id};
use palisade_agent::settings::SettingsFile;
use palisade_api::{MonitorLine, MonitorQuery, MonitorVerdict, PacketEvent, WorkloadAdd};
use palisade_dataplane::{FakeDataplane, Sighting, Sightings, Why};
use palisade_model::{
    Action, Direction, DirectionRules, Endpoint, L4, Labels, Object, ObjectKey, Order, Peer,
    Policy, PolicyId, PortMatch, PortRange, PortSpec, Precedence, Profile, Protocol, Rule,
    RuleOrigin, Selector, SourceLine, Traffic, Update,
};
use palisade_source::Batch;
use palisade_sys::netns::{NetNs, Opener};
use palisade_tables::Packet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A host on which everything works.
struct Host;

impl Attach for Host {
    fn join(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn furnish(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn outside_mtu(&mut self) -> Result<Option<u32>, AttachError> {
        Ok(None)
    }

    fn survey(&mut self, _: &str) -> Result<Survey, AttachError> {
        Ok(Survey::default())
    }

    fn opener(&self) -> Option<Opener> {
        None
    }

    fn hold(&mut self, _: Option<NetNs>) {}

    fn tenancy(&mut self, _: &Record) -> Result<Tenancy, AttachError> {
        Ok(Tenancy::default())
    }

    fn address_use(
        &mut self,
        _: IpAddr,
        _: Option<palisade_model::Prefix>,
        _: bool,
    ) -> Result<Option<AddressUse>, AttachError> {
        Ok(None)
    }

    fn index_of(&mut self, _: &str) -> Result<Option<u32>, AttachError> {
        Ok(None)
    }

    fn name_of(&mut self, _: u32) -> Result<Option<String>, AttachError> {
        Ok(None)
    }

    fn inside(&mut self, record: &Record) -> Result<Inside, AttachError> {
        Err(AttachError::Gone(record.inside.clone()))
    }

    fn open(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn part(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn is_joined(&mut self, _: &Record) -> Result<bool, AttachError> {
        Ok(true)
    }

    fn look(&mut self, records: &[Record]) -> Result<Vec<Found>, AttachError> {
        Ok(records.iter().map(|_| Found::Whole).collect())
    }

    fn rename_back(&mut self, _: &Record, _: &str) -> Result<(), AttachError> {
        Ok(())
    }

    fn keep_forwarding(&mut self, _: &str, _: &SettingsFile) -> Result<Vec<String>, AttachError> {
        Ok(Vec::new())
    }

    fn netns_exists(&self, _: &Record) -> bool {
        true
    }
}

/// A clock that stands where it is set, in milliseconds.
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
        id: pod_id("far", "peer"),
        host: false,
        labels: Labels::new(),
        service_account: None,
        node: None,
        interface: None,
        addresses: addresses.iter().map(|a| (*a).into()).collect(),
        ports: Vec::new(),
        profiles: vec![Profile::ALLOW_ALL.into()],
        created: 1,
        owner: None,
        template: false,
    }))
}

/// Ingress of everything: what goes to port 80 is logged, then allowed; to 81 denied; the rest is
/// denied by default. The rules begin at this line of p.yaml.
fn policy(line: u32, denied: u16) -> Update {
    let rule = |index: u32, action, port: u16| Rule {
        origin: RuleOrigin {
            index,
            name: None,
            fingerprint: u64::from(index) + 1 + u64::from(port) * 10,
            line: Some(SourceLine {
                file: "p.yaml".into(),
                line: line + index,
            }),
        },
        action,
        peers: vec![Peer::any()],
        own: None,
        traffic: vec![Traffic {
            protocol: Some(Protocol::TCP),
            destination: PortMatch::of([PortSpec::Range(PortRange {
                first: port,
                last: port,
            })]),
            ..Traffic::any()
        }],
    };
    Update::Upsert(Object::Policy(Policy {
        id: PolicyId {
            object: pod_id("shop", "p"),
            part: 0,
        },
        tier: "default".into(),
        precedence: Precedence {
            order: Order::At(1.0),
            rank: 1,
        },
        subject: Selector::all(),
        ingress: Some(DirectionRules {
            default_deny: true,
            rules: vec![
                rule(0, Action::Log, 80),
                rule(1, Action::Allow, 80),
                rule(2, Action::Deny, denied),
            ],
        }),
        egress: None,
        line: Some(SourceLine {
            file: "p.yaml".into(),
            line: line - 1,
        }),
    }))
}

impl Site {
    fn open() -> Self {
        #[allow(
            clippy::disallowed_methods,
            reason = "an arbitrary point to count from"
        )]
        let clock = Stopped(Arc::new(AtomicU64::new(100_000)), Instant::now());
        let dir = tempfile::tempdir().unwrap();
        let flags = BTreeMap::from([
            ("state-dir".to_owned(), dir.path().display().to_string()),
            ("monitor-rate".to_owned(), "3".to_owned()),
        ]);
        let mut core = Core::new(Parts {
            config: Config::resolve(&flags, |_| None, None).unwrap(),
            dataplane: Box::new(FakeDataplane::new()),
            attach: Box::new(Host),
            clock: Box::new(clock.clone()),
            source: ("directory".to_owned(), "/x".to_owned()),
        });
        core.take(Event::Source(Batch {
            updates: vec![peer(&[PEER])],
            in_sync: true,
            ..Batch::default()
        }));
        let added = core
            .add_workload(&WorkloadAdd {
                netns: "web".to_owned(),
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                ..WorkloadAdd::default()
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
        self.core.take(Event::Source(Batch {
            updates: vec![update],
            in_sync: true,
            ..Batch::default()
        }));
    }

    /// A packet from the peer to the workload's port.
    fn sighting(&self, why: Why, port: u16, at: u64) -> Sighting {
        Sighting {
            time: Some(Duration::from_millis(at)),
            why,
            reply: false,
            packet: Packet {
                from: Some("eth0".into()),
                to: Some(self.interface.as_str().into()),
                source: PEER.into(),
                destination: self.own,
                protocol: Protocol::TCP,
                l4: L4::Ports {
                    source: 40_000,
                    destination: port,
                },
            },
            length: 60,
        }
    }

    fn see(&mut self, packets: Vec<Sighting>) {
        self.core.see(Seen {
            sightings: Sightings {
                packets,
                ..Sightings::default()
            },
            ..Seen::default()
        });
    }

    /// What is told of one packet.
    fn told(&mut self, sighting: Sighting) -> PacketEvent {
        // Far enough from the last for any rate.
        self.clock.set(self.clock.now().as_millis() as u64 + 10_000);
        let mut lines = self.core.listen(MonitorQuery::default());
        self.see(vec![sighting]);
        match serde_json::from_slice(&lines.try_recv().unwrap()).unwrap() {
            MonitorLine::Packet(packet) => *packet,
            MonitorLine::Lost(lost) => panic!("{lost:?}"),
        }
    }
}

#[test]
fn a_packet_is_told_with_the_rule_that_decided_and_its_line() {
    let mut site = Site::open();
    site.update(policy(10, 81));
    let denied = site.told(site.sighting(Why::Denied, 81, 100_500));
    let rule = denied.rule.unwrap();
    assert_eq!((rule.index, rule.action.as_deref()), (2, Some("deny")));
    assert_eq!(rule.policy.line.as_deref(), Some("p.yaml:12"));
    assert_eq!(
        (&*denied.reason, denied.verdict),
        ("rule", MonitorVerdict::Denied)
    );
    assert_eq!(denied.endpoint.as_deref(), Some("shop/web"));
    assert_eq!(denied.source.name.as_deref(), Some("peer"));
    assert_eq!(denied.time, "1970-01-01T00:01:40.500000Z");
    assert!(denied.logged.is_empty() && !denied.stale && denied.revision.is_some());

    let logged = site.told(site.sighting(Why::Logged(Direction::Ingress), 80, 100_500));
    assert_eq!(logged.verdict, MonitorVerdict::Allowed);
    assert_eq!(logged.rule.unwrap().index, 1);
    assert_eq!(logged.logged.len(), 1);
    assert_eq!(logged.logged[0].policy.line.as_deref(), Some("p.yaml:10"));

    let default = site.told(site.sighting(Why::Denied, 90, 100_500));
    assert_eq!((&*default.reason, default.rule), ("default-deny", None));
    assert_eq!(default.policies[0].line.as_deref(), Some("p.yaml:9"));

    // A denial that these tables would not have made is led back to nothing.
    let unknown = site.told(site.sighting(Why::Denied, 80, 100_500));
    assert_eq!((&*unknown.reason, unknown.revision), ("unknown", None));

    // An answer of the workload, judged as what it answers.
    let mut answer = site.sighting(Why::Denied, 81, 100_500);
    let packet = &mut answer.packet;
    std::mem::swap(&mut packet.from, &mut packet.to);
    std::mem::swap(&mut packet.source, &mut packet.destination);
    packet.l4 = L4::Ports {
        source: 81,
        destination: 40_000,
    };
    answer.reply = true;
    let answer = site.told(answer);
    assert_eq!((answer.rule.unwrap().index, answer.reply), (2, true));
    assert_eq!(answer.source.name.as_deref(), Some("web"));

    // Moved in its file, it is the same rule on another line.
    site.update(policy(20, 81));
    let moved = site.told(site.sighting(Why::Denied, 81, 900_000));
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
    let before = site.told(site.sighting(Why::Denied, 81, 100_900));
    assert_eq!((&*before.reason, before.stale), ("rule", true));
    assert_eq!(before.revision, Some(revision - 1));
    let rule = before.rule.unwrap();
    assert_eq!(
        (rule.action, rule.policy.line),
        (None, None),
        "that rule is gone"
    );
    let after = site.told(site.sighting(Why::Denied, 81, 101_500));
    assert_eq!((&*after.reason, after.stale), ("default-deny", false));
    assert_eq!(after.revision, Some(revision));
}

#[test]
fn an_address_that_was_given_up_is_known_by_name() {
    let mut site = Site::open();
    site.update(policy(10, 81));
    site.clock.set(101_000);
    site.update(Update::Delete(ObjectKey::Endpoint(pod_id("far", "peer"))));
    let event = site.told(site.sighting(Why::Denied, 81, 100_900));
    assert_eq!(event.source.name.as_deref(), Some("peer"));
}

#[test]
fn more_of_one_rule_than_the_rate_is_counted_by_rule_and_others_are_told() {
    let mut site = Site::open();
    site.update(policy(10, 81));
    let mut lines = site.core.listen(MonitorQuery::default());
    let mut packets = vec![site.sighting(Why::Denied, 81, 100_500); 10];
    packets.push(site.sighting(Why::Denied, 90, 100_500));
    site.see(packets);
    site.core.see(Seen {
        sightings: Sightings {
            lost: [(Why::Denied, 4)].into(),
            ..Sightings::default()
        },
        left_out: [(Why::Spoofed, 2)].into(),
    });
    let (mut told, mut lost) = (Vec::new(), Vec::new());
    while let Ok(line) = lines.try_recv() {
        match serde_json::from_slice(&line).unwrap() {
            MonitorLine::Packet(packet) => told.push(packet.reason),
            MonitorLine::Lost(l) => {
                lost.push((l.cause, l.reason, l.rule.map(|r| r.index), l.count))
            }
        }
    }
    assert_eq!(told, ["rule", "rule", "rule", "default-deny"]);
    let row = |cause: &str, reason: &str, rule, count| {
        (cause.to_owned(), Some(reason.to_owned()), rule, count)
    };
    lost.sort();
    assert_eq!(
        lost,
        [
            row("agent", "spoofed", None, 2),
            row("kernel", "denied", None, 4),
            row("rate", "rule", Some(2), 7),
        ]
    );
}

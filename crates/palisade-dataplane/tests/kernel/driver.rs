//! The nftables dataplane with real packets between two namespaces.

use crate::need_root;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use palisade_dataplane::nftables::Config;
use palisade_dataplane::{
    CounterJournal, CounterValue, Dataplane, DriverError, DriverErrorKind, PolicyDriver,
    StepObserver, TamperEvent,
};
use palisade_model::{Direction, Prefix, Protocol};
use palisade_sys::link::{IpNet as Net, KernelLinks};
use palisade_sys::link::{LinkChange, MacAddr, Neighbour, Route, VethEnd};
use palisade_sys::netns::run_in;
use palisade_sys::sysctl::{KernelSysctl, Sysctl};
use palisade_tables::{
    Cell, ClassId, Delta, DeltaStep, IdentityId, Phase, Point, PolicySet, PolicySetId, PortMap,
    Program, ReportReason, RuleId, TableChange, Tables, Verdict, VerdictCause,
};
use palisade_testkit::CountedDriver;
use palisade_testkit::test_driver::open_driver;

use crate::support::TestNetNs;

pub(crate) const A: [u8; 4] = [10, 20, 0, 1];
pub(crate) const B: [u8; 4] = [10, 20, 0, 2];
const GATEWAY: [u8; 4] = [169, 254, 1, 1];
/// How long a packet may take that must arrive: kernels of busy machines are late.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a packet is awaited that must not arrive.
const BRIEF: Duration = Duration::from_millis(60);

/// A host that routes between two pods.
pub(crate) struct Place {
    pub(crate) host: TestNetNs,
    a: TestNetNs,
    b: TestNetNs,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Place {
            host: TestNetNs::new("host"),
            a: TestNetNs::new("a"),
            b: TestNetNs::new("b"),
        };
        let mut host = KernelLinks::open(&place.host.netns).unwrap();
        let mut sysctl = KernelSysctl::new(&place.host.netns);
        sysctl.set("net/ipv4/ip_forward", "1").unwrap();
        for (pod, link, address) in [(&place.a, "pal-a", A), (&place.b, "pal-b", B)] {
            let mac = MacAddr([0xee; 6]);
            let end = VethEnd {
                name: link.into(),
                mac: Some(mac),
                ..VethEnd::default()
            };
            let peer = VethEnd {
                name: "eth0".into(),
                netns: Some(pod.netns.clone()),
                ..VethEnd::default()
            };
            host.create_veth(&end, &peer).unwrap();
            host.change_link(link, &LinkChange::Up).unwrap();
            host.replace_route(&Route::device(Net::host(address.into()), link))
                .unwrap();
            let mut inside = KernelLinks::open(&pod.netns).unwrap();
            inside
                .add_address("eth0", Net::host(address.into()))
                .unwrap();
            inside.change_link("eth0", &LinkChange::Up).unwrap();
            inside
                .set_neighbour(&Neighbour::permanent("eth0", GATEWAY.into(), mac))
                .unwrap();
            let any = Net::new([0, 0, 0, 0].into(), 0);
            inside
                .replace_route(&Route::via_on_link(any, GATEWAY.into(), "eth0"))
                .unwrap();
        }
        place.await_path();
        place
    }

    /// Waits until packets pass: the kernel activates a link some time after it is up, and drops what is sent before.
    fn await_path(&self) {
        let (a, b) = self.sockets(5000);
        a.set_read_timeout(Some(BRIEF)).unwrap();
        b.set_read_timeout(Some(BRIEF)).unwrap();
        let mut buffer = [0; 8];
        let began = Instant::now();
        loop {
            a.send_to(b"x", b.local_addr().unwrap()).unwrap();
            if let Ok((_, peer)) = b.recv_from(&mut buffer) {
                b.send_to(b"y", peer).unwrap();
                if a.recv(&mut buffer).is_ok() {
                    return;
                }
            }
            assert!(began.elapsed() < PATIENCE, "the host does not route");
        }
    }

    pub(crate) fn driver(&self) -> CountedDriver {
        let config = Config {
            deny_action: palisade_model::DenyAction::Drop,
            table: "t".into(),
            ..Config::default()
        };
        open_driver(config, &self.host.netns).unwrap().into()
    }

    /// Sends a packet from each of these ports of a.
    pub(crate) fn send_from(&self, ports: std::ops::Range<u16>, to: std::net::SocketAddr) {
        let send = || {
            for port in ports {
                let socket = UdpSocket::bind((std::net::IpAddr::from(A), port)).unwrap();
                socket.send_to(b"x", to).unwrap();
            }
        };
        run_in(&self.a.netns, send).unwrap();
    }

    pub(crate) fn sockets(&self, port: u16) -> (UdpSocket, UdpSocket) {
        let socket = |space: &TestNetNs, address: [u8; 4], port| {
            let socket = run_in(&space.netns, || {
                UdpSocket::bind((std::net::IpAddr::from(address), port))
            })
            .unwrap()
            .unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        (socket(&self.a, A, 0), socket(&self.b, B, port))
    }
}

pub(crate) fn passes(from: &UdpSocket, to: &UdpSocket) -> bool {
    let mut buffer = [0; 8];
    from.send_to(b"x", to.local_addr().unwrap()).unwrap();
    to.recv(&mut buffer).is_ok()
}

/// Whether nothing arrives of what is sent.
pub(crate) fn is_dropped(from: &UdpSocket, to: &UdpSocket) -> bool {
    to.set_read_timeout(Some(BRIEF)).unwrap();
    let is_dropped = !passes(from, to);
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    is_dropped
}

fn answers(from: &UdpSocket, to: &UdpSocket) -> bool {
    let mut buffer = [0; 8];
    from.send_to(b"x", to.local_addr().unwrap()).unwrap();
    let Ok((_, peer)) = to.recv_from(&mut buffer) else {
        return false;
    };
    to.send_to(b"y", peer).unwrap();
    from.recv(&mut buffer).is_ok()
}

fn cell(verdict: Verdict, rule: u32) -> Cell {
    Cell {
        verdict,
        causes: vec![RuleId(rule)],
        log: None,
        audit: None,
        redirect: None,
    }
}

/// Allows these UDP ports by rule `allow`, denies the rest by rule `deny`.
pub(crate) fn ports(ports: &[u16], allow: u32, deny: u32) -> Program {
    let denied = cell(Verdict::Deny, deny);
    let mut segments = Vec::new();
    for &port in ports {
        segments.push((port - 1, PortMap::constant(denied.clone())));
        segments.push((port, PortMap::constant(cell(Verdict::Allow, allow))));
    }
    segments.push((u16::MAX, PortMap::constant(denied.clone())));
    let map = PortMap::from_segments(segments).unwrap();
    Program::new([(Protocol(17), map)], denied)
}

fn cause(rule: u32) -> Arc<VerdictCause> {
    Arc::new(VerdictCause::MissingProfile {
        profile: format!("rule {rule}").as_str().into(),
        direction: Direction::Ingress,
    })
}

/// Egress all allowed by rule 1; ingress of b: UDP 5001 by rule 2, else denied by rule 3; ingress
/// of a: all denied by rule 4.
pub(crate) fn tables() -> Tables {
    let mut tables = Tables::default();
    let constant = |verdict, rule| Arc::new(Program::constant(cell(verdict, rule)));
    tables.programs = [
        (ClassId(1), constant(Verdict::Allow, 1)),
        (ClassId(2), Arc::new(ports(&[5001], 2, 3))),
        (ClassId(3), constant(Verdict::Deny, 4)),
    ]
    .into();
    tables.rules = (1..=4).map(|rule| (RuleId(rule), cause(rule))).collect();
    for (interface, address, number, ingress) in [("pal-a", A, 1, 3), ("pal-b", B, 2, 2)] {
        tables.interfaces.insert(interface.into());
        tables
            .addresses
            .insert(Prefix::host(address.into()), IdentityId(number));
        for (direction, set, class) in [
            (Direction::Egress, PolicySetId(10), ClassId(1)),
            (Direction::Ingress, PolicySetId(number), ClassId(ingress)),
        ] {
            let point = Point::of_workload(interface.into(), address.into(), direction);
            tables.points.insert(point, set);
            tables.sets.insert(set, PolicySet { default: class });
        }
    }
    tables
}

/// The delta that gives `b` another ingress program, as class `class`.
fn replacing(class: u32, program: Program, revoke: bool) -> Delta {
    let mut steps = vec![
        (
            Phase::Split,
            vec![TableChange::Program(
                ClassId(class),
                Some(Arc::new(program)),
            )],
        ),
        (
            if revoke {
                Phase::Tighten
            } else {
                Phase::Loosen
            },
            vec![TableChange::Set(
                PolicySetId(2),
                Some(PolicySet {
                    default: ClassId(class),
                }),
            )],
        ),
    ];
    if revoke {
        steps.push((Phase::Revoke, Vec::new()));
    }
    steps.push((
        Phase::Delete,
        vec![TableChange::Program(ClassId(class - 1), None)],
    ));
    Delta {
        revision: class.into(),
        steps: steps
            .into_iter()
            .map(|(phase, changes)| DeltaStep { phase, changes })
            .collect(),
    }
}

/// The observer of steps is called for each, in order, when the step is in the kernel; an error of it ends the delta, and
/// a resync writes the rest.
#[test]
fn the_step_observer_sees_each_step_when_it_is_written() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    let (a, b) = place.sockets(5001);
    let mut driver = place.driver();
    let mut tables = tables();
    driver.resync(&tables).unwrap();
    assert!(answers(&a, &b));
    let seen: Arc<Mutex<Vec<(usize, Phase)>>> = Arc::default();
    let log = Arc::clone(&seen);
    // One that has sent nothing yet: an established flow passes until it is revoked.
    let bind = || UdpSocket::bind((std::net::IpAddr::from(A), 0));
    let client = run_in(&place.a.netns, bind).unwrap().unwrap();
    let server = b.try_clone().unwrap();
    driver.set_step_observer(Some(StepObserver::new(move |step, phase| {
        // The step that tightens is in force when it is observed, for a new flow as well.
        let is_closed = phase == Phase::Tighten && is_dropped(&client, &server);
        log.lock().unwrap().push((step, phase));
        if is_closed {
            let kind = DriverErrorKind::Retryable;
            return Err(DriverError::new(
                kind,
                "observing",
                "a step",
                "it is closed",
            ));
        }
        Ok(())
    })));
    let mut delta = replacing(4, ports(&[], 2, 3), true);
    // Class 3 belongs to a.
    delta.steps.pop();
    delta.apply_to(&mut tables);
    let error = driver.execute(&delta, &tables).unwrap_err();
    assert!(format!("{error:?}").contains("observing"), "{error:?}");
    assert_eq!(
        *seen.lock().unwrap(),
        [(0, Phase::Split), (1, Phase::Tighten)]
    );
    driver.set_step_observer(None);
    driver.resync(&tables).unwrap();
    assert_eq!(driver.verify(&tables).unwrap().writes, 0);
    assert!(is_dropped(&a, &b));
    assert_eq!(seen.lock().unwrap().len(), 2, "nobody observes any more");
}

fn by_rule(driver: &mut CountedDriver) -> BTreeMap<u32, u64> {
    let counters = driver.counters().unwrap();
    let number = |wanted: &Arc<VerdictCause>| (1..=4).find(|rule| cause(*rule) == *wanted).unwrap();
    counters
        .by_rule
        .iter()
        .map(|(cause, count)| (number(cause), count.packets))
        .collect()
}

#[test]
fn policy_is_enforced_changed_counted_and_repaired() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    let (a, b) = place.sockets(5001);
    let (_, b2) = place.sockets(5002);
    assert!(answers(&a, &b), "the host routes");

    let mut driver = place.driver();
    let mut tables = tables();
    let started = driver.resync(&tables).unwrap();
    assert!(started.writes > 0 && started.generation != 0);
    assert_eq!(driver.verify(&tables).unwrap().writes, 0);
    // The flow existed before the table, and is judged all the same.
    for _ in 0..3 {
        assert!(answers(&a, &b));
        assert!(is_dropped(&a, &b2));
    }
    let counts = by_rule(&mut driver);
    assert_eq!((counts[&2], counts[&3]), (1, 3), "{counts:?}");

    // A new agent on the same input writes nothing, and continues the counts.
    drop(driver);
    let mut driver = place.driver();
    let again = driver.resync(&tables).unwrap();
    assert_eq!((again.writes, again.generation), (0, started.generation));
    assert_eq!(by_rule(&mut driver), counts);

    // Loosened: the other port opens, and the counts stay although their elements were deleted.
    let delta = replacing(4, ports(&[5001, 5002], 2, 3), false);
    // Class 3 belongs to a: keep it, and delete class 2 instead.
    let delta = Delta {
        steps: delta
            .steps
            .into_iter()
            .map(|mut step| {
                for change in &mut step.changes {
                    if *change == TableChange::Program(ClassId(3), None) {
                        *change = TableChange::Program(ClassId(2), None);
                    }
                }
                step
            })
            .collect(),
        ..delta
    };
    delta.apply_to(&mut tables);
    let outcome = driver.execute(&delta, &tables).unwrap();
    assert_eq!(outcome.generation, started.generation);
    assert_eq!(driver.verify(&tables).unwrap().writes, 0);
    assert_eq!(by_rule(&mut driver)[&3], 3);
    assert!(answers(&a, &b2));
    assert!(answers(&a, &b));

    // Tightened: established flows stop too.
    let delta = replacing(5, ports(&[5002], 2, 3), true);
    delta.apply_to(&mut tables);
    let outcome = driver.execute(&delta, &tables).unwrap();
    assert_ne!(outcome.generation, started.generation);
    assert!(is_dropped(&a, &b));
    assert!(answers(&a, &b2));
    assert_eq!(driver.verify(&tables).unwrap().writes, 0);

    // Tampering is reported and repaired; counts are kept.
    let before = by_rule(&mut driver);
    let mut watch = driver.tamper_events().unwrap().remove(0);
    assert_eq!(watch.wait(Duration::from_millis(1)).unwrap(), None);
    for harm in [
        "flush map inet t p_pt4_i",
        "flush chain inet t p_generation",
        "delete table inet t",
    ] {
        place.host.nft(harm);
        let event = watch.wait(Duration::from_secs(5)).unwrap();
        assert!(matches!(event, Some(TamperEvent::Changed { .. })), "{harm}");
        let repaired = driver.verify(&tables).unwrap();
        assert!(repaired.writes > 0, "{harm}");
        assert_eq!(driver.verify(&tables).unwrap().writes, 0, "{harm}");
        assert!(is_dropped(&a, &b), "{harm}");
        assert!(answers(&a, &b2), "{harm}");
        while watch.wait(Duration::from_millis(1)).unwrap().is_some() {}
        let counts = by_rule(&mut driver);
        for (rule, packets) in &before {
            assert!(counts[rule] >= *packets, "{harm}: {before:?} {counts:?}");
        }
    }
    // Changes of other tables are not reported.
    place.host.nft("add table inet other");
    assert_eq!(watch.wait(Duration::from_millis(20)).unwrap(), None);

    driver.remove().unwrap();
    assert_eq!(driver.read_back().unwrap(), None);
    driver.remove().unwrap();
    assert!(answers(&a, &b), "our tables are removed");
    assert!(place.host.nft("list tables").contains("other"));
}

/// A journal that outlives its dataplane.
#[derive(Clone, Default)]
pub(crate) struct MemoryJournal(pub(crate) Arc<Mutex<Vec<u8>>>);

impl CounterJournal for MemoryJournal {
    fn append(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(())
    }

    fn replace(&mut self, text: &[u8]) -> std::io::Result<()> {
        *self.0.lock().unwrap() = text.to_vec();
        Ok(())
    }
}

#[test]
fn counts_survive_edits_and_damage_that_no_agent_saw() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    let (a, b) = place.sockets(5001);
    let (_, b2) = place.sockets(5002);
    let ledger = MemoryJournal::default();
    let driver = || {
        let mut driver = place.driver();
        let text = ledger.0.lock().unwrap().clone();
        let error = driver.ledger.restore(Box::new(ledger.clone()), &text);
        assert!(error.is_none(), "{error:?}");
        driver
    };
    let denied = |times: u64| (0..times).for_each(|_| assert!(is_dropped(&a, &b2)));
    let mut tables = tables();
    let mut first = driver();
    first.resync(&tables).unwrap();
    denied(3);
    drop(first);
    // Packets, and an edit while no agent runs.
    denied(2);
    let mut delta = replacing(4, ports(&[5001, 5003], 2, 3), false);
    // Class 3 belongs to a; class 2 is deleted.
    delta.steps.pop();
    delta.apply_to(&mut tables);
    tables.programs.remove(&ClassId(2));
    let mut second = driver();
    assert!(second.resync(&tables).unwrap().writes > 0);
    assert_eq!(by_rule(&mut second)[&3], 5);
    denied(1);
    drop(second);
    let mut third = driver();
    assert_eq!(third.resync(&tables).unwrap().writes, 0);
    assert_eq!(by_rule(&mut third)[&3], 6);
    // A rule deleted by hand is restored in place: other counters keep counting.
    place.host.nft("flush chain inet t p_generation");
    denied(1);
    assert!(third.verify(&tables).unwrap().writes > 0);
    denied(1);
    assert_eq!(by_rule(&mut third)[&3], 8);
    // An element deleted by hand loses only the counts that were not read yet.
    place.host.nft("flush map inet t p_pt4_i");
    assert!(third.verify(&tables).unwrap().writes > 0);
    assert_eq!(by_rule(&mut third)[&3], 8);
    drop(third);
    place.host.nft("delete table inet t");
    let mut fourth = driver();
    fourth.resync(&tables).unwrap();
    assert_eq!(by_rule(&mut fourth)[&3], 8);
    denied(1);
    assert_eq!(by_rule(&mut fourth)[&3], 9);
    assert!(passes(&a, &b));
}

#[test]
fn drops_without_a_rule_are_told_by_reason() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    let mut driver = place.driver();
    driver.resync(&tables()).unwrap();
    let mut inside = KernelLinks::open(&place.a.netns).unwrap();
    inside
        .add_address("eth0", Net::host([10, 20, 0, 9].into()))
        .unwrap();
    let (_, b) = place.sockets(5001);
    let spoofer = run_in(&place.a.netns, || UdpSocket::bind("10.20.0.9:0").unwrap()).unwrap();
    assert!(is_dropped(&spoofer, &b));
    let reasons = driver.counters().unwrap().by_drop_reason;
    let spoofed = CounterValue {
        packets: 1,
        bytes: 29,
    };
    assert_eq!(reasons.get(&ReportReason::Spoofed), Some(&spoofed));
    assert_eq!(reasons.len(), 4, "{reasons:?}");
}

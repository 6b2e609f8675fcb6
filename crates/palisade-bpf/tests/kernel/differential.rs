//! The decision tables against the programs, with random policies and packets, by test runs: what is delivered is allowed
//! and owes no report, and what may begin a flow and is allowed without a report is delivered.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use palisade_bpf::{BpfObject, Epoch, FastPathMaps, FastPathState, SlotInterface};
use palisade_engine::{Engine, EngineOptions};
use palisade_fast_path::{Projection, SlotRow};
use palisade_generators::lowered::ModelWorld;
use palisade_generators::{Dice, cases, seeded_cases};
use palisade_model::{Direction, L4, Protocol, Str, Update};
use palisade_sys::netns::run_in;
use palisade_tables::{DirectionVerdict, Packet, Tables, Verdict};
use palisade_testkit::lab::{TestNetNs, craft};
use palisade_testkit::need_root;

use crate::fast_path::{add_interface, frame};

/// Interfaces that worlds can have.
const INTERFACES: usize = 12;
/// Packets of one world.
const PACKETS: usize = 40;

/// A packet, and the same as the tables have it.
struct Trial {
    bytes: Vec<u8>,
    packet: Packet,
    /// Whether the fast path may begin its flow.
    may_begin: bool,
}

impl Trial {
    /// A packet between two addresses of workloads: mostly the first of a flow that the fast path may begin.
    fn draw(dice: &mut Dice, from: &SlotRow, to: &SlotRow, number: u16) -> Trial {
        let destination = *dice.pick(&[53, 80, 81, 443, 1_024, 5_432, 8_080, 65_535]);
        let ends: [SocketAddr; 2] = [
            (from.address, number).into(),
            (to.address, destination).into(),
        ];
        let ports = L4::Ports {
            source: number,
            destination,
        };
        let [v4, kind] = if from.address.is_ipv4() {
            [1, 8]
        } else {
            [0, 128]
        };
        let data = b"sixteen bytes...";
        let (bytes, protocol, l4, may_begin) = match dice.below(8) {
            0..3 => (
                craft::tcp(ends[0], ends[1], 2, (1, 0), &[]),
                Protocol::TCP,
                ports,
                true,
            ),
            3..5 => (
                craft::udp(ends[0], ends[1], 1, data),
                Protocol::UDP,
                ports,
                true,
            ),
            5 => {
                let [first, second] = number.to_be_bytes();
                let rest = [first, second, 0, 1];
                let bytes = craft::icmp(from.address, to.address, (kind, 0), rest, data);
                let protocol = if v4 == 1 {
                    Protocol::ICMP
                } else {
                    Protocol::ICMPV6
                };
                (bytes, protocol, L4::Icmp { kind, code: 0 }, true)
            }
            6 => (
                craft::tcp(ends[0], ends[1], 16, (1, 1), data),
                Protocol::TCP,
                ports,
                false,
            ),
            _ => (
                craft::sctp(ends[0], ends[1], 1, data),
                Protocol::SCTP,
                ports,
                false,
            ),
        };
        let packet = Packet {
            input_interface: Some(from.interface.clone()),
            output_interface: Some(to.interface.clone()),
            source: from.address,
            destination: to.address,
            pre_dnat: None,
            protocol,
            l4,
        };
        Trial {
            bytes,
            packet,
            may_begin,
        }
    }

    /// Whether tables allow it in a direction, report nothing, and do not ask for its source port.
    fn is_proven(&self, tables: &Tables, direction: Direction) -> bool {
        let DirectionVerdict::Evaluated(evaluation) =
            tables.judge_direction(&self.packet, direction)
        else {
            return false;
        };
        let program = tables.programs.get(&evaluation.class);
        let map = program.and_then(|program| program.protocol(self.packet.protocol));
        let port = match self.packet.l4 {
            L4::Ports { destination, .. } => destination,
            L4::Icmp { kind, code } => palisade_tables::icmp_key(kind, code),
            L4::None => 0,
        };
        let cell = evaluation.cell;
        cell.verdict == Verdict::Allow
            && cell.log.is_none()
            && cell.audit_report().is_none()
            && cell.redirect.is_none()
            && map.is_none_or(|map| map.get(port).as_constant().is_some())
    }
}

#[test]
fn what_is_delivered_is_allowed_and_what_may_be_is_delivered() {
    if !need_root() {
        return;
    }
    let netns = TestNetNs::new("bpf-pairs").unwrap();
    let indexes: Vec<u32> = (0..INTERFACES)
        .map(|number| add_interface(&netns, &format!("pod{number}")))
        .collect();
    let sizes = [
        ("flows", 64),
        ("endpoints", 256),
        ("ports", 65_536),
        ("classes", 8_192),
    ];
    let loaded = BpfObject::FAST_PATH
        .load_sized(&sizes, |_, _| None)
        .unwrap();
    let maps = FastPathMaps::new(loaded).unwrap();
    maps.configure(1 << 7, 0x5eed);
    maps.set_state(FastPathState::On);
    let program = maps.loaded().program("from_pod").unwrap();
    let mut projection = Projection::new(maps.room().unwrap(), 1, &[]);
    let run = || {
        let (mut delivered, mut passed, mut allowed_slowly) = (0_u64, 0_u64, 0_u64);
        for (seed, case) in seeded_cases(1, cases(3_000)) {
            let world = ModelWorld::generate(seed, case, 0);
            let mut engine = Engine::new(EngineOptions::default());
            let _ = engine.apply(world.state.objects().map(Update::Upsert));
            let tables = engine.tables();
            // From the policies of the former world to those of this one.
            let writes = projection.update(tables, None).unwrap();
            maps.write(&writes).unwrap();
            maps.set_epoch(Epoch {
                generation: 1,
                half: projection.half(),
            });
            maps.clear_flows();
            let names: BTreeMap<Str, u32> = projection
                .slots()
                .map(|slot| slot.interface.clone())
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .zip(indexes.iter().copied())
                .collect();
            for slot in projection.slots() {
                if let Some(index) = names.get(&slot.interface) {
                    let interface = SlotInterface {
                        index: *index,
                        mtu: 1_500,
                    };
                    maps.arm(slot.number, interface);
                } else {
                    maps.disarm(slot.number);
                }
            }
            let mut dice = Dice::new(seed, case);
            let half = projection.half();
            let known: Vec<&SlotRow> = projection
                .slots()
                .filter(|slot| names.contains_key(&slot.interface) && slot.sets[half] != [0; 2])
                .collect();
            for number in 0..PACKETS as u16 {
                if known.len() < 2 {
                    break;
                }
                let [from, to] = [*dice.pick(&known), *dice.pick(&known)];
                let is_same_family = from.address.is_ipv4() == to.address.is_ipv4();
                if !is_same_family || from.interface == to.interface {
                    continue;
                }
                let trial = Trial::draw(&mut dice, from, to, 20_000 + number);
                let (packet, context) = frame(&trial.bytes, names[&from.interface]);
                let result = program.test_run(&packet, &context, 1).unwrap();
                let is_delivered = match result.verdict.cast_signed() {
                    7 => true,
                    -1 => false,
                    other => panic!("seed {seed}, case {case}: verdict {other}"),
                };
                let is_proven = [Direction::Egress, Direction::Ingress]
                    .into_iter()
                    .all(|direction| trial.is_proven(tables, direction));
                let about = || format!("seed {seed}, case {case}: {:?}", trial.packet);
                assert_eq!(is_delivered, trial.may_begin && is_proven, "{}", about());
                let is_allowed = tables.judge(&trial.packet) == Verdict::Allow;
                assert!(is_allowed || !is_delivered, "{}", about());
                match (is_delivered, is_allowed) {
                    (true, _) => delivered += 1,
                    (false, true) => allowed_slowly += 1,
                    (false, false) => passed += 1,
                }
            }
        }
        (delivered, passed, allowed_slowly)
    };
    let (delivered, passed, allowed_slowly) = run_in(netns.netns(), run).unwrap();
    println!(
        "account: of {} packets between workloads by test run the fast path delivers {delivered}, and passes {passed} that \
         are denied and {allowed_slowly} that are allowed",
        delivered + passed + allowed_slowly
    );
    assert!(
        delivered > 100 && passed > 100,
        "{delivered} delivered, {passed} passed"
    );
}

#[test]
fn an_unknown_address_is_never_delivered_to() {
    if !need_root() {
        return;
    }
    let netns = TestNetNs::new("bpf-unknown").unwrap();
    let index = add_interface(&netns, "pod0");
    let loaded = BpfObject::FAST_PATH.load_sized(&[("flows", 64)], |_, _| None);
    let maps = FastPathMaps::new(loaded.unwrap()).unwrap();
    maps.configure(1 << 7, 1);
    maps.set_state(FastPathState::On);
    let ends: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let packet = craft::udp((ends[0], 1).into(), (ends[1], 2).into(), 1, b"data");
    let (packet, context) = frame(&packet, index);
    let program = maps.loaded().program("from_pod").unwrap();
    let run = run_in(netns.netns(), || program.test_run(&packet, &context, 1));
    assert_eq!(run.unwrap().unwrap().verdict.cast_signed(), -1);
}

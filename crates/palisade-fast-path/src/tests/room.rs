//! Who has the room of the maps where there is too little.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use core::net::IpAddr;

use palisade_model::{Direction, Prefix, Protocol};
use palisade_tables::{
    Cell, ClassId, IdentityId, Point, PolicySet, PolicySetId, PortMap, Program, RuleId, Tables,
    Verdict, VerdictCause,
};

use super::ROOM;
use crate::{FastProtocol, Projection, Word};

/// Tables with two workloads, of which the second allows a port and a range of its own to each of so many other
/// addresses, and to the first.
fn crowded_tables(others: u16) -> (Tables, [IpAddr; 2]) {
    let mut tables = Tables::default();
    let set = PolicySetId(1);
    let cell = |verdict, rule: u32| Cell {
        verdict,
        causes: vec![RuleId(rule)],
        log: None,
        audit: None,
        redirect: None,
    };
    let denied = || cell(Verdict::Deny, 0);
    tables
        .programs
        .insert(ClassId(0), Arc::new(Program::constant(denied())));
    let default = PolicySet {
        default: ClassId(0),
    };
    tables.sets.insert(set, default);
    let locals = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse::<IpAddr>().unwrap());
    for number in 0..=others {
        let cause = VerdictCause::MissingProfile {
            profile: format!("{number}").as_str().into(),
            direction: Direction::Ingress,
        };
        let rule = u32::from(number);
        tables.rules.insert(RuleId(rule), Arc::new(cause));
        // The last one is a workload of this host: all others come before it.
        let address = match number {
            number if number == others => locals[0],
            number => IpAddr::from([192, 0, (number >> 8) as u8, number as u8]),
        };
        let (identity, class) = (IdentityId(rule + 1), ClassId(rule + 1));
        tables.addresses.insert(Prefix::host(address), identity);
        let allowed = || PortMap::constant(cell(Verdict::Allow, rule));
        let ports = PortMap::from_segments(vec![
            (number, PortMap::constant(denied())),
            (number + 1, allowed()),
            (number + 2, PortMap::constant(denied())),
            (number + 4, allowed()),
            (u16::MAX, PortMap::constant(denied())),
        ]);
        let protocols = BTreeMap::from([(Protocol::UDP, ports.unwrap())]);
        let program = Program::new(protocols, denied());
        tables.programs.insert(class, Arc::new(program));
        tables.classes.insert((set, identity), class);
    }
    for (address, interface) in locals.iter().zip(["pal-a", "pal-b"]) {
        for direction in Direction::BOTH {
            let point = Point::of_workload(interface.into(), *address, direction);
            tables.points.insert(point, set);
        }
    }
    (tables, locals)
}

/// However many identities other hosts have: what is between workloads of this host has the room that is left to it.
#[test]
fn other_hosts_take_no_room_from_this_one() {
    let others = 400;
    let (tables, [from, to]) = crowded_tables(others);
    for (field, size) in [(0, 64), (1, 64), (2, 64), (3, 64)] {
        let mut room = ROOM;
        let fields = [
            &mut room.classes,
            &mut room.ports,
            &mut room.ranges,
            &mut room.counters,
        ];
        for (at, known) in fields.into_iter().enumerate() {
            if at == field {
                *known = size;
            }
        }
        let networks = [Prefix::ALL_V4, Prefix::ALL_V6];
        let mut projection = Projection::new(room, 1, &networks);
        let _ = projection.update(&tables, None);
        let words = projection.words(from, to, FastProtocol::Udp, others + 1);
        let [_, ingress] = words.unwrap();
        assert!(
            matches!(ingress, Some(Word::Allow(_))),
            "{room:?}: {words:?}"
        );
        assert!(projection.shortage().classes > 0, "{room:?}");
    }
}

//! An agent that starts after another, with 100,000 rows of policy, under traffic.

use std::net::IpAddr;
use std::time::Duration;

use palisade_dataplane::Dataplane as _;
use palisade_model::{Direction, Prefix};
use palisade_tables::{ClassId, IdentityId, Point, PolicySet, PolicySetId, Tables};
use palisade_testkit::need_root;

use super::traffic::{ALWAYS, Traffic};
use crate::flows::fast::{CLOSED, driver};
use crate::flows::place::{Place, tables};

/// Workloads beside the two that packets are sent between, each with a set and an identity of its own.
const WORKLOADS: u32 = 320;
const STARTS: usize = 2;
/// What the time from loading until all interfaces have the new programs is to be.
const AIM: Duration = Duration::from_millis(200);

/// Adds workloads without interfaces: each takes anything from each other.
fn add_workloads(tables: &mut Tables) {
    let [open, closed] = [ClassId(1), ClassId(2)];
    let identity = |number: u32| IdentityId(1_000 + number);
    for number in 0..WORKLOADS {
        let interface = format!("pal-w{number}");
        let [high, low] = [number / 250, number % 250 + 1].map(|part| part as u8);
        let address = IpAddr::from([10, 99, high, low]);
        tables.interfaces.insert(interface.as_str().into());
        tables
            .addresses
            .insert(Prefix::host(address), identity(number));
        for direction in Direction::BOTH {
            let set = PolicySetId(1_000 + 2 * number + direction as u32);
            let is_ingress = direction == Direction::Ingress;
            let default = if is_ingress { closed } else { open };
            tables.sets.insert(set, PolicySet { default });
            let point = Point::of_workload(interface.as_str().into(), address, direction);
            tables.points.insert(point, set);
            if is_ingress {
                for peer in 0..WORKLOADS {
                    tables.classes.insert((set, identity(peer)), open);
                }
            }
        }
    }
}

#[test]
fn a_restart_with_a_hundred_thousand_rows_loses_nothing() {
    if !need_root() {
        return;
    }
    let place = Place::new("restart");
    let mut tables = tables(&CLOSED, &ALWAYS);
    add_workloads(&mut tables);
    let mut current = driver(&place);
    current.resync(&tables).unwrap();
    assert!(current.is_fast(), "{:?}", current.conditions());
    let rows = current.fast_path().unwrap().rows;
    assert!(rows >= 100_000, "{rows}");
    let mut traffic = Traffic::start(&place);
    let mut times = Vec::new();
    for _ in 0..STARTS {
        drop(current);
        current = driver(&place);
        current.resync(&tables).unwrap();
        assert!(current.is_fast(), "{:?}", current.conditions());
        assert_eq!(current.take_hand_over(), None);
        times.push(current.start_time().unwrap());
        traffic.check("after a start");
    }
    traffic.finish("restarts");
    times.sort_unstable();
    println!(
        "account: restart with {rows} rows: {:?} from loading until all interfaces have the new programs ({:?} to {:?}; aim {AIM:?})",
        times[times.len() / 2],
        times[0],
        times[times.len() - 1]
    );
}

//! Packets with a pod's source address that arrive by another interface than the pod's, with reverse-path
//! filters off.

use palisade_dataplane::CounterValue;
use palisade_model::Direction::Ingress;
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::craft::udp;

use super::need_root;
use super::place::{A, Allowed, B, INTERFACES, OUT, Place, tables, tag};

/// Whether a datagram with source address `source`, sent by `from`, arrives at b.
fn passes(place: &Place, from: usize, source: usize, family: usize) -> bool {
    let ends = (Place::at(source, family, 3000), Place::at(B, family, 53));
    place.arrives(from, B, udp(ends.0, ends.1, 1, &tag()))
}

fn spoofed(driver: &mut CountedDriver) -> u64 {
    let reasons = driver.counters().unwrap().by_drop_reason;
    reasons
        .get(&palisade_tables::ReportReason::Spoofed)
        .map_or(0, |count: &CounterValue| count.packets)
}

#[test]
fn nobody_sends_from_a_pods_address_by_another_interface() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("elsewhere");
    let mut driver = place.driver();
    let allowed: [Allowed; 2] = [(A, B, 17, Some(53)), (OUT, B, 17, Some(53))];
    let both = tables(&[(B, Ingress)], &allowed);
    driver.resync(&both).unwrap();
    for family in [0, 1] {
        assert!(
            passes(&place, OUT, OUT, family),
            "{family}: its own address"
        );
        assert!(!passes(&place, OUT, A, family), "{family}: a new flow");
        assert!(passes(&place, A, A, family), "{family}: the pod itself");
        assert!(
            !passes(&place, OUT, A, family),
            "{family}: a flow that is allowed"
        );
    }
    assert_eq!(spoofed(&mut driver), 4);

    // An address that is no longer an endpoint's is treated like any other.
    let mut one = both.clone();
    one.points.retain(|point, _| {
        point
            .workload()
            .is_none_or(|(name, _)| **name != *INTERFACES[A])
    });
    driver.resync(&one).unwrap();
    for family in [0, 1] {
        assert!(
            passes(&place, OUT, A, family),
            "{family}: not an own address"
        );
    }
    driver.resync(&both).unwrap();
    for family in [0, 1] {
        assert!(
            !passes(&place, OUT, A, family),
            "{family}: an own address again"
        );
    }
    assert_eq!(spoofed(&mut driver), 6);

    // Without the tested rules it passes as the pod: the test can detect the fault. Then it is repaired.
    for set in ["p_own4", "p_own6"] {
        place.nft(place.lab.host(), &format!("flush set inet t {set}"));
    }
    for family in [0, 1] {
        assert!(
            passes(&place, OUT, A, family),
            "{family}: without the rules"
        );
    }
    assert!(driver.verify(&both).unwrap().writes > 0);
    for family in [0, 1] {
        assert!(!passes(&place, OUT, A, family), "{family}: repaired");
    }
    assert_eq!(spoofed(&mut driver), 8);
}

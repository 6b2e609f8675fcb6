//! Conntrack marks of other programs are never taken for the live generation.

use palisade_dataplane::PolicyDriver;
use palisade_model::Direction::Ingress;
use palisade_testkit::lab::craft::udp;

use super::need_root;
use super::place::{A, B, Place, tables, tag};

/// Low bits, as written by mwan3 (0x0100 to 0x3f00), kube-proxy (0x4000, 0x8000), CNI plugins of clouds
/// (0x80) and administrators (1, 2, …).
fn foreign() -> Vec<u32> {
    let mwan3 = (1..=0x3f).map(|number| number << 8);
    [
        1, 2, 0x10, 0x80, 0x4000, 0x8000, 0xff00, 0x8_0000, 0xff_0000,
    ]
    .into_iter()
    .chain(mwan3)
    .collect()
}

#[test]
fn a_mark_of_another_program_passes_nothing_that_is_denied() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("marks");
    let mut driver = place.driver();
    let closed = tables(&[(B, Ingress)], &[(A, B, 17, Some(7))]);
    driver.resync(&closed).unwrap();
    let ports = [7, 53];
    for (at, mark) in (0..).zip(foreign()) {
        // Before our table handles the flow.
        place.nft(
            place.lab.host(),
            &format!(
                "add table inet other; delete table inet other; \
                 add table inet other {{ chain c {{ type filter hook prerouting priority -150; \
                 ct mark set {mark}; }}; }}"
            ),
        );
        for family in [0, 1] {
            let send = |port| {
                let ends = (Place::at(A, family, 2000 + at), Place::at(B, family, port));
                place.arrives(A, B, udp(ends.0, ends.1, 1, &tag()))
            };
            assert_eq!(ports.map(send), [true, false], "{mark:#x} {family}");
        }
    }
}

#[test]
fn a_first_generation_is_high_and_another_each_time() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("first");
    let closed = tables(&[(B, Ingress)], &[]);
    for mask in [0xffff_ff00_u32, 0x0000_ff00] {
        let mut seen = Vec::new();
        let highest = 1_u32 << (mask.count_ones() - 2);
        for _ in 0..8 {
            let mut driver = place.driver_with(mask);
            let generation = driver.resync(&closed).unwrap().generation;
            assert!(generation & highest != 0, "{generation:#x} of {mask:#x}");
            seen.push(generation);
            driver.remove().unwrap();
        }
        seen.dedup();
        assert!(seen.len() > 4, "{seen:x?}");
    }
}

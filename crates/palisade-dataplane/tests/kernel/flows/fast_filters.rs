//! Programs that are attached as filters of traffic control: others can delete them, and nothing else does.

use palisade_bpf::BpfObject;
use palisade_dataplane::ebpf::{self, EbpfDataplane, ProgramAttachment};
use palisade_dataplane::{Dataplane as _, FastPathPart};
use palisade_sys::bpf::AttachPoint;
use palisade_sys::link::{KernelLinks, TcFilterId};
use palisade_sys::netns::run_in;
use palisade_testkit::CountedDriver;
use palisade_testkit::test_driver::open_nftables;

use super::fast::{
    CLOSED, attached, attachments, both_interfaces, config, counts, datagram, driver,
};
use super::fast_failures::{ALLOWED, assert_refused, conditions, owned_flows};
use super::need_root;
use super::place::{A, B, Place, tables};

/// Runs `tc` on the host.
fn tc(place: &Place, arguments: &str) {
    let run = || {
        std::process::Command::new("tc")
            .args(arguments.split(' '))
            .output()
    };
    let output = run_in(&place.netns(), run).unwrap().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tc {arguments}: {errors}");
}

/// Adds a filter of somebody else, of a kind that each kernel has.
fn add_foreign(place: &Place, interface: &str, point: AttachPoint) {
    let mut links = KernelLinks::open(&place.netns()).unwrap();
    let index = links.link(interface).unwrap().unwrap().index;
    let loaded = BpfObject::PROBE.load().unwrap();
    let program = loaded.program("probe_features").unwrap();
    let id = TcFilterId {
        priority: 9,
        handle: 1,
    };
    links.add_clsact(index).unwrap();
    links
        .add_filter(index, point, id, (program, "other"))
        .unwrap();
}

/// What a check finds: the part, and what is there.
fn found(driver: &EbpfDataplane) -> Vec<(FastPathPart, String)> {
    let check = driver.fast_path_reader().unwrap().check().unwrap();
    let differences = check.differences.into_iter();
    differences
        .map(|difference| (difference.part, difference.found))
        .collect()
}

#[test]
fn an_interface_with_filters_of_others_is_left_to_nftables() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        others_are_left_alone(attachment);
    }
}

/// With programs that are attached in one way.
fn others_are_left_alone(attachment: ProgramAttachment) {
    let place = Place::quiet("tcothers").attached_by(attachment);
    let closed = tables(&CLOSED, &ALLOWED);
    add_foreign(&place, "pal-b", AttachPoint::Egress);
    let mut driver = driver(&place);
    driver.resync(&closed).unwrap();
    assert!(driver.is_fast());
    assert_refused(&driver, "pal-b", "the tc filter with BPF program");
    assert_eq!(owned_flows(&place, &driver), 0);
    tc(&place, "filter del dev pal-b egress");
    driver.verify(&closed).unwrap();
    assert_eq!(conditions(&driver), []);
    assert_eq!(owned_flows(&place, &driver), 2);
    drop(driver);
    let mut alone: CountedDriver = open_nftables(config(), &place.netns()).unwrap().into();
    alone.resync(&closed).unwrap();
    assert_eq!(attached(&place), [0; 2]);
    // The qdisc that has no place for what goes to the interface.
    tc(&place, "qdisc del dev pal-b clsact");
    tc(&place, "qdisc add dev pal-b ingress");
    let mut again = self::driver(&place);
    again.resync(&closed).unwrap();
    let refused = conditions(&again);
    let refused: Vec<_> = refused.iter().map(|(.., message)| message).collect();
    match attachment {
        ProgramAttachment::TcxLink => assert_eq!(refused, [""; 0]),
        ProgramAttachment::TcFilter => {
            assert!(refused[0].ends_with("the qdisc ingress"), "{refused:?}");
        }
    }
}

#[test]
fn filters_that_others_delete_are_found_and_attached_again() {
    if !need_root() {
        return;
    }
    deleted_filters_are_attached_again(ProgramAttachment::TcFilter);
}

/// Also run in a guest.
pub(super) fn deleted_filters_are_attached_again(attachment: ProgramAttachment) {
    let place = Place::quiet("tccut").attached_by(attachment);
    let closed = tables(&CLOSED, &ALLOWED);
    let mut driver = driver(&place);
    driver.resync(&closed).unwrap();
    assert_eq!(owned_flows(&place, &driver), 2);
    assert_eq!(found(&driver), []);
    assert_eq!(driver.verify(&closed).unwrap().writes, 0);
    let nothing = || (FastPathPart::Program, "nothing".to_owned());
    for (change, missing) in [
        ("qdisc del dev pal-a clsact", 2),
        ("filter del dev pal-b ingress pref 1", 1),
        ("filter del dev pal-b egress", 1),
    ] {
        tc(&place, change);
        assert_eq!(found(&driver), vec![nothing(); missing], "{change}");
        assert_eq!(driver.verify(&closed).unwrap().writes, 1, "{change}");
        assert_eq!(found(&driver), [], "{change}");
        assert_eq!(owned_flows(&place, &driver), 2, "{change}");
    }
    // One beside it, and the folder that stands for one is gone.
    add_foreign(&place, "pal-a", AttachPoint::Ingress);
    let beside = found(&driver);
    assert_eq!(beside.len(), 1, "{beside:?}");
    let count = beside[0]
        .1
        .matches("the tc filter with BPF program")
        .count();
    assert_eq!(count, 2, "{beside:?}");
    tc(&place, "filter del dev pal-a ingress pref 9");
    let mut layouts = std::fs::read_dir(ebpf::pin_folder(&place.netns())).unwrap();
    let links = layouts.next().unwrap().unwrap().path().join("links");
    let mut folders = std::fs::read_dir(links).unwrap();
    std::fs::remove_dir(folders.next().unwrap().unwrap().path()).unwrap();
    assert_eq!(found(&driver), [(FastPathPart::Link, "nothing".to_owned())]);
}

#[test]
fn filters_whose_pins_are_gone_are_deleted() {
    if !need_root() {
        return;
    }
    forgotten_filters_are_deleted(ProgramAttachment::TcFilter);
}

/// With programs that are attached in one way.
fn forgotten_filters_are_deleted(attachment: ProgramAttachment) {
    let place = Place::quiet("tcforgot").attached_by(attachment);
    let folder = ebpf::pin_folder(&place.netns());
    let allowed = tables(&CLOSED, &ALLOWED);
    for is_fast in [false, true] {
        {
            let mut first = driver(&place);
            first.resync(&allowed).unwrap();
            assert_eq!(owned_flows(&place, &first), 2);
        }
        // As a BPF file system that is mounted anew; links would have gone with their pins.
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(attached(&place), both_interfaces(attachment));
        let mut next = if is_fast {
            driver(&place)
        } else {
            open_nftables(config(), &place.netns()).unwrap().into()
        };
        // What they judge by allows it still.
        next.resync(&tables(&CLOSED, &[])).unwrap();
        for family in [0, 1] {
            assert!(!place.arrives(A, B, datagram(A, B, family, [40_001, 53])));
        }
        if is_fast {
            assert_eq!(attached(&place), both_interfaces(attachment));
            assert_eq!(counts(&next).owned, 0);
        } else {
            assert_eq!(attached(&place), [0; 2]);
        }
    }
}

#[test]
fn an_agent_that_attaches_in_the_other_way_detaches_what_is_there() {
    if !need_root() {
        return;
    }
    let all = attachments();
    let [first, second] = all[..] else {
        return palisade_testkit::ring::report_skip("this kernel has tc filters only");
    };
    for [before, after] in [[first, second], [second, first]] {
        let place = Place::quiet("tcother").attached_by(before);
        let closed = tables(&CLOSED, &ALLOWED);
        {
            let mut driver = driver(&place);
            driver.resync(&closed).unwrap();
            assert_eq!(owned_flows(&place, &driver), 2);
        }
        assert_eq!(attached(&place), both_interfaces(before));
        let place = place.attached_by(after);
        let mut driver = driver(&place);
        driver.resync(&closed).unwrap();
        assert_eq!(attached(&place), both_interfaces(after));
        assert_eq!(counts(&driver).owned, 2);
        for family in [0, 1] {
            assert!(place.arrives(B, A, datagram(B, A, family, [53, 40_000])));
        }
        assert_eq!(found(&driver), []);
    }
}

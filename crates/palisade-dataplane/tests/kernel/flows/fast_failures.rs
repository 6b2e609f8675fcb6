//! What the fast path cannot have, and what others do to it: nftables delivers, a condition says why, and no verdict
//! differs.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use palisade_bpf::{BpfObject, LoadedObject};
use palisade_dataplane::Dataplane as _;
use palisade_dataplane::ebpf::{self, EbpfDataplane, ProgramAttachment};
use palisade_sys::bpf::{AttachPoint, BpfLink};
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::run_in;
use palisade_testkit::CountedDriver;
use palisade_testkit::test_driver::{list_interfaces, mount_bpf_file_system};

use super::fast::{CLOSED, attachments, block_pin, counts, datagram, driver};
use super::need_root;
use super::place::{A, Allowed, B, Place, tables};

pub(super) const ALLOWED: [Allowed; 1] = [(A, B, 17, Some(53))];

/// The conditions of a driver, as kind, reason and message.
pub(super) fn conditions(driver: &EbpfDataplane) -> Vec<(&'static str, &'static str, String)> {
    let conditions = driver.conditions().into_iter();
    conditions
        .map(|condition| (condition.kind, condition.reason, condition.message))
        .collect()
}

/// One interface, and no other, has no programs, for this reason.
pub(super) fn assert_refused(driver: &EbpfDataplane, interface: &str, reason: &str) {
    let [(kind, code, message)] = &conditions(driver)[..] else {
        panic!("{:?}", conditions(driver));
    };
    assert_eq!((*kind, *code), ("FastPathPartial", "InterfaceNotAttached"));
    let is_told = message.contains(interface) && message.contains(reason);
    assert!(is_told, "{message}");
}

/// Whether a datagram that is allowed arrives, one that is not does not, and how many flows the fast path has then.
pub(super) fn owned_flows(place: &Place, driver: &CountedDriver) -> u64 {
    driver.forget_flows();
    place.lab.flush_conntrack().unwrap();
    for family in [0, 1] {
        assert!(
            place.arrives(A, B, datagram(A, B, family, [40_000, 53])),
            "{family}"
        );
        assert!(
            place.arrives(B, A, datagram(B, A, family, [53, 40_000])),
            "{family}: answer"
        );
        assert!(
            !place.arrives(A, B, datagram(A, B, family, [40_000, 54])),
            "{family}"
        );
    }
    counts(driver).owned
}

/// A program of somebody else that sees what comes from an interface.
fn attach_foreign(place: &Place, interface: &str) -> (LoadedObject, BpfLink) {
    let netns = place.netns();
    let index = KernelLinks::open(&netns)
        .unwrap()
        .link(interface)
        .unwrap()
        .unwrap()
        .index;
    let loaded = BpfObject::PROBE.load().unwrap();
    let program = loaded.program("probe_features").unwrap();
    let link = run_in(&netns, || {
        BpfLink::attach(program, index, AttachPoint::Ingress)
    });
    (loaded, link.unwrap().unwrap())
}

#[test]
fn an_interface_with_a_program_or_a_queue_of_others_is_left_to_nftables() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastothers");
    let closed = tables(&CLOSED, &ALLOWED);
    let foreign = attach_foreign(&place, "pal-a");
    let mut driver = driver(&place);
    driver.resync(&closed).unwrap();
    assert!(driver.is_fast());
    assert_refused(&driver, "pal-a", "BPF program");
    assert_eq!(owned_flows(&place, &driver), 0);
    drop(foreign);
    driver.verify(&closed).unwrap();
    assert_eq!(conditions(&driver), []);
    assert_eq!(owned_flows(&place, &driver), 2);
    // A queue that comes later is noticed with the event of the interface.
    let netns = place.netns();
    let tc = |arguments: &str| {
        let output = run_in(&netns, || {
            std::process::Command::new("tc")
                .args(arguments.split(' '))
                .output()
        });
        let output = output.unwrap().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    tc("qdisc add dev pal-b root pfifo");
    list_interfaces(&mut driver, &netns).unwrap();
    assert_refused(&driver, "pal-b", "pfifo");
    assert_eq!(owned_flows(&place, &driver), 0);
    tc("qdisc del dev pal-b root");
    list_interfaces(&mut driver, &netns).unwrap();
    assert_eq!(owned_flows(&place, &driver), 2);
}

#[test]
fn an_interface_whose_programs_cannot_be_attached_is_left_to_nftables_alone() {
    if !need_root() {
        return;
    }
    let mut place = Place::quiet("fastrefused");
    let closed = tables(&CLOSED, &ALLOWED);
    let mut driver = driver(&place);
    driver.resync(&closed).unwrap();
    assert_eq!(owned_flows(&place, &driver), 2);
    // Its interface comes again with another number, whose pins cannot be made.
    place.remake(B);
    let netns = place.netns();
    let link = KernelLinks::open(&netns).unwrap().link("pal-b").unwrap();
    let index = link.unwrap().index;
    let links = pinned_links(&place);
    let obstacle = block_pin(&links.join(format!("{index}-ingress")));
    list_interfaces(&mut driver, &netns).unwrap();
    assert!(driver.is_fast(), "{:?}", conditions(&driver));
    assert_refused(&driver, "pal-b", "cannot be attached");
    assert_eq!(owned_flows(&place, &driver), 0);
    std::fs::remove_dir(&obstacle).unwrap();
    driver.verify(&closed).unwrap();
    assert_eq!(conditions(&driver), []);
    assert_eq!(owned_flows(&place, &driver), 2);
}

/// The folder of the pinned links.
fn pinned_links(place: &Place) -> std::path::PathBuf {
    let mut layouts = std::fs::read_dir(ebpf::pin_folder(&place.netns())).unwrap();
    layouts.next().unwrap().unwrap().path().join("links")
}

#[test]
fn programs_that_were_detached_are_attached_again() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastcut");
    let closed = tables(&CLOSED, &ALLOWED);
    let mut driver = driver(&place);
    driver.resync(&closed).unwrap();
    assert_eq!(driver.verify(&closed).unwrap().writes, 0);
    assert_eq!(owned_flows(&place, &driver), 2);
    // Pins are all that holds the links.
    for layout in std::fs::read_dir(ebpf::pin_folder(&place.netns())).unwrap() {
        for pin in std::fs::read_dir(layout.unwrap().path().join("links")).unwrap() {
            std::fs::remove_file(pin.unwrap().path()).unwrap();
        }
    }
    // The kernel detaches them a moment later.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(owned_flows(&place, &driver), 0);
    assert_eq!(
        driver.verify(&closed).unwrap().writes,
        3,
        "three interfaces"
    );
    assert_eq!(owned_flows(&place, &driver), 2);
    assert_eq!(driver.verify(&closed).unwrap().writes, 0);
}

#[test]
fn a_map_that_cannot_be_taken_over_is_made_anew_and_configured() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fasthalf");
    let closed = tables(&CLOSED, &ALLOWED);
    {
        let mut first = driver(&place);
        first.resync(&closed).unwrap();
    }
    // As a kill between the two pins leaves it.
    for layout in std::fs::read_dir(ebpf::pin_folder(&place.netns())).unwrap() {
        std::fs::remove_file(layout.unwrap().path().join("flows")).unwrap();
    }
    let mut second = driver(&place);
    second.resync(&closed).unwrap();
    assert_eq!(conditions(&second), []);
    assert_eq!(owned_flows(&place, &second), 2);
    let mut third = driver(&place);
    third.resync(&closed).unwrap();
    assert_eq!(counts(&third).owned, 2, "they are pinned");
}

#[test]
fn what_another_layout_has_attached_is_detached() {
    if !need_root() {
        return;
    }
    mount_bpf_file_system().unwrap();
    let place = Place::quiet("fastold");
    let other = ebpf::pin_folder(&place.netns()).join("0123456789abcdef");
    std::fs::create_dir_all(other.join("links")).unwrap();
    let (_loaded, link) = attach_foreign(&place, "pal-a");
    link.pin(&other.join("links/1-ingress")).unwrap();
    drop(link);
    let mut driver = driver(&place);
    let closed = tables(&CLOSED, &ALLOWED);
    driver.resync(&closed).unwrap();
    assert!(!other.exists());
    assert_eq!(conditions(&driver), []);
    assert_eq!(owned_flows(&place, &driver), 2);
}

#[test]
fn an_interface_that_is_made_again_takes_part_again() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        interface_made_again_takes_part(attachment);
    }
}

/// With programs that are attached in one way.
fn interface_made_again_takes_part(attachment: ProgramAttachment) {
    let mut place = Place::quiet("fastagain").attached_by(attachment);
    let closed = tables(&CLOSED, &ALLOWED);
    let mut driver = driver(&place);
    driver.resync(&closed).unwrap();
    assert_eq!(owned_flows(&place, &driver), 2);
    place.remake(B);
    list_interfaces(&mut driver, &place.netns()).unwrap();
    assert_eq!(owned_flows(&place, &driver), 2);
    assert_eq!(driver.verify(&closed).unwrap().writes, 0);
}

#[test]
fn no_datagram_is_lost_or_let_through_while_policy_changes() {
    if !need_root() {
        return;
    }
    let place = Place::new("fastflood");
    let mut driver = driver(&place);
    let always = (A, B, 17, Some(53));
    // What changes beside: other ports, everything that another rule needs, and whether the pods are isolated for more.
    let more: [&[Allowed]; 4] = [
        &[],
        &[(A, B, 17, Some(80)), (B, A, 6, None)],
        &[(A, B, 6, Some(80))],
        &[(B, A, 17, None), (A, B, 17, Some(55))],
    ];
    let policy = |at: usize| {
        let allowed: Vec<Allowed> = [always].iter().chain(more[at % 4]).copied().collect();
        tables(&CLOSED, &allowed)
    };
    driver.resync(&policy(0)).unwrap();
    let open = |end: usize, family: usize, port: u16| {
        let socket = place.lab.run_in(place.nodes[end], || {
            UdpSocket::bind(Place::at(end, family, port))
        });
        let socket = socket.unwrap().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        socket
    };
    let is_done = AtomicBool::new(false);
    let (mut flushes, mut counted) = (0, [0_u64; 2]);
    std::thread::scope(|scope| {
        let senders: Vec<_> = [0, 1]
            .into_iter()
            .map(|family| {
                let (from, to, closed) =
                    (open(A, family, 0), open(B, family, 53), open(B, family, 54));
                let is_done = &is_done;
                scope.spawn(move || flood(&from, &to, &closed, is_done))
            })
            .collect();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            flushes += 1;
            driver.resync(&policy(flushes)).unwrap();
        }
        is_done.store(true, Ordering::Release);
        for (at, sender) in senders.into_iter().enumerate() {
            counted[at] = sender.join().unwrap();
        }
    });
    let owned = counts(&driver).owned;
    println!(
        "account: {} datagrams during {flushes} changes of policy, none lost and none let through",
        counted[0] + counted[1]
    );
    assert!(
        flushes > 20 && counted.iter().all(|sent| *sent > 1_000),
        "{flushes} {counted:?}"
    );
    assert!(owned >= 2, "{owned}");
}

/// Sends datagrams one after the other, each of which must arrive, and some that must not; how many of the first kind.
fn flood(from: &UdpSocket, to: &UdpSocket, closed: &UdpSocket, is_done: &AtomicBool) -> u64 {
    let (mut sent, mut buffer) = (0_u64, [0; 8]);
    closed.set_nonblocking(true).unwrap();
    while !is_done.load(Ordering::Acquire) {
        from.send_to(&sent.to_be_bytes(), to.local_addr().unwrap())
            .unwrap();
        let received = to.recv(&mut buffer);
        assert_eq!(received.ok(), Some(8), "datagram {sent} is lost");
        assert_eq!(u64::from_be_bytes(buffer), sent);
        from.send_to(b"denied", closed.local_addr().unwrap())
            .unwrap();
        assert!(
            closed.recv(&mut buffer).is_err(),
            "one is let through after {sent}"
        );
        sent += 1;
    }
    sent
}

//! BPF programs as filters of traffic control.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use palisade_sys::Errno;
use palisade_sys::bpf::{AttachPoint, BpfProgram};
use palisade_sys::link::{KernelLinks, TcFilter, TcFilterId};
use palisade_sys::netns::{NetNs, run_in, run_in_new};

use crate::bpf::{DROP, NEXT, constant, load};
use crate::need_root;
use crate::support::{TestNetNs, joined};

const ID: TcFilterId = TcFilterId {
    priority: 1,
    handle: 0x7a1,
};

/// Runs `tc` in a namespace; what it prints.
fn tc(space: &TestNetNs, arguments: &str) -> String {
    let run = || Command::new("tc").args(arguments.split(' ')).output();
    let output = run_in(&space.netns, run).unwrap().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tc {arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The qdisc of filters that an interface has.
fn kind(links: &mut KernelLinks, interface: u32) -> Option<String> {
    links.filter_qdiscs().unwrap().remove(&interface)
}

fn filter(program: &BpfProgram, name: &str) -> TcFilter {
    TcFilter {
        id: ID,
        kind: "bpf".to_owned(),
        name: Some(name.to_owned()),
        program: Some(program.id().unwrap()),
        is_direct_action: true,
    }
}

/// Whether a connection from the first namespace to the second one is made within this time.
fn reaches((a, b): (&TestNetNs, &TestNetNs), address: &str, milliseconds: u64) -> bool {
    let address: SocketAddr = address.parse().unwrap();
    let server = run_in(&b.netns, || TcpListener::bind(address));
    let _server = server.unwrap().unwrap();
    let wait = Duration::from_millis(milliseconds);
    let connect = move || TcpStream::connect_timeout(&address, wait);
    run_in(&a.netns, connect).unwrap().is_ok()
}

#[test]
fn filters_are_replaced_in_place_and_stay_until_they_are_deleted() {
    if !need_root() {
        return;
    }
    let (a, b) = joined("tc");
    let index = a.links().link("a0").unwrap().unwrap().index;
    let mut links = a.links();
    let [next, drops] = [("pal_next", NEXT), ("pal_drop", DROP)]
        .map(|(name, verdict)| load(name, &constant(verdict)).unwrap());
    for (point, address) in [
        (AttachPoint::Egress, "10.9.0.2:80"),
        (AttachPoint::Ingress, "[fd09::2]:80"),
    ] {
        assert_eq!(links.filters(index, point).unwrap(), []);
        if point == AttachPoint::Egress {
            let early = links.add_filter(index, point, ID, (&next, "one"));
            assert_eq!(early.unwrap_err().errno(), Some(Errno::EINVAL), "no clsact");
            assert!(!links.delete_filter(index, point, ID).unwrap());
            let absent = links.replace_filter(index, point, ID, (&next, "one"));
            assert!(!absent.unwrap());
            assert_eq!(kind(&mut links, index), None);
        }
        links.add_clsact(index).unwrap();
        links.add_clsact(index).unwrap();
        assert_eq!(kind(&mut links, index).as_deref(), Some("clsact"));
        let absent = links.replace_filter(index, point, ID, (&next, "one"));
        assert!(!absent.unwrap());
        links.add_filter(index, point, ID, (&next, "one")).unwrap();
        let twice = links.add_filter(index, point, ID, (&drops, "two"));
        assert_eq!(twice.unwrap_err().errno(), Some(Errno::EEXIST));
        assert_eq!(links.filters(index, point).unwrap(), [filter(&next, "one")]);
        assert!(reaches((&a, &b), address, 10_000));
        let replaced = links.replace_filter(index, point, ID, (&drops, "two"));
        assert!(replaced.unwrap());
        assert_eq!(
            links.filters(index, point).unwrap(),
            [filter(&drops, "two")]
        );
        assert!(!reaches((&a, &b), address, 300));
        // Not the filter of somebody else.
        let other = TcFilterId { handle: 1, ..ID };
        assert!(!links.delete_filter(index, point, other).unwrap());
        let text = tc(&a, &format!("filter show dev a0 {point}"));
        assert!(
            text.contains("pref 1 bpf") && text.contains("handle 0x7a1 two direct-action"),
            "{text}"
        );
        assert!(links.delete_filter(index, point, ID).unwrap());
        assert!(!links.delete_filter(index, point, ID).unwrap());
        assert!(reaches((&a, &b), address, 10_000));
    }
    let absent = links.add_clsact(9_999).unwrap_err();
    assert_eq!(absent.errno(), Some(Errno::ENODEV), "{absent}");
    assert_eq!(links.filters(9_999, AttachPoint::Ingress).unwrap(), []);
    assert_eq!(kind(&mut links, 9_999), None);
    assert!(
        !links
            .delete_filter(9_999, AttachPoint::Ingress, ID)
            .unwrap()
    );
}

#[test]
fn filters_and_qdiscs_of_others_are_listed() {
    if !need_root() {
        return;
    }
    let (a, _b) = joined("tcother");
    let index = a.links().link("a0").unwrap().unwrap().index;
    let mut links = a.links();
    tc(&a, "qdisc add dev a0 ingress");
    assert_eq!(kind(&mut links, index).as_deref(), Some("ingress"));
    let next = load("pal_next", &constant(NEXT)).unwrap();
    let id = TcFilterId {
        priority: 7,
        handle: 1,
    };
    let point = AttachPoint::Ingress;
    links
        .add_filter(index, point, id, (&next, "other"))
        .unwrap();
    let found = links.filters(index, point).unwrap();
    let expected = TcFilter {
        id,
        ..filter(&next, "other")
    };
    assert_eq!(found, [expected]);
    // The place of clsact is taken.
    links.add_clsact(index).unwrap();
    assert_eq!(kind(&mut links, index).as_deref(), Some("ingress"));
    tc(&a, "qdisc del dev a0 ingress");
    assert_eq!(kind(&mut links, index), None);
}

#[test]
fn work_in_a_new_namespace_sees_that_alone() {
    if !need_root() {
        return;
    }
    let here = NetNs::current().unwrap();
    let there = run_in_new(|| NetNs::current().unwrap()).unwrap();
    assert_ne!(there, here);
    assert_eq!(NetNs::current().unwrap(), here);
}

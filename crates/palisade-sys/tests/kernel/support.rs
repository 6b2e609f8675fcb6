//! Namespaces that are removed after the test, also when it panics.

use palisade_sys::link::{IpNet, KernelLinks, LinkChange, VethEnd};
use palisade_sys::netns::NetNs;

/// A named namespace with loopback up, removed on drop.
pub(crate) struct TestNetNs {
    pub(crate) named: palisade_testkit::lab::TestNetNs,
    pub(crate) netns: NetNs,
}

impl TestNetNs {
    pub(crate) fn new(what: &str) -> Self {
        let named = palisade_testkit::lab::TestNetNs::new(&format!("sys-{what}")).unwrap();
        let netns = named.netns().clone();
        let this = TestNetNs { named, netns };
        this.links().change_link("lo", &LinkChange::Up).unwrap();
        this
    }

    pub(crate) fn links(&self) -> KernelLinks {
        KernelLinks::open(&self.netns).unwrap()
    }
}

/// Two namespaces connected by a veth pair `a0`-`b0`: 10.9.0.1 and fd09::1 in the first, 10.9.0.2 and fd09::2
/// in the second.
pub(crate) fn joined(what: &str) -> (TestNetNs, TestNetNs) {
    let a = TestNetNs::new(what);
    let b = TestNetNs::new(what);
    let end = VethEnd {
        name: "a0".into(),
        ..VethEnd::default()
    };
    let peer = VethEnd {
        name: "b0".into(),
        netns: Some(b.netns.clone()),
        ..VethEnd::default()
    };
    a.links().create_veth(&end, &peer).unwrap();
    for (space, link, v4, v6) in [
        (&a, "a0", "10.9.0.1", "fd09::1"),
        (&b, "b0", "10.9.0.2", "fd09::2"),
    ] {
        let mut links = space.links();
        let (v4, v6) = (v4.parse().unwrap(), v6.parse().unwrap());
        links.add_address(link, IpNet::new(v4, 24)).unwrap();
        links.add_address(link, IpNet::new(v6, 64)).unwrap();
        links.change_link(link, &LinkChange::Up).unwrap();
    }
    (a, b)
}

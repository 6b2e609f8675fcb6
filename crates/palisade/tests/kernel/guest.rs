//! Host endpoints at links that the running kernel may not have, with an agent and real packets on Debian's kernel.

use crate::agent;
use crate::agent::shop::address;
use crate::agent::site::{Site, calico};
use palisade_testkit::lab::{NodeId, ProbeFlow, attach_bond, attach_vlan};
use palisade_testkit::{need_guest, need_root};
use std::time::{Duration, Instant};

fn host_endpoint(name: &str, interface: &str) -> String {
    let spec = format!("{{node: n1, interfaceName: '{interface}'}}");
    calico("HostEndpoint", name, &spec)
}

/// Denies one port of what is forwarded.
fn apply_forward_policy(site: &Site) {
    let forward = "{selector: role == 'node', applyOnForward: true, order: 10, types: [Ingress], \
                   ingress: [{action: Deny, protocol: TCP, destination: {ports: [9090]}}, {action: Pass}]}";
    let policy = calico("GlobalNetworkPolicy", "forward", forward);
    site.shop.agent.apply("forward.yaml", &policy);
}

/// Adds a namespace beyond the host that has no link yet.
fn add_beyond(site: &mut Site, name: &str, number: u8) -> NodeId {
    let addresses = [
        format!("203.0.113.{number}"),
        format!("2001:db8:9::{number}"),
    ];
    let addresses = addresses.iter().map(|text| address(text)).collect();
    site.shop.lab.add_namespace(name, addresses).unwrap()
}

fn assert_open(site: &Site, beyond: NodeId, what: &str) {
    let (host, other) = (site.host(), site.other);
    assert!(
        site.tcp(beyond, host, 8080)
            && site.udp(host, beyond, 8080)
            && site.sctp(beyond, host, 8080),
        "{what}"
    );
    assert!(site.tcp(beyond, other, 9090), "{what}: forwarded");
}

/// Closed to and from the host but for failsafe ports; what is forwarded is judged by the policy.
fn assert_closed(site: &Site, beyond: NodeId, what: &str) {
    let (host, other) = (site.host(), site.other);
    assert!(
        !site.tcp(beyond, host, 8080)
            && !site.udp(host, beyond, 8080)
            && !site.sctp(beyond, host, 8080),
        "{what}"
    );
    assert!(!site.echo(beyond, host), "{what}");
    assert!(
        site.tcp(beyond, host, 22) && site.udp(host, beyond, 53),
        "{what}: failsafe"
    );
    assert!(
        site.tcp(beyond, other, 8080) && !site.tcp(beyond, other, 9090),
        "{what}: forwarded"
    );
}

#[test]
fn a_bond_is_judged_as_a_whole_and_after_a_port_failed() {
    if !need_root() || !need_guest("guest::a_bond_is_judged_as_a_whole_and_after_a_port_failed") {
        return;
    }
    let mut site = Site::open("bond");
    let beyond = add_beyond(&mut site, "beyond", 80);
    attach_bond(&mut site.shop.lab, beyond, "bond1", ["port0", "port1"]).unwrap();
    apply_forward_policy(&site);
    assert_open(&site, beyond, "without a host endpoint");
    let agent = &site.shop.agent;
    agent.apply("host.yaml", &host_endpoint("uplink", "port0"));
    assert_open(
        &site,
        beyond,
        "a port of the bond has no packets of its own",
    );
    // By an address of the bond.
    agent::ip(
        &site.shop.lab,
        site.host(),
        &["address", "add", "203.0.113.81/32", "dev", "bond1"],
    );
    let expected = calico(
        "HostEndpoint",
        "uplink",
        "{node: n1, expectedIPs: [203.0.113.81]}",
    );
    for (what, endpoint) in [
        ("bond1", host_endpoint("uplink", "bond1")),
        ("*", host_endpoint("uplink", "*")),
        ("expectedIPs", expected),
    ] {
        agent.apply("host.yaml", &endpoint);
        agent.wait("the interface", |status| {
            status["hostEndpoints"][0]["reason"].is_null()
        });
        assert_closed(&site, beyond, what);
    }
    // The bond goes on with its other port.
    for (down, up) in [("port0", "port1"), ("port1", "port0")] {
        agent::ip(&site.shop.lab, site.host(), &["link", "set", up, "up"]);
        agent::ip(&site.shop.lab, site.host(), &["link", "set", down, "down"]);
        let end = Instant::now() + Duration::from_secs(20);
        // While the bond changes ports, a packet of one family may be lost and that of the other arrive.
        let to = site.addresses(site.host());
        let flows = to.map(|at| ProbeFlow::tcp(beyond, at, 22, site.host()));
        while site.shop.arrives(&flows) != [true, true] {
            assert!(Instant::now() < end, "{up} did not take over from {down}");
        }
        assert_closed(&site, beyond, up);
    }
    agent.delete("host.yaml");
    assert_open(&site, beyond, "the host endpoint is gone");
}

#[test]
fn a_vlan_is_judged_apart_from_the_link_that_carries_it() {
    if !need_root() || !need_guest("guest::a_vlan_is_judged_apart_from_the_link_that_carries_it") {
        return;
    }
    let mut site = Site::open("vlan");
    let untagged = add_beyond(&mut site, "untagged", 80);
    attach_bond(&mut site.shop.lab, untagged, "bond1", ["port0", "port1"]).unwrap();
    let tagged = add_beyond(&mut site, "tagged", 90);
    attach_vlan(&mut site.shop.lab, tagged, untagged, 5).unwrap();
    apply_forward_policy(&site);
    let agent = &site.shop.agent;
    for beyond in [tagged, untagged] {
        assert_open(&site, beyond, "without a host endpoint");
    }
    agent.apply("host.yaml", &host_endpoint("uplink", "bond1"));
    assert_closed(&site, untagged, "bond1");
    assert_open(
        &site,
        tagged,
        "bond1 has a host endpoint, and its VLAN none",
    );
    agent.apply("host.yaml", &host_endpoint("uplink", "bond1.5"));
    assert_closed(&site, tagged, "bond1.5");
    assert_open(
        &site,
        untagged,
        "the VLAN has a host endpoint, and bond1 none",
    );
    agent.apply("host.yaml", &host_endpoint("uplink", "*"));
    for beyond in [tagged, untagged] {
        assert_closed(&site, beyond, "*");
    }
    // A VLAN that goes and comes again is closed from its first packet.
    agent.apply("host.yaml", &host_endpoint("uplink", "bond1.5"));
    site.shop.lab.remove(tagged).unwrap();
    site.shop.agent.wait("the missing VLAN", |status| {
        status["hostEndpoints"][0]["reason"].is_string()
    });
    let again = add_beyond(&mut site, "again", 91);
    attach_vlan(&mut site.shop.lab, again, untagged, 5).unwrap();
    assert_closed(&site, again, "bond1.5 again");
    assert_open(&site, untagged, "bond1");
    site.shop.agent.delete("host.yaml");
    assert_open(&site, again, "the host endpoint is gone");
}

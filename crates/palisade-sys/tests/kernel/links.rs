//! Links, addresses, routes, neighbours and their events.

use crate::need_root;
use std::time::{Duration, Instant};

use palisade_sys::Errno;
use palisade_sys::link::{
    IpNet, KernelLinkEvents, LinkChange, LinkEvent, LinkEvents, MacAddr, Neighbour, Route,
    RouteKind, VethEnd,
};

use crate::support::{TestNetNs, joined};

#[test]
fn a_pair_is_made_across_namespaces_and_dies_whole() {
    if !need_root() {
        return;
    }
    let (host, pod) = (TestNetNs::new("veth"), TestNetNs::new("veth"));
    let (mut in_host, mut in_pod) = (host.links(), pod.links());
    let mac = MacAddr([0xee; 6]);
    let end = VethEnd {
        name: "pal1234".into(),
        mac: Some(mac),
        mtu: Some(1400),
        netns: None,
    };
    let peer = VethEnd {
        name: "eth0".into(),
        mac: None,
        mtu: Some(1400),
        netns: Some(pod.netns.clone()),
    };
    in_host.create_veth(&end, &peer).unwrap();
    let ours = in_host.link("pal1234").unwrap().unwrap();
    let theirs = in_pod.link("eth0").unwrap().unwrap();
    assert_eq!((ours.mac, ours.mtu), (Some(mac), 1400));
    assert_eq!(ours.kind.as_deref(), Some("veth"));
    assert_eq!(ours.peer_index, Some(theirs.index));
    assert!(ours.peer_netnsid.is_some());
    assert!(!ours.is_up());
    assert!(in_host.link("eth0").unwrap().is_none());
    assert_eq!(in_host.links().unwrap().len(), 2);

    let again = in_host.create_veth(&end, &peer).unwrap_err();
    assert_eq!(again.errno(), Some(Errno::EEXIST), "{again}");
    assert_eq!(in_pod.links().unwrap().len(), 2);

    in_host
        .change_link("pal1234", &LinkChange::Rename("pal2".into()))
        .unwrap();
    in_host.change_link("pal2", &LinkChange::Mtu(1300)).unwrap();
    in_host
        .change_link("pal2", &LinkChange::Mac(MacAddr([2; 6])))
        .unwrap();
    in_host.change_link("pal2", &LinkChange::Up).unwrap();
    in_pod.change_link("eth0", &LinkChange::Up).unwrap();
    let ours = in_host.link("pal2").unwrap().unwrap();
    assert_eq!((ours.mtu, ours.mac), (1300, Some(MacAddr([2; 6]))));
    assert!(ours.is_up() && !ours.is_loopback());

    // Two at once, by a name that does not exist too; what others have stays.
    for name in ["pal3", "pal4", "other"] {
        let peer = VethEnd {
            name: format!("{name}p"),
            ..peer.clone()
        };
        let end = VethEnd {
            name: name.to_owned(),
            ..end.clone()
        };
        in_host.create_veth(&end, &peer).unwrap();
    }
    in_host.delete_links(&["pal3", "gone", "pal4"]).unwrap();
    in_host.delete_links(&["gone"]).unwrap();
    let left = in_host.links().unwrap();
    let left: Vec<&str> = left.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(left, ["lo", "pal2", "other"]);
    in_host.delete_link("other").unwrap();
    in_host.delete_link("pal2").unwrap();
    assert!(in_pod.link("eth0").unwrap().is_none());
    let gone = in_host.delete_link("pal2").unwrap_err();
    assert!(gone.is_not_found());
    assert_eq!(
        gone.to_string(),
        format!(
            "deleting link pal2 in network namespace {}: ENODEV: No such device",
            host.named.name()
        )
    );
}

#[test]
fn addresses_and_routes_of_both_families() {
    if !need_root() {
        return;
    }
    let (a, _b) = joined("route");
    let mut links = a.links();
    let index = links.link("a0").unwrap().unwrap().index;
    let v4 = IpNet::new("10.9.0.1".parse().unwrap(), 24);
    let v6 = IpNet::new("fd09::1".parse().unwrap(), 64);
    let addresses = links.addresses().unwrap();
    for prefix in [v4, v6] {
        let found = addresses.iter().find(|a| a.prefix == prefix).unwrap();
        assert_eq!(found.link_index, index);
        assert!(
            !found.tentative,
            "duplicate address detection was not skipped"
        );
    }
    let again = links.add_address("a0", v4).unwrap_err();
    assert_eq!(again.errno(), Some(Errno::EEXIST));

    let any4 = IpNet::new("0.0.0.0".parse().unwrap(), 0);
    let any6 = IpNet::new("::".parse().unwrap(), 0);
    let blackhole = Route {
        link: None,
        kind: RouteKind::Blackhole,
        metric: Some(9),
        scope: Default::default(),
        ..Route::device(IpNet::new("10.77.0.0".parse().unwrap(), 16), "")
    };
    let routes = [
        Route::device(IpNet::host("169.254.1.1".parse().unwrap()), "a0"),
        Route::via_on_link(any4, "169.254.1.1".parse().unwrap(), "a0"),
        Route::device(IpNet::host("10.1.2.3".parse().unwrap()), "a0"),
        Route::device(IpNet::host("fd77::1".parse().unwrap()), "a0"),
        Route::via_on_link(any6, "fe80::1".parse().unwrap(), "a0"),
        blackhole,
    ];
    for route in &routes {
        links.replace_route(route).unwrap();
        links.replace_route(route).unwrap();
    }
    let found = links.routes().unwrap();
    for route in &routes {
        let same = found
            .iter()
            .find(|r| (r.destination, r.protocol) == (route.destination, route.protocol))
            .unwrap_or_else(|| panic!("{route} not in {found:#?}"));
        assert_eq!(
            (&same.link, same.gateway, same.scope, same.kind, same.table),
            (
                &route.link,
                route.gateway,
                route.scope,
                route.kind,
                route.table
            ),
            "{route}"
        );
    }
    let lost = Route::device(IpNet::host("10.1.2.3".parse().unwrap()), "nolink");
    assert_eq!(
        links.replace_route(&lost).unwrap_err().errno(),
        Some(Errno::ENODEV)
    );
}

#[test]
fn neighbours_are_set_and_proxied() {
    if !need_root() {
        return;
    }
    let (a, _b) = joined("neigh");
    let mut links = a.links();
    let proxy = |address: &str| Neighbour {
        mac: None,
        ..Neighbour::permanent("a0", address.parse().unwrap(), MacAddr([0; 6]))
    };
    let wanted = [
        Neighbour::permanent("a0", "169.254.1.1".parse().unwrap(), MacAddr([0xee; 6])),
        Neighbour::permanent("a0", "fe80::1".parse().unwrap(), MacAddr([0xee; 6])),
        proxy("169.254.1.1"),
        proxy("fe80::1"),
    ];
    for neighbour in &wanted {
        links.set_neighbour(neighbour).unwrap();
    }
    let moved = Neighbour {
        mac: Some(MacAddr([2; 6])),
        ..wanted[0].clone()
    };
    links.set_neighbour(&moved).unwrap();
    let found = links.neighbours().unwrap();
    for neighbour in [&moved, &wanted[1], &wanted[2], &wanted[3]] {
        assert!(found.contains(neighbour), "{neighbour} not in {found:#?}");
    }
}

#[test]
fn changes_are_told() {
    if !need_root() {
        return;
    }
    let (host, pod) = (TestNetNs::new("event"), TestNetNs::new("event"));
    let mut links = host.links();
    let mut events = KernelLinkEvents::open(&host.netns).unwrap();
    let mut next = |what: &dyn Fn(&LinkEvent) -> bool| {
        let limit = Some(Duration::from_secs(5));
        while let Some(event) = events.next_event(limit).unwrap() {
            if what(&event) {
                return;
            }
        }
        panic!("the change was not reported");
    };
    let end = VethEnd {
        name: "pal1".into(),
        ..VethEnd::default()
    };
    let peer = VethEnd {
        name: "eth0".into(),
        netns: Some(pod.netns.clone()),
        ..VethEnd::default()
    };
    links.create_veth(&end, &peer).unwrap();
    next(&|e| matches!(e, LinkEvent::Link(l) if l.name == "pal1"));
    let wanted = IpNet::host("10.0.0.9".parse().unwrap());
    links.add_address("pal1", wanted).unwrap();
    next(&|e| matches!(e, LinkEvent::Address { prefix, .. } if *prefix == wanted));
    links.delete_link("pal1").unwrap();
    next(&|e| matches!(e, LinkEvent::AddressRemoved { prefix, .. } if *prefix == wanted));
    next(&|e| matches!(e, LinkEvent::LinkRemoved(l) if l.name == "pal1"));
    drop(pod);
    assert_eq!(
        events.next_event(Some(Duration::from_millis(1))).unwrap(),
        None
    );
}

#[test]
fn both_ends_of_a_pair_name_each_other() {
    if !need_root() {
        return;
    }
    let (a, b) = joined("ends");
    let other = TestNetNs::new("ends");
    let (mut in_a, mut in_b) = (a.links(), b.links());
    let near = in_a.link("a0").unwrap().unwrap();
    let far = in_b.link("b0").unwrap().unwrap();
    assert_eq!(in_a.link_by_index(near.index).unwrap(), Some(near.clone()));
    assert_eq!(in_a.link_by_index(9_999).unwrap(), None);
    assert_eq!(near.peer_index, Some(far.index));
    assert_eq!(far.peer_index, Some(near.index));
    assert!(near.peer_netnsid.is_some() && far.peer_netnsid.is_some());
    assert_eq!(in_a.namespace_id(&b.netns).unwrap(), near.peer_netnsid);
    assert_eq!(in_b.namespace_id(&a.netns).unwrap(), far.peer_netnsid);
    assert_eq!(in_a.namespace_id(&other.netns).unwrap(), None);
}

#[test]
fn the_route_to_an_address_is_the_most_special_one() {
    if !need_root() {
        return;
    }
    let (a, _b) = joined("way");
    let mut links = a.links();
    let mut way = |address: &str| {
        let route = links.route_to(address.parse().unwrap()).unwrap();
        route.map(|r| (r.destination.to_string(), r.kind, r.link.unwrap()))
    };
    let of = |text: &str, kind, link: &str| Some((text.to_owned(), kind, link.to_owned()));
    assert_eq!(way("10.9.0.1"), of("10.9.0.1/32", RouteKind::Local, "a0"));
    assert_eq!(way("10.9.0.7"), of("10.9.0.0/24", RouteKind::Unicast, "a0"));
    assert_eq!(way("10.8.0.7"), None);
    // The kernel makes the route to an IPv6 address of its own from a work queue.
    let end = Instant::now() + Duration::from_secs(10);
    let local = of("fd09::1/128", RouteKind::Local, "a0");
    while way("fd09::1") != local && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(way("fd09::1"), local);
    assert_eq!(way("fd09::7"), of("fd09::/64", RouteKind::Unicast, "a0"));
    assert_eq!(way("fd08::7"), None);
    for host in ["10.9.0.7", "fd09::7"] {
        let route = Route::device(IpNet::host(host.parse().unwrap()), "a0");
        a.links().replace_route(&route).unwrap();
    }
    assert_eq!(way("10.9.0.7"), of("10.9.0.7/32", RouteKind::Unicast, "a0"));
    assert_eq!(way("fd09::7"), of("fd09::7/128", RouteKind::Unicast, "a0"));
    let broadcast = RouteKind::Other(3);
    assert_eq!(way("10.9.0.255"), of("10.9.0.255/32", broadcast, "a0"));
}

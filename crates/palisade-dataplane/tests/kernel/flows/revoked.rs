//! Revocation and what must survive it: replies, unanswered first packets, generations.

use palisade_model::Direction::{Egress, Ingress};
use palisade_sys::conntrack::{Conntrack, ConntrackFilter, KernelConntrack};
use palisade_testkit::lab::craft::{icmp, sctp, tcp, udp};

use super::need_root;
use super::place::{A, Allowed, B, Enforced, OUT, Place, tables, tag};

fn datagram(from: usize, to: usize, family: usize, ports: [u16; 2]) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    udp(from, to, 1, &tag())
}

fn segment(from: usize, to: usize, family: usize, ports: [u16; 2], flags: u8) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    tcp(from, to, flags, (1000, 1001), &tag())
}

#[test]
fn a_first_packet_without_an_answer_and_both_sides_at_once() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("unreplied");
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Ingress), (B, Ingress), (A, Egress), (B, Egress)];
    let dns: Allowed = (A, B, 17, Some(53));
    let other: Allowed = (A, B, 17, Some(54));
    enforced.set(&closed, &[dns, other]);
    for family in [0, 1] {
        assert!(place.arrives(A, B, datagram(A, B, family, [1000, 53])));
        assert!(place.arrives(A, B, datagram(A, B, family, [1000, 54])));
        assert!(!place.arrives(B, A, datagram(B, A, family, [53, 999])));
    }
    // The policy changes while only one direction was seen.
    enforced.set(&closed, &[dns]);
    for family in [0, 1] {
        assert!(place.arrives(B, A, datagram(B, A, family, [53, 1000])));
        assert!(place.arrives(A, B, datagram(A, B, family, [1000, 53])));
        assert!(!place.arrives(B, A, datagram(B, A, family, [54, 1000])));
        assert!(!place.arrives(A, B, datagram(A, B, family, [1000, 54])));
    }
    // Both ends send at once, the denied one first: it does not determine the direction.
    for family in [0, 1] {
        let first = datagram(A, B, family, [53, 53]);
        let reply = |_| datagram(B, A, family, [53, 53]);
        let arrived = place.arrive(vec![(B, A, reply(0)), (A, B, first), (B, A, reply(1))]);
        assert_eq!(arrived, [false, true, true], "{family}");
    }
    enforced.set(&closed, &[]);
    for family in [0, 1] {
        assert!(!place.arrives(B, A, datagram(B, A, family, [53, 53])));
        assert!(!place.arrives(A, B, datagram(A, B, family, [53, 53])));
    }
}

#[test]
fn the_server_goes_on_speaking_while_the_flow_is_allowed() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("server");
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Ingress), (B, Ingress), (A, Egress), (B, Egress)];
    let (lasting, more): (Allowed, Allowed) = ((A, B, 6, Some(80)), (A, B, 6, Some(81)));
    enforced.set(&closed, &[lasting, more]);
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    for family in [0, 1] {
        for port in [80, 81] {
            let ports = [2000, port];
            let back = [port, 2000];
            let arrived = place.arrive(vec![
                (B, A, segment(B, A, family, back, SYN)),
                (A, B, segment(A, B, family, ports, SYN)),
                (B, A, segment(B, A, family, back, SYN | ACK)),
                (A, B, segment(A, B, family, ports, ACK)),
                (B, A, segment(B, A, family, back, ACK)),
            ]);
            assert_eq!(arrived, [false, true, true, true, true], "{family} {port}");
        }
    }
    let before = enforced
        .driver
        .verify(&tables(&closed, &[lasting, more]))
        .unwrap();
    let after = enforced.set(&closed, &[lasting]);
    assert_ne!(after.generation, before.generation);
    for family in [0, 1] {
        for _ in 0..3 {
            assert!(place.arrives(B, A, segment(B, A, family, [80, 2000], ACK)));
            assert!(!place.arrives(B, A, segment(B, A, family, [81, 2000], ACK)));
        }
        assert!(place.arrives(A, B, segment(A, B, family, [2000, 80], ACK)));
        assert!(!place.arrives(A, B, segment(A, B, family, [2000, 81], ACK)));
    }

    // A reused tuple is a new flow, and judged as one: first while it is denied.
    const RST: u8 = 4;
    for family in [0, 1] {
        let ends = [(A, 2000), (B, 80)].map(|(end, port)| Place::at(end, family, port));
        let reset = tcp(ends[0], ends[1], RST, (1001, 0), &tag());
        assert!(place.arrives(A, B, reset));
    }
    enforced.set(&closed, &[more]);
    for family in [0, 1] {
        assert!(!place.arrives(A, B, segment(A, B, family, [2000, 80], SYN)));
    }
    enforced.set(&closed, &[lasting]);
    for family in [0, 1] {
        assert!(place.arrives(A, B, segment(A, B, family, [2000, 80], SYN)));
        assert!(
            !place.arrives(A, B, segment(A, B, family, [2001, 80], RST)),
            "{family}: a reset without a connection is invalid"
        );
        assert!(
            !place.arrives(A, B, segment(A, B, family, [2002, 80], SYN | RST)),
            "{family}: no such flags"
        );
    }
}

#[test]
fn echo_and_sctp_pass_one_way_with_their_answers() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("echo");
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Ingress), (B, Ingress), (A, Egress), (B, Egress)];
    let allowed: [Allowed; 3] = [(A, B, 1, None), (A, B, 58, None), (A, B, 132, Some(9899))];
    enforced.set(&closed, &allowed);
    let echo = |from: usize, to: usize, family: usize, reply: bool, id: u8| {
        let kind = [[8, 0], [128, 129]][family][usize::from(reply)];
        let (from, to) = (Place::address(from, family), Place::address(to, family));
        icmp(from, to, (kind, 0), [0, id, 0, 1], &tag())
    };
    let init = |from: usize, to: usize, family: usize, ports: [u16; 2], answer: bool| {
        let mut chunk = vec![
            1 + u8::from(answer),
            0,
            0,
            36,
            0,
            0,
            0,
            9,
            0,
            1,
            0,
            0,
            0,
            1,
            0,
            1,
        ];
        chunk.extend([0, 0, 0, 5, 0xc0, 1, 0, 16 + 4]);
        chunk.extend(tag());
        chunk[3] = u8::try_from(chunk.len()).unwrap();
        let [source, destination] = ports;
        let (from, to) = (
            Place::at(from, family, source),
            Place::at(to, family, destination),
        );
        sctp(from, to, if answer { 9 } else { 0 }, &chunk)
    };
    for family in [0, 1] {
        assert!(place.arrives(A, B, echo(A, B, family, false, 1)));
        assert!(place.arrives(B, A, echo(B, A, family, true, 1)));
        assert!(!place.arrives(B, A, echo(B, A, family, false, 2)));
        assert!(!place.arrives(B, A, echo(B, A, family, true, 3)), "unasked");
        assert!(place.arrives(A, B, init(A, B, family, [7, 9899], false)));
        assert!(place.arrives(B, A, init(B, A, family, [9899, 7], true)));
        assert!(!place.arrives(A, B, init(A, B, family, [7, 9898], false)));
        assert!(!place.arrives(B, A, init(B, A, family, [7, 9899], false)));
    }
    enforced.set(&closed, &[]);
    for family in [0, 1] {
        assert!(!place.arrives(A, B, echo(A, B, family, false, 1)));
        assert!(!place.arrives(B, A, echo(B, A, family, true, 1)));
        assert!(!place.arrives(A, B, init(A, B, family, [7, 9899], false)));
        assert!(!place.arrives(B, A, init(B, A, family, [9899, 7], true)));
    }
}

#[test]
fn a_new_dataplane_takes_the_generation_over() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("restart");
    let closed = [(B, Ingress)];
    let allowed: [Allowed; 1] = [(A, B, 17, Some(53))];
    // So few generations that all of them are used.
    let few = || Enforced {
        driver: place.driver_with(0x0000_ff00),
    };
    let mut enforced = few();
    enforced.set(&closed, &[(A, B, 17, Some(54))]);
    let before = enforced.set(&closed, &allowed);
    assert!(place.arrives(A, B, datagram(A, B, 0, [1000, 53])));
    drop(enforced);
    assert!(place.arrives(B, A, datagram(B, A, 0, [53, 1000])));
    let mut enforced = few();
    let again = enforced.set(&closed, &allowed);
    assert_eq!((again.writes, again.generation), (0, before.generation));
    assert!(place.arrives(A, B, datagram(A, B, 0, [1000, 53])));
    // Without its table the dataplane does not know the generation; no mark of the old table becomes live.
    place.nft(place.lab.host(), "delete table inet t");
    let mut enforced = few();
    let mut again = 0;
    for round in 0..64 {
        let port = 60 + round;
        let after = enforced.set(&closed, &[(A, B, 17, Some(port))]);
        let is_same = after.generation == before.generation;
        again += usize::from(is_same);
        assert!(
            round > 3 && !is_same || !place.arrives(A, B, datagram(A, B, 0, [1000, 53])),
            "an old mark is live again at generation {}",
            after.generation
        );
    }
    assert!(again >= 1);
}

#[test]
fn a_generation_that_comes_round_again_revives_nothing() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("round");
    let closed = [(B, Ingress)];
    let mut driver = place.driver_with(0x0000_ff00);
    let mut set =
        |allowed: &[Allowed]| driver.resync(&tables(&closed, allowed)).unwrap().generation;
    let mut marked = Vec::new();
    let lasting: Allowed = (A, B, 17, Some(7));
    let first = set(&[(A, B, 17, Some(53)), lasting]);
    assert!(place.arrives(A, B, datagram(A, B, 0, [1000, 53])));
    assert!(place.arrives(A, B, datagram(A, B, 0, [1000, 7])));
    let (mut generation, mut rounds, mut steps) = (first, 0, 0);
    while rounds < 3 || generation < first {
        steps += 1;
        let next = set(&[(A, B, 17, Some(60 + steps % 2)), lasting]);
        assert!(next != generation && steps < 300, "{generation} {next}");
        rounds += usize::from(next < generation);
        generation = next;
        if steps % 16 == 1 || generation == first || generation <= 65 {
            assert!(
                !place.arrives(A, B, datagram(A, B, 0, [1000, 53])),
                "an old mark is live again at generation {generation}, round {rounds}"
            );
            assert!(
                place.arrives(B, A, datagram(B, A, 0, [7, 1000])),
                "still allowed"
            );
            let mut conntrack = KernelConntrack::open(&place.netns()).unwrap();
            let flows = conntrack.entries(&ConntrackFilter::default()).unwrap();
            marked.extend(flows.iter().map(|flow| flow.mark));
        }
    }
    assert!(steps > 180 && marked.iter().all(|mark| mark & !0xff00 == 0));
}

#[test]
fn policy_sees_the_address_after_translation() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("nat");
    let host = place.lab.host();
    place.nft(
        host,
        "add table inet nat { chain pre { type nat hook prerouting priority -100; \
         ip daddr 198.18.0.1 udp dport 53 dnat ip to 10.88.0.2:5353; \
         ip6 daddr fd99::1 udp dport 53 dnat ip6 to [fd88::2]:5353; }; \
         chain post { type nat hook postrouting priority 100; \
         iifname \"pal-a\" oifname \"pal-b\" masquerade; }; }",
    );
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Egress), (B, Ingress)];
    enforced.set(&closed, &[(A, B, 17, Some(5353)), (OUT, B, 17, Some(5353))]);
    let services = ["198.18.0.1:53", "[fd99::1]:53"].map(|s| s.parse().unwrap());
    for family in [0, 1] {
        let ask = |from: usize| udp(Place::at(from, family, 3000), services[family], 1, &tag());
        assert!(place.arrives(A, B, ask(A)), "{family}: a pod");
        assert!(place.arrives(OUT, B, ask(OUT)), "{family}: from outside");
        let answer = datagram(B, OUT, family, [5353, 3000]);
        assert!(place.arrives(B, OUT, answer), "{family}: the answer");
    }
    enforced.set(&closed, &[(A, B, 17, Some(53)), (OUT, B, 17, Some(53))]);
    for family in [0, 1] {
        let ask = |from: usize| udp(Place::at(from, family, 3000), services[family], 1, &tag());
        assert!(!place.arrives(A, B, ask(A)), "{family}: the port before");
        assert!(
            !place.arrives(OUT, B, ask(OUT)),
            "{family}: the port before"
        );
        let answer = datagram(B, OUT, family, [5353, 3000]);
        assert!(!place.arrives(B, OUT, answer), "{family}: revoked");
    }
}

/// Both directions of the pod are isolated, and no flow is allowed.
#[test]
fn a_pod_reaches_itself_by_a_service() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("self");
    let host = place.lab.host();
    place.nft(
        host,
        "add table inet nat { chain pre { type nat hook prerouting priority -100; \
         ip daddr 198.18.0.1 udp dport 53 dnat ip to 10.88.0.1:5353; \
         ip6 daddr fd99::1 udp dport 53 dnat ip6 to [fd88::1]:5353; }; \
         chain post { type nat hook postrouting priority 100; \
         iifname \"pal-a\" oifname \"pal-a\" snat ip to 198.18.0.9; \
         iifname \"pal-a\" oifname \"pal-a\" snat ip6 to fd99::9; }; }",
    );
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Egress), (A, Ingress), (B, Egress)];
    let services = ["198.18.0.1:53", "[fd99::1]:53"].map(|s| s.parse().unwrap());
    let translated = ["198.18.0.9:3000", "[fd99::9]:3000"].map(|s| s.parse().unwrap());
    enforced.set(&closed, &[]);
    for round in 0..2 {
        for family in [0, 1] {
            let ask = |from: usize| udp(Place::at(from, family, 3000), services[family], 1, &tag());
            assert!(place.arrives(A, A, ask(A)), "{family}: itself, {round}");
            assert!(
                !place.arrives(B, A, ask(B)),
                "{family}: another pod, {round}"
            );
            let own = Place::at(A, family, 5353);
            let answer = udp(own, translated[family], 1, &tag());
            assert!(place.arrives(A, A, answer), "{family}: the answer, {round}");
        }
        // Judged again, it still passes.
        enforced.set(&closed, &[(B, A, 17, Some(9))]);
        enforced.set(&closed, &[]);
    }
}

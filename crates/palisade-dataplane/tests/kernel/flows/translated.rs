//! Local processes of the host that reach a pod through a Service address, where host traffic is subject to
//! policy: judged by the real destination, whatever interface the Service address is routed to.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use palisade_model::Direction::Ingress;
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::TcpEcho;

use super::need_root;
use super::place::{Allowed, B, HOST, OUT, Place, tables};

/// The time after which a packet counts as dropped.
const PATIENCE: Duration = Duration::from_millis(300);
/// The pod's real port; the Services' port is 53.
const PORT: u16 = 5353;
/// Services by family: one is routed to the external host, one to the other pod.
const SERVICES: [[&str; 2]; 2] = [
    ["198.18.0.1:53", "198.18.1.1:53"],
    ["[fd99::1]:53", "[fd98::1]:53"],
];

struct Scene {
    place: Place,
    driver: CountedDriver,
    udp: UdpSocket,
    _tcp: TcpEcho,
}

impl Scene {
    fn open() -> Self {
        let place = Place::new("translated");
        let host = place.lab.host();
        let mut script =
            "add table inet nat { chain out { type nat hook output priority -100; ".to_owned();
        for (net, family, to) in [
            ("198.18.0.0/23", "ip", "10.88.0.2"),
            ("fd98::/15", "ip6", "[fd88::2]"),
        ] {
            for protocol in ["tcp", "udp"] {
                script += &format!(
                    "{family} daddr {net} {protocol} dport 53 dnat {family} to {to}:{PORT}; "
                );
            }
        }
        place.nft(host, &(script + "}; }"));
        for (family, nets) in [
            (0, ["198.18.0.0/24", "198.18.1.0/24"]),
            (1, ["fd99::/64", "fd98::/64"]),
        ] {
            let source = Place::address(HOST, family);
            for (net, interface) in nets.iter().zip(["out0", "pal-a"]) {
                let line = format!("route add {net} dev {interface} src {source}");
                let status = std::process::Command::new("ip")
                    .args(["-n", place.lab.namespace_name(host)])
                    .args(line.split(' '))
                    .status();
                assert!(status.unwrap().success(), "ip {line}");
            }
        }
        let pod = place.nodes[B];
        let udp = place
            .lab
            .run_in(pod, || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)));
        let udp = udp.unwrap().unwrap();
        udp.set_read_timeout(Some(PATIENCE)).unwrap();
        let tcp = TcpEcho::start(&place.lab, pod, PORT).unwrap();
        let driver = place.driver_for_host();
        Scene {
            place,
            driver,
            udp,
            _tcp: tcp,
        }
    }

    /// Isolates the pod except for these flows, for everyone including the host.
    fn set(&mut self, allowed: &[Allowed]) {
        let mut tables = tables(&[(B, Ingress)], allowed);
        tables.judgement.judge_host_traffic = true;
        self.driver.resync(&tables).unwrap();
    }

    /// A socket of the host that is connected to a Service.
    fn sender(&self, service: SocketAddr) -> UdpSocket {
        let own = Place::at(HOST, usize::from(service.is_ipv6()), 0);
        let host = self.place.lab.host();
        let socket = self.place.lab.run_in(host, || UdpSocket::bind(own));
        let socket = socket.unwrap().unwrap();
        socket.connect(service).unwrap();
        socket
    }

    /// How many of `count` packets arrive; none of them is answered.
    fn one_way(&self, socket: &UdpSocket, count: u8) -> usize {
        for number in 0..count {
            // A packet that is dropped in the output hook is an error of the call.
            let _ = socket.send(&[number]);
        }
        let mut arrived = 0;
        while arrived < usize::from(count) && self.udp.recv(&mut [0; 8]).is_ok() {
            arrived += 1;
        }
        arrived
    }

    fn connect(&self, service: SocketAddr) -> Option<TcpStream> {
        let host = self.place.lab.host();
        let connect = || TcpStream::connect_timeout(&service, PATIENCE);
        let stream = self.place.lab.run_in(host, connect).unwrap().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(stream)
    }

    /// The number of packets counted by rules.
    fn counted(&mut self) -> u64 {
        let counters = self.driver.counters().unwrap();
        counters.by_rule.values().map(|count| count.packets).sum()
    }
}

/// Whether written data comes back.
fn echoes(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    stream.write_all(&[7]).is_ok() && stream.read_exact(&mut byte).is_ok() && byte == [7]
}

#[test]
fn a_local_process_is_judged_by_where_the_service_leads() {
    if !need_root() {
        return;
    }
    let mut scene = Scene::open();
    let [tcp, udp]: [Allowed; 2] = [(HOST, B, 6, Some(PORT)), (HOST, B, 17, Some(PORT))];
    for service in SERVICES.concat() {
        let service: SocketAddr = service.parse().unwrap();
        // Policy sees neither the port nor the address of the Service.
        for denied in [&[][..], &[(HOST, B, 6, Some(53)), (HOST, B, 17, Some(53))]] {
            scene.set(denied);
            let socket = scene.sender(service);
            assert_eq!(scene.one_way(&socket, 5), 0, "{service}: denied");
            assert!(scene.connect(service).is_none(), "{service}: denied");
        }
        scene.set(&[(OUT, B, 6, Some(PORT)), udp]);
        assert!(scene.connect(service).is_none(), "{service}: UDP alone");

        // Allowed, judged once, and cut when it is revoked.
        scene.set(&[tcp, udp]);
        let socket = scene.sender(service);
        let before = scene.counted();
        assert_eq!(scene.one_way(&socket, 1), 1, "{service}: allowed");
        assert_eq!(scene.counted(), before + 1, "{service}: counted once");
        assert_eq!(scene.one_way(&socket, 50), 50, "{service}: allowed");
        assert_eq!(
            scene.counted(),
            before + 1,
            "{service}: accepted by its mark"
        );
        let mut stream = scene.connect(service).unwrap();
        assert!(echoes(&mut stream), "{service}");

        scene.set(&[tcp]);
        assert_eq!(scene.one_way(&socket, 50), 0, "{service}: revoked");
        assert!(echoes(&mut stream), "{service}: still allowed");
        scene.set(&[udp]);
        assert!(!echoes(&mut stream), "{service}: revoked");
        assert_eq!(scene.one_way(&socket, 50), 50, "{service}: allowed again");
    }

    // Without the tested rules all of it passes: the test can detect the fault.
    scene.set(&[]);
    let host = scene.place.lab.host();
    scene.place.nft(host, "flush chain inet t p_translated");
    for family in [0, 1] {
        let service: SocketAddr = SERVICES[family][0].parse().unwrap();
        let socket = scene.sender(service);
        assert_eq!(scene.one_way(&socket, 5), 5, "{service}: without the rules");
    }
}

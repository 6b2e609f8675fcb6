//! Flows between pods of two hosts, each with the fast path: over Ethernet, and over VXLAN, whose packets are smaller than
//! those that pods send.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use palisade_dataplane::Dataplane as _;
use palisade_dataplane::ebpf::FastPathConfig;
use palisade_model::Prefix;
use palisade_sys::netns::NetNs;
use palisade_tables::Tables;
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::{Lab, NodeId, PodSpec};
use palisade_testkit::test_driver::open_fast_path_with;

use super::fast::{CLOSED, config, counts};
use super::need_root;
use super::place::{A, Allowed, INTERFACES, OUT, Place, tables};

/// The interface of each host to the other one.
const LINK: &str = "node0";
/// The same, of the overlay.
const OVERLAY: &str = "vx0";
/// The addresses of the hosts there.
const NODES: [[&str; 2]; 2] = [["172.31.0.1", "fd31::1"], ["172.31.0.2", "fd31::2"]];
const PATIENCE: Duration = Duration::from_secs(10);
/// What a stream carries each way, in bytes.
const AMOUNT: usize = 4 << 20;

/// What the pod of the first host may send to that of the second, for both.
const ALLOWED: [Allowed; 2] = [(A, OUT, 6, Some(80)), (A, OUT, 17, Some(53))];

struct TwoHosts {
    /// The host of the pod A.
    near: Place,
    /// The host of the pod that A knows as the other host.
    far: Lab,
    far_pod: NodeId,
    uplink: &'static str,
}

impl TwoHosts {
    fn new(name: &str, uplink: &'static str) -> Self {
        let near = Place::new(name);
        let unused = ["203.0.113.77", "2001:db8:77::77"].map(|address| address.parse().unwrap());
        let mut far = Lab::with_outside(&format!("{name}f"), &unused).unwrap();
        let addresses = [0, 1].map(|family| Place::address(OUT, family).to_string());
        let addresses = addresses.each_ref().map(String::as_str);
        let pod = PodSpec::new("c", INTERFACES[A], &addresses);
        let far_pod = far.add_pod(pod).unwrap();
        let hosts = TwoHosts {
            near,
            far,
            far_pod,
            uplink,
        };
        hosts.connect();
        hosts
    }

    fn host_name(&self, side: usize) -> &str {
        let lab = [&self.near.lab, &self.far][side];
        lab.namespace_name(lab.host())
    }

    fn connect(&self) {
        let far = self.host_name(1).to_owned();
        ip(
            self.host_name(0),
            &format!("link add {LINK} mtu 1550 type veth peer name {LINK} mtu 1550 netns {far}"),
        );
        for side in [0, 1] {
            let run = |line: String| ip(self.host_name(side), &line);
            let [near, far] = [NODES[side], NODES[1 - side]];
            run(format!("link set {LINK} up"));
            let mut to = LINK;
            if self.uplink == OVERLAY {
                run(format!("address add 172.31.1.{}/24 dev {LINK}", side + 1));
                run(format!(
                    "link add {OVERLAY} mtu 1450 type vxlan id 7 dstport 4789 dev {LINK} remote 172.31.1.{}",
                    2 - side
                ));
                run(format!("link set {OVERLAY} up"));
                to = OVERLAY;
            }
            run(format!("address add {}/24 dev {to}", near[0]));
            run(format!("address add {}/64 dev {to} nodad", near[1]));
            let pod = [OUT, A][side];
            for family in [0, 1] {
                let (address, via) = (Place::address(pod, family), far[family]);
                run(format!("route replace {address} via {via} dev {to}"));
            }
        }
    }

    fn driver(&self, side: usize) -> CountedDriver {
        let fast = FastPathConfig {
            proof_bit: 0x2000,
            networks: vec![Prefix::ALL_V4, Prefix::ALL_V6],
            uplinks: vec![self.uplink.into()],
        };
        let netns = NetNs::open(self.host_name(side)).unwrap();
        open_fast_path_with(config(), fast, &netns).unwrap().into()
    }

    /// What the pod at a side gets of a function in its namespace.
    fn in_pod<R: Send>(&self, side: usize, work: impl FnOnce() -> R + Send) -> R {
        let result = match side {
            0 => self.near.lab.run_in(self.near.nodes[A], work),
            _ => self.far.run_in(self.far_pod, work),
        };
        result.unwrap()
    }
}

/// The tables of the second host, where these flows are allowed: its pod is the first host's other host.
fn far_tables(allowed: &[Allowed]) -> Tables {
    let other = |end: usize| match end {
        A => OUT,
        OUT => A,
        end => end,
    };
    let allowed = allowed.iter();
    let allowed: Vec<Allowed> = allowed
        .map(|(from, to, protocol, port)| (other(*from), other(*to), *protocol, *port))
        .collect();
    let mut tables = tables(&CLOSED, &allowed);
    let address = |known: IpAddr| {
        let family = usize::from(known.is_ipv6());
        let ends = [A, OUT].map(|end| Place::address(end, family));
        let at = ends.iter().position(|end| *end == known);
        at.map_or(known, |at| ends[1 - at])
    };
    let prefix = |known: Prefix| Prefix::host(address(known.address()));
    let addresses = std::mem::take(&mut tables.addresses);
    for (known, identity) in addresses.iter() {
        tables.addresses.insert(prefix(known), *identity);
    }
    let points = std::mem::take(&mut tables.points).into_iter();
    tables.points = points
        .map(|(mut point, set)| {
            point.local = prefix(point.local);
            (point, set)
        })
        .collect();
    tables
}

fn ip(namespace: &str, line: &str) {
    let output = std::process::Command::new("ip")
        .args(["-n", namespace])
        .args(line.split(' '))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {line}: {errors}");
}

/// A connection from the first pod to the second.
struct Stream {
    client: TcpStream,
    server: TcpStream,
}

impl Stream {
    fn open(hosts: &TwoHosts, family: usize) -> Self {
        let to = Place::at(OUT, family, 80);
        let listener = hosts.in_pod(1, || TcpListener::bind(to)).unwrap();
        let client = hosts.in_pod(0, || TcpStream::connect_timeout(&to, PATIENCE));
        let (server, _) = listener.accept().unwrap();
        let stream = Stream {
            client: client.unwrap(),
            server,
        };
        for end in [&stream.client, &stream.server] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        stream
    }

    /// Sends this much each way at once; all of it arrives as it was.
    fn carry(&self, amount: usize) {
        let content = |salt: usize| (0..amount).map(move |at| (at * 7 + at / 251 + salt) as u8);
        std::thread::scope(|scope| {
            for (mut from, mut to, salt) in [
                (&self.client, &self.server, 1),
                (&self.server, &self.client, 2),
            ] {
                let bytes: Vec<u8> = content(salt).collect();
                scope.spawn(move || from.write_all(&bytes).unwrap());
                scope.spawn(move || {
                    let mut bytes = vec![0; amount];
                    to.read_exact(&mut bytes).unwrap();
                    assert!(bytes.into_iter().eq(content(salt)), "{salt}");
                });
            }
        });
    }
}

/// A socket of the first pod that asks one of the second.
struct Question {
    client: UdpSocket,
    server: UdpSocket,
}

impl Question {
    fn new(hosts: &TwoHosts, family: usize) -> Self {
        let bind = |side, address: SocketAddr| {
            let socket = hosts.in_pod(side, || UdpSocket::bind(address)).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(500)))
                .unwrap();
            socket
        };
        let to = Place::at(OUT, family, 53);
        let server = bind(1, to);
        let client = bind(0, Place::at(A, family, 0));
        client.connect(to).unwrap();
        Question { client, server }
    }

    /// Whether the question arrives, and whether its answer does.
    fn ask(&self) -> [bool; 2] {
        let mut buffer = [0; 2_000];
        self.client.send(&[7; 1_200]).unwrap();
        let Ok((length, from)) = self.server.recv_from(&mut buffer) else {
            return [false; 2];
        };
        self.server.send_to(&buffer[..length], from).unwrap();
        [true, self.client.recv(&mut buffer).is_ok()]
    }
}

fn check_two_hosts(name: &str, uplink: &'static str) {
    let hosts = TwoHosts::new(name, uplink);
    let (mut near, mut far) = (hosts.driver(0), hosts.driver(1));
    near.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    far.resync(&far_tables(&ALLOWED)).unwrap();
    assert_eq!((near.conditions(), far.conditions()), (vec![], vec![]));
    let scenes = [0, 1].map(|family| {
        let stream = Stream::open(&hosts, family);
        stream.carry(AMOUNT);
        let question = Question::new(&hosts, family);
        assert_eq!(question.ask(), [true; 2], "{family}");
        (stream, question)
    });
    for (driver, host) in [(&near, "near"), (&far, "far")] {
        assert_eq!(counts(driver).owned, 4, "{host}");
        assert_eq!(counts(driver).via_stack, 0, "{host}");
    }
    // Each host judges by its own tables: where one allows nothing any more, nothing goes on.
    for (at_near, at_far) in [(&ALLOWED[..0], &ALLOWED[..]), (&ALLOWED[..], &ALLOWED[..0])] {
        near.resync(&tables(&CLOSED, at_near)).unwrap();
        far.resync(&far_tables(at_far)).unwrap();
        for (_, question) in &scenes {
            assert_eq!(question.ask(), [false; 2], "{at_near:?} {at_far:?}");
        }
        near.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
        far.resync(&far_tables(&ALLOWED)).unwrap();
        for (stream, question) in &scenes {
            assert_eq!(question.ask(), [true; 2]);
            stream.carry(100_000);
        }
    }
    // An agent after another on either host, under traffic.
    let has_ended = AtomicBool::new(false);
    drop((near, far));
    let (near, far) = std::thread::scope(|scope| {
        for (_, question) in &scenes {
            let has_ended = &has_ended;
            scope.spawn(move || {
                let mut asked = 0;
                while !has_ended.load(Ordering::Relaxed) {
                    assert_eq!(question.ask(), [true; 2], "question {asked}");
                    asked += 1;
                }
            });
        }
        let (mut near, mut far) = (hosts.driver(0), hosts.driver(1));
        near.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
        far.resync(&far_tables(&ALLOWED)).unwrap();
        has_ended.store(true, Ordering::Relaxed);
        (near, far)
    });
    for (stream, _) in &scenes {
        stream.carry(AMOUNT);
        stream.client.shutdown(Shutdown::Both).unwrap();
    }
    for (driver, host) in [(&near, "near"), (&far, "far")] {
        assert_eq!(counts(driver).owned, 4, "{host}");
        assert_eq!(counts(driver).via_stack, 0, "{host}");
    }
}

#[test]
fn flows_between_two_hosts_take_the_fast_path_of_both() {
    if !need_root() {
        return;
    }
    check_two_hosts("two", LINK);
}

#[test]
fn flows_over_an_overlay_take_the_fast_path_of_both() {
    if !need_root() {
        return;
    }
    check_two_hosts("twovx", OVERLAY);
}

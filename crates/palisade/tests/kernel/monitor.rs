//! The output of `palisade monitor` for real packets: each with its verdict, the names of source and
//! destination, and the rule that decided; and of a flood, all packets, shown or counted.

use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use palisade_testkit::lab::{OUTSIDE_ADDRESSES, ProbeFlow};
use palisade_testkit::need_root;
use palisade_testkit::spelling::misspelled_keys;
use palisade_testkit::test_driver::has_fast_path;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Timeout for lines.
const PATIENCE: Duration = Duration::from_secs(20);

/// The packets in the agent's memory that match, once there are as many as wanted.
fn remembered(shop: &Shop, filters: &[&str], wanted: usize) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let base = ["monitor", "--last", "1000", "--no-follow", "-o", "json"];
        let output = shop.agent.run(&[&base[..], filters].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let lines = output.stdout.lines().map(|line| line.unwrap());
        let lines: Vec<Value> = lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect();
        if lines.len() >= wanted {
            return lines;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{filters:?}: {} of {wanted}: {lines:#?}\n{}",
            lines.len(),
            shop.agent.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The packet with this destination, protocol and destination port.
fn find<'a>(lines: &'a [Value], to: &str, protocol: &str, port: Option<u64>) -> &'a Value {
    let fits = |line: &&Value| {
        line["destination"]["address"] == to
            && line["protocol"] == protocol
            && line["destination"]["port"].as_u64() == port
    };
    lines
        .iter()
        .find(fits)
        .unwrap_or_else(|| panic!("{to} {protocol} {port:?} in {lines:#?}"))
}

/// A running `palisade monitor` and its lines.
pub(crate) struct Following {
    child: Child,
    pub(crate) lines: Receiver<Value>,
}

impl Following {
    pub(crate) fn start(shop: &Shop, filters: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
            .args(["--socket", shop.agent.socket().to_str().unwrap()])
            .args(["monitor", "-o", "json"])
            .args(filters)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines() {
                let Ok(line) = line else { return };
                if to.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Following { child, lines }
    }

    /// Interrupts it; it must exit with success.
    fn interrupt(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // Already ended if the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_denied_packet_is_told_with_its_ends_and_what_isolates() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("monitor");
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    let (web, api, db) = (shop.pods[0], shop.pods[1], shop.pods[2]);
    let to = |family: usize| address(ADDRESSES[2][family]);
    let flows = [
        (ProbeFlow::tcp(web, to(0), 8080, db), true),
        (ProbeFlow::tcp(api, to(0), 8080, db), false),
        (ProbeFlow::tcp(api, to(1), 8080, db), false),
        (ProbeFlow::udp(web, to(0), 53, db), false),
        (ProbeFlow::udp(web, to(1), 53, db), false),
        (ProbeFlow::echo(api, to(0), db), false),
        (ProbeFlow::echo(api, to(1), db), false),
        (ProbeFlow::tcp(shop.lab.outside(), to(0), 8081, db), false),
        (
            ProbeFlow::tcp(web, address(ADDRESSES[1][0]), 7, api)
                .with_source(address("10.77.0.99")),
            false,
        ),
    ];
    let (asked, wanted): (Vec<ProbeFlow>, Vec<bool>) = flows.into_iter().unzip();
    assert_eq!(shop.arrives(&asked), wanted);

    let lines = remembered(&shop, &[], 8);
    let [v4, v6] = ADDRESSES[2];
    for (to, protocol, port, from) in [
        (v4, "TCP", Some(8080), "api"),
        (v6, "TCP", Some(8080), "api"),
        (v4, "UDP", Some(53), "web"),
        (v6, "UDP", Some(53), "web"),
        (v4, "ICMP", None, "api"),
        (v6, "ICMPv6", None, "api"),
    ] {
        let line = find(&lines, to, protocol, port);
        assert_eq!(line["type"], "Packet", "{line:#}");
        assert_eq!(misspelled_keys(line), [""; 0], "{line:#}");
        assert_eq!(line["apiVersion"], "palisade.io/v1", "{line:#}");
        assert_eq!(line["verdict"], "Denied", "{line:#}");
        assert_eq!(line["reason"], "DefaultDeny", "{line:#}");
        assert_eq!(line["direction"], "Ingress", "{line:#}");
        assert_eq!(line["endpoint"], "shop/db", "{line:#}");
        assert_eq!(line["source"]["namespace"], "shop", "{line:#}");
        assert_eq!(line["source"]["name"], from, "{line:#}");
        assert_eq!(line["destination"]["name"], "db", "{line:#}");
        assert_eq!(line["policies"][0]["kind"], "NetworkPolicy", "{line:#}");
        assert_eq!(line["policies"][0]["name"], "db", "{line:#}");
        let place = line["policies"][0]["line"].as_str().unwrap();
        assert!(place.contains("db.yaml:"), "{line:#}");
        assert!(line["length"].as_u64() > Some(20), "{line:#}");
        assert!(line["interface"].as_str().unwrap().starts_with("pal"));
        let time = line["time"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.contains('.'), "{time}");
        assert!(line["revision"].as_u64().is_some(), "{line:#}");
    }
    assert_eq!(find(&lines, v4, "ICMP", None)["icmpType"], 8);
    assert_eq!(find(&lines, v6, "ICMPv6", None)["icmpType"], 128);
    let outside = find(&lines, v4, "TCP", Some(8081));
    assert_eq!(outside["source"]["name"], Value::Null, "{outside:#}");
    assert_eq!(
        outside["source"]["address"],
        OUTSIDE_ADDRESSES[0].to_string()
    );
    let spoofed = find(&lines, ADDRESSES[1][0], "TCP", Some(7));
    assert_eq!(spoofed["reason"], "Spoofed", "{spoofed:#}");
    assert_eq!(spoofed["endpoint"], "shop/web", "{spoofed:#}");
    assert_eq!(spoofed["direction"], "Egress", "{spoofed:#}");
    let allowed =
        |line: &&Value| line["source"]["name"] == "web" && line["destination"]["port"] == 8080;
    assert!(
        !lines.iter().any(|line| allowed(&line)),
        "allowed packets are not reported"
    );

    for (filters, least) in [
        (&["--endpoint", "shop/db"][..], 7),
        (&["--namespace", "shop", "--verdict", "denied"], 8),
        (&["--from", "shop/api"], 4),
        (&["--to", v6], 3),
        (&["--from", "10.77.0.99"], 1),
    ] {
        assert!(
            remembered(&shop, filters, least).len() < lines.len() + 1,
            "{filters:?}"
        );
    }
    for filters in [
        ["--namespace", "other"],
        ["--verdict", "allowed"],
        ["--endpoint", "db"],
    ] {
        assert_eq!(
            remembered(&shop, &filters, 0),
            [Value::Null; 0],
            "{filters:?}"
        );
    }

    let text = shop
        .agent
        .run(&["monitor", "--last", "1000", "--no-follow"]);
    let text = String::from_utf8(text.stdout).unwrap();
    let by = "no rule allows it, isolated by NetworkPolicy shop/db";
    assert!(
        text.contains("shop/api (10.77.0.2)") && text.contains(by),
        "{text}"
    );
    shop.agent.delete("db.yaml");
}

/// Number of packets that the kernel counted as denied by default.
fn denied(shop: &Shop) -> u64 {
    let detail = shop.agent.json(&["policy", "get", "shop/db"]);
    let rules = detail["ruleCounters"].as_array().unwrap();
    let of = |rule: &&Value| rule["action"] == "DefaultDeny";
    rules.iter().find(of).unwrap()["count"]["packets"]
        .as_u64()
        .unwrap()
}

#[test]
fn a_flood_is_told_or_counted_and_two_readers_get_the_same() {
    if !need_root() {
        return;
    }
    const PACKETS: u64 = 20_000;
    let shop = Shop::open("monitorflood");
    shop.agent
        .apply("db.yaml", &policy("db", "db", "  ingress: []\n"));
    let readers = [
        Following::start(&shop, &[]),
        Following::start(&shop, &["--endpoint", "shop/db"]),
    ];
    // Each listener must be ready before the packets that it must receive are sent.
    let knock = |port: u16| {
        shop.lab
            .run_in(shop.pods[0], move || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.send_to(b"x", ("10.77.0.3", port)).unwrap();
            })
            .unwrap();
    };
    let mut heard = [(0u64, 0u64); 2];
    let began = Instant::now();
    let mut ready = [false; 2];
    while ready != [true; 2] {
        assert!(
            began.elapsed() < PATIENCE,
            "{ready:?}\n{}",
            shop.agent.log()
        );
        knock(1);
        std::thread::sleep(Duration::from_millis(100));
        for (reader, ready) in readers.iter().zip(&mut ready) {
            *ready |= reader.lines.try_iter().count() > 0;
        }
    }
    // Until no knocking packet is in flight any more.
    std::thread::sleep(Duration::from_millis(800));
    for reader in &readers {
        reader.lines.try_iter().for_each(drop);
    }
    let before = denied(&shop);
    shop.lab
        .run_in(shop.pods[0], move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for number in 0..PACKETS {
                // Not a port of a tunnel, which would be dropped at the sender.
                let port = 10_000 + (number % 5_000) as u16;
                // A full queue returns an error; an unsent packet is not counted either.
                let _ = socket.send_to(b"x", ("10.77.0.3", port));
            }
        })
        .unwrap();
    let status = Instant::now();
    assert_eq!(shop.agent.status()["health"], "Ready");
    let answered = status.elapsed();
    let sent = denied(&shop) - before;
    assert!(sent > 10_000, "{sent}");
    let began = Instant::now();
    while heard.iter().any(|(told, lost)| told + lost < sent) {
        assert!(
            began.elapsed() < PATIENCE,
            "{heard:?} of {sent}\n{}",
            shop.agent.log()
        );
        for (reader, (told, lost)) in readers.iter().zip(&mut heard) {
            for line in reader.lines.try_iter() {
                match line["type"].as_str() {
                    Some("Packet") => {
                        assert_eq!(line["destination"]["name"], "db", "{line:#}");
                        *told += 1;
                    }
                    Some("Lost") => *lost += line["count"].as_u64().unwrap(),
                    _ => panic!("{line:#}"),
                }
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "{sent} denied; (told, counted) by reader: {heard:?}; status answered in {answered:?}"
    );
    for (told, lost) in heard {
        assert_eq!(told + lost, sent, "{heard:?}");
        assert!(told >= 100 && lost > told, "{heard:?}");
    }
    readers.into_iter().for_each(Following::interrupt);
}

/// Packets of a flow that was revoked are told with either driver: the fast path drops those of the flows that it delivers.
#[test]
fn a_packet_of_a_revoked_flow_is_told_with_what_isolates() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("monitorgone");
    let deny_all = policy("db", "db", "  policyTypes: [Ingress]\n");
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    for (family, protocol) in [(0, "IPv4"), (1, "IPv6")] {
        let (from, to) = (address(ADDRESSES[0][family]), address(ADDRESSES[2][family]));
        let listen = || TcpListener::bind((to, 8080)).unwrap();
        let server = shop.lab.run_in(shop.pods[2], listen).unwrap();
        let connect = || TcpStream::connect((to, 8080)).unwrap();
        let mut client = shop.lab.run_in(shop.pods[0], connect).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        client.write_all(b"asked").unwrap();
        accepted.read_exact(&mut [0; 5]).unwrap();
        let delivers = |status: &Value| {
            let flows = &status["dataplane"]["fastPath"]["figures"]["flows"];
            flows.as_u64() > Some(family as u64)
        };
        if has_fast_path() {
            shop.agent.wait("a flow of the fast path", delivers);
        }
        shop.agent.apply("db.yaml", &deny_all);
        client.write_all(b"asked again").unwrap();
        let filters = ["--from", "shop/web", "--to", &to.to_string()];
        let lines = remembered(&shop, &filters, 1);
        let line = &lines[0];
        assert_eq!(misspelled_keys(line), [""; 0], "{line:#}");
        assert_eq!(line["verdict"], "Denied", "{protocol} {line:#}");
        assert_eq!(line["reason"], "DefaultDeny", "{line:#}");
        assert_eq!(line["direction"], "Ingress", "{line:#}");
        assert_eq!(line["endpoint"], "shop/db", "{line:#}");
        assert_eq!(line["source"]["address"], from.to_string(), "{line:#}");
        assert_eq!(line["destination"]["port"], 8080, "{line:#}");
        assert_eq!(line["policies"][0]["name"], "db", "{line:#}");
        shop.agent
            .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    }
}

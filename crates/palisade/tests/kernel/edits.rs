//! All ways in which editors and tools change the files of a policy that stays the same: no denied packet
//! ever passes, and no allowed connection is interrupted.

use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use palisade_testkit::lab::{Lab, LongFlow, NodeId, TcpEcho};
use palisade_testkit::need_root;
use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longer than the 100 ms for which the directory must be unchanged.
const LONG: Duration = Duration::from_millis(250);
/// A lost packet is retransmitted after 200 ms at the earliest.
const CUT: Duration = Duration::from_millis(200);
/// Longer than any machine stalls.
const STANDSTILL: Duration = Duration::from_secs(5);
/// Destination port of packets that the policy denies.
const DENIED_PORT: u16 = 9999;

/// Packets that the policy denies, each of a new flow.
#[derive(Default)]
struct Denied {
    stop: AtomicBool,
    sent: AtomicU64,
    arrived: AtomicU64,
}

impl Denied {
    fn send(&self, lab: &Lab, from: NodeId, to: IpAddr) {
        let any: IpAddr = match to {
            IpAddr::V4(_) => "0.0.0.0".parse().unwrap(),
            IpAddr::V6(_) => "::".parse().unwrap(),
        };
        let sending = || {
            while !self.stop.load(Ordering::Relaxed) {
                let socket = UdpSocket::bind((any, 0)).unwrap();
                if socket.send_to(b"denied", (to, DENIED_PORT)).is_ok() {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        lab.run_in(from, sending).unwrap();
    }

    fn receive(&self, lab: &Lab, node: NodeId, at: IpAddr) {
        let socket = lab
            .run_in(node, || UdpSocket::bind((at, DENIED_PORT)).unwrap())
            .unwrap();
        let patience = Some(Duration::from_millis(50));
        socket.set_read_timeout(patience).unwrap();
        let mut bytes = [0; 16];
        while !self.stop.load(Ordering::Relaxed) {
            if socket.recv(&mut bytes).is_ok() {
                self.arrived.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }
}

/// Stops the senders also on a panic, since the threads are joined.
struct Stopping<'a>(&'a Denied);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn command(program: &str, directory: &Path, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .current_dir(directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
}

fn git(directory: &Path, args: &[&str]) {
    let who = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
    command("git", directory, &[&who[..], args].concat());
}

/// An operation on the files of a directory.
type Pattern = fn(&Shop, &Path);

/// The file operations, by kind of tool. After each of them one file contains the policy.
fn patterns() -> Vec<(&'static str, Pattern)> {
    fn rules(port: u16) -> String {
        policy(
            "api",
            "api",
            &FROM_WEB_8080.replace("8080", &format!("8080}}, {{port: {port}")),
        )
    }
    vec![
        ("vim: away, anew, and the backup removed", |_, root| {
            fs::write(root.join(".api.yaml.swp"), "b0VIM").unwrap();
            std::thread::sleep(LONG);
            fs::rename(root.join("api.yaml"), root.join("api.yaml~")).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            fs::write(root.join("api.yaml"), rules(1)).unwrap();
            fs::remove_file(root.join("api.yaml~")).unwrap();
            fs::remove_file(root.join(".api.yaml.swp")).unwrap();
        }),
        ("sed -i", |_, root| {
            command("sed", root, &["-i", "s/port: 1}/port: 2}/", "api.yaml"]);
        }),
        ("written in pieces, held open", |_, root| {
            let text = rules(3);
            let mut file = File::create(root.join("api.yaml")).unwrap();
            std::thread::sleep(LONG);
            for piece in text.as_bytes().chunks(text.len() / 4) {
                file.write_all(piece).unwrap();
                file.sync_all().unwrap();
                std::thread::sleep(LONG);
            }
        }),
        (
            "truncated to nothing, closed, filled later",
            |shop, root| {
                File::create(root.join("api.yaml")).unwrap();
                std::thread::sleep(2 * LONG);
                shop.agent.wait("told", |s| {
                    s["source"]["problems"].as_array().map(Vec::len) == Some(1)
                });
                fs::write(root.join("api.yaml"), rules(4)).unwrap();
            },
        ),
        ("broken and mended", |shop, root| {
            for broken in ["kind: [", "apiVersion: v1\nkind: Nonsense\n  x", "\0\u{1}"] {
                fs::write(root.join("api.yaml"), broken).unwrap();
                shop.agent.wait("degraded", |s| s["health"] == "Degraded");
            }
            fs::write(root.join("api.yaml"), rules(5)).unwrap();
        }),
        ("moved between folders", |_, root| {
            fs::create_dir_all(root.join("a/deep")).unwrap();
            fs::create_dir(root.join("b")).unwrap();
            fs::rename(root.join("api.yaml"), root.join("a/deep/api.yaml")).unwrap();
            std::thread::sleep(LONG);
            fs::rename(root.join("a/deep/api.yaml"), root.join("b/api.yaml")).unwrap();
            fs::rename(root.join("b"), root.join("a/c")).unwrap();
            std::thread::sleep(LONG);
            command("mv", root, &["a/c/api.yaml", "."]);
            fs::remove_dir_all(root.join("a")).unwrap();
        }),
        ("git checkout between commits", |_, root| {
            git(root, &["init", "-q"]);
            git(root, &["add", "."]);
            git(root, &["commit", "-q", "-m", "one"]);
            git(root, &["tag", "one"]);
            fs::create_dir(root.join("moved")).unwrap();
            git(root, &["mv", "api.yaml", "moved/guard.yaml"]);
            fs::write(root.join("moved/guard.yaml"), rules(6)).unwrap();
            git(root, &["commit", "-q", "-a", "-m", "two"]);
            git(root, &["tag", "two"]);
            for tag in ["one", "two", "one", "two", "one"] {
                git(root, &["checkout", "-q", tag]);
                std::thread::sleep(LONG);
            }
        }),
        ("another folder removed and brought back", |_, root| {
            command("cp", root, &["-r", "unrelated", ".kept"]);
            fs::remove_dir_all(root.join("unrelated")).unwrap();
            std::thread::sleep(2 * LONG);
            fs::rename(root.join(".kept"), root.join("unrelated")).unwrap();
        }),
        ("a mounted folder whose ..data is swapped", |_, root| {
            let mounted = root.join("mounted");
            fs::create_dir_all(mounted.join("..1")).unwrap();
            fs::write(mounted.join("..1/api.yaml"), rules(7)).unwrap();
            symlink("..1", mounted.join("..data")).unwrap();
            fs::remove_file(root.join("api.yaml")).unwrap();
            symlink("..data/api.yaml", mounted.join("api.yaml")).unwrap();
            for version in 2..5_u16 {
                std::thread::sleep(LONG);
                let (new, old) = (format!("..{version}"), format!("..{}", version - 1));
                fs::create_dir(mounted.join(&new)).unwrap();
                fs::write(mounted.join(&new).join("api.yaml"), rules(10 + version)).unwrap();
                symlink(&new, mounted.join("..data_tmp")).unwrap();
                fs::rename(mounted.join("..data_tmp"), mounted.join("..data")).unwrap();
                fs::remove_dir_all(mounted.join(old)).unwrap();
            }
        }),
    ]
}

/// Retransmitted segments of the allowed connection that had not arrived before: a machine that stalls
/// silences a connection and makes its stack retransmit, without any loss.
fn lost(shop: &Shop) -> u64 {
    let read = |pod, file: &str, head: &str, counter: &str| -> u64 {
        let path = format!("/proc/thread-self/net/{file}");
        let text = shop
            .lab
            .run_in(pod, || fs::read_to_string(&path).unwrap())
            .unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with(head));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == counter);
        values.split(' ').nth(at.unwrap()).unwrap().parse().unwrap()
    };
    let of = |pod| {
        let again = read(pod, "snmp", "Tcp:", "RetransSegs");
        again.saturating_sub(read(pod, "netstat", "TcpExt:", "TCPDSACKRecv"))
    };
    shop.pods[..2].iter().map(|pod| of(*pod)).sum()
}

#[test]
fn no_edit_lets_through_what_is_denied_or_cuts_what_is_allowed() {
    if !need_root() {
        return;
    }
    let shop = Shop::under(Agent::new(), "edits");
    let root = shop.agent.policy();
    fs::create_dir(root.join("unrelated")).unwrap();
    let unrelated = policy("web", "web", "  ingress: [{}]\n");
    fs::write(root.join("unrelated/web.yaml"), unrelated).unwrap();
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let _server = TcpEcho::start(&shop.lab, shop.pods[1], 8080).unwrap();
    let to = SocketAddr::new(address(ADDRESSES[1][0]), 8080);
    let allowed = LongFlow::start(&shop.lab, shop.pods[0], to, Duration::from_millis(5)).unwrap();
    let denied = Denied::default();
    std::thread::scope(|scope| {
        let _stopping = Stopping(&denied);
        for to in ADDRESSES[1].map(address) {
            let (lab, denied, pods) = (&shop.lab, &denied, shop.pods);
            scope.spawn(move || denied.receive(lab, pods[1], to));
            scope.spawn(move || denied.send(lab, pods[2], to));
        }
        for (what, done) in patterns() {
            let sent = denied.sent.load(Ordering::Relaxed);
            done(&shop, &root);
            std::thread::sleep(2 * LONG);
            shop.agent.wait(what, |s| {
                s["health"] == "Ready" && s["revision"] == s["realised"] && s["policies"] == 2
            });
            assert_eq!(denied.arrived(), 0, "{what}: denied packets arrived");
            assert!(denied.sent.load(Ordering::Relaxed) > sent + 50, "{what}");
            let (counts, lost) = (allowed.counts(), lost(&shop));
            assert!(
                !counts.ended && (counts.longest_silence < CUT || lost == 0),
                "{what}: {counts:?}, {lost} segments lost"
            );
            assert!(counts.longest_silence < STANDSTILL, "{what}: {counts:?}");
        }
        let detail = shop.agent.json(&["policy", "get", "shop/api"]);
        let line = detail["ruleCounters"][0]["line"].as_str().unwrap();
        assert!(line.ends_with("mounted/api.yaml:7"), "{line}");
        // Proof that it is the policy that denies them.
        fs::remove_dir_all(root.join("mounted")).unwrap();
        let began = Instant::now();
        while denied.arrived() == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "still denied");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

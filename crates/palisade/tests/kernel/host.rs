//! Changes of an agent to the host, and their order: no change before a possible failure, forwarding with the
//! first workload, no default route lost, and everything restored by cleanup. And unusual hosts: a kernel
//! that refuses a grace period, interfaces whose names are not text.

use crate::agent::shop::{FROM_WEB_8080, Shop, policy};
use crate::agent::{Agent, ip, nft};
use palisade_testkit::lab::{Lab, OUTSIDE_INTERFACE, POD_INTERFACE, send_router_advertisement};
use palisade_testkit::need_root;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const V4: &str = "net/ipv4/ip_forward";
const V6: &str = "net/ipv6/conf/all/forwarding";
/// Whether the lab's uplink accepts router advertisements.
const UPLINK: &str = "net/ipv6/conf/out0/accept_ra";

fn setting(lab: &Lab, key: &str) -> String {
    let read = || std::fs::read_to_string(format!("/proc/sys/{key}")).unwrap();
    lab.run_in(lab.host(), read).unwrap().trim().to_owned()
}

/// A lab whose host does not forward, and whose uplink accepts router advertisements.
fn plain_host(name: &str) -> Lab {
    let lab = Lab::new(name).unwrap();
    assert_eq!(OUTSIDE_INTERFACE, "out0");
    for (key, value) in [(V4, "0"), (V6, "0"), (UPLINK, "1")] {
        lab.set_sysctl(lab.host(), key, value).unwrap();
    }
    lab
}

/// Settings, links, addresses, routes and tables of a lab's host, and every file of a directory.
fn state(lab: &Lab, folder: &Path) -> Vec<String> {
    let all = || {
        let mut found = Vec::new();
        for family in ["ipv4", "ipv6"] {
            for entry in std::fs::read_dir(format!("/proc/sys/net/{family}/conf")).unwrap() {
                for name in ["forwarding", "accept_ra", "rp_filter", "disable_ipv6"] {
                    let path = entry.as_ref().unwrap().path().join(name);
                    if let Ok(value) = std::fs::read_to_string(&path) {
                        found.push(format!("{} = {value}", path.display()));
                    }
                }
            }
        }
        found.sort();
        found
    };
    let mut found = lab.run_in(lab.host(), all).unwrap();
    found.push(format!("{} {}", setting(lab, V4), setting(lab, V6)));
    for args in [
        &["-o", "link"][..],
        &["-4", "route", "show", "table", "all"],
        &["-6", "route", "show", "table", "all"],
        &["rule"],
    ] {
        found.push(ip(lab, lab.host(), args));
    }
    found.push(nft(lab, "list ruleset"));
    files(folder, &mut found);
    found
}

fn files(folder: &Path, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let text = if path.is_dir() {
            String::new()
        } else {
            String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into()
        };
        found.push(format!("{}: {text}", path.display()));
        if path.is_dir() {
            files(&path, found);
        }
    }
}

/// Starts an agent that must fail with this text, and compares the host before and after.
fn fails_untouched(lab: &Lab, agent: &Agent, what: &str, word: &str) {
    let folder = agent.policy().parent().unwrap().to_path_buf();
    let before = state(lab, &folder);
    let output: Output = agent.run_to_its_end(lab);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{what}: {said}");
    assert!(said.contains(word), "{what}: {said}");
    assert_eq!(state(lab, &folder), before, "{what}: {said}");
}

#[test]
fn a_start_that_fails_changes_nothing_of_the_host() {
    if !need_root() {
        return;
    }
    let lab = plain_host("host-fails");

    let agent = Agent::new();
    std::fs::remove_dir(agent.policy()).unwrap();
    fails_untouched(&lab, &agent, "no directory", "opening the policy directory");
    // The same with the state of an agent that ran before.
    std::fs::create_dir(agent.state()).unwrap();
    std::fs::write(agent.state().join("agent.lock"), "1\n").unwrap();
    fails_untouched(&lab, &agent, "no directory", "opening the policy directory");

    let agent = Agent::new().with(&["--mtu", "nonsense"]);
    fails_untouched(&lab, &agent, "configuration", "mtu");

    let agent = Agent::new();
    std::fs::create_dir(agent.state()).unwrap();
    let lock = std::fs::File::create(agent.state().join("agent.lock")).unwrap();
    lock.try_lock().unwrap();
    fails_untouched(&lab, &agent, "locked", "starting");

    let mut agent = Agent::new();
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--inh-caps=-all", "--bounding-set=-net_admin", "--"]);
    agent.start_through(&setpriv);
    fails_untouched(&lab, &agent, "no packet filter", "opening the dataplane");

    let agent = Agent::new();
    std::fs::create_dir(agent.socket()).unwrap();
    fails_untouched(&lab, &agent, "the socket's name", "creating the socket");

    let agent = Agent::new();
    std::fs::write(agent.state(), "a file").unwrap();
    fails_untouched(&lab, &agent, "the state directory's name", "creating");

    let taken = lab
        .run_in(lab.host(), || TcpListener::bind("127.0.0.1:0").unwrap())
        .unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let agent = Agent::new().with(&["--health-address", &address]);
    fails_untouched(&lab, &agent, "health address", "health-address");
}

fn default_routes(lab: &Lab) -> String {
    ip(lab, lab.host(), &["-6", "route", "show", "default"])
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes the outside send router advertisements until the host has a default route from them.
fn learn_route(lab: &Lab) {
    wait("a route from a router advertisement", || {
        send_router_advertisement(lab, lab.outside(), POD_INTERFACE, 1800).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        default_routes(lab).contains("proto ra")
    });
}

#[test]
fn the_first_workload_switches_forwarding_on_and_no_default_route_is_lost() {
    if !need_root() {
        return;
    }
    let mut lab = plain_host("host-first");
    learn_route(&lab);
    let mut agent = Agent::new();
    agent.start(&lab);
    let settings = |lab: &Lab| [V4, V6, UPLINK].map(|key| setting(lab, key));
    assert_eq!(
        settings(&lab),
        ["0", "0", "1"],
        "started, without a workload"
    );

    let web = lab.add_namespace("web", Vec::new()).unwrap();
    agent.attach(&lab, web, "shop/web", &["10.77.0.1", "fd77::1"], &[]);
    assert_eq!(settings(&lab), ["1", "1", "2"]);
    assert!(default_routes(&lab).contains("proto ra"), "kept");
    let interface = agent.json(&["endpoint", "list"])["endpoints"][0]["interface"].clone();
    let ours = format!("net/ipv6/conf/{}/accept_ra", interface.as_str().unwrap());
    assert_ne!(setting(&lab, &ours), "2", "no pod is a router of this host");
    ip(&lab, lab.host(), &["-6", "route", "flush", "default"]);
    learn_route(&lab);

    // Another program disables it, and a new uplink appears.
    lab.set_sysctl(lab.host(), V4, "0").unwrap();
    wait("forwarding is repaired", || setting(&lab, V4) == "1");
    lab.set_sysctl(lab.host(), "net/ipv6/conf/default/accept_ra", "1")
        .unwrap();
    let new_uplink = [
        "link", "add", "link", "out0", "name", "up7", "type", "macvlan",
    ];
    ip(&lab, lab.host(), &new_uplink);
    let new = "net/ipv6/conf/up7/accept_ra";
    wait("a new uplink takes advertisements", || {
        setting(&lab, new) == "2"
    });
    let leads_to_pods = [
        "link", "add", "other0", "type", "veth", "peer", "name", "other1",
    ];
    ip(&lab, lab.host(), &leads_to_pods);

    // It stays enabled without workloads, and after a restart.
    assert!(
        agent
            .run(&["workload", "remove", "shop/web"])
            .status
            .success()
    );
    agent.terminate();
    lab.set_sysctl(lab.host(), V6, "0").unwrap();
    lab.set_sysctl(lab.host(), UPLINK, "1").unwrap();
    learn_route(&lab);
    agent.start(&lab);
    wait("forwarding is on again", || setting(&lab, V6) == "1");
    assert_eq!(settings(&lab), ["1", "1", "2"]);
    assert!(default_routes(&lab).contains("proto ra"), "kept");
    assert_eq!(setting(&lab, "net/ipv6/conf/other0/accept_ra"), "1");
    agent.terminate();

    let kept = agent.beside(&lab, "cleanup", &["--dry-run", "--forwarding", "keep"]);
    let kept = String::from_utf8_lossy(&kept.stdout).into_owned();
    assert!(!kept.contains("setting"), "{kept}");
    let cleaned = agent.beside(&lab, "cleanup", &["--yes"]);
    let said = String::from_utf8_lossy(&cleaned.stdout).into_owned();
    assert!(cleaned.status.success(), "{said}");
    assert!(
        said.contains("net/ipv6/conf/out0/accept_ra (2, was 1): restored"),
        "{said}"
    );
    assert_eq!(settings(&lab), ["0", "0", "1"], "{said}");
    assert_eq!(setting(&lab, new), "1");
    assert!(default_routes(&lab).contains("proto ra"), "kept");
    assert!(!agent.state().exists());
}

/// The problem that the agent prevents: the kernel alone drops the route, and learns no other.
#[test]
fn a_host_that_only_forwards_loses_its_default_route() {
    if !need_root() {
        return;
    }
    let lab = plain_host("host-loses");
    learn_route(&lab);
    lab.set_sysctl(lab.host(), V6, "1").unwrap();
    assert_eq!(default_routes(&lab), "");
    let heard = || {
        let read = || std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
        let text = lab.run_in(lab.host(), read).unwrap();
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("Icmp6InRouterAdvertisements "));
        line.unwrap().to_owned()
    };
    let before = heard();
    send_router_advertisement(&lab, lab.outside(), POD_INTERFACE, 1800).unwrap();
    wait("it is heard", || heard() != before);
    assert_eq!(default_routes(&lab), "");
}

#[test]
fn forwarding_is_left_alone_where_that_is_asked_for() {
    if !need_root() {
        return;
    }
    let mut lab = plain_host("host-keep");
    let mut agent = Agent::new().with(&["--forwarding", "keep"]);
    agent.start(&lab);
    let web = lab.add_namespace("web", Vec::new()).unwrap();
    agent.attach(&lab, web, "shop/web", &["10.77.0.1", "fd77::1"], &[]);
    assert_eq!(
        [V4, V6, UPLINK].map(|key| setting(&lab, key)),
        ["0", "0", "1"]
    );
}

/// A command that makes these system calls fail for the program that it executes, as a kernel or a sandbox
/// does: each with its error number.
fn refusing(calls: &[(i64, i32)]) -> Command {
    const SCRIPT: &str = r#"
        my ($prctl, @calls) = map { 0 + $_ } split /,/, shift @ARGV;
        my $filter = pack "SCCL", 0x20, 0, 0, 0;
        while (my ($number, $errno) = splice @calls, 0, 2) {
            $filter .= pack "SCCL SCCL", 0x15, 0, 1, $number, 0x06, 0, 0, 0x50000 | $errno;
        }
        $filter .= pack "SCCL", 0x06, 0, 0, 0x7fff0000;
        my $program = pack "S x6 P", length($filter) / 8, $filter;
        syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($prctl, 22, 2, $program) == 0 or die $!;
        exec @ARGV or die $!;
    "#;
    let numbers = calls.iter().map(|(call, errno)| format!("{call},{errno}"));
    let numbers: Vec<String> = std::iter::once(nix::libc::SYS_prctl.to_string())
        .chain(numbers)
        .collect();
    let mut perl = Command::new("perl");
    perl.args(["-e", SCRIPT, &numbers.join(",")]);
    perl
}

#[test]
fn a_kernel_with_nohz_full_is_enforced_on_or_refused() {
    if !need_root() {
        return;
    }
    use nix::libc::{EINVAL, EPERM, SYS_bpf, SYS_membarrier};
    let mut agent = Agent::new();
    agent.start_through(&refusing(&[(SYS_membarrier, EINVAL)]));
    let shop = Shop::under(agent, "host-nohz");
    assert!(shop.tcp(1, 2, 8080), "no policy yet");
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    assert!(shop.tcp(0, 2, 8080), "allowed");
    assert!(!shop.tcp(1, 2, 8080), "denied");
    assert!(
        shop.agent.log().contains("BPF map of maps"),
        "{}",
        shop.agent.log()
    );

    let lab = plain_host("host-neither");
    let mut agent = Agent::new();
    agent.start_through(&refusing(&[(SYS_membarrier, EINVAL), (SYS_bpf, EPERM)]));
    fails_untouched(&lab, &agent, "no grace period", "nohz_full");
}

/// Runs `ip` in the lab's host, with an argument of arbitrary bytes.
fn ip_bytes(lab: &Lab, before: &[&str], name: &[u8], after: &[&str]) {
    let output = Command::new("ip")
        .args(["-n", lab.namespace_name(lab.host())])
        .args(before)
        .arg(OsStr::from_bytes(name))
        .args(after)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{before:?} {name:?}: {said}");
}

#[test]
fn an_interface_whose_name_is_no_text_ends_nothing() {
    if !need_root() {
        return;
    }
    let odd = b"\xff\xfe".as_slice();
    let lab = Lab::new("host-bytes").unwrap();
    ip_bytes(
        &lab,
        &["link", "add"],
        odd,
        &["type", "veth", "peer", "name", "odd1"],
    );
    let mut shop = Shop::inside(Agent::new(), lab);
    ip_bytes(
        &shop.lab,
        &["link", "set", "odd1", "name"],
        b"a\x1b[2J\xc3",
        &[],
    );
    ip_bytes(&shop.lab, &["link", "set"], odd, &["up"]);
    ip_bytes(&shop.lab, &["route", "add", "10.9.9.9/32", "dev"], odd, &[]);
    let neighbour = [
        "neigh",
        "add",
        "10.9.9.9",
        "lladdr",
        "02:00:00:00:00:09",
        "dev",
    ];
    ip_bytes(&shop.lab, &neighbour, odd, &[]);

    // An interface of the agent gets such a name: no policy applies to it there.
    let list = shop.agent.json(&["endpoint", "list"]);
    let web = list["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["name"] == "web")
        .unwrap();
    let ours = web["interface"].as_str().unwrap();
    ip_bytes(&shop.lab, &["link", "set", ours, "name"], b"\xfd\xfc", &[]);
    let status = shop.agent.wait("renamed back", |s| {
        s["dataplane"]["repaired"].as_u64() > Some(0)
    });
    let told = status["dataplane"]["repairs"].to_string();
    assert!(told.contains(r"was renamed to \\xfd\\xfc"), "{told}");
    let links = ip(
        &shop.lab,
        shop.lab.host(),
        &["-o", "link", "show", "dev", ours],
    );
    assert!(links.contains(ours), "{links}");
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    assert!(shop.tcp(0, 2, 8080), "allowed");
    assert!(!shop.tcp(1, 2, 8080), "denied");

    for args in [
        &["status"][..],
        &["endpoint", "list"],
        &["ipam", "list"],
        &["ipam", "check"],
        &["monitor", "--last", "5", "--no-follow"],
        &[
            "explain", "--from", "shop/web", "--to", "shop/db", "--port", "8080",
        ],
    ] {
        for format in ["text", "json"] {
            let output = shop.agent.run(&[args, &["-o", format]].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{args:?}: {said}");
            let text = String::from_utf8(output.stdout).unwrap();
            let control = |c: char| c.is_control() && c != '\n';
            assert!(!text.contains(control), "{args:?}: {text:?}");
        }
    }
    assert!(
        shop.agent.log().contains(r"\\xfd\\xfc"),
        "{}",
        shop.agent.log()
    );
    shop.agent.terminate();
    shop.agent.start(&shop.lab);
    assert_eq!(shop.agent.status()["dataplane"]["start"]["writes"], 0);
    shop.agent.terminate();
    let cleaned = shop.agent.beside(&shop.lab, "cleanup", &["--yes"]);
    let said = String::from_utf8_lossy(&cleaned.stderr).into_owned();
    assert!(cleaned.status.success(), "{said}");
    ip_bytes(&shop.lab, &["link", "show", "dev"], odd, &[]);
}

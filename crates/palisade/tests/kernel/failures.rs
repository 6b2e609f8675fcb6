//! Failures of workloads and of the agent itself: a clear error, no partial result, and nothing left behind.

use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, NAMES, Shop, address, policy};
use crate::agent::{Agent, ip};
use palisade_testkit::lab::{Lab, NodeId, ProbeFlow};
use palisade_testkit::need_root;
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Number of the agent's interfaces, and of its routes to single addresses of workloads, on the host.
fn held(lab: &Lab) -> (usize, usize) {
    let links = ip(lab, lab.host(), &["-o", "link", "show", "type", "veth"]);
    let routes = |family| ip(lab, lab.host(), &[family, "route", "show"]);
    let ours = |text: &str| text.lines().filter(|l| l.contains("pal")).count();
    (ours(&links), ours(&routes("-4")) + ours(&routes("-6")))
}

fn add(shop: &Shop, node: NodeId, args: &[&str]) -> Output {
    let netns = shop.lab.namespace_path(node);
    let first = ["workload", "add", args[0], "--netns"];
    let all = [&first[..], &[netns.to_str().unwrap()], &args[1..]].concat();
    shop.agent.run(&all)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn endpoint(shop: &Shop, name: &str) -> Option<Value> {
    let list = shop.agent.json(&["endpoint", "list"]);
    let all = list["endpoints"].as_array().unwrap();
    all.iter().find(|e| e["name"] == name).cloned()
}

#[test]
fn refused_requests_say_why_and_leave_nothing() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("refused");
    let node = shop.lab.add_namespace("extra", vec![]).unwrap();
    let before = held(&shop.lab);
    let host = shop.lab.host();
    let cases: [(NodeId, &[&str], i32, &str); 6] = [
        (node, &["shop/web"], 1, "already attached"),
        (
            node,
            &["shop/extra", "--address", ADDRESSES[0][0]],
            1,
            "10.77.0.1 for Pod shop/extra is in use by Pod shop/web",
        ),
        (
            node,
            &["shop/extra", "--address", "10.77.0.300"],
            2,
            "not an IP address",
        ),
        (
            shop.pods[0],
            &["shop/extra"],
            1,
            "already has an interface eth0",
        ),
        (
            host,
            &["shop/extra", "--interface", "x0"],
            2,
            "the one this agent runs in",
        ),
        (node, &["shop/extra", "--port", "http=0"], 2, "http=0"),
    ];
    for (node, args, code, reason) in cases {
        let output = add(&shop, node, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(
            said(&output).contains(reason),
            "{args:?}: {}",
            said(&output)
        );
    }
    let nowhere = [
        "workload",
        "add",
        "shop/extra",
        "--netns",
        "/run/netns/pal-none",
    ];
    let output = shop.agent.run(&nowhere);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("pal-none"), "{}", said(&output));
    assert_eq!(held(&shop.lab), before);
    assert!(endpoint(&shop, "extra").is_none());
    let inside = ip(&shop.lab, node, &["-o", "link"]);
    assert!(!inside.contains("eth0"), "{inside}");
    assert!(add(&shop, node, &["shop/extra"]).status.success());
    assert_eq!(shop.agent.status()["health"], "Ready");
}

#[test]
fn an_address_that_a_pod_claims_as_well_is_told() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("conflict");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: other, namespace: shop}}\n\
         status: {{podIP: {0}, podIPs: [{{ip: {0}}}]}}\n",
        ADDRESSES[1][0]
    );
    shop.agent.apply("pod.yaml", &pod);
    let status = shop.agent.wait("told", |s| s["health"] == "Degraded");
    let conflict = &status["conflicts"][0];
    assert_eq!(conflict["address"], ADDRESSES[1][0], "{status:#}");
    let told = conflict.to_string();
    assert!(
        told.contains("shop/api") && told.contains("shop/other"),
        "{told}"
    );
    shop.agent.delete("pod.yaml");
    shop.agent.wait("ready", |s| s["health"] == "Ready");
}

#[test]
fn an_interface_or_namespace_that_goes_away_is_told_and_can_be_removed() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("gone");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let lost = |shop: &Shop, name: &str| {
        let status = shop.agent.wait("lost", |s| s["health"] == "Degraded");
        let reasons = status["reasons"].to_string();
        assert!(
            reasons.contains(name) && reasons.contains("remove it"),
            "{reasons}"
        );
        assert_eq!(endpoint(shop, name).unwrap()["state"], "Lost");
    };
    let interface = endpoint(&shop, "api").unwrap()["interface"].clone();
    let interface = interface.as_str().unwrap();
    ip(&shop.lab, shop.lab.host(), &["link", "delete", interface]);
    lost(&shop, "api");
    // After a restart as well.
    shop.agent.kill();
    shop.agent.start(&shop.lab);
    lost(&shop, "api");
    shop.agent.json(&["workload", "remove", "shop/api"]);
    shop.agent.wait("ready", |s| s["health"] == "Ready");
    let label = format!("app={}", NAMES[1]);
    let (lab, node) = (&shop.lab, shop.pods[1]);
    shop.agent
        .attach(lab, node, "shop/api", &ADDRESSES[1], &[&label]);
    assert!(
        shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080),
        "attached again"
    );

    let before = held(&shop.lab);
    let node = shop.lab.add_namespace("short", vec![]).unwrap();
    shop.agent.attach(&shop.lab, node, "shop/short", &[], &[]);
    assert_ne!(held(&shop.lab), before);
    let deleted = Command::new("ip")
        .args(["netns", "delete", shop.lab.namespace_name(node)])
        .status()
        .unwrap();
    assert!(deleted.success());
    lost(&shop, "short");
    shop.agent.json(&["workload", "remove", "shop/short"]);
    shop.agent.wait("ready", |s| s["health"] == "Ready");
    assert_eq!(held(&shop.lab), before);
}

#[test]
fn killed_while_attaching_it_leaves_all_or_nothing() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("killed");
    shop.agent
        .apply("extra.yaml", &policy("extra", "extra", "  ingress: []\n"));
    let before = held(&shop.lab);
    let node = shop.lab.add_namespace("extra", vec![]).unwrap();
    let mut cleared = 0;
    for round in 0..10 {
        let mut client = shop.agent.attaching(&shop.lab, node, "shop/extra");
        let mut client = client.args(["--label", "app=extra"]).spawn().unwrap();
        // From before the request to after the response, in uneven steps.
        std::thread::sleep(Duration::from_millis(4 + round * round / 2));
        shop.agent.kill();
        let answered = client.wait().unwrap().success();
        shop.agent.start(&shop.lab);
        shop.agent.wait("ready", |s| s["health"] == "Ready");
        match endpoint(&shop, "extra") {
            Some(extra) => {
                assert_eq!(extra["state"], "Ready", "round {round}");
                let to = address(extra["addresses"][0].as_str().unwrap());
                let whole = ProbeFlow::tcp(node, address(ADDRESSES[0][0]), 80, shop.pods[0])
                    .with_source(to);
                let closed = ProbeFlow::tcp(shop.pods[0], to, 80, node);
                let arrived = shop.arrives(&[whole, closed]);
                assert_eq!(arrived, [true, false], "round {round}: whole, and enforced");
                shop.agent.json(&["workload", "remove", "shop/extra"]);
            }
            None => {
                assert!(!answered, "round {round}: attached, and then forgotten");
                cleared += 1;
            }
        }
        assert_eq!(held(&shop.lab), before, "round {round}");
        let inside = ip(&shop.lab, node, &["-o", "link"]);
        assert!(!inside.contains("eth0"), "round {round}: {inside}");
    }
    assert!(cleared > 0, "never killed in time");
}

#[test]
fn an_agent_that_cannot_start_says_why_and_one_told_to_stop_stops() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("starting");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let second = shop.agent.run_to_its_end(&shop.lab);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        said(&second).contains("is locked by process"),
        "{}",
        said(&second)
    );
    assert_eq!(
        shop.agent.status()["health"],
        "Ready",
        "the first is not disturbed"
    );

    shop.agent.kill();
    assert!(shop.agent.socket().exists(), "what SIGKILL leaves");
    let down = shop.agent.run(&["status"]);
    assert_eq!(down.status.code(), Some(3), "{}", said(&down));
    shop.agent.start(&shop.lab);

    let began = Instant::now();
    shop.agent.terminate();
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert!(!shop.agent.socket().exists());
    assert!(
        shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080),
        "enforcement stays"
    );

    let nowhere = Agent::new();
    std::fs::remove_dir(nowhere.policy()).unwrap();
    let output = nowhere.run_to_its_end(&shop.lab);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("policy"), "{}", said(&output));
}

/// Clients that connect and ask nothing take no descriptor that sources, the kernel or the state need: edits are in
/// force meanwhile, and the agent is well afterwards.
#[test]
fn idle_connections_leave_descriptors_for_what_changes() {
    if !need_root() {
        return;
    }
    let mut agent = Agent::new();
    let mut limited = Command::new("prlimit");
    // The maps and programs of the fast path have descriptors.
    limited.arg("--nofile=96:96");
    agent.start_through(&limited);
    let shop = Shop::under(agent, "descriptors");
    let connect = |_| UnixStream::connect(shop.agent.socket()).ok();
    let idle: Vec<UnixStream> = (0..150).filter_map(connect).collect();
    assert!(idle.len() >= 40, "{} connections", idle.len());
    for round in 0..5 {
        let is_open = round % 2 == 1;
        let name = format!("{round}.yaml");
        if is_open {
            let last = shop.agent.policy().join(format!("{}.yaml", round - 1));
            std::fs::remove_file(last).unwrap();
        } else {
            shop.agent
                .write(&name, &policy("closed", "db", FROM_WEB_8080))
        }
        let began = Instant::now();
        while shop.tcp(0, 2, 9000) != is_open {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "round {round} is not in force:\n{}",
                shop.agent.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    drop(idle);
    shop.agent.wait("well again", |s| s["health"] == "Ready");
    shop.agent.delete("4.yaml");
    assert!(shop.tcp(0, 2, 9000));
}

/// Whatever file of the state directory is a FIFO: the agent names it at once, and treats it as damaged. It starts
/// without its content, but not without the lock or the workloads, whose loss would open or cut them.
#[test]
fn a_fifo_in_the_state_directory_holds_nothing_up() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("fifos");
    let text = policy("closed", "db", FROM_WEB_8080);
    shop.agent.apply("closed.yaml", &text);
    let _ = shop.tcp(1, 2, 8080);
    shop.agent.terminate();
    let mut files = plain_files(&shop.agent.state());
    for expected in [
        "workloads.json",
        "counts.log",
        "agent.lock",
        "cni-queue/lock",
    ] {
        let mut files = files.iter();
        assert!(files.any(|file| file.ends_with(expected)), "{expected}");
    }
    // Only agents that changed sysctls have it.
    files.push(shop.agent.state().join("host.json"));
    for file in &files {
        let aside = file.with_extension("aside");
        let was_there = std::fs::rename(file, &aside).is_ok();
        let made = Command::new("mkfifo").arg(file).status().unwrap();
        assert!(made.success());
        let before = shop.agent.log().len();
        if ["agent.lock", "workloads.json"]
            .iter()
            .any(|name| file.ends_with(name))
        {
            let output = shop.agent.run_to_its_end(&shop.lab);
            assert!(!output.status.success());
            assert!(said(&output).contains("FIFO"), "{}", said(&output));
        } else {
            shop.agent.start(&shop.lab);
            shop.agent
                .wait("in force", |s| s["revision"] == s["realised"]);
            let log = shop.agent.log().split_off(before);
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(log.contains("FIFO") && log.contains(name), "{name}:\n{log}");
            shop.agent.terminate();
        }
        // It may have been replaced by then.
        let _ = std::fs::remove_file(file);
        if was_there {
            std::fs::rename(&aside, file).unwrap();
        }
    }
    shop.agent.start(&shop.lab);
    shop.agent.wait("well again", |s| s["health"] == "Ready");
    assert!(shop.tcp(0, 2, 8080) && !shop.tcp(1, 2, 8080));
}

/// The plain files below a directory.
fn plain_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.extend(plain_files(&path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found
}

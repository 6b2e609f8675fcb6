//! Users in the API's group, with real processes: what they may do, and what not.

use crate::agent::shop::{FROM_WEB_8080, address, policy};
use crate::agent::{Agent, ip};
use crate::plugin::{self, pod, program};
use palisade_testkit::lab::{Lab, NodeId, ProbeFlow, probe};
use palisade_testkit::need_root;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const MEMBER: u32 = 54_711;
const STRANGER: u32 = 54_712;
const GROUP: u32 = 54_700;

/// An agent in a lab, and programs that every user can execute.
struct World {
    agent: Agent,
    lab: Lab,
    programs: tempfile::TempDir,
}

impl World {
    fn open(name: &str) -> Self {
        let mut agent = Agent::new().with(&["--api-group", &GROUP.to_string()]);
        let programs = tempfile::tempdir().unwrap();
        let everybody = || Permissions::from_mode(0o755);
        fs::set_permissions(programs.path(), everybody()).unwrap();
        let command = PathBuf::from(env!("CARGO_BIN_EXE_palisade"));
        for from in [command, program()] {
            // By another process: a child that a test beside this one forks would have the copy open for writing, and
            // such a file is not executable.
            let mut copy = Command::new("install");
            copy.args(["-m", "755"]).arg(from).arg(programs.path());
            assert!(copy.status().unwrap().success());
        }
        fs::set_permissions(agent.socket().parent().unwrap(), everybody()).unwrap();
        let lab = Lab::new(name).unwrap();
        agent.start(&lab);
        World {
            agent,
            lab,
            programs,
        }
    }

    /// A program run as a user in the API's group.
    fn as_user(&self, user: u32, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={user}"), format!("--regid={GROUP}")])
            .args(["--clear-groups", "--"])
            .arg(self.programs.path().join(program));
        command
    }

    fn palisade(&self, user: u32, args: &[&str]) -> Output {
        self.as_user(user, "palisade")
            .arg("--socket")
            .arg(self.agent.socket())
            .args(args)
            .output()
            .unwrap()
    }

    fn add(&self, user: u32, name: &str, netns: &str, more: &[&str]) -> Output {
        let args = ["workload", "add", name, "--netns", netns, "-o", "json"];
        self.palisade(user, &[&args[..], more].concat())
    }

    /// Attaches as the member; returns the addresses.
    fn attached(&self, name: &str, netns: &str, more: &[&str]) -> Vec<String> {
        let output = self.add(MEMBER, name, netns, more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{name}: {said}\n{}",
            self.agent.log()
        );
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer.get("closed"), None, "{answer}");
        let addresses = answer["addresses"].as_array().unwrap().iter();
        addresses.map(|a| a.as_str().unwrap().to_owned()).collect()
    }

    fn sandbox(&mut self, name: &str) -> (NodeId, String) {
        let node = self.lab.add_namespace(name, Vec::new()).unwrap();
        (node, self.lab.namespace_path(node).display().to_string())
    }

    fn endpoints(&self) -> Vec<String> {
        let list = self.agent.json(&["endpoint", "list"]);
        let all = list["endpoints"].as_array().unwrap().iter();
        all.map(|e| e["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Asserts that a command failed for lack of permission, with this text.
fn assert_refused(what: &str, output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{what}: {said}");
    assert!(said.contains(words), "{what}: {said}");
}

/// A process in its own user namespace and network namespace.
struct Own(Child);

impl Own {
    fn of(user: u32) -> Self {
        let mut child = Command::new("setpriv")
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .args(["--clear-groups", "--"])
            .args(["unshare", "--user", "--map-root-user", "--net", "sh", "-c"])
            .arg("echo ready; exec sleep 600")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let own = Own(child);
        assert_eq!(line, "ready\n");
        own
    }

    fn netns(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_member_attaches_pods_and_takes_over_nothing() {
    if !need_root() {
        return;
    }
    let mut world = World::open("rights");
    for name in ["web", "api", "mine"] {
        world.agent.apply(&format!("{name}.yaml"), &pod(name, name));
    }
    let far = format!("{}status: {{podIP: 10.9.9.9}}\n", pod("far", "far"));
    world.agent.apply("far.yaml", &far);
    world
        .agent
        .apply("p.yaml", &policy("api", "api", FROM_WEB_8080));
    let (host, outside) = (world.lab.host(), "out0");
    for (family, own, routed) in [
        ("-4", "10.245.0.77/32", "10.245.0.78/32"),
        ("-6", "fd50:616c:6973::77/128", "fd50:616c:6973::78/128"),
    ] {
        ip(&world.lab, host, &["addr", "add", own, "dev", "lo"]);
        ip(
            &world.lab,
            host,
            &[family, "route", "add", routed, "dev", outside],
        );
    }

    // Allowed for a member: the Pod's labels, and addresses of the pools, in both families.
    let (web, web_netns) = world.sandbox("web");
    let (api, api_netns) = world.sandbox("api");
    let (_, empty) = world.sandbox("empty");
    let web_addresses = world.attached("shop/web", &web_netns, &[]);
    let chosen = [
        "--address",
        "10.245.0.90",
        "--address",
        "fd50:616c:6973::90",
    ];
    let api_addresses = world.attached("shop/api", &api_netns, &chosen);
    assert_eq!(api_addresses, ["10.245.0.90", "fd50:616c:6973::90"]);
    let arrives = |port: u16| {
        world.lab.flush_conntrack().unwrap();
        let flows: Vec<ProbeFlow> = web_addresses
            .iter()
            .zip(&api_addresses)
            .map(|(from, to)| {
                ProbeFlow::tcp(web, address(to), port, api).with_source(address(from))
            })
            .collect();
        probe(&world.lab, &flows).unwrap()
    };
    assert_eq!(
        (arrives(8080), arrives(22)),
        (vec![true; 2], vec![false; 2])
    );
    assert_eq!(world.endpoints(), ["api", "web"]);

    // Not allowed for a member.
    let agent = format!("/proc/{}/ns/net", world.agent.pid());
    let init = "/proc/1/ns/net".to_owned();
    let theirs = Own::of(STRANGER);
    for (what, netns, more, words) in [
        (
            "an address of no pool",
            &empty,
            &["--address", "192.0.2.9"][..],
            "not in a pool",
        ),
        (
            "IPv6",
            &empty,
            &["--address", "2001:db8::9"],
            "not in a pool",
        ),
        (
            "a pool's first",
            &empty,
            &["--address", "10.245.0.0"],
            "reserved",
        ),
        (
            "a pool's last",
            &empty,
            &["--address", "10.245.0.255"],
            "reserved",
        ),
        (
            "the host's",
            &empty,
            &["--address", "10.245.0.77"],
            "this host's own",
        ),
        (
            "IPv6",
            &empty,
            &["--address", "fd50:616c:6973::77"],
            "this host's own",
        ),
        (
            "one routed",
            &empty,
            &["--address", "10.245.0.78"],
            "routes 10.245.0.78/32",
        ),
        (
            "IPv6",
            &empty,
            &["--address", "fd50:616c:6973::78"],
            "routes fd50",
        ),
        ("labels", &empty, &["--label", "app=web"], "labels"),
        ("ports", &empty, &["--port", "http=22"], "ports"),
        ("the agent's", &agent, &[], "another user"),
        ("another user's", &theirs.netns(), &[], "another user"),
        (
            "another workload's",
            &web_netns,
            &["--interface", "eth1"],
            "already has interfaces",
        ),
        (
            "a file of somebody's",
            &"/etc/shadow".to_owned(),
            &[],
            "path",
        ),
    ] {
        let output = world.add(MEMBER, "shop/mine", netns, more);
        assert_refused(what, &output, words);
    }
    // Whether the agent itself may open it depends on where the test runs.
    assert!(!world.add(MEMBER, "shop/mine", &init, &[]).status.success());
    let far = world.add(MEMBER, "shop/far", &empty, &[]);
    assert_refused("a Pod that runs elsewhere", &far, "runs on another node");
    for user in [STRANGER, MEMBER] {
        let mut plugin = world.as_user(user, "palisade-cni");
        let netns = &empty;
        plugin
            .env("CNI_COMMAND", "ADD")
            .env("CNI_CONTAINERID", "c1")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", netns)
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=mine")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut config = plugin::Runtime::new(&world.agent).config;
        config["queue"] = world
            .programs
            .path()
            .join("queue")
            .display()
            .to_string()
            .into();
        let mut call = plugin.spawn().unwrap();
        let text = config.to_string();
        // A rejected plugin may exit before it has read everything.
        let _ = call.stdin.take().unwrap().write_all(text.as_bytes());
        let output = call.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            !output.status.success() && said.contains("may not"),
            "{said}"
        );
    }
    let taken = world.palisade(STRANGER, &["workload", "remove", "shop/web"]);
    assert_refused("somebody else's workload", &taken, "user 54711 attached");
    assert_eq!(world.endpoints(), ["api", "web"]);
    assert_eq!(
        (arrives(8080), arrives(22)),
        (vec![true; 2], vec![false; 2])
    );

    // A namespace that the member owns, by its process.
    let own = Own::of(MEMBER);
    let addresses = world.attached("shop/mine", &own.netns(), &[]);
    assert_eq!(addresses.len(), 2);
    let mine = world.palisade(MEMBER, &["workload", "remove", "shop/mine"]);
    assert!(mine.status.success());
    assert_eq!(world.endpoints(), ["api", "web"]);
}

/// A mount whose file system never responds: requests to it block until it is gone.
struct Hung {
    folder: tempfile::TempDir,
    server: Child,
}

impl Hung {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = "exec 5<>/dev/fuse && mount -i -t fuse hung \"$1\" \
                      -o fd=5,rootmode=40000,user_id=0,group_id=0 && echo ready && exec sleep 600";
        let mut server = Command::new("sh")
            .args(["-c", script, "hung"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(server.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let hung = Hung { folder, server };
        assert_eq!(line, "ready\n", "no file system in user space here");
        hung
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Ends all blocked requests with an error.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.folder.path())
            .status();
    }
}

fn root_adds(world: &World, netns: &Path) -> (Output, Duration) {
    let began = Instant::now();
    let args = ["workload", "add", "shop/web", "--netns"];
    let output = world
        .agent
        .run(&[&args[..], &[netns.to_str().unwrap()]].concat());
    (output, began.elapsed())
}

#[test]
fn what_is_no_namespace_holds_nobody_up() {
    if !need_root() {
        return;
    }
    let mut world = World::open("paths");
    world.agent.apply("web.yaml", &pod("web", "web"));
    let folder = world.programs.path().to_owned();
    let fifo = folder.join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    for path in [
        &fifo,
        Path::new("/dev/null"),
        Path::new("/dev/fuse"),
        &folder,
    ] {
        let (output, _) = root_adds(&world, path);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{}", path.display());
        assert!(said.contains("is not a network namespace"), "{said}");
    }

    let hung = Hung::new();
    let inside = hung.folder.path().join("netns");
    let (core, time) = std::thread::scope(|scope| {
        let adding = scope.spawn(|| root_adds(&world, &inside));
        let mut answers = 0;
        let began = Instant::now();
        while !adding.is_finished() {
            assert!(world.agent.run(&["endpoint", "list"]).status.success());
            answers += 1;
            // Below the rate limit.
            std::thread::sleep(Duration::from_millis(20));
            assert!(began.elapsed() < Duration::from_secs(60), "held up");
        }
        let (output, time) = adding.join().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("does not respond"), "{said}");
        (answers, time)
    });
    assert!(core > 1, "the core answered {core} times meanwhile");
    println!("a path without an answer: given up after {time:?}, {core} answers meanwhile");
    drop(hung);

    // A path that is redirected after the check has no effect on its new target.
    let (real, real_path) = world.sandbox("real");
    let (victim, victim_path) = world.sandbox("victim");
    let link = folder.join("link");
    symlink(&real_path, &link).unwrap();
    let (output, _) = root_adds(&world, &link);
    assert!(output.status.success(), "{}", world.agent.log());
    assert!(ip(&world.lab, real, &["-br", "link"]).contains("eth0"));
    fs::remove_file(&link).unwrap();
    symlink(&victim_path, &link).unwrap();
    let before = ip(&world.lab, victim, &["addr"]);
    let host = world.lab.host();
    let list = world.agent.json(&["endpoint", "list"]);
    let interface = list["endpoints"][0]["interface"]
        .as_str()
        .unwrap()
        .to_owned();
    ip(&world.lab, host, &["link", "set", &interface, "down"]);
    world.agent.wait("noticed", |status| {
        let list = world.agent.json(&["endpoint", "list"]);
        status["health"] != "Ready" || list["endpoints"][0]["state"] != "Ready"
    });
    assert_eq!(ip(&world.lab, victim, &["addr"]), before);
    let args = ["workload", "remove", "shop/web"];
    assert!(world.agent.run(&args).status.success());
    assert_eq!(ip(&world.lab, victim, &["addr"]), before);
}

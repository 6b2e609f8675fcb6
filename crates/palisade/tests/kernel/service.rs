//! The agent as a service: with only the capabilities of the unit, with notifications to a service manager,
//! in dry-run mode, and its cleanup.

use crate::agent::shop::{FROM_WEB_8080, Shop, policy};
use crate::agent::{Agent, ip, nft};
use nix::sys::signal::Signal;
use palisade_testkit::lab::Lab;
use palisade_testkit::need_root;
use palisade_testkit::spelling::misspelled_keys;
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const UNIT: &str = include_str!("../../../../packaging/palisade.service");

/// The capabilities of the unit, as `setpriv` writes them.
fn capabilities() -> Vec<String> {
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.unwrap().split_whitespace();
    names
        .map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase())
        .collect()
}

/// An agent that has these capabilities and cannot gain others.
fn bound_to(capabilities: &[String]) -> Agent {
    let set: Vec<String> = capabilities.iter().map(|name| format!("+{name}")).collect();
    let set = format!("--bounding-set=-all,{}", set.join(","));
    let mut agent = Agent::new();
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--inh-caps=-all", &set, "--no-new-privs", "--"]);
    agent.start_through(&setpriv);
    agent
}

#[test]
fn the_units_capabilities_are_enough() {
    if !need_root() {
        return;
    }
    let shop = Shop::under(
        bound_to(&capabilities()).with(&["--own-table=false"]),
        "svc-caps",
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", shop.agent.pid())).unwrap();
    let bounding = status
        .lines()
        .find_map(|line| line.strip_prefix("CapBnd:"))
        .unwrap();
    let bounding = u64::from_str_radix(bounding.trim(), 16).unwrap();
    assert_eq!(
        bounding.count_ones() as usize,
        capabilities().len(),
        "{status}"
    );
    assert!(shop.tcp(0, 2, 8080), "no policy yet");
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    assert!(shop.tcp(0, 2, 8080), "allowed");
    assert!(!shop.tcp(1, 2, 8080), "denied");
    // Changes by others are repaired.
    nft(&shop.lab, "delete table inet palisade");
    shop.agent
        .wait("repair", |s| s["dataplane"]["repaired"].as_u64() > Some(0));
    assert!(!shop.tcp(1, 2, 8080), "denied again");
    let detached = shop.agent.run(&["workload", "remove", "shop/api"]);
    assert!(detached.status.success());
    assert_eq!(
        shop.agent.status()["health"],
        "Ready",
        "{}",
        shop.agent.log()
    );
}

#[test]
fn without_the_two_great_capabilities_nothing_works() {
    if !need_root() {
        return;
    }
    let mut lab = Lab::new("svc-less").unwrap();
    let without = |left_out: &str| {
        let mut fewer = capabilities();
        fewer.retain(|name| name != left_out);
        bound_to(&fewer)
    };
    let output = without("net_admin").run_to_its_end(&lab);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    let web = lab.add_namespace("web", Vec::new()).unwrap();
    let netns = lab.namespace_path(web).display().to_string();
    let mut agent = without("sys_admin");
    agent.start(&lab);
    let output = agent.run(&["workload", "add", "shop/web", "--netns", &netns]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("not permitted"),
        "{said}"
    );
}

/// The next lines that contain `what`.
fn heard(listener: &UnixDatagram, what: &str) -> String {
    listener
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut text = [0; 1024];
    loop {
        let length = listener
            .recv(&mut text)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let lines = String::from_utf8_lossy(&text[..length]).into_owned();
        if lines.contains(what) {
            return lines;
        }
    }
}

#[test]
fn a_service_manager_hears_how_it_is() {
    if !need_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let listener = UnixDatagram::bind(&path).unwrap();
    let lab = Lab::new("svc-notify").unwrap();
    let mut agent = Agent::new();
    agent.set("NOTIFY_SOCKET", path.display().to_string());
    agent.set("WATCHDOG_USEC", "600000");
    agent.spawn(&lab);
    let ready = heard(&listener, "READY=1");
    assert!(ready.contains("STATUS=enforcing: revision "), "{ready}");
    // Ready means that the agent responds.
    assert_eq!(agent.status()["health"], "Ready");
    heard(&listener, "WATCHDOG=1");
    agent.signal(Signal::SIGHUP);
    assert!(heard(&listener, "RELOADING=1").contains("MONOTONIC_USEC="));
    heard(&listener, "READY=1");
    let second = agent.run_to_its_end(&lab);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&format!("process {}", agent.pid())), "{said}");
    agent.terminate();
    heard(&listener, "STOPPING=1");
}

/// All objects of a host that an agent could change.
fn host(lab: &Lab, agent: &Agent) -> Vec<String> {
    let mut out = vec![
        nft(lab, "list ruleset"),
        ip(lab, lab.host(), &["-d", "link"]),
        ip(lab, lab.host(), &["addr"]),
        ip(lab, lab.host(), &["route", "show", "table", "all"]),
        ip(lab, lab.host(), &["-6", "route", "show", "table", "all"]),
        ip(lab, lab.host(), &["neigh"]),
    ];
    let forwarding = lab.run_in(lab.host(), || {
        let setting =
            |name: &str| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap();
        setting("ipv4/ip_forward") + &setting("ipv6/conf/all/forwarding")
    });
    out.push(forwarding.unwrap());
    files(agent.state().parent().unwrap(), &mut out);
    out
}

/// Every file below a directory, with its content.
fn files(folder: &Path, out: &mut Vec<String>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        out.push(path.display().to_string());
        if path.is_dir() {
            files(&path, out);
        } else if let Ok(text) = std::fs::read(&path) {
            out.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

#[test]
fn dry_mode_shows_everything_and_touches_nothing() {
    if !need_root() {
        return;
    }
    // On a host where no agent ever ran.
    let lab = Lab::new("svc-dry").unwrap();
    let agent = Agent::new();
    agent.write("db.yaml", &policy("db", "db", FROM_WEB_8080));
    let before = host(&lab, &agent);
    let masquerade = ["--masquerade", "outside"];
    let dry = |agent: &Agent, lab: &Lab| -> Value {
        let options = [&["--dry-run", "-o", "json"], &masquerade[..]].concat();
        let output = agent.beside(lab, "agent", &options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(misspelled_keys(&value), [""; 0], "{value:#}");
        value
    };
    let shown = dry(&agent, &lab);
    assert_eq!(host(&lab, &agent), before);
    assert_eq!(shown["apiVersion"], "palisade.io/v1");
    assert_eq!(shown["status"]["policies"], 1);
    let plan = shown["plan"]["text"].as_str().unwrap();
    assert!(plan.contains("table inet palisade"), "{plan}");
    assert!(shown["plan"]["writes"].as_u64() > Some(10));
    drop(lab);

    // Beside the state of a stopped agent, after an edit that it did not see.
    let mut shop = Shop::under(Agent::new().with(&masquerade), "svc-dry2");
    shop.agent.terminate();
    let same = dry(&shop.agent, &shop.lab);
    assert_eq!(same["plan"]["writes"], 0, "{}", same["plan"]["text"]);
    assert_eq!(same["endpoints"]["endpoints"].as_array().unwrap().len(), 3);
    let actions = |shown: &Value, name: &str| -> Vec<Value> {
        let plans = shown["subsystems"].as_array().unwrap();
        let plan = plans.iter().find(|plan| plan["name"] == name);
        plan.map_or_else(Vec::new, |plan| plan["actions"].as_array().unwrap().clone())
    };
    for name in ["masquerading", "workloads", "forwarding"] {
        assert_eq!(actions(&same, name), [] as [Value; 0], "{name}");
    }
    // What others changed meanwhile.
    let first = &same["endpoints"]["endpoints"][0];
    let [name, interface] = ["name", "interface"].map(|field| first[field].as_str().unwrap());
    let set_mac = |mac: &str| {
        let change = ["link", "set", interface, "address", mac];
        ip(&shop.lab, shop.lab.host(), &change);
    };
    set_mac("02:00:00:00:00:07");
    nft(&shop.lab, "delete table inet palisade_nat");
    let changed = dry(&shop.agent, &shop.lab);
    assert_eq!(
        actions(&changed, "workloads"),
        [format!("open Pod shop/{name}")]
    );
    let masquerading = actions(&changed, "masquerading");
    let masquerading = masquerading[0].as_str().unwrap();
    assert!(
        masquerading.starts_with("masquerade 6 addresses: "),
        "{masquerading}"
    );
    set_mac("ee:ee:ee:ee:ee:ee");
    shop.agent
        .write("db.yaml", &policy("db", "db", FROM_WEB_8080));
    let before = host(&shop.lab, &shop.agent);
    let edited = dry(&shop.agent, &shop.lab);
    assert_eq!(host(&shop.lab, &shop.agent), before);
    assert!(edited["plan"]["writes"].as_u64() > Some(0));
    let text = shop.agent.beside(&shop.lab, "agent", &["--dry-run"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["nothing is changed", "shop/db", "step "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(shop.tcp(1, 2, 8080), "the edit is not in force");
}

#[test]
fn cleanup_takes_everything_away_and_nothing_else() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("svc-clean");
    nft(&shop.lab, "add table inet other");
    let cleanup = |shop: &Shop, args: &[&str]| {
        let output = shop
            .agent
            .beside(&shop.lab, "cleanup", &[args, &["-o", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
        assert_eq!(misspelled_keys(&answer), [""; 0], "{answer:#}");
        (output.status.code().unwrap(), answer, said)
    };
    let (code, _, said) = cleanup(&shop, &["--yes"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("an agent is running") && said.contains(&shop.agent.pid().to_string()),
        "{said}"
    );
    shop.agent.terminate();
    shop.agent
        .write("db.yaml", &policy("db", "db", FROM_WEB_8080));
    let before = host(&shop.lab, &shop.agent);
    assert_eq!(cleanup(&shop, &[]).0, 2, "no terminal for the confirmation");
    let (code, shown, said) = cleanup(&shop, &["--dry-run"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(host(&shop.lab, &shop.agent), before);
    let kinds = |answer: &Value, kind: &str| {
        let items = answer["items"].as_array().unwrap().iter();
        items.filter(|item| item["kind"] == kind).count()
    };
    assert_eq!(
        (kinds(&shown, "Interface"), kinds(&shown, "Table")),
        (3, 1),
        "{shown:#}"
    );
    let (code, removed, said) = cleanup(&shop, &["--yes"]);
    assert_eq!(code, 0, "{said} {removed:#}");
    let all_gone = removed["items"]
        .as_array()
        .unwrap()
        .iter()
        .all(|item| item["removed"] == true);
    assert!(all_gone, "{removed:#}");
    assert_eq!(nft(&shop.lab, "list tables").trim(), "table inet other");
    let links = ip(&shop.lab, shop.lab.host(), &["-o", "link"]);
    assert!(!links.contains(": pal"), "{links}");
    assert!(!shop.agent.state().exists());
    assert!(
        shop.agent.policy().join("db.yaml").exists(),
        "manifests are not ours"
    );
    let (code, nothing, _) = cleanup(&shop, &["--yes"]);
    assert_eq!((code, nothing["items"].as_array().unwrap().len()), (0, 0));
}

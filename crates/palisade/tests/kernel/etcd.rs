//! Policies in a real etcd, enforced by the real program: pushed, written by others, followed through outages
//! and compactions, with TLS and users.

use crate::agent::Agent;
use crate::agent::shop::{FROM_WEB_8080, Shop, policy};
use palisade_testkit::cluster::{EtcdServer, EtcdTls};
use palisade_testkit::lab::Lab;
use palisade_testkit::need_root;
use palisade_testkit::runtimes::RuntimePrograms;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const WEB: usize = 0;
const API: usize = 1;
const DB: usize = 2;
/// Another port of etcd, where agents do not look for it.
const ASIDE: u16 = 2479;
const PORT: u16 = 2379;
const FROM_DB_8080: &str =
    "  ingress:\n  - from: [{podSelector: {matchLabels: {app: db}}}]\n    ports: [{port: 8080}]\n";
/// The key of a policy of namespace shop that is not pushed.
const POLICY_KEY: &str = "/palisade/objects/networking.k8s.io/NetworkPolicy/shop/";

/// A shop whose agent follows an etcd, and a folder to push.
struct EtcdShop {
    shop: Shop,
    etcd: EtcdServer,
    /// The parameters of etcd.
    parameters: Vec<String>,
    manifests: PathBuf,
    _folder: TempDir,
}

fn open(name: &str, tls: EtcdTls) -> Option<EtcdShop> {
    open_with(name, tls, |_, _| Vec::new())
}

/// The parameters besides `etcd` are those that `more` returns for the folder; it may prepare etcd.
fn open_with(
    name: &str,
    tls: EtcdTls,
    more: impl FnOnce(&mut EtcdServer, &Path) -> Vec<String>,
) -> Option<EtcdShop> {
    if !need_root() {
        return None;
    }
    let programs = RuntimePrograms::etcd()?;
    let lab = Lab::new(name).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let host = lab.namespace_name(lab.host());
    let mut etcd = EtcdServer::start(host, &programs, folder.path(), tls).unwrap();
    // Nobody listens at the first endpoint.
    let endpoints = format!("127.0.0.1:1,127.0.0.1:{PORT}");
    let mut parameters = vec!["--etcd".to_owned(), endpoints];
    parameters.extend(more(&mut etcd, folder.path()));
    let mut agent = Agent::new();
    let arguments: Vec<&str> = parameters.iter().map(String::as_str).collect();
    agent.more(&arguments);
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    Some(EtcdShop {
        shop: Shop::inside(agent, lab),
        etcd,
        parameters,
        manifests,
        _folder: folder,
    })
}

impl EtcdShop {
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.manifests.join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.manifests.join(name)).unwrap();
    }

    fn push(&self, more: &[&str]) -> Output {
        let mut arguments: Vec<&str> = self.parameters.iter().map(String::as_str).collect();
        if !more.contains(&"-f") {
            arguments.extend(["-f", self.manifests.to_str().unwrap()]);
        }
        arguments.extend(more);
        self.shop.agent.beside(&self.shop.lab, "push", &arguments)
    }

    /// Pushes the folder, which must succeed.
    fn pushed(&self) -> Value {
        let output = self.push(&["-o", "json"]);
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Pushes the folder and waits until the change is in the kernel.
    fn push_and_follow(&self) -> Value {
        let before = self.shop.agent.status()["revision"].as_u64();
        let report = self.pushed();
        self.shop.agent.wait("the push is in the kernel", |status| {
            status["revision"].as_u64() > before && status["revision"] == status["realised"]
        });
        report
    }

    fn wait(&self, policies: u64) -> Value {
        self.shop
            .agent
            .wait("the policies are in the kernel", |status| {
                status["policies"].as_u64() == Some(policies)
                    && status["revision"] == status["realised"]
                    && status["source"]["inSync"] == true
            })
    }

    fn wait_followed(&self) {
        self.shop.agent.wait("etcd is followed", |status| {
            status["source"]["sources"][0].get("stale").is_none()
                && status["source"]["inSync"] == true
        });
    }

    fn wait_stale(&self, reason: &str) -> Value {
        self.shop.agent.wait("the outage is reported", |status| {
            let stale = &status["source"]["sources"][0]["stale"];
            stale["since"].is_string() && stale.to_string().contains(reason)
        })
    }

    fn problems(&self, part: &str) -> String {
        let status = self.shop.agent.wait(part, |status| {
            status["source"]["problems"].to_string().contains(part)
        });
        status["source"]["problems"].to_string()
    }

    fn wait_no_problem(&self) {
        self.shop.agent.wait("no problem", |status| {
            status["source"]["problems"]
                .as_array()
                .is_some_and(Vec::is_empty)
        });
    }

    fn put(&self, name: &str, text: &str) {
        let key = format!("{POLICY_KEY}{name}");
        self.etcd.etcdctl(&["put", &key], text).unwrap();
    }

    fn delete(&self, name: &str) {
        let key = format!("{POLICY_KEY}{name}");
        self.etcd.etcdctl(&["del", &key], "").unwrap();
    }
}

/// What a command printed on standard error.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pushed_folder_is_enforced_and_followed() {
    let Some(shop) = open("etcdpush", EtcdTls::Off) else {
        return;
    };
    shop.wait_followed();
    let tcp = |from, to| shop.shop.tcp(from, to, 8080);
    assert!(tcp(WEB, API) && tcp(DB, API));
    shop.write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let dry = shop.push(&["--dry-run"]);
    let text = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(
        text.contains("NetworkPolicy/shop/api: would be created"),
        "{text}"
    );
    let report = shop.pushed();
    let key = "networking.k8s.io/NetworkPolicy/shop/api";
    assert_eq!(report["created"], serde_json::json!([key]), "{report:#}");
    shop.wait(1);
    assert!(tcp(WEB, API) && !tcp(DB, API));

    // The same again changes nothing, an edit is followed.
    let before = shop.wait(1)["revision"].clone();
    let again = shop.pushed();
    assert_eq!(
        (&again["unchanged"], &again["revision"]),
        (&1.into(), &report["revision"])
    );
    assert_eq!(shop.wait(1)["revision"], before);
    shop.write("api.yaml", &policy("api", "api", FROM_DB_8080));
    let edited = shop.push_and_follow();
    assert_eq!(edited["changed"], serde_json::json!([key]), "{edited:#}");
    assert!(!tcp(WEB, API) && tcp(DB, API));

    // An error in one file keeps everything from being written.
    shop.write(
        "bad.yaml",
        &policy("bad", "db", "  ingress:\n  - ports: [{port: 70000}]\n"),
    );
    shop.write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let refused = shop.push(&[]);
    let text = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("bad.yaml:7:") && text.contains("nothing was written"),
        "{text}"
    );
    assert!(!tcp(WEB, API) && tcp(DB, API));
    shop.remove("bad.yaml");

    // What is not in the folder is deleted; an empty folder must be meant.
    shop.write("db.yaml", &policy("db", "db", FROM_WEB_8080));
    shop.remove("api.yaml");
    shop.push_and_follow();
    assert!(tcp(WEB, API) && tcp(DB, API) && tcp(WEB, DB) && !tcp(API, DB));
    shop.remove("db.yaml");
    let refused = shop.push(&[]);
    assert!(
        said(&refused).contains("--allow-empty"),
        "{}",
        said(&refused)
    );
    assert!(!tcp(API, DB));
    assert!(shop.push(&["--allow-empty"]).status.success());
    shop.wait(0);
    assert!(tcp(API, DB));
}

#[test]
fn objects_of_others_are_followed_by_their_keys_and_their_leases() {
    let Some(shop) = open("etcdkeys", EtcdTls::Off) else {
        return;
    };
    let tcp = |from, to| shop.shop.tcp(from, to, 8080);
    shop.write("db.yaml", &policy("db", "db", FROM_WEB_8080));
    shop.pushed();
    let lease = shop.etcd.etcdctl(&["lease", "grant", "600"], "").unwrap();
    let lease = lease.split_whitespace().nth(1).unwrap().to_owned();
    let key = format!("{POLICY_KEY}api");
    let leased = policy("api", "api", FROM_WEB_8080);
    let lease_flag = format!("--lease={lease}");
    shop.etcd
        .etcdctl(&["put", &lease_flag, &key], &leased)
        .unwrap();
    shop.wait(2);
    assert!(!tcp(DB, API) && !tcp(API, DB) && tcp(WEB, DB));
    // A push leaves it alone; the end of its lease deletes it.
    shop.write("web.yaml", &policy("web", "web", FROM_WEB_8080));
    shop.pushed();
    shop.wait(3);
    assert!(!tcp(DB, API));
    shop.etcd.etcdctl(&["lease", "revoke", &lease], "").unwrap();
    shop.wait(2);
    assert!(tcp(DB, API) && !tcp(API, DB));

    // A value that is not valid closes what it selects, and nothing else.
    let bad = policy("bad", "api", "  ingress:\n  - ports: [{port: 70000}]\n");
    shop.put("bad", &bad);
    let problems = shop.problems("70000");
    assert!(
        problems.contains("objects/networking.k8s.io/NetworkPolicy/shop/bad"),
        "{problems}"
    );
    shop.shop
        .agent
        .wait("it isolates", |s| s["revision"] == s["realised"]);
    assert!(!tcp(DB, API) && tcp(WEB, DB));
    // Of one that was valid the last valid version stays, also if it is no manifest at all.
    shop.put("bad", &policy("bad", "api", FROM_DB_8080));
    shop.wait_no_problem();
    shop.wait(3);
    assert!(tcp(DB, API) && !tcp(WEB, API));
    shop.put("bad", "{");
    shop.problems("NetworkPolicy/shop/bad");
    assert!(tcp(DB, API) && !tcp(WEB, API));
    shop.put("bad", &policy("other", "api", FROM_WEB_8080));
    let problems = shop.problems("write it to that key");
    assert!(problems.contains("NetworkPolicy/shop/other"), "{problems}");
    assert!(tcp(DB, API) && !tcp(WEB, API));
    shop.delete("bad");
    shop.wait_no_problem();
    shop.wait(2);
    assert!(tcp(DB, API) && tcp(WEB, API));

    // An object that is pushed and written is reported; the one in force stays.
    shop.put("db", &policy("db", "db", FROM_DB_8080));
    let problems = shop.problems("defined twice");
    assert!(
        problems.contains("pushed/networking.k8s.io/NetworkPolicy/shop/db"),
        "{problems}"
    );
    assert!(tcp(WEB, DB) && !tcp(API, DB));
    shop.etcd
        .etcdctl(&["put", "/palisade/objects/policy"], "x")
        .unwrap();
    shop.problems("GROUP/KIND/NAMESPACE/NAME");
    shop.etcd
        .etcdctl(&["del", "--prefix", "/palisade/objects/"], "")
        .unwrap();
    shop.wait_no_problem();
    assert!(tcp(WEB, DB) && !tcp(API, DB));
}

#[test]
fn etcd_is_followed_through_its_death_a_compaction_and_a_restart_of_the_agent() {
    let Some(mut shop) = open("etcddies", EtcdTls::Off) else {
        return;
    };
    shop.write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    shop.pushed();
    shop.put("db", &policy("db", "db", FROM_WEB_8080));
    shop.wait(2);
    let matrix = |shop: &EtcdShop| {
        let pairs = [(WEB, API), (DB, API), (WEB, DB), (API, DB)];
        pairs.map(|(from, to)| shop.shop.tcp(from, to, 8080))
    };
    assert_eq!(matrix(&shop), [true, false, true, false]);

    // While it is away for the agent one object goes, another one comes, and the history is forgotten.
    shop.etcd.kill();
    let status = shop.wait_stale("127.0.0.1:2379");
    assert_eq!(
        (&status["policies"], &status["health"]),
        (&2.into(), &"Degraded".into())
    );
    assert_eq!(matrix(&shop), [true, false, true, false]);
    shop.etcd.restart(ASIDE).unwrap();
    shop.delete("db");
    shop.put("web", &policy("web", "web", FROM_DB_8080));
    shop.etcd.compact().unwrap();
    assert_eq!(matrix(&shop), [true, false, true, false]);
    shop.etcd.restart(PORT).unwrap();
    shop.wait_followed();
    shop.wait(2);
    assert_eq!(matrix(&shop), [true, false, true, true]);
    assert!(!shop.shop.tcp(API, WEB, 8080) && shop.shop.tcp(DB, WEB, 8080));

    // A short outage without a compaction: the watch goes on.
    shop.etcd.restart(PORT).unwrap();
    shop.put("db", &policy("db", "db", FROM_WEB_8080));
    shop.wait(3);
    assert_eq!(matrix(&shop), [true, false, true, false]);

    // An agent that starts without etcd goes on from its snapshot, and writes nothing to the kernel.
    shop.etcd.kill();
    shop.shop.agent.kill();
    shop.shop.agent.start(&shop.shop.lab);
    let status = shop.wait_stale("");
    assert_eq!(status["policies"], 3, "{status:#}");
    assert_eq!(status["dataplane"]["start"]["writes"], 0, "{status:#}");
    assert_eq!(matrix(&shop), [true, false, true, false]);
    shop.etcd.restart(ASIDE).unwrap();
    shop.delete("db");
    shop.etcd.compact().unwrap();
    shop.etcd.restart(PORT).unwrap();
    shop.wait_followed();
    shop.wait(2);
    assert_eq!(matrix(&shop), [true, false, true, true]);
}

/// A folder with so many policies; their pods do not exist.
fn write_many(folder: &Path, count: usize, port: u16) {
    let rules = format!("  ingress:\n  - ports: [{{port: {port}}}]\n");
    let text: Vec<String> = (0..count)
        .map(|n| policy(&format!("p{n}"), &format!("a{n}"), &rules))
        .collect();
    std::fs::write(folder.join("many.yaml"), text.join("---\n")).unwrap();
}

#[test]
fn a_push_of_more_objects_than_a_transaction_holds_is_atomic() {
    let Some(shop) = open("etcdmany", EtcdTls::Off) else {
        return;
    };
    shop.write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    shop.pushed();
    shop.wait(1);
    write_many(&shop.manifests, 400, 80);
    let is_done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Vec::new();
            while !is_done.load(Ordering::Relaxed) {
                if let Some(policies) = shop.shop.agent.status()["policies"].as_u64() {
                    seen.push(policies);
                }
            }
            seen.sort_unstable();
            seen.dedup();
            seen
        });
        let report = shop.pushed();
        assert_eq!(report["created"].as_array().map(Vec::len), Some(400));
        shop.wait(401);
        is_done.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(seen.iter().all(|n| [1, 401].contains(n)), "{seen:?}");
    let old = shop
        .etcd
        .etcdctl(
            &["get", "--prefix", "--keys-only", "/palisade/bundles/"],
            "",
        )
        .unwrap();
    let bundle = |key: &str| key.split('/').nth(3).map(str::to_owned);
    let mut bundles: Vec<String> = old.lines().filter_map(bundle).collect();
    bundles.dedup();
    assert_eq!(bundles.len(), 1, "{bundles:?}");

    // Of pushes at the same time each is in force as a whole, or says that another one came first.
    let folders: Vec<TempDir> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    for (number, folder) in folders.iter().enumerate() {
        write_many(folder.path(), 300, 1_000 + number as u16);
    }
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let push = |folder: &TempDir| {
            let path = folder.path().to_str().unwrap().to_owned();
            let shop = &shop;
            scope.spawn(move || shop.push(&["-f", &path]))
        };
        let threads: Vec<_> = folders.iter().map(push).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for output in outputs.iter().filter(|output| !output.status.success()) {
        let text = said(output);
        assert!(
            text.contains("another push came first") && text.contains("try: "),
            "{text}"
        );
    }
    let is_in_force = |folder: &&TempDir| {
        let output = shop.push(&[
            "-f",
            folder.path().to_str().unwrap(),
            "--dry-run",
            "-o",
            "json",
        ]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["unchanged"] == 300
    };
    assert_eq!(folders.iter().filter(is_in_force).count(), 1);
    shop.wait(300);
}

/// A user with a password, and with the rights of a role on the prefix.
fn add_user(etcd: &EtcdServer, user: &str, password: Option<&str>, rights: &str) {
    let run = |arguments: &[&str]| etcd.etcdctl(arguments, "").unwrap();
    match password {
        Some(password) => run(&["user", "add", &format!("{user}:{password}")]),
        None => run(&["user", "add", "--no-password", user]),
    };
    let role = format!("{user}-role");
    run(&["role", "add", &role]);
    run(&[
        "role",
        "grant-permission",
        "--prefix=true",
        &role,
        rights,
        "/palisade/",
    ]);
    run(&["user", "grant-role", user, &role]);
}

#[test]
fn tls_and_users_are_what_etcd_demands() {
    let prepare = |etcd: &mut EtcdServer, folder: &Path| {
        etcd.etcdctl(&["user", "add", "root:secret"], "").unwrap();
        add_user(etcd, "reader", Some("open"), "read");
        add_user(etcd, "writer", Some("sesame"), "readwrite");
        // The user of the client certificate.
        add_user(etcd, "agent", None, "read");
        etcd.etcdctl(&["user", "grant-role", "root", "root"], "")
            .unwrap();
        etcd.etcdctl(&["auth", "enable"], "").unwrap();
        etcd.log_in(Some("root:secret"));
        std::fs::write(folder.join("password"), "open\n").unwrap();
        std::fs::write(folder.join("writer"), "sesame\n").unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        [
            ("--etcd-ca-file", file("etcd-ca.crt")),
            ("--etcd-cert-file", file("client.crt")),
            ("--etcd-key-file", file("client.key")),
            ("--etcd-user", "reader".to_owned()),
            ("--etcd-password-file", file("password")),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    };
    let Some(mut shop) = open_with("etcdtls", EtcdTls::On, prepare) else {
        return;
    };
    shop.wait_followed();
    let folder = shop.manifests.parent().unwrap().to_owned();
    std::fs::write(folder.join("password"), "wrong\n").unwrap();
    shop.etcd.restart(PORT).unwrap();
    shop.wait_stale("does not accept the password of the user reader");
    std::fs::write(folder.join("password"), "open\n").unwrap();
    shop.wait_followed();

    // The reader may not push, the writer may.
    shop.write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let refused = shop.push(&[]);
    assert_eq!(refused.status.code(), Some(4), "{}", said(&refused));
    let text = said(&refused);
    assert!(
        text.contains("permission denied") && text.contains("grant-permission"),
        "{text}"
    );
    let reader = std::mem::take(&mut shop.parameters);
    let writer = |text: &String| {
        let text = text.replace("/password", "/writer");
        if text == "reader" {
            "writer".to_owned()
        } else {
            text
        }
    };
    shop.parameters = reader.iter().map(writer).collect();
    shop.pushed();
    shop.wait(1);
    // Tokens are void after a change of the users: this push is read over the same connection.
    shop.etcd
        .etcdctl(&["user", "add", "someone:x"], "")
        .unwrap();
    write_many(&shop.manifests, 200, 80);
    shop.pushed();
    shop.wait(201);
    // And those of an etcd that was started again.
    shop.etcd.restart(PORT).unwrap();
    shop.remove("many.yaml");
    shop.pushed();
    shop.wait(1);

    // Without a password the certificate says who the client is.
    shop.shop.agent.kill();
    let mut agent = Agent::new();
    let arguments: Vec<&str> = reader[..8].iter().map(String::as_str).collect();
    agent.more(&arguments);
    agent.more(&["--dry-run"]);
    let output = agent.run_to_its_end(&shop.shop.lab);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
    assert!(text.contains("1 policies"), "{text}");
    // A wrong authority is an error that says so.
    let mut agent = Agent::new();
    let own = folder.join("client.crt").display().to_string();
    agent.more(&[&arguments[..2], &["--etcd-ca-file", &own, "--dry-run"]].concat());
    let output = agent.run_to_its_end(&shop.shop.lab);
    let text = said(&output);
    assert!(
        !output.status.success() && text.contains("certificate"),
        "{text}"
    );
}

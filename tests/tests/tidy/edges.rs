//! Which crate may use which, and what the pure ones may use at all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::code;

/// The whole architecture: each crate and the crates of this workspace that it may use.
/// Dependencies of tests alone are free, but for the last rule of [`forbidden`].
const ALLOWED: &[(&str, &[&str])] = &[
    ("palisade-model", &[]),
    ("palisade-oracle", &["model"]),
    ("palisade-tables", &["model"]),
    ("palisade-engine", &["model", "tables"]),
    ("palisade-layout", &["model", "tables"]),
    ("palisade-names", &["model"]),
    ("palisade-dns", &["model", "names"]),
    (
        "palisade-proxy",
        &["model", "tables", "names", "dns", "sys"],
    ),
    ("palisade-nft", &["model", "tables", "layout"]),
    ("palisade-text", &[]),
    ("palisade-manifest", &[]),
    ("palisade-dialects", &["model", "manifest"]),
    ("palisade-analysis", &["model", "oracle", "api"]),
    ("palisade-convert", &["model", "manifest", "dialects"]),
    (
        "palisade-preview",
        &[
            "model", "manifest", "dialects", "oracle", "tables", "engine", "api", "analysis",
            "convert",
        ],
    ),
    (
        "palisade-effective",
        &["model", "manifest", "dialects", "engine"],
    ),
    (
        "palisade-source",
        &[
            "model",
            "manifest",
            "dialects",
            "engine",
            "effective",
            "sys",
            "text",
        ],
    ),
    ("palisade-remote", &["effective", "source"]),
    (
        "palisade-kubernetes",
        &[
            "model",
            "manifest",
            "dialects",
            "effective",
            "source",
            "remote",
            "sys",
            "text",
            "api",
        ],
    ),
    (
        "palisade-etcd",
        &[
            "model",
            "manifest",
            "dialects",
            "effective",
            "source",
            "remote",
            "sys",
            "text",
        ],
    ),
    ("palisade-sys", &[]),
    ("palisade-fast-path", &["layout", "model", "tables"]),
    ("palisade-bpf", &["fast-path", "model", "sys", "tables"]),
    (
        "palisade-dataplane",
        &[
            "model",
            "tables",
            "layout",
            "nft",
            "fast-path",
            "bpf",
            "sys",
        ],
    ),
    ("palisade-api", &["model"]),
    ("palisade-cni", &["api", "text"]),
    ("palisade-config", &["model", "manifest", "dialects", "api"]),
    (
        "palisade-node",
        &["model", "sys", "dataplane", "api", "config", "text"],
    ),
    (
        "palisade-enforcer",
        &[
            "model",
            "tables",
            "engine",
            "sys",
            "dataplane",
            "api",
            "config",
            "text",
            "node",
        ],
    ),
    (
        "palisade-network",
        &[
            "model",
            "sys",
            "dataplane",
            "api",
            "config",
            "text",
            "node",
            "enforcer",
        ],
    ),
    (
        "palisade-name-manager",
        &[
            "model",
            "tables",
            "names",
            "proxy",
            "sys",
            "dataplane",
            "api",
            "config",
            "text",
            "node",
            "enforcer",
        ],
    ),
    (
        "palisade-workloads",
        &[
            "model",
            "sys",
            "dataplane",
            "api",
            "config",
            "text",
            "node",
            "enforcer",
            "network",
        ],
    ),
    ("palisade-flows", &["model", "api"]),
    (
        "palisade-hubble",
        &["model", "api", "flows", "manifest", "text"],
    ),
    ("palisade-page", &["api", "text"]),
    (
        "palisade-monitor",
        &[
            "model",
            "tables",
            "dataplane",
            "api",
            "text",
            "node",
            "enforcer",
            "flows",
        ],
    ),
    (
        "palisade-views",
        &[
            "model",
            "oracle",
            "tables",
            "engine",
            "manifest",
            "dialects",
            "analysis",
            "effective",
            "source",
            "kubernetes",
            "dataplane",
            "api",
            "config",
            "text",
            "node",
            "enforcer",
            "network",
            "workloads",
            "names",
            "name-manager",
            "proxy",
        ],
    ),
    (
        "palisade-agent",
        &[
            "model",
            "tables",
            "analysis",
            "effective",
            "source",
            "remote",
            "etcd",
            "kubernetes",
            "sys",
            "bpf",
            "dataplane",
            "api",
            "config",
            "text",
            "node",
            "enforcer",
            "network",
            "workloads",
            "name-manager",
            "proxy",
            "hubble",
            "page",
            "preview",
            "flows",
            "monitor",
            "views",
        ],
    ),
    (
        "palisade",
        &[
            "model",
            "oracle",
            "tables",
            "engine",
            "nft",
            "manifest",
            "dialects",
            "analysis",
            "convert",
            "preview",
            "flows",
            "hubble",
            "page",
            "source",
            "etcd",
            "sys",
            "dataplane",
            "api",
            "config",
            "text",
            "node",
            "workloads",
            "proxy",
            "views",
            "agent",
        ],
    ),
];

/// Crates for tests: they may use anything, and only tests may use them.
const FOR_TESTS: [&str; 5] = [
    "palisade-testkit",
    "palisade-fuzzing",
    "palisade-generators",
    "palisade-verification",
    "palisade-tests",
];

const PURE: [&str; 9] = [
    "model",
    "oracle",
    "tables",
    "engine",
    "effective",
    "layout",
    "names",
    "nft",
    "text",
];

/// Crates without IO, clocks or threads, which pure crates may use.
const PURE_DEPENDENCIES: [&str; 9] = [
    "bitflags",
    "foldhash",
    "hashbrown",
    "indexmap",
    "rustc-hash",
    "serde",
    "smallvec",
    "smol_str",
    "thiserror",
];

/// What a package depends on outside its tests.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) uses: Vec<String>,
}

/// The packages of `cargo metadata --no-deps`.
pub(crate) fn packages(metadata: &Value) -> Vec<Package> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    assert!(!packages.is_empty(), "cargo metadata lists no package");
    packages
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            uses: list(&package["dependencies"])
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| text(&dependency["name"]))
                .collect(),
        })
        .collect()
}

/// Edges that the architecture does not have.
pub(crate) fn forbidden(packages: &[Package]) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut complaints = Vec::new();
    for package in packages {
        let may = allowed.get(package.name.as_str());
        if FOR_TESTS.contains(&package.name.as_str()) {
            continue;
        }
        let Some(may) = may else {
            complaints.push(format!("{} is not in the table of crates", package.name));
            continue;
        };
        for used in package.uses.iter().filter(|used| is_ours(used)) {
            let short = used.strip_prefix("palisade-").unwrap_or(used);
            if !may.contains(&short) {
                complaints.push(format!("{} must not use {used}", package.name));
            }
        }
    }
    complaints
}

fn is_ours(name: &str) -> bool {
    name == "palisade" || name.starts_with("palisade-")
}

/// Dependencies of pure crates that might do IO.
pub(crate) fn impure_dependencies(packages: &[Package]) -> Vec<String> {
    let pure: BTreeSet<_> = PURE.iter().map(|name| format!("palisade-{name}")).collect();
    let mut complaints = Vec::new();
    for package in packages
        .iter()
        .filter(|package| pure.contains(&package.name))
    {
        for used in &package.uses {
            if !is_ours(used) && !PURE_DEPENDENCIES.contains(&used.as_str()) {
                complaints.push(format!("{} is pure and must not use {used}", package.name));
            }
        }
    }
    complaints
}

/// A pure crate that lets the standard library in.
pub(crate) fn impure_source(path: &str, text: &str) -> Vec<String> {
    let pure = PURE
        .iter()
        .any(|name| path.starts_with(&format!("crates/palisade-{name}/src/")));
    if !pure {
        return Vec::new();
    }
    let code = code::without_comments_and_strings(text);
    let mut complaints = Vec::new();
    if path.ends_with("/src/lib.rs") && !code.contains("#![no_std]") {
        complaints.push(format!("{path}: a pure crate begins with #![no_std]"));
    }
    let lines: Vec<_> = code.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        let for_tests = at > 0 && lines[at - 1].starts_with("#[cfg(");
        if line.contains("extern crate std") && !for_tests {
            let number = at + 1;
            complaints.push(format!(
                "{path}:{number}: std outside tests in a pure crate"
            ));
        }
    }
    complaints
}

/// The drivers: the module in the dataplane crate, the beginning of its types' names, and a crate that only it
/// uses.
const DRIVERS: [(&str, &str, &str); 2] = [
    ("nftables", "Nft", "palisade_nft"),
    ("ebpf", "Ebpf", "palisade_bpf"),
];

/// The crates that the agent is made of, without their common prefix; [`crate::sizes`] bounds each.
pub(crate) const AGENT_CRATES: &[&str] = &[
    "node",
    "enforcer",
    "network",
    "workloads",
    "name-manager",
    "monitor",
    "views",
    "agent",
];

/// Whether this is the source of a crate of the agent.
fn is_of_agent(path: &str) -> bool {
    AGENT_CRATES
        .iter()
        .any(|name| path.starts_with(&format!("crates/palisade-{name}/src/")))
}

/// The one file of the agent that opens drivers.
const OPENER: &str = "crates/palisade-agent/src/driver.rs";

/// Code of the agent, of the contract of drivers, or of another driver, that depends on one driver.
pub(crate) fn driver_names(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let reason = match path {
        OPENER => return complaints,
        _ if is_of_agent(path) => "only driver.rs knows which drivers there are",
        _ if path.starts_with("crates/palisade-dataplane/src/") => {
            "the contract of drivers depends on none of them"
        }
        _ => return complaints,
    };
    let code = code::without_comments_and_strings(text);
    for (module, types, helper) in DRIVERS {
        let home = format!("crates/palisade-dataplane/src/{module}");
        if path.starts_with(&format!("{home}/")) || path == format!("{home}.rs") {
            continue;
        }
        // The driver with the fast path is the one of nftables, with something above it.
        if module == "nftables" && path.starts_with("crates/palisade-dataplane/src/ebpf/") {
            continue;
        }
        let of_driver = |word: &str| {
            word == module
                || word.starts_with(types)
                || (!helper.is_empty() && word.contains(helper))
        };
        let declaration = format!("pub mod {module};");
        for (at, line) in code.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if line.trim() != declaration && words.any(of_driver) {
                let number = at + 1;
                complaints.push(format!("{path}:{number}: {reason}"));
            }
        }
    }
    complaints
}

/// The files that cargo compiles from, as paths from the root.
pub(crate) fn target_roots(metadata: &Value, root: &Path) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let relative = |path: &Value| {
        let path = Path::new(path.as_str()?).strip_prefix(root).ok()?;
        Some(path.display().to_string())
    };
    list(&metadata["packages"])
        .iter()
        .flat_map(|package| list(&package["targets"]))
        .filter_map(|target| relative(&target["src_path"]))
        .collect()
}

/// Test programs besides `integration` and `kernel`, of which a crate has one each: what they change is of the whole
/// process, or they are the house rules.
const OWN_PROGRAMS: [(&str, &str); 5] = [
    ("palisade-dialects", "faults"),
    ("palisade-engine", "faults"),
    ("palisade-nft", "faults"),
    ("palisade-source", "failing_reads"),
    ("palisade-tests", "tidy"),
];

/// Test programs that are parts of others: linking is most of what building the tests takes.
pub(crate) fn needless_programs(metadata: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut complaints = Vec::new();
    for package in list(&metadata["packages"]) {
        let owner = package["name"].as_str().unwrap_or_default();
        for target in list(&package["targets"]) {
            let name = target["name"].as_str().unwrap_or_default();
            let is_test = list(&target["kind"]).iter().any(|kind| kind == "test");
            let is_known = matches!(name, "integration" | "kernel");
            if is_test && !is_known && !OWN_PROGRAMS.contains(&(owner, name)) {
                complaints.push(format!(
                    "{owner}: the tests of {name} are a module of tests/integration or tests/kernel"
                ));
            }
        }
    }
    complaints
}

/// Locked packages that come from elsewhere than crates.io.
pub(crate) fn foreign_sources(lock: &str) -> Vec<String> {
    const CRATES_IO: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    lock.lines()
        .filter(|line| line.starts_with("source = ") && *line != CRATES_IO)
        .map(|line| format!("Cargo.lock: {line}"))
        .collect()
}

#[test]
fn an_edge_against_the_flow_is_seen() {
    let package = |name: &str, uses: &[&str]| Package {
        name: name.to_owned(),
        uses: uses.iter().map(|&used| used.to_owned()).collect(),
    };
    let packages = [
        package("palisade-oracle", &["palisade-model", "serde"]),
        package("palisade-tables", &["palisade-oracle", "tokio"]),
        package("palisade-agent", &["palisade-testkit", "tokio"]),
        package("palisade-tests", &["palisade-testkit"]),
        package("palisade-new", &[]),
    ];
    assert_eq!(
        forbidden(&packages),
        [
            "palisade-tables must not use palisade-oracle",
            "palisade-agent must not use palisade-testkit",
            "palisade-new is not in the table of crates",
        ]
    );
    assert_eq!(
        impure_dependencies(&packages),
        ["palisade-tables is pure and must not use tokio"]
    );
}

#[test]
fn a_needless_program_is_seen() {
    let target = |name: &str| serde_json::json!({"name": name, "kind": ["test"]});
    let names = ["integration", "kernel", "faults", "lab"];
    let metadata = serde_json::json!({"packages": [{
        "name": "palisade-nft",
        "targets": names.map(target),
    }]});
    let complaints = needless_programs(&metadata);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains("the tests of lab"));
}

#[test]
fn test_dependencies_are_free() {
    let metadata = serde_json::json!({"packages": [{
        "name": "palisade-model",
        "dependencies": [
            {"name": "palisade-testkit", "kind": "dev"},
            {"name": "serde", "kind": null},
            {"name": "cc", "kind": "build"},
        ],
    }]});
    assert_eq!(packages(&metadata)[0].uses, ["serde", "cc"]);
}

#[test]
fn std_in_a_pure_crate_is_seen() {
    let path = "crates/palisade-engine/src/lib.rs";
    assert_eq!(
        impure_source(path, "//! #![no_std]\n").len(),
        1,
        "a comment is no attribute"
    );
    let fine = "#![no_std]\n#[cfg(test)]\nextern crate std;\n";
    assert_eq!(impure_source(path, fine), [""; 0]);
    let leaky = "#![no_std]\nextern crate std;\n";
    assert_eq!(impure_source(path, leaky).len(), 1);
    assert_eq!(impure_source("crates/palisade-sys/src/lib.rs", ""), [""; 0]);
}

#[test]
fn a_driver_outside_its_files_is_seen() {
    let uses = "//! nftables\nuse palisade_nft::Config;\nlet a: &str = \"nftables\";\nfn b(_: NftDataplane) {}\n";
    let complain = |path: &str| driver_names(path, uses).len();
    assert_eq!(complain("crates/palisade-agent/src/core.rs"), 2);
    assert_eq!(complain("crates/palisade-agent/src/driver.rs"), 0);
    assert_eq!(complain("crates/palisade-dataplane/src/driver.rs"), 2);
    assert_eq!(complain("crates/palisade-dataplane/src/nftables/nat.rs"), 0);
    let declared = "pub mod nftables;\n";
    assert_eq!(
        driver_names("crates/palisade-dataplane/src/lib.rs", declared),
        [""; 0]
    );
    for (module, ..) in DRIVERS {
        let used = format!("use palisade_dataplane::{module};\n");
        assert_eq!(
            driver_names("crates/palisade-agent/src/run.rs", &used).len(),
            1
        );
    }
}

#[test]
fn a_git_dependency_is_seen() {
    let registry = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
    let git = "source = \"git+https://example.org/x#1\"\n";
    assert_eq!(foreign_sources(registry), [""; 0]);
    assert_eq!(foreign_sources(&format!("{registry}{git}")).len(), 1);
}

//! A real node with Palisade installed from its image and its manifest, and five of Kubernetes' own specs there.
//! All of them are a command of their own: `make conformance`.

use palisade_testkit::cluster::{Cluster, Controllers, PALISADE_NAMESPACE, SpecOutcome};
use palisade_testkit::ring::report_skip;
use palisade_testkit::runtimes::RuntimePrograms;
use palisade_testkit::test_driver::agent_dataplane;
use palisade_testkit::{lab, need_root};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Of each kind one: all of a direction, a named port, an exception, another namespace, a pod that changes.
const SPECS: [&str; 5] = [
    "NetworkPolicy between server and client should support a 'default-deny-all' policy",
    "should allow ingress access on one named port",
    "should enforce except clause while egress access to server in CIDR block",
    "should enforce egress policy allowing traffic to a server in a different namespace",
    "should allow ingress access from updated pod",
];

/// How long the proxy may take to connect: its container is started after the agent's, or before.
const PROXY_CONNECTS: Duration = Duration::from_secs(30);

/// The image that `scripts/image` made; absent, after a loud line, where none is named.
fn image() -> Option<PathBuf> {
    let named = std::env::var_os("PALISADE_IMAGE").map(PathBuf::from);
    if named.is_none() {
        report_skip("PALISADE_IMAGE names no image (`make test` makes one)");
    }
    named
}

/// The status of the agent.
fn status(cluster: &Cluster) -> serde_json::Value {
    let exec = ["-n", PALISADE_NAMESPACE, "exec", "daemonset/palisade"];
    let status = ["-c", "agent", "--", "palisade", "status", "-o", "json"];
    let status = cluster.kubectl().run(&[&exec[..], &status].concat());
    serde_json::from_str(&status.unwrap()).unwrap()
}

/// Waits until the DNS proxy, a container of its own with fewer rights, is connected to the agent.
fn wait_for_proxy(cluster: &Cluster) {
    let began = Instant::now();
    loop {
        let status = status(cluster);
        if status["names"]["proxies"] == 1 {
            return;
        }
        assert!(began.elapsed() < PROXY_CONNECTS, "{status:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_node_passes_specs_of_upstream_and_is_given_back() {
    if !need_root() {
        return;
    }
    let (Some(programs), Some(image)) = (RuntimePrograms::cluster(), image()) else {
        return;
    };
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let mut cluster = Cluster::start("specs", &programs, Controllers::All).unwrap();
    cluster.add_node().unwrap();
    cluster.import_image(&image).unwrap();
    let dataplane = agent_dataplane();
    let manifest = std::fs::read_to_string(deploy.join("palisade.yaml")).unwrap();
    let parameter = "    kubernetes: in-cluster\n";
    assert!(manifest.contains(parameter));
    let with_dataplane = format!("{parameter}    dataplane: {dataplane}\n");
    let file = cluster.folder().join("palisade.yaml");
    std::fs::write(&file, manifest.replace(parameter, &with_dataplane)).unwrap();
    cluster.roll_out(&file, "palisade").unwrap();
    cluster.wait_for_nodes().unwrap();
    wait_for_proxy(&cluster);
    assert_eq!(status(&cluster)["dataplane"]["name"], *dataplane);

    let log = cluster.folder().join("specs.log");
    let specs = cluster.run_specs(&format!("({})", SPECS.join("|")), &log, None);
    let specs = specs.unwrap();
    for spec in &specs {
        println!("{:?} in {:?}: {}", spec.outcome, spec.took, spec.name);
    }
    let passed = |wanted: &&str| {
        let of_name = specs.iter().find(|spec| spec.name.contains(wanted));
        of_name.is_some_and(|spec| spec.outcome == SpecOutcome::Passed)
    };
    let failed: Vec<_> = SPECS.iter().filter(|spec| !passed(spec)).collect();
    assert_eq!(failed, [&""; 0], "{specs:#?}");

    // Ready once nothing is left.
    let cleanup = deploy.join("palisade-cleanup.yaml");
    cluster.roll_out(&cleanup, "palisade").unwrap();
    cluster.delete(&cleanup).unwrap();
    let tables = cluster.nodes()[0].run("nft", &["list", "tables"]).unwrap();
    assert!(!tables.contains("palisade"), "{tables}");
    drop(cluster);
    // Other tests of this process have namespaces meanwhile.
    let mut left = lab::find_own_leaks().unwrap();
    left.retain(|leak| {
        let text = format!("{leak:?}");
        text.contains("pal-cluster-") || text.contains("pal-specs-")
    });
    assert_eq!(left, []);
}

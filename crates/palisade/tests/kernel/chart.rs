//! The Helm chart, by the real Helm: lint, the rendered manifests in `deploy`, several files of values, and values
//! that the schema refuses.

use palisade_testkit::need_root;
use palisade_testkit::runtimes::RuntimePrograms;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn values(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart_values");
    folder.join(format!("{name}.yaml"))
}

/// Helm; absent, after a loud line, where it is not built.
struct Helm(PathBuf);

impl Helm {
    fn find() -> Option<Self> {
        // Needs no root, but what the kernel ring gathers.
        (need_root().then(RuntimePrograms::helm)?).map(Helm)
    }

    fn run(&self, args: &[&str], more: &[String]) -> Output {
        let home = tempfile::tempdir().unwrap();
        Command::new(&self.0)
            .args(args)
            .args(["--kube-version", "1.34.0"])
            .args(more)
            .env("HOME", home.path())
            .current_dir(root())
            .output()
            .unwrap()
    }

    fn template(&self, more: &[String]) -> Output {
        let chart = "deploy/helm/palisade";
        self.run(
            &["template", "palisade", chart, "-n", "palisade-system"],
            more,
        )
    }

    /// The rendered chart.
    fn rendered(&self, more: &[String]) -> String {
        let output = self.template(more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{more:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn with_file(name: &str) -> Vec<String> {
    vec!["--values".to_owned(), values(name).display().to_string()]
}

#[test]
fn it_is_well_formed_with_every_file_of_values() {
    let Some(helm) = Helm::find() else {
        return;
    };
    let files = std::fs::read_dir(values("x").parent().unwrap()).unwrap();
    let files = files.map(|file| file.unwrap().path().display().to_string());
    let mut sets: Vec<Vec<String>> = files
        .map(|file| vec!["--values".to_owned(), file])
        .collect();
    assert!(sets.len() > 2);
    sets.push(Vec::new());
    for set in sets {
        let lint = helm.run(&["lint", "--strict", "deploy/helm/palisade"], &set);
        let said = String::from_utf8_lossy(&lint.stdout).into_owned();
        assert!(
            lint.status.success() && said.contains("1 chart(s) linted, 0 chart(s) failed"),
            "{set:?}: {said}"
        );
        assert!(helm.rendered(&set).contains("kind: DaemonSet"));
    }
}

#[test]
fn the_manifests_of_deploy_are_the_rendered_chart() {
    let Some(helm) = Helm::find() else {
        return;
    };
    let target = helm.0.ancestors().nth(3).unwrap();
    let output = Command::new(root().join("scripts/manifests"))
        .arg("--check")
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let difference = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{difference}");
}

/// Asserts that a text has these lines, at any depth.
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        let found = text.lines().any(|of_text| of_text.trim() == *line);
        assert!(found, "{line:?} is not in\n{text}");
    }
}

#[test]
fn every_value_has_its_effect() {
    let Some(helm) = Helm::find() else {
        return;
    };
    let text = helm.rendered(&with_file("every-value"));
    let image = "image: registry.example:5000/net/palisade:0.1.0-rc.1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    assert_lines(
        &text,
        &[
            image,
            "imagePullPolicy: Always",
            "- name: registry",
            "masquerade: \"off\"",
            "log-level: \"debug\"",
            "host-max-elements: 2097152",
            "pod-mtu: 0",
            "ipam-pool: [\"10.64.0.0/24\",\"fd64::/64\"]",
            "mark-mask: \"0xffff0000\"",
            "own-table: false",
            "dns-proxy: \"off\"",
            "cni-bin-dir: \"/usr/libexec/cni\"",
            "mountPath: /usr/libexec/cni",
            "cni-conf-dir: \"/srv/cni/net.d\"",
            "cni-conf-name: \"05-palisade.conflist\"",
            "cni-conf-keep: false",
            "value: \"192.0.2.7\"",
            "value: \"443\"",
            "state-dir: \"/srv/palisade/state\"",
            "socket: \"/srv/palisade/run/palisade.sock\"",
            "path: /var/run/netns",
            "- name: policies",
            "value: \"[$(HOST_IP)]:19245\"",
            "containerPort: 19245",
            "grafana: dashboards",
            "k8s-sidecar-target-directory: /network",
            "maxUnavailable: 10%",
            "periodSeconds: 20",
            "timeoutSeconds: 4",
            "failureThreshold: 3",
            "failureThreshold: 30",
            "terminationGracePeriodSeconds: 30",
            "priorityClassName: system-cluster-critical",
            "pool: workers",
            "- key: virtual",
            "key: node-role.kubernetes.io/control-plane",
            "memory: 1Gi",
            "example.org/team: network",
            "hostPID: true",
            "privileged: true",
            "type: container_runtime_t",
            "serviceAccountName: network-policy",
            "- mountPath: /etc/palisade/hubble",
            "secretName: hubble-server-certs",
        ],
    );
    for absent in [
        "prometheus.io/scrape",
        "kind: ServiceAccount",
        "kind: ClusterRole",
        "/proc/sys/net",
        "args: [proxy",
        "no-token",
        "capabilities:\n              add:",
    ] {
        assert!(!text.contains(absent), "{absent}");
    }
}

#[test]
fn without_its_own_configuration_it_attaches_nothing() {
    let Some(helm) = Helm::find() else {
        return;
    };
    let text = helm.rendered(&with_file("chained"));
    assert_lines(
        &text,
        &[
            "cni-conf-dir: \"\"",
            "value: \"127.0.0.1:9245\"",
            "host: 127.0.0.1",
            "args: [install-cni, --config, /etc/palisade/config/palisade.yaml]",
        ],
    );
    for absent in ["/etc/cni/net.d", "prometheus.io/scrape"] {
        assert!(!text.contains(absent), "{absent}");
    }
}

#[test]
fn the_proxy_is_a_container_beside_the_agent() {
    let Some(helm) = Helm::find() else {
        return;
    };
    let text = helm.rendered(&with_file("names"));
    let (_, proxy) = text.split_once("- name: proxy\n").unwrap();
    let (proxy, _) = proxy.split_once("\n      volumes:\n").unwrap();
    assert_lines(
        &text,
        &["args: [agent, --config, /etc/palisade/config/palisade.yaml]"],
    );
    assert_lines(&text, &["dns-proxy: \"on\""]);
    assert_lines(
        proxy,
        &[
            "args: [proxy, --config, /etc/palisade/config/palisade.yaml]",
            "cpu: 20m",
            "memory: 48Mi",
            "memory: 64Mi",
            "drop: [ALL]",
            "add: [NET_ADMIN, NET_RAW]",
        ],
    );
    // It reads the rule sets, and makes a socket.
    assert!(proxy.contains("mountPath: /srv/palisade/state\n              readOnly: true\n"));
    assert!(proxy.contains("mountPath: /srv/palisade/run\n            #"));
}

#[test]
fn the_removal_runs_no_agent_and_sees_the_folders_it_removes() {
    let Some(helm) = Helm::find() else {
        return;
    };
    let text = helm.rendered(&with_file("cleanup"));
    assert_lines(
        &text,
        &[
            "args: [cleanup, --yes, --config, /etc/palisade/config/palisade.yaml]",
            "args: [uninstall-check, --stay, --config, /etc/palisade/config/palisade.yaml]",
            "mountPath: /srv/palisade",
            "mountPath: /srv/run",
            "automountServiceAccountToken: false",
            "maxUnavailable: 100%",
        ],
    );
    for absent in [
        "args: [agent",
        "args: [proxy",
        "livenessProbe",
        "prometheus.io/scrape",
    ] {
        assert!(!text.contains(absent), "{absent}");
    }
}

#[test]
fn wrong_values_are_refused_by_name() {
    let Some(helm) = Helm::find() else {
        return;
    };
    for (value, reason) in [
        (
            "metrics.port=x",
            "at '/metrics/port': got string, want integer",
        ),
        ("metrics.port=70000", "at '/metrics/port': maximum"),
        (
            "dnsProxy.enabled=on",
            "at '/dnsProxy/enabled': got string, want boolean",
        ),
        (
            "config.dns-proxy=on",
            "at '/config': additional properties 'dns-proxy' not allowed",
        ),
        (
            "cni.binDirectory=/x",
            "at '/cni': additional properties 'binDirectory' not allowed",
        ),
        ("replicas=3", "additional properties 'replicas' not allowed"),
        (
            "config.monitor-rat=5",
            "at '/config': additional properties 'monitor-rat' not allowed",
        ),
        (
            "config.socket=/x",
            "at '/config': additional properties 'socket' not allowed",
        ),
        (
            "config.monitor-rate=60001",
            "at '/config/monitor-rate': maximum",
        ),
        (
            "config.masquerade=false",
            "at '/config/masquerade': value must be one of 'off', 'outside'",
        ),
        (
            "config.log-level=loud",
            "at '/config/log-level': value must be one of",
        ),
        (
            "paths.state=/state",
            "at '/paths/state': '/state' does not match pattern",
        ),
        (
            "updateStrategy.maxUnavailable=0",
            "at '/updateStrategy/maxUnavailable'",
        ),
        (
            "image.pullPolicy=Sometimes",
            "at '/image/pullPolicy': value must be one of",
        ),
        ("tolerations[0].operator=Is", "at '/tolerations/0/operator'"),
    ] {
        let output = helm.template(&["--set".to_owned(), value.to_owned()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{value} is accepted");
        assert!(said.contains(reason), "{value}: {said}");
    }
}

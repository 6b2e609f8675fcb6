//! `make demo-cluster`: a whole Kubernetes cluster, Palisade installed in it as its users install it, and the
//! shop as pods of it.
//!
//! The control plane and the nodes are Kubernetes' own programs, each node in namespaces of its own. The
//! results are measured with real packets in the pods and compared with the manifests, also while the API
//! server is dead. However it ends, everything it created is removed.

use crate::checks::Checks;
use crate::error::DemoError;
use crate::interrupt::DemoInterrupt;
use crate::matrix::ProbeMatrix;
use crate::now;
use crate::participants::PartyNode;
use crate::screen::{Screen, duration_text};
use crate::shop::{self, PARTIES, POLICIES, ShopParty};
use palisade_sys::atomic_file::write_atomically;
use palisade_testkit::cluster::{
    Cluster, ClusterNode, ControlPlane, Controllers, PALISADE_NAMESPACE,
};
use palisade_testkit::lab::{Lab, LongFlow, find_own_leaks};
use palisade_testkit::runtimes::{RuntimeError, RuntimePrograms};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What the demo installs.
pub(crate) struct Installation {
    /// The image, as an archive.
    pub(crate) image: PathBuf,
    /// The folder of `palisade.yaml` and `palisade-cleanup.yaml`.
    pub(crate) manifests: PathBuf,
}

const AGENT: &str = "daemonset/palisade";
/// Limit on waits for something that the agents do.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec:
  selector: {app: api}
  ipFamilyPolicy: RequireDualStack
  ports: [{name: api, port: 80, targetPort: 8080}]
";

/// Runs the demo; returns the number of failed checks.
pub(crate) fn run(
    screen: Screen,
    interrupt: DemoInterrupt,
    installation: &Installation,
) -> Result<usize, DemoError> {
    let missing =
        "a part of a Kubernetes cluster cannot be had on this machine; the line above says which";
    let programs = RuntimePrograms::cluster().ok_or_else(|| DemoError::problem(missing))?;
    let mut demo = ClusterDemo {
        parties: Vec::new(),
        lab: Lab::new("shop").map_err(|error| DemoError::caused("making a namespace", &error))?,
        folder: tempfile::tempdir()
            .map_err(|error| DemoError::caused("making a folder", &error))?,
        cluster: None,
        image: programs.pod_image().unwrap_or_default(),
        screen,
        interrupt,
        steps: 0,
        checks: Checks::new(screen),
    };
    demo.start_cluster(&programs)?;
    demo.install(installation)?;
    demo.start_pods()?;
    let open = demo.show_without_policy()?;
    let strict = demo.apply_policies(&open)?;
    demo.show_status()?;
    demo.lose_api_server(&strict)?;
    demo.remove(installation)
}

/// The parts of the demo; dropped in this order.
struct ClusterDemo {
    parties: Vec<PartyNode>,
    lab: Lab,
    folder: tempfile::TempDir,
    cluster: Option<Cluster>,
    /// The image that the pods run.
    image: String,
    screen: Screen,
    interrupt: DemoInterrupt,
    steps: usize,
    checks: Checks,
}

impl ClusterDemo {
    /// Step 1: the control plane and two nodes.
    fn start_cluster(&mut self, programs: &RuntimePrograms) -> Result<(), DemoError> {
        self.step("A Kubernetes cluster of two nodes, without a network")?;
        let began = now();
        let cluster = Cluster::start("demo", programs, Controllers::All);
        let cluster = self.cluster.insert(cluster.map_err(cluster_error)?);
        self.screen.detail(format_args!(
            "etcd, API server, controllers and scheduler: {}",
            duration_text(now() - began)
        ));
        for _ in 0..2 {
            self.interrupt.check()?;
            let began = now();
            let node = cluster.add_node().map_err(cluster_error)?;
            self.screen.detail(format_args!(
                "{}: containerd, kubelet and kube-proxy in namespaces of its own: {}",
                node.name(),
                duration_text(now() - began)
            ));
        }
        self.show(&["get", "nodes"])
    }

    /// Step 2: Palisade.
    fn install(&mut self, installation: &Installation) -> Result<(), DemoError> {
        self.step("Palisade is installed")?;
        let cluster = self.cluster()?;
        cluster
            .import_image(&installation.image)
            .map_err(cluster_error)?;
        self.screen.command("kubectl apply -f deploy/palisade.yaml");
        let began = now();
        let manifest = installation.manifests.join("palisade.yaml");
        cluster
            .roll_out(&manifest, "palisade")
            .map_err(cluster_error)?;
        cluster.wait_for_nodes().map_err(cluster_error)?;
        self.screen.detail(format_args!(
            "agents and nodes are ready after {}",
            duration_text(now() - began)
        ));
        self.show(&["-n", PALISADE_NAMESPACE, "get", "pods", "-o", "wide"])
    }

    /// Step 3: the pods of the shop, on both nodes.
    fn start_pods(&mut self) -> Result<(), DemoError> {
        self.step("The shop: four pods on two nodes, and a Service")?;
        let began = now();
        let cluster = self.cluster()?;
        let kubectl = cluster.kubectl();
        let (namespaces, _) = shop::INVENTORY[0];
        self.write(namespaces, shop::INVENTORY[0].1)?;
        kubectl.apply(shop::INVENTORY[0].1).map_err(cluster_error)?;
        let pods = pods(&self.image);
        kubectl.apply(&pods).map_err(cluster_error)?;
        kubectl.apply(SERVICE).map_err(cluster_error)?;
        for namespace in ["shop", "elsewhere"] {
            cluster.wait_for_pods(namespace).map_err(cluster_error)?;
        }
        self.write("pods.yaml", shop::INVENTORY[1].1)?;
        let took = duration_text(now() - began);
        for (party, namespace) in members() {
            let pod = self.cluster()?.pod(namespace, party.name);
            let pod = pod.map_err(cluster_error)?;
            let addresses: Vec<String> = pod.addresses.iter().map(IpAddr::to_string).collect();
            self.screen.detail(format_args!(
                "{:<20} {} on {}",
                party.full_name(),
                addresses.join(" "),
                pod.node
            ));
            let adopted = self
                .lab
                .adopt(party.name, &pod.network_namespace, pod.addresses.clone())
                .map_err(|error| DemoError::caused("entering a pod's network", &error))?;
            let node = PartyNode::start(&self.lab, adopted, party, pod.addresses)?;
            self.parties.push(node);
        }
        self.screen.detail(format_args!("all ready after {took}"));
        Ok(())
    }

    /// Step 4: without policy, all traffic is allowed, also through the Service.
    fn show_without_policy(&mut self) -> Result<ProbeMatrix, DemoError> {
        self.step("Without policy: all connections are allowed")?;
        let open = self.measure(None)?;
        self.check_service("web", true)?;
        self.check_service("stranger", true)?;
        Ok(open)
    }

    /// Step 5: the policies.
    fn apply_policies(&mut self, open: &ProbeMatrix) -> Result<ProbeMatrix, DemoError> {
        self.step("Four policies are applied with kubectl")?;
        let kubectl = self.cluster()?.kubectl();
        let began = now();
        for policy in POLICIES {
            kubectl.apply(policy.text).map_err(cluster_error)?;
            self.write(policy.name, policy.text)?;
            self.screen
                .command(&format!("kubectl apply -f examples/shop/{}", policy.name));
        }
        let written = now();
        let number = POLICIES.len() as u64;
        self.wait_for_agents("the policies are in force", |status| {
            status["policies"].as_u64() == Some(number) && status["revision"] == status["realised"]
        })?;
        self.screen.detail(format_args!(
            "applied in {}; in force on both nodes, as their agents say, {} later",
            duration_text(written - began),
            duration_text(now() - written)
        ));
        let strict = self.measure(Some(open))?;
        self.check_service("web", true)?;
        self.check_service("stranger", false)?;
        Ok(strict)
    }

    /// Step 6: what the cluster knows of its policy.
    fn show_status(&mut self) -> Result<(), DemoError> {
        self.step("Each node's agent writes what it enforces")?;
        let number = POLICIES.len() as u64;
        self.wait("the objects of both nodes name the policies", |cluster| {
            let statuses = cluster.kubectl().get(&["nodepolicystatuses"])?;
            let items = statuses["items"].as_array().cloned().unwrap_or_default();
            let all =
                |item: &serde_json::Value| item["status"]["policies"].as_u64() == Some(number);
            Ok(items.len() == 2 && items.iter().all(all))
        })?;
        self.show(&["get", "nodepolicystatuses"])?;
        let explain = [
            "explain", "--from", "shop/web", "--to", "shop/db", "--port", "5432/TCP",
        ];
        self.show(
            &[
                &["-n", PALISADE_NAMESPACE, "exec", AGENT, "--", "palisade"],
                &explain[..],
            ]
            .concat(),
        )
    }

    /// Step 7: the API server dies, an agent dies, both come back.
    fn lose_api_server(&mut self, strict: &ProbeMatrix) -> Result<(), DemoError> {
        self.step("The API server is killed; then the agents are, too")?;
        let kept = self.open_connection("web", "api")?;
        self.interrupt.wait(PAUSE)?;
        self.plane()?.kill_api_server();
        let measured = self.measure(Some(strict))?;
        self.checks
            .check_unchanged(&measured, strict, "without an API server");
        let cluster = self.cluster()?;
        for node in cluster.nodes() {
            node.kill_container("agent").map_err(cluster_error)?;
        }
        let measured = ProbeMatrix::measure(&self.lab, &self.parties)?;
        self.checks
            .check_unchanged(&measured, strict, "without agents");
        self.wait_for_agents("the agents run again, from their snapshots", |status| {
            let mut sources = status["source"]["sources"].as_array().into_iter().flatten();
            sources.any(|source| !source["stale"].is_null())
                && status["policies"].as_u64() == Some(POLICIES.len() as u64)
        })?;
        let measured = ProbeMatrix::measure(&self.lab, &self.parties)?;
        self.checks.check_unchanged(
            &measured,
            strict,
            "with new agents, started without an API server",
        );

        let began = now();
        self.plane()?.start_api_server().map_err(cluster_error)?;
        let kubectl = self.cluster()?.kubectl();
        self.screen.detail(format_args!(
            "the API server is back after {}",
            duration_text(now() - began)
        ));
        let policy = shop::edited();
        let began = now();
        self.screen
            .command("kubectl apply -f edited/api.yaml   # the namespace elsewhere instead of web");
        kubectl.apply(&policy).map_err(cluster_error)?;
        self.write(shop::EDIT.0, &policy)?;
        let limit = now() + LIMIT;
        while kept.counts().silent_for < Duration::from_millis(500) && now() < limit {
            self.interrupt.wait(Duration::from_millis(20))?;
        }
        let counts = kept.counts();
        self.checks.check(
            counts.silent_for >= Duration::from_millis(500),
            format_args!(
                "web to api: the connection lived through all of it ({} replies), and stopped {} after the edit",
                counts.received,
                duration_text((now() - began).saturating_sub(counts.silent_for))
            ),
        );
        self.measure(Some(strict)).map(drop)
    }

    /// Step 8: Palisade is given back, and everything is removed.
    fn remove(mut self, installation: &Installation) -> Result<usize, DemoError> {
        self.step("Palisade is removed")?;
        self.parties.clear();
        let file = |name: &str| installation.manifests.join(name);
        let cluster = self.cluster()?;
        let kubectl = cluster.kubectl();
        let shop = ["delete", "namespace", "shop", "elsewhere", "--timeout=120s"];
        kubectl.run(&shop).map_err(cluster_error)?;
        self.screen
            .command("kubectl apply -f deploy/palisade-cleanup.yaml");
        cluster
            .roll_out(&file("palisade-cleanup.yaml"), "palisade")
            .map_err(cluster_error)?;
        self.screen
            .pass("palisade uninstall-check finds nothing left on either node");
        self.screen
            .command("kubectl delete -f deploy/palisade-cleanup.yaml");
        cluster
            .delete(&file("palisade-cleanup.yaml"))
            .map_err(cluster_error)?;
        let left = cluster
            .nodes()
            .iter()
            .map(left_on)
            .collect::<Result<Vec<_>, _>>();
        for (node, left) in left? {
            let text = if left.is_empty() {
                format!("{node}: no table, no file, no CNI configuration of Palisade")
            } else {
                format!("{node}: left: {}", left.join(", "))
            };
            self.checks.check(left.is_empty(), &text);
        }
        let Self {
            parties,
            lab,
            folder,
            cluster,
            mut checks,
            ..
        } = self;
        drop((parties, lab, cluster, folder));
        let left = find_own_leaks();
        let left = left.map_err(|error| DemoError::caused("listing what is left", &error))?;
        let text = if left.is_empty() {
            "left on this machine: nothing of the cluster".to_owned()
        } else {
            format!("left: {left:?}")
        };
        checks.check(left.is_empty(), text);
        Ok(checks.failed())
    }
}

// Small parts that the steps share.
impl ClusterDemo {
    fn cluster(&self) -> Result<&Cluster, DemoError> {
        let gone = || DemoError::problem("the cluster is gone");
        self.cluster.as_ref().ok_or_else(gone)
    }

    fn plane(&mut self) -> Result<&mut ControlPlane, DemoError> {
        let gone = || DemoError::problem("the cluster is gone");
        Ok(self.cluster.as_mut().ok_or_else(gone)?.control_plane())
    }

    fn step(&mut self, text: &str) -> Result<(), DemoError> {
        self.steps += 1;
        self.screen.step(self.steps, text);
        self.interrupt.check()
    }

    /// Shows a command of kubectl and what it prints.
    fn show(&self, arguments: &[&str]) -> Result<(), DemoError> {
        self.screen
            .command(&format!("kubectl {}", arguments.join(" ")));
        let printed = self.cluster()?.kubectl().run(arguments);
        for line in printed.map_err(cluster_error)?.lines() {
            self.screen.detail(line);
        }
        Ok(())
    }

    /// Writes a manifest that the cluster has, for the comparison.
    fn write(&self, name: &str, text: &str) -> Result<(), DemoError> {
        let path = self.folder.path().join(name);
        write_atomically(&path, text.as_bytes())
            .map_err(|error| DemoError::caused("writing a manifest", &error))
    }

    /// Waits for an answer of the cluster.
    fn wait(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Cluster) -> Result<bool, RuntimeError>,
    ) -> Result<(), DemoError> {
        let limit = now() + LIMIT;
        while !is_so(self.cluster()?).map_err(cluster_error)? {
            if now() > limit {
                let mut text = format!("not within {}: {what}", duration_text(LIMIT));
                for node in self.cluster()?.nodes() {
                    let status = node.agent_status().map_err(|error| error.to_string());
                    let status = status.map_or_else(|error| error, |status| format!("{status:#}"));
                    text.push_str(&format!(
                        "\n{}: {status}\n{}",
                        node.name(),
                        node.pod_log("agent")
                    ));
                }
                return Err(DemoError::problem(text));
            }
            self.interrupt.wait(PAUSE)?;
        }
        Ok(())
    }

    /// Waits until the status of each node's agent is as it should be: asked on the node, which needs no API
    /// server.
    fn wait_for_agents(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<(), DemoError> {
        self.wait(what, |cluster| {
            for node in cluster.nodes() {
                let status = node.agent_status();
                // An agent that starts has no socket yet.
                if !status.is_ok_and(|status| is_so(&status)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Opens a long connection between two pods.
    fn open_connection(&self, from: &str, to: &str) -> Result<LongFlow, DemoError> {
        let to = self.party(to)?;
        let address = to.address(true).ok_or_else(|| no_address(to.party.name))?;
        let target = SocketAddr::new(address, to.party.tcp);
        self.party(from)?.open_connection(&self.lab, target)
    }

    fn party(&self, name: &str) -> Result<&PartyNode, DemoError> {
        let mut parties = self.parties.iter();
        let found = parties.find(|party| party.party.name == name);
        found.ok_or_else(|| DemoError::problem(format!("the shop has no {name}")))
    }

    /// Measures and prints the matrix, and compares it with the manifests.
    fn measure(&mut self, before: Option<&ProbeMatrix>) -> Result<ProbeMatrix, DemoError> {
        self.interrupt.check()?;
        let measured = ProbeMatrix::measure(&self.lab, &self.parties)?;
        measured.print(self.screen, before);
        let written = ProbeMatrix::from_manifests(self.folder.path(), &self.parties)?;
        self.checks.compare(&measured, &written, |cells| {
            format!("{cells} cells match palisade explain")
        });
        Ok(measured)
    }

    /// Whether a pod reaches the Service of api, over both families, as expected.
    fn check_service(&mut self, from: &str, expected: bool) -> Result<(), DemoError> {
        let kubectl = self.cluster()?.kubectl();
        let service = kubectl.get(&["-n", "shop", "service", "api"]);
        let service = service.map_err(cluster_error)?;
        let addresses = service["spec"]["clusterIPs"].as_array().cloned();
        for address in addresses.unwrap_or_default() {
            let Some(address) = address
                .as_str()
                .and_then(|text| text.parse::<IpAddr>().ok())
            else {
                continue;
            };
            let answered = self
                .party(from)?
                .connects(&self.lab, (address, 80).into())?;
            let state = if answered { "answered" } else { "dropped" };
            self.checks.check(
                answered == expected,
                format_args!("{from} to the Service of api, {address}: {state}"),
            );
        }
        Ok(())
    }
}

/// The parties that are pods, with their namespaces.
fn members() -> impl Iterator<Item = (ShopParty, &'static str)> {
    PARTIES
        .iter()
        .filter_map(|party| Some((*party, party.namespace?)))
}

/// The manifests of the pods: those of the example, with an image that there is, and on different nodes.
fn pods(image: &str) -> String {
    let mut pods = Vec::new();
    for (number, (party, namespace)) in members().enumerate() {
        let ports = match party.name {
            "web" => ["http", "http3"],
            "api" => ["api", "metrics"],
            "db" => ["sql", "cache"],
            _ => ["tcp", "udp"],
        };
        pods.push(
            serde_json::json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": party.name, "namespace": namespace, "labels": {"app": party.name}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": format!("node{}", number % 2 + 1)},
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": false,
                    "containers": [{
                        "name": party.name,
                        "image": image,
                        "args": ["pause"],
                        "ports": [
                            {"name": ports[0], "containerPort": party.tcp},
                            {"name": ports[1], "containerPort": party.udp, "protocol": "UDP"},
                        ],
                    }],
                },
            })
            .to_string(),
        );
    }
    pods.join("\n---\n")
}

/// The tables and files of Palisade that a node has, with the node's name.
fn left_on(node: &ClusterNode) -> Result<(String, Vec<String>), DemoError> {
    let list = "nft list tables | grep palisade
        ls -d /run/palisade* /var/lib/palisade* /etc/cni/net.d/* /opt/cni/bin/palisade* 2>/dev/null
        true";
    let printed = node.run("sh", &["-c", list]).map_err(cluster_error)?;
    let lines = printed.lines().map(str::to_owned).collect();
    Ok((node.name().to_owned(), lines))
}

fn cluster_error(error: RuntimeError) -> DemoError {
    DemoError::caused("the cluster", &error)
}

fn no_address(name: &str) -> DemoError {
    DemoError::problem(format!("{name} has no IPv4 address"))
}

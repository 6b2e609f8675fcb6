//! Policies of a real API server, with etcd behind it: enforced, followed through outages and compactions, and
//! read with the rights that Palisade asks for and no others.

use crate::agent::Agent;
use crate::agent::shop::{FROM_WEB_8080, Shop, policy};
use palisade_testkit::cluster::{ControlPlane, Controllers, Kubectl};
use palisade_testkit::lab::Lab;
use palisade_testkit::need_root;
use palisade_testkit::runtimes::RuntimePrograms;
use serde_json::Value;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WEB: usize = 0;
const API: usize = 1;
const DB: usize = 2;

/// A shop whose agent follows a real server.
struct ClusterShop {
    shop: Shop,
    plane: ControlPlane,
    folder: TempDir,
}

/// The rights that the chart grants; those of the agent's namespace are granted in every one here.
const ROLE: &str = concat!(
    "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: palisade}
rules:
",
    include_str!("../../../../../deploy/helm/palisade/files/cluster-role-rules.yaml"),
    include_str!("../../../../../deploy/helm/palisade/files/role-rules.yaml"),
    "
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: palisade}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: palisade}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: palisade}]
"
);

fn open(name: &str) -> Option<ClusterShop> {
    if !need_root() {
        return None;
    }
    open_with(name, &RuntimePrograms::control_plane()?)
}

fn open_with(name: &str, programs: &RuntimePrograms) -> Option<ClusterShop> {
    let mut lab = Lab::new(name).unwrap();
    let server = "10.90.0.1".parse().unwrap();
    lab.add_address(lab.host(), server).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let host = lab.namespace_name(lab.host());
    let plane = ControlPlane::start(host, programs, folder.path(), Controllers::None).unwrap();
    let kubectl = plane.kubectl();
    kubectl.apply(ROLE).unwrap();
    kubectl.run(&["create", "namespace", "shop"]).unwrap();
    let mut agent = Agent::new();
    let kubeconfig = agent.policy().with_file_name("kubeconfig");
    plane
        .write_kubeconfig(&kubeconfig, "palisade", None)
        .unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    agent.more(&["--kubernetes", &kubeconfig]);
    Some(ClusterShop {
        shop: Shop::inside(agent, lab),
        plane,
        folder,
    })
}

/// Waits until the kernel has so many policies.
fn wait(shop: &Shop, policies: u64) -> Value {
    shop.agent.wait("the policies are in the kernel", |s| {
        s["policies"].as_u64() == Some(policies) && s["revision"] == s["realised"]
    })
}

#[test]
fn a_real_server_is_followed_through_its_death_and_a_compaction() {
    let Some(ClusterShop {
        mut shop,
        mut plane,
        folder: _folder,
    }) = open("plane")
    else {
        return;
    };
    let kubectl = plane.kubectl();
    shop.agent
        .wait("in sync", |s| s["source"]["inSync"] == true);
    assert!(shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080));
    kubectl.apply(&policy("api", "api", FROM_WEB_8080)).unwrap();
    wait(&shop, 1);
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));

    // What changes while the server is gone for the agent, and forgotten by etcd, is found by a new list.
    shop.agent.kill();
    kubectl.apply(&policy("db", "db", FROM_WEB_8080)).unwrap();
    kubectl.apply(&policy("web", "web", FROM_WEB_8080)).unwrap();
    kubectl
        .run(&["-n", "shop", "delete", "networkpolicy", "api"])
        .unwrap();
    plane.compact().unwrap();
    shop.agent.start(&shop.lab);
    // It starts from its snapshot, which has one policy.
    wait(&shop, 2);
    assert!(shop.tcp(DB, API, 8080) && shop.tcp(WEB, DB, 8080) && !shop.tcp(API, DB, 8080));

    plane.kill_api_server();
    let status = shop.agent.wait("the outage is reported", |s| {
        s["source"]["sources"][0]["stale"]["since"].is_string()
    });
    assert_eq!(status["policies"], 2, "{status:#}");
    assert!(shop.tcp(WEB, DB, 8080) && !shop.tcp(API, DB, 8080));
    plane.start_api_server().unwrap();
    plane.compact().unwrap();
    kubectl.apply(&policy("api", "api", FROM_WEB_8080)).unwrap();
    wait(&shop, 3);
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    shop.agent.wait("not stale", |s| {
        s["source"]["sources"][0]["stale"].is_null()
    });
}

#[test]
fn objects_written_behind_the_validation_fail_alone_and_by_name() {
    let Some(ClusterShop {
        shop,
        plane,
        folder: _folder,
    }) = open("raw")
    else {
        return;
    };
    let good = policy("api", "api", FROM_WEB_8080);
    plane.kubectl().apply(&good).unwrap();
    wait(&shop, 1);
    // etcd holds what no server would have accepted.
    let bad = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"bad","namespace":"shop","uid":"6f6a2f5e-0000-4000-8000-000000000001","creationTimestamp":"2026-11-01T00:00:00Z"},"spec":{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"ports":[{"port":70000}]}],"policyTypes":["Ingress"]}}"#;
    plane
        .put_raw("/registry/networkpolicies/shop/bad", bad)
        .unwrap();
    let status = shop.agent.wait("the object is reported", |s| {
        s["source"]["problems"].to_string().contains("shop/bad")
    });
    assert!(
        status["source"]["problems"].to_string().contains("70000"),
        "{status:#}"
    );
    // What it selects is closed, and nothing else is concerned.
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    assert!(!shop.tcp(WEB, DB, 8080));
    plane
        .delete_raw("/registry/networkpolicies/shop/bad")
        .unwrap();
    shop.agent.wait("the problem is gone", |s| {
        s["source"]["problems"]
            .as_array()
            .is_some_and(Vec::is_empty)
    });
    assert!(shop.tcp(WEB, DB, 8080));
}

const NO_API: &str = "
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: no-api}
spec:
  tier: Admin
  priority: 10
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}
  ingress:
  - name: not-from-db
    action: Deny
    from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}]
";

const NO_WEB: &str = "
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: no-web}
spec:
  priority: 20
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}
  ingress:
  - action: Deny
    from: [{namespaces: {}}]
  egress:
  - action: Allow
    to: [{domainNames: [example.com]}]
";

const CILIUM: &str = "
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: no-db, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: db}}
  ingress: [{fromEndpoints: [{matchLabels: {app: api}}]}]
---
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: requests}
spec:
  endpointSelector: {matchLabels: {app: api}}
  egress:
  - toEndpoints: [{}]
  - toFQDNs: [{matchName: example.com}]
    toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{method: GET}]}}]
";

/// The resources of Calico that the published definitions have.
const CALICO_DEFINED: [&str; 5] = [
    "networkpolicies.crd.projectcalico.org",
    "globalnetworkpolicies.crd.projectcalico.org",
    "networksets.crd.projectcalico.org",
    "globalnetworksets.crd.projectcalico.org",
    "hostendpoints.crd.projectcalico.org",
];

/// As Calico's clients store them: with the labels of the set in an annotation, and the tier in the policy's name.
const CALICO: &str = r#"
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkSet
metadata:
  name: blocked
  annotations:
    projectcalico.org/metadata: '{"labels": {"role": "blocked"}, "creationTimestamp": null}'
spec: {nets: [10.77.0.2/32, "fd77::2/128"]}
---
apiVersion: crd.projectcalico.org/v1
kind: NetworkPolicy
metadata: {name: default.db, namespace: shop}
spec:
  order: 10
  selector: app == 'db'
  types: [Ingress]
  ingress:
  - {action: Deny, source: {namespaceSelector: global(), selector: role == 'blocked'}}
  - {action: Pass}
"#;

/// A policy at the server: the arguments of `kubectl get`, and the type of its condition.
type Conditioned<'a> = (&'a [&'a str], &'a str);

/// The condition of a policy: status, reason and message.
fn condition(kubectl: &Kubectl, (policy, kind): Conditioned<'_>) -> Option<[String; 3]> {
    let policy = kubectl.get(policy).unwrap();
    let conditions = policy["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == kind)?;
    Some(["status", "reason", "message"].map(|key| found[key].as_str().unwrap().to_owned()))
}

/// Waits for a condition that meets this.
fn wait_for_condition(
    kubectl: &Kubectl,
    policy: Conditioned<'_>,
    is_reached: impl Fn(&[String; 3]) -> bool,
) {
    wait_until(&policy.0.join(" "), Duration::from_secs(90), || {
        let found = condition(kubectl, policy);
        if found.as_ref().is_some_and(&is_reached) {
            Ok(())
        } else {
            Err(found)
        }
    });
}

/// Waits until this is reached; an error is what was found instead.
fn wait_until<E: Debug>(what: &str, patience: Duration, is_reached: impl Fn() -> Result<(), E>) {
    let deadline = Instant::now() + patience;
    while let Err(found) = is_reached() {
        assert!(Instant::now() < deadline, "{what}: {found:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn policies_with_conditions_are_enforced_and_have_them() {
    if !need_root() {
        return;
    }
    let Some(programs) = RuntimePrograms::policy_apis() else {
        return;
    };
    let Some(ClusterShop {
        shop,
        plane,
        folder: _folder,
    }) = open_with("cond", &programs)
    else {
        return;
    };
    let kubectl = plane.kubectl();
    // The APIs come while the agent runs.
    let definitions = programs.definitions().display().to_string();
    kubectl
        .run(&["apply", "--server-side", "-R", "-f", &definitions])
        .unwrap();
    kubectl
        .run(&[
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ])
        .unwrap();
    // They are asked for again after 60 to 90 s.
    wait_until("the APIs are followed", Duration::from_secs(150), || {
        let status = shop.agent.status();
        let absent = status["source"]["sources"][0]["absent"].as_array();
        let is_awaited = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            !name.ends_with("projectcalico.org") || CALICO_DEFINED.contains(&name)
        };
        let is_any_absent = absent.is_some_and(|absent| absent.iter().any(is_awaited));
        if is_any_absent { Err(status) } else { Ok(()) }
    });
    assert!(shop.tcp(DB, API, 8080) && shop.tcp(API, WEB, 8080));
    kubectl.apply(NO_API).unwrap();
    kubectl.apply(NO_WEB).unwrap();
    wait(&shop, 2);
    assert!(!shop.tcp(DB, API, 8080) && shop.tcp(WEB, API, 8080) && !shop.tcp(API, WEB, 8080));

    let of_api: Conditioned<'_> = (&["clusternetworkpolicies", "no-api"], "Accepted");
    wait_for_condition(&kubectl, of_api, |c| c[..2] == ["True", "Accepted"]);
    let of_web: Conditioned<'_> = (&["adminnetworkpolicies", "no-web"], "Accepted");
    wait_for_condition(&kubectl, of_web, |[status, reason, message]| {
        status == "True" && reason == "Accepted" && message.contains("every field")
    });
    // Of an object that is refused the last valid version stays, and it says so itself.
    let raw = "/registry/policy.networking.k8s.io/clusternetworkpolicies/no-api";
    let mut bad = kubectl.get(&["clusternetworkpolicies", "no-api"]).unwrap();
    bad["spec"]["ingress"][0]["action"] = "Forbid".into();
    plane.put_raw(raw, &bad.to_string()).unwrap();
    wait_for_condition(&kubectl, of_api, |[status, reason, message]| {
        status == "False"
            && reason == "NotAccepted"
            && message.contains("spec.ingress[0].action")
            && message.contains("the last valid version stays in force")
    });
    assert!(!shop.tcp(DB, API, 8080) && shop.tcp(WEB, API, 8080));
    kubectl.apply(NO_API).unwrap();
    wait_for_condition(&kubectl, of_api, |c| c[..2] == ["True", "Accepted"]);

    // Cilium's kinds have the condition that their own agents write.
    assert!(shop.tcp(WEB, DB, 8080) && shop.tcp(API, DB, 8080));
    kubectl.apply(CILIUM).unwrap();
    wait(&shop, 4);
    assert!(!shop.tcp(WEB, DB, 8080) && shop.tcp(API, DB, 8080));
    let of_db: Conditioned<'_> = (&["-n", "shop", "cnp", "no-db"], "Valid");
    wait_for_condition(&kubectl, of_db, |c| c[..2] == ["True", "Accepted"]);
    let of_requests: Conditioned<'_> = (&["ccnp", "requests"], "Valid");
    wait_for_condition(&kubectl, of_requests, |[status, reason, message]| {
        status == "True" && reason == "PartlyClosed" && message.contains("spec.egress[1].toPorts")
    });
    let columns = kubectl.run(&["-n", "shop", "get", "cnp"]).unwrap();
    assert!(
        columns
            .lines()
            .any(|line| line.starts_with("no-db") && line.ends_with("True")),
        "{columns}"
    );
    // What Cilium refuses, and its schema does not.
    let empty = CILIUM.replace("[{fromEndpoints: [{matchLabels: {app: api}}]}]", "[]");
    kubectl.apply(&empty).unwrap();
    wait_for_condition(&kubectl, of_db, |[status, reason, message]| {
        status == "False"
            && reason == "NotAccepted"
            && message.contains("`ingress: []` is no rule")
            && message.contains("the last valid version stays in force")
    });
    assert!(!shop.tcp(WEB, DB, 8080) && shop.tcp(API, DB, 8080));
    calico_policies_are_enforced(&shop, &kubectl);
}

/// Calico's policies stand before those of Cilium; one that is refused gets an event.
fn calico_policies_are_enforced(shop: &Shop, kubectl: &Kubectl) {
    kubectl.apply(CALICO).unwrap();
    wait(shop, 5);
    // The set may come after the policy.
    wait_until("the set is in force", Duration::from_secs(20), || {
        if shop.tcp(API, DB, 8080) {
            Err(shop.agent.json(&["policy", "list"]))
        } else {
            Ok(())
        }
    });
    // The definition takes any text for a selector.
    let selector = "app == 'db'";
    assert!(CALICO.contains(selector));
    kubectl
        .apply(&CALICO.replace(selector, "app === 'db'"))
        .unwrap();
    wait_until("the event", Duration::from_secs(150), || {
        let events = kubectl.get(&["-n", "shop", "events"]).unwrap();
        let events_of_policy: Vec<&Value> = events["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| {
                let object = &event["involvedObject"];
                object["apiVersion"] == "crd.projectcalico.org/v1" && object["name"] == "default.db"
            })
            .collect();
        match events_of_policy[..] {
            [event] if event["message"].to_string().contains("spec.selector") => Ok(()),
            _ => Err(events),
        }
    });
    assert!(!shop.tcp(API, DB, 8080), "the last valid version");
    let delete = [
        "-n",
        "shop",
        "delete",
        "networkpolicies.crd.projectcalico.org",
    ];
    kubectl
        .run(&[&delete[..], &["default.db"]].concat())
        .unwrap();
    wait(shop, 4);
    assert!(shop.tcp(API, DB, 8080));
}

const STATUS_DEFINITION: &str =
    include_str!("../../../../../deploy/helm/palisade/crds/nodepolicystatuses.yaml");

#[test]
fn an_older_definition_of_the_node_status_is_reported_and_the_present_one_is_written() {
    let Some(ClusterShop {
        mut shop,
        plane,
        folder: _folder,
    }) = open("status")
    else {
        return;
    };
    let kubectl = plane.kubectl();
    // Helm does not upgrade definitions, so an upgraded agent can meet one that lacks a field.
    let older = STATUS_DEFINITION.replace("partlyClosed", "formerlyClosed");
    kubectl.apply(&older).unwrap();
    let established = ["wait", "--for=condition=Established", "crd", "--all"];
    kubectl.run(&established).unwrap();
    let name = "nodepolicystatuses.palisade.dev";
    shop.agent.kill();
    shop.agent.start(&shop.lab);
    let reported = || {
        let status = shop.agent.status();
        let error = status["nodeStatusError"].as_str().unwrap_or_default();
        if error.contains("partlyClosed") && error.contains(name) {
            Ok(())
        } else {
            Err(status)
        }
    };
    let patience = Duration::from_secs(60);
    wait_until("the older definition is reported", patience, reported);
    kubectl.apply(STATUS_DEFINITION).unwrap();
    shop.agent.kill();
    shop.agent.start(&shop.lab);
    let driver = &shop.agent.status()["dataplane"]["name"];
    wait_until("the status is written", patience, || {
        let all = kubectl.get(&["nodepolicystatuses"]).unwrap();
        let status = &all["items"][0]["status"];
        if status["partlyClosedCount"] == 0 && status["driver"] == *driver {
            Ok(())
        } else {
            Err(all)
        }
    });
    let columns = kubectl.run(&["get", "nps"]).unwrap();
    assert!(
        columns.starts_with("NAME") && columns.contains("READY"),
        "{columns}"
    );
}

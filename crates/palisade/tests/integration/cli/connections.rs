//! `palisade connections` and `palisade diff`: the workloads, the connections between them and with the
//! outside, and the output formats.

use super::{PODS, World, policy, run};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Connections, each as one line; those with the outside as `outside/4` and `outside/6`, once.
fn lines(list: &Value) -> Vec<String> {
    let party = |party: &Value| match party["cidr"].as_str() {
        Some(cidr) => format!("outside/{}", if cidr.contains(':') { 6 } else { 4 }),
        None => format!(
            "{}/{}.{}",
            party["namespace"].as_str().unwrap(),
            party["name"].as_str().unwrap(),
            party["kind"].as_str().unwrap()
        ),
    };
    let mut lines: Vec<String> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            let family = c["family"]
                .as_str()
                .map_or(String::new(), |f| format!("{f} "));
            format!(
                "{} > {}: {family}{}",
                party(&c["src"]),
                party(&c["dst"]),
                c["connections"]
            )
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

fn listed(world: &World) -> Vec<String> {
    lines(&world.json("connections", "")["connections"])
}

/// Names of all workloads in a listing.
fn workloads(world: &World) -> Vec<String> {
    let listed = world.json("connections", "");
    let mut names: Vec<String> = listed["connections"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|c| [&c["src"], &c["dst"]])
        .filter(|party| party["cidr"].is_null())
        .map(|p| {
            format!(
                "{} {}",
                p["kind"].as_str().unwrap(),
                p["name"].as_str().unwrap()
            )
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Numbers of addresses in the prefixes connected with a pod, by family.
fn addresses(list: &Value, pod: &str, own: &str, other: &str) -> [Vec<(IpAddr, u8)>; 2] {
    let cidrs = list.as_array().unwrap().iter().filter_map(|c| {
        (c[own]["name"] == pod).then_some(())?;
        let (address, length) = c[other]["cidr"].as_str()?.split_once('/').unwrap();
        Some((
            address.parse::<IpAddr>().unwrap(),
            length.parse::<u8>().unwrap(),
        ))
    });
    let (v4, v6): (Vec<(IpAddr, u8)>, _) = cidrs.partition(|(a, _)| a.is_ipv4());
    [v4, v6]
}

/// Total size of disjoint prefixes.
fn size(prefixes: &[(IpAddr, u8)], bits: u32) -> u128 {
    prefixes
        .iter()
        .map(|(_, length)| 1u128 << (bits - u32::from(*length)))
        .sum()
}

#[test]
fn without_policy_everything_is_all() {
    let world = World::of(&[("a.yaml", PODS)]);
    let told = world.json("connections", "");
    let first = json!({
        "src": {"namespace": "other", "name": "guest", "kind": "Pod"},
        "dst": {"namespace": "shop", "name": "web", "kind": "Pod"},
        "connections": "All",
    });
    assert!(told["connections"].as_array().unwrap().contains(&first));
    assert_eq!(
        lines(&told["connections"]),
        [
            "other/guest.Pod > outside/4: \"All\"",
            "other/guest.Pod > outside/6: \"All\"",
            "other/guest.Pod > shop/web.Pod: \"All\"",
            "outside/4 > other/guest.Pod: \"All\"",
            "outside/4 > shop/web.Pod: \"All\"",
            "outside/6 > other/guest.Pod: \"All\"",
            "outside/6 > shop/web.Pod: \"All\"",
            "shop/web.Pod > other/guest.Pod: \"All\"",
            "shop/web.Pod > outside/4: \"All\"",
            "shop/web.Pod > outside/6: \"All\"",
        ]
    );
    // The outside is every address that no workload has: all except those of the two pods.
    let [v4, _] = addresses(&told["connections"], "web", "src", "dst");
    assert_eq!(size(&v4, 32), (1 << 32) - 2);
}

#[test]
fn nothing_allowed_and_nobody_there_are_told_apart() {
    let denied = policy("policyTypes: [Ingress, Egress]");
    let all = denied.clone() + "---\n" + &denied.replace("namespace: shop", "namespace: other");
    let world = World::of(&[("a.yaml", PODS), ("p.yaml", &all)]);
    let ran = world.run("connections", "");
    let own_node = "Besides, every workload is reachable from its own node, whatever policies say (host-to-endpoint: \
                    allow).\n";
    let expected = format!("no connection is allowed\n\n{own_node}");
    assert_eq!((ran.code, ran.out), (0, expected));
    let answer = world.json("connections", "");
    assert_eq!(
        (&answer["connections"], &answer["openToOwnNode"]),
        (&json!([]), &json!(true))
    );
    let judged = "--host-to-endpoint policy";
    let ran = world.run("connections", judged);
    assert_eq!((ran.code, &*ran.out), (0, "no connection is allowed\n"));
    assert_eq!(world.json("connections", judged)["openToOwnNode"], false);
    let ran = World::of(&[]).run("connections", "");
    assert_eq!((ran.code, &*ran.out), (0, "no workloads\n"));
}

#[test]
fn ports_names_ranges_and_protocols() {
    let spec = "ingress: [{from: [{namespaceSelector: {}}], ports: [{port: http}, \
                {port: 80, endPort: 82}, {port: 53, protocol: UDP}, {protocol: SCTP}]}]";
    let world = World::of(&[("a.yaml", PODS), ("p.yaml", &policy(spec))]);
    let told = world.json("connections", "");
    let inward = told["connections"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["dst"]["name"] == "web")
        .collect::<Vec<_>>();
    assert_eq!(
        inward,
        [&json!({
            "src": {"namespace": "other", "name": "guest", "kind": "Pod"},
            "dst": {"namespace": "shop", "name": "web", "kind": "Pod"},
            "connections": [
                {"protocol": "TCP", "ports": [[80, 82], [8080, 8080]]},
                {"protocol": "UDP", "ports": [[53, 53]]},
                {"protocol": "SCTP", "ports": [[0, 65535]]},
            ],
        })]
    );
    let text = world.run("connections", "").out;
    assert!(text.contains("TCP 80-82,8080; UDP 53; SCTP"), "{text}");
}

#[test]
fn networks_with_exceptions_in_both_families() {
    let spec = "ingress: [{from: [\
                {ipBlock: {cidr: 10.1.0.0/16, except: [10.1.128.0/17]}}, \
                {ipBlock: {cidr: 'fd00:1::/64', except: ['fd00:1::2/128']}}]}]";
    let world = World::of(&[("a.yaml", PODS), ("p.yaml", &policy(spec))]);
    let told = world.json("connections", "");
    let [v4, v6] = addresses(&told["connections"], "web", "dst", "src");
    // Without the two pods in 10.1.0.0/17, and without fd00:1::1 and fd00:1::2.
    assert_eq!(size(&v4, 32), (1 << 15) - 2);
    assert_eq!(size(&v6, 128), (1 << 64) - 2);
    let between: Vec<String> = lines(&told["connections"])
        .into_iter()
        .filter(|line| line.contains("guest.Pod > shop/web"))
        .collect();
    assert_eq!(between, ["other/guest.Pod > shop/web.Pod: IPv4 \"All\""]);
    let text = world.run("connections", "").out;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|c| !c.is_empty())
                .collect()
        })
        .collect();
    assert!(
        rows.contains(&vec![
            "outside 10.1.0.0/17, fd00:1::/64",
            "shop/web (Pod)",
            "-",
            "all"
        ]),
        "{text}"
    );
    assert!(
        rows.contains(&vec!["other/guest (Pod)", "shop/web (Pod)", "IPv4", "all"]),
        "{text}"
    );
    // The connections that the change denies, as readable text.
    let before = World::of(&[("a.yaml", PODS)]);
    let ran = run(&["diff", "-f", before.path(), "-f", world.path()]);
    assert_eq!(ran.code, 1);
    let closed = "outside 0.0.0.0/0 except 10.1.0.0/17, ::/0 except fd00:1::/64";
    assert!(ran.out.contains(closed), "{}", ran.out);
}

#[test]
fn a_network_never_matches_a_workload_whose_address_is_unknown() {
    let unknown = PODS.replace(
        "status: {phase: Running, podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}, {ip: \"fd00:1::2\"}]}",
        "",
    );
    assert_ne!(unknown, PODS);
    let spec = "ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}, {ipBlock: {cidr: '::/0'}}]}]";
    for (pods, expected) in [(PODS, 1), (&*unknown, 0)] {
        let world = World::of(&[("a.yaml", pods), ("p.yaml", &policy(spec))]);
        let listed = listed(&world);
        let between = listed.iter().filter(|l| l.contains("guest.Pod > shop/web"));
        assert_eq!(between.count(), expected, "{listed:?}");
        assert!(listed.contains(&"outside/4 > shop/web.Pod: \"All\"".to_owned()));
    }
}

const TEMPLATES: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
  spec:
    selector: {matchLabels: {app: web}}
    template: &template
      metadata: {labels: {app: web}}
      spec: {containers: [{name: c, image: i}]}
- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop}, spec: {selector: {}, template: *template}}
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: logs, namespace: shop}, spec: {selector: {}, template: *template}}
- {apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: shop}, spec: {template: *template}}
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: nightly, namespace: shop}
  spec: {schedule: "0 0 * * *", jobTemplate: {spec: {template: *template}}}
"#;

fn pod(name: &str, owner: (&str, &str), labels: Value, address: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "labels": labels, "uid": "0-1", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": "0-2",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

fn pod_list(pods: &[Value]) -> String {
    // Items of a typed list have no kind.
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": pods})
        .to_string()
}

#[test]
fn templates_are_workloads() {
    let world = World::of(&[("all.yaml", TEMPLATES)]);
    assert_eq!(
        workloads(&world),
        [
            "CronJob nightly",
            "DaemonSet logs",
            "Deployment web",
            "Job once",
            "StatefulSet db"
        ]
    );
    let own = listed(&world);
    assert!(
        !own.iter()
            .any(|l| l.starts_with("shop/web.Deployment > shop/web.")),
        "{own:?}"
    );
}

#[test]
fn pods_of_one_owner_are_one_workload_and_its_template_is_not_listed_again() {
    let hash = json!({"app": "web", "pod-template-hash": "5d4f8c7b9"});
    let list = pod_list(&[
        pod(
            "web-5d4f8c7b9-a",
            ("ReplicaSet", "web-5d4f8c7b9"),
            hash.clone(),
            "10.1.0.1",
        ),
        pod(
            "web-5d4f8c7b9-b",
            ("ReplicaSet", "web-5d4f8c7b9"),
            hash,
            "10.1.0.2",
        ),
        pod(
            "db-0",
            ("StatefulSet", "db"),
            json!({"app": "web"}),
            "10.1.0.3",
        ),
        pod("etcd-n1", ("Node", "n1"), json!({"app": "web"}), "10.1.0.4"),
        pod(
            "proxy-n1",
            ("Node", "n1"),
            json!({"app": "web"}),
            "10.1.0.5",
        ),
    ]);
    let world = World::of(&[("all.yaml", TEMPLATES), ("pods.json", &list)]);
    assert_eq!(
        workloads(&world),
        [
            "CronJob nightly",
            "DaemonSet logs",
            "Job once",
            "Pod etcd-n1",
            "Pod proxy-n1",
            "ReplicaSet web-5d4f8c7b9",
            "StatefulSet db",
        ]
    );
}

#[test]
fn pods_of_one_owner_that_differ_are_listed_by_themselves() {
    let owner = ("ReplicaSet", "web");
    let list = pod_list(&[
        pod("web-a", owner, json!({"app": "web"}), "10.1.0.1"),
        pod(
            "web-b",
            owner,
            json!({"app": "web", "canary": "yes"}),
            "10.1.0.2",
        ),
    ]);
    let allow = policy("ingress: [{from: [{podSelector: {matchLabels: {canary: 'yes'}}}]}]");
    let world = World::of(&[("pods.json", &list)]);
    assert_eq!(workloads(&world), ["ReplicaSet web"]);
    let world = World::of(&[("pods.json", &list), ("p.yaml", &allow)]);
    assert_eq!(workloads(&world), ["Pod web-a", "Pod web-b"]);
}

#[test]
fn pods_that_ran_to_their_end_are_not_there() {
    let mut done = pod("once-1", ("Job", "once"), json!({}), "10.1.0.9");
    done["status"]["phase"] = json!("Succeeded");
    let list = pod_list(&[
        done,
        pod("db-0", ("StatefulSet", "db"), json!({}), "10.1.0.3"),
    ]);
    assert_eq!(
        workloads(&World::of(&[("pods.json", &list)])),
        ["StatefulSet db"]
    );
}

#[test]
fn a_diff_says_what_opens_what_closes_and_who_comes_and_goes() {
    let closed = World::of(&[("a.yaml", PODS), ("p.yaml", &policy("ingress: []"))]);
    let spec = "ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 80}]}]";
    let open = World::of(&[("a.yaml", PODS), ("p.yaml", &policy(spec))]);
    let diff = |old: &World, new: &World, format: &str| {
        run(&["diff", "-f", old.path(), "-f", new.path(), "-o", format])
    };
    let change = json!([{
        "src": {"namespace": "other", "name": "guest", "kind": "Pod"},
        "dst": {"namespace": "shop", "name": "web", "kind": "Pod"},
        "connections": [{"protocol": "TCP", "ports": [[80, 80]]}],
    }]);
    for (old, new, side, other) in [
        (&closed, &open, "opened", "closed"),
        (&open, &closed, "closed", "opened"),
    ] {
        let ran = diff(old, new, "json");
        assert_eq!((ran.code, &*ran.err), (1, ""));
        let told = ran.json();
        assert_eq!((&told[side], &told[other]), (&change, &json!([])));
    }
    assert_eq!(
        diff(&closed, &open, "text").out,
        "Opened:\nFROM               TO              FAMILY  CONNECTIONS\n\
         other/guest (Pod)  shop/web (Pod)  -       TCP 80\n"
    );
    let same = diff(&open, &open, "text");
    assert_eq!(
        (same.code, &*same.out),
        (0, "no difference in allowed connections\n")
    );
    let empty = World::of(&[]);
    let told = diff(&empty, &closed, "json").json();
    let guest = json!({"namespace": "other", "name": "guest", "kind": "Pod"});
    let web = json!({"namespace": "shop", "name": "web", "kind": "Pod"});
    assert_eq!(
        (&told["appeared"], &told["vanished"]),
        (&json!([guest, web]), &json!([]))
    );
    // No difference, but one of the inputs has errors.
    let broken = World::of(&[("a.yaml", PODS), ("b.yaml", "kind: [")]);
    let fine = World::of(&[("a.yaml", PODS)]);
    let ran = diff(&fine, &broken, "text");
    assert_eq!(
        (ran.code, &*ran.out),
        (1, "no difference in allowed connections\n")
    );
    assert!(ran.err.contains("b.yaml:1:"), "{}", ran.err);
}

/// JSON of few pods lists pairs, with a filter as without one.
#[test]
fn a_filter_of_json_selects_of_the_pairs() {
    let pod = |namespace: &str, name: &str, address: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             status: {{podIP: {address}}}\n"
        )
    };
    let pods =
        pod("shop", "a", "10.0.0.1") + &pod("shop", "b", "10.0.0.2") + &pod("x", "c", "10.0.0.3");
    let world = World::of(&[("pods.yaml", &pods)]);
    let rows = |arguments: &str| -> Vec<Value> {
        let list = world.json("connections", arguments);
        list["connections"].as_array().unwrap().clone()
    };
    let all = rows("");
    assert!(
        all.len() > 6 + 6,
        "six pairs of pods, and each from and to every prefix outside"
    );
    for (arguments, selects) in [
        ("--from shop/a", &|row: &Value| row["src"]["name"] == "a"),
        ("--to shop/b", &|row: &Value| row["dst"]["name"] == "b"),
        ("--from shop/a --to x/c", &|row: &Value| {
            row["src"]["name"] == "a" && row["dst"]["name"] == "c"
        }),
        ("--namespace shop", &|row: &Value| {
            row["src"]["namespace"] == "shop" || row["dst"]["namespace"] == "shop"
        }),
    ] as [(&str, &dyn Fn(&Value) -> bool); 4]
    {
        let expected: Vec<Value> = all.iter().filter(|row| selects(row)).cloned().collect();
        assert!(
            !expected.is_empty() && expected.len() < all.len(),
            "{arguments}"
        );
        assert_eq!(rows(arguments), expected, "{arguments}");
    }
    let members = rows("--members --namespace shop");
    assert!(
        members.len() < rows("--namespace shop").len(),
        "groups: {members:?}"
    );
}

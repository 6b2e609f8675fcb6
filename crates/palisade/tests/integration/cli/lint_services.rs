//! `palisade lint`: ports and cluster IPs of Services where policy sees those of pods; and no finding where a pod may
//! listen on the Service's port.

use super::World;

/// `web` listens on 8080 behind port 80 of its Service, `db` behind a name; `both` behind two Services.
const SHOP: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}},
 spec: {containers: [{name: c, ports: [{containerPort: 8080}]}]}, status: {podIP: 10.0.0.1}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: db, namespace: shop},
 spec: {template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, ports: [{name: sql, containerPort: 5432}]}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: plain, namespace: shop, labels: {app: plain}}, status: {podIP: 10.0.0.3}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop},
 spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, 'fd00:96::a'], selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: db, namespace: shop},
 spec: {selector: {app: db}, ports: [{port: 3306, targetPort: sql}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: kubernetes, namespace: default},
 spec: {clusterIP: 10.96.0.1, ports: [{port: 443, targetPort: 6443}]}}
";

/// A policy of pods with these labels, and the further lines of its spec.
fn policy(app: &str, rules: &str) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: p, namespace: shop}},\n \
         spec: {{podSelector: {{matchLabels: {{app: {app}}}}}, {rules}}}}}"
    )
}

/// The findings about Services: the code, the message and what to try.
fn findings(objects: &str, policy: &str) -> Vec<String> {
    let world = World::of(&[("shop.yaml", objects), ("p.yaml", policy)]);
    let json = world.json("lint", "");
    let all = json["findings"].as_array().unwrap().iter();
    let text = |of: &serde_json::Value, key: &str| of[key].as_str().unwrap_or("-").to_owned();
    let of_services = all.filter(|of| {
        let code = text(of, "code");
        ["ServicePort", "ClusterIpPeer"].contains(&&*code)
    });
    of_services
        .map(|of| {
            format!(
                "{}: {} / {}",
                text(of, "code"),
                text(of, "message"),
                text(of, "suggestion")
            )
        })
        .collect()
}

const WEB_PORT: &str = "ServicePort: 80/TCP is the port of Service shop/web, and its pods listen on 8080: policy is \
                        evaluated after the translation, so this port matches nothing that is sent to the Service / \
                        write 8080 in place of 80";

#[test]
fn a_service_port_where_the_target_port_is_meant() {
    let found = |rules: &str, app: &str| findings(SHOP, &policy(app, rules));
    let ingress = "ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]";
    assert_eq!(found(ingress, "web"), [WEB_PORT]);
    let egress = "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]";
    assert_eq!(found(egress, "plain"), [WEB_PORT]);
    // Each port of a rule is looked at, not the first alone.
    let second = SHOP.replace(
        "ports: [{port: 80, targetPort: 8080}]",
        "ports: [{name: a, port: 80, targetPort: 8080}, {name: b, port: 443, targetPort: 8443}]",
    );
    let both = policy("web", "ingress: [{ports: [{port: 80}, {port: 443}]}]");
    let messages = findings(&second, &both);
    assert_eq!(messages.len(), 2, "{messages:?}");
    // A named target is that of each pod.
    assert_eq!(
        found("ingress: [{ports: [{port: 3306}]}]", "db"),
        [WEB_PORT
            .replace("80/TCP", "3306/TCP")
            .replace("shop/web", "shop/db")
            .replace("8080", "5432")
            .replace("of 80", "of 3306")]
    );
}

#[test]
fn no_finding_where_a_pod_may_listen_on_the_port() {
    let is_clean = |objects: &str, app: &str, rules: &str| {
        let found = findings(objects, &policy(app, rules));
        assert_eq!(found, [""; 0], "{rules}");
    };
    for rules in [
        // The target port, also beside the Service's, in the same rule or in another with the same peers.
        "ingress: [{ports: [{port: 8080}]}]",
        "ingress: [{ports: [{port: 80}, {port: 8080}]}]",
        "ingress: [{ports: [{port: 80}]}, {ports: [{port: 8000, endPort: 9000}]}]",
        "ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}, {from: [{podSelector: {}}]}]",
        // Another protocol, a range, no port.
        "ingress: [{ports: [{port: 80, protocol: UDP}]}]",
        "ingress: [{ports: [{port: 80, endPort: 90}]}]",
        "ingress: [{}]",
        // To anybody, to addresses: the receivers are not known.
        "policyTypes: [Egress], egress: [{ports: [{port: 80}]}]",
        "policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}]",
        // One of the receivers is behind no such Service.
        "policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}]",
    ] {
        is_clean(SHOP, "web", rules);
    }
    let port_80 = "ingress: [{ports: [{port: 80}]}]";
    is_clean(SHOP, "plain", port_80);
    // The pod declares the port as well, with a name or without; a sidecar does.
    for (from, to) in [
        (
            "ports: [{containerPort: 8080}]",
            "ports: [{containerPort: 8080}, {containerPort: 80}]",
        ),
        (
            "ports: [{containerPort: 8080}]",
            "ports: [{containerPort: 80, name: http}]",
        ),
        (
            "spec: {containers: [{name: c,",
            "spec: {initContainers: [{name: s, restartPolicy: Always, ports: [{containerPort: 80}]}], containers: [{name: c,",
        ),
        // A headless Service translates nothing; a second Service leads to 80 itself; targetPort is the port.
        (
            "clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, 'fd00:96::a']",
            "clusterIP: None",
        ),
        (
            "ports: [{port: 80, targetPort: 8080}]",
            "ports: [{port: 80, targetPort: 8080}, {name: b, port: 81, targetPort: 80}]",
        ),
        (
            "ports: [{port: 80, targetPort: 8080}]",
            "ports: [{port: 80}]",
        ),
        // The Service selects other pods, or is of another namespace.
        ("selector: {app: web}", "selector: {app: other}"),
        (
            "{name: web, namespace: shop}, spec: {clusterIP",
            "{name: web, namespace: b}, spec: {clusterIP",
        ),
    ] {
        let objects = SHOP
            .replace("\n spec: {cluster", " spec: {cluster")
            .replacen(from, to, 1);
        assert_ne!(
            objects,
            SHOP.replace("\n spec: {cluster", " spec: {cluster"),
            "{from}"
        );
        is_clean(&objects, "web", port_80);
    }
    // One declares it and one does not: of ten pods one may be in the middle of a rollout.
    let second = format!(
        "{SHOP}---\n{{apiVersion: v1, kind: Pod, metadata: {{name: web-2, namespace: shop, labels: {{app: web}}}},\n \
         spec: {{containers: [{{name: c, ports: [{{containerPort: 80}}]}}]}}, status: {{podIP: 10.0.0.4}}}}"
    );
    is_clean(&second, "web", port_80);
}

#[test]
fn a_cluster_ip_as_a_peer() {
    let web = "ClusterIpPeer: 10.96.0.10 is the cluster IP of Service shop/web: policy is evaluated after its translation \
               to a pod, so no packet has this address / select the pods behind the Service: app=web in namespace shop";
    let egress = |cidr: &str| {
        format!("policyTypes: [Egress], egress: [{{to: [{{ipBlock: {{cidr: '{cidr}'}}}}]}}]")
    };
    let found = |rules: &str| findings(SHOP, &policy("plain", rules));
    assert_eq!(found(&egress("10.96.0.10/32")), [web]);
    assert_eq!(
        found(&egress("fd00:96::a/128")),
        [web.replace("10.96.0.10", "fd00:96::a")]
    );
    assert_eq!(
        found("ingress: [{from: [{ipBlock: {cidr: 10.96.0.10/32}}]}]"),
        [web]
    );
    let api = found(&egress("10.96.0.1/32"));
    assert!(api[0].ends_with(
        "/ write the addresses of its endpoints: kubectl -n default get endpointslices -l \
         kubernetes.io/service-name=kubernetes"
    ));
    for cidr in ["10.96.0.0/12", "10.96.0.11/32", "10.0.0.1/32"] {
        assert_eq!(found(&egress(cidr)), [""; 0], "{cidr}");
    }
    // In the other dialects.
    let cilium = "{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p, namespace: shop},\n \
                  spec: {endpointSelector: {}, egressDeny: [{toCIDR: [10.96.0.10/32]}]}}";
    assert_eq!(findings(SHOP, cilium), [web]);
    let calico = |extra: &str| {
        format!(
            "{{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {{name: p}},\n \
             spec: {{selector: all(), {extra} [{{action: Deny, destination: {{nets: [10.96.0.10/32]}}}}]}}}}"
        )
    };
    assert_eq!(findings(SHOP, &calico("types: [Egress], egress:")), [web]);
    // Before translation a packet has it.
    let early = calico("preDNAT: true, applyOnForward: true, types: [Ingress], ingress:");
    assert_eq!(findings(SHOP, &early), [""; 0]);
}

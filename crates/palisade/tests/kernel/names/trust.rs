//! Whose answers are believed, and dialects whose queries are only observed.

use super::{KINDS, NamedShop, PORT, addresses_of, dnsmasq, servers};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::need_root;

#[test]
fn a_server_that_may_not_teach_opens_nothing() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-trust", &dnsmasq());
    named.shop.agent.terminate();
    named
        .shop
        .agent
        .more(&["--dns-servers", "cluster,node,192.0.2.200"]);
    named.shop.agent.start(&named.shop.lab);
    named.wait_for_proxy();
    let [wanted, _] = addresses_of(3);
    let answer = named.lookup("n3.example.com", servers()[0], RecordType::A);
    assert_eq!(
        answer,
        Some((ResponseCode::NoError, vec![wanted])),
        "it is answered"
    );
    assert!(!named.connects(wanted), "and opens nothing");
    let status = named.shop.agent.wait("the untrusted server", |status| {
        !status["names"]["untrustedServers"].is_null()
    });
    assert_eq!(status["names"]["addresses"], 0, "{status:#}");
    // A rule for every address names no server either.
    named.shop.agent.terminate();
    named.shop.agent.more(&["--dns-servers", "policy"]);
    named.shop.agent.write(
        "names.yaml",
        &format!(
            "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: shop}}\nspec:\n  \
             endpointSelector: {{matchLabels: {{app: web}}}}\n  egress:\n  - toCIDR: [0.0.0.0/0]\n    toPorts:\n    \
             - ports: [{{port: '53', protocol: ANY}}]\n      rules: {{dns: [{{matchPattern: '*'}}]}}\n  \
             - toFQDNs: [{{matchPattern: '*'}}]\n    toPorts: [{{ports: [{{port: '{PORT}', protocol: TCP}}]}}]\n"
        ),
    );
    named.shop.agent.start(&named.shop.lab);
    named.wait_for_proxy();
    let answer = named.lookup("n3.example.com", servers()[0], RecordType::A);
    assert_eq!(answer, Some((ResponseCode::NoError, vec![wanted])));
    assert!(
        !named.connects(wanted),
        "its own resolver opens nothing for a workload"
    );
}

/// Policies of the dialects that have no rules of DNS names: their workloads' queries are observed.
const OBSERVING: [(&str, &str); 2] = [
    (
        "policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy",
        "metadata: {name: names}\nspec:\n  tier: Admin\n  priority: 1\n  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}\n  \
         egress:\n  - action: Accept\n    to: [{domainNames: ['NAME', '*.example.org']}]\n  \
         - action: Accept\n    to: [{networks: [DNS]}]\n  - action: Deny\n    to: [{networks: [0.0.0.0/0, '::/0']}]\n",
    ),
    (
        "projectcalico.org/v3, kind: NetworkPolicy",
        "metadata: {name: names, namespace: shop}\nspec:\n  selector: app == 'web'\n  types: [Egress]\n  egress:\n  \
         - {action: Allow, protocol: UDP, destination: {nets: [DNS], ports: [53]}}\n  \
         - {action: Allow, protocol: TCP, destination: {domains: ['NAME', '*.example.org'], ports: [8080]}}\n",
    ),
];

#[test]
fn names_of_dialects_without_dns_rules_are_observed() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-seen", &dnsmasq());
    named.shop.agent.terminate();
    let [v4, v6] = servers();
    named
        .shop
        .agent
        .more(&["--dns-servers", &format!("{v4},{v6}")]);
    named.shop.agent.start(&named.shop.lab);
    named.wait_for_proxy();
    // Each has a name of its own, so that none has what another has taught.
    for (number, (kind, text)) in (1..).step_by(5).zip(OBSERVING) {
        let name_of = |i: usize| format!("n{i}.example.com");
        let text = text.replace("DNS", &format!("{v4}/32, '{v6}/128'"));
        let text = text.replace("NAME", &name_of(number));
        let kind = kind.replace(", ", "\n");
        let text = format!("apiVersion: {kind}\n{text}");
        named.shop.agent.apply("names.yaml", &text);
        for (family, query_kind) in KINDS.into_iter().enumerate() {
            let lookup = |i| named.lookup(&name_of(i), servers()[family], query_kind);
            let answer = |i: usize| Some((ResponseCode::NoError, vec![addresses_of(i)[family]]));
            let connects = |i: usize| named.connects(addresses_of(i)[family]);
            assert!(!connects(number), "{kind}: before it is asked for");
            assert_eq!(lookup(number), answer(number), "{kind}");
            assert!(connects(number), "{kind}: the first packet");
            // Every name may be asked for, and one that no rule has opens nothing.
            assert_eq!(lookup(number + 1), answer(number + 1), "{kind}");
            assert!(!connects(number + 1), "{kind}");
        }
    }
}

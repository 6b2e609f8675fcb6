//! What is refused because of other policies or objects, and what stays as it is.

use crate::manifests::{Input, assert_same_connections};
use crate::scenarios::CLUSTER;
use palisade_convert::TargetDialect;

fn reasons(input: &Input, target: TargetDialect) -> Vec<String> {
    let converted = input.convert(target, |_| true);
    let lines = converted.inexpressible.iter();
    lines
        .map(|of| format!("{}: {}", of.policy, of.reason))
        .collect()
}

const ADMIN: &str = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: a}\nspec: \
    {priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}\n";

#[test]
fn a_priority_that_another_policy_has_is_refused_where_order_matters() {
    let other = |name: &str, action: &str| {
        format!(
            "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {{name: {name}}}\n\
             spec: {{priority: 5, subject: {{namespaces: {{}}}}, ingress: [{{action: {action}, from: [{{namespaces: {{}}}}]}}]}}\n"
        )
    };
    for target in [TargetDialect::ClusterNetworkPolicy, TargetDialect::Calico] {
        let allows = other("b", "Allow");
        let input = Input::of(&[("c", CLUSTER), ("a", ADMIN), ("b", &allows)]);
        let expected = [
            "AdminNetworkPolicy a: AdminNetworkPolicy b has the same priority, and which of the two comes first is \
             decided by their kinds and names",
            "AdminNetworkPolicy b: AdminNetworkPolicy a has the same priority, and which of the two comes first is \
             decided by their kinds and names",
        ];
        assert_eq!(reasons(&input, target), expected);
        let denies = other("b", "Deny");
        let input = Input::of(&[("c", CLUSTER), ("a", ADMIN), ("b", &denies)]);
        let converted = input.convert(target, |id| &*id.name == "b");
        assert_eq!(
            (converted.objects.len(), converted.inexpressible.len()),
            (1, 0)
        );
        let after = input.replaced(&converted.objects);
        assert_same_connections(&input.state, &after, "two that deny");
    }
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let there = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: a}\nspec: \
        {tier: Admin, priority: 6, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}\n";
    let input = Input::of(&[("c", CLUSTER), ("a", ADMIN), ("b", there)]);
    assert_eq!(
        reasons(&input, TargetDialect::ClusterNetworkPolicy),
        [
            "AdminNetworkPolicy a: the input already has ClusterNetworkPolicy a, and two policies of one name cannot both \
          be applied"
        ]
    );
}

#[test]
fn what_is_of_the_dialect_already_stays_as_it_is() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop, uid: u, \
        labels: {a: b}, managedFields: []}\nspec: {podSelector: {}, ingress: [{ports: [{port: 1}]}]}\nstatus: {}\n";
    let input = Input::of(&[("c", CLUSTER), ("p", text)]);
    let converted = input.convert(TargetDialect::Kubernetes, |_| true);
    assert_eq!(
        converted.objects[0].object.to_string(),
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"shop","labels":{"a":"b"}},"spec":{"podSelector":{},"ingress":[{"ports":[{"port":1}]}]}}"#
    );
}

#[test]
fn what_has_errors_or_selects_nodes_is_refused() {
    let broken = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec: \
        {podSelector: {}, policyTypes: [Both]}\n";
    let nodes = "apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: hosts}\nspec: \
        {nodeSelector: {}, ingress: [{fromEntities: [all]}]}\n";
    let input = Input::of(&[("c", CLUSTER), ("p", broken), ("n", nodes)]);
    assert_eq!(
        reasons(&input, TargetDialect::Calico),
        [
            "CiliumClusterwideNetworkPolicy hosts: a policy of Calico cannot select nodes here",
            "NetworkPolicy shop/p: the policy has errors, so what it says is not known",
        ]
    );
}

/// Kubernetes to Cilium and back is the policy of the beginning.
#[test]
fn there_and_back() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec: \
        {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: \
        {matchLabels: {app: db}}}, {namespaceSelector: {}}], ports: [{port: 80, protocol: TCP}]}], egress: []}\n";
    let input = Input::of(&[("c", CLUSTER), ("p", text)]);
    let there = input.convert(TargetDialect::Cilium, |_| true);
    let cilium = there.objects[0].object.to_string();
    let back =
        Input::of(&[("c", CLUSTER), ("p", &cilium)]).convert(TargetDialect::Kubernetes, |_| true);
    let original = input.convert(TargetDialect::Kubernetes, |_| true);
    assert_eq!(
        back.objects[0].object["spec"],
        original.objects[0].object["spec"]
    );
}

/// A policy of Calico with one rule.
fn calico(name: &str, order: &str, action: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop, uid: u}}\n\
         spec: {{order: {order}, types: [Ingress], ingress: [{{action: {action}, protocol: TCP}}]}}\n"
    )
}

#[test]
fn an_order_of_calico_that_another_policy_has_is_refused_where_order_matters() {
    let a = calico("a", "1000", "Allow");
    for target in [TargetDialect::Kubernetes, TargetDialect::Cilium] {
        for (other, is_written) in [
            (calico("b", "1000", "Deny"), false),
            (calico("b", "1000", "Allow"), true),
            (calico("b", "999", "Deny"), true),
            (calico("b", "1000.0000000000001", "Deny"), false),
            (calico("b", "1000.0000000000002", "Deny"), true),
        ] {
            let input = Input::of(&[("c", CLUSTER), ("a", &a), ("b", &other)]);
            let converted = input.convert(target, |id| &*id.name == "a");
            assert_eq!(!converted.objects.is_empty(), is_written, "{other}");
            let after = input.replaced(&converted.objects);
            assert_same_connections(&input.state, &after, &other);
        }
    }
    // A NetworkPolicy gets the order directly after 1000, where the other one stands.
    let text = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec: \
        {podSelector: {}, ingress: [{}]}\n";
    let other = calico("b", "1000.0000000000001", "Deny");
    let input = Input::of(&[("c", CLUSTER), ("p", text), ("b", &other)]);
    let converted = input.convert(TargetDialect::Calico, |id| &*id.name == "p");
    assert_eq!(
        (converted.objects.len(), converted.inexpressible.len()),
        (0, 1)
    );
}

#[test]
fn policies_of_calico_stay_as_they_are_for_calico() {
    let text = calico("a", "7", "Log");
    let input = Input::of(&[("c", CLUSTER), ("a", &text)]);
    let converted = input.convert(TargetDialect::Calico, |_| true);
    assert_eq!(
        converted.objects[0].object.to_string(),
        r#"{"apiVersion":"projectcalico.org/v3","kind":"NetworkPolicy","metadata":{"name":"a","namespace":"shop"},"spec":{"order":7,"types":["Ingress"],"ingress":[{"action":"Log","protocol":"TCP"}]}}"#
    );
}

/// A staged policy and an enforced one of one name would be one NetworkPolicy.
#[test]
fn a_staged_policy_and_an_enforced_one_of_one_name_are_not_both_written() {
    let enforced = calico("a", "1000", "Allow");
    let staged = enforced.replace("kind: NetworkPolicy", "kind: StagedNetworkPolicy");
    let input = Input::of(&[("c", CLUSTER), ("a", &enforced), ("s", &staged)]);
    let converted = input.convert(TargetDialect::Kubernetes, |_| true);
    assert_eq!(
        (converted.objects.len(), converted.inexpressible.len()),
        (1, 1)
    );
    let after = input.replaced(&converted.objects);
    assert_same_connections(&input.state, &after, "staged");
}

/// What a rule about a Service means depends on the EndpointSlices that there are: it is never written as those of now.
#[test]
fn a_rule_about_a_service_is_read_as_written() {
    let text = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec: \
        {order: 1000, types: [Egress], egress: [{action: Allow, destination: {services: {name: absent}}}]}\n";
    let input = Input::of(&[("c", CLUSTER), ("p", text)]);
    for target in [TargetDialect::Kubernetes, TargetDialect::Cilium] {
        let reasons = reasons(&input, target);
        assert_eq!(reasons.len(), 1);
        assert!(
            reasons[0].contains("the endpoints of Services"),
            "{reasons:?}"
        );
    }
}

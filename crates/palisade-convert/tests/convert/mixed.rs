//! What is refused because of other policies or objects, and what stays as it is.

use crate::manifests::{Input, assert_same_connections};
use crate::scenarios::CLUSTER;
use palisade_convert::TargetDialect;

fn reasons(input: &Input, target: TargetDialect) -> Vec<String> {
    let converted = input.convert(target, |_| true);
    let lines = converted.unsayable.iter();
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
        assert_eq!((converted.objects.len(), converted.unsayable.len()), (1, 0));
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
fn what_has_errors_or_enforces_nothing_is_refused() {
    let broken = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec: \
        {podSelector: {}, policyTypes: [Both]}\n";
    let nodes = "apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: hosts}\nspec: \
        {nodeSelector: {}, ingress: [{fromEntities: [all]}]}\n";
    let input = Input::of(&[("c", CLUSTER), ("p", broken), ("n", nodes)]);
    assert_eq!(
        reasons(&input, TargetDialect::Calico),
        [
            "CiliumClusterwideNetworkPolicy hosts: it enforces nothing here, so there is nothing to write",
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

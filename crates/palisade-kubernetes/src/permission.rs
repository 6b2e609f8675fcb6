//! What the agent may do at the API server: the rules of its roles, made from the lists of what it reads and of
//! what it writes.
//!
//! The chart's files `cluster-role-rules.yaml` and `role-rules.yaml` are compared with this module by a test;
//! `make docs` writes them. Promises: least rights; what is not in a list here is not granted. Never: secrets,
//! wildcards, or a right to change an object that Palisade does not write.

use crate::feedback_kind::FEEDBACK;
use crate::resource::RESOURCES;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where a permission holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionScope {
    /// In the whole cluster.
    Cluster,
    /// In the namespace that the agent runs in.
    OwnNamespace,
}

/// The right to do something to the objects of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Where.
    pub scope: PermissionScope,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, or its subresource: `pods`, `clusternetworkpolicies/status`.
    pub resource: &'static str,
    /// What may be done, in the words of the API.
    pub verbs: &'static [&'static str],
}

/// What is needed to follow a resource.
const FOLLOW: &[&str] = &["list", "watch"];

/// What the agent writes besides conditions. One row for each resource, with the verbs that are really used.
pub const WRITTEN: [Permission; 3] = [
    Permission {
        scope: PermissionScope::Cluster,
        group: "palisade.dev",
        resource: "nodepolicystatuses",
        verbs: &["get", "create", "patch"],
    },
    Permission {
        scope: PermissionScope::Cluster,
        group: "",
        resource: "events",
        verbs: &["create"],
    },
    Permission {
        scope: PermissionScope::OwnNamespace,
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "create", "update"],
    },
];

/// Every permission that the agent needs.
#[must_use]
pub fn permissions() -> Vec<Permission> {
    let read = RESOURCES.iter().map(|resource| Permission {
        scope: PermissionScope::Cluster,
        group: resource.group,
        resource: resource.plural,
        verbs: FOLLOW,
    });
    // Server-side apply of an object that exists is a patch.
    let conditions = FEEDBACK.iter().filter_map(|kind| {
        Some(Permission {
            scope: PermissionScope::Cluster,
            group: kind.resource.group,
            resource: kind.condition?.subresource,
            verbs: &["patch"],
        })
    });
    read.chain(WRITTEN).chain(conditions).collect()
}

/// The permissions of a scope as rules of a role, in YAML; resources of a group with the same verbs are one rule.
#[must_use]
pub fn role_rules(permissions: &[Permission], scope: PermissionScope) -> String {
    let mut resources_by_rule: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for permission in permissions.iter().filter(|p| p.scope == scope) {
        let rule = (permission.group, permission.verbs.to_vec());
        let resources = resources_by_rule.entry(rule).or_default();
        resources.push(permission.resource);
    }
    let mut yaml = String::new();
    for ((group, verbs), mut resources) in resources_by_rule {
        resources.sort_unstable();
        resources.dedup();
        let group = if group.is_empty() { "\"\"" } else { group };
        // Writing to a String cannot fail.
        let _ = writeln!(
            yaml,
            "- apiGroups: [{group}]\n  resources: [{}]\n  verbs: [{}]",
            resources.join(", "),
            verbs.join(", ")
        );
    }
    if yaml.is_empty() {
        "[]\n".to_owned()
    } else {
        yaml
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "make docs writes the rules through this test"
    )]
    fn the_documents_of_the_chart_are_the_permissions() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/palisade/files");
        for (name, scope) in [
            ("cluster-role-rules.yaml", PermissionScope::Cluster),
            ("role-rules.yaml", PermissionScope::OwnNamespace),
        ] {
            let (path, made) = (folder.join(name), role_rules(&permissions(), scope));
            if std::env::var_os("PALISADE_BLESS").is_some() {
                std::fs::write(&path, &made).unwrap();
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                found == made,
                "{} differs: run `make docs` and read the difference",
                path.display()
            );
        }
    }

    #[test]
    fn nothing_is_granted_that_is_not_listed() {
        let permissions = permissions();
        assert!(permissions.len() >= RESOURCES.len());
        for permission in &permissions {
            assert_ne!(permission.resource, "secrets");
            let words = [&[permission.group, permission.resource], permission.verbs].concat();
            assert!(!words.contains(&"*"), "{permission:?}");
        }
        let pods = permissions.iter().filter(|p| p.resource == "pods");
        let verbs: Vec<_> = pods.flat_map(|p| p.verbs).copied().collect();
        assert_eq!(verbs, ["list", "watch"]);
    }

    #[test]
    fn rules_are_grouped_by_scope_group_and_verbs() {
        let row = |scope, group, resource, verbs| Permission {
            scope,
            group,
            resource,
            verbs,
        };
        use PermissionScope::{Cluster, OwnNamespace};
        let rows = [
            row(Cluster, "", "pods", FOLLOW),
            row(Cluster, "", "events", &["create", "patch"]),
            row(Cluster, "", "nodes", FOLLOW),
            row(OwnNamespace, "coordination.k8s.io", "leases", &["get"]),
        ];
        let cluster = "\
- apiGroups: [\"\"]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [\"\"]
  resources: [nodes, pods]
  verbs: [list, watch]
";
        let own = "\
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get]
";
        assert_eq!(role_rules(&rows, Cluster), cluster);
        assert_eq!(role_rules(&rows, OwnNamespace), own);
        assert_eq!(role_rules(&[], Cluster), "[]\n");
    }
}

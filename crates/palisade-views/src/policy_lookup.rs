//! Finds the policy that a user names: `KIND/NAMESPACE/NAME`, `KIND/NAME`, `NAMESPACE/NAME` or `NAME`.
//!
//! Promises: a name that may mean several policies is an error that lists them, each by a name that means no other; one
//! that means none has a suggestion; and a short name that two APIs have is never guessed.

use palisade_api::ObjectRef;
use palisade_dialects::{KindWord, nearest, policy_kind_word, policy_kinds};
use palisade_model::ObjectId;

/// The maximum number of policies that an error lists.
const MAX_LISTED: usize = 10;

/// Why a name means no policy.
#[derive(Debug, PartialEq, Eq)]
pub enum PolicyLookupError {
    /// No policy has this name.
    NotFound(String),
    /// Several have it, or the kind may be one of several.
    Ambiguous(String),
}

/// The policy that `segments` name, among these.
///
/// # Errors
/// If they mean none or several.
pub fn find_policy<'a>(
    segments: &[&str],
    policies: &'a [ObjectId],
) -> Result<&'a ObjectId, PolicyLookupError> {
    let (kind, namespace, name) = match segments {
        [name] => (None, None, *name),
        [first, name] => match kind_word(first, policies) {
            KindWord::Kind(kind) => {
                // A namespace may have the name of a kind, and a policy of that kind may be in it.
                let is_meant = |id: &&ObjectId| {
                    &*id.name == *name
                        && (is_kind(id, &kind) || id.namespace.as_deref() == Some(*first))
                };
                let found = policies.iter().filter(is_meant).collect();
                return only(found, policies, || {
                    not_found(Some(&kind), None, name, policies)
                });
            }
            KindWord::Ambiguous(reason) => {
                let in_namespace = matching(policies, None, Some(first), name);
                if in_namespace.is_empty() {
                    return Err(ambiguous_word(first, reason));
                }
                (None, Some(*first), *name)
            }
            KindWord::Unknown(_) => (None, Some(*first), *name),
        },
        [kind, namespace, name] => match kind_word(kind, policies) {
            KindWord::Kind(kind) => (Some(kind), Some(*namespace), *name),
            KindWord::Ambiguous(reason) => return Err(ambiguous_word(kind, reason)),
            KindWord::Unknown(_) => return Err(unknown_kind(kind, policies)),
        },
        _ => {
            return Err(PolicyLookupError::NotFound(
                "a policy is named KIND/NAMESPACE/NAME, KIND/NAME, NAMESPACE/NAME or NAME"
                    .to_owned(),
            ));
        }
    };
    let found = matching(policies, kind.as_deref(), namespace, name);
    only(found, policies, || {
        not_found(kind.as_deref(), namespace, name, policies)
    })
}

fn only<'a>(
    found: Vec<&'a ObjectId>,
    policies: &[ObjectId],
    none: impl FnOnce() -> PolicyLookupError,
) -> Result<&'a ObjectId, PolicyLookupError> {
    match found[..] {
        [only] => Ok(only),
        [] => Err(none()),
        [..] => Err(PolicyLookupError::Ambiguous(format!(
            "several policies have this name: {}",
            list(&found, policies)
        ))),
    }
}

/// The policies of a name, of this kind and namespace if they are given.
fn matching<'a>(
    policies: &'a [ObjectId],
    kind: Option<&str>,
    namespace: Option<&str>,
    name: &str,
) -> Vec<&'a ObjectId> {
    let is_of_kind = |id: &ObjectId| kind.is_none_or(|kind| is_kind(id, kind));
    let is_in =
        |id: &ObjectId| namespace.is_none_or(|wanted| id.namespace.as_deref() == Some(wanted));
    let all = policies.iter();
    all.filter(|id| &*id.name == name && is_in(id) && is_of_kind(id))
        .collect()
}

/// Whether a policy is of a kind, with or without its group.
fn is_kind(id: &ObjectId, kind: &str) -> bool {
    let lower = id.kind.name().to_lowercase();
    lower == kind
        || kind
            .strip_prefix(&lower)
            .and_then(|rest| rest.strip_prefix('.'))
            == Some(id.kind.group())
}

/// What a word for a kind means; also a kind that no dialect reads, if there are policies of it.
fn kind_word(word: &str, policies: &[ObjectId]) -> KindWord {
    match policy_kind_word(word) {
        KindWord::Unknown(word) if policies.iter().any(|id| is_kind(id, &word)) => {
            KindWord::Kind(word)
        }
        meaning => meaning,
    }
}

fn ambiguous_word(word: &str, reason: &str) -> PolicyLookupError {
    PolicyLookupError::Ambiguous(format!("{word} is ambiguous: {reason}"))
}

fn unknown_kind(word: &str, policies: &[ObjectId]) -> PolicyLookupError {
    let lower = word.to_lowercase();
    let known = policy_kinds().map(|kind| kind.kind.to_lowercase());
    let mut known: Vec<String> = known.collect();
    known.extend(policies.iter().map(|id| id.kind.name().to_lowercase()));
    known.sort();
    known.dedup();
    let words: Vec<&str> = known.iter().map(String::as_str).collect();
    PolicyLookupError::NotFound(match nearest(&lower, &words) {
        Some(near) => format!("{word} is not a kind of policy; did you mean {near}?"),
        None => format!("{word} is not a kind of policy: use {}", words.join(", ")),
    })
}

fn not_found(
    kind: Option<&str>,
    namespace: Option<&str>,
    name: &str,
    policies: &[ObjectId],
) -> PolicyLookupError {
    let parts = [kind, namespace, Some(name)];
    let wanted: Vec<&str> = parts.into_iter().flatten().collect();
    let wanted = wanted.join("/");
    // The same name elsewhere comes before a similar one here.
    let elsewhere = matching(policies, kind, None, name);
    let elsewhere = if elsewhere.is_empty() {
        matching(policies, None, None, name)
    } else {
        elsewhere
    };
    if !elsewhere.is_empty() {
        let hint = list(&elsewhere, policies);
        return PolicyLookupError::NotFound(format!(
            "there is no policy {wanted}; did you mean {hint}?"
        ));
    }
    let is_here = |id: &&ObjectId| {
        kind.is_none_or(|kind| is_kind(id, kind))
            && namespace.is_none_or(|wanted| id.namespace.as_deref() == Some(wanted))
    };
    let here: Vec<&ObjectId> = policies.iter().filter(is_here).collect();
    let names: Vec<&str> = here.iter().map(|id| &*id.name).collect();
    let near = nearest(name, &names);
    if let Some(near) = near {
        let near: Vec<&ObjectId> = here.into_iter().filter(|id| &*id.name == near).collect();
        let near = list(&near, policies);
        return PolicyLookupError::NotFound(format!(
            "there is no policy {wanted}; did you mean {near}?"
        ));
    }
    // The first word may have been to be a kind.
    let kinds: Vec<String> = policy_kinds()
        .map(|kind| kind.kind.to_lowercase())
        .collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let slip = namespace.filter(|_| kind.is_none());
    match slip.and_then(|word| nearest(&word.to_lowercase(), &kinds)) {
        Some(near) => PolicyLookupError::NotFound(format!(
            "there is no policy {wanted}; did you mean {near}/{name}?"
        )),
        None => PolicyLookupError::NotFound(format!("there is no policy {wanted}")),
    }
}

/// The name of a policy that means no other.
fn path_name(id: &ObjectId, policies: &[ObjectId]) -> String {
    let name = ObjectRef::new(id, None).path_name();
    let kind = id.kind.name().to_lowercase();
    let is_same = |other: &ObjectId| {
        (other.kind.name(), &other.namespace, &other.name)
            == (id.kind.name(), &id.namespace, &id.name)
    };
    let is_shared = policies.iter().filter(|other| is_same(other)).count() > 1;
    match name.strip_prefix(&format!("{kind}/")) {
        Some(rest) if is_shared => format!("{kind}.{}/{rest}", id.kind.group()),
        _ => name,
    }
}

/// The first policies of a list, and the number of the others.
fn list(listed: &[&ObjectId], policies: &[ObjectId]) -> String {
    let mut names: Vec<String> = listed.iter().map(|id| path_name(id, policies)).collect();
    names.sort();
    let more = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::ObjectKind;

    const POLICY_API: &str = "policy.networking.k8s.io";
    const CALICO: &str = "projectcalico.org";

    fn id(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> ObjectId {
        ObjectId {
            namespace: namespace.map(Into::into),
            name: name.into(),
            kind: ObjectKind::new(group, kind),
        }
    }

    fn policies() -> Vec<ObjectId> {
        let np = |namespace, name| id("networking.k8s.io", "NetworkPolicy", Some(namespace), name);
        vec![
            np("shop", "web"),
            np("shop", "db"),
            np("bank", "web"),
            np("bank", "default"),
            np("anp", "odd"),
            np("netpol", "own"),
            id(POLICY_API, "AdminNetworkPolicy", None, "deny-metrics"),
            id(POLICY_API, "AdminNetworkPolicy", None, "web"),
            id(POLICY_API, "ClusterNetworkPolicy", None, "deny-metrics"),
            id(POLICY_API, "BaselineAdminNetworkPolicy", None, "default"),
            id("cilium.io", "CiliumNetworkPolicy", Some("shop"), "web"),
            id("cilium.io", "CiliumClusterwideNetworkPolicy", None, "host"),
            id(CALICO, "NetworkPolicy", Some("shop"), "db"),
            id(CALICO, "NetworkPolicy", Some("shop"), "cache"),
            id(CALICO, "GlobalNetworkPolicy", None, "web"),
            id(CALICO, "StagedNetworkPolicy", Some("shop"), "cache"),
        ]
    }

    fn find(text: &str) -> String {
        let policies = policies();
        let segments: Vec<&str> = text.split('/').collect();
        match find_policy(&segments, &policies) {
            Ok(id) => path_name(id, &policies),
            Err(PolicyLookupError::NotFound(message)) => format!("none: {message}"),
            Err(PolicyLookupError::Ambiguous(message)) => format!("several: {message}"),
        }
    }

    #[test]
    fn full_and_short_names() {
        for (text, found) in [
            ("networkpolicy/shop/web", "networkpolicy/shop/web"),
            ("NetworkPolicy/shop/web", "networkpolicy/shop/web"),
            ("networkpolicies/shop/web", "networkpolicy/shop/web"),
            ("netpol/shop/web", "networkpolicy/shop/web"),
            // Two kinds have the name NetworkPolicy: what no other policy is called needs no group.
            (
                "networkpolicies.networking.k8s.io/shop/db",
                "networkpolicy.networking.k8s.io/shop/db",
            ),
            ("netpol/shop/db", "networkpolicy.networking.k8s.io/shop/db"),
            ("netpol/db", "networkpolicy.networking.k8s.io/shop/db"),
            (
                "networkpolicy.projectcalico.org/shop/db",
                "networkpolicy.projectcalico.org/shop/db",
            ),
            (
                "networkpolicies.projectcalico.org/db",
                "networkpolicy.projectcalico.org/shop/db",
            ),
            (
                "NetworkPolicies.crd.projectcalico.org/shop/db",
                "networkpolicy.projectcalico.org/shop/db",
            ),
            (
                "caliconetworkpolicy/shop/db",
                "networkpolicy.projectcalico.org/shop/db",
            ),
            (
                "networkpolicy/shop/cache",
                "networkpolicy.projectcalico.org/shop/cache",
            ),
            (
                "stagednetworkpolicies/cache",
                "stagednetworkpolicy/shop/cache",
            ),
            ("globalnetworkpolicy/web", "globalnetworkpolicy/web"),
            ("globalnetworkpolicies/web", "globalnetworkpolicy/web"),
            ("gnp/web", "globalnetworkpolicy/web"),
            (
                "globalnetworkpolicies.crd.projectcalico.org/web",
                "globalnetworkpolicy/web",
            ),
            ("bank/web", "networkpolicy/bank/web"),
            ("anp/deny-metrics", "adminnetworkpolicy/deny-metrics"),
            (
                "adminnetworkpolicy/deny-metrics",
                "adminnetworkpolicy/deny-metrics",
            ),
            (
                "clusternetworkpolicies/deny-metrics",
                "clusternetworkpolicy/deny-metrics",
            ),
            ("banp/default", "baselineadminnetworkpolicy/default"),
            (
                "ciliumnetworkpolicy/shop/web",
                "ciliumnetworkpolicy/shop/web",
            ),
            ("ciliumnetworkpolicies/web", "ciliumnetworkpolicy/shop/web"),
            ("ciliumnp/shop/web", "ciliumnetworkpolicy/shop/web"),
            (
                "ciliumnetworkpolicies.cilium.io/web",
                "ciliumnetworkpolicy/shop/web",
            ),
            ("ccnp/host", "ciliumclusterwidenetworkpolicy/host"),
            ("netpol/default", "networkpolicy/bank/default"),
            ("odd", "networkpolicy/anp/odd"),
            // A namespace may have the name of a kind.
            ("anp/odd", "networkpolicy/anp/odd"),
            ("netpol/own", "networkpolicy/netpol/own"),
        ] {
            assert_eq!(find(text), found, "{text}");
        }
    }

    #[test]
    fn what_means_several_lists_them() {
        for (text, message) in [
            (
                "shop/web",
                "several policies have this name: ciliumnetworkpolicy/shop/web, networkpolicy/shop/web",
            ),
            (
                "deny-metrics",
                "several policies have this name: adminnetworkpolicy/deny-metrics, clusternetworkpolicy/deny-metrics",
            ),
            (
                "netpol/web",
                "several policies have this name: networkpolicy/bank/web, networkpolicy/shop/web",
            ),
            (
                "default",
                "several policies have this name: baselineadminnetworkpolicy/default, networkpolicy/bank/default",
            ),
            (
                "networkpolicy/shop/db",
                "several policies have this name: networkpolicy.networking.k8s.io/shop/db, networkpolicy.projectcalico.org/shop/db",
            ),
            (
                "networkpolicies/db",
                "several policies have this name: networkpolicy.networking.k8s.io/shop/db, networkpolicy.projectcalico.org/shop/db",
            ),
            (
                "shop/db",
                "several policies have this name: networkpolicy.networking.k8s.io/shop/db, networkpolicy.projectcalico.org/shop/db",
            ),
            (
                "cache",
                "several policies have this name: networkpolicy.projectcalico.org/shop/cache, stagednetworkpolicy/shop/cache",
            ),
        ] {
            assert_eq!(find(text), format!("several: {message}"), "{text}");
        }
        for text in ["cnp/shop/web", "cnp/deny-metrics", "CNP/x"] {
            let found = find(text);
            assert!(found.starts_with("several: "), "{found}");
            assert!(
                found.contains("is ambiguous: it is Cilium's short name"),
                "{found}"
            );
        }
    }

    #[test]
    fn what_means_none_has_a_suggestion() {
        for (text, message) in [
            (
                "networkpolcy/shop/web",
                "networkpolcy is not a kind of policy; did you mean networkpolicy?",
            ),
            (
                "shop/wbe",
                "there is no policy shop/wbe; did you mean ciliumnetworkpolicy/shop/web, networkpolicy/shop/web?",
            ),
            (
                "shp/db",
                "there is no policy shp/db; did you mean networkpolicy.networking.k8s.io/shop/db, networkpolicy.projectcalico.org/shop/db?",
            ),
            (
                "netpol/shop/default",
                "there is no policy networkpolicy.networking.k8s.io/shop/default; did you mean networkpolicy/bank/default?",
            ),
            (
                "netpol/bank/db",
                "there is no policy networkpolicy.networking.k8s.io/bank/db; did you mean networkpolicy.networking.k8s.io/shop/db?",
            ),
            (
                "gnp/wbe",
                "there is no policy globalnetworkpolicy/wbe; did you mean globalnetworkpolicy/web?",
            ),
            (
                "globalnetworkpolcy/shop/web",
                "globalnetworkpolcy is not a kind of policy; did you mean globalnetworkpolicy?",
            ),
            (
                "anp/deny-metric",
                "there is no policy adminnetworkpolicy/deny-metric; did you mean adminnetworkpolicy/deny-metrics?",
            ),
            (
                "anp/shop/web",
                "there is no policy adminnetworkpolicy/shop/web; did you mean adminnetworkpolicy/web?",
            ),
            ("nothing-like-it", "there is no policy nothing-like-it"),
            (
                "adminnetworkpolcy/zzz",
                "there is no policy adminnetworkpolcy/zzz; did you mean adminnetworkpolicy/zzz?",
            ),
            ("", "there is no policy "),
            ("/", "there is no policy /"),
            (
                "a/b/c/d",
                "a policy is named KIND/NAMESPACE/NAME, KIND/NAME, NAMESPACE/NAME or NAME",
            ),
        ] {
            assert_eq!(find(text), format!("none: {message}"), "{text}");
        }
        let unknown = find("pod/shop/web");
        assert!(
            unknown.starts_with("none: pod is not a kind of policy: use adminnetworkpolicy, "),
            "{unknown}"
        );
    }
}

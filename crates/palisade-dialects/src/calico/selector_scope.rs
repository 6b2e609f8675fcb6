//! What the labels of Calico's selectors are: those of the object itself, of its namespace, of its service account,
//! and the few that Calico makes.
//!
//! Promises: a selector of a peer matches what Calico knows, workloads, host endpoints and its own network sets, and
//! nothing that another dialect refers to. Never: reads a field.

use super::selector::{CalicoSelector, LabelOperator};
use crate::faults::DialectFault;
use crate::label_selector::workload_selector;
use palisade_model::{LabelKey, Selector, Str, reserved};

/// The prefix of the labels of an object's namespace. Source: Calico, "Profile".
const NAMESPACE_PREFIX: &str = "pcns.";
/// The prefix of the labels of an endpoint's service account.
const ACCOUNT_PREFIX: &str = "pcsa.";
/// The label with the name of a namespace or a service account, among its own.
const NAME: &str = "projectcalico.org/name";
/// The label with the name of the object's namespace.
pub(super) const NAMESPACE: &str = "projectcalico.org/namespace";
/// The label with the name of the endpoint's service account.
const ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// The label with what runs the workload.
pub const ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
/// Its value on pods.
const KUBERNETES: &str = "k8s";

/// The labels that a selector tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectorScope {
    /// Those of the object.
    Object,
    /// Those of its namespace: `namespaceSelector` of a rule.
    Namespace,
    /// The same of a policy, which is then for workloads: each is in a namespace.
    NamespaceOfSubject,
    /// Those of its service account: `serviceAccountSelector` and `serviceAccounts.selector`.
    ServiceAccount,
}

impl SelectorScope {
    /// Whether `global()` has a meaning.
    pub(super) fn has_global(self) -> bool {
        self == SelectorScope::Namespace
    }

    fn is_of_namespace(self) -> bool {
        matches!(
            self,
            SelectorScope::Namespace | SelectorScope::NamespaceOfSubject
        )
    }

    /// The test of the model that a selector is.
    pub(super) fn lower(self, selector: &CalicoSelector) -> Selector {
        match selector {
            CalicoSelector::All if self.is_of_namespace() => has_namespace(),
            CalicoSelector::All => Selector::all(),
            CalicoSelector::Global => Selector::negate(has_namespace()),
            CalicoSelector::Label(name, operator) => self.lower_label(name, operator),
            CalicoSelector::Not(inner) => Selector::negate(self.lower(inner)),
            CalicoSelector::And(parts) => Selector::and(parts.iter().map(|part| self.lower(part))),
            CalicoSelector::Or(parts) => Selector::or(parts.iter().map(|part| self.lower(part))),
        }
    }

    fn lower_label(self, name: &Str, operator: &LabelOperator) -> Selector {
        let key = self.key(name);
        match operator {
            LabelOperator::Has => test(key, Selector::has, |_| true),
            LabelOperator::Equals(value) => equals(key, value),
            LabelOperator::NotEquals(value) => negative(self.key(name), equals(key, value)),
            LabelOperator::In(values) => is_in(key, values),
            LabelOperator::NotIn(values) => negative(self.key(name), is_in(key, values)),
            LabelOperator::Contains(text) => test(
                key,
                |key| Selector::Contains(key, text.clone()),
                |value| value.contains(&**text),
            ),
            LabelOperator::StartsWith(text) => test(
                key,
                |key| Selector::StartsWith(key, text.clone()),
                |value| value.starts_with(&**text),
            ),
            LabelOperator::EndsWith(text) => test(
                key,
                |key| Selector::EndsWith(key, text.clone()),
                |value| value.ends_with(&**text),
            ),
        }
    }

    fn key(self, name: &Str) -> ScopedKey {
        let namespace = |name: &str| match name {
            NAME => LabelKey::reserved(reserved::NAMESPACE),
            name => LabelKey::namespace(name),
        };
        let account = |name: &str| match name {
            NAME => LabelKey::reserved(reserved::SERVICE_ACCOUNT),
            name => LabelKey::service_account(name),
        };
        if self.is_of_namespace() {
            return ScopedKey::Key(namespace(name));
        }
        if self == SelectorScope::ServiceAccount {
            return ScopedKey::Key(account(name));
        }
        if let Some(name) = name.strip_prefix(NAMESPACE_PREFIX) {
            return ScopedKey::Key(namespace(name));
        }
        if let Some(name) = name.strip_prefix(ACCOUNT_PREFIX) {
            return ScopedKey::Key(account(name));
        }
        match &**name {
            NAMESPACE => ScopedKey::Key(LabelKey::reserved(reserved::NAMESPACE)),
            ACCOUNT => ScopedKey::Key(LabelKey::reserved(reserved::SERVICE_ACCOUNT)),
            ORCHESTRATOR => ScopedKey::Orchestrator,
            _ => ScopedKey::Key(LabelKey::own(name.clone())),
        }
    }
}

/// A label, as the model has it.
enum ScopedKey {
    /// A label of its own.
    Key(LabelKey),
    /// What runs the workload: a label of WorkloadEndpoints; pods have it without it being stored.
    Orchestrator,
}

/// A positive test of a label; `holds` is the same test of a value.
fn test(
    key: ScopedKey,
    of_key: impl FnOnce(LabelKey) -> Selector,
    holds: impl FnOnce(&str) -> bool,
) -> Selector {
    match key {
        ScopedKey::Key(key) => of_key(key),
        ScopedKey::Orchestrator => {
            let key = LabelKey::own(ORCHESTRATOR);
            let is_stored = Selector::has(key.clone());
            let of_pods = if holds(KUBERNETES) {
                Selector::and([workload_selector(), Selector::negate(is_stored)])
            } else {
                Selector::none()
            };
            Selector::or([of_key(key), of_pods])
        }
    }
}

fn equals(key: ScopedKey, value: &Str) -> Selector {
    test(
        key,
        |key| Selector::equals(key, value.clone()),
        |other| other == &**value,
    )
}

fn is_in(key: ScopedKey, values: &[Str]) -> Selector {
    test(
        key,
        |key| Selector::is_in(key, values.iter().cloned()),
        |other| values.iter().any(|value| **value == *other),
    )
}

/// A negative test: it holds without the label as well.
fn negative(key: ScopedKey, positive: Selector) -> Selector {
    let is_not = Selector::negate(positive);
    match key {
        ScopedKey::Key(key) if DialectFault::NotEqualsNeedsLabel.is_injected() => {
            Selector::and([Selector::has(key), is_not])
        }
        _ => is_not,
    }
}

fn has_namespace() -> Selector {
    Selector::has(LabelKey::reserved(reserved::NAMESPACE))
}

/// What a selector of a peer can match: workloads, host endpoints, network sets of Calico.
#[must_use]
pub fn calico_holders() -> Selector {
    let kinds = [
        reserved::KIND_WORKLOAD,
        reserved::KIND_HOST,
        reserved::KIND_HOST_ENDPOINT,
        reserved::KIND_NETWORK_SET,
    ];
    Selector::is_in(
        LabelKey::reserved(reserved::KIND),
        kinds.into_iter().map(Into::into),
    )
}

/// What a policy of the cluster can select: workloads and host endpoints.
pub(super) fn calico_endpoints() -> Selector {
    let kinds = [reserved::KIND_WORKLOAD, reserved::KIND_HOST];
    Selector::is_in(
        LabelKey::reserved(reserved::KIND),
        kinds.into_iter().map(Into::into),
    )
}

/// What a policy of an early stage can select: host endpoints.
pub(super) fn host_endpoints() -> Selector {
    Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_HOST)
}

/// What is in a namespace.
pub(super) fn in_namespace(name: &Str) -> Selector {
    Selector::equals(LabelKey::reserved(reserved::NAMESPACE), name.clone())
}

/// What runs under one of these service accounts.
pub(super) fn with_accounts(names: Vec<Str>) -> Selector {
    Selector::is_in(LabelKey::reserved(reserved::SERVICE_ACCOUNT), names)
}

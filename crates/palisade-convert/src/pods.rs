//! What a selector of the model says of pods: tests of their labels, of their namespace and of its labels, and of
//! their service account.
//!
//! Promises: a selector that can match anything but pods and other workloads is never read as one of pods. The label
//! `kubernetes.io/metadata.name` of a namespace is the namespace's name, in every cluster.

use crate::inexpressible::InexpressibleReason;
use crate::target::TargetDialect;
use palisade_dialects::ORCHESTRATOR;
use palisade_model::{LabelKey, LabelScope, Namespace, Policy, Selector, Str, reserved};

/// A test of the value of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ValueTest {
    /// It is one of these.
    In(Vec<Str>),
    /// It is none of these, or there is none.
    NotIn(Vec<Str>),
    /// There is one.
    Exists,
    /// There is none.
    DoesNotExist,
}

impl ValueTest {
    /// Whether it never holds where the label is absent.
    pub(crate) fn is_positive(&self) -> bool {
        matches!(self, ValueTest::In(_) | ValueTest::Exists)
    }
}

/// A test of one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyTest {
    /// Its key.
    pub(crate) key: Str,
    /// The test of its value.
    pub(crate) test: ValueTest,
}

/// Pods that pass all of some tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodSelection {
    /// Tests of the pods' own labels.
    pub(crate) pods: Vec<KeyTest>,
    /// Tests of the labels of their namespace, but for its name.
    pub(crate) namespaces: Vec<KeyTest>,
    /// Tests of the name of their namespace.
    pub(crate) namespace_names: Vec<ValueTest>,
    /// Tests of the name of their service account.
    pub(crate) service_accounts: Vec<ValueTest>,
}

/// Why a selector is none of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoPodSelection {
    /// It matches nothing.
    Nothing,
    /// It matches, or may match, more than pods.
    NotOnlyPods,
    /// It matches nodes.
    Nodes,
    /// One of its tests is no conjunction of tests of single labels.
    Test(Selector),
}

impl NoPodSelection {
    /// Why a subject cannot be written in a dialect.
    pub(crate) fn inexpressible(self, target: TargetDialect) -> InexpressibleReason {
        match self {
            NoPodSelection::Nothing => InexpressibleReason::SubjectSelectsNothing,
            NoPodSelection::NotOnlyPods => {
                InexpressibleReason::NotOnlyPods("the subject".to_owned())
            }
            NoPodSelection::Nodes => InexpressibleReason::Nodes(target),
            NoPodSelection::Test(test) => inexpressible_test(&test, target),
        }
    }
}

/// Why a test of labels cannot be written in a dialect.
pub(crate) fn inexpressible_test(test: &Selector, target: TargetDialect) -> InexpressibleReason {
    let mut is_of_orchestrator = false;
    test.for_each_key(&mut |key| is_of_orchestrator |= *key == LabelKey::own(ORCHESTRATOR));
    if is_of_orchestrator {
        InexpressibleReason::Orchestrator(target)
    } else {
        InexpressibleReason::SelectorTest {
            target,
            test: test.to_string(),
        }
    }
}

impl PodSelection {
    /// What a selector says of pods.
    pub(crate) fn read(selector: &Selector) -> Result<Self, NoPodSelection> {
        if *selector == Selector::none() {
            return Err(NoPodSelection::Nothing);
        }
        let mut selection = PodSelection::default();
        let mut is_of_pods = false;
        if conjuncts(selector).contains(&Policy::node_subject()) {
            return Err(NoPodSelection::Nodes);
        }
        for part in conjuncts(selector) {
            if *part == workloads() {
                is_of_pods = true;
                continue;
            }
            if *part == workloads_and_hosts() {
                return Err(NoPodSelection::NotOnlyPods);
            }
            let (key, test) = key_test(part).ok_or_else(|| NoPodSelection::Test(part.clone()))?;
            selection.add(key, test, part)?;
        }
        if is_of_pods {
            Ok(selection)
        } else {
            Err(NoPodSelection::NotOnlyPods)
        }
    }

    fn add(
        &mut self,
        key: &LabelKey,
        test: ValueTest,
        part: &Selector,
    ) -> Result<(), NoPodSelection> {
        let of_key = |test| KeyTest {
            key: key.name.clone(),
            test,
        };
        match (key.scope, &*key.name) {
            (LabelScope::Own, _) => self.pods.push(of_key(test)),
            (LabelScope::Namespace, Namespace::NAME_LABEL)
            | (LabelScope::Reserved, reserved::NAMESPACE) => match test {
                // Every workload has a namespace.
                ValueTest::Exists => {}
                ValueTest::DoesNotExist => return Err(NoPodSelection::Nothing),
                test => self.namespace_names.push(test),
            },
            (LabelScope::Namespace, _) => self.namespaces.push(of_key(test)),
            (LabelScope::Reserved, reserved::SERVICE_ACCOUNT) => self.service_accounts.push(test),
            _ => return Err(NoPodSelection::Test(part.clone())),
        }
        Ok(())
    }

    /// The only namespace of the pods, if the selection names it.
    pub(crate) fn only_namespace(&self) -> Option<&Str> {
        self.namespace_names.iter().find_map(|test| match test {
            ValueTest::In(values) => match &values[..] {
                [only] => Some(only),
                _ => None,
            },
            _ => None,
        })
    }

    /// The selection without its test that the namespace is this one.
    pub(crate) fn inside_namespace(mut self, name: &Str) -> Self {
        let own = ValueTest::In(vec![name.clone()]);
        self.namespace_names.retain(|test| *test != own);
        self
    }

    /// All tests of the namespace, with its name as the label that every namespace has.
    pub(crate) fn namespace_tests(&self) -> Vec<KeyTest> {
        let names = self.namespace_names.iter().map(|test| KeyTest {
            key: Namespace::NAME_LABEL.into(),
            test: test.clone(),
        });
        names.chain(self.namespaces.iter().cloned()).collect()
    }
}

/// The parts of a conjunction.
pub(crate) fn conjuncts(selector: &Selector) -> &[Selector] {
    match selector {
        Selector::And(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

/// The test of workloads.
pub(crate) fn workloads() -> Selector {
    Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_WORKLOAD)
}

/// The test of what a cluster-wide policy of Calico can select.
pub(crate) fn workloads_and_hosts() -> Selector {
    let kinds = [reserved::KIND_WORKLOAD, reserved::KIND_HOST];
    Selector::is_in(
        LabelKey::reserved(reserved::KIND),
        kinds.into_iter().map(Into::into),
    )
}

/// A selector that tests one label.
pub(crate) fn key_test(selector: &Selector) -> Option<(&LabelKey, ValueTest)> {
    let listed = |values: &palisade_model::LabelValues| values.iter().cloned().collect();
    Some(match selector {
        Selector::In(key, values) => (key, ValueTest::In(listed(values))),
        Selector::Has(key) => (key, ValueTest::Exists),
        Selector::Not(inner) => match &**inner {
            Selector::In(key, values) => (key, ValueTest::NotIn(listed(values))),
            Selector::Has(key) => (key, ValueTest::DoesNotExist),
            _ => return None,
        },
        _ => return None,
    })
}

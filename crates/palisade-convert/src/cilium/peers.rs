//! The peers of rules of Cilium: pods by their labels.

use super::{NAMESPACE, TARGET, requirements};
use crate::inexpressible::InexpressibleReason;
use crate::kubernetes::inexpressible_peer;
use crate::label_selector::label_selector;
use crate::peer_form::PeerForm;
use crate::pods::{KeyTest, PodSelection, ValueTest};
use crate::refusals::{Refusals, RulePart};
use palisade_model::{Direction, Policy, Rule, Str};
use serde_json::Value;

/// A list of peers with its field; `None` for every address.
type PeerItems = Option<(String, Vec<Value>)>;

/// The lists of peers of a rule, one for each kind.
pub(super) fn write(
    place: (&Policy, Direction),
    rule: &Rule,
    namespace: Option<&Str>,
    refusals: &mut Refusals,
) -> Vec<PeerItems> {
    let direction = place.1;
    let word = match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    };
    let mut lists: Vec<PeerItems> = Vec::new();
    let mut listed = Vec::new();
    let forms = rule.peers.iter().map(PeerForm::of);
    for (index, form) in forms.enumerate() {
        match write_form(form, namespace) {
            Ok(None) => {}
            Ok(Some(FormItems::All)) => {
                if !lists.contains(&None) {
                    lists.push(None);
                }
            }
            Ok(Some(FormItems::Endpoints(item))) => listed.push(item),
            Err(reason) => refusals.of_rule(place, (rule, RulePart::Peer(index)), reason),
        }
    }
    if !listed.is_empty() {
        lists.push(Some((format!("{word}Endpoints"), listed)));
    }
    lists
}

/// What a form is written as.
enum FormItems {
    /// Every address.
    All,
    /// A selector of endpoints.
    Endpoints(Value),
}

/// The items of a form; `None` if it matches nothing. What only Cilium has words for is never to be written: policies
/// of Cilium stay as they are.
fn write_form(
    form: PeerForm,
    namespace: Option<&Str>,
) -> Result<Option<FormItems>, InexpressibleReason> {
    Ok(Some(match form {
        PeerForm::Any => FormItems::All,
        PeerForm::Nothing => return Ok(None),
        PeerForm::Pods(pods) => FormItems::Endpoints(endpoints(pods, namespace)?),
        PeerForm::Networks(nets) => match nets.first() {
            Some(net) => return Err(InexpressibleReason::NetworkMatchesPods(net.net)),
            None => return Ok(None),
        },
        other => return Err(inexpressible_peer(other, TARGET)),
    }))
}

/// A selector of pods. Without a test that only pods pass it would select nodes and the outside as well; and without a
/// test of the namespace, one of a namespaced policy is of the namespace of the policy.
fn endpoints(pods: PodSelection, namespace: Option<&Str>) -> Result<Value, InexpressibleReason> {
    let is_own = namespace.is_some_and(|name| pods.only_namespace() == Some(name));
    let pods = match namespace {
        Some(name) if is_own && pods.namespaces.is_empty() && pods.namespace_names.len() == 1 => {
            let pods = pods.inside_namespace(name);
            return Ok(label_selector(&requirements(&pods)?));
        }
        _ => pods,
    };
    let is_every_pod = pods.namespaces.is_empty() && pods.namespace_names.is_empty();
    let names = pods.namespace_names.iter();
    let mut of_namespaces = names.chain(pods.namespaces.iter().map(|test| &test.test));
    let has_positive = of_namespaces.any(ValueTest::is_positive);
    let mut tests = requirements(&pods)?;
    let gains_one = namespace.is_none() && is_every_pod;
    if !(has_positive || gains_one) {
        let any = KeyTest {
            key: NAMESPACE.into(),
            test: ValueTest::Exists,
        };
        tests.insert(0, any);
    }
    Ok(label_selector(&tests))
}

//! Tiers. Those that are built in cannot be changed.

use super::policy::order;
use crate::faults::DialectFault;
use crate::kind_reader::ManifestObject;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::{Object, Order, Tier, TierDefault, builtin_tiers};

const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const KNOWN_SPEC: &[&str] = &["order", "defaultAction"];
const MISPLACED: &[(&str, &str)] = &[
    ("order", "it belongs inside `spec`"),
    ("defaultAction", "it belongs inside `spec`"),
];

/// Lowers a tier. One that is built in becomes nothing: it must be as it is built in.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Vec<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    crate::metadata::check(root, report);
    let name = &object.id.name;
    let builtin = builtin_tiers().into_iter().find(|tier| tier.name == *name);
    let spec = report.object(root, "spec");
    let (mut written_order, mut default) = (None, None);
    if let Some(spec) = &spec {
        report.check_fields(spec, KNOWN_SPEC, &[]);
        written_order = order(spec, report).filter(|_| report_has(spec, "order"));
        default = default_action(spec, report);
    }
    if let Some(builtin) = builtin {
        let same_order = written_order.is_none_or(|order| order == builtin.order);
        let same_default = default.is_none_or(|default| default == builtin.default);
        if !same_order || !same_default {
            let at = spec.as_ref().unwrap_or(root);
            report.error(
                at,
                format!(
                    "the tier {name} is built in, and cannot have another order or defaultAction"
                ),
            );
        }
        let missing = match (written_order, default) {
            (None, _) => Some("order"),
            // Without it a tier denies.
            (_, None) if builtin.default != TierDefault::Deny => Some("defaultAction"),
            _ => None,
        };
        if let Some(missing) = missing {
            let at = spec.as_ref().unwrap_or(root);
            report.warn(
                at,
                format!(
                    "`{missing}` is missing: the tier {name} is as it is built in; Calico's API server refuses it with \
                     part of its spec"
                ),
            );
        }
        return Vec::new();
    }
    let default = default.filter(|_| !DialectFault::TierDefaultIgnored.is_injected());
    vec![Object::Tier(Tier {
        name: name.clone(),
        order: written_order.unwrap_or(Order::Last),
        default: default.unwrap_or(TierDefault::Deny),
    })]
}

fn report_has(spec: &Field<'_>, key: &str) -> bool {
    matches!(spec.get(key), Ok(Some(_)))
}

fn default_action(spec: &Field<'_>, report: &mut ObjectReport) -> Option<TierDefault> {
    let (text, at) = report.text(spec, "defaultAction")?;
    match text {
        "Deny" => Some(TierDefault::Deny),
        "Pass" => Some(TierDefault::Pass),
        other => {
            report.error(
                &at,
                format!("{} is not a default action: use Deny or Pass", quote(other)),
            );
            None
        }
    }
}

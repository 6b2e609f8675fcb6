//! Every row is true: a sample of it has the outcome that the row promises, and no row is without a sample.

use super::json_path;
use super::samples::{Sample, Samples, lower, qualified};
use palisade_dialects::{FieldSupport, LoweredObject, policy_kinds};
use palisade_model::{Direction, Object};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn every_row_has_a_sample_and_every_sample_a_row() {
    for kind in policy_kinds() {
        let rows = kind.rows().into_iter().map(|(path, _)| path);
        let rows: Vec<String> = rows.collect();
        let unique: BTreeSet<&String> = rows.iter().collect();
        assert_eq!(unique.len(), rows.len(), "{}: a row twice", kind.kind);
        let samples = Samples::of(kind);
        let sampled: BTreeSet<&String> = samples.rows.iter().map(|sample| &sample.row).collect();
        let without: Vec<_> = unique.difference(&sampled).collect();
        let stray: Vec<_> = sampled.difference(&unique).collect();
        assert!(
            without.is_empty(),
            "{}: without a sample: {without:?}",
            qualified(kind)
        );
        assert!(stray.is_empty(), "{}: without a row: {stray:?}", kind.kind);
    }
}

#[test]
fn every_row_has_the_outcome_that_it_promises() {
    let mut wrong = Vec::new();
    for kind in policy_kinds() {
        let samples = Samples::of(kind);
        let base = lower(&samples.base);
        assert_eq!(base.errors, [], "{}: the base", kind.kind);
        let rows = kind.rows();
        for sample in &samples.rows {
            let Some((_, row)) = rows.iter().find(|(path, _)| *path == sample.row) else {
                continue;
            };
            if let Err(reason) = check(sample, row.support, &samples.base, &base) {
                wrong.push(format!(
                    "{} {} ({:?}): {reason}",
                    qualified(kind),
                    sample.row,
                    row.support
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the rows say of `spec` is true of an item of `specs`.
#[test]
fn a_spec_in_a_list_is_as_one_that_is_not() {
    let mut count = 0;
    for kind in policy_kinds() {
        let Some(row) = kind.fields.iter().find(|row| row.name == "specs[]") else {
            continue;
        };
        assert_eq!(row.fields.len(), 0, "{}", kind.kind);
        let samples = Samples::of(kind);
        for sample in &samples.rows {
            for (object, _) in sample.objects(&samples.base) {
                let mut listed = object.clone();
                let Some(spec) = object.get("spec").filter(|_| object.get("specs").is_none())
                else {
                    continue;
                };
                let fields = listed.as_object_mut().unwrap();
                fields.shift_remove("spec");
                fields.insert("specs".to_owned(), Value::Array(vec![spec.clone()]));
                let (one, list) = (lower(&object), lower(&listed));
                let parts = |of: &LoweredObject, shift: u32| {
                    let parts = of.objects.iter().map(|object| match object {
                        Object::Policy(policy) => {
                            let mut policy = policy.clone();
                            policy.id.part += shift;
                            policy
                        }
                        other => panic!("{other:?}"),
                    });
                    parts.collect::<Vec<_>>()
                };
                assert_eq!(parts(&one, 3), parts(&list, 0), "{listed}");
                let fields = |of: &LoweredObject| {
                    let closed = of.closed.iter().map(|part| &part.problem);
                    let all = of.errors.iter().chain(closed).chain(&of.warnings);
                    let all = all.map(|problem| problem.field.replacen("specs[0]", "spec", 1));
                    all.collect::<Vec<_>>()
                };
                assert_eq!(fields(&one), fields(&list), "{listed}");
                count += 1;
            }
        }
    }
    assert!(count > 1_000, "{count}");
}

/// What an object is lowered to, without the fingerprints of its rules, which are of everything that is written.
fn decisions(lowered: &LoweredObject) -> Vec<Object> {
    let mut objects = lowered.objects.clone();
    for object in &mut objects {
        let Object::Policy(policy) = object else {
            continue;
        };
        for direction in Direction::BOTH {
            let rules = match direction {
                Direction::Ingress => &mut policy.ingress,
                Direction::Egress => &mut policy.egress,
            };
            for rule in rules.iter_mut().flat_map(|rules| &mut rules.rules) {
                rule.origin.fingerprint = 0;
            }
        }
    }
    objects
}

/// Whether a sample shows what its row promises.
fn check(
    sample: &Sample,
    support: FieldSupport,
    base: &Value,
    of_base: &LoweredObject,
) -> Result<(), String> {
    let objects = sample.objects(base);
    let row = json_path::parse(&sample.row.trim_end_matches("[]").replace('*', "zzz"));
    let has_row = |object: &Value| {
        let mut places = json_path::places(object, &row).into_iter();
        places.any(|place| json_path::get(object, &place).is_some())
    };
    if !objects.iter().any(|(object, _)| has_row(object)) {
        return Err("no value of the sample has the field".to_owned());
    }
    let lowered: Vec<LoweredObject> = objects.iter().map(|(object, _)| lower(object)).collect();
    let place = json_path::print(&objects[0].1);
    match support {
        FieldSupport::Enforced | FieldSupport::NoEffect => {
            let [first, second] = &lowered[..] else {
                return Err("two values are needed".to_owned());
            };
            if !first.errors.is_empty() {
                return Err(format!("the first is refused: {:?}", first.errors));
            }
            let is_changed = (&first.id, decisions(first)) != (&second.id, decisions(second));
            match support {
                FieldSupport::Enforced if !is_changed => Err("it changes nothing".to_owned()),
                // A field with one value only: any other is refused at its path.
                FieldSupport::Enforced => match second.errors.first() {
                    Some(error) if !error.field.starts_with(&place) => {
                        Err(format!("the second is refused elsewhere: {error}"))
                    }
                    _ => Ok(()),
                },
                _ if is_changed => Err("it changes the policy".to_owned()),
                _ => Ok(()),
            }
        }
        FieldSupport::HeldClosed(reason) => {
            let [lowered] = &lowered[..] else {
                return Err("one value is needed".to_owned());
            };
            let closed = |of: &LoweredObject| {
                let parts = of.closed.iter();
                let here = parts.filter(|part| part.problem.field.starts_with(&place));
                here.filter(|part| part.reason == reason).count()
            };
            match (lowered.errors.first(), closed(lowered), closed(of_base)) {
                (Some(error), ..) => Err(format!("refused: {error}")),
                (None, 0, _) => Err(format!("no part is held closed: {:?}", lowered.closed)),
                (None, 1.., 0) if lowered.objects == of_base.objects => {
                    Err("it is as open as without".to_owned())
                }
                _ => Ok(()),
            }
        }
        FieldSupport::Refused => {
            let [lowered] = &lowered[..] else {
                return Err("one value is needed".to_owned());
            };
            let mut errors = lowered.errors.iter();
            if errors.any(|error| error.field.starts_with(&place)) {
                Ok(())
            } else {
                Err(format!("no error at {place}: {:?}", lowered.errors))
            }
        }
    }
}

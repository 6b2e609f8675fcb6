//! Paths into JSON values: finding, setting and removing what a path such as `spec.ingress[].from[1].ipBlock` names.

use serde_json::Value;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
    /// `[]`: any item.
    Any,
}

/// The steps of a path.
pub(crate) fn parse(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let (key, indices) = part
            .split_once('[')
            .map_or((part, ""), |(key, rest)| (key, rest));
        steps.push(Step::Key(key.to_owned()));
        for index in indices.split('[').filter(|index| !index.is_empty()) {
            steps.push(match index.trim_end_matches(']') {
                "" => Step::Any,
                number => Step::Index(number.parse().unwrap()),
            });
        }
    }
    steps
}

/// The steps as a path.
pub(crate) fn print(steps: &[Step]) -> String {
    let mut out = String::new();
    for step in steps {
        match step {
            Step::Key(key) if out.is_empty() => out += key,
            Step::Key(key) => out += &format!(".{key}"),
            Step::Index(index) => out += &format!("[{index}]"),
            Step::Any => out += "[]",
        }
    }
    out
}

/// The value at a path without `[]`.
pub(crate) fn get<'v>(of: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(of, |of, step| match step {
        Step::Key(key) => of.get(key),
        Step::Index(index) => of.get(index),
        Step::Any => None,
    })
}

fn get_mut<'v>(of: &'v mut Value, steps: &[Step]) -> Option<&'v mut Value> {
    steps.iter().try_fold(of, |of, step| match step {
        Step::Key(key) => of.get_mut(key),
        Step::Index(index) => of.get_mut(*index),
        Step::Any => None,
    })
}

/// Every place in a value that a path names: `[]` becomes each index.
pub(crate) fn places(of: &Value, steps: &[Step]) -> Vec<Vec<Step>> {
    let mut found = vec![Vec::new()];
    for step in steps {
        found = found
            .into_iter()
            .flat_map(|place: Vec<Step>| {
                let count = get(of, &place)
                    .and_then(Value::as_array)
                    .map_or(0, Vec::len);
                let next: Vec<Step> = match step {
                    Step::Any => (0..count).map(Step::Index).collect(),
                    other => vec![other.clone()],
                };
                next.into_iter().map(move |step| {
                    let mut place = place.clone();
                    place.push(step);
                    place
                })
            })
            .collect();
    }
    found
}

/// The first place of a path where it exists, or else where what contains it does.
pub(crate) fn place(of: &Value, steps: &[Step]) -> Option<Vec<Step>> {
    let all = places(of, steps);
    let exists = all.iter().find(|place| get(of, place).is_some());
    let parent = || {
        all.iter()
            .find(|place| get(of, &place[..place.len() - 1]).is_some())
    };
    exists.or_else(parent).cloned()
}

/// The value with another one at a place; `None` removes what is there.
pub(crate) fn with(of: &Value, place: &[Step], value: Option<Value>) -> Value {
    let mut changed = of.clone();
    let (last, parent) = place.split_last().unwrap();
    match (get_mut(&mut changed, parent).unwrap(), last, value) {
        (Value::Object(map), Step::Key(key), Some(value)) => drop(map.insert(key.clone(), value)),
        (Value::Object(map), Step::Key(key), None) => drop(map.shift_remove(key)),
        (Value::Array(list), Step::Index(index), Some(value)) => match list.get_mut(*index) {
            Some(item) => *item = value,
            None => list.push(value),
        },
        (Value::Array(list), Step::Index(index), None) => drop(list.remove(*index)),
        (other, step, _) => panic!("{step:?} of {other}"),
    }
    changed
}

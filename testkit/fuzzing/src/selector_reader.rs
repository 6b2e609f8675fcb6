//! A second reader of Calico's selectors, written from the grammar alone: it evaluates a text while it reads it, with a
//! stack of values and one of signs, where the dialect descends into parts and builds a tree.
//!
//! Tests and the fuzz target `calico_selector` compare the two ([`compare`]).

use palisade_dialects::calico_selector::{CalicoSelector, LabelOperator};
use std::collections::BTreeMap;

/// The labels of an object.
pub type SelectorLabels = BTreeMap<String, String>;

/// The longest name of a label.
const LONGEST_NAME: usize = 512;
/// How deep parentheses may be nested.
const DEEPEST: usize = 100;

/// What waits for a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum YardSign {
    Open,
    Or,
    And,
    Not,
}

/// A text being evaluated.
struct YardReader<'a> {
    rest: &'a [u8],
    labels: &'a SelectorLabels,
    /// What `global()` is.
    global: bool,
    values: Vec<bool>,
    signs: Vec<YardSign>,
}

/// The value of a selector; `None` if the text is not one.
pub fn evaluate(text: &str, labels: &SelectorLabels, global: bool) -> Option<bool> {
    let mut reader = YardReader {
        rest: text.as_bytes(),
        labels,
        global,
        values: Vec::new(),
        signs: Vec::new(),
    };
    reader.space();
    if reader.rest.is_empty() {
        return Some(true);
    }
    reader.run()
}

impl YardReader<'_> {
    fn run(mut self) -> Option<bool> {
        loop {
            // A value is next, with what may be before it.
            self.space();
            if self.word("!") {
                self.signs.push(YardSign::Not);
                continue;
            }
            if self.word("(") {
                self.signs.push(YardSign::Open);
                let open = self.signs.iter().filter(|sign| **sign == YardSign::Open);
                if open.count() > DEEPEST {
                    return None;
                }
                continue;
            }
            let value = self.test()?;
            self.push(value);
            // Then what may be behind it.
            loop {
                self.space();
                if self.rest.is_empty() {
                    self.reduce(YardSign::Or);
                    return match (&self.values[..], &self.signs[..]) {
                        ([value], []) => Some(*value),
                        _ => None,
                    };
                }
                if self.word(")") {
                    self.reduce(YardSign::Or);
                    if self.signs.pop() != Some(YardSign::Open) {
                        return None;
                    }
                    let value = self.values.pop()?;
                    self.push(value);
                } else if self.word("&&") {
                    self.reduce(YardSign::And);
                    self.signs.push(YardSign::And);
                    break;
                } else if self.word("||") {
                    self.reduce(YardSign::Or);
                    self.signs.push(YardSign::Or);
                    break;
                } else {
                    return None;
                }
            }
        }
    }

    /// A value is complete: the negations before it apply.
    fn push(&mut self, mut value: bool) {
        while self.signs.last() == Some(&YardSign::Not) {
            self.signs.pop();
            value = !value;
        }
        self.values.push(value);
    }

    /// Joins the last values by every sign that binds at least as tightly as this one.
    fn reduce(&mut self, least: YardSign) {
        while let Some(sign @ (YardSign::And | YardSign::Or)) = self.signs.last().copied() {
            if least == YardSign::And && sign == YardSign::Or {
                return;
            }
            self.signs.pop();
            let (Some(right), Some(left)) = (self.values.pop(), self.values.pop()) else {
                return;
            };
            self.values.push(match sign {
                YardSign::And => left && right,
                _ => left || right,
            });
        }
    }

    fn space(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Space within a call or an operator.
    fn inner_space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r' | 0xc, rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Takes a word that is next.
    fn word(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word.as_bytes()) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes words that are next, with space between them or not.
    fn words(&mut self, words: &[&str]) -> bool {
        let before = self.rest;
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                self.inner_space();
            }
            if !self.word(word) {
                self.rest = before;
                return false;
            }
        }
        true
    }

    fn test(&mut self) -> Option<bool> {
        if self.words(&["all(", ")"]) {
            return Some(true);
        }
        if self.words(&["global(", ")"]) {
            return Some(self.global);
        }
        if self.word("has(") {
            self.inner_space();
            let name = self.name()?;
            self.inner_space();
            return self.word(")").then(|| self.labels.contains_key(&name));
        }
        let name = self.name()?;
        self.space();
        let label = self.labels.get(&name).cloned();
        let label = label.as_deref();
        if self.word("==") {
            let value = self.value()?;
            return Some(label == Some(&*value));
        }
        if self.word("!=") {
            let value = self.value()?;
            return Some(label != Some(&*value));
        }
        if self.word("contains") {
            let value = self.value()?;
            return Some(label.is_some_and(|label| label.contains(&value)));
        }
        if self.words(&["starts", "with"]) {
            let value = self.value()?;
            return Some(label.is_some_and(|label| label.starts_with(&value)));
        }
        if self.words(&["ends", "with"]) {
            let value = self.value()?;
            return Some(label.is_some_and(|label| label.ends_with(&value)));
        }
        let is_negative = self.word("not");
        if is_negative {
            self.inner_space();
        }
        if !self.word("in") {
            return None;
        }
        if matches!(
            self.rest.first(),
            Some(b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')
        ) {
            return None;
        }
        let values = self.set()?;
        let is_in = label.is_some_and(|label| values.iter().any(|value| value == label));
        Some(is_in != is_negative)
    }

    fn name(&mut self) -> Option<String> {
        let is_of_name = |b: &u8| b.is_ascii_alphanumeric() || b"_./-".contains(b);
        let length = self.rest.iter().take_while(|b| is_of_name(b)).count();
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        let is_name = (1..=LONGEST_NAME).contains(&length);
        is_name.then(|| String::from_utf8_lossy(name).into_owned())
    }

    fn value(&mut self) -> Option<String> {
        self.space();
        let [quote @ (b'"' | b'\''), inside @ ..] = self.rest else {
            return None;
        };
        let length = inside.iter().position(|b| b == quote)?;
        self.rest = &inside[length + 1..];
        Some(String::from_utf8_lossy(&inside[..length]).into_owned())
    }

    fn set(&mut self) -> Option<Vec<String>> {
        self.space();
        if !self.word("{") {
            return None;
        }
        let mut values = Vec::new();
        let mut may_have_value = true;
        loop {
            self.space();
            if self.word("}") {
                return Some(values);
            }
            if !may_have_value {
                return None;
            }
            values.push(self.value()?);
            self.space();
            may_have_value = self.word(",");
        }
    }
}

/// The value of what the dialect has read.
fn value_of(selector: &CalicoSelector, labels: &SelectorLabels, global: bool) -> bool {
    let inside = |part: &CalicoSelector| value_of(part, labels, global);
    let (name, operator) = match selector {
        CalicoSelector::All => return true,
        CalicoSelector::Global => return global,
        CalicoSelector::Not(part) => return !inside(part),
        CalicoSelector::And(parts) => return parts.iter().all(inside),
        CalicoSelector::Or(parts) => return parts.iter().any(inside),
        CalicoSelector::Label(name, operator) => (name, operator),
    };
    let label = labels.get(&**name).map(String::as_str);
    let holds = |test: &dyn Fn(&str) -> bool| label.is_some_and(test);
    match operator {
        LabelOperator::Has => label.is_some(),
        LabelOperator::Equals(value) => holds(&|label| label == &**value),
        LabelOperator::NotEquals(value) => !holds(&|label| label == &**value),
        LabelOperator::In(values) => holds(&|label| values.iter().any(|value| label == &**value)),
        LabelOperator::NotIn(values) => {
            !holds(&|label| values.iter().any(|value| label == &**value))
        }
        LabelOperator::Contains(text) => holds(&|label| label.contains(&**text)),
        LabelOperator::StartsWith(text) => holds(&|label| label.starts_with(&**text)),
        LabelOperator::EndsWith(text) => holds(&|label| label.ends_with(&**text)),
    }
}

/// Compares both readers about a text; whether they accept it.
///
/// # Panics
/// If they differ, or the place of an error is not in the text.
pub fn compare(text: &str, all_labels: &[SelectorLabels]) -> bool {
    let read = CalicoSelector::parse(text);
    if let Err(error) = &read {
        assert!(
            text.is_char_boundary(error.offset) && !error.reason.is_empty(),
            "{text:?}: {error:?}"
        );
    }
    for labels in all_labels {
        for global in [false, true] {
            let expected = evaluate(text, labels, global);
            let found = read.as_ref().ok();
            let found = found.map(|selector| value_of(selector, labels, global));
            assert_eq!(found, expected, "{text:?} of {labels:?}: {read:?}");
        }
    }
    read.is_ok()
}

//! Selectors of the whole language of Calico, in the spellings that people use.

use super::super::{Features, LABELS, NAMESPACE_LABELS, NAMESPACES};
use super::inventory::{ACCOUNTS, LEVELS, SETS};
use crate::Dice;

/// What the keys of a selector are the labels of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectorSubject {
    /// Endpoints and sets of networks.
    Holder,
    /// Namespaces.
    Namespace,
    /// Service accounts.
    ServiceAccount,
}

/// A selector as a tree, from which its text is printed.
enum SelectorNode {
    /// `all()`, or a test of one label.
    Test(SelectorTest),
    Not(Box<SelectorNode>),
    And(Vec<SelectorNode>),
    Or(Vec<SelectorNode>),
}

enum SelectorTest {
    All,
    Has(String),
    /// A label, an operator and a text.
    Text(String, &'static str, String),
    /// A label, `in` or `not in`, and a set.
    Set(String, bool, Vec<String>),
}

/// The text of a selector.
pub(super) fn selector(dice: &mut Dice, of: SelectorSubject, features: &mut Features) -> String {
    let depth = match dice.below(100) {
        0..58 => 0,
        58..88 => 1,
        _ => 2,
    };
    let node = node(dice, of, depth, features);
    let mut printer = SelectorPrinter {
        dice,
        features,
        text: String::new(),
    };
    printer.add_space();
    printer.print(&node, false);
    printer.add_space();
    printer.text
}

fn node(dice: &mut Dice, of: SelectorSubject, depth: u32, features: &mut Features) -> SelectorNode {
    if depth == 0 {
        return match dice.below(100) {
            0..9 => {
                features.insert("selector: !");
                SelectorNode::Not(Box::new(SelectorNode::Test(test(dice, of, features))))
            }
            _ => SelectorNode::Test(test(dice, of, features)),
        };
    }
    let count = dice.between(2, 3);
    let mut nodes = || {
        (0..count)
            .map(|_| node(dice, of, depth - 1, features))
            .collect()
    };
    let nodes: Vec<SelectorNode> = nodes();
    match dice.below(100) {
        0..40 => {
            features.insert("selector: &&");
            SelectorNode::And(nodes)
        }
        40..82 => {
            features.insert("selector: ||");
            SelectorNode::Or(nodes)
        }
        _ => {
            features.insert("selector: ! of several");
            SelectorNode::Not(Box::new(SelectorNode::And(nodes)))
        }
    }
}

fn test(dice: &mut Dice, of: SelectorSubject, features: &mut Features) -> SelectorTest {
    let (key, values) = key(dice, of, features);
    let value = |dice: &mut Dice| (*dice.pick(&values)).to_owned();
    match dice.below(100) {
        0..10 => {
            features.insert("selector: all()");
            SelectorTest::All
        }
        10..28 => {
            features.insert("selector: has()");
            SelectorTest::Has(key)
        }
        28..50 => {
            features.insert("selector: ==");
            let wanted = value(dice);
            SelectorTest::Text(key, "==", wanted)
        }
        50..60 => {
            features.insert("selector: !=");
            let wanted = value(dice);
            SelectorTest::Text(key, "!=", wanted)
        }
        60..78 => {
            let not = dice.chance(45);
            features.insert(if not {
                "selector: not in"
            } else {
                "selector: in"
            });
            let set = set(dice, &values, features);
            SelectorTest::Set(key, not, set)
        }
        _ => {
            let (operator, feature) = *dice.pick(&[
                ("contains", "selector: contains"),
                ("starts", "selector: starts with"),
                ("ends", "selector: ends with"),
            ]);
            features.insert(feature);
            let whole = value(dice);
            let part = part(dice, &whole, operator);
            SelectorTest::Text(key, operator, part)
        }
    }
}

/// A few values, or none.
fn set(dice: &mut Dice, values: &[&str], features: &mut Features) -> Vec<String> {
    if dice.chance(14) {
        features.insert("selector: an empty set");
        return Vec::new();
    }
    let count = dice.between(1, 3);
    (0..count)
        .map(|_| (*dice.pick(values)).to_owned())
        .collect()
}

/// A part of a value that is there: any, the beginning, or the end.
fn part(dice: &mut Dice, whole: &str, operator: &str) -> String {
    let length = dice.between(0, whole.len().min(3));
    let start = match operator {
        "starts" => 0,
        "ends" => whole.len() - length,
        _ => dice.below(whole.len() - length + 1),
    };
    whole
        .get(start..start + length)
        .unwrap_or_default()
        .to_owned()
}

/// A key, with values that it may have.
fn key(
    dice: &mut Dice,
    of: SelectorSubject,
    features: &mut Features,
) -> (String, Vec<&'static str>) {
    match of {
        SelectorSubject::Holder => holder_key(dice, features),
        SelectorSubject::Namespace => match dice.below(100) {
            0..22 => ("projectcalico.org/name".to_owned(), NAMESPACES.to_vec()),
            22..30 => (
                "kubernetes.io/metadata.name".to_owned(),
                NAMESPACES.to_vec(),
            ),
            _ => namespace_key(dice),
        },
        SelectorSubject::ServiceAccount => match dice.below(100) {
            0..30 => ("projectcalico.org/name".to_owned(), ACCOUNTS.to_vec()),
            _ => ("level".to_owned(), LEVELS.to_vec()),
        },
    }
}

fn namespace_key(dice: &mut Dice) -> (String, Vec<&'static str>) {
    let (key, values) = *dice.pick(&NAMESPACE_LABELS);
    (key.to_owned(), values.to_vec())
}

fn holder_key(dice: &mut Dice, features: &mut Features) -> (String, Vec<&'static str>) {
    let mut of_calico = |key: &str, values: &[&'static str], feature| {
        features.insert(feature);
        (key.to_owned(), values.to_vec())
    };
    match dice.below(100) {
        0..14 => ("set".to_owned(), SETS.to_vec()),
        14..20 => of_calico(
            "projectcalico.org/namespace",
            &NAMESPACES,
            "selector: label of the namespace's name",
        ),
        20..27 => of_calico(
            "projectcalico.org/serviceaccount",
            &ACCOUNTS,
            "selector: label of the service account's name",
        ),
        27..33 => of_calico(
            "projectcalico.org/orchestrator",
            &["k8s", "other", "cni"],
            "selector: label of the orchestrator",
        ),
        33..40 => {
            let (key, values) = namespace_key(dice);
            let key = format!("pcns.{key}");
            of_calico(&key, &values, "selector: label of the namespace")
        }
        40..44 => of_calico(
            "pcns.projectcalico.org/name",
            &NAMESPACES,
            "selector: label of the namespace",
        ),
        44..49 => of_calico(
            "pcsa.level",
            &LEVELS,
            "selector: label of the service account",
        ),
        49..52 => of_calico(
            "pcsa.projectcalico.org/name",
            &ACCOUNTS,
            "selector: label of the service account",
        ),
        52..58 => of_calico("zone", &["open", "mixed"], "selector: label of a profile"),
        _ => {
            let (key, values) = *dice.pick(&LABELS);
            (key.to_owned(), values.to_vec())
        }
    }
}

/// Prints a tree.
struct SelectorPrinter<'a> {
    dice: &'a mut Dice,
    features: &'a mut Features,
    text: String,
}

impl SelectorPrinter<'_> {
    /// Space where none is needed.
    fn add_space(&mut self) {
        let space = match self.dice.below(100) {
            0..86 => "",
            86..95 => " ",
            95..98 => "  ",
            _ => "\t",
        };
        self.text.push_str(space);
    }

    /// Space between two things, most often one.
    fn add_gap(&mut self, is_needed: bool) {
        let gap = match self.dice.below(100) {
            0..12 if !is_needed => "",
            0..90 => " ",
            90..96 => "  ",
            _ => "\t",
        };
        self.text.push_str(gap);
    }

    /// Prints a node; what has several parts in parentheses if it is a part itself.
    fn print(&mut self, node: &SelectorNode, is_part: bool) {
        if is_part && self.dice.chance(9) {
            self.features.insert("selector: !!");
            self.text.push('!');
            self.add_space();
            self.text.push('!');
            self.add_space();
        }
        let is_several = matches!(node, SelectorNode::And(_) | SelectorNode::Or(_));
        let redundant = self.dice.chance(10);
        if redundant {
            self.features
                .insert("selector: parentheses that are not needed");
        }
        if redundant || is_several && is_part {
            self.text.push('(');
            self.add_space();
            self.print_bare(node);
            self.add_space();
            self.text.push(')');
        } else {
            self.print_bare(node);
        }
    }

    fn print_bare(&mut self, node: &SelectorNode) {
        match node {
            SelectorNode::Test(test) => self.print_test(test),
            SelectorNode::Not(inner) => {
                self.text.push('!');
                self.add_space();
                self.print(inner, true);
            }
            SelectorNode::And(nodes) => self.print_all(nodes, "&&"),
            SelectorNode::Or(nodes) => self.print_all(nodes, "||"),
        }
    }

    fn print_all(&mut self, nodes: &[SelectorNode], operator: &str) {
        for (n, node) in nodes.iter().enumerate() {
            if n > 0 {
                self.add_gap(false);
                self.text.push_str(operator);
                self.add_gap(false);
            }
            // `&&` binds tighter.
            let is_tight = operator == "||" && matches!(node, SelectorNode::And(_));
            if is_tight {
                self.features
                    .insert("selector: && within || without parentheses");
            }
            self.print(node, !is_tight);
        }
    }

    fn print_test(&mut self, test: &SelectorTest) {
        match test {
            SelectorTest::All => self.text.push_str("all()"),
            SelectorTest::Has(key) => {
                self.text.push_str("has(");
                self.add_space();
                self.text.push_str(key);
                self.add_space();
                self.text.push(')');
            }
            SelectorTest::Text(key, operator @ ("==" | "!="), value) => {
                self.text.push_str(key);
                self.add_gap(false);
                self.text.push_str(operator);
                self.add_gap(false);
                self.print_text(value);
            }
            SelectorTest::Text(key, operator, value) => {
                self.text.push_str(key);
                self.add_gap(true);
                self.text.push_str(operator);
                if *operator != "contains" {
                    self.print_with();
                }
                self.add_gap(false);
                self.print_text(value);
            }
            SelectorTest::Set(key, not, values) => {
                self.text.push_str(key);
                self.add_gap(true);
                if *not {
                    self.text.push_str("not");
                    self.add_gap(true);
                }
                self.text.push_str("in");
                self.add_gap(false);
                self.print_set(values);
            }
        }
    }

    /// The second word of an operator, sometimes without space before it.
    fn print_with(&mut self) {
        if self.dice.chance(50) {
            self.features.insert("selector: startswith or endswith");
        } else {
            self.add_gap(true);
        }
        self.text.push_str("with");
    }

    fn print_text(&mut self, value: &str) {
        let quote = if self.dice.chance(60) { '\'' } else { '"' };
        self.features.insert(match quote {
            '"' => "selector: double quotes",
            _ => "selector: single quotes",
        });
        self.text.push(quote);
        self.text.push_str(value);
        self.text.push(quote);
    }

    fn print_set(&mut self, values: &[String]) {
        self.text.push('{');
        self.add_space();
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                self.text.push(',');
                self.add_gap(false);
            }
            self.print_text(value);
        }
        if !values.is_empty() && self.dice.chance(25) {
            self.features
                .insert("selector: a comma at the end of a set");
            self.add_space();
            self.text.push(',');
        }
        self.add_space();
        self.text.push('}');
    }
}

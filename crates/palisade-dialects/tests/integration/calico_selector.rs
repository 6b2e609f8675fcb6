//! The reader of Calico's selectors against a second one: they accept the same texts, and what they accept has the same
//! value for any labels. Texts of the grammar, the same with letters changed, and any bytes.

use palisade_fuzzing::selector_reader::{SelectorLabels, compare, evaluate};

/// Names of labels: words of the grammar among them, which are names all the same.
const NAMES: &[&str] = &[
    "a",
    "b",
    "in",
    "not",
    "has",
    "all",
    "global",
    "contains",
    "starts",
    "with",
    "x.io/y_Z-0",
    "-",
];
const VALUES: &[&str] = &["", "a", "ab", "b", "it's", "say \"no\"", "é", "a) || all("];
/// What is put into a text, or takes the place of a part.
const PIECES: &[&str] = &[
    " ",
    "\t",
    "\n",
    "!",
    "(",
    ")",
    "{",
    "}",
    ",",
    "'",
    "\"",
    "=",
    "==",
    "!=",
    "&",
    "&&",
    "|",
    "||",
    "in",
    "not",
    "notin",
    "has(",
    "has",
    "all()",
    "all(",
    "global( )",
    "contains",
    "starts with",
    "startswith",
    "ends",
    "with",
    "a",
    "_",
    "0",
    "é",
    "'a'",
    "\\",
];

/// The numbers of a sequence that is the same in every run.
struct SelectorSequence(u64);

impl SelectorSequence {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn space(&mut self) -> &'static str {
        self.one(&["", "", "", " ", "\t", "  "])
    }

    /// Space within a call or an operator of two words.
    fn inner_space(&mut self) -> &'static str {
        self.one(&["", "", " ", "\t", "\n", "\r\n ", "\u{c}"])
    }

    /// Space where a name would go on otherwise.
    fn gap(&mut self) -> &'static str {
        self.one(&[" ", "\t", " \t "])
    }

    fn value(&mut self) -> String {
        let value = self.one(VALUES);
        match (value.contains('\''), value.contains('"')) {
            (true, _) => format!("\"{value}\""),
            (_, true) => format!("'{value}'"),
            _ if self.below(2) == 0 => format!("'{value}'"),
            _ => format!("\"{value}\""),
        }
    }

    fn set(&mut self) -> String {
        let mut text = format!("{{{}", self.space());
        let count = self.below(4);
        for index in 0..count {
            text += &self.value();
            text += self.space();
            if index + 1 < count || self.below(3) == 0 {
                text += ",";
                text += self.space();
            }
        }
        text + "}"
    }

    fn test(&mut self) -> String {
        let (name, space, gap) = (self.one(NAMES), self.space(), self.gap());
        match self.below(12) {
            0 => format!("has({}{name}{})", self.inner_space(), self.inner_space()),
            1 => format!("all({})", self.inner_space()),
            2 => format!("global({})", self.inner_space()),
            3 => format!("{name}{space}=={}{}", self.space(), self.value()),
            4 => format!("{name}{space}!={}{}", self.space(), self.value()),
            5 => format!("{name}{gap}contains{space}{}", self.value()),
            6 => format!(
                "{name}{gap}starts{}with{space}{}",
                self.inner_space(),
                self.value()
            ),
            7 => format!(
                "{name}{gap}ends{}with{space}{}",
                self.inner_space(),
                self.value()
            ),
            8 | 9 => format!("{name}{gap}in{space}{}", self.set()),
            _ => format!(
                "{name}{gap}not{}in{space}{}",
                self.inner_space(),
                self.set()
            ),
        }
    }

    /// A text of the grammar.
    fn expression(&mut self, depth: usize) -> String {
        let space = self.space();
        match self.below(if depth == 0 { 2 } else { 7 }) {
            0 | 1 => self.test(),
            2 | 3 => format!("!{space}{}", self.operand(depth - 1)),
            4 => format!("({space}{}{})", self.expression(depth - 1), self.space()),
            sign => {
                let sign = if sign == 5 { "&&" } else { "||" };
                let (left, right) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("{left}{space}{sign}{}{right}", self.space())
            }
        }
    }

    /// What may be behind a negation.
    fn operand(&mut self, depth: usize) -> String {
        match self.below(3) {
            0 => format!("({})", self.expression(depth)),
            1 => format!("!{}{}", self.space(), self.test()),
            _ => self.test(),
        }
    }

    /// The text with one to three places changed.
    fn changed(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(3) {
            let at = self.below(chars.len() + 1);
            let end = (at + self.below(4)).min(chars.len());
            let piece: Vec<char> = match self.below(4) {
                0 => Vec::new(),
                1 => chars[at..end]
                    .iter()
                    .chain(&chars[at..end])
                    .copied()
                    .collect(),
                _ => self.one(PIECES).chars().collect(),
            };
            let until = if self.below(2) == 0 { at } else { end };
            chars.splice(at..until, piece);
        }
        chars.into_iter().collect()
    }

    fn labels(&mut self) -> SelectorLabels {
        let count = self.below(6);
        let labels = (0..count).map(|_| (self.one(NAMES).to_owned(), self.one(VALUES).to_owned()));
        labels.collect()
    }
}

fn some_labels(sequence: &mut SelectorSequence) -> Vec<SelectorLabels> {
    (0..4).map(|_| sequence.labels()).collect()
}

#[test]
fn texts_of_the_grammar() {
    let mut sequence = SelectorSequence(1);
    let mut values = [0, 0];
    for _ in 0..20_000 {
        let (text, labels) = (sequence.expression(5), some_labels(&mut sequence));
        let text = format!("{}{text}{}", sequence.space(), sequence.space());
        assert!(compare(&text, &labels), "{text:?} is refused");
        let value = evaluate(&text, &labels[0], false).unwrap();
        values[usize::from(value)] += 1;
    }
    assert!(values.iter().all(|count| *count > 4_000), "{values:?}");
}

#[test]
fn changed_texts() {
    let mut sequence = SelectorSequence(2);
    let mut accepted = 0;
    for _ in 0..60_000 {
        let text = sequence.expression(3);
        let text = sequence.changed(&text);
        let labels = some_labels(&mut sequence);
        accepted += usize::from(compare(&text, &labels));
    }
    assert!((6_000..54_000).contains(&accepted), "{accepted}");
}

#[test]
fn any_pieces_and_any_bytes() {
    let mut sequence = SelectorSequence(3);
    let mut accepted = 0;
    for _ in 0..60_000 {
        let count = sequence.below(9);
        let pieces: String = (0..count).map(|_| sequence.one(PIECES)).collect();
        let bytes: Vec<u8> = (0..sequence.below(24))
            .map(|_| sequence.below(256) as u8)
            .collect();
        let labels = some_labels(&mut sequence);
        accepted += usize::from(compare(&pieces, &labels));
        compare(&String::from_utf8_lossy(&bytes), &labels);
    }
    assert!(accepted > 1_000, "{accepted}");
}

#[test]
fn limits_and_places_of_words() {
    let labels = [
        SelectorLabels::new(),
        SelectorLabels::from([("a".to_owned(), "b".to_owned())]),
    ];
    let nested = |depth: usize| format!("{}has(a){}", "(".repeat(depth), ")".repeat(depth));
    let beside = vec![nested(100); 50].join(" && ");
    for (text, is_accepted) in [
        (nested(100), true),
        (nested(101), false),
        (beside, true),
        (format!("{}has(a)", "! ".repeat(10_001)), true),
        (format!("has({})", "a".repeat(512)), true),
        (format!("has({})", "a".repeat(513)), false),
        ("contains contains \"x\"".to_owned(), true),
        ("a in {}".to_owned(), true),
        ("a in{'b',}".to_owned(), true),
        ("a in {,}".to_owned(), false),
        ("a in {'b',,}".to_owned(), false),
        ("a in_ {}".to_owned(), false),
        ("a in0 {}".to_owned(), false),
        ("a notin {}".to_owned(), true),
        ("a not  in{}".to_owned(), true),
        ("a not {}".to_owned(), false),
        ("a contains'b'".to_owned(), true),
        ("a starts\twith 'b'".to_owned(), true),
        ("has (a)".to_owned(), false),
        ("has( a )".to_owned(), true),
        ("all ()".to_owned(), false),
        ("all(a)".to_owned(), false),
        ("()".to_owned(), false),
        ("!".to_owned(), false),
        ("! a == 'b'".to_owned(), true),
        ("a == 'b'\n".to_owned(), false),
        ("a\u{a0}== 'b'".to_owned(), false),
        (String::new(), true),
        ("\t ".to_owned(), true),
    ] {
        assert_eq!(compare(&text, &labels), is_accepted, "{text:?}");
    }
}

//! The grammar of Calico's selectors.
//!
//! Promises: a text is read as Calico reads it, or refused with the place and the reason; no text takes more than
//! time in proportion to its length, or exhausts the stack. Never: knows what a label means
//! ([`super::selector_scope`]).

use palisade_manifest::quote_up_to;
use palisade_model::Str;

/// The longest name of a label, in bytes. Source: Calico, the tokenizer of selectors.
const MAX_LABEL: usize = 512;
/// How deep parentheses and negations may be nested.
const MAX_DEPTH: usize = 100;
/// How much of a text a message shows, in bytes.
const SHOWN: usize = 40;

/// A selector as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CalicoSelector {
    /// `all()`, and an empty text.
    All,
    /// `global()`.
    Global,
    /// A test of a label.
    Label(Str, LabelOperator),
    /// `!`
    Not(Box<CalicoSelector>),
    /// `&&`
    And(Vec<CalicoSelector>),
    /// `||`
    Or(Vec<CalicoSelector>),
}

/// A test of the value of a label. Those that are negative hold without the label as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// `has(label)`
    Has,
    /// `==`
    Equals(Str),
    /// `!=`
    NotEquals(Str),
    /// `in {…}`
    In(Vec<Str>),
    /// `not in {…}`
    NotIn(Vec<Str>),
    /// `contains`
    Contains(Str),
    /// `starts with`
    StartsWith(Str),
    /// `ends with`
    EndsWith(Str),
}

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// The place, in bytes from the beginning.
    pub offset: usize,
    /// The reason.
    pub reason: String,
}

impl CalicoSelector {
    /// Reads a selector.
    ///
    /// # Errors
    ///
    /// If the text is not one, with the place.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = SelectorParser { text, at: 0 };
        parser.skip_space();
        if parser.rest().is_empty() {
            return Ok(CalicoSelector::All);
        }
        let selector = parser.any_of(0)?;
        match parser.rest() {
            "" => Ok(selector),
            rest => Err(parser.error(format!("unexpected {}", excerpt(rest)))),
        }
    }

    /// Whether `global()` is somewhere in it.
    pub(super) fn uses_global(&self) -> bool {
        match self {
            CalicoSelector::Global => true,
            CalicoSelector::All | CalicoSelector::Label(..) => false,
            CalicoSelector::Not(inner) => inner.uses_global(),
            CalicoSelector::And(parts) | CalicoSelector::Or(parts) => {
                parts.iter().any(CalicoSelector::uses_global)
            }
        }
    }
}

/// The beginning of a text, quoted.
fn excerpt(text: &str) -> String {
    quote_up_to(text, SHOWN)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// Space within an operator or a call, where Calico takes more than between these.
fn is_inner_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{c}' | '\r')
}

fn is_of_label(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}

/// A text, and how much of it has been read.
struct SelectorParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> SelectorParser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, reason: impl Into<String>) -> SelectorError {
        SelectorError {
            offset: self.at,
            reason: reason.into(),
        }
    }

    fn skip_space(&mut self) {
        self.skip(is_space);
    }

    fn skip(&mut self, is_skipped: fn(char) -> bool) {
        self.at = self.text.len() - self.rest().trim_start_matches(is_skipped).len();
    }

    /// Takes a token that is next, and the space behind it.
    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.at += token.len();
            self.skip_space();
        }
        is_next
    }

    fn any_of(&mut self, depth: usize) -> Result<CalicoSelector, SelectorError> {
        let first = self.all_of(depth)?;
        let mut parts = vec![first];
        while self.take("||") {
            parts.push(self.all_of(depth)?);
        }
        Ok(join(parts, CalicoSelector::Or))
    }

    fn all_of(&mut self, depth: usize) -> Result<CalicoSelector, SelectorError> {
        let first = self.operation(depth)?;
        let mut parts = vec![first];
        while self.take("&&") {
            parts.push(self.operation(depth)?);
        }
        Ok(join(parts, CalicoSelector::And))
    }

    /// A test, or an expression in parentheses; with any number of negations before it.
    fn operation(&mut self, depth: usize) -> Result<CalicoSelector, SelectorError> {
        let mut is_negated = false;
        while self.take("!") {
            is_negated = !is_negated;
        }
        let selector = self.operand(depth)?;
        Ok(if is_negated {
            CalicoSelector::Not(Box::new(selector))
        } else {
            selector
        })
    }

    fn operand(&mut self, depth: usize) -> Result<CalicoSelector, SelectorError> {
        if self.rest().starts_with('(') {
            if depth >= MAX_DEPTH {
                return Err(self.error(format!(
                    "parentheses are nested more than {MAX_DEPTH} times"
                )));
            }
            self.take("(");
            let inner = self.any_of(depth + 1)?;
            return if self.take(")") {
                Ok(inner)
            } else {
                Err(self.error("`)` is missing"))
            };
        }
        if let Some(after) = self.empty_call("all(") {
            self.at = after;
            self.skip_space();
            return Ok(CalicoSelector::All);
        }
        if let Some(after) = self.empty_call("global(") {
            self.at = after;
            self.skip_space();
            return Ok(CalicoSelector::Global);
        }
        if self.rest().starts_with("has(") {
            self.at += "has(".len();
            self.skip(is_inner_space);
            let label = self.label()?;
            self.skip(is_inner_space);
            return if self.take(")") {
                Ok(CalicoSelector::Label(label, LabelOperator::Has))
            } else {
                Err(self.error("`)` is missing after the name of the label"))
            };
        }
        let label = self.label()?;
        let operator = self.operator(&label)?;
        Ok(CalicoSelector::Label(label, operator))
    }

    /// The end of a call without arguments that is next.
    fn empty_call(&self, name: &str) -> Option<usize> {
        let inside = self.rest().strip_prefix(name)?;
        let end = inside
            .trim_start_matches(is_inner_space)
            .strip_prefix(')')?;
        Some(self.text.len() - end.len())
    }

    fn label(&mut self) -> Result<Str, SelectorError> {
        let rest = self.rest();
        let end = rest.find(|c| !is_of_label(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        if name.is_empty() {
            return Err(self.error(match rest {
                "" => "a test is missing at the end".to_owned(),
                rest => format!(
                    "unexpected {}: a test begins with the name of a label, has(, all(, `!` or `(`",
                    excerpt(rest)
                ),
            }));
        }
        if name.len() > MAX_LABEL {
            return Err(self.error(format!(
                "the name of the label has {} bytes: at most {MAX_LABEL}",
                name.len()
            )));
        }
        self.at += end;
        self.skip_space();
        Ok(name.into())
    }

    /// The operator behind a label, with its value.
    fn operator(&mut self, label: &str) -> Result<LabelOperator, SelectorError> {
        if self.take("==") {
            return self.literal().map(LabelOperator::Equals);
        }
        if self.take("!=") {
            return self.literal().map(LabelOperator::NotEquals);
        }
        if self.take("contains") {
            return self.literal().map(LabelOperator::Contains);
        }
        if self.take_words("starts", Some("with")) {
            return self.literal().map(LabelOperator::StartsWith);
        }
        if self.take_words("ends", Some("with")) {
            return self.literal().map(LabelOperator::EndsWith);
        }
        if self.take_words("not", Some("in")) {
            return self.set().map(LabelOperator::NotIn);
        }
        if self.take_words("in", None) {
            return self.set().map(LabelOperator::In);
        }
        let rest = self.rest();
        if matches!(label, "has" | "all" | "global") && rest.starts_with('(') {
            return Err(self.error(format!("no space is allowed between {label} and `(`")));
        }
        if rest.starts_with('=') {
            return Err(self.error("a single `=` is no operator: write ==".to_owned()));
        }
        Err(self.error(format!(
            "an operator is missing after {}: ==, !=, in, not in, contains, starts with, ends with; or write has({label})",
            excerpt(label)
        )))
    }

    /// Takes an operator of one word or two, with or without space between them; `in` must end there.
    fn take_words(&mut self, first: &str, second: Option<&str>) -> bool {
        let Some(mut rest) = self.rest().strip_prefix(first) else {
            return false;
        };
        if let Some(second) = second {
            let after = rest.trim_start_matches(is_inner_space);
            let Some(after) = after.strip_prefix(second) else {
                return false;
            };
            rest = after;
        }
        let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if second.unwrap_or(first) == "in" && rest.starts_with(goes_on) {
            return false;
        }
        self.at = self.text.len() - rest.len();
        self.skip_space();
        true
    }

    /// A value in quotes.
    fn literal(&mut self) -> Result<Str, SelectorError> {
        let rest = self.rest();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return Err(self.error(match rest {
                "" => "a value in quotes is missing at the end".to_owned(),
                rest => format!("a value must be in quotes: {}", excerpt(rest)),
            }));
        };
        let inside = &rest[1..];
        let Some(end) = inside.find(quote) else {
            return Err(self.error(format!("the quote {quote} is not closed")));
        };
        self.at += end + 2;
        self.skip_space();
        Ok(inside[..end].into())
    }

    /// Values in braces; the last may have a comma behind it.
    fn set(&mut self) -> Result<Vec<Str>, SelectorError> {
        if !self.take("{") {
            return Err(self.error("`{` is missing: a set of values in braces"));
        }
        let mut values = Vec::new();
        while self.rest().starts_with(['"', '\'']) {
            values.push(self.literal()?);
            if !self.take(",") {
                break;
            }
        }
        if self.take("}") {
            Ok(values)
        } else {
            Err(self.error("a value in quotes, a comma or `}` is missing in the set"))
        }
    }
}

/// One part as it is, several joined.
fn join(
    mut parts: Vec<CalicoSelector>,
    operator: fn(Vec<CalicoSelector>) -> CalicoSelector,
) -> CalicoSelector {
    match (parts.pop(), parts.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            parts.extend(last);
            operator(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str, operator: LabelOperator) -> CalicoSelector {
        CalicoSelector::Label(name.into(), operator)
    }

    #[test]
    fn what_is_read() {
        use CalicoSelector::{All, And, Global, Not, Or};
        use LabelOperator::{Contains, EndsWith, Equals, Has, In, NotEquals, NotIn, StartsWith};
        let equals = |name: &str, value: &str| label(name, Equals(value.into()));
        let cases = [
            ("", All),
            (" \t", All),
            ("all()", All),
            ("all( )", All),
            ("all(\n)", All),
            ("a starts\r\nwith 'b'", label("a", StartsWith("b".into()))),
            ("global()", Global),
            ("a == 'b'", equals("a", "b")),
            ("a=='b'", equals("a", "b")),
            ("a == \"it's\"", equals("a", "it's")),
            ("a == ''", equals("a", "")),
            ("a != 'b'", label("a", NotEquals("b".into()))),
            (
                "a in {'b', \"c\",}",
                label("a", In(vec!["b".into(), "c".into()])),
            ),
            ("a in{}", label("a", In(vec![]))),
            ("a not in {'b'}", label("a", NotIn(vec!["b".into()]))),
            ("a notin {'b'}", label("a", NotIn(vec!["b".into()]))),
            ("has(x.io/y_Z-0)", label("x.io/y_Z-0", Has)),
            ("has( a )", label("a", Has)),
            (
                "contains contains \"x\"",
                label("contains", Contains("x".into())),
            ),
            ("in in {'in'}", label("in", In(vec!["in".into()]))),
            ("has == 'a'", equals("has", "a")),
            ("all == 'a'", equals("all", "a")),
            ("a starts with 'b'", label("a", StartsWith("b".into()))),
            ("a startswith 'b'", label("a", StartsWith("b".into()))),
            ("a ends  with'b'", label("a", EndsWith("b".into()))),
            ("!!has(a)", label("a", Has)),
            ("! has(a)", Not(Box::new(label("a", Has)))),
            ("!a == 'b'", Not(Box::new(equals("a", "b")))),
            (
                "has(a) || has(b) && has(c)",
                Or(vec![
                    label("a", Has),
                    And(vec![label("b", Has), label("c", Has)]),
                ]),
            ),
            (
                "(has(a) || has(b))&&has(c)",
                And(vec![
                    Or(vec![label("a", Has), label("b", Has)]),
                    label("c", Has),
                ]),
            ),
            ("((a == '(b'))", equals("a", "(b")),
        ];
        for (text, selector) in cases {
            assert_eq!(CalicoSelector::parse(text), Ok(selector), "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_where() {
        let long = "a".repeat(513);
        let cases = [
            ("a", 1),
            ("a = 'b'", 2),
            ("a == b", 5),
            ("a == 'b", 5),
            ("a == 'b\"", 5),
            ("a == 'b' c", 9),
            ("has (a)", 4),
            ("all ()", 4),
            ("has(a", 5),
            ("has()", 4),
            ("(has(a)", 7),
            ("has(a))", 6),
            ("has(a) &&", 9),
            ("&& has(a)", 0),
            ("has(a) & has(b)", 7),
            ("has(a) and has(b)", 7),
            ("a in {,}", 6),
            ("a in {'b' 'c'}", 10),
            ("a int {'b'}", 2),
            ("a in 'b'", 5),
            ("a\n== 'b'", 1),
            ("é == 'b'", 0),
            (&long, 0),
        ];
        for (text, offset) in cases {
            let refused = CalicoSelector::parse(text).map_err(|error| error.offset);
            assert_eq!(refused, Err(offset), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}has(a){}", "(".repeat(depth), ")".repeat(depth));
        assert!(CalicoSelector::parse(&nested(100)).is_ok());
        assert!(CalicoSelector::parse(&nested(100_000)).is_err());
        let negated = format!("{}has(a)", "!".repeat(100_001));
        assert!(CalicoSelector::parse(&negated).is_ok());
    }
}

//! Calico's language of selectors, read as its grammar is written.
//!
//! ```text
//! or    = and { "||" and }
//! and   = test { "&&" test }
//! test  = { "!" } ( "(" or ")" | all() | global() | has(LABEL) | LABEL operator )
//! ```

use super::holder::NaiveHolder;

/// What the keys of a selector are the labels of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NaiveSubject {
    /// What holds the address.
    Holder,
    /// Its namespace.
    Namespace,
    /// Its service account.
    ServiceAccount,
}

/// A selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NaiveSelector {
    All,
    Global,
    Has(String),
    Equal(String, String),
    In(String, Vec<String>),
    Contains(String, String),
    StartsWith(String, String),
    EndsWith(String, String),
    Not(Box<NaiveSelector>),
    And(Vec<NaiveSelector>),
    Or(Vec<NaiveSelector>),
}

/// Whether the text of a selector selects a holder; what is no selector selects nothing.
pub(super) fn selects(text: &str, of: NaiveSubject, holder: &NaiveHolder) -> bool {
    parse(text).is_some_and(|selector| selector.selects(of, holder))
}

impl NaiveSelector {
    fn selects(&self, of: NaiveSubject, holder: &NaiveHolder) -> bool {
        let value = |key: &String| {
            let key = match of {
                NaiveSubject::Holder => key.clone(),
                NaiveSubject::Namespace => format!("pcns.{key}"),
                NaiveSubject::ServiceAccount => format!("pcsa.{key}"),
            };
            holder.labels.get(&key).map(String::as_str)
        };
        match self {
            NaiveSelector::All => of != NaiveSubject::Namespace || holder.namespace.is_some(),
            NaiveSelector::Global => of == NaiveSubject::Namespace && holder.namespace.is_none(),
            NaiveSelector::Has(key) => value(key).is_some(),
            NaiveSelector::Equal(key, wanted) => value(key) == Some(wanted),
            NaiveSelector::In(key, wanted) => {
                value(key).is_some_and(|value| wanted.iter().any(|other| other == value))
            }
            NaiveSelector::Contains(key, part) => {
                value(key).is_some_and(|value| value.contains(part.as_str()))
            }
            NaiveSelector::StartsWith(key, part) => {
                value(key).is_some_and(|value| value.starts_with(part.as_str()))
            }
            NaiveSelector::EndsWith(key, part) => {
                value(key).is_some_and(|value| value.ends_with(part.as_str()))
            }
            NaiveSelector::Not(inner) => !inner.selects(of, holder),
            NaiveSelector::And(all) => all.iter().all(|one| one.selects(of, holder)),
            NaiveSelector::Or(all) => all.iter().any(|one| one.selects(of, holder)),
        }
    }
}

/// A selector from its text; nothing if the text is none.
pub(super) fn parse(text: &str) -> Option<NaiveSelector> {
    let mut reader = SelectorReader { rest: text };
    reader.skip_space();
    if reader.rest.is_empty() {
        return Some(NaiveSelector::All);
    }
    let selector = reader.read_or()?;
    reader.skip_space();
    reader.rest.is_empty().then_some(selector)
}

/// What is not read yet.
struct SelectorReader<'a> {
    rest: &'a str,
}

impl<'a> SelectorReader<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    /// Whether these characters come next, after space; they are read then.
    fn accepts(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Option<()> {
        self.accepts(token).then_some(())
    }

    fn read_or(&mut self) -> Option<NaiveSelector> {
        let mut all = vec![self.read_and()?];
        while self.accepts("||") {
            all.push(self.read_and()?);
        }
        Some(NaiveSelector::Or(all))
    }

    fn read_and(&mut self) -> Option<NaiveSelector> {
        let mut all = vec![self.read_test()?];
        while self.accepts("&&") {
            all.push(self.read_test()?);
        }
        Some(NaiveSelector::And(all))
    }

    fn read_test(&mut self) -> Option<NaiveSelector> {
        if self.accepts("!") {
            return Some(NaiveSelector::Not(Box::new(self.read_test()?)));
        }
        if self.accepts("(") {
            let inner = self.read_or()?;
            self.expect(")")?;
            return Some(inner);
        }
        if self.accepts("all(") {
            self.expect(")")?;
            return Some(NaiveSelector::All);
        }
        if self.accepts("global(") {
            self.expect(")")?;
            return Some(NaiveSelector::Global);
        }
        if self.accepts("has(") {
            let key = self.read_label()?;
            self.expect(")")?;
            return Some(NaiveSelector::Has(key));
        }
        let key = self.read_label()?;
        self.read_operator(key)
    }

    /// What comes after a label, where words are operators and nothing else.
    fn read_operator(&mut self, key: String) -> Option<NaiveSelector> {
        let not = |selector| Some(NaiveSelector::Not(Box::new(selector)));
        if self.accepts("==") {
            return Some(NaiveSelector::Equal(key, self.read_text()?));
        }
        if self.accepts("!=") {
            return not(NaiveSelector::Equal(key, self.read_text()?));
        }
        if self.accepts("contains") {
            return Some(NaiveSelector::Contains(key, self.read_text()?));
        }
        if self.accepts("starts") {
            self.expect("with")?;
            return Some(NaiveSelector::StartsWith(key, self.read_text()?));
        }
        if self.accepts("ends") {
            self.expect("with")?;
            return Some(NaiveSelector::EndsWith(key, self.read_text()?));
        }
        if self.accepts("not") {
            self.expect("in")?;
            return not(NaiveSelector::In(key, self.read_set()?));
        }
        self.expect("in")?;
        Some(NaiveSelector::In(key, self.read_set()?))
    }

    fn read_label(&mut self) -> Option<String> {
        self.skip_space();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (label, rest) = self.rest.split_at(end);
        self.rest = rest;
        (1..=512).contains(&label.len()).then(|| label.to_owned())
    }

    /// A text in quotes of either kind, as it stands.
    fn read_text(&mut self) -> Option<String> {
        self.skip_space();
        let quote = self
            .rest
            .chars()
            .next()
            .filter(|c| ['\'', '"'].contains(c))?;
        let (text, rest): (&'a str, &'a str) = self.rest[1..].split_once(quote)?;
        self.rest = rest;
        Some(text.to_owned())
    }

    /// Texts between braces; the last may have a comma behind it.
    fn read_set(&mut self) -> Option<Vec<String>> {
        self.expect("{")?;
        let mut all = Vec::new();
        while !self.accepts("}") {
            all.push(self.read_text()?);
            if !self.accepts(",") {
                self.expect("}")?;
                break;
            }
        }
        Some(all)
    }
}

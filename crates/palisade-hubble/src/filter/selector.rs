//! Label selectors in the syntax of Kubernetes, on labels with Cilium's sources: `k8s:app in (web, api), !reserved:host`.
//!
//! Promises: a key without a source matches labels of every source; a prefix of the source `cidr` matches those within
//! it; a text that is no selector is refused with the place.
//!
//! Never: accepts what Kubernetes' parser refuses in silence; keys and values have its characters and lengths.

use palisade_model::Prefix;

/// The source of keys that match labels of every source.
const ANY_SOURCE: &str = "any";
/// The source of prefixes.
const CIDR_SOURCE: &str = "cidr";

/// A selector: every requirement must be met.
#[derive(Debug, PartialEq)]
pub(super) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, PartialEq)]
struct Requirement {
    source: String,
    key: String,
    test: RequirementTest,
}

#[derive(Debug, PartialEq)]
enum RequirementTest {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads a selector.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser(text.trim());
        let mut requirements = Vec::new();
        if parser.0.is_empty() {
            return Ok(LabelSelector(requirements));
        }
        loop {
            let requirement = parser
                .requirement()
                .map_err(|error| format!("{text:?}: {error}"))?;
            requirements.push(requirement);
            match parser.take_symbol() {
                None => return Ok(LabelSelector(requirements)),
                Some(',') => {}
                Some(other) => return Err(format!("{text:?}: {other:?} is not expected")),
            }
        }
    }

    /// Whether labels, as flows have them, meet every requirement.
    pub(super) fn matches(&self, labels: &[String]) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.iter().find_map(|label| requirement.value_of(label));
            match (&requirement.test, value) {
                (RequirementTest::Exists, value) => value.is_some(),
                (RequirementTest::Missing, value) => value.is_none(),
                (RequirementTest::In(values), Some(value)) => values.iter().any(|own| own == value),
                (RequirementTest::NotIn(values), Some(value)) => {
                    values.iter().all(|own| own != value)
                }
                (RequirementTest::NotIn(_), None) => true,
                (RequirementTest::Greater(bound), Some(value)) => {
                    value.parse().is_ok_and(|value: i64| value > *bound)
                }
                (RequirementTest::Less(bound), Some(value)) => {
                    value.parse().is_ok_and(|value: i64| value < *bound)
                }
                (_, None) => false,
            }
        })
    }
}

impl Requirement {
    /// The value of a label, if it has this key.
    fn value_of<'a>(&self, label: &'a str) -> Option<&'a str> {
        let (source, rest) = label.split_once(':').unwrap_or(("", label));
        if self.source != ANY_SOURCE && self.source != source {
            return None;
        }
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        let is_within = || {
            let [outer, inner] = [&self.key, key].map(cidr_prefix);
            outer
                .zip(inner)
                .is_some_and(|(outer, inner)| outer.covers(inner))
        };
        (key == self.key || self.source == CIDR_SOURCE && is_within()).then_some(value)
    }
}

/// The prefix of a label: hyphens stand for the colons of IPv6.
fn cidr_prefix(key: &str) -> Option<Prefix> {
    key.replace('-', ":").parse().ok()
}

/// What is left of a text.
struct Parser<'a>(&'a str);

impl<'a> Parser<'a> {
    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.take_if('!');
        let key = self.take_word();
        let (source, key) = key.split_once(':').unwrap_or((ANY_SOURCE, key));
        // Cilium hands both to Kubernetes' parser as one name.
        check_key(&format!("{source}.{key}"))?;
        let test = if negated {
            RequirementTest::Missing
        } else {
            self.value_test()?
        };
        Ok(Requirement {
            source: source.to_owned(),
            key: key.to_owned(),
            test,
        })
    }

    fn value_test(&mut self) -> Result<RequirementTest, String> {
        if self.take_if('!') {
            return if self.take_if('=') {
                Ok(RequirementTest::NotIn(vec![self.value()?]))
            } else {
                Err("'=' is expected after '!'".to_owned())
            };
        }
        if self.take_if('=') {
            self.take_if('=');
            return Ok(RequirementTest::In(vec![self.value()?]));
        }
        if self.take_if('>') {
            return Ok(RequirementTest::Greater(self.number()?));
        }
        if self.take_if('<') {
            return Ok(RequirementTest::Less(self.number()?));
        }
        match self.take_word() {
            "" => Ok(RequirementTest::Exists),
            "in" => Ok(RequirementTest::In(self.values()?)),
            "notin" => Ok(RequirementTest::NotIn(self.values()?)),
            other => Err(format!("{other:?} is no operator")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        if !self.take_if('(') {
            return Err("'(' is expected".to_owned());
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            match self.take_symbol() {
                Some(',') => {}
                Some(')') => return Ok(values),
                _ => return Err("',' or ')' is expected".to_owned()),
            }
        }
    }

    fn value(&mut self) -> Result<String, String> {
        let value = self.take_word();
        if value.is_empty() || is_name(value) {
            Ok(value.to_owned())
        } else {
            Err(format!("{value:?} is no value of a label"))
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let word = self.take_word();
        word.parse().map_err(|_| format!("{word:?} is no number"))
    }

    /// The next word; empty if a symbol or the end is next.
    fn take_word(&mut self) -> &'a str {
        let text = self.0.trim_start();
        let is_end = |letter: char| letter.is_whitespace() || "=!,()<>".contains(letter);
        let (word, rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
        self.0 = rest;
        word
    }

    fn take_symbol(&mut self) -> Option<char> {
        let mut letters = self.0.trim_start().chars();
        let symbol = letters.next();
        self.0 = letters.as_str();
        symbol
    }

    fn take_if(&mut self, symbol: char) -> bool {
        let rest = self.0.trim_start().strip_prefix(symbol);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key
        .rsplit_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| {
        (1..=253).contains(&prefix.len())
            && prefix
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    if is_name(name) && prefix.is_none_or(is_prefix) {
        Ok(())
    } else {
        Err(format!("{key:?} is no key of a label"))
    }
}

/// Whether a text is a name as labels have it.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && is_outer(bytes.first())
        && is_outer(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [&str; 4] = [
        "k8s:app=web",
        "k8s:io.kubernetes.pod.namespace=shop",
        "reserved:world",
        "cidr:10.1.2.3/32",
    ];

    fn matches(selector: &str) -> bool {
        let labels = LABELS.map(str::to_owned);
        LabelSelector::parse(selector).unwrap().matches(&labels)
    }

    #[test]
    fn selectors_match() {
        for selector in [
            "",
            "app",
            "app=web",
            "app==web",
            "any:app = web",
            "k8s:app=web",
            "app != api",
            "app in (web, api)",
            "app in (api,web),!other",
            "app notin (api)",
            "other notin (a)",
            "reserved:world",
            "io.kubernetes.pod.namespace=shop",
            "other!=x",
            "!any:other",
            "k8s:app in (web),k8s:io.kubernetes.pod.namespace in (shop)",
            "cidr:10.0.0.0/8",
            "cidr:10.1.2.3/32",
            "world",
        ] {
            assert!(matches(selector), "{selector}");
        }
        for selector in [
            "reserved:app",
            "app=api",
            "!app",
            "app notin (web)",
            "other",
            "cidr:11.0.0.0/8",
            "k8s:world",
            "app,other",
            "app in ()",
            "app>1",
            "cidr:10.1.2.0/33",
        ] {
            assert!(!matches(selector), "{selector}");
        }
        let numbers = ["k8s:n=7".to_owned()];
        let matches = |text: &str| LabelSelector::parse(text).unwrap().matches(&numbers);
        assert!(matches("n>6") && matches("n < 8") && !matches("n>7") && !matches("n<7"));
    }

    #[test]
    fn other_texts_are_refused() {
        for selector in [
            ",",
            "app,",
            "=",
            "app=a=b",
            "app in web",
            "app in (web",
            "app is web",
            "!",
            "app !web",
            "app>x",
            "a/b/",
            "app=-",
            "app web",
            "(app)",
            "app=web)",
        ] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }
}

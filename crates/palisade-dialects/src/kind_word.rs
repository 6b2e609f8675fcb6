//! The words by which users name kinds of policies: their names, plurals and short names, with and without a group.
//!
//! Promises: a word that two APIs have is never guessed. Never: looks at the policies that there are.

use crate::fields::PolicyKind;
use crate::policy_kinds::policy_kinds;

/// Words for a kind that two APIs have, with those that have it.
const AMBIGUOUS_WORDS: &[(&str, &str)] = &[(
    "cnp",
    "it is Cilium's short name of CiliumNetworkPolicy, and ClusterNetworkPolicy has none; write \
     ciliumnetworkpolicy or clusternetworkpolicy",
)];

/// A group that serves the objects of another one, and that one.
const SAME_OBJECTS: (&str, &str) = ("crd.projectcalico.org", "projectcalico.org");

/// What a word for a kind means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindWord {
    /// The name of a kind, in lower case, maybe with its group (`networkpolicy.projectcalico.org`); without it, every
    /// kind of the name is meant.
    Kind(String),
    /// It may mean several kinds; which.
    Ambiguous(&'static str),
    /// No dialect reads a kind of this word, which is in lower case, and with the group that objects of it have.
    Unknown(String),
}

/// What a word for a kind of policy means.
#[must_use]
pub fn policy_kind_word(word: &str) -> KindWord {
    let mut word = word.to_lowercase();
    let (group, same) = SAME_OBJECTS;
    if let Some(kind) = word.strip_suffix(group).filter(|kind| kind.ends_with('.')) {
        word = format!("{kind}{same}");
    }
    if let Some((_, reason)) = AMBIGUOUS_WORDS.iter().find(|(short, _)| *short == word) {
        return KindWord::Ambiguous(reason);
    }
    let Some(kind) = policy_kinds().find(|kind| words_of(kind).any(|other| other == word)) else {
        return KindWord::Unknown(word);
    };
    // Calico has a kind of the name NetworkPolicy too: both are meant by the name and the plural, one of them with
    // a group or by a short name.
    let lower = kind.kind.to_lowercase();
    let means_all = [&*lower, kind.plural].contains(&&*word) || !is_shared(kind);
    KindWord::Kind(if means_all && !word.contains('.') {
        lower
    } else {
        format!("{lower}.{}", kind.group)
    })
}

/// Whether a kind of another group has the name of this one.
fn is_shared(kind: &PolicyKind) -> bool {
    policy_kinds().any(|other| other.kind == kind.kind && other.group != kind.group)
}

/// The names of a kind that is read.
fn words_of(kind: &PolicyKind) -> impl Iterator<Item = String> + use<> {
    let lower = kind.kind.to_lowercase();
    let qualified = [
        format!("{}.{}", kind.plural, kind.group),
        format!("{lower}.{}", kind.group),
    ];
    let short = kind.short_names.iter().map(|name| (*name).to_owned());
    [lower, kind.plural.to_owned()]
        .into_iter()
        .chain(short)
        .chain(qualified)
}

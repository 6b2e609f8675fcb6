//! Objects that no dialect reads: decides which are ignored and which are likely typos.
//!
//! Promises: a typo in `kind` or `apiVersion` never removes a policy, or an object that policies refer to,
//! from the input without an error. Rejected are
//! - every unknown kind in an API group in which some kind is read;
//! - a kind that is spelled like a network policy, or nearly so, in any group;
//! - any other kind that is spelled nearly like one that is read, in any group: a different case, a plural, a
//!   blank, or (for words of six or more letters that begin alike) one or two letters;
//! - a kind spelled exactly like one that is read, in a group reserved to Kubernetes: one without a dot, one
//!   below `k8s.io` or `kubernetes.io`, and one that is nearly a group that is read.
//!
//! Everything else belongs to other software: `serving.knative.dev/v1 Service` is not a Kubernetes Service.

use crate::dialect::{GroupVersionKind, LoweredObject, literal_id, qualified_kind};
use crate::foreign_policies::{is_foreign_group, is_foreign_policy};
use crate::ignored_kinds::{ignored_kinds, known_groups};
use crate::kind_reader::{KindReader, reader_of, supported_kinds};
use crate::policy_kinds::policy_kinds;
use crate::suggest::{edit_distance, nearest};
use crate::{calico, cilium, kubernetes, policy_api};
use palisade_manifest::{Problem, RawObject};

/// The readers of all dialects.
const READERS: [&[KindReader]; 5] = [
    kubernetes::KINDS,
    policy_api::KINDS,
    cilium::KINDS,
    calico::KINDS,
    calico::CRD_KINDS,
];

/// Whether an object is either read or ignored; false for one that [`reject`] reports.
#[must_use]
pub fn is_known(object: &RawObject) -> bool {
    !is_misspelled(object)
}

/// The result of lowering an object that no dialect reads.
pub(crate) fn lower_unknown(object: &RawObject) -> LoweredObject {
    if is_misspelled(object) {
        reject(object)
    } else {
        ignore(object)
    }
}

/// The kind that an object was likely intended to be, if a dialect reads it and the group is reserved to
/// Kubernetes: such an object counts as an invalid one of that kind.
pub(crate) fn intended_kind(object: &RawObject) -> Option<GroupVersionKind> {
    let group = object.group();
    let is_known_group = ignored_kinds(group).is_some() || is_reserved_group(group);
    is_known_group.then(|| nearest_kind(object)).flatten()
}

/// The nearest kind that a dialect reads.
fn nearest_kind(object: &RawObject) -> Option<GroupVersionKind> {
    let (group, kind) = (object.group(), object.kind.as_str());
    let version: String = object.api_version.chars().take(64).collect();
    let is_candidate =
        |candidate: &GroupVersionKind| candidate.kind == kind || is_misspelling_of(kind, candidate);
    // Kinds of the same group first, then by the edit distance of kind and group.
    let key = |candidate: &GroupVersionKind| {
        let in_other_group = candidate.group != group;
        let of_kind = edit_distance(&normalize(kind), &normalize(candidate.kind));
        // Where the group does not help, kinds of Kubernetes come first.
        let of_group = edit_distance(&version, candidate.group).min(4);
        (in_other_group, of_kind, of_group)
    };
    let candidate = all_kinds().filter(is_candidate).min_by_key(key);
    candidate.or_else(|| {
        let own: Vec<GroupVersionKind> = all_kinds()
            .filter(|candidate| candidate.group == group)
            .collect();
        let mut kinds: Vec<&str> = own.iter().map(|candidate| candidate.kind).collect();
        kinds.extend(ignored_kinds(group)?);
        let word = nearest(kind, &kinds)?;
        own.into_iter().find(|candidate| candidate.kind == word)
    })
}

fn all_kinds() -> impl Iterator<Item = GroupVersionKind> {
    READERS.into_iter().flat_map(supported_kinds)
}

/// Kinds that are also searched for in groups of other software: those of Kubernetes, and policies.
fn kinds_of_any_group() -> impl Iterator<Item = GroupVersionKind> {
    supported_kinds(kubernetes::KINDS)
        .chain(supported_kinds(policy_api::KINDS))
        .chain(supported_kinds(cilium::KINDS).filter(is_policy))
        .chain(supported_kinds(calico::KINDS).filter(is_policy))
        .chain(supported_kinds(calico::CRD_KINDS).filter(is_policy))
}

fn is_misspelled(object: &RawObject) -> bool {
    let (group, kind) = (object.group(), object.kind.as_str());
    if is_foreign_group(group) {
        return false;
    }
    if let Some(ignored) = ignored_kinds(group) {
        let read = all_kinds().any(|candidate| candidate.group == group && candidate.kind == kind);
        let former = kubernetes::is_former_group(object);
        return !read && !former && !ignored.contains(&kind);
    }
    kinds_of_any_group().any(|candidate| {
        if candidate.kind == kind {
            is_policy(&candidate) || is_reserved_group(group)
        } else {
            is_misspelling_of(kind, &candidate)
        }
    })
}

/// Whether a kind may be suggested for an object of an API group: another kind of the group, a kind of Kubernetes, or
/// one whose group is spelled nearly so. What other software calls by the same name has fields of its own.
fn may_suggest(known: &GroupVersionKind, group: &str) -> bool {
    let of_kubernetes = || supported_kinds(kubernetes::KINDS).any(|kind| kind == *known);
    let is_unspecific = !group.contains('.');
    known.group == group
        || is_unspecific
        || edit_distance(group, known.group) <= 3
        || of_kubernetes()
        || is_reserved_group(group) && known.group.ends_with(".k8s.io")
}

/// Whether an API group is reserved to Kubernetes, or nearly equal to one that is read.
fn is_reserved_group(group: &str) -> bool {
    let dotted = group.contains('.');
    let reserved = group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io");
    let near = |other: &str| !other.is_empty() && edit_distance(group, other) <= 2;
    !dotted || reserved || group.len() <= 64 && known_groups().any(near)
}

/// Whether a kind is a misspelling of this one.
fn is_misspelling_of(kind: &str, known: &GroupVersionKind) -> bool {
    // Longer than any kind: not a typo.
    if kind.len() > 64 || kind == known.kind {
        return false;
    }
    let (written, wanted) = (normalize(kind), normalize(known.kind));
    if written == wanted || singulars(&written).any(|one| one == wanted) {
        return true;
    }
    // A prefix that is a word makes another name: `KNetworkPolicy` is a typo, `EgressNetworkPolicy` is not.
    let before = kind.strip_suffix(known.kind);
    if before.is_some_and(|before| before.chars().count() > 1) {
        return false;
    }
    let allowed = match wanted.len() {
        0..6 => 0,
        6..10 => 1,
        _ => 2,
    };
    let begin_alike = written.chars().next() == wanted.chars().next();
    (begin_alike || is_policy(known)) && edit_distance(&written, &wanted) <= allowed
}

/// The letters and digits, in lower case.
fn normalize(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// The words that a word may be the plural of.
fn singulars(word: &str) -> impl Iterator<Item = String> {
    let without = |ending: &str| word.strip_suffix(ending).map(str::to_owned);
    let of_ies = word.strip_suffix("ies").map(|stem| format!("{stem}y"));
    [without("s"), without("es"), of_ies].into_iter().flatten()
}

fn reject(object: &RawObject) -> LoweredObject {
    let likely = nearest_kind(object);
    let group = object.group();
    let is_group_known = likely.map_or(ignored_kinds(group).is_some(), |m| m.group == group);
    let (field, what) = if is_group_known {
        ("kind", quote_short(&object.kind))
    } else {
        ("apiVersion", quote_short(&qualified_kind(object)))
    };
    let group_text = match group {
        "" => "the core API group".to_owned(),
        group => format!("the API group {}", quote_short(group)),
    };
    let hint = match likely.filter(|candidate| may_suggest(candidate, group)) {
        Some(candidate) => format!("did you mean `{}`?", candidate.qualified()),
        None => match nearest(&object.kind, &ignored_kinds(group).unwrap_or_default()) {
            Some(kind) => format!("did you mean `{kind}`?"),
            None => "check apiVersion and kind".to_owned(),
        },
    };
    let reason = if is_group_known {
        format!("unknown kind {what} in {group_text}; {hint}")
    } else {
        format!("unknown apiVersion and kind {what}; {hint}")
    };
    let id = intended_kind(object).and_then(|intended| {
        let mut readers = READERS.into_iter();
        let reader = readers.find_map(|reader| reader_of(reader, intended))?;
        Some(reader.id_of(object))
    });
    let mut lowered = LoweredObject::empty(id.unwrap_or_else(|| literal_id(object)), object);
    let at = object.field().get(field).ok().flatten();
    lowered.errors.push(Problem {
        location: at.map_or(&object.location, |at| at.location()).clone(),
        object: Some(literal_id(object).to_string()),
        field: field.to_owned(),
        reason,
    });
    lowered
}

/// A quoted text, cut to the length of a message.
fn quote_short(text: &str) -> String {
    const SHOWN: usize = 80;
    let more = if text.chars().nth(SHOWN).is_some() {
        "…"
    } else {
        ""
    };
    let shown: String = text.chars().take(SHOWN).collect();
    format!("{:?}", shown + more)
}

fn ignore(object: &RawObject) -> LoweredObject {
    let mut lowered = LoweredObject::empty(literal_id(object), object);
    lowered.ignored = Some(qualified_kind(object));
    if is_foreign_policy(object.group(), &object.kind) {
        lowered.warnings.push(Problem {
            location: object.location.clone(),
            object: Some(lowered.id.to_string()),
            field: "apiVersion".to_owned(),
            reason: format!(
                "kind `{}` of API group `{}` is a policy of other software: Palisade does not enforce it",
                object.kind,
                object.group()
            ),
        });
    }
    lowered
}

/// Whether a kind that is read is a network policy; the groups of resource definitions have the same kinds.
fn is_policy(kind: &GroupVersionKind) -> bool {
    policy_kinds().any(|known| known.kind == kind.kind)
}

//! Objects that no dialect reads: which are of no concern, and which are likely a slip.
//!
//! Promises: a slip in `kind` or `apiVersion` never takes a policy, or what a policy is about, out of
//! the input without an error. Refused are
//! - every kind that is not known in an API group in which there is something to read;
//! - a kind that is spelled like a network policy, or nearly so, in any group;
//! - any other kind that is spelled nearly like one that is read, in any group: another case, a
//!   plural, a blank, or (for words of six letters and more that begin alike) a letter or two;
//! - a kind spelled exactly like one that is read, in a group that nobody else can own: one without a
//!   dot, one below `k8s.io` or `kubernetes.io`, and one that is nearly a group that is read.
//!
//! Everything else is somebody's own: `serving.knative.dev/v1 Service` is no Service.

use crate::dialect::{LoweredObject, literal_id, qualified_kind};
use crate::ignored_kinds::{ignored_kinds, known_groups};
use crate::suggest::{edit_distance, nearest};
use crate::{kubernetes, unsupported};
use palisade_manifest::{Problem, RawObject};

/// A kind that a dialect reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupVersionKind {
    /// Its API group.
    pub(crate) group: &'static str,
    /// The version of the group that is read; none where it does not matter.
    pub(crate) version: Option<&'static str>,
    /// Its name.
    pub(crate) kind: &'static str,
}

impl GroupVersionKind {
    fn is_policy(&self) -> bool {
        self.kind.ends_with("NetworkPolicy")
    }

    /// `apiVersion Kind`, as far as that is settled.
    fn qualified(&self) -> String {
        let version = match (self.group, self.version) {
            ("", version) => version.unwrap_or_default().to_owned(),
            (group, None) => group.to_owned(),
            (group, Some(version)) => format!("{group}/{version}"),
        };
        format!("{version} {}", self.kind)
    }
}

/// Whether an object can be left alone or read: it is not one that [`reject`] is for.
#[must_use]
pub fn is_known(object: &RawObject) -> bool {
    !is_misspelled(object)
}

/// What [`crate::lower_object`] says of an object that no dialect reads.
pub(crate) fn lower_unknown(object: &RawObject) -> LoweredObject {
    if is_misspelled(object) {
        reject(object)
    } else {
        ignore(object)
    }
}

/// The kind that an object was meant to be of, if a dialect reads it and nobody else can have made the
/// group: such an object counts as an invalid one of that kind.
pub(crate) fn intended_kind(object: &RawObject) -> Option<GroupVersionKind> {
    let group = object.group();
    let is_known_group = ignored_kinds(group).is_some() || is_reserved_group(group);
    is_known_group.then(|| nearest_kind(object)).flatten()
}

/// The kind that was likely meant, if that is one a dialect reads.
fn nearest_kind(object: &RawObject) -> Option<GroupVersionKind> {
    let (group, kind) = (object.group(), object.kind.as_str());
    let version: String = object.api_version.chars().take(64).collect();
    let is_candidate =
        |known: &GroupVersionKind| known.kind == kind || is_misspelling_of(kind, known);
    // In their own group first, then by how near the kind and the group are.
    let key = |known: &GroupVersionKind| {
        let in_other_group = known.group != group;
        let of_kind = edit_distance(&normalize(kind), &normalize(known.kind));
        // Where the group says nothing, Kubernetes' own kinds come first.
        let of_group = edit_distance(&version, known.group).min(4);
        (in_other_group, of_kind, of_group)
    };
    let candidate = all_kinds().filter(is_candidate).min_by_key(key);
    candidate.or_else(|| {
        let own: Vec<GroupVersionKind> = all_kinds().filter(|known| known.group == group).collect();
        let mut kinds: Vec<&str> = own.iter().map(|known| known.kind).collect();
        kinds.extend(ignored_kinds(group)?);
        let word = nearest(kind, &kinds)?;
        own.into_iter().find(|known| known.kind == word)
    })
}

fn all_kinds() -> impl Iterator<Item = GroupVersionKind> {
    kubernetes::supported_kinds().chain(unsupported::recognised_kinds())
}

/// Kinds that are looked for in groups of others: what Kubernetes serves itself, and policies.
fn kinds_of_any_group() -> impl Iterator<Item = GroupVersionKind> {
    kubernetes::supported_kinds()
        .chain(unsupported::recognised_kinds().filter(GroupVersionKind::is_policy))
}

fn is_misspelled(object: &RawObject) -> bool {
    let (group, kind) = (object.group(), object.kind.as_str());
    if let Some(ignored) = ignored_kinds(group) {
        let read = all_kinds().any(|known| known.group == group && known.kind == kind);
        let former = kubernetes::is_former_group(object);
        return !read && !former && !ignored.contains(&kind);
    }
    kinds_of_any_group().any(|known| {
        if known.kind == kind {
            known.is_policy() || is_reserved_group(group)
        } else {
            is_misspelling_of(kind, &known)
        }
    })
}

/// Whether nobody but Kubernetes can own an API group, or it is nearly one that is read.
fn is_reserved_group(group: &str) -> bool {
    let dotted = group.contains('.');
    let reserved = group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io");
    let near = |known: &str| !known.is_empty() && edit_distance(group, known) <= 2;
    !dotted || reserved || group.len() <= 64 && known_groups().any(near)
}

/// Whether a kind is another spelling of this one.
fn is_misspelling_of(kind: &str, known: &GroupVersionKind) -> bool {
    // Longer than any kind, and not a slip of the hand.
    if kind.len() > 64 || kind == known.kind {
        return false;
    }
    let (written, wanted) = (normalize(kind), normalize(known.kind));
    if written == wanted || singulars(&written).any(|one| one == wanted) {
        return true;
    }
    // A word put before it is a name of its own: `KNetworkPolicy` is a slip, `EgressNetworkPolicy` not.
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
    (begin_alike || known.is_policy()) && edit_distance(&written, &wanted) <= allowed
}

/// The letters and digits, in lower case.
fn normalize(text: &str) -> String {
    let kept = text.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// What a word may be the plural of.
fn singulars(word: &str) -> impl Iterator<Item = String> {
    let without = |ending: &str| word.strip_suffix(ending).map(str::to_owned);
    let of_ies = word.strip_suffix("ies").map(|stem| format!("{stem}y"));
    [without("s"), without("es"), of_ies].into_iter().flatten()
}

fn reject(object: &RawObject) -> LoweredObject {
    let likely = nearest_kind(object);
    let group = object.group();
    let is_group_known = likely.map_or(ignored_kinds(group).is_some(), |m| m.group == group);
    let (field, what) = match is_group_known {
        true => ("kind", quote_short(&object.kind)),
        false => ("apiVersion", quote_short(&qualified_kind(object))),
    };
    let place = match group {
        "" => "the core API group".to_owned(),
        group => format!("the API group {}", quote_short(group)),
    };
    let hint = match likely {
        Some(known) => format!("did you mean `{}`?", known.qualified()),
        None => match nearest(&object.kind, ignored_kinds(group).unwrap_or_default()) {
            Some(kind) => format!("did you mean `{kind}`?"),
            None => "check apiVersion and kind".to_owned(),
        },
    };
    let reason = match is_group_known {
        true => format!("{what} is no kind of {place}; {hint}"),
        false => format!("{what} is nothing that is read here; {hint}"),
    };
    let id = intended_kind(object).and_then(|known| kubernetes::object_id_as(object, known));
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

/// A text in quotes, and not more of it than a message bears.
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
    if object.kind.ends_with("NetworkPolicy") {
        lowered.warnings.push(Problem {
            location: object.location.clone(),
            object: Some(lowered.id.to_string()),
            field: "apiVersion".to_owned(),
            reason: format!(
                "`{}` in API group `{}` is no kind that Palisade reads: it has no effect",
                object.kind,
                object.group()
            ),
        });
    }
    lowered
}

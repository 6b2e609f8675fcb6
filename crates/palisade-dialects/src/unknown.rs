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

use crate::dialect::{Lowered, full_kind, written_id};
use crate::kinds::{groups, of_no_concern};
use crate::suggest::{distance, nearest};
use crate::{kubernetes, pending};
use palisade_manifest::{Problem, RawObject};

/// A kind that a dialect reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its API group.
    pub(crate) group: &'static str,
    /// The version of the group that is read; none where it does not matter.
    pub(crate) version: Option<&'static str>,
    /// Its name.
    pub(crate) kind: &'static str,
}

impl Known {
    fn is_policy(&self) -> bool {
        self.kind.ends_with("NetworkPolicy")
    }

    /// `apiVersion Kind`, as far as that is settled.
    fn full(&self) -> String {
        let version = match (self.group, self.version) {
            ("", version) => version.unwrap_or_default().to_owned(),
            (group, None) => group.to_owned(),
            (group, Some(version)) => format!("{group}/{version}"),
        };
        format!("{version} {}", self.kind)
    }
}

/// Whether an object can be left alone or read: it is not one that [`refuse`] is for.
#[must_use]
pub fn is_known(object: &RawObject) -> bool {
    !is_slip(object)
}

/// What [`crate::read`] says of an object that no dialect reads.
pub(crate) fn read(object: &RawObject) -> Lowered {
    if is_slip(object) {
        refuse(object)
    } else {
        ignore(object)
    }
}

/// The kind that an object was meant to be of, if a dialect reads it and nobody else can have made the
/// group: such an object counts as an invalid one of that kind.
pub(crate) fn meant(object: &RawObject) -> Option<Known> {
    let group = object.group();
    let is_ours = of_no_concern(group).is_some() || is_nobodys(group);
    is_ours.then(|| nearest_kind(object)).flatten()
}

/// The kind that was likely meant, if that is one a dialect reads.
fn nearest_kind(object: &RawObject) -> Option<Known> {
    let (group, kind) = (object.group(), object.kind.as_str());
    let version: String = object.api_version.chars().take(64).collect();
    let near = |known: &Known| known.kind == kind || is_near(kind, known);
    // In their own group first, then by how near the kind and the group are.
    let key = |known: &Known| {
        let elsewhere = known.group != group;
        let of_kind = distance(&letters(kind), &letters(known.kind));
        // Where the group says nothing, Kubernetes' own kinds come first.
        let of_group = distance(&version, known.group).min(4);
        (elsewhere, of_kind, of_group)
    };
    let near = all().filter(near).min_by_key(key);
    near.or_else(|| {
        let own: Vec<Known> = all().filter(|known| known.group == group).collect();
        let mut kinds: Vec<&str> = own.iter().map(|known| known.kind).collect();
        kinds.extend(of_no_concern(group)?);
        let word = nearest(kind, &kinds)?;
        own.into_iter().find(|known| known.kind == word)
    })
}

fn all() -> impl Iterator<Item = Known> {
    kubernetes::kinds().chain(pending::kinds())
}

/// Kinds that are looked for in groups of others: what Kubernetes serves itself, and policies.
fn everywhere() -> impl Iterator<Item = Known> {
    kubernetes::kinds().chain(pending::kinds().filter(Known::is_policy))
}

fn is_slip(object: &RawObject) -> bool {
    let (group, kind) = (object.group(), object.kind.as_str());
    if let Some(of_no_concern) = of_no_concern(group) {
        let read = all().any(|known| known.group == group && known.kind == kind);
        let former = kubernetes::served_before(object);
        return !read && !former && !of_no_concern.contains(&kind);
    }
    everywhere().any(|known| {
        if known.kind == kind {
            known.is_policy() || is_nobodys(group)
        } else {
            is_near(kind, &known)
        }
    })
}

/// Whether nobody but Kubernetes can own an API group, or it is nearly one that is read.
fn is_nobodys(group: &str) -> bool {
    let dotted = group.contains('.');
    let reserved = group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io");
    let near = |known: &str| !known.is_empty() && distance(group, known) <= 2;
    !dotted || reserved || group.len() <= 64 && groups().any(near)
}

/// Whether a kind is another spelling of this one.
fn is_near(kind: &str, known: &Known) -> bool {
    // Longer than any kind, and not a slip of the hand.
    if kind.len() > 64 || kind == known.kind {
        return false;
    }
    let (written, wanted) = (letters(kind), letters(known.kind));
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
    (begin_alike || known.is_policy()) && distance(&written, &wanted) <= allowed
}

/// The letters and digits, in lower case.
fn letters(text: &str) -> String {
    let kept = text.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// What a word may be the plural of.
fn singulars(word: &str) -> impl Iterator<Item = String> {
    let without = |ending: &str| word.strip_suffix(ending).map(str::to_owned);
    let of_ies = word.strip_suffix("ies").map(|stem| format!("{stem}y"));
    [without("s"), without("es"), of_ies].into_iter().flatten()
}

fn refuse(object: &RawObject) -> Lowered {
    let likely = nearest_kind(object);
    let group = object.group();
    let right_group = likely.map_or(of_no_concern(group).is_some(), |m| m.group == group);
    let (field, what) = match right_group {
        true => ("kind", cut(&object.kind)),
        false => ("apiVersion", cut(&full_kind(object))),
    };
    let place = match group {
        "" => "the core API group".to_owned(),
        group => format!("the API group {}", cut(group)),
    };
    let hint = match likely {
        Some(known) => format!("did you mean `{}`?", known.full()),
        None => match nearest(&object.kind, of_no_concern(group).unwrap_or_default()) {
            Some(kind) => format!("did you mean `{kind}`?"),
            None => "check apiVersion and kind".to_owned(),
        },
    };
    let reason = match right_group {
        true => format!("{what} is no kind of {place}; {hint}"),
        false => format!("{what} is nothing that is read here; {hint}"),
    };
    let id = meant(object).and_then(|known| kubernetes::identity_as(object, known));
    let mut lowered = Lowered::empty(id.unwrap_or_else(|| written_id(object)), object);
    let at = object.field().get(field).ok().flatten();
    lowered.errors.push(Problem {
        location: at.map_or(&object.location, |at| at.location()).clone(),
        object: Some(written_id(object).to_string()),
        field: field.to_owned(),
        reason,
    });
    lowered
}

/// A text in quotes, and not more of it than a message bears.
fn cut(text: &str) -> String {
    const SHOWN: usize = 80;
    let more = if text.chars().nth(SHOWN).is_some() {
        "…"
    } else {
        ""
    };
    let shown: String = text.chars().take(SHOWN).collect();
    format!("{:?}", shown + more)
}

fn ignore(object: &RawObject) -> Lowered {
    let mut lowered = Lowered::empty(written_id(object), object);
    lowered.ignored = Some(full_kind(object));
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

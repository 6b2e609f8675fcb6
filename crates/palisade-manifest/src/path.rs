//! The path of a field inside its object.

use crate::describe::{cut_middle, shorten_to};
use std::fmt;
use std::sync::Arc;

/// The maximum number of characters shown of a key: the length of the longest label key.
const MAX_KEY_CHARS: usize = 317;

/// The path from an object's root to one of its values, shown as `spec.ingress[0].from[1]`.
///
/// The steps are shared, so extending a path does not copy it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Option<Arc<PathLink>>);

#[derive(Debug, PartialEq, Eq)]
struct PathLink {
    parent: FieldPath,
    segment: PathSegment,
}

#[derive(Debug, PartialEq, Eq)]
enum PathSegment {
    Key(Arc<str>),
    Index(usize),
}

impl FieldPath {
    /// The path of the root itself.
    #[must_use]
    pub fn root() -> Self {
        Self(None)
    }

    /// The path of the field `key` of this object.
    #[must_use]
    pub fn key(&self, key: impl Into<Arc<str>>) -> Self {
        self.child(PathSegment::Key(key.into()))
    }

    /// The path of the item `index` of this list, counted from 0.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.child(PathSegment::Index(index))
    }

    /// Whether this is the path of the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// The same path with `outer` in front.
    pub(crate) fn prefixed_with(&self, outer: &FieldPath) -> Self {
        let Some(step) = &self.0 else {
            return outer.clone();
        };
        let parent = step.parent.prefixed_with(outer);
        match &step.segment {
            PathSegment::Key(key) => parent.key(Arc::clone(key)),
            PathSegment::Index(index) => parent.index(*index),
        }
    }

    /// The path without its first step.
    pub(crate) fn without_first(&self) -> Self {
        let Some(step) = &self.0 else {
            return Self::root();
        };
        if step.parent.is_root() {
            return Self::root();
        }
        step.parent.without_first().child(match &step.segment {
            PathSegment::Key(key) => PathSegment::Key(Arc::clone(key)),
            PathSegment::Index(index) => PathSegment::Index(*index),
        })
    }

    fn child(&self, to: PathSegment) -> Self {
        Self(Some(Arc::new(PathLink {
            parent: self.clone(),
            segment: to,
        })))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::new();
        self.write(&mut shown)?;
        f.write_str(&cut_middle(shown))
    }
}

impl FieldPath {
    /// Writes the path; long keys are cut.
    fn write(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let mut steps = Vec::new();
        let mut current = self;
        while let Some(step) = &current.0 {
            steps.push(&step.segment);
            current = &step.parent;
        }
        for (position, segment) in steps.iter().rev().enumerate() {
            match segment {
                PathSegment::Index(index) => write!(f, "[{index}]")?,
                PathSegment::Key(key) if !is_plain(key) || key.len() > MAX_KEY_CHARS => {
                    write!(f, "[{}]", shorten_to(key, MAX_KEY_CHARS))?;
                }
                PathSegment::Key(key) if position == 0 => f.write_str(key)?,
                PathSegment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// Whether a key needs no quotes in a dotted path.
fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || b == b'$')
}

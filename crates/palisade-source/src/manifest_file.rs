//! One manifest file: its stamp, its objects and its problems.
//!
//! The number of problems of a file is limited by the quota of its tree. It reads no file and never decides
//! which version is in force.

use crate::file_object::FileObjects;
use crate::file_problem::{file_problem, printable_path};
use crate::name_index::NameIndex;
use crate::templates::{self, FileSummary};
use palisade_dialects::{
    MAX_PROBLEMS_PER_FILE, MAX_PROBLEMS_PER_INPUT, OmittedCounts, ProblemQuota,
};
use palisade_manifest::{Limits, Problem, extract_objects, parse};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Identifies a file or folder whatever its names: device and inode.
pub(crate) type FileId = (u64, u64);

/// Identifies a version of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) id: FileId,
    pub(crate) size: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Stamp {
            id: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// One file as last read.
#[derive(Clone, Debug)]
pub(crate) struct ManifestFile {
    pub(crate) stamp: Option<Stamp>,
    /// Its objects.
    pub(crate) content: Arc<FileObjects>,
    /// The problems of documents that could not be parsed.
    pub(crate) problems: Arc<Vec<Problem>>,
    /// Whether it may hold objects that are not in `content`.
    pub(crate) incomplete: bool,
    /// Whether the file is empty.
    pub(crate) empty: bool,
    /// The names in the text of an incomplete file, as far as it could be read.
    pub(crate) names: Option<NameIndex>,
    /// The number of its listed problems.
    pub(crate) reported: ProblemCounts,
    /// The number of its problems that are only counted.
    pub(crate) omitted: OmittedCounts,
    /// The free room in the tree's quota when the file was read.
    pub(crate) quota_room: ProblemCounts,
}

/// Numbers of listed errors and warnings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProblemCounts {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
}

impl ProblemCounts {
    /// The free room in the quota of an input in which so many problems are listed.
    pub(crate) fn room(self) -> ProblemCounts {
        let limit = ProblemCounts {
            errors: MAX_PROBLEMS_PER_INPUT,
            warnings: MAX_PROBLEMS_PER_INPUT,
        };
        limit.minus(self)
    }

    pub(crate) fn plus(self, other: ProblemCounts) -> ProblemCounts {
        ProblemCounts {
            errors: self.errors + other.errors,
            warnings: self.warnings + other.warnings,
        }
    }

    pub(crate) fn minus(self, other: ProblemCounts) -> ProblemCounts {
        ProblemCounts {
            errors: self.errors.saturating_sub(other.errors),
            warnings: self.warnings.saturating_sub(other.warnings),
        }
    }
}

impl ManifestFile {
    /// Whether it may hold an unreadable object of this name.
    pub(crate) fn may_define(&self, name: &str) -> bool {
        self.unparsed_names()
            .is_some_and(|text| text.contains(name))
    }

    /// The names in its text, if it may hold objects that could not be read.
    pub(crate) fn unparsed_names(&self) -> Option<&NameIndex> {
        self.names.as_ref().filter(|_| self.incomplete)
    }

    /// Whether any of its problems is listed.
    pub(crate) fn has_reported_problems(&self) -> bool {
        self.reported != ProblemCounts::default()
    }

    /// Whether all of its problems are listed, and there is room for them.
    pub(crate) fn is_within(&self, room: ProblemCounts) -> bool {
        self.omitted.is_empty() && self.reported.minus(room) == ProblemCounts::default()
    }

    /// Whether problems that exceeded the quota when the file was read would fit now.
    pub(crate) fn may_report_more(&self, quota_room: ProblemCounts) -> bool {
        let more = |omitted: usize, room_before: usize, room_now: usize| {
            omitted > 0 && room_before < room_now.min(MAX_PROBLEMS_PER_FILE)
        };
        more(
            self.omitted.errors,
            self.quota_room.errors,
            quota_room.errors,
        ) || more(
            self.omitted.warnings,
            self.quota_room.warnings,
            quota_room.warnings,
        )
    }
}

/// Parses the text of a file.
pub(crate) fn parse_file(
    path: &Path,
    bytes: &[u8],
    limits: &Limits,
    quota_room: ProblemCounts,
) -> ManifestFile {
    let mut parsed = extract_objects(parse(&printable_path(path), bytes, limits), limits);
    let mut summary = FileSummary::default();
    parsed.objects.retain(|object| summary.add(object));
    templates::reword_problems(path, bytes, summary, &mut parsed.problems);
    // An object of an unknown kind may be a misspelled one that was in force.
    let known = parsed.objects.iter().all(palisade_dialects::is_known);
    let incomplete = !parsed.problems.is_empty() || !known;
    let limit = ProblemCounts {
        errors: quota_room.errors.min(MAX_PROBLEMS_PER_FILE),
        warnings: quota_room.warnings.min(MAX_PROBLEMS_PER_FILE),
    };
    let mut quota = ProblemQuota::new(limit.errors, limit.warnings);
    let mut problems = parsed.problems;
    problems.retain(|_| quota.admit(true));
    let content = FileObjects::lower(path, parsed.objects, &mut quota);
    let (errors, warnings) = quota.remaining();
    ManifestFile {
        stamp: None,
        incomplete,
        empty: bytes.iter().all(u8::is_ascii_whitespace),
        names: incomplete.then(|| NameIndex::build(bytes)),
        content: Arc::new(content),
        problems: Arc::new(problems),
        reported: limit.minus(ProblemCounts { errors, warnings }),
        omitted: quota.omitted(),
        quota_room,
    }
}

/// A file that cannot be read: no objects, and one problem with the reason.
pub(crate) fn unreadable_file(
    path: &Path,
    reason: String,
    quota_room: ProblemCounts,
) -> ManifestFile {
    let mut quota = ProblemQuota::new(quota_room.errors, quota_room.warnings);
    let has_room = quota.admit(true);
    let problem = has_room.then(|| file_problem(path, reason));
    ManifestFile {
        stamp: None,
        content: Arc::default(),
        problems: Arc::new(problem.into_iter().collect()),
        incomplete: true,
        empty: false,
        names: None,
        reported: ProblemCounts {
            errors: usize::from(has_room),
            warnings: 0,
        },
        omitted: quota.omitted(),
        quota_room,
    }
}

/// The identity of the file at a path, following links.
pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Whether the file name is that of a manifest.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

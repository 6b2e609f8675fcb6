//! The first read of a big tree, in parts: a part is passed on, and freed, before the next is read, and its
//! files are parsed by several threads.
//!
//! Only what a part can hold without a doubt is read here: plain files under one name that nobody has open for
//! writing, with problems that fit into the quota. The full scan that follows ([`Tree::scan`]) reads the others,
//! and alone decides what is complete. It never removes an object.

use crate::manifest_file::{ManifestFile, Stamp, parse_file};
use crate::roots::Roots;
use crate::scan::Tree;
use palisade_manifest::Limits;
use palisade_sys::writers::{WriterPresence, detect_writers};
use std::collections::BTreeSet;
use std::io::Read;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The size of the files of a part. A smaller tree is not read in parts.
pub(crate) const PART_BYTES: u64 = 1 << 20;

/// How many threads parse, at most: each holds a parsed file.
const MAX_PARSERS: usize = 4;

/// A file that was read and is to be parsed.
struct FileText {
    path: PathBuf,
    stamp: Stamp,
    bytes: Vec<u8>,
    parsed: OnceLock<ManifestFile>,
}

impl Tree {
    /// Reads the files that come next until a part is full; returns those that are in the tree now.
    pub(crate) fn read_part(
        &mut self,
        paths: &mut dyn Iterator<Item = PathBuf>,
    ) -> BTreeSet<PathBuf> {
        let mut roots = Roots::new(&self.roots);
        let mut texts = Vec::new();
        let mut size = 0;
        while size < PART_BYTES
            && let Some(path) = paths.next()
        {
            let text = read_text(path, &mut roots);
            size += text.as_ref().map_or(0, |text| text.stamp.size);
            texts.extend(text);
        }
        self.parse_all(&texts);
        let mut part = BTreeSet::new();
        for FileText { path, parsed, .. } in texts {
            let room = self.reported.room();
            let parsed = parsed.into_inner().filter(|file| file.is_within(room));
            if let Some(file) = parsed {
                self.replace_file(&path, Some(file));
                part.insert(path);
            }
        }
        part
    }

    fn parse_all(&self, texts: &[FileText]) {
        let room = self.reported.room();
        let limits = Limits::default();
        let next = AtomicUsize::new(0);
        let parse = || {
            while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
                text.parsed.get_or_init(|| ManifestFile {
                    stamp: Some(text.stamp),
                    ..parse_file(&text.path, &text.bytes, &limits, room)
                });
            }
        };
        let parsers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 1..parsers.min(MAX_PARSERS).min(texts.len()) {
                // Without a further thread this one parses more.
                let _ = thread::Builder::new().spawn_scoped(scope, parse);
            }
            parse();
        });
    }
}

/// Reads a plain file that is not open for writing.
fn read_text(path: PathBuf, roots: &mut Roots) -> Option<FileText> {
    let is_plain = |path: &Path| {
        std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.nlink() == 1)
    };
    let opened = is_plain(&path).then(|| roots.open(&path).ok())??;
    let stamp = Stamp::of(opened.meta());
    let limit = Limits::default().file_bytes as u64;
    let file = opened.read().ok()?;
    if stamp.size > limit || detect_writers(&file) == WriterPresence::Present {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).ok()?);
    file.take(limit + 1).read_to_end(&mut bytes).ok()?;
    Some(FileText {
        path,
        stamp,
        bytes,
        parsed: OnceLock::new(),
    })
}

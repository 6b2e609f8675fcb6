//! Where a tree ends: at the folders and files that were configured.
//!
//! A link may lead anywhere within them, by any way. Promises: it is decided by where what was opened
//! really is, not by the path that led there, so nobody can turn a link between the look and the
//! reading. Never: reads what is outside.

use palisade_sys::path_handle::PathHandle;
use std::fs::{canonicalize, read_link};
use std::io;
use std::path::{Path, PathBuf};

/// The roots, and where they really are.
#[derive(Debug)]
pub(crate) struct Roots {
    paths: Vec<PathBuf>,
    real: Vec<PathBuf>,
}

/// Why something was not opened.
#[derive(Debug)]
pub(crate) enum RootOpenError {
    /// It could not be.
    Io(io::Error),
    /// It is not within the roots; which link led there, for people.
    OutsideRoots(String),
}

impl Roots {
    /// These, as they lead now.
    pub(crate) fn new(paths: &[PathBuf]) -> Self {
        let mut roots = Roots {
            paths: paths.to_vec(),
            real: Vec::new(),
        };
        roots.resolve();
        roots
    }

    fn resolve(&mut self) {
        let opened = self
            .paths
            .iter()
            .filter_map(|path| PathHandle::open(path).ok());
        self.real = opened.map(|opened| opened.path().to_owned()).collect();
    }

    /// Opens what a path leads to, if that is within the roots.
    pub(crate) fn open(&mut self, path: &Path) -> Result<PathHandle, RootOpenError> {
        let opened = PathHandle::open(path).map_err(RootOpenError::Io)?;
        if self.contains(opened.path()) {
            return Ok(opened);
        }
        Err(RootOpenError::OutsideRoots(
            self.outside_reason(path, opened.path()),
        ))
    }

    /// Whether a place is within the roots. These may have been turned since.
    fn contains(&mut self, real: &Path) -> bool {
        let within = |roots: &Roots| roots.real.iter().any(|root| real.starts_with(root));
        if within(self) {
            return true;
        }
        self.resolve();
        within(self)
    }

    fn outside_reason(&mut self, path: &Path, real: &Path) -> String {
        let link = self.escaping_link(path);
        let link = link.as_deref().unwrap_or(path);
        let target = read_link(link).unwrap_or_else(|_| real.to_owned());
        let subject = if link == path {
            "it".to_owned()
        } else {
            link.display().to_string()
        };
        format!(
            "{subject} is a link to {}, which leads out of the folder: nothing of it is read, and what it \
             held stays in force; put the files themselves into the folder",
            target.display()
        )
    }

    /// The first link on the way from a root that leads out.
    fn escaping_link(&mut self, path: &Path) -> Option<PathBuf> {
        let root = self.paths.iter().find(|root| path.starts_with(root))?;
        let mut at = root.clone();
        let rest = path.strip_prefix(root).ok()?.to_owned();
        for part in rest.components() {
            at.push(part);
            let is_link = std::fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_symlink());
            if is_link && canonicalize(&at).is_ok_and(|real| !self.contains(&real)) {
                return Some(at);
            }
        }
        None
    }
}

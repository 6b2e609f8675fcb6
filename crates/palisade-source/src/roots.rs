//! Confines a tree to its roots, the configured folders and files.
//!
//! A link may lead anywhere within the roots. Promises: the check uses the real path of the opened file, not
//! the path that led there, so replacing a link between check and read has no effect. It never reads anything
//! outside the roots.

use palisade_sys::path_handle::PathHandle;
use std::fs::{canonicalize, read_link};
use std::io;
use std::path::{Path, PathBuf};

/// The roots and their real paths.
#[derive(Debug)]
pub(crate) struct Roots {
    paths: Vec<PathBuf>,
    real: Vec<PathBuf>,
}

/// Why a path was not opened.
#[derive(Debug)]
pub(crate) enum RootOpenError {
    /// Opening it failed.
    Io(io::Error),
    /// It is outside the roots; the text names the link that led there.
    OutsideRoots(String),
}

impl Roots {
    /// Resolves the roots as they are now.
    pub(crate) fn new(paths: &[PathBuf]) -> Self {
        let mut roots = Roots {
            paths: paths.to_vec(),
            real: Vec::new(),
        };
        // What cannot be opened now is opened again before a path counts as outside.
        drop(roots.resolve());
        roots
    }

    /// Resolves the roots again. A root that does not exist has no real path.
    fn resolve(&mut self) -> io::Result<()> {
        let mut real = Vec::new();
        for path in &self.paths {
            match PathHandle::open(path) {
                Ok(opened) => real.push(opened.path().to_owned()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.real = real;
        Ok(())
    }

    /// Opens what a path leads to, if that is within the roots.
    pub(crate) fn open(&mut self, path: &Path) -> Result<PathHandle, RootOpenError> {
        let opened = PathHandle::open(path).map_err(RootOpenError::Io)?;
        if self.contains(opened.path()).map_err(RootOpenError::Io)? {
            return Ok(opened);
        }
        Err(RootOpenError::OutsideRoots(
            self.outside_reason(path, opened.path()),
        ))
    }

    /// Whether a real path is within the roots. The roots themselves may be links that changed since.
    fn contains(&mut self, real: &Path) -> io::Result<bool> {
        let within = |roots: &Roots| roots.real.iter().any(|root| real.starts_with(root));
        if within(self) {
            return Ok(true);
        }
        self.resolve()?;
        Ok(within(self))
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
            "{subject} is a symbolic link to {}, outside the given folders, and is not followed; its \
             previous objects stay in force; copy the files into the folder",
            target.display()
        )
    }

    /// The first link on the path below a root that leads outside.
    fn escaping_link(&mut self, path: &Path) -> Option<PathBuf> {
        let root = self.paths.iter().find(|root| path.starts_with(root))?;
        let mut at = root.clone();
        let rest = path.strip_prefix(root).ok()?.to_owned();
        for part in rest.components() {
            at.push(part);
            let is_link = std::fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_symlink());
            if is_link
                && canonicalize(&at).is_ok_and(|real| matches!(self.contains(&real), Ok(false)))
            {
                return Some(at);
            }
        }
        None
    }
}

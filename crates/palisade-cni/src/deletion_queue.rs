//! The queue of deletions that the agent has not executed: one file each, in a directory with a lock.
//!
//! The plugin adds a file if the agent does not respond; the agent executes the deletions at its start,
//! before it serves requests. Both hold the lock meanwhile, and the plugin tries the agent again under the
//! lock, so that no deletion is added after the agent has read the queue.

use crate::error::CniError;
use palisade_api::CniAttachment;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// `O_NONBLOCK`: a FIFO in place of the lock is an error, and is not waited for.
const NONBLOCK: i32 = 0o4000;

/// The directory of deletions, locked.
#[derive(Debug)]
pub(crate) struct DeletionQueue {
    folder: PathBuf,
    _lock: File,
}

fn io_error(doing: &str, path: &Path, source: io::Error) -> CniError {
    CniError::Io {
        doing: format!("{doing} {}", path.display()),
        source,
    }
}

impl DeletionQueue {
    /// Creates the directory if it is missing, and waits for its lock.
    #[allow(
        clippy::disallowed_methods,
        reason = "only the plugin and the agent use the queue's files"
    )]
    pub(crate) fn lock(folder: &Path) -> Result<Self, CniError> {
        fs::create_dir_all(folder).map_err(|e| io_error("making", folder, e))?;
        let path = folder.join(palisade_api::cni_queue::LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags(NONBLOCK)
            .open(&path)
            .map_err(|e| io_error("opening", &path, e))?;
        lock.lock().map_err(|e| io_error("locking", &path, e))?;
        Ok(DeletionQueue {
            folder: folder.to_path_buf(),
            _lock: lock,
        })
    }

    /// Adds a deletion; it is on disk when this returns.
    #[allow(
        clippy::disallowed_methods,
        reason = "only the plugin and the agent use the queue's files"
    )]
    pub(crate) fn push(&self, attachment: &CniAttachment) -> Result<(), CniError> {
        let path = self
            .folder
            .join(palisade_api::cni_queue::file_name(attachment));
        let temporary = path.with_extension("making");
        let write = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(&serde_json::to_vec(attachment)?)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|e| io_error("writing", &path, e))
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests use the standard library's calls"
)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_one_file_however_often_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("queue");
        let attachment = CniAttachment {
            container: "abc".to_owned(),
            network: "pods".to_owned(),
            interface: "eth0".to_owned(),
        };
        for _ in 0..2 {
            DeletionQueue::lock(&folder)
                .unwrap()
                .push(&attachment)
                .unwrap();
        }
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["lock", "pods,abc,eth0.json"]);
        let text = fs::read(folder.join("pods,abc,eth0.json")).unwrap();
        let read: CniAttachment = serde_json::from_slice(&text).unwrap();
        assert_eq!(read, attachment);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = DeletionQueue::lock(Path::new("/dev/null/queue")).unwrap_err();
        assert_eq!(error.code(), 5);
        assert!(error.to_string().starts_with("making /dev/null/queue"));
    }
}

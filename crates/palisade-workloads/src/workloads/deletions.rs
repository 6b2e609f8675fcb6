//! CNI DELs that the plugin queued while no agent ran: executed once, at the next start.
//!
//! At the start the agent opens its socket, takes the lock of the queue, executes the queued DELs, and
//! only then answers requests. The plugin writes under the lock and only while the agent's socket is
//! closed, so no DEL is queued after the agent has read the queue. A DEL that fails stays queued, is
//! reported, and is retried.

use super::Workloads;
use super::cni::del;
use palisade_api::{CniAttachment, cni_queue};
use palisade_network::node_state::NodeState;
use palisade_text::error_chain;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The queue directory within a state directory.
pub fn queue_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("cni-queue")
}

/// The queued DELs of a directory.
///
/// # Errors
/// If the directory cannot be listed. A missing directory is an empty queue.
#[allow(
    clippy::disallowed_methods,
    reason = "the queue directory is the interface to the CNI plugin while no agent runs"
)]
pub fn queued_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Executes every queued DEL; returns their number.
///
/// # Errors
/// If the queue cannot be locked or read. The content of a file is never an error.
#[allow(
    clippy::disallowed_methods,
    reason = "the queue directory is the interface to the CNI plugin while no agent runs"
)]
pub fn run_queued_deletions(workloads: &mut Workloads, node: &mut NodeState) -> io::Result<usize> {
    let folder = queue_dir(&workloads.sections.state.dir);
    fs::create_dir_all(&folder)?;
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let path = folder.join(cni_queue::LOCK);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let lock = palisade_sys::plain_file::open_with(&mut options, &path).map_err(named)?;
    lock.lock().map_err(named)?;
    let mut done = 0;
    if palisade_sys::fault::is_injected("deletion-ignored") {
        return Ok(done);
    }
    workloads.deletions_failed = false;
    for path in queued_files(&folder)? {
        match run_queued_deletion(workloads, node, &path) {
            Ok(()) => done += 1,
            Err(error) => {
                workloads.deletions_failed = true;
                tracing::error!(file = %path.display(), %error, "a queued CNI DEL failed; will retry");
            }
        }
    }
    if done > 0 {
        tracing::info!(
            deletions = done,
            "ran CNI DELs that were queued while no agent was running"
        );
    }
    Ok(done)
}

#[allow(
    clippy::disallowed_methods,
    reason = "the queue directory is the interface to the CNI plugin while no agent runs"
)]
fn run_queued_deletion(
    workloads: &mut Workloads,
    node: &mut NodeState,
    path: &Path,
) -> Result<(), String> {
    let text = palisade_sys::plain_file::read(path).map_err(|error| error.to_string())?;
    let attachment: CniAttachment =
        serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    del(workloads, node, attachment).map_err(|error| error_chain(&error))?;
    fs::remove_file(path).map_err(|error| error.to_string())
}

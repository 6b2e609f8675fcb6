//! The kernel parameters of the whole machine that kubelets change, as they were before the first.

use std::fs;
use std::path::{Path, PathBuf};

/// Under `/proc/sys`.
const CHANGED_BY_KUBELET: [&str; 3] = [
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
];

/// Kernel parameters and their values, which are put back when this is dropped.
#[derive(Debug)]
pub(super) struct KernelParameters(Vec<(PathBuf, String)>);

impl KernelParameters {
    /// The present values.
    pub(super) fn read() -> Self {
        let present = CHANGED_BY_KUBELET.iter().filter_map(|key| {
            let path = Path::new("/proc/sys").join(key);
            let value = fs::read_to_string(&path).ok()?;
            Some((path, value))
        });
        Self(present.collect())
    }
}

impl Drop for KernelParameters {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            #[allow(
                clippy::disallowed_methods,
                reason = "a kernel parameter has no earlier content that a crash could lose"
            )]
            if let Err(error) = fs::write(path, value) {
                eprintln!("left changed: {}: {error}", path.display());
            }
        }
    }
}

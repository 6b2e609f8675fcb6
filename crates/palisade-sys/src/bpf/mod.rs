//! BPF: maps, programs and their links, by `bpf(2)`.
//!
//! Promises: an operation names the object on failure, and a refused program has the verifier's log; batches are
//! complete or fail; a pinned object is used only if it has the shape that is expected. Objects that are not pinned end
//! with their last descriptor.
//!
//! Never: parses an object file, changes a program, or raises a limit.

mod link;
mod map;
mod pin;
mod program;
mod ring;
mod syscall;

pub use link::{AttachPoint, AttachedProgram, BpfLink, attached_programs};
pub use map::{BpfMap, BpfMapElement, MapFlags, MapKind, MapShape, MapView, UpdateMode};
pub use pin::is_bpf_file_system;
pub use program::{BpfProgram, Btf, DebugRecords, LoadError, ProgramSource, TestRun};
pub use ring::RingBuffer;

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use thiserror::Error;

use syscall::{BpfCommand as _, GetObjectInfo, raw};

/// An operation on a BPF object failed.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The kernel refused it.
    #[error("{operation} {object}: {source}")]
    Refused {
        /// What was being done.
        operation: &'static str,
        /// To which object.
        object: String,
        /// The kernel's answer.
        source: Errno,
    },
    /// Keys or values have not the size of the map's.
    #[error("{operation} {object}: {given} bytes were given, {expected} are expected")]
    Size {
        /// What was being done.
        operation: &'static str,
        /// To which object.
        object: String,
        /// The size that was given.
        given: usize,
        /// The size that fits.
        expected: usize,
    },
    /// A pinned map has another shape.
    #[error("the pinned BPF map {object} has another shape: {found:?}, expected {expected:?}")]
    Shape {
        /// The path of the pin.
        object: String,
        /// Its shape.
        found: MapShape,
        /// That of a map that could be used.
        expected: MapShape,
    },
    /// A path or a name cannot be passed to the kernel.
    #[error("{0:?} contains a NUL byte")]
    Nul(String),
}

impl BpfError {
    /// The kernel's answer, if it refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            BpfError::Refused { source, .. } => Some(*source),
            BpfError::Size { .. } | BpfError::Shape { .. } | BpfError::Nul(_) => None,
        }
    }
}

/// The error of an operation that the kernel refused.
fn refused(operation: &'static str, object: &str) -> impl Fn(Errno) -> BpfError {
    move |source| BpfError::Refused {
        operation,
        object: object.to_owned(),
        source,
    }
}

/// The kernel's number of an object: the second word of what it says of each kind.
fn object_id(fd: &OwnedFd, operation: &'static str, name: &str) -> Result<u32, BpfError> {
    let mut info = [0_u32; 2];
    let mut argument = GetObjectInfo {
        object: raw(fd),
        info_size: size_of_val(&info) as u32,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    argument.call().map_err(refused(operation, name))?;
    Ok(info[1])
}

//! Why the fast path cannot do something. Each is a condition, never a failure of enforcement.

use std::path::{Path, PathBuf};

use palisade_bpf::{MapsError, ObjectError};
use palisade_sys::bpf::BpfError;
use palisade_sys::conntrack::ConntrackError;
use palisade_sys::grace::GraceError;
use palisade_sys::link::LinkError;
use palisade_sys::netlink::OpenError;
use palisade_sys::netns::NetNsError;
use palisade_sys::random::RandomError;
use palisade_sys::xfrm::XfrmError;
use thiserror::Error;

/// The fast path cannot do something.
#[derive(Debug, Error)]
pub(super) enum FastPathError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Maps(#[from] MapsError),
    #[error(transparent)]
    Bpf(#[from] BpfError),
    #[error(transparent)]
    Grace(#[from] GraceError),
    #[error(transparent)]
    Conntrack(#[from] ConntrackError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Xfrm(#[from] XfrmError),
    #[error("reading the clock: {0}")]
    Clock(std::io::Error),
    #[error("{operation} {}: {error}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("the fast path has no {0}")]
    Missing(&'static str),
}

/// The error of an operation on a path.
pub(super) fn io_error(
    operation: &'static str,
    path: &Path,
) -> impl Fn(std::io::Error) -> FastPathError {
    move |error| FastPathError::Io {
        operation,
        path: path.to_owned(),
        error,
    }
}

//! The causes of this driver's errors, each with what was being done.

use palisade_sys::Errno;
use palisade_sys::netlink::KernelError;
use palisade_sys::nfnetlink::BatchError;

use super::netlink::{ExecuteError, OwnerError, TableReadError};
use crate::error::{DriverError, DriverErrorKind};

/// The conversion of an error type that says nothing but that the operation failed.
macro_rules! driver_errors {
    ($($cause:ty: $kind:ident, $operation:literal, $object:literal;)*) => {$(
        impl From<$cause> for DriverError {
            fn from(cause: $cause) -> Self {
                DriverError::new(DriverErrorKind::$kind, $operation, $object, cause)
            }
        }
    )*};
}

driver_errors! {
    palisade_sys::netlink::OpenError: Unusable, "opening", "the nf_tables netlink socket";
    palisade_sys::netns::NetNsError: Unusable, "entering", "the network namespace";
    palisade_sys::sysctl::SysctlError: Unusable, "reading", "kernel settings";
    palisade_sys::grace::GraceError: Unusable, "setting up", "RCU grace periods";
    palisade_sys::nfnetlink::NfRequestError: Retryable, "watching", "nftables notifications";
    palisade_sys::nflog::NflogError: Retryable, "reading", "packets from nflog";
    palisade_sys::link::LinkError: Retryable, "listing", "network interfaces";
    palisade_sys::conntrack::ConntrackError: Retryable, "reading", "the conntrack table";
    palisade_sys::random::RandomError: Retryable, "getting", "a random number from the kernel";
    TableReadError: Retryable, "reading", "the nftables table from the kernel";
}

impl From<OwnerError> for DriverError {
    fn from(cause: OwnerError) -> Self {
        let kind = match &cause {
            OwnerError::OwnedByOther { .. } => DriverErrorKind::Owned,
            _ => DriverErrorKind::Retryable,
        };
        DriverError::new(kind, "checking", "who owns the nftables table", cause)
    }
}

impl From<ExecuteError> for DriverError {
    fn from(cause: ExecuteError) -> Self {
        let refused = match &cause {
            ExecuteError::Refused { error, .. }
            | ExecuteError::Batch {
                error: BatchError::Refused { error, .. } | BatchError::NotSent { error, .. },
                ..
            } => Some(error),
            _ => None,
        };
        let kind = match (refused, &cause) {
            (Some(error), _) if is_limit(error) => DriverErrorKind::Limit,
            (_, ExecuteError::Observer { error, .. }) => error.kind(),
            _ => DriverErrorKind::Retryable,
        };
        DriverError::new(kind, "applying", "nftables changes", cause)
    }
}

/// Whether the kernel lacks memory, or a set or table is full.
fn is_limit(error: &KernelError) -> bool {
    [Errno::ENOMEM, Errno::ENOBUFS, Errno::ENOSPC, Errno::ENFILE].contains(&error.errno)
}

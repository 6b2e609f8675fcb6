//! Kernel parameters under `/proc/sys`, including those of a network namespace.
//!
//! Promises: a value is written only if it differs, and the caller learns whether it was written; a missing
//! parameter is a separate error from a rejected one.
//!
//! Never: interprets a value; values are the kernel's text.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::link::unescape_name;
use crate::netns::{NetNs, NetNsError, run_in};

/// An operation on a kernel parameter failed.
#[derive(Debug, Error)]
pub enum SysctlError {
    /// A name with empty, `.` or `..` parts.
    #[error("{key:?} is not the name of a kernel parameter")]
    BadName {
        /// The name as given.
        key: String,
    },
    /// The kernel has no such parameter; a module may not be loaded or an interface may be gone.
    #[error("kernel parameter {key} does not exist in network namespace {netns}")]
    Missing {
        /// Parameter name.
        key: String,
        /// The namespace.
        netns: String,
    },
    /// The parameter could not be read.
    #[error("reading kernel parameter {key} in network namespace {netns}: {source}")]
    Read {
        /// Parameter name.
        key: String,
        /// The namespace.
        netns: String,
        /// The failure.
        source: io::Error,
    },
    /// The parameter could not be written.
    #[error("setting kernel parameter {key} to {value:?} in network namespace {netns}: {source}")]
    Write {
        /// Parameter name.
        key: String,
        /// The value to write.
        value: String,
        /// The namespace.
        netns: String,
        /// The failure.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
}

/// Kernel parameters of one network namespace.
///
/// Parts of names are separated by `/` (`net/ipv4/conf/eth0.7/proxy_arp`), since interface names may contain
/// dots; interface names are escaped with [`crate::link::escape_name`].
pub trait Sysctl {
    /// The value without its newline.
    ///
    /// # Errors
    /// [`SysctlError::Missing`], or the failure to read.
    fn get(&self, key: &str) -> Result<String, SysctlError>;

    /// Sets the parameter to `value`; true if it had another value before.
    ///
    /// # Errors
    /// [`SysctlError::Missing`], or the failure to read or write.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, SysctlError>;

    /// True if the kernel has the parameter.
    ///
    /// # Errors
    /// If that cannot be determined.
    fn exists(&self, key: &str) -> Result<bool, SysctlError> {
        match self.get(key) {
            Ok(_) => Ok(true),
            Err(SysctlError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The kernel's parameters in one namespace.
#[derive(Clone, Debug)]
pub struct KernelSysctl {
    netns: NetNs,
    /// Where the parameters are mounted.
    root: PathBuf,
}

impl KernelSysctl {
    /// The parameters of `netns`, below `/proc/sys`.
    #[must_use]
    pub fn new(netns: &NetNs) -> Self {
        Self::mounted_at(netns, Path::new("/proc/sys"))
    }

    /// The parameters of `netns`, below another folder: a mount of `/proc/sys`, or of a part of it under the
    /// part's own name.
    #[must_use]
    pub fn mounted_at(netns: &NetNs, root: &Path) -> Self {
        Self {
            netns: netns.clone(),
            root: root.to_owned(),
        }
    }

    fn read(&self, key: &str) -> Result<String, SysctlError> {
        let path = sysctl_path(&self.root, key)?;
        // `/proc/sys/net` shows the namespace of the process that opens it.
        let read = run_in(&self.netns, || std::fs::read_to_string(&path))?;
        match read {
            Ok(mut text) => {
                text.truncate(text.trim_end().len());
                Ok(text)
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => Err(SysctlError::Missing {
                key: key.to_owned(),
                netns: self.netns.label().to_owned(),
            }),
            Err(source) => Err(SysctlError::Read {
                key: key.to_owned(),
                netns: self.netns.label().to_owned(),
                source,
            }),
        }
    }
}

impl Sysctl for KernelSysctl {
    fn get(&self, key: &str) -> Result<String, SysctlError> {
        self.read(key)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a kernel parameter is written in place"
    )]
    fn set(&mut self, key: &str, value: &str) -> Result<bool, SysctlError> {
        if self.read(key)? == value {
            return Ok(false);
        }
        let path = sysctl_path(&self.root, key)?;
        run_in(&self.netns, || std::fs::write(&path, value))?
            .map(|()| true)
            .map_err(|source| SysctlError::Write {
                key: key.to_owned(),
                value: value.to_owned(),
                netns: self.netns.label().to_owned(),
                source,
            })
    }
}

fn sysctl_path(root: &Path, key: &str) -> Result<PathBuf, SysctlError> {
    let name = unescape_name(key);
    let bad = name
        .split(|byte| *byte == b'/')
        .any(|part| matches!(part, b"" | b"." | b"..") || part.contains(&0));
    if bad {
        return Err(SysctlError::BadName {
            key: key.to_owned(),
        });
    }
    Ok(root.join(OsString::from_vec(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_proc_sys() {
        for bad in [
            "",
            "/etc/passwd",
            "net/../../etc",
            "net//ipv4",
            "net/.",
            r"a/\x2e\x2e",
        ] {
            assert!(
                matches!(
                    sysctl_path(Path::new("/proc/sys"), bad),
                    Err(SysctlError::BadName { .. })
                ),
                "{bad:?}"
            );
        }
        assert_eq!(
            sysctl_path(Path::new("/proc/sys"), "net/ipv4/ip_forward").unwrap(),
            PathBuf::from("/proc/sys/net/ipv4/ip_forward")
        );
    }

    #[test]
    fn the_kernels_are_read() {
        let here = KernelSysctl::new(&NetNs::current().unwrap());
        let value = here.get("kernel/ostype").unwrap();
        assert_eq!(value, "Linux");
        let root = Path::new("/proc/self/root/proc/sys");
        let elsewhere = KernelSysctl::mounted_at(&NetNs::current().unwrap(), root);
        assert_eq!(elsewhere.get("kernel/ostype").unwrap(), "Linux");
        let nowhere = KernelSysctl::mounted_at(&NetNs::current().unwrap(), Path::new("/nowhere"));
        assert!(!nowhere.exists("kernel/ostype").unwrap());
        assert!(!here.exists("net/ipv4/no_such_thing").unwrap());
    }
}

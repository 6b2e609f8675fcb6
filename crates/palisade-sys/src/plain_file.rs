//! Reading files that must be plain ones.
//!
//! Promises: what is no plain file (a FIFO, a device, a socket, a folder) is an error that names what it is, at once.
//! Never: waits for the other end of a FIFO, or has an effect on a device.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file or directory that cannot be read, created, written or removed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}", path.display())]
pub struct FileError {
    /// The operation that failed.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl FileError {
    /// What makes an error of an operation on a file from its cause.
    pub fn of(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| FileError {
            doing,
            path: path.clone(),
            source,
        }
    }
}

/// Opens a plain file for reading.
///
/// # Errors
/// If it cannot be opened, or is no plain file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// Opens a file in this way, which must not truncate it.
///
/// # Errors
/// If it cannot be opened, or is no plain file.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // A FIFO would be waited for, and a device may act when it is opened: what exists is looked at first, and what
    // replaced it meanwhile does not block.
    if let Ok(meta) = std::fs::metadata(path) {
        check(&meta)?;
    }
    let file = options
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// The content of a plain file.
///
/// # Errors
/// If it cannot be read, or is no plain file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

fn check(meta: &std::fs::Metadata) -> io::Result<()> {
    let kind = meta.file_type();
    let found = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    let reason = format!("it is {found}, not a plain file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::disallowed_methods,
        reason = "a test makes the files that it reads"
    )]
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_no_plain_file_is_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink("fifo", at("link")).unwrap();
        assert_eq!(read(&at("file")).unwrap(), b"text");
        for (name, expected) in [
            ("folder", "it is a folder, not a plain file"),
            ("fifo", "it is a FIFO, not a plain file"),
            ("link", "it is a FIFO, not a plain file"),
            ("socket", "it is a socket, not a plain file"),
        ] {
            assert_eq!(read(&at(name)).unwrap_err().to_string(), expected, "{name}");
            let appended = open_with(OpenOptions::new().append(true), &at(name));
            assert_eq!(appended.unwrap_err().to_string(), expected, "{name}");
        }
        let device = read(Path::new("/dev/null")).unwrap_err();
        assert_eq!(device.to_string(), "it is a device, not a plain file");
        assert_eq!(
            read(&at("gone")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}

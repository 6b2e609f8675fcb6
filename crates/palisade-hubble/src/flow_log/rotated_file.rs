//! A file that begins anew at a size: its former contents stay under names with the time, a number of them.
//!
//! Promises: names and order are those of Cilium's exporter: `flows-2026-11-29T10-20-30.000.log`, with `.gz` if compressed;
//! a line is in one file; a file of another name is never removed.
//!
//! Never: truncates a file.

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time in the name of a former file.
const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// Flows name pods and their peers: the file is for its owner.
const MODE: u32 = 0o600;

/// When a file begins anew, and what stays of the former ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotationLimits {
    /// The size at which the next file begins, in bytes.
    pub(super) max_bytes: u64,
    /// How many former files stay.
    pub(super) max_backups: usize,
    /// Whether they are compressed.
    pub(super) compresses: bool,
}

/// An open file.
pub(super) struct RotatedFile {
    path: PathBuf,
    limits: RotationLimits,
    file: BufWriter<File>,
    size: u64,
}

impl RotatedFile {
    /// Opens a file to append to, and makes the folders above it.
    ///
    /// # Errors
    /// What the system answers.
    pub(super) fn open(path: &Path, limits: RotationLimits) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = append_to(path)?;
        Ok(RotatedFile {
            path: path.to_owned(),
            limits,
            size: file.metadata()?.len(),
            file: BufWriter::new(file),
        })
    }

    /// Appends a line, without its end; `now` is the time since the epoch.
    ///
    /// # Errors
    /// What the system answers.
    pub(super) fn write_line(&mut self, line: &str, now: Duration) -> io::Result<()> {
        let bytes = line.len() as u64 + 1;
        if self.size > 0 && self.size + bytes > self.limits.max_bytes {
            self.rotate(now)?;
        }
        self.file.write_all(line.as_bytes())?;
        self.file.write_all(b"\n")?;
        self.size += bytes;
        Ok(())
    }

    /// Hands over to the kernel what was written.
    ///
    /// # Errors
    /// What the system answers.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn rotate(&mut self, now: Duration) -> io::Result<()> {
        self.file.flush()?;
        let names = BackupNames::new(&self.path);
        let former = names.next_name(now)?;
        std::fs::rename(&self.path, &former)?;
        self.file = BufWriter::new(append_to(&self.path)?);
        self.size = 0;
        if self.limits.compresses {
            compress(&former)?;
        }
        let backups = names.existing()?;
        let surplus = backups.len().saturating_sub(self.limits.max_backups);
        for (_, backup) in backups.iter().take(surplus) {
            std::fs::remove_file(backup)?;
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(MODE).open(path)
}

/// Replaces a file by a compressed one; the compressed one is whole before the other goes.
fn compress(path: &Path) -> io::Result<()> {
    let with_suffix = |suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    let (partial, whole) = (with_suffix(".gz.tmp"), with_suffix(".gz"));
    let mut options = OpenOptions::new();
    let target = (options.write(true).create(true).truncate(true))
        .mode(MODE)
        .open(&partial)?;
    let mut encoder = GzEncoder::new(BufWriter::new(target), Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.flush()?;
    std::fs::rename(&partial, &whole)?;
    std::fs::remove_file(path)
}

/// The names of the former files of a file.
struct BackupNames {
    folder: PathBuf,
    front: String,
    /// With its dot; empty if the file has none.
    extension: String,
}

impl BackupNames {
    fn new(path: &Path) -> Self {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.map_or_else(String::new, |part| part.to_string_lossy().into_owned())
        };
        let extension = text(path.extension());
        BackupNames {
            folder: path.parent().map_or_else(PathBuf::new, Path::to_owned),
            front: format!("{}-", text(path.file_stem())),
            extension: if extension.is_empty() {
                extension
            } else {
                format!(".{extension}")
            },
        }
    }

    /// A name for a file that ends now, which comes after all others: also after those of a clock that was ahead.
    fn next_name(&self, now: Duration) -> io::Result<PathBuf> {
        let milliseconds = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let time = Timestamp::from_millisecond(milliseconds).map_err(io::Error::other)?;
        let mut time = TimeZone::UTC.to_datetime(time);
        if let Some((newest, _)) = self.existing()?.last() {
            let after = newest.checked_add(SignedDuration::from_millis(1));
            time = time.max(after.map_err(io::Error::other)?);
        }
        let time = time.strftime(TIME_FORMAT);
        let name = format!("{}{time}{}", self.front, self.extension);
        Ok(self.folder.join(name))
    }

    /// The former files that there are, by the times in their names.
    fn existing(&self) -> io::Result<Vec<(DateTime, PathBuf)>> {
        let mut backups = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Some(time) = entry.file_name().to_str().and_then(|name| self.time(name)) {
                backups.push((time, entry.path()));
            }
        }
        backups.sort();
        Ok(backups)
    }

    /// The time in the name of a former file.
    fn time(&self, name: &str) -> Option<DateTime> {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let time = (name.strip_prefix(&self.front)?).strip_suffix(&self.extension)?;
        DateTime::strptime(TIME_FORMAT, time).ok()
    }
}

//! Programs of traffic control, and the types that describe them.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use thiserror::Error;

use super::syscall::{
    BpfCommand as _, LoadBtf, LoadProgram, TestRunProgram, address, address_mut, object_name, raw,
};
use super::{BpfError, pin, refused};

/// `BPF_PROG_TYPE_SCHED_CLS`.
const SCHED_CLS: u32 = 3;
/// An instruction has eight bytes.
const INSTRUCTION: usize = 8;
/// The room for the verifier's log. A log that has no room is one more error of the kernel.
const LOG_BYTES: usize = 16 << 20;
/// How much of a log is kept, from its end: that is where the reason is.
const KEPT_LOG: usize = 2_048;

/// The kernel refused a program or its types.
#[derive(Debug, Error)]
#[error("loading {object}: {source}{}", log_text(.log))]
pub struct LoadError {
    /// What was being loaded.
    pub object: String,
    /// The kernel's answer.
    pub source: Errno,
    /// The end of the verifier's log; empty if it wrote none.
    pub log: String,
}

fn log_text(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("; the verifier says: {}", lines.join("\n"))
}

/// Types of programs (BTF) that are loaded.
#[derive(Debug)]
pub struct Btf(OwnedFd);

impl Btf {
    /// Loads types, as they are in the file format.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn load(bytes: &[u8]) -> Result<Self, LoadError> {
        // As for programs, a log is asked for where they are refused.
        let fd = load_types(bytes, &mut []).or_else(|_| {
            let mut log = vec![0; LOG_BYTES];
            load_types(bytes, &mut log).map_err(|source| LoadError {
                object: "BTF types".to_owned(),
                source,
                log: end_of_log(&log),
            })
        });
        fd.map(Btf)
    }
}

fn load_types(bytes: &[u8], log: &mut [u8]) -> Result<OwnedFd, Errno> {
    let argument = LoadBtf {
        btf: address(bytes),
        log: if log.is_empty() { 0 } else { address_mut(log) },
        size: bytes.len() as u32,
        log_size: log.len() as u32,
        log_level: u32::from(!log.is_empty()),
        ..LoadBtf::default()
    };
    argument.call_for_descriptor()
}

/// The end of a log that the kernel wrote.
fn end_of_log(log: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(log).map_or(&[][..], CStr::to_bytes);
    let text = String::from_utf8_lossy(text);
    let mut from = text.len().saturating_sub(KEPT_LOG);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let end = &text[from..];
    // Of a log that was cut, the first line is not whole.
    let whole = end.split_once('\n').map_or(end, |(_, rest)| rest);
    if from == 0 { end } else { whole }.to_owned()
}

/// Records that name functions or source lines of a program: bytes, and the size of each record.
#[derive(Clone, Copy, Debug, Default)]
pub struct DebugRecords<'a> {
    /// The records.
    pub bytes: &'a [u8],
    /// The size of one, in bytes.
    pub size: usize,
}

impl DebugRecords<'_> {
    fn count(&self) -> u32 {
        self.bytes.len().checked_div(self.size).unwrap_or(0) as u32
    }
}

/// A program to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSource<'a> {
    /// Its name; the kernel keeps 15 letters, digits, `_` and `.` of it.
    pub name: &'a str,
    /// Its instructions, with the descriptors of maps in them.
    pub instructions: &'a [u8],
    /// Its licence, as the kernel knows licences.
    pub license: &'a CStr,
    /// Its types, which global functions need.
    pub btf: Option<&'a Btf>,
    /// Its functions, by `struct bpf_func_info`.
    pub functions: DebugRecords<'a>,
    /// Its source lines, by `struct bpf_line_info`.
    pub lines: DebugRecords<'a>,
}

/// A program that the verifier has accepted.
#[derive(Debug)]
pub struct BpfProgram {
    fd: OwnedFd,
    name: String,
}

/// What a program did with one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// What it returned.
    pub verdict: u32,
    /// The packet after it.
    pub packet: Vec<u8>,
    /// The `struct __sk_buff` after it, if one was given.
    pub context: Vec<u8>,
    /// The time of one run, on average.
    pub duration: Duration,
}

impl BpfProgram {
    /// Loads a program of traffic control.
    ///
    /// # Errors
    /// If the kernel refuses: `EPERM` without the rights, `EACCES` or `EINVAL` where the verifier does, with its log.
    pub fn load(source: &ProgramSource<'_>) -> Result<Self, LoadError> {
        // Writing a log costs the verifier time: it is asked for where the program is refused.
        let fd = load(source, &mut []).or_else(|_| {
            let mut log = vec![0; LOG_BYTES];
            load(source, &mut log).map_err(|error| LoadError {
                object: format!("BPF program {}", source.name),
                source: error,
                log: end_of_log(&log),
            })
        });
        Ok(BpfProgram {
            fd: fd?,
            name: source.name.to_owned(),
        })
    }

    /// Its descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn id(&self) -> Result<u32, BpfError> {
        super::object_id(&self.fd, "reading the number of BPF program", &self.name)
    }

    /// Pins the program.
    ///
    /// # Errors
    /// If the path exists (`EEXIST`) or is not in a BPF file system.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        pin::pin(&self.fd, path, "pinning BPF program")
    }

    /// Runs the program on a packet, from its link-layer header on, without a device. `context` is a `struct __sk_buff`,
    /// or nothing.
    ///
    /// # Errors
    /// If the kernel refuses: `EINVAL` for a packet of fewer than 14 bytes, or fields of the context that cannot be set.
    pub fn test_run(
        &self,
        packet: &[u8],
        context: &[u8],
        repeat: u32,
    ) -> Result<TestRun, BpfError> {
        // A program may lengthen it.
        let mut output = vec![0; packet.len() + 256];
        let mut context_output = vec![0; context.len()];
        let mut argument = TestRunProgram {
            program: raw(&self.fd),
            input_size: packet.len() as u32,
            output_size: output.len() as u32,
            input: address(packet),
            output: address_mut(&mut output),
            repeat,
            context_input_size: context.len() as u32,
            context_output_size: context.len() as u32,
            context_input: if context.is_empty() {
                0
            } else {
                address(context)
            },
            context_output: if context.is_empty() {
                0
            } else {
                address_mut(&mut context_output)
            },
            ..TestRunProgram::default()
        };
        let refused = refused("running BPF program", &self.name);
        argument.call().map_err(refused)?;
        output.truncate(argument.output_size as usize);
        context_output.truncate(argument.context_output_size as usize);
        Ok(TestRun {
            verdict: argument.verdict,
            packet: output,
            context: context_output,
            duration: Duration::from_nanos(argument.nanoseconds.into()),
        })
    }
}

fn load(source: &ProgramSource<'_>, log: &mut [u8]) -> Result<OwnedFd, Errno> {
    let records = |records: &DebugRecords<'_>| match (source.btf, records.count()) {
        (Some(_), count) if count > 0 => (address(records.bytes), count, records.size as u32),
        _ => (0, 0, 0),
    };
    let (functions, function_count, function_record_size) = records(&source.functions);
    let (lines, line_count, line_record_size) = records(&source.lines);
    let argument = LoadProgram {
        kind: SCHED_CLS,
        instruction_count: (source.instructions.len() / INSTRUCTION) as u32,
        instructions: address(source.instructions),
        license: address(source.license.to_bytes_with_nul()),
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { address_mut(log) },
        name: object_name(source.name),
        btf: source.btf.map_or(0, |btf| raw(&btf.0)),
        function_record_size,
        functions,
        function_count,
        line_record_size,
        lines,
        line_count,
        ..LoadProgram::default()
    };
    argument.call_for_descriptor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_begins_with_a_whole_line() {
        let mut log = b"a line\n".repeat(1_000);
        log.extend(b"the reason\n\0\0\0");
        let end = end_of_log(&log);
        assert!(end.len() <= KEPT_LOG && end.ends_with("a line\nthe reason\n"));
        assert!(end.starts_with("a line\n"), "{end}");
        assert_eq!(end_of_log(b"short\n\0"), "short\n");
        assert_eq!(end_of_log(&[]), "");
    }
}

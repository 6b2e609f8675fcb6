//! What the running kernel can do of what the fast path needs.

use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;

use palisade_sys::Errno;
use palisade_sys::bpf::{AttachPoint, BpfError, UpdateMode, attached_programs, is_bpf_file_system};
use palisade_sys::link::{KernelLinks, LinkError, TcFilterId};
use palisade_sys::netns::{NetNs, NetNsError, run_in_new};
use thiserror::Error;

use crate::object::{BpfObject, LoadedObject, ObjectError};

/// Where BPF objects are pinned.
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";
/// The index of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;
/// The program of the probe.
const PROGRAM: &str = "probe_features";
/// Tells whether BPF programs are compiled to machine code.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";
/// The length in the header of the packet that the probe is run on.
const LENGTH: u16 = 1_234;

/// The words of the probe's map, as `src/c/probe.c` numbers them.
mod word {
    pub(super) const SEQUENCE: usize = 0;
    pub(super) const SUM: usize = 1;
    pub(super) const LENGTH: usize = 2;
    pub(super) const TIME: usize = 3;
}

/// How programs are attached to interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramAttachment {
    /// By tcx links, since Linux 6.6: other programs cannot detach them by accident.
    TcxLink,
    /// As filters of traffic control at the qdisc `clsact`.
    TcFilter,
}

/// What the fast path needs of this kernel and does not find. Without any, it can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathSupport {
    /// How programs are attached here: the first way that the kernel has.
    pub attachment: Option<ProgramAttachment>,
    /// What is missing, in the order in which it is needed.
    pub missing: Vec<MissingKernelFeature>,
}

/// Something that the fast path needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKernelFeature {
    /// What, as one word in upper camel case that never changes.
    pub feature: &'static str,
    /// Why it is missing, and what to do, for people.
    pub reason: String,
}

impl FastPathSupport {
    /// Asks the kernel: loads programs that use every feature, runs them on one packet, and looks at interfaces and file
    /// systems. Attaches nothing outside of a network namespace of its own, pins nothing, and leaves nothing.
    pub fn probe() -> Self {
        let mut missing = Vec::new();
        let mut add = |feature, reason| missing.push(MissingKernelFeature { feature, reason });
        if let Err(reason) = probe_programs() {
            add("Programs", reason);
        }
        if let Err(reason) = probe_jit() {
            add("Jit", reason);
        }
        let attachment = probe_attachment();
        if let Err(reason) = &attachment {
            add("TrafficControl", reason.clone());
        }
        if let Err(reason) = probe_file_system(Path::new(BPF_FILE_SYSTEM)) {
            add("BpfFileSystem", reason);
        }
        FastPathSupport {
            attachment: attachment.ok(),
            missing,
        }
    }

    /// Whether the fast path can run.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

fn probe_programs() -> Result<(), String> {
    let loaded = BpfObject::PROBE.load().map_err(|error| match &error {
        ObjectError::Map(refused) if refused.errno() == Some(Errno::EPERM) => {
            format!("{error}: it takes CAP_BPF and CAP_NET_ADMIN, and a sandbox that allows bpf(2)")
        }
        _ => error.to_string(),
    })?;
    run_probe(&loaded)
}

/// Runs the probe, and compares what it did with what it is to do.
fn run_probe(loaded: &LoadedObject) -> Result<(), String> {
    let text = |error: BpfError| error.to_string();
    let map = |name: &str| {
        loaded
            .map(name)
            .ok_or_else(|| format!("there is no map {name}"))
    };
    let words = map("probe_words")?.view().map_err(text)?;
    let words = words.words();
    let word = |number: usize| words.get(number).ok_or("a word is missing");
    word(word::SEQUENCE)?.store(2, Ordering::Release);
    let (key, value) = (1_u64.to_ne_bytes(), 7_u64.to_ne_bytes());
    let rows = map("probe_rows")?;
    rows.update(&key, &value, UpdateMode::Add).map_err(text)?;
    let mut packet = [0; 64];
    packet[12..14].copy_from_slice(&[0x08, 0x00]);
    packet[14] = 0x45;
    packet[16..18].copy_from_slice(&LENGTH.to_be_bytes());
    let program = loaded.program(PROGRAM).ok_or("there is no probe")?;
    program.test_run(&packet, &[], 1).map_err(text)?;
    let found = [word::SEQUENCE, word::SUM, word::LENGTH].map(|number| {
        let word = words.get(number).map(|word| word.load(Ordering::Acquire));
        word.unwrap_or_default()
    });
    if found != [3, 7, LENGTH.into()] || word(word::TIME)?.load(Ordering::Acquire) == 0 {
        return Err(format!(
            "the programs do not do what they are to do: {found:?}"
        ));
    }
    Ok(())
}

fn probe_jit() -> Result<(), String> {
    match std::fs::read_to_string(JIT) {
        Ok(value) if value.trim() == "0" => Err(format!(
            "{JIT} is 0: programs would be interpreted; set it to 1"
        )),
        // A kernel that always compiles them may not have it, or another namespace may hide it.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The first way to attach programs that the kernel has.
fn probe_attachment() -> Result<ProgramAttachment, String> {
    let tcx = match attached_programs(LOOPBACK, AttachPoint::Ingress) {
        Ok(_) => return Ok(ProgramAttachment::TcxLink),
        Err(error) if error.errno() == Some(Errno::EINVAL) => {
            "no tcx links, which Linux has since 6.6".to_owned()
        }
        Err(error) => error.to_string(),
    };
    match probe_filters() {
        Ok(()) => Ok(ProgramAttachment::TcFilter),
        Err(reason) => Err(format!(
            "programs cannot be attached: {tcx}; and no tc filters (sch_ingress, cls_bpf): {reason}"
        )),
    }
}

/// Attaches a filter in a network namespace that is made for it.
fn probe_filters() -> Result<(), String> {
    let loaded = BpfObject::PROBE.load().map_err(|error| error.to_string())?;
    let program = loaded.program(PROGRAM).ok_or("there is no probe")?;
    let id = TcFilterId {
        priority: 1,
        handle: 1,
    };
    let attach = || {
        let mut links = KernelLinks::open(&NetNs::current()?)?;
        links.add_clsact(LOOPBACK)?;
        links.add_filter(LOOPBACK, AttachPoint::Ingress, id, (program, PROGRAM))?;
        Ok::<(), ProbeError>(())
    };
    match run_in_new(attach) {
        Ok(attached) => attached.map_err(|error| error.to_string()),
        // None can be made here: what the kernel has is seen when the first interface is attached to.
        Err(_) => Ok(()),
    }
}

#[derive(Debug, Error)]
#[error(transparent)]
enum ProbeError {
    NetNs(#[from] NetNsError),
    Link(#[from] LinkError),
}

fn probe_file_system(path: &Path) -> Result<(), String> {
    match is_bpf_file_system(path) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "{} is no BPF file system: `mount -t bpf bpf {}`, and into the container if the agent runs in one",
            path.display(),
            path.display(),
        )),
        Err(error) => Err(error.to_string()),
    }
}

impl fmt::Display for ProgramAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProgramAttachment::TcxLink => "tcx links",
            ProgramAttachment::TcFilter => "tc filters",
        })
    }
}

impl fmt::Display for MissingKernelFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.feature, self.reason)
    }
}

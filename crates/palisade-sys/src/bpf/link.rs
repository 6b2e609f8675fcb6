//! Links: programs that are attached to interfaces (tcx, since Linux 6.6).

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;

use super::program::BpfProgram;
use super::syscall::{BpfCommand as _, CreateLink, DetachLink, QueryPrograms, UpdateLink, raw};
use super::{BpfError, pin, refused};

/// `BPF_F_BEFORE`: without another program, before all that are attached.
const FLAG_BEFORE: u32 = 1 << 3;
/// The greatest number of programs of one attach point (`BPF_MPROG_MAX`).
const MAX_PROGRAMS: usize = 64;

/// Where programs see the packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachPoint {
    /// Those that come from it.
    Ingress,
    /// Those that go to it.
    Egress,
}

impl AttachPoint {
    /// Both, in the order of this type.
    pub const ALL: [AttachPoint; 2] = [AttachPoint::Ingress, AttachPoint::Egress];

    /// The kernel's number (`enum bpf_attach_type`).
    fn number(self) -> u32 {
        match self {
            AttachPoint::Ingress => 46,
            AttachPoint::Egress => 47,
        }
    }

    /// What traffic control calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AttachPoint::Ingress => "ingress",
            AttachPoint::Egress => "egress",
        }
    }
}

impl fmt::Display for AttachPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A program that is attached to an interface. Without a pin it ends with this.
#[derive(Debug)]
pub struct BpfLink {
    fd: OwnedFd,
    name: String,
}

impl BpfLink {
    /// Attaches a program to the interface with this index in the network namespace of the calling thread, before all
    /// programs that are attached.
    ///
    /// # Errors
    /// If there is no such interface (`ENODEV`), or the kernel has no tcx (`EINVAL`).
    pub fn attach(
        program: &BpfProgram,
        interface: u32,
        point: AttachPoint,
    ) -> Result<Self, BpfError> {
        let name = format!(
            "{} to interface {interface}, {}",
            program.name(),
            point.name()
        );
        let argument = CreateLink {
            program: raw(program.descriptor()),
            interface,
            attach_type: point.number(),
            flags: FLAG_BEFORE,
            ..CreateLink::default()
        };
        let fd = argument.call_for_descriptor();
        Ok(BpfLink {
            fd: fd.map_err(refused("attaching BPF program", &name))?,
            name,
        })
    }

    /// Opens a pinned link.
    ///
    /// # Errors
    /// If there is no pin (`ENOENT`) or it is no link, which the first use shows.
    pub fn open_pinned(path: &Path) -> Result<Self, BpfError> {
        Ok(BpfLink {
            fd: pin::open(path, "opening the pinned BPF link")?,
            name: path.display().to_string(),
        })
    }

    /// The kernel's number of it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn id(&self) -> Result<u32, BpfError> {
        super::object_id(&self.fd, "reading the number of the link of", &self.name)
    }

    /// Pins the link: the program stays attached as long as the pin and the interface exist.
    ///
    /// # Errors
    /// If the path exists (`EEXIST`) or is not in a BPF file system.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        pin::pin(&self.fd, path, "pinning BPF link")
    }

    /// Replaces the program: each packet is seen by the former one or by this one.
    ///
    /// # Errors
    /// If the interface is gone (`ENOLINK`), or this is no link.
    pub fn replace(&self, program: &BpfProgram) -> Result<(), BpfError> {
        let mut argument = UpdateLink {
            link: raw(&self.fd),
            program: raw(program.descriptor()),
            ..UpdateLink::default()
        };
        let refused = refused("replacing the BPF program of", &self.name);
        argument.call().map(drop).map_err(refused)
    }
}

impl BpfLink {
    /// Detaches the program at once. A link that only loses its last pin or descriptor is detached some time later.
    ///
    /// # Errors
    /// If this is no link. That its interface is gone is no error.
    pub fn detach(&self) -> Result<(), BpfError> {
        let mut argument = DetachLink {
            link: raw(&self.fd),
        };
        match argument.call() {
            Ok(_) | Err(Errno::ENOLINK) => Ok(()),
            Err(errno) => Err(refused("detaching BPF program", &self.name)(errno)),
        }
    }
}

/// A program at an attach point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// The kernel's number of the program.
    pub program: u32,
    /// That of its link; 0 if it is attached without one.
    pub link: u32,
}

/// The programs that are attached to an interface of the calling thread's network namespace, in the order in which they
/// see packets.
///
/// # Errors
/// If there is no such interface (`ENODEV`), or the kernel has no tcx (`EINVAL`).
pub fn attached_programs(
    interface: u32,
    point: AttachPoint,
) -> Result<Vec<AttachedProgram>, BpfError> {
    let (mut programs, mut links) = ([0_u32; MAX_PROGRAMS], [0_u32; MAX_PROGRAMS]);
    let mut argument = QueryPrograms {
        target: interface,
        attach_type: point.number(),
        programs: programs.as_mut_ptr().expose_provenance() as u64,
        count: MAX_PROGRAMS as u32,
        links: links.as_mut_ptr().expose_provenance() as u64,
        ..QueryPrograms::default()
    };
    let name = format!("interface {interface}, {}", point.name());
    let refused = refused("listing the BPF programs of", &name);
    argument.call().map_err(refused)?;
    let all = programs.iter().zip(&links).take(argument.count as usize);
    Ok(all
        .map(|(&program, &link)| AttachedProgram { program, link })
        .collect())
}

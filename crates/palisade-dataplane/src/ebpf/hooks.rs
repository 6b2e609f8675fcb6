//! How programs are attached to interfaces: by tcx links, or where the kernel has none (before Linux 6.6) as filters of
//! traffic control, at the qdisc `clsact`.
//!
//! A link is pinned, and goes with its pin. A filter goes with its interface only, and cannot be pinned: a folder stands
//! for it, under the name that the pin of a link would have. It is made before the filter and removed after it. A filter
//! is known as ours by its number and its name, also where its folder is gone.
//!
//! The qdisc stays when the last filter goes: without filters it does nothing, nobody can tell whether another program
//! uses it by now, and the kernel removes it with the interface.
//!
//! Promises: a program is replaced at once: each packet is seen by the former one or by the new one.
//!
//! Never: changes a program or a filter of somebody else.

use std::fmt;
use std::fs;
use std::path::Path;

use palisade_bpf::ProgramAttachment;
use palisade_sys::Errno;
use palisade_sys::bpf::{AttachPoint, BpfLink, BpfProgram, attached_programs};
use palisade_sys::fault;
use palisade_sys::link::{KernelLinks, TcFilter, TcFilterId};
use palisade_sys::netns::{NetNs, NetNsError, run_in};

use super::error::{FastPathError, io_error};

/// The number of our filters. Packets see the first priority first.
const FILTER: TcFilterId = TcFilterId {
    priority: 1,
    handle: 0x7a1,
};

/// What the names of our filters begin with.
const FILTER_NAME: &str = "palisade_";

/// Attaches programs to the interfaces of a namespace.
#[derive(Debug)]
pub(super) struct Hooks {
    netns: NetNs,
    attachment: ProgramAttachment,
}

/// A program, or a filter without one, that sees packets of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hooked {
    /// A program that is attached by tcx.
    Tcx {
        /// The kernel's number of the program.
        program: u32,
        /// That of its link; 0 if it has none.
        link: u32,
    },
    /// A filter.
    Filter(TcFilter),
}

impl Hooked {
    /// The kernel's number of the program, if it is attached in this way.
    pub(super) fn program(&self, attachment: ProgramAttachment) -> Option<u32> {
        match (self, attachment) {
            (Hooked::Tcx { program, .. }, ProgramAttachment::TcxLink) => Some(*program),
            (Hooked::Filter(filter), ProgramAttachment::TcFilter) if is_own(filter) => {
                filter.program
            }
            _ => None,
        }
    }
}

impl fmt::Display for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hooked::Tcx { program, .. } => write!(f, "BPF program {program}"),
            Hooked::Filter(TcFilter {
                program: Some(program),
                ..
            }) => write!(f, "the tc filter with BPF program {program}"),
            Hooked::Filter(filter) => write!(f, "a tc filter ({})", filter.kind),
        }
    }
}

impl Hooks {
    pub(super) fn new(netns: &NetNs, attachment: ProgramAttachment) -> Self {
        Hooks {
            netns: netns.clone(),
            attachment,
        }
    }

    /// How programs are attached.
    pub(super) fn attachment(&self) -> ProgramAttachment {
        self.attachment
    }

    /// Opens what knows the links of the namespace.
    pub(super) fn open_links(&self) -> Result<KernelLinks, FastPathError> {
        Ok(KernelLinks::open(&self.netns)?)
    }

    /// Does something in the namespace: indexes of interfaces are those of the calling thread's.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetNsError> {
        if NetNs::current()?.id() == self.netns.id() {
            return Ok(work());
        }
        run_in(&self.netns, work)
    }

    /// Attaches a program to an interface, and pins it; whether the interface exists.
    pub(super) fn attach(
        &self,
        links: &mut KernelLinks,
        pin: &Path,
        program: &BpfProgram,
        (interface, point): (u32, AttachPoint),
    ) -> Result<bool, FastPathError> {
        match self.attachment {
            ProgramAttachment::TcxLink => {
                let attached = self.run(|| BpfLink::attach(program, interface, point))?;
                match attached {
                    Ok(link) => {
                        fault::reach("arm-link-not-pinned");
                        link.pin(pin)?;
                    }
                    Err(error) if error.errno() == Some(Errno::ENODEV) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            ProgramAttachment::TcFilter => {
                fs::create_dir(pin).map_err(io_error("creating", pin))?;
                let name = filter_name(program);
                let mut added = links.add_clsact(interface);
                if added.is_ok() {
                    added = links.add_filter(interface, point, FILTER, (program, &name));
                }
                match added {
                    Ok(()) => {}
                    Err(error) if error.errno() == Some(Errno::ENODEV) => {
                        fs::remove_dir(pin).map_err(io_error("removing", pin))?;
                        return Ok(false);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(true)
    }

    /// Puts a program in place of the one that an earlier agent has attached in the same way; whether there is one.
    pub(super) fn replace(
        &self,
        links: &mut KernelLinks,
        pin: &Path,
        program: &BpfProgram,
        (interface, point): (u32, AttachPoint),
    ) -> Result<bool, FastPathError> {
        if pin.is_dir() {
            if self.attachment != ProgramAttachment::TcFilter {
                return Ok(false);
            }
            if fault::is_injected("fast-path-filter-not-replaced") {
                return Ok(true);
            }
            let name = filter_name(program);
            return Ok(links.replace_filter(interface, point, FILTER, (program, &name))?);
        }
        if self.attachment != ProgramAttachment::TcxLink {
            return Ok(false);
        }
        let Ok(link) = BpfLink::open_pinned(pin) else {
            return Ok(false);
        };
        match link.replace(program) {
            Ok(()) => Ok(true),
            // Its interface is gone, and another one has its index.
            Err(error) if error.errno() == Some(Errno::ENOLINK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// All that sees packets of an interface, in this order.
    pub(super) fn list(
        &self,
        links: &mut KernelLinks,
        (interface, point): (u32, AttachPoint),
    ) -> Result<Vec<Hooked>, FastPathError> {
        let mut found = Vec::new();
        match self.run(|| attached_programs(interface, point))? {
            Ok(programs) => found.extend(programs.into_iter().map(|attached| Hooked::Tcx {
                program: attached.program,
                link: attached.link,
            })),
            // The interface is gone.
            Err(error) if error.errno() == Some(Errno::ENODEV) => {}
            // The kernel has no tcx.
            Err(error)
                if self.attachment == ProgramAttachment::TcFilter
                    && error.errno() == Some(Errno::EINVAL) => {}
            Err(error) => return Err(error.into()),
        }
        let filters = links.filters(interface, point)?;
        found.extend(filters.into_iter().map(Hooked::Filter));
        Ok(found)
    }

    /// Why programs cannot be attached to an interface beside what is there; `None` if they can.
    pub(super) fn refusal(
        &self,
        links: &mut KernelLinks,
        interface: u32,
    ) -> Result<Option<String>, FastPathError> {
        for point in AttachPoint::ALL {
            if let Some(other) = self.list(links, (interface, point))?.first() {
                return Ok(Some(format!("{other} of another program sees its packets")));
            }
        }
        if self.attachment == ProgramAttachment::TcFilter
            && let Some(kind) = links.filter_qdiscs()?.remove(&interface)
            && kind != "clsact"
        {
            return Ok(Some(format!(
                "another program has given it the qdisc {kind}"
            )));
        }
        Ok(None)
    }

    /// What is wrong with the pin of what is attached here; `None` if nothing is.
    pub(super) fn pin_problem(&self, pin: &Path, found: &[Hooked]) -> Option<String> {
        if self.attachment == ProgramAttachment::TcFilter {
            return (!pin.is_dir()).then(|| "nothing".to_owned());
        }
        let links = found.iter().filter_map(|hooked| match hooked {
            Hooked::Tcx { link, .. } => Some(*link),
            Hooked::Filter(_) => None,
        });
        let links: Vec<u32> = links.collect();
        match BpfLink::open_pinned(pin).and_then(|link| link.id()) {
            Ok(link) if links.contains(&link) => None,
            Ok(link) => Some(format!("link {link}, which is not attached")),
            Err(error) => Some(error.to_string()),
        }
    }
}

fn filter_name(program: &BpfProgram) -> String {
    format!("{FILTER_NAME}{}", program.name())
}

/// Whether a filter is one of the fast path.
fn is_own(filter: &TcFilter) -> bool {
    let name = filter.name.as_deref();
    filter.id == FILTER && name.is_some_and(|name| name.starts_with(FILTER_NAME))
}

/// The filters of the fast path in a namespace.
#[derive(Debug)]
pub(super) struct Filters {
    netns: NetNs,
    /// Opened where it is needed: on most hosts there are no filters.
    links: Option<KernelLinks>,
}

impl Filters {
    pub(super) fn new(netns: &NetNs) -> Self {
        Filters {
            netns: netns.clone(),
            links: None,
        }
    }

    fn links(&mut self) -> Result<&mut KernelLinks, FastPathError> {
        let links = match self.links.take() {
            Some(links) => links,
            None => KernelLinks::open(&self.netns)?,
        };
        Ok(self.links.insert(links))
    }

    /// Where there are any, whoever has attached them.
    pub(super) fn list(&mut self) -> Result<Vec<(u32, AttachPoint)>, FastPathError> {
        let links = self.links()?;
        let mut found = Vec::new();
        for interface in links.filter_qdiscs()?.into_keys() {
            for point in AttachPoint::ALL {
                if links.filters(interface, point)?.iter().any(is_own) {
                    found.push((interface, point));
                }
            }
        }
        Ok(found)
    }

    /// Deletes the filter of an interface, if there is one.
    pub(super) fn delete(
        &mut self,
        interface: u32,
        point: AttachPoint,
    ) -> Result<(), FastPathError> {
        if fault::is_injected("fast-path-filter-left") {
            return Ok(());
        }
        let links = self.links()?;
        if links.filters(interface, point)?.iter().any(is_own) {
            links.delete_filter(interface, point, FILTER)?;
        }
        Ok(())
    }
}

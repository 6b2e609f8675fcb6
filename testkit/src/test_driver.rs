//! The driver that tests, benches and the differential enforce with.
//!
//! Promises: nothing of the fast path stays pinned for a namespace that the testkit made, once it is deleted.

use std::path::Path;

use nix::mount::{MsFlags, mount};
use palisade_dataplane::ebpf::{self, EbpfDataplane, FastPathConfig, FastPathMode};
use palisade_dataplane::nftables::{self, Config};

use palisade_dataplane::{DriverError, DriverErrorKind, Interface, PolicyDriver as _};
use palisade_generators::is_second_drawn;
use palisade_model::Prefix;
use palisade_sys::bpf::is_bpf_file_system;
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;

use crate::guest::is_guest;
use crate::lab::OUTSIDE_INTERFACE;

/// The proof bit of tests.
const PROOF_BIT: u32 = 0x2000;

/// The variable with the name of the driver that tests enforce with: `nftables`, which is the default, or `ebpf`. It is the
/// agent's own, so agents that tests start read it as well.
pub const VARIABLE: &str = "PALISADE_DATAPLANE";

/// The name of nftables alone.
pub const NFTABLES: &str = nftables::NAME;

/// The name of nftables with the fast path above it.
pub const FAST_PATH: &str = ebpf::NAME;

/// Opens the driver of `PALISADE_DATAPLANE` in a namespace, and tells it of the interfaces there.
///
/// # Errors
/// As [`EbpfDataplane::new_in`]; of an unknown name.
pub fn open_driver(config: Config, netns: &NetNs) -> Result<EbpfDataplane, DriverError> {
    let name = driver_name();
    match name.as_str() {
        "" | "nftables" => open_nftables(config, netns),
        ebpf::NAME => open_fast_path(config, netns),
        _ => Err(DriverError::new(
            DriverErrorKind::Unusable,
            "opening",
            "the driver of PALISADE_DATAPLANE",
            format!("there is no driver {name:?}"),
        )),
    }
}

/// The dataplane of the agents of the calling test: that of `PALISADE_DATAPLANE`, else one of both, drawn by the name of
/// the test and the fresh seed. In a guest, which takes a minute to verify programs, it is nftables.
///
/// # Panics
/// If the seed is no number; if no BPF file system can be mounted.
#[must_use]
pub fn agent_dataplane() -> String {
    let name = driver_name();
    if !name.is_empty() {
        return name;
    }
    let is_fast = !is_guest() && is_second_drawn();
    #[allow(clippy::expect_used, reason = "documented")]
    if is_fast {
        mount_bpf_file_system().expect("the fast path needs a BPF file system");
    }
    let name = if is_fast { FAST_PATH } else { NFTABLES };
    println!("dataplane: {name}, drawn; FRESH_SEED or {VARIABLE} repeats it");
    name.to_owned()
}

/// Whether [`open_driver`] opens the fast path.
#[must_use]
pub fn has_fast_path() -> bool {
    driver_name() == ebpf::NAME
}

fn driver_name() -> String {
    #[allow(
        clippy::disallowed_methods,
        reason = "the kernel ring runs once with each driver"
    )]
    std::env::var(VARIABLE).unwrap_or_default()
}

/// Opens nftables alone.
///
/// # Errors
/// As [`EbpfDataplane::new_in`].
pub fn open_nftables(config: Config, netns: &NetNs) -> Result<EbpfDataplane, DriverError> {
    EbpfDataplane::new_in(config, FastPathMode::Off, netns)
}

/// Opens nftables with the fast path, and tells it of the interfaces of the namespace.
///
/// # Errors
/// As [`EbpfDataplane::new_in`]; if no BPF file system can be mounted.
pub fn open_fast_path(config: Config, netns: &NetNs) -> Result<EbpfDataplane, DriverError> {
    let fast = FastPathConfig {
        proof_bit: PROOF_BIT,
        networks: vec![Prefix::ALL_V4, Prefix::ALL_V6],
        uplinks: vec![OUTSIDE_INTERFACE.into()],
    };
    open_fast_path_with(config, fast, netns)
}

/// The same with another fast path: the lab's packets to the outside take it, or not.
///
/// # Errors
/// As [`open_fast_path`].
pub fn open_fast_path_with(
    config: Config,
    fast: FastPathConfig,
    netns: &NetNs,
) -> Result<EbpfDataplane, DriverError> {
    mount_bpf_file_system()?;
    let mut driver = EbpfDataplane::new_in(config, FastPathMode::On(fast), netns)?;
    list_interfaces(&mut driver, netns)?;
    Ok(driver)
}

/// Tells a driver of the interfaces of its namespace.
///
/// # Errors
/// If they cannot be listed.
pub fn list_interfaces(driver: &mut EbpfDataplane, netns: &NetNs) -> Result<(), DriverError> {
    let links = KernelLinks::open(netns)?.links()?.into_iter();
    let interfaces: Vec<Interface> = links
        .map(|link| Interface {
            name: link.name.as_str().into(),
            index: link.index,
        })
        .collect();
    driver.interfaces_listed(&interfaces)
}

/// Mounts the BPF file system where systemd does, if nothing has.
///
/// # Errors
/// If it cannot be mounted.
pub fn mount_bpf_file_system() -> Result<(), DriverError> {
    const PATH: &str = "/sys/fs/bpf";
    let failed = |reason: String| {
        DriverError::new(
            DriverErrorKind::Unusable,
            "mounting",
            "the BPF file system",
            reason,
        )
    };
    if is_bpf_file_system(Path::new(PATH)).is_ok_and(|is_mounted| is_mounted) {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // Another test may be faster: then there are two, one above the other, which is no matter.
    mount(Some("bpf"), PATH, Some("bpf"), flags, None::<&str>)
        .map_err(|errno| failed(errno.to_string()))
}

/// Removes what is pinned for a namespace.
pub(crate) fn remove_pins(netns: &NetNs) {
    let folder = ebpf::pin_folder(netns);
    if folder.exists()
        && let Err(error) = std::fs::remove_dir_all(&folder)
    {
        eprintln!("removing {}: {error}", folder.display());
    }
}

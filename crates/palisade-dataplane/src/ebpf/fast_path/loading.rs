//! The maps of a start, and its programs, which the verifier of the kernel looks at while the maps are filled.
//!
//! Promises: what is pinned is configured; until the programs are loaded, no map of policy that others use is changed.
//!
//! Never: attaches a program.

use palisade_bpf::{BpfObject, FastPathMaps, UnverifiedPrograms};
use palisade_sys::bpf::BpfMap;
use palisade_sys::fault;
use palisade_sys::random::random_u32;

use super::super::error::FastPathError;
use super::super::pins::PinFolders;
use super::{FastPath, SHARED_MAPS};

/// Makes the maps, with those of an earlier agent that outlive it if all can be used; otherwise with new
/// ones, which are configured before they are pinned: a kill between the two leaves nothing that would be taken over. The
/// programs are returned, to be loaded while the maps are filled.
pub(super) fn make_maps(
    pins: &PinFolders,
    proof_bit: u32,
) -> Result<(FastPathMaps, UnverifiedPrograms), FastPathError> {
    let open = |name: &str| {
        let shape = BpfObject::FAST_PATH.map_shape(name).ok()?;
        BpfMap::open_pinned(&pins.map(name), shape).ok()
    };
    let has_all = SHARED_MAPS.iter().all(|name| open(name).is_some());
    let (loaded, programs) = BpfObject::FAST_PATH.make_maps(&[], |name, _| {
        let is_shared = has_all && SHARED_MAPS.contains(&name);
        is_shared.then(|| open(name)).flatten()
    })?;
    let maps = FastPathMaps::new(loaded)?;
    if has_all {
        maps.configure_again(proof_bit);
        return Ok((maps, programs));
    }
    let seed = u64::from(random_u32()?) << 32 | u64::from(random_u32()?);
    maps.configure(proof_bit, seed);
    for name in SHARED_MAPS {
        pins.remove_map(name)?;
        let map = maps.loaded().map(name);
        map.ok_or(FastPathError::Missing(name))?
            .pin(&pins.map(name))?;
        fault::reach("start-shared-map-pinned");
    }
    Ok((maps, programs))
}

/// Does the work while the programs are loaded, on threads of their own, and gives the maps the programs.
pub(super) fn load_beside<T>(
    fast: &mut FastPath,
    programs: UnverifiedPrograms,
    work: impl FnOnce(&mut FastPath) -> Result<T, FastPathError>,
) -> Result<T, FastPathError> {
    std::thread::scope(|scope| {
        let loading = scope.spawn(move || programs.load());
        let done = work(fast);
        let loaded = match loading.join() {
            Ok(loaded) => loaded,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        fast.maps.add_programs(loaded?);
        done
    })
}

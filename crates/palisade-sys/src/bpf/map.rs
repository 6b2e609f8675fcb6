//! Maps: made, read, written alone and in batches, and mapped into memory.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::sys::mman::{self, ProtFlags, mmap, munmap};

use super::syscall::{
    BpfCommand as _, CreateMap, DeleteBatch, DeleteElement, GetObjectInfo, LookUpBatch,
    LookUpElement, UpdateBatch, UpdateElement, address, address_mut, object_name, raw,
};
use super::{BpfError, pin, refused};

/// How a map is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapFlags(u32);

impl MapFlags {
    /// Of a hash: memory is taken for elements that exist only (`BPF_F_NO_PREALLOC`).
    pub const NO_PREALLOC: MapFlags = MapFlags(1);
    /// Its values can be mapped into the memory of a process (`BPF_F_MMAPABLE`).
    pub const MAPPABLE: MapFlags = MapFlags(1 << 10);

    /// Flags by the kernel's bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        MapFlags(bits)
    }
}

/// The kind of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Keys to values.
    Hash,
    /// Numbers from 0 to values, all of which exist.
    Array,
    /// The same, with a value for each CPU.
    PerCpuArray,
    /// A queue of records from programs to a process.
    RingBuffer,
}

impl MapKind {
    /// The kernel's number (`enum bpf_map_type`).
    fn number(self) -> u32 {
        match self {
            MapKind::Hash => 1,
            MapKind::Array => 2,
            MapKind::PerCpuArray => 6,
            MapKind::RingBuffer => 27,
        }
    }

    /// The kind with a number of the kernel's; `None` if it is none of these.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let all = [
            MapKind::Hash,
            MapKind::Array,
            MapKind::PerCpuArray,
            MapKind::RingBuffer,
        ];
        all.into_iter().find(|kind| kind.number() == number)
    }
}

/// The shape of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    /// Its kind; `None` of a pinned map of another kind.
    pub kind: Option<MapKind>,
    /// The size of a key, in bytes.
    pub key_size: u32,
    /// The size of a value, in bytes.
    pub value_size: u32,
    /// The greatest number of elements; of a ring buffer, its bytes.
    pub max_entries: u32,
    /// How it is made.
    pub flags: MapFlags,
}

/// A key and its value. Of a per-CPU array, the values of all CPUs, each from a multiple of eight bytes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfMapElement {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// Whether an update may add an element, or replace one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateMode {
    /// Either.
    Any,
    /// It adds one.
    Add,
    /// It replaces one.
    Replace,
}

impl UpdateMode {
    fn flags(self) -> u64 {
        match self {
            UpdateMode::Any => 0,
            UpdateMode::Add => 1,
            UpdateMode::Replace => 2,
        }
    }
}

/// A map.
#[derive(Debug)]
pub struct BpfMap {
    fd: OwnedFd,
    name: String,
    shape: MapShape,
    /// The size of a value for a process: that of a per-CPU array has one for each CPU.
    value_bytes: usize,
}

impl BpfMap {
    /// Makes a map.
    ///
    /// # Errors
    /// If the kernel refuses: `EPERM` without the rights, `E2BIG` or `ENOMEM` for its size, `EINVAL` for a kind that the
    /// kernel does not have.
    pub fn create(name: &str, shape: MapShape) -> Result<Self, BpfError> {
        let argument = CreateMap {
            kind: shape.kind.map_or(0, MapKind::number),
            key_size: shape.key_size,
            value_size: shape.value_size,
            max_entries: shape.max_entries,
            flags: shape.flags.0,
            name: object_name(name),
            ..CreateMap::default()
        };
        let fd = argument.call_for_descriptor();
        let fd = fd.map_err(refused("creating BPF map", name))?;
        BpfMap::new(fd, name.to_owned(), shape)
    }

    /// Opens a pinned map of this shape.
    ///
    /// # Errors
    /// If there is no pin (`ENOENT`), it is no map, or its shape is another one.
    pub fn open_pinned(path: &Path, shape: MapShape) -> Result<Self, BpfError> {
        let name = path.display().to_string();
        let fd = pin::open(path, "opening the pinned BPF map")?;
        let found = read_shape(&fd).map_err(refused("reading the shape of BPF map", &name))?;
        if found != shape {
            return Err(BpfError::Shape {
                object: name,
                found,
                expected: shape,
            });
        }
        BpfMap::new(fd, name, shape)
    }

    fn new(fd: OwnedFd, name: String, shape: MapShape) -> Result<Self, BpfError> {
        let one = shape.value_size as usize;
        let value_bytes = match shape.kind {
            Some(MapKind::PerCpuArray) => {
                let cpus = possible_cpus();
                let cpus = cpus.map_err(refused("counting the CPUs for BPF map", &name))?;
                one.next_multiple_of(8) * cpus
            }
            _ => one,
        };
        Ok(BpfMap {
            fd,
            name,
            shape,
            value_bytes,
        })
    }

    /// Pins the map: it stays as long as the pin does.
    ///
    /// # Errors
    /// If the path exists (`EEXIST`) or is not in a BPF file system.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        pin::pin(&self.fd, path, "pinning BPF map")
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> MapShape {
        self.shape
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn id(&self) -> Result<u32, BpfError> {
        super::object_id(&self.fd, "reading the number of BPF map", &self.name)
    }

    /// Its descriptor, for programs that use it.
    #[must_use]
    pub fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    fn check(
        &self,
        operation: &'static str,
        given: usize,
        expected: usize,
    ) -> Result<(), BpfError> {
        if given == expected {
            return Ok(());
        }
        Err(BpfError::Size {
            operation,
            object: self.name.clone(),
            given,
            expected,
        })
    }

    /// The value of a key; `None` if there is none. Of a per-CPU array, the values of all CPUs, each from a multiple of
    /// eight bytes on.
    ///
    /// # Errors
    /// If the key has another size, or the kernel refuses.
    pub fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        let operation = "looking up an element of BPF map";
        self.check(operation, key.len(), self.shape.key_size as usize)?;
        let mut value = vec![0; self.value_bytes];
        let mut argument = LookUpElement {
            map: raw(&self.fd),
            key: address(key),
            value: address_mut(&mut value),
            ..LookUpElement::default()
        };
        match argument.call() {
            Ok(_) => Ok(Some(value)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(refused(operation, &self.name)(error)),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// If a size is another one, the mode does not fit (`EEXIST`, `ENOENT`), or there is no room (`E2BIG`, `ENOMEM`).
    pub fn update(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), BpfError> {
        let operation = "updating an element of BPF map";
        self.check(operation, key.len(), self.shape.key_size as usize)?;
        self.check(operation, value.len(), self.value_bytes)?;
        let mut argument = UpdateElement {
            map: raw(&self.fd),
            key: address(key),
            value: address(value),
            flags: mode.flags(),
            ..UpdateElement::default()
        };
        (argument.call().map(drop)).map_err(refused(operation, &self.name))
    }

    /// Deletes an element; whether there was one.
    ///
    /// # Errors
    /// If the key has another size, or the kernel refuses: elements of arrays are not deleted (`EINVAL`).
    pub fn delete(&self, key: &[u8]) -> Result<bool, BpfError> {
        let operation = "deleting an element of BPF map";
        self.check(operation, key.len(), self.shape.key_size as usize)?;
        let mut argument = DeleteElement {
            map: raw(&self.fd),
            key: address(key),
            ..DeleteElement::default()
        };
        match argument.call() {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(refused(operation, &self.name)(error)),
        }
    }

    /// Sets the values of keys that follow each other in `keys`, in order, in one call. If it fails, a prefix is set.
    ///
    /// # Errors
    /// As [`BpfMap::update`].
    pub fn update_all(&self, keys: &[u8], values: &[u8], mode: UpdateMode) -> Result<(), BpfError> {
        let operation = "updating elements of BPF map";
        let count = self.count_keys(operation, keys)?;
        self.check(operation, values.len(), count as usize * self.value_bytes)?;
        if count == 0 {
            return Ok(());
        }
        let mut argument = UpdateBatch {
            keys: address(keys),
            values: address(values),
            count,
            map: raw(&self.fd),
            element_flags: mode.flags(),
            ..UpdateBatch::default()
        };
        (argument.call().map(drop)).map_err(refused(operation, &self.name))
    }

    /// Deletes the elements of keys that follow each other in `keys`, in one call. If one does not exist, those after it
    /// are not deleted.
    ///
    /// # Errors
    /// As [`BpfMap::delete`]; `ENOENT` if an element does not exist.
    pub fn delete_all(&self, keys: &[u8]) -> Result<(), BpfError> {
        let operation = "deleting elements of BPF map";
        let count = self.count_keys(operation, keys)?;
        if count == 0 {
            return Ok(());
        }
        let mut argument = DeleteBatch {
            keys: address(keys),
            count,
            map: raw(&self.fd),
            ..DeleteBatch::default()
        };
        (argument.call().map(drop)).map_err(refused(operation, &self.name))
    }

    fn count_keys(&self, operation: &'static str, keys: &[u8]) -> Result<u32, BpfError> {
        let size = (self.shape.key_size as usize).max(1);
        let count = keys.len() / size;
        self.check(operation, keys.len(), count * size)?;
        u32::try_from(count).map_err(|_| BpfError::Size {
            operation,
            object: self.name.clone(),
            given: keys.len(),
            expected: u32::MAX as usize,
        })
    }

    /// All elements, in the order of the kernel. What is added or deleted meanwhile may be missing or there.
    ///
    /// # Errors
    /// If the kernel refuses, or has no batches for this kind of map (before Linux 5.6; 5.13 for per-CPU arrays).
    pub fn elements(&self) -> Result<Vec<BpfMapElement>, BpfError> {
        let operation = "reading the elements of BPF map";
        let (key_size, value_size) = (self.shape.key_size as usize, self.value_bytes);
        // A bucket of a hash must fit: the kernel says `ENOSPC` where it does not.
        let mut room = (self.shape.max_entries as usize).clamp(1, 4_096);
        let mut place: Option<[u8; 8]> = None;
        let mut elements = Vec::new();
        loop {
            let (mut keys, mut values) = (vec![0; room * key_size], vec![0; room * value_size]);
            // The kernel keeps a place in as many bytes as a key has, or four.
            let mut next = vec![0; key_size.max(8)];
            let first = place.map(|place| {
                let mut bytes = vec![0; key_size.max(8)];
                bytes[..8].copy_from_slice(&place);
                bytes
            });
            let mut argument = LookUpBatch {
                first: first.as_deref().map_or(0, address),
                next: address_mut(&mut next),
                keys: address_mut(&mut keys),
                values: address_mut(&mut values),
                count: u32::try_from(room).unwrap_or(u32::MAX),
                map: raw(&self.fd),
                ..LookUpBatch::default()
            };
            let result = argument.call();
            if result == Err(Errno::ENOSPC) && argument.count == 0 {
                room *= 2;
                continue;
            }
            let is_last = result == Err(Errno::ENOENT);
            if let Err(error) = result
                && !is_last
                && error != Errno::ENOSPC
            {
                return Err(refused(operation, &self.name)(error));
            }
            let count = argument.count as usize;
            let found = keys.chunks(key_size).zip(values.chunks(value_size));
            elements.extend(found.take(count).map(|(key, value)| BpfMapElement {
                key: key.to_vec(),
                value: value.to_vec(),
            }));
            if is_last {
                return Ok(elements);
            }
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&next[..8]);
            place = Some(bytes);
        }
    }

    /// Maps the values of an array into memory, to be read and written while programs use them.
    ///
    /// # Errors
    /// If the map is not mappable, or there is no memory.
    pub fn view(&self) -> Result<MapView, BpfError> {
        let operation = "mapping BPF map";
        let bytes = self.value_bytes.next_multiple_of(8) * self.shape.max_entries as usize;
        let words = bytes / 8;
        let length = NonZeroUsize::new(bytes);
        let length = length.ok_or_else(|| refused(operation, &self.name)(Errno::EINVAL))?;
        // SAFETY: a new mapping at an address of the kernel's choice; the map lives as long as the mapping.
        let mapped = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                mman::MapFlags::MAP_SHARED,
                self.fd.as_fd(),
                0,
            )
        };
        Ok(MapView {
            memory: mapped.map_err(refused(operation, &self.name))?,
            length,
            words,
        })
    }
}

/// The values of an array, in memory: each begins at a multiple of eight bytes.
#[derive(Debug)]
pub struct MapView {
    memory: NonNull<c_void>,
    length: NonZeroUsize,
    words: usize,
}

// SAFETY: it is memory of its own, which is only read and written atomically.
unsafe impl Send for MapView {}
// SAFETY: as above.
unsafe impl Sync for MapView {}

impl MapView {
    /// All values, as words of eight bytes in the byte order of this machine.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned to pages, has this many words, and lives as long as this; programs write the
        // words too, but atomics may be written by others.
        unsafe { std::slice::from_raw_parts(self.memory.cast::<AtomicU64>().as_ptr(), self.words) }
    }
}

impl Drop for MapView {
    fn drop(&mut self) {
        // SAFETY: this mapping, whose words nobody can use any more.
        let _ = unsafe { munmap(self.memory, self.length.get()) };
    }
}

/// The part of `struct bpf_map_info` that has the shape.
#[derive(Default)]
#[repr(C)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

fn read_shape(fd: &OwnedFd) -> Result<MapShape, Errno> {
    let mut info = MapInfo::default();
    let mut argument = GetObjectInfo {
        object: raw(fd),
        info_size: size_of::<MapInfo>() as u32,
        info: std::ptr::from_mut(&mut info).expose_provenance() as u64,
    };
    argument.call()?;
    Ok(MapShape {
        kind: MapKind::from_number(info.kind),
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        flags: MapFlags(info.flags),
    })
}

/// The number of CPUs that the kernel may have, for which per-CPU values are kept.
fn possible_cpus() -> Result<usize, Errno> {
    // As the kernel lists them: `0-3`, or `0,2-5`.
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    let listed =
        listed.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    // Without the number the kernel would write more values than there is room for.
    count_listed(&listed).ok_or(Errno::EINVAL)
}

fn count_listed(ranges: &str) -> Option<usize> {
    let mut highest = None;
    for range in ranges.trim().split(',') {
        let (_, last) = range.split_once('-').unwrap_or((range, range));
        highest = highest.max(Some(last.parse::<usize>().ok()?));
    }
    highest.map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted_up_to_the_highest() {
        assert_eq!(count_listed("0\n"), Some(1));
        assert_eq!(count_listed("0-3\n"), Some(4));
        assert_eq!(count_listed("0,2-5"), Some(6));
        assert_eq!(count_listed(""), None);
    }
}

//! The system call: its commands, and the descriptors that it returns.
//!
//! Promises: a command is called with an argument of its own layout only ([`BpfCommand`]).
//!
//! Never: interprets an error.

use std::ffi::c_int;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;

/// The argument of a command, laid out as the kernel's `union bpf_attr` (`include/uapi/linux/bpf.h`).
///
/// # Safety
/// The type is `repr(C)`, has the layout of the command's member from its start, and no padding. A pointer in it is to
/// memory that the command may read, or write where it says so, and that lives through the call.
pub(crate) unsafe trait BpfCommand: Sized {
    /// The number of the command.
    const NUMBER: c_int;

    /// Calls the command; what the kernel writes into the argument is read there.
    fn call(&mut self) -> Result<c_int, Errno> {
        // SAFETY: the argument has the layout of the command, and the kernel gets its size.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                Self::NUMBER,
                std::ptr::from_mut(self),
                size_of::<Self>(),
            )
        };
        Errno::result(result).map(|value| value as c_int)
    }

    /// Calls a command that returns a descriptor.
    fn call_for_descriptor(mut self) -> Result<OwnedFd, Errno> {
        let fd = self.call()?;
        // SAFETY: the kernel has just created this descriptor for this process alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Defines arguments of commands.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident = $number:literal { $($field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$attribute])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(crate) struct $name { $(pub(crate) $field: $kind,)* }

            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: it has integers and arrays of them only.
                    unsafe { zeroed() }
                }
            }

            // SAFETY: each is checked against the kernel's header where it is defined.
            unsafe impl BpfCommand for $name {
                const NUMBER: c_int = $number;
            }
        )*
    };
}

/// The length of the name of an object, with its NUL.
pub(crate) const NAME_LENGTH: usize = 16;

commands! {
    /// `BPF_MAP_CREATE`.
    CreateMap = 0 {
        kind: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
        inner_map: u32,
        numa_node: u32,
        name: [u8; NAME_LENGTH],
    }
    /// `BPF_MAP_LOOKUP_ELEM`: `value` is written.
    LookUpElement = 1 {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    /// `BPF_MAP_UPDATE_ELEM`.
    UpdateElement = 2 {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    /// `BPF_MAP_DELETE_ELEM`.
    DeleteElement = 3 {
        map: u32,
        padding: u32,
        key: u64,
    }
    /// `BPF_PROG_LOAD`: `log` is written.
    LoadProgram = 5 {
        kind: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; NAME_LENGTH],
        interface: u32,
        attach_type: u32,
        btf: u32,
        function_record_size: u32,
        functions: u64,
        function_count: u32,
        line_record_size: u32,
        lines: u64,
        line_count: u32,
        padding: u32,
    }
    /// `BPF_OBJ_PIN`.
    PinObject = 6 {
        path: u64,
        object: u32,
        flags: u32,
    }
    /// `BPF_OBJ_GET`.
    GetPinnedObject = 7 {
        path: u64,
        object: u32,
        flags: u32,
    }
    /// `BPF_PROG_TEST_RUN`: `output`, and the fields that say so, are written.
    TestRunProgram = 10 {
        program: u32,
        verdict: u32,
        input_size: u32,
        output_size: u32,
        input: u64,
        output: u64,
        repeat: u32,
        nanoseconds: u32,
        context_input_size: u32,
        context_output_size: u32,
        context_input: u64,
        context_output: u64,
        flags: u32,
        cpu: u32,
        batch_size: u32,
        padding: u32,
    }
    /// `BPF_OBJ_GET_INFO_BY_FD`: `info` is written.
    GetObjectInfo = 15 {
        object: u32,
        info_size: u32,
        info: u64,
    }
    /// `BPF_PROG_QUERY`: the lists are written, and `count`.
    QueryPrograms = 16 {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        programs: u64,
        count: u32,
        padding: u32,
        program_flags: u64,
        links: u64,
        link_flags: u64,
        revision: u64,
    }
    /// `BPF_BTF_LOAD`: `log` is written.
    LoadBtf = 18 {
        btf: u64,
        log: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        padding: u32,
    }
    /// `BPF_MAP_LOOKUP_BATCH`: keys, values, `next` and `count` are written.
    LookUpBatch = 24 {
        first: u64,
        next: u64,
        keys: u64,
        values: u64,
        count: u32,
        map: u32,
        element_flags: u64,
        flags: u64,
    }
    /// `BPF_MAP_UPDATE_BATCH`: `count` is written.
    UpdateBatch = 26 {
        first: u64,
        next: u64,
        keys: u64,
        values: u64,
        count: u32,
        map: u32,
        element_flags: u64,
        flags: u64,
    }
    /// `BPF_MAP_DELETE_BATCH`: `count` is written.
    DeleteBatch = 27 {
        first: u64,
        next: u64,
        keys: u64,
        values: u64,
        count: u32,
        map: u32,
        element_flags: u64,
        flags: u64,
    }
    /// `BPF_LINK_CREATE`, with the part of tcx.
    CreateLink = 28 {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
        relative: u32,
        padding: u32,
        revision: u64,
    }
    /// `BPF_LINK_UPDATE`.
    UpdateLink = 29 {
        link: u32,
        program: u32,
        flags: u32,
        former_program: u32,
    }
    /// `BPF_LINK_DETACH`.
    DetachLink = 34 {
        link: u32,
    }
}

/// A descriptor as the kernel's arguments have it.
pub(crate) fn raw(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// The address of bytes that the kernel reads.
pub(crate) fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

/// The address of bytes that the kernel writes.
pub(crate) fn address_mut(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr().expose_provenance() as u64
}

/// The name of an object, cut to what the kernel takes: letters, digits, `_` and `.`.
pub(crate) fn object_name(name: &str) -> [u8; NAME_LENGTH] {
    let mut bytes = [0; NAME_LENGTH];
    let is_taken = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    let given = name.bytes().filter(|byte| is_taken(*byte));
    for (place, byte) in bytes.iter_mut().take(NAME_LENGTH - 1).zip(given) {
        *place = byte;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_to_what_the_kernel_takes() {
        assert_eq!(&object_name("flows"), b"flows\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&object_name("a-name of more bytes"), b"anameofmorebyte\0");
    }

    #[test]
    fn arguments_have_the_sizes_of_the_kernel_s() {
        // As far as each goes; without padding at the end.
        assert_eq!(size_of::<CreateMap>(), 44);
        assert_eq!(size_of::<LoadProgram>(), 112);
        assert_eq!(size_of::<TestRunProgram>(), 80);
        assert_eq!(size_of::<QueryPrograms>(), 64);
        assert_eq!(size_of::<LookUpBatch>(), 56);
        assert_eq!(size_of::<CreateLink>(), 32);
    }
}

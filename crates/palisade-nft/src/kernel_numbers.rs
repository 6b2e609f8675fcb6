//! The numbers of all objects in the table: those that every dataplane has, and the codes of source-port chains.

use crate::names::{ANY_INTERFACE, FIRST_BASE, LAST_VERDICT};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_layout::{BasePrograms, ObjectNumbers};
use palisade_tables::ClassId;

/// The kernel's numbers of all objects.
#[derive(Clone, Debug)]
pub(crate) struct KernelNumbers {
    pub(crate) objects: ObjectNumbers,
    pub(crate) bases: BasePrograms,
    /// The codes of each class's source-port chains, in the order of creation.
    pub(crate) source_port_codes: BTreeMap<ClassId, Vec<u32>>,
    /// The same of each base, by its number.
    pub(crate) base_codes: BTreeMap<u32, Vec<u32>>,
    pub(crate) next_code: u32,
}

impl Default for KernelNumbers {
    fn default() -> Self {
        KernelNumbers {
            objects: ObjectNumbers::new(FIRST_BASE - 1, ANY_INTERFACE + 1),
            bases: BasePrograms::new(FIRST_BASE),
            source_port_codes: BTreeMap::new(),
            base_codes: BTreeMap::new(),
            next_code: LAST_VERDICT + 1,
        }
    }
}

/// Allocates a code for a source-port chain.
pub(crate) fn allocate_code(next: &mut u32) -> u32 {
    let code = *next;
    *next = code.wrapping_add(1).max(LAST_VERDICT + 1);
    code
}

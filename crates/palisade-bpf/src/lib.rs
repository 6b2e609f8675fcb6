//! The BPF programs of the fast path: their source, their object, and how it is loaded.
//!
//! Programs are written in C (`src/c`), compiled when this crate is built, and embedded. [`BpfObject`] makes their maps
//! and loads them; [`FastPathSupport`] tells what the running kernel can do of what they need.
//!
//! Promises: what is loaded is what was compiled; the shapes of maps are those of the object, and are written nowhere
//! else; what the kernel refuses is named, with the end of the verifier's log. What is
//! written to the half of the policy that is not in force changes no verdict. Nothing is attached or pinned here.
//!
//! Never: decides a verdict, or knows a policy.

mod compare;
mod denials;
mod flow_table;
mod maps;
mod object;
mod support;

pub use compare::{ExpectedConfig, MapComparison, MapDifference};
pub use denials::{DenialRing, DeniedPacket};
pub use flow_table::{
    BucketFlows, FlowIdentity, FlowTable, FlowTableCounts, FlowTableEnd, FlowTableEntry,
};
pub use maps::{
    Epoch, FastPathMaps, FastPathState, FlowCounts, FormerSlots, HeldSlot, MapsError,
    SlotInterface, read_counter,
};
pub use object::{
    BpfObject, LAYOUT, LoadedObject, LoadedPrograms, ObjectError, UnverifiedPrograms,
};
pub use support::{FastPathSupport, MissingKernelFeature, ProgramAttachment};

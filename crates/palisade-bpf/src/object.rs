//! Objects: parsed, their maps made, their programs loaded, all programs at once.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;

use aya_obj::btf::BtfFeatures;
use aya_obj::generated::bpf_insn;
use aya_obj::{Function, Map, Object};
use palisade_sys::bpf::{
    BpfError, BpfMap, BpfProgram, Btf, DebugRecords, LoadError, MapFlags, MapKind, MapShape,
    ProgramSource,
};
use thiserror::Error;

/// Bytes at an address at which the headers of an object can be read.
#[repr(align(8))]
struct AlignedBytes<T>(T);

static FAST_PATH: AlignedBytes<
    [u8; include_bytes!(concat!(env!("OUT_DIR"), "/fast_path.o")).len()],
> = AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/fast_path.o")));

static PROBE: AlignedBytes<[u8; include_bytes!(concat!(env!("OUT_DIR"), "/probe.o")).len()]> =
    AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/probe.o")));

/// The shapes of the maps of [`BpfObject::FAST_PATH`], once they have been read.
static FAST_PATH_SHAPES: OnceLock<BTreeMap<String, MapShape>> = OnceLock::new();

/// A number of the layout of the maps: with another one, a pinned map is not to be used.
pub const LAYOUT: u64 = hash(
    include_bytes!("c/flows.h"),
    hash(include_bytes!("c/layout.h"), 0xcbf2_9ce4_8422_2325),
);

/// FNV-1a.
const fn hash(bytes: &[u8], mut state: u64) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        state = (state ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    state
}

/// An object cannot be used.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// It is not what the build of this program makes.
    #[error("the BPF object {object}: {reason}")]
    Malformed {
        /// Its name.
        object: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernel refuses a map.
    #[error(transparent)]
    Map(#[from] BpfError),
    /// The kernel refuses a program or its types.
    #[error(transparent)]
    Program(#[from] LoadError),
    /// The process may not have more descriptors.
    #[error("keeping the maps for the programs: {0}")]
    Descriptor(#[source] io::Error),
}

/// An object, as it was compiled.
#[derive(Clone, Copy, Debug)]
pub struct BpfObject {
    name: &'static str,
    bytes: &'static [u8],
}

/// The maps and programs of an object, in the kernel. They end with this, unless they are pinned.
#[derive(Debug)]
pub struct LoadedObject {
    maps: BTreeMap<String, BpfMap>,
    programs: LoadedPrograms,
}

/// The programs of an object, in the kernel, by name.
pub type LoadedPrograms = BTreeMap<String, BpfProgram>;

/// The programs of an object whose maps are made: they are to be verified, which takes as long as all else of a start.
pub struct UnverifiedPrograms {
    object: BpfObject,
    parsed: Object,
    /// Descriptors that the code names: they stay open until it is loaded.
    _descriptors: Vec<OwnedFd>,
}

impl BpfObject {
    /// The programs that use once each feature of the kernel that the fast path needs.
    pub const PROBE: BpfObject = BpfObject {
        name: "probe",
        bytes: &PROBE.0,
    };

    /// The fast path.
    pub const FAST_PATH: BpfObject = BpfObject {
        name: "fast_path",
        bytes: &FAST_PATH.0,
    };

    /// The shape of a map, as the object has it.
    ///
    /// # Errors
    /// If the object is not one of this program, or has no such map.
    pub fn map_shape(self, name: &str) -> Result<MapShape, ObjectError> {
        let malformed = || self.malformed(&format!("there is no map {name}"));
        if self.name == BpfObject::FAST_PATH.name {
            // They are asked for again and again, and reading an object takes milliseconds.
            let shapes = match FAST_PATH_SHAPES.get() {
                Some(shapes) => shapes,
                None => {
                    let shapes = self.shapes()?;
                    FAST_PATH_SHAPES.get_or_init(|| shapes)
                }
            };
            return shapes.get(name).copied().ok_or_else(malformed);
        }
        self.shapes()?.remove(name).ok_or_else(malformed)
    }

    fn shapes(self) -> Result<BTreeMap<String, MapShape>, ObjectError> {
        let object = Object::parse(self.bytes).map_err(|error| self.malformed(&error))?;
        let maps = object.maps.iter();
        maps.map(|(name, map)| Ok((name.clone(), self.shape_of(name, map)?)))
            .collect()
    }

    /// Makes the maps of the object and loads its programs.
    ///
    /// # Errors
    /// If the kernel refuses, or the object is not one of this program.
    pub fn load(self) -> Result<LoadedObject, ObjectError> {
        self.load_sized(&[], |_, _| None)
    }

    /// The same, with other numbers of elements for the maps of these names, and with maps that exist where `find` has one
    /// of the name and the shape.
    ///
    /// # Errors
    /// As [`BpfObject::load`].
    pub fn load_sized(
        self,
        sizes: &[(&str, u32)],
        find: impl Fn(&str, MapShape) -> Option<BpfMap>,
    ) -> Result<LoadedObject, ObjectError> {
        let (mut loaded, programs) = self.make_maps(sizes, find)?;
        loaded.programs = programs.load()?;
        Ok(loaded)
    }

    /// The same without programs, which are returned to be loaded while the maps are filled.
    ///
    /// # Errors
    /// As [`BpfObject::load`].
    pub fn make_maps(
        self,
        sizes: &[(&str, u32)],
        find: impl Fn(&str, MapShape) -> Option<BpfMap>,
    ) -> Result<(LoadedObject, UnverifiedPrograms), ObjectError> {
        let mut object = Object::parse(self.bytes).map_err(|error| self.malformed(&error))?;
        let mut maps = BTreeMap::new();
        for (name, map) in &object.maps {
            let mut shape = self.shape_of(name, map)?;
            if let Some((_, size)) = sizes.iter().find(|(sized, _)| sized == name) {
                shape.max_entries = *size;
            }
            let found = find(name, shape);
            let map = found.map_or_else(|| BpfMap::create(name, shape), Ok)?;
            maps.insert(name.clone(), map);
        }
        let mut descriptors = BTreeMap::new();
        for (name, map) in &maps {
            let descriptor = map.descriptor().try_clone();
            descriptors.insert(name.clone(), descriptor.map_err(ObjectError::Descriptor)?);
        }
        self.relocate(&mut object, &descriptors)?;
        let programs = UnverifiedPrograms {
            object: self,
            parsed: object,
            _descriptors: descriptors.into_values().collect(),
        };
        let loaded = LoadedObject {
            maps,
            programs: LoadedPrograms::new(),
        };
        Ok((loaded, programs))
    }

    /// Puts the descriptors of maps and the places of functions into the code.
    fn relocate(
        self,
        object: &mut Object,
        maps: &BTreeMap<String, OwnedFd>,
    ) -> Result<(), ObjectError> {
        let sections = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        let definitions = object.maps.clone();
        let descriptors = definitions.iter().filter_map(|(name, definition)| {
            let map = maps.get(name)?;
            Some((name.as_str(), map.as_raw_fd(), definition))
        });
        let relocated = object.relocate_maps(descriptors, &sections);
        relocated.map_err(|error| self.malformed(&error))?;
        let linked = object.relocate_calls(&sections);
        linked.map_err(|error| self.malformed(&error))
    }

    fn load_types(self, object: &mut Object) -> Result<Option<Btf>, ObjectError> {
        // Every kernel that can run the programs knows these.
        let features = BtfFeatures::new(true, true, true, true, true, true, true, true);
        let types = object.fixup_and_sanitize_btf(&features);
        let types = types.map_err(|error| self.malformed(&error))?;
        let bytes = types.map(aya_obj::btf::Btf::to_bytes);
        Ok(bytes.map(|bytes| Btf::load(&bytes)).transpose()?)
    }

    fn shape_of(self, name: &str, map: &Map) -> Result<MapShape, ObjectError> {
        let kind = MapKind::from_number(map.map_type());
        let kind = kind.ok_or_else(|| self.malformed(&format!("{name} is of an unknown kind")))?;
        Ok(MapShape {
            kind: Some(kind),
            key_size: map.key_size(),
            value_size: map.value_size(),
            max_entries: map.max_entries(),
            flags: MapFlags::from_bits(map.map_flags()),
        })
    }

    fn malformed(self, reason: &dyn std::fmt::Display) -> ObjectError {
        ObjectError::Malformed {
            object: self.name,
            reason: reason.to_string(),
        }
    }
}

fn load_function(
    name: &str,
    license: &std::ffi::CStr,
    function: &Function,
    btf: Option<&Btf>,
) -> Result<BpfProgram, LoadError> {
    let instructions: Vec<u8> = function.instructions.iter().flat_map(encode).collect();
    let functions = function.func_info.func_info_bytes();
    let lines = function.line_info.line_info_bytes();
    BpfProgram::load(&ProgramSource {
        name,
        instructions: &instructions,
        license,
        btf,
        functions: DebugRecords {
            bytes: &functions,
            size: function.func_info_rec_size,
        },
        lines: DebugRecords {
            bytes: &lines,
            size: function.line_info_rec_size,
        },
    })
}

/// An instruction as the kernel reads it (`struct bpf_insn`).
fn encode(instruction: &bpf_insn) -> [u8; 8] {
    let (destination, source) = (instruction.dst_reg(), instruction.src_reg());
    let registers = if cfg!(target_endian = "little") {
        source << 4 | destination
    } else {
        destination << 4 | source
    };
    let [offset_first, offset_second] = instruction.off.to_ne_bytes();
    let [a, b, c, d] = instruction.imm.to_ne_bytes();
    [
        instruction.code,
        registers,
        offset_first,
        offset_second,
        a,
        b,
        c,
        d,
    ]
}

impl UnverifiedPrograms {
    /// Loads the programs, each on a thread of its own.
    ///
    /// # Errors
    /// If the kernel refuses one.
    pub fn load(mut self) -> Result<LoadedPrograms, ObjectError> {
        let types = self.object.load_types(&mut self.parsed)?;
        let functions = &self.parsed.functions;
        std::thread::scope(|scope| {
            let mut loading = Vec::new();
            for (name, program) in &self.parsed.programs {
                let function = functions.get(&program.function_key());
                let malformed = || self.object.malformed(&format!("{name} has no code"));
                let function = function.ok_or_else(malformed)?;
                let (license, types) = (&program.license, types.as_ref());
                let load = move || load_function(name, license, function, types);
                loading.push((name, scope.spawn(load)));
            }
            let mut programs = LoadedPrograms::new();
            for (name, thread) in loading {
                match thread.join() {
                    Ok(program) => programs.insert(name.clone(), program?),
                    Err(panic) => std::panic::resume_unwind(panic),
                };
            }
            Ok(programs)
        })
    }
}

impl fmt::Debug for UnverifiedPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.parsed.programs.keys().collect();
        f.debug_tuple("UnverifiedPrograms").field(&names).finish()
    }
}

impl LoadedObject {
    /// Adds the programs that use its maps.
    pub fn add_programs(&mut self, programs: LoadedPrograms) {
        self.programs.extend(programs);
    }

    /// A map, by its name in the source.
    pub fn map(&self, name: &str) -> Option<&BpfMap> {
        self.maps.get(name)
    }

    /// A program, by its name in the source.
    pub fn program(&self, name: &str) -> Option<&BpfProgram> {
        self.programs.get(name)
    }
}

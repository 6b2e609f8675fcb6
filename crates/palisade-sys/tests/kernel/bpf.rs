//! Maps, programs, links and pins of BPF.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;

use palisade_sys::Errno;
use palisade_sys::bpf::{
    AttachPoint, BpfError, BpfLink, BpfMap, BpfProgram, DebugRecords, LoadError, MapFlags, MapKind,
    MapShape, ProgramSource, UpdateMode, attached_programs, is_bpf_file_system,
};
use palisade_sys::netns::run_in;

use palisade_testkit::ring::report_skip;

use crate::need_root;
use crate::support::joined;

/// Lets the next program decide.
pub(crate) const NEXT: i32 = -1;
/// Drops the packet.
pub(crate) const DROP: i32 = 2;

fn shape(kind: MapKind, max_entries: u32, flags: MapFlags) -> MapShape {
    MapShape {
        kind: Some(kind),
        key_size: 4,
        value_size: 8,
        max_entries,
        flags,
    }
}

/// A program that gives every packet this verdict.
pub(crate) fn constant(verdict: i32) -> Vec<u8> {
    let [a, b, c, d] = verdict.to_ne_bytes();
    vec![0xb7, 0, 0, 0, a, b, c, d, 0x95, 0, 0, 0, 0, 0, 0, 0]
}

pub(crate) fn load(name: &str, instructions: &[u8]) -> Result<BpfProgram, LoadError> {
    BpfProgram::load(&ProgramSource {
        name,
        instructions,
        license: c"GPL",
        btf: None,
        functions: DebugRecords::default(),
        lines: DebugRecords::default(),
    })
}

/// A BPF file system of this test.
struct FileSystem(tempfile::TempDir);

impl FileSystem {
    fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "bpf", "bpf"])
            .arg(folder.path())
            .status();
        assert!(mounted.unwrap().success());
        FileSystem(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().unwrap())
}

#[test]
fn a_map_holds_what_is_written_alone_and_in_batches() {
    if !need_root() {
        return;
    }
    for flags in [MapFlags::default(), MapFlags::NO_PREALLOC] {
        let map = BpfMap::create("pal_hash", shape(MapKind::Hash, 20_000, flags)).unwrap();
        let key = |number: u32| number.to_ne_bytes();
        let value = |number: u64| number.to_ne_bytes();
        map.update(&key(1), &value(10), UpdateMode::Add).unwrap();
        let twice = map
            .update(&key(1), &value(11), UpdateMode::Add)
            .unwrap_err();
        assert_eq!(twice.errno(), Some(Errno::EEXIST), "{twice}");
        let absent = map.update(&key(2), &value(1), UpdateMode::Replace);
        assert_eq!(absent.unwrap_err().errno(), Some(Errno::ENOENT));
        assert_eq!(map.value(&key(1)).unwrap().as_deref(), Some(&value(10)[..]));
        assert_eq!(map.value(&key(2)).unwrap(), None);
        assert!(map.delete(&key(1)).unwrap() && !map.delete(&key(1)).unwrap());
        let keys: Vec<u8> = (0..20_000).flat_map(key).collect();
        let values: Vec<u8> = (0..20_000).flat_map(value).collect();
        map.update_all(&keys, &values, UpdateMode::Any).unwrap();
        let full = map.update(&key(30_000), &value(1), UpdateMode::Any);
        assert_eq!(full.unwrap_err().errno(), Some(Errno::E2BIG));
        let mut found = map.elements().unwrap();
        found.sort_by_key(|element| number(&element.value));
        assert_eq!(found.len(), 20_000, "all, and each once");
        for (at, element) in found.iter().enumerate() {
            assert_eq!(element.key, key(at as u32));
            assert_eq!(number(&element.value), at as u64);
        }
        map.delete_all(&keys[..4 * 19_990]).unwrap();
        assert_eq!(map.elements().unwrap().len(), 10);
        let half = map
            .update_all(&keys, &values[8..], UpdateMode::Any)
            .unwrap_err();
        assert!(matches!(half, BpfError::Size { .. }), "{half}");
    }
}

#[test]
fn arrays_are_mapped_and_counted_on_each_cpu() {
    if !need_root() {
        return;
    }
    let words = shape(MapKind::Array, 1_000, MapFlags::MAPPABLE);
    let words = BpfMap::create("pal_words", words).unwrap();
    let view = words.view().unwrap();
    view.words()[7].store(77, Ordering::Release);
    let seven = words.value(&7_u32.to_ne_bytes()).unwrap().unwrap();
    assert_eq!(number(&seven), 77);
    assert_eq!(view.words().len(), 1_000);
    assert_eq!(words.elements().unwrap().len(), 1_000);
    let plain = BpfMap::create("pal_plain", shape(MapKind::Array, 1, MapFlags::default())).unwrap();
    assert!(plain.view().is_err(), "was not made to be mapped");
    let counters = shape(MapKind::PerCpuArray, 2, MapFlags::default());
    let counters = BpfMap::create("pal_counters", counters).unwrap();
    let of_cpus = counters.value(&0_u32.to_ne_bytes()).unwrap().unwrap();
    assert_eq!(of_cpus.len() % 8, 0);
    assert!(of_cpus.len() >= 8 && of_cpus.iter().all(|byte| *byte == 0));
}

#[test]
fn a_pinned_map_is_opened_in_its_own_shape_only() {
    if !need_root() {
        return;
    }
    let pins = FileSystem::mount();
    assert!(is_bpf_file_system(pins.0.path()).unwrap());
    assert!(!is_bpf_file_system(std::path::Path::new("/proc")).unwrap());
    let own = shape(MapKind::Array, 4, MapFlags::MAPPABLE);
    let map = BpfMap::create("pal_pinned", own).unwrap();
    let path = pins.path("words");
    map.pin(&path).unwrap();
    assert_eq!(map.pin(&path).unwrap_err().errno(), Some(Errno::EEXIST));
    map.view().unwrap().words()[3].store(5, Ordering::Release);
    drop(map);
    let again = BpfMap::open_pinned(&path, own).unwrap();
    assert_eq!(
        number(&again.value(&3_u32.to_ne_bytes()).unwrap().unwrap()),
        5
    );
    for other in [
        shape(MapKind::Array, 5, MapFlags::MAPPABLE),
        shape(MapKind::Array, 4, MapFlags::default()),
        shape(MapKind::Hash, 4, MapFlags::default()),
    ] {
        let error = BpfMap::open_pinned(&path, other).unwrap_err();
        assert!(matches!(error, BpfError::Shape { .. }), "{error}");
    }
    let absent = BpfMap::open_pinned(&pins.path("absent"), own).unwrap_err();
    assert_eq!(absent.errno(), Some(Errno::ENOENT));
}

#[test]
fn a_refused_program_has_the_reason_of_the_verifier() {
    if !need_root() {
        return;
    }
    let program = load("pal_next", &constant(NEXT)).unwrap();
    let run = program.test_run(&[0; 64], &[], 1).unwrap();
    assert_eq!((run.verdict.cast_signed(), run.packet.len()), (NEXT, 64));
    // Without an end.
    let refused = load("pal_endless", &constant(NEXT)[..8]).unwrap_err();
    assert_eq!(refused.source, Errno::EINVAL);
    assert!(
        refused.to_string().contains("last insn is not an exit"),
        "{refused}"
    );
    assert!(program.test_run(&[0; 4], &[], 1).is_err(), "no packet");
}

#[test]
fn links_are_replaced_in_place_and_live_as_long_as_their_pins() {
    if !need_root() {
        return;
    }
    let (a, b) = joined("bpf");
    let index = a.links().link("a0").unwrap().unwrap().index;
    let listed = run_in(&a.netns, || attached_programs(index, AttachPoint::Ingress));
    if listed
        .unwrap()
        .is_err_and(|error| error.errno() == Some(Errno::EINVAL))
    {
        return report_skip("this kernel has no tcx links, which Linux has since 6.6");
    }
    // A connection that is possible has time to be made on a busy machine.
    let reaches = |milliseconds| {
        let server = run_in(&b.netns, || std::net::TcpListener::bind("10.9.0.2:80"));
        let _server = server.unwrap().unwrap();
        let wait = std::time::Duration::from_millis(milliseconds);
        let connect =
            move || std::net::TcpStream::connect_timeout(&"10.9.0.2:80".parse().unwrap(), wait);
        run_in(&a.netns, connect).unwrap().is_ok()
    };
    let pins = FileSystem::mount();
    let [next, other, drops] = [("pal_next", NEXT), ("pal_other", NEXT), ("pal_drop", DROP)]
        .map(|(name, verdict)| load(name, &constant(verdict)).unwrap());
    let path = pins.path("egress");
    run_in(&a.netns, || {
        let list = || attached_programs(index, AttachPoint::Egress).unwrap();
        assert_eq!(list(), []);
        let first = BpfLink::attach(&next, index, AttachPoint::Egress).unwrap();
        let twice = BpfLink::attach(&next, index, AttachPoint::Egress).unwrap_err();
        assert_eq!(twice.errno(), Some(Errno::EEXIST), "once at each point");
        let second = BpfLink::attach(&other, index, AttachPoint::Egress).unwrap();
        let attached = list();
        let programs: Vec<u32> = attached.iter().map(|one| one.program).collect();
        let ids = [&other, &next].map(|program| program.id().unwrap());
        assert_eq!(programs, ids, "the later one stands first");
        drop(second);
        assert_eq!(list(), attached[1..]);
        first.pin(&path).unwrap();
        assert_eq!(list().len(), 1);
    })
    .unwrap();
    assert!(reaches(10_000));
    let link = BpfLink::open_pinned(&path).unwrap();
    link.replace(&drops).unwrap();
    assert!(!reaches(300));
    drop(link);
    assert!(!reaches(300), "it is pinned");
    std::fs::remove_file(&path).unwrap();
    assert!(reaches(10_000));
    let gone = run_in(&a.netns, || {
        attached_programs(9_999, AttachPoint::Ingress).unwrap_err()
    });
    assert_eq!(gone.unwrap().errno(), Some(Errno::ENODEV));
}

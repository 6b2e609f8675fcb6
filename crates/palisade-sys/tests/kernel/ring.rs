//! Ring buffers of BPF.

use std::os::fd::AsRawFd as _;
use std::time::Duration;

use palisade_sys::bpf::{BpfMap, BpfProgram, MapFlags, MapKind, MapShape, RingBuffer};

use crate::bpf::load;
use crate::need_root;

/// The records that a ring of 4096 bytes has room for: 16 bytes each, with a header of eight.
const ROOM: usize = 4_095 / 24;

fn ring_map() -> BpfMap {
    let shape = MapShape {
        kind: Some(MapKind::RingBuffer),
        key_size: 0,
        value_size: 0,
        max_entries: 4_096,
        flags: MapFlags::default(),
    };
    BpfMap::create("pal_ring", shape).unwrap()
}

/// A program that writes the mark of a packet twice into a record, and returns whether there was room.
fn writer(map: &BpfMap) -> BpfProgram {
    let [a, b, c, d] = map.descriptor().as_raw_fd().to_ne_bytes();
    let instructions = [
        // r2 = the mark; two words of the stack are r2.
        [0x61, 0x12, 8, 0, 0, 0, 0, 0],
        [0x7b, 0x2a, 0xf8, 0xff, 0, 0, 0, 0],
        [0x7b, 0x2a, 0xf0, 0xff, 0, 0, 0, 0],
        // r1 = the map, r2 = the words, r3 = their size, r4 = no flags.
        [0x18, 0x11, 0, 0, a, b, c, d],
        [0; 8],
        [0xbf, 0xa2, 0, 0, 0, 0, 0, 0],
        [0x07, 0x02, 0, 0, 0xf0, 0xff, 0xff, 0xff],
        [0xb7, 3, 0, 0, 16, 0, 0, 0],
        [0xb7, 4, 0, 0, 0, 0, 0, 0],
        // bpf_ringbuf_output, and the end.
        [0x85, 0, 0, 0, 130, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];
    load("pal_writer", instructions.as_flattened()).unwrap()
}

/// Writes a record with this number; whether there was room.
fn writes(program: &BpfProgram, number: u32) -> bool {
    let mut context = [0; 192];
    context[8..12].copy_from_slice(&number.to_ne_bytes());
    let run = program.test_run(&[0; 64], &context, 1).unwrap();
    run.verdict == 0
}

/// The numbers of the records that are there.
fn numbers(ring: &mut RingBuffer) -> Vec<u32> {
    let records = std::iter::from_fn(|| ring.take_record());
    let numbers = records.map(|record| {
        assert_eq!(record.len(), 16);
        assert_eq!(record[..8], record[8..]);
        u32::from_ne_bytes(record[..4].try_into().unwrap())
    });
    numbers.collect()
}

#[test]
fn records_are_read_once_and_in_order_around_the_end_of_the_ring() {
    if !need_root() {
        return;
    }
    let map = ring_map();
    let program = writer(&map);
    let mut ring = RingBuffer::new(&map).unwrap();
    assert_eq!(ring.take_record(), None);
    // Records begin at other places each time, and lie across the end.
    for round in 0..50_u32 {
        let first = round * 1_000;
        let count = (first..).take_while(|number| writes(&program, *number));
        assert_eq!(count.count(), ROOM, "until it is full");
        let expected: Vec<u32> = (first..first + ROOM as u32).collect();
        assert_eq!(numbers(&mut ring), expected);
    }
    // What is passed over is gone, and another reader goes on where the last one has ended.
    assert!(writes(&program, 1) && writes(&program, 2));
    ring.skip_all();
    assert!(writes(&program, 3) && writes(&program, 4));
    assert!(ring.take_record().is_some_and(|record| record[0] == 3));
    drop(ring);
    let mut again = RingBuffer::new(&map).unwrap();
    assert_eq!(numbers(&mut again), [4]);
}

#[test]
fn a_wait_ends_with_a_record() {
    if !need_root() {
        return;
    }
    let map = ring_map();
    let program = writer(&map);
    let mut ring = RingBuffer::new(&map).unwrap();
    assert!(!ring.wait(Duration::from_millis(20)).unwrap());
    for number in 1..20 {
        let is_ready = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ring.wait(Duration::from_secs(60)).unwrap());
            std::thread::sleep(Duration::from_millis(5));
            assert!(writes(&program, number));
            waiting.join().unwrap()
        });
        assert!(is_ready);
        assert!(ring.wait(Duration::ZERO).unwrap(), "until it is read");
        assert_eq!(numbers(&mut ring), [number]);
        assert!(!ring.wait(Duration::ZERO).unwrap());
    }
}

#[test]
fn a_map_of_another_kind_is_no_ring() {
    if !need_root() {
        return;
    }
    let shape = MapShape {
        kind: Some(MapKind::Array),
        key_size: 4,
        value_size: 8,
        max_entries: 512,
        flags: MapFlags::MAPPABLE,
    };
    let map = BpfMap::create("pal_array", shape).unwrap();
    assert!(RingBuffer::new(&map).is_err());
}

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The maps of the fast path. A process writes all but flows and counters. Policy is there twice, in two halves: packets
 * are judged by one, and a process writes the other. CONFIG_EPOCH says which one is in force, so all changes of a flush
 * take effect at once. A half that packets may still use is not written before a grace period.
 *
 * What a program trusts is one aligned word that is read once, or a record of an array whose number is not used again
 * before a grace period. A freed element of a hash is used again at once for another key, so its value has an echo of its
 * key: on another one the packet passes.
 */
#ifndef PALISADE_LAYOUT_H
#define PALISADE_LAYOUT_H

#include "kernel.h"

/* Words of `config`. */
enum config_word {
	CONFIG_STATE,
	/* The half in force, in bit 0. Above it the generation, raised when verdicts are revoked: flows of former ones are
	 * judged again. */
	CONFIG_EPOCH,
	/* The bit of the packet mark that says that a packet was proven. */
	CONFIG_PROOF_BIT,
	/* The number of buckets of the flow table, less one: a power of two less one. */
	CONFIG_BUCKET_MASK,
	/* What hashes of flows begin with: nobody outside knows it. */
	CONFIG_SEED,
	/* The mistake that is switched on; nothing in a program without faults. */
	CONFIG_FAULT,
	CONFIG_WORDS,
};

/* Mistakes, each to be found by a test. */
enum fault {
	FAULT_NONE,
	FAULT_INGRESS_NOT_JUDGED,
	FAULT_REVOKED_FLOW_PASSED,
	FAULT_GENERATION_IGNORED,
	FAULT_INCARNATION_IGNORED,
	FAULT_PROOF_NOT_CLEARED,
	FAULT_VIA_STACK_FORGOTTEN,
	FAULT_SENDER_NOT_CHECKED,
	FAULT_UNARMED_USED,
	FAULT_FRAGMENT_BEGINS,
	FAULT_ANSWER_BEGINS,
	FAULT_REQUEST_OF_ANYONE,
	FAULT_RANGE_END_OPEN,
	FAULT_MTU_IGNORED,
	FAULT_LAST_HOP_IGNORED,
	FAULT_ERROR_OF_ANYONE,
	FAULT_LENGTH_IGNORED,
	FAULT_TIME_IGNORED,
	FAULT_STATE_IGNORED,
	FAULT_ANSWER_JUDGED,
	FAULT_CLOSED_CONTINUES,
	FAULT_ENTRY_TWICE,
	FAULT_UNPROVEN_DROPPED,
	FAULT_OTHER_HALF,
	FAULT_ADDRESS_ECHO_IGNORED,
	FAULT_CLASS_ECHO_IGNORED,
	FAULT_PORT_ECHO_IGNORED,
	FAULT_SHORTER_PREFIX,
	FAULT_ANY_ROUTE,
	FAULT_SOURCE_ROUTE_IGNORED,
	FAULT_LOCAL_SOURCE_OUTSIDE,
	FAULT_TTL_KEPT,
	FAULT_MAPPED_ADDRESS,
	FAULT_LOSS_UNCOUNTED,
	FAULT_ANSWER_REPORTED_AS_FIRST,
};

#define EPOCH_HALF(epoch) ((epoch) & 1)
#define EPOCH_GENERATION(epoch) ((__u32)((epoch) >> 1))

enum state {
	/* Every packet passes. */
	STATE_OFF,
	/* Packets of owned flows are delivered; no flow begins. */
	STATE_OWNED_ONLY,
	STATE_ON,
};

struct address {
	__u64 words[2];
};

/* The value of `endpoints`: an address of this host's workloads. */
#define ENDPOINT_SLOT(word) ((__u16)(word))
#define ENDPOINT_INCARNATION(word) ((__u16)((word) >> 16))
#define ENDPOINT_ECHO(word) ((__u32)((word) >> 32))

enum slot_flag {
	/* Both hooks of its interface are attached. */
	SLOT_ARMED = 1 << 0,
};

struct slot {
	__u32 ifindex;
	__u32 mtu;
	__u16 incarnation;
	__u16 flags;
	__u32 spare;
	/* Of each half; set 0 passes everything. */
	__u32 identity[2];
	__u32 egress_set[2];
	__u32 ingress_set[2];
};

/* An address outside of this host, in one of the networks where no packet is translated, has the identity of the longest
 * prefix that contains it. */
struct prefix_key {
	__u64 address[2];
	/* Of 128 bits: of IPv4, 96 and its own. */
	__u32 length;
	__u32 spare;
};

/* The value of `prefixes`: of each half, the identity plus one; 0 if the half does not have the prefix. */
#define IDENTITY_BITS 20
#define IDENTITY_OF(word, half) ((__u32)((word) >> ((half) * IDENTITY_BITS)) & ((1u << IDENTITY_BITS) - 1))
#define PREFIX_ECHO(word) ((__u32)((word) >> (2 * IDENTITY_BITS)))

/* Words of `lengths`: in the first one, a bit for each half that has all prefixes, and a third if there are networks at all,
 * whose flows by the stack are remembered; then the lengths below 128 of prefixes that one of the halves has, in any order,
 * plus one; 0 is none. */
enum { MAX_LENGTHS = 32, LENGTH_WORDS = 1 + MAX_LENGTHS };

struct class_key {
	__u32 set;
	__u32 identity;
};

/* The value of `classes`: a class of each half. */
#define CLASS_BITS 20
#define CLASS_OF(word, half) ((__u32)((word) >> ((half) * CLASS_BITS)) & ((1u << CLASS_BITS) - 1))
#define CLASS_ECHO(word) ((__u32)((word) >> (2 * CLASS_BITS)))

/* What is said of a packet: a counter, and whether it is allowed or denied. 0 is neither: the stack judges it. Denied
 * packets pass as well, but for those of a flow that was delivered before. */
#define WORD_ALLOWED (1u << 31)
#define WORD_DENIED (1u << 30)
#define WORD_COUNTER(word) ((word) & (WORD_DENIED - 1))

/* A class. */
struct descriptor {
	/* For TCP, UDP, ICMP and ICMPv6, where nothing else is said. */
	__u32 defaults[4];
	/* Bits of protocols that have entries in `ports`. */
	__u32 has_ports;
	/* Its ranges in `ranges`, sorted and disjoint, for each protocol. */
	__u32 first_range[4];
	__u32 range_count[4];
	__u32 spare[3];
};

struct port_key {
	__u32 class;
	__u16 port;
	__u16 protocol;
};

struct port_range {
	__u16 first;
	__u16 last;
	__u32 word;
};

/* The greatest number of ranges of one protocol of a class: it is bisected. */
enum { MAX_RANGES = 64, RANGE_STEPS = 7 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CONFIG_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct address);
	__type(value, __u64);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct prefix_key);
	__type(value, __u64);
} prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LENGTH_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} lengths SEC(".maps");

/* The interfaces to other hosts that have programs, by index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} uplinks SEC(".maps");

/* The default classes of each set: of the first half in the lower 32 bits; 0 has nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct class_key);
	__type(value, __u64);
} classes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct descriptor);
} descriptors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct port_key);
	__type(value, __u64);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct port_range);
} ranges SEC(".maps");

struct counter {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

enum denial_flag {
	/* The packet is of the direction in which its flow did not begin. */
	DENIAL_ANSWERS = 1 << 0,
};

/* A record of `events`: a packet that was dropped, its addresses as in flows, everything else in host order. */
struct denial {
	/* Since the machine started, in nanoseconds. */
	__u64 time;
	__u64 source[2];
	__u64 destination[2];
	/* The indexes of the interfaces by which it came and would have gone; 0 if that is not known. */
	__u32 input;
	__u32 output;
	/* Nothing of ICMP. */
	__u16 source_port;
	/* The destination port, or ICMP's type and code. */
	__u16 destination_port;
	/* The length of the IP packet. */
	__u16 length;
	__u8 protocol;
	__u8 flags;
};

_Static_assert(sizeof(struct denial) == 56, "as a process reads it");

/* How many packets were dropped that `events` had no room for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost_events SEC(".maps");

/* Each packet that was dropped is here, or is counted as lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

#endif

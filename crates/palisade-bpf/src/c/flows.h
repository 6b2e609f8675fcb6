/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The flows that the fast path knows: buckets of eight, found by a hash. A writer takes a bucket by making its sequence
 * odd; who does not get it changes nothing. A reader copies an entry, and uses it if the sequence is the same afterwards.
 * Lifetimes are tested when an entry is read, so nobody has to remove what is over.
 */
#ifndef PALISADE_FLOWS_H
#define PALISADE_FLOWS_H

#include "networks.h"

enum { WAYS = 8 };

/* Time is counted in units of 2^26 ns, about 67 ms; lifetimes are in units of 2^30 ns, about 1.07 s. */
enum {
	TIME_SHIFT = 26,
	LIFETIME_SHIFT = 30 - TIME_SHIFT,
	LIFETIME_TCP = 6705, /* 2 h */
	LIFETIME_CLOSING = 9, /* 10 s */
	LIFETIME_UNANSWERED = 19, /* 20 s, of a SYN */
	LIFETIME_UDP = 28, /* 30 s */
	LIFETIME_UDP_ANSWERED = 168, /* 180 s */
	LIFETIME_ICMP = 28, /* 30 s */
};

enum flow_flag {
	/* Its first packet came from the lower end. */
	FLOW_FROM_LOWER = 1 << 0,
	/* The stack delivers it: every packet passes. */
	FLOW_VIA_STACK = 1 << 1,
	FLOW_CLOSING = 1 << 2,
	FLOW_ANSWERED = 1 << 3,
};

/* The lower end first. */
struct flow_key {
	__u64 lower[2];
	__u64 upper[2];
	__u16 lower_port;
	__u16 upper_port;
	__u8 protocol;
	/* Of ICMP, 1 where the lower end asks: the other end may ask with the same number. */
	__u8 orientation;
	__u16 zone;
};

struct flow_value {
	__u32 generation;
	/* When a packet of it was seen last. */
	__u32 seen;
	/* Of each end, the lower first: the number of its slot, and its incarnation. */
	__u64 ends;
	__u8 flags;
	__u8 spare;
	/* How long it lives after that, as its protocol and flags have it. */
	__u16 lifetime;
	__u32 translation;
};

enum { KEY_WORDS = sizeof(struct flow_key) / 8, VALUE_WORDS = sizeof(struct flow_value) / 8 };

struct flow_entry {
	__u64 key[KEY_WORDS];
	__u64 value[VALUE_WORDS];
};

struct bucket {
	__u64 sequence;
	/* 0 of a free way. */
	__u16 tags[WAYS];
	/* Live flows that had to make room. */
	__u64 evictions;
	__u64 spare[4];
	struct flow_entry ways[WAYS];
};

_Static_assert(sizeof(struct flow_key) == 40 && sizeof(struct flow_value) == 24, "as a process reads them");
_Static_assert(sizeof(struct bucket) == 576, "as a process reads it");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct bucket);
} flows SEC(".maps");

/* A flow of a packet, in memory of the program. */
struct flow {
	union {
		struct flow_key key;
		__u64 key_words[KEY_WORDS];
	};
	union {
		struct flow_value value;
		__u64 value_words[VALUE_WORDS];
	};
	__u64 hash;
	__u32 now;
	/* Whether the packet comes from the lower end. */
	__u32 from_lower;
	/* The way of its entry; WAYS if it has none. */
	__u32 way;
};

static int is_lower(const struct packet *packet)
{
	const __u64 *source = packet->source, *destination = packet->destination;

	if (source[0] != destination[0])
		return source[0] < destination[0];
	if (source[1] != destination[1])
		return source[1] < destination[1];
	return packet->source_port <= packet->destination_port;
}

/* Sets the key of a packet's flow. */
static void set_key(struct flow *flow, const struct packet *packet)
{
	int from_lower = is_lower(packet), asks;
	struct flow_key *key = &flow->key;

	flow->from_lower = from_lower;
	key->lower[0] = from_lower ? packet->source[0] : packet->destination[0];
	key->lower[1] = from_lower ? packet->source[1] : packet->destination[1];
	key->upper[0] = from_lower ? packet->destination[0] : packet->source[0];
	key->upper[1] = from_lower ? packet->destination[1] : packet->source[1];
	key->lower_port = from_lower ? packet->source_port : packet->destination_port;
	key->upper_port = from_lower ? packet->destination_port : packet->source_port;
	key->protocol = packet->protocol;
	asks = packet->flags & PACKET_ANSWERS ? !from_lower : from_lower;
	key->orientation = packet->protocol == PROTOCOL_ICMP || packet->protocol == PROTOCOL_ICMPV6 ? asks : 0;
	if (has_fault(FAULT_REQUEST_OF_ANYONE))
		key->orientation = 0;
	key->zone = 0;
	flow->way = WAYS;
	flow->now = bpf_ktime_get_coarse_ns() >> TIME_SHIFT;
}

static void set_hash(struct flow *flow)
{
	__u64 hash = config_word(CONFIG_SEED);
	int number;

	for (number = 0; number < KEY_WORDS; number++) {
		hash ^= flow->key_words[number];
		hash *= 0xff51afd7ed558ccdull;
		hash ^= hash >> 32;
	}
	flow->hash = hash;
}

static __u16 tag_of(__u64 hash)
{
	__u16 tag = hash >> 48;

	return tag ? tag : 1;
}

static struct bucket *bucket_of(const struct flow *flow)
{
	__u32 number = flow->hash & config_word(CONFIG_BUCKET_MASK);

	return bpf_map_lookup_elem(&flows, &number);
}

static __u16 lifetime_of(__u8 protocol, __u8 flags)
{
	if (protocol == PROTOCOL_TCP) {
		if (flags & FLOW_CLOSING)
			return LIFETIME_CLOSING;
		return flags & FLOW_ANSWERED ? LIFETIME_TCP : LIFETIME_UNANSWERED;
	}
	if (protocol == PROTOCOL_UDP)
		return flags & FLOW_ANSWERED ? LIFETIME_UDP_ANSWERED : LIFETIME_UDP;
	return LIFETIME_ICMP;
}

/* Sets the flags of a flow of which a packet is seen. */
static void see_flow(struct flow *flow, __u8 flags)
{
	flow->value.seen = flow->now;
	flow->value.flags = flags;
	flow->value.lifetime = lifetime_of(flow->key.protocol, flags);
}

static int is_live(const struct flow_value *value, __u32 now)
{
	return (now - value->seen) >> LIFETIME_SHIFT <= value->lifetime || has_fault(FAULT_TIME_IGNORED);
}

enum found {
	FLOW_ABSENT,
	FLOW_FOUND,
	/* A writer was faster: nothing is known. */
	FLOW_BUSY,
};

/* Finds the live entry of a flow, and copies its value. */
__attribute__((noinline)) int find_flow(struct flow *flow)
{
	struct bucket *bucket;
	volatile __u64 *sequence;
	__u64 before, different;
	__u16 tag;
	int way, number;

	if (!flow)
		return FLOW_BUSY;
	set_hash(flow);
	bucket = bucket_of(flow);
	if (!bucket)
		return FLOW_BUSY;
	tag = tag_of(flow->hash);
	sequence = &bucket->sequence;
	before = *sequence;
	if (before & 1)
		return FLOW_BUSY;
	barrier();
	for (way = 0; way < WAYS; way++) {
		if (((volatile __u16 *)bucket->tags)[way] != tag)
			continue;
		different = 0;
		for (number = 0; number < KEY_WORDS; number++)
			different |= ((volatile __u64 *)bucket->ways[way].key)[number] ^ flow->key_words[number];
		if (different)
			continue;
		for (number = 0; number < VALUE_WORDS; number++)
			flow->value_words[number] = ((volatile __u64 *)bucket->ways[way].value)[number];
		flow->way = way;
		break;
	}
	barrier();
	if (*sequence != before)
		return FLOW_BUSY;
	if (flow->way == WAYS)
		return FLOW_ABSENT;
	if (is_live(&flow->value, flow->now))
		return FLOW_FOUND;
	flow->way = WAYS;
	return FLOW_ABSENT;
}

/* Takes a bucket to write it; whether it was free. */
static int take(struct bucket *bucket, __u64 *before)
{
	*before = *(volatile __u64 *)&bucket->sequence;
	return !(*before & 1) && __sync_val_compare_and_swap(&bucket->sequence, *before, *before + 1) == *before;
}

static void release(struct bucket *bucket)
{
	__sync_fetch_and_add(&bucket->sequence, 1);
}

/* Writes the value of an entry that was found, if it is still there. */
__attribute__((noinline)) int refresh_flow(struct flow *flow)
{
	struct bucket *bucket;
	__u64 before, different = 0;
	int number;
	__u32 way;

	if (!flow)
		return 0;
	way = flow->way;
	bucket = bucket_of(flow);
	if (!bucket || way >= WAYS || !take(bucket, &before))
		return 0;
	for (number = 0; number < KEY_WORDS; number++)
		different |= bucket->ways[way].key[number] ^ flow->key_words[number];
	if (!different && bucket->tags[way])
		for (number = 0; number < VALUE_WORDS; number++)
			bucket->ways[way].value[number] = flow->value_words[number];
	release(bucket);
	return !different;
}

/* How willingly an entry makes room for a flow: one that is over and has its key first, for a flow has one entry; then one
 * that is free, over, closing, not answered, and else by its age. */
enum worth {
	/* It is the flow's, and lives. */
	WORTH_TAKEN,
	WORTH_OWN,
	WORTH_FREE,
	WORTH_OVER,
};

/* What an entry with a tag is worth to a flow. A function by itself: the verifier sees it once, and not for each way. */
__attribute__((noinline)) __u64 worth_of(const struct flow_entry *entry, __u32 tag, const struct flow *flow)
{
	const struct flow_value *value;
	__u64 rank, different = 0;
	int number, lives;

	if (!entry || !flow || !tag)
		return WORTH_FREE;
	value = (const struct flow_value *)entry->value;
	lives = is_live(value, flow->now);
	if (tag == tag_of(flow->hash)) {
		for (number = 0; number < KEY_WORDS; number++)
			different |= entry->key[number] ^ flow->key_words[number];
		if (!different && lives)
			return WORTH_TAKEN;
		if (!different && !has_fault(FAULT_ENTRY_TWICE))
			return WORTH_OWN;
	}
	if (!lives)
		return WORTH_OVER;
	/* By the flags that it closes and is answered, two bits each: 2, 1, 3, 1. */
	rank = 0x76 >> (value->flags / FLOW_CLOSING % 4 * 2) & 3;
	return rank << 32 | (__u32)~(flow->now - value->seen);
}

/* Adds a flow, in place of the entry that is worth least; 0 if another writer was faster, or it is there. */
__attribute__((noinline)) int insert_flow(struct flow *flow)
{
	struct bucket *bucket;
	__u64 before, least = ~0ull, value;
	__u32 way, chosen;
	int number;

	if (!flow)
		return 0;
	bucket = bucket_of(flow);
	if (!bucket || !take(bucket, &before))
		return 0;
	for (way = 0; way < WAYS; way++) {
		value = worth_of(&bucket->ways[way], bucket->tags[way], flow);
		if (value < least) {
			least = value;
			/* The verifier does not follow what is in memory, and so has one state for all ways. */
			*(volatile __u32 *)&flow->way = way;
		}
	}
	chosen = *(volatile __u32 *)&flow->way;
	if (least != WORTH_TAKEN && chosen < WAYS) {
		if (least > WORTH_OVER)
			bucket->evictions += 1;
		for (number = 0; number < KEY_WORDS; number++)
			bucket->ways[chosen].key[number] = flow->key_words[number];
		for (number = 0; number < VALUE_WORDS; number++)
			bucket->ways[chosen].value[number] = flow->value_words[number];
		bucket->tags[chosen] = tag_of(flow->hash);
	}
	release(bucket);
	return least != WORTH_TAKEN;
}

#endif

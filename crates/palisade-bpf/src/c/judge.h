/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The verdict of one end of a flow, by the rows of the decision tables that a process has written: allowed, denied, or
 * nothing where the stack has to judge, since a report is due or something is not known.
 */
#ifndef PALISADE_JUDGE_H
#define PALISADE_JUDGE_H

#include "packet.h"

/* 32 bits that tell a key from another whose place it got. */
static __u32 echo_of(__u64 first, __u64 second)
{
	__u64 mixed = (first ^ (second << 32 | second >> 32)) * 0x9e3779b97f4a7c15ull;

	return mixed >> 32;
}

/* The class of an identity in a set, in a half; 0 if it has none. */
static __u32 class_of(__u32 set, __u32 identity, __u32 half)
{
	struct class_key key = { .set = set, .identity = identity };
	__u64 *row = bpf_map_lookup_elem(&classes, &key), word, *fallback;

	if (row) {
		word = *(volatile __u64 *)row;
		if (CLASS_ECHO(word) != echo_of(set, identity) >> (2 * CLASS_BITS - 32) &&
		    !has_fault(FAULT_CLASS_ECHO_IGNORED))
			return 0;
		return CLASS_OF(word, half);
	}
	fallback = bpf_map_lookup_elem(&sets, &set);
	return fallback ? *(volatile __u64 *)fallback >> (half * 32) : 0;
}

static int protocol_number(__u8 protocol)
{
	switch (protocol) {
	case PROTOCOL_TCP:
		return 0;
	case PROTOCOL_UDP:
		return 1;
	case PROTOCOL_ICMP:
		return 2;
	case PROTOCOL_ICMPV6:
		return 3;
	}
	return -1;
}

/* What the ranges of a class say of a port; the default if they say nothing. */
static __u32 range_word(__u32 first, __u32 count, __u16 port, __u32 fallback)
{
	struct port_range *found;
	__u32 low = 0, high = count, middle, at;
	int step;

	if (count > MAX_RANGES)
		return 0;
	for (step = 0; step < RANGE_STEPS && low < high; step++) {
		middle = (low + high) / 2;
		at = first + middle;
		found = bpf_map_lookup_elem(&ranges, &at);
		if (!found)
			return 0;
		if (port < found->first)
			high = middle;
		else if (port > found->last - !!has_fault(FAULT_RANGE_END_OPEN))
			low = middle + 1;
		else
			return found->word;
	}
	return fallback;
}

/* What policy judges of a header: the protocol, and the destination port or the type and code of ICMP. */
#define HEADER(protocol, port) ((__u32)(protocol) << 16 | (__u16)(port))
#define HEADER_PROTOCOL(header) ((__u8)((header) >> 16))
#define HEADER_PORT(header) ((__u16)(header))

/* What a set says of a packet to or from an identity: a word of `descriptors` or `ports`, 0 to pass. */
__attribute__((noinline)) int judge(__u32 set, __u32 identity, __u32 half, __u32 header)
{
	__u32 protocol = HEADER_PROTOCOL(header);
	__u16 port = HEADER_PORT(header);
	struct descriptor *descriptor;
	struct port_key key = {};
	__u32 class = class_of(set, identity, half & 1);
	__u64 *row, word;
	int number = protocol_number(protocol);

	if (!class)
		return 0;
	descriptor = bpf_map_lookup_elem(&descriptors, &class);
	if (number < 0 || number > 3 || !descriptor)
		return 0;
	if (descriptor->has_ports & 1 << number) {
		key.class = class;
		key.port = port;
		key.protocol = protocol;
		row = bpf_map_lookup_elem(&ports, &key);
		if (row) {
			word = *(volatile __u64 *)row;
			if ((__u32)(word >> 32) != echo_of(class, (__u64)key.protocol << 16 | key.port) &&
			    !has_fault(FAULT_PORT_ECHO_IGNORED))
				return 0;
			return word;
		}
	}
	return range_word(descriptor->first_range[number], descriptor->range_count[number], port,
			  descriptor->defaults[number]);
}

static void count(__u32 word, __u64 bytes)
{
	__u32 number = WORD_COUNTER(word);
	struct counter *counter = bpf_map_lookup_elem(&counters, &number);

	/* Of this CPU; a program that interrupts another on it does not exist at these hooks. */
	if (counter) {
		counter->packets += 1;
		counter->bytes += bytes;
	}
}

#endif

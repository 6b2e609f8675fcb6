/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Addresses outside of this host, in networks to which no packet is translated: their identities, and the routes to them.
 */
#ifndef PALISADE_NETWORKS_H
#define PALISADE_NETWORKS_H

#include "judge.h"

/* The word of `lengths` with this number. */
static __u64 length_word(__u32 number)
{
	__u64 *word = bpf_map_lookup_elem(&lengths, &number);

	return word ? *(volatile __u64 *)word : 0;
}

/* The longest prefix of an address that is known so far: its length plus one in the upper half, and its identity plus one;
 * 0 is none. */
#define PREFIX_UNKNOWN (~0ull)

/* The same when the prefix of a length, given plus one, has been looked up as well, in a half. A function by itself: the
 * verifier sees it once, and not for each length. */
__attribute__((noinline)) __u64 longer_prefix(const struct address *address, __u32 length, __u32 half, __u64 best)
{
	struct prefix_key key = {};
	__u32 identity;
	__u64 *row, word;

	if (!address || !length || length > 129 || best == PREFIX_UNKNOWN)
		return PREFIX_UNKNOWN;
	if (length < best >> 32 && !has_fault(FAULT_SHORTER_PREFIX))
		return best;
	length -= 1;
	/* A prefix of IPv6 has no address of IPv4. */
	if (length < 96 && is_mapped(address->words))
		return best;
	key.length = length;
	key.address[0] = address->words[0] & first_bits(length < 64 ? length : 64);
	key.address[1] = address->words[1] & first_bits(length < 64 ? 0 : length - 64);
	row = bpf_map_lookup_elem(&prefixes, &key);
	if (!row)
		return best;
	word = *(volatile __u64 *)row;
	if (PREFIX_ECHO(word) != echo_of(key.address[0] ^ length, key.address[1]) >> (2 * IDENTITY_BITS - 32))
		return PREFIX_UNKNOWN;
	identity = IDENTITY_OF(word, half & 1);
	return identity ? (__u64)(length + 1) << 32 | identity : best;
}

/* Whether a half has all prefixes: only then the identity of an address outside is known. */
static int is_complete(__u32 half)
{
	return length_word(0) >> half & 1;
}

/* The identity of an address outside of this host plus one, as far as a half has it; 0 if it has nothing of it. */
__attribute__((noinline)) int network_identity(const struct address *address, __u32 half)
{
	__u64 best, length;
	__u32 number;

	if (!address)
		return 0;
	best = longer_prefix(address, 129, half, 0);
	/* Nothing is longer. */
	if (best)
		return best == PREFIX_UNKNOWN ? 0 : best;
	for (number = 1; number < LENGTH_WORDS; number++) {
		length = length_word(number);
		if (length)
			best = longer_prefix(address, length, half, best);
	}
	return best == PREFIX_UNKNOWN ? 0 : best;
}

enum route_kind {
	/* Not asked for yet. */
	ROUTE_UNKNOWN,
	/* The stack decides where the packet goes, and it may be by an interface without programs. */
	ROUTE_OTHER,
	/* It goes by an interface to other hosts that has programs, and the stack has to send it. */
	ROUTE_BY_STACK,
	/* It goes by such an interface, to the next hop. */
	ROUTE_UPLINK,
};

struct route {
	__u32 kind;
	/* That by which the packet goes, also where it has no programs; 0 if that is not known. */
	__u32 ifindex;
	struct bpf_redir_neigh next_hop;
};

static int is_uplink(__u32 ifindex)
{
	return bpf_map_lookup_elem(&uplinks, &ifindex) || has_fault(FAULT_ANY_ROUTE);
}

/* Finds the route of a packet to its destination; `to_source` finds that of its answers. */
__attribute__((noinline)) int find_route(struct __sk_buff *skb, const struct packet *packet, struct route *route,
					 int to_source)
{
	struct bpf_fib_lookup fib = {};
	const __u64 *from, *to;
	int result, is_ipv4;

	if (!skb || !packet || !route)
		return ROUTE_OTHER;
	from = to_source ? packet->destination : packet->source;
	to = to_source ? packet->source : packet->destination;
	is_ipv4 = is_mapped(from);
	fib.family = is_ipv4 ? FAMILY_IPV4 : FAMILY_IPV6;
	fib.l4_protocol = packet->protocol;
	if (packet->protocol == PROTOCOL_TCP || packet->protocol == PROTOCOL_UDP) {
		fib.sport = __builtin_bswap16(to_source ? packet->destination_port : packet->source_port);
		fib.dport = __builtin_bswap16(to_source ? packet->source_port : packet->destination_port);
	}
	/* Of a packet that will be cut into segments, the length of one. */
	if (!to_source)
		fib.tot_len = skb->gso_size ? skb->gso_size + packet->headers : packet->length;
	fib.ifindex = skb->ifindex;
	if (is_ipv4) {
		fib.tos = packet->flow_information;
		fib.ipv4_src = ((const __u32 *)from)[3];
		fib.ipv4_dst = ((const __u32 *)to)[3];
	} else {
		fib.flowinfo = packet->flow_information;
		__builtin_memcpy(fib.ipv6_src, from, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, to, sizeof(fib.ipv6_dst));
	}
	result = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	route->kind = ROUTE_OTHER;
	if (result != BPF_FIB_LKUP_RET_SUCCESS && result != BPF_FIB_LKUP_RET_NO_NEIGH)
		return ROUTE_OTHER;
	route->ifindex = fib.ifindex;
	if (!is_uplink(fib.ifindex))
		return ROUTE_OTHER;
	route->next_hop.nh_family = fib.family;
	if (fib.family == FAMILY_IPV4)
		route->next_hop.ipv4_nh = fib.ipv4_dst;
	else
		__builtin_memcpy(route->next_hop.ipv6_nh, fib.ipv6_dst, sizeof(fib.ipv6_dst));
	/* A next hop that is sought: the stack keeps the packet until it is found, and tells who sent it if it is not. */
	route->kind = result == BPF_FIB_LKUP_RET_SUCCESS ? ROUTE_UPLINK : ROUTE_BY_STACK;
	return route->kind;
}

/* A hop less for a packet that is sent to another host; whether that was possible. */
static int decrement_hops(struct __sk_buff *skb, int is_ipv4)
{
	__u32 offset = ETHERNET_HEADER + (is_ipv4 ? 8 : 7);
	__u8 before[2], after[2];
	__u16 former, latter;

	if (has_fault(FAULT_TTL_KEPT))
		return 1;
	if (bpf_skb_load_bytes(skb, offset, before, 2))
		return 0;
	after[0] = before[0] - 1;
	after[1] = before[1];
	if (!is_ipv4)
		return !bpf_skb_store_bytes(skb, offset, after, 1, BPF_F_RECOMPUTE_CSUM);
	__builtin_memcpy(&former, before, 2);
	__builtin_memcpy(&latter, after, 2);
	return !bpf_l3_csum_replace(skb, ETHERNET_HEADER + 10, former, latter, 2) &&
	       !bpf_skb_store_bytes(skb, offset, after, 1, 0);
}

#endif

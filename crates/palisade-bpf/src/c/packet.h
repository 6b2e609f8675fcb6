/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The header of a packet, as far as the fast path reads it. What it does not understand is no packet of a flow, and
 * passes.
 */
#ifndef PALISADE_PACKET_H
#define PALISADE_PACKET_H

#include "faults.h"

enum {
	ETHERNET_HEADER = 14,
	IPV4_HEADER = 20,
	IPV6_HEADER = 40,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_FRAGMENT = 44,
};

/* What a packet is to the fast path. */
enum packet_kind {
	/* Nothing that it reads. */
	PACKET_OTHER,
	/* A packet of a flow: its header is complete. */
	PACKET_FLOW,
	/* An ICMP error; the packet that it quotes begins eight bytes behind its header. */
	PACKET_ERROR,
};

enum packet_flag {
	/* It may be the first of a flow. */
	PACKET_BEGINS = 1 << 0,
	/* Of ICMP: it answers a request. */
	PACKET_ANSWERS = 1 << 1,
	/* TCP ends with it. */
	PACKET_ENDS = 1 << 2,
	/* It must go by the stack: it is a fragment, has options, or is on its last hop. */
	PACKET_SLOW = 1 << 3,
	/* TCP with SYN and without ACK. */
	PACKET_SYN = 1 << 4,
};

enum tcp_flag { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };

/* Addresses in network order, IPv4 as ::ffff:a.b.c.d; everything else in host order. */
struct packet {
	__u64 source[2];
	__u64 destination[2];
	/* Of ICMP: the identifier at the requesting end, the request's type at the other. */
	__u16 source_port;
	__u16 destination_port;
	/* What policy judges: the destination port, or ICMP's type and code. */
	__u16 judged_port;
	/* The length of the IP packet. */
	__u16 length;
	__u8 protocol;
	__u8 flags;
	/* The offset of the transport header in the frame. */
	__u16 transport;
	/* The length of the IP and transport headers. */
	__u16 headers;
	__u16 spare;
	/* What routing may see beside the addresses, in network order: IPv4's type of service, or IPv6's class and label. */
	__u32 flow_information;
};

static __u16 read_u16(const __u8 *bytes)
{
	return bytes[0] << 8 | bytes[1];
}

static __u64 mapped_ipv4(const __u8 *bytes)
{
	union {
		__u8 bytes[8];
		__u64 word;
	} mapped = { .bytes = { 0, 0, 0xff, 0xff, bytes[0], bytes[1], bytes[2], bytes[3] } };

	return mapped.word;
}

/* The first bits of an address word, in network order. */
static __u64 first_bits(__u32 bits)
{
	__u64 mask = bits ? ~0ull << (64 - bits) : 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	mask = __builtin_bswap64(mask);
#endif
	return mask;
}

/* Whether an address is one of IPv4. */
static int is_mapped(const __u64 *words)
{
	return !words[0] && (words[1] & first_bits(32)) == (first_bits(32) & ~first_bits(16));
}

/* Requests of ICMP and the types of their answers: the pairs that connection tracking supports. */
static int icmp_request(__u8 protocol, __u8 type, __u8 code, __u8 *flags)
{
	/* Their answers do not tell another code. */
	if (code)
		return -1;
	if (protocol == PROTOCOL_ICMP) {
		switch (type) {
		case 8: case 13: case 15: case 17:
			*flags |= PACKET_BEGINS;
			return type;
		case 0:
			*flags |= PACKET_ANSWERS;
			return 8;
		case 14: case 16: case 18:
			*flags |= PACKET_ANSWERS;
			return type - 1;
		}
		return -1;
	}
	switch (type) {
	case 128: case 139:
		*flags |= PACKET_BEGINS;
		return type;
	case 129: case 140:
		*flags |= PACKET_ANSWERS;
		return type - 1;
	}
	return -1;
}

static int is_icmp_error(__u8 protocol, __u8 type)
{
	if (protocol == PROTOCOL_ICMP)
		return type == 3 || type == 4 || type == 11 || type == 12;
	return type >= 1 && type <= 4;
}

/* Reads the transport header at an offset; of the packet within an error eight bytes are there. */
static __attribute__((noinline)) int parse_transport(struct __sk_buff *skb, struct packet *packet, int is_inner)
{
	__u8 header[14] = {};
	__u32 size;
	__u8 flags;
	int request;

	if (bpf_skb_load_bytes(skb, packet->transport, header, 8))
		return PACKET_OTHER;
	switch (packet->protocol) {
	case PROTOCOL_TCP:
		packet->source_port = read_u16(header);
		packet->destination_port = packet->judged_port = read_u16(header + 2);
		if (is_inner)
			return PACKET_FLOW;
		if (bpf_skb_load_bytes(skb, packet->transport + 12, header + 12, 2))
			return PACKET_OTHER;
		/* A whole header is there: what the peer's stack would drop is not proven to be a packet of the flow. */
		if (header[12] >> 4 < 5 || packet->transport - ETHERNET_HEADER + (header[12] >> 4) * 4 > packet->length)
			return PACKET_OTHER;
		packet->headers += (header[12] >> 4) * 4;
		flags = header[13] & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);
		if (flags == TCP_SYN)
			packet->flags |= PACKET_BEGINS;
		if ((flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
			packet->flags |= PACKET_SYN;
		if (flags & (TCP_FIN | TCP_RST))
			packet->flags |= PACKET_ENDS;
		return PACKET_FLOW;
	case PROTOCOL_UDP:
		packet->source_port = read_u16(header);
		packet->destination_port = packet->judged_port = read_u16(header + 2);
		/* Of a fragment, the length is that of the whole. */
		size = read_u16(header + 4);
		if (!is_inner && (size < 8 || (!(packet->flags & PACKET_SLOW) &&
					       packet->transport - ETHERNET_HEADER + size > packet->length)))
			return PACKET_OTHER;
		packet->headers += 8;
		packet->flags |= PACKET_BEGINS;
		return PACKET_FLOW;
	case PROTOCOL_ICMP:
	case PROTOCOL_ICMPV6:
		packet->judged_port = read_u16(header);
		request = icmp_request(packet->protocol, header[0], header[1], &packet->flags);
		if (request < 0)
			return !is_inner && is_icmp_error(packet->protocol, header[0]) ? PACKET_ERROR : PACKET_OTHER;
		if (packet->flags & PACKET_ANSWERS) {
			packet->source_port = request;
			packet->destination_port = read_u16(header + 4);
		} else {
			packet->source_port = read_u16(header + 4);
			packet->destination_port = request;
		}
		return PACKET_FLOW;
	}
	return PACKET_OTHER;
}

/* Reads the IP header at an offset; `is_ipv6` is what the frame says, or the packet around it. */
__attribute__((noinline)) int parse_network(struct __sk_buff *skb, struct packet *packet, __u32 offset, int is_ipv6,
					    int is_inner)
{
	__u64 words[5] = {};
	__u8 *header = (__u8 *)words;
	__u32 size, fragment;

	if (!skb || !packet)
		return PACKET_OTHER;
	if (is_ipv6) {
		if (bpf_skb_load_bytes(skb, offset, header, IPV6_HEADER))
			return PACKET_OTHER;
		if (header[0] >> 4 != 6)
			return PACKET_OTHER;
		packet->length = read_u16(header + 4) + IPV6_HEADER;
		/* A jumbogram has no length here. */
		if (!read_u16(header + 4))
			return PACKET_OTHER;
		packet->protocol = header[6];
		size = IPV6_HEADER;
		if (packet->protocol == PROTOCOL_FRAGMENT) {
			__u8 between[8];

			/* Only the first fragment has a transport header. */
			if (bpf_skb_load_bytes(skb, offset + IPV6_HEADER, between, 8) || read_u16(between + 2) & 0xfff8)
				return PACKET_OTHER;
			packet->protocol = between[0];
			packet->flags |= PACKET_SLOW;
			size += 8;
		}
		/* Another header between them means that the stack decides. */
		if (packet->protocol != PROTOCOL_TCP && packet->protocol != PROTOCOL_UDP && packet->protocol != PROTOCOL_ICMPV6)
			return PACKET_OTHER;
		if (header[7] <= 1)
			packet->flags |= PACKET_SLOW;
		/* Addresses of IPv4 in a packet of IPv6 are nobody's. */
		if ((is_mapped(words + 1) || is_mapped(words + 3)) && !has_fault(FAULT_MAPPED_ADDRESS))
			return PACKET_OTHER;
		packet->source[0] = words[1];
		packet->source[1] = words[2];
		packet->destination[0] = words[3];
		packet->destination[1] = words[4];
		__builtin_memcpy(&packet->flow_information, header, 4);
		/* Without the version. */
		*(__u8 *)&packet->flow_information &= 15;
	} else {
		if (bpf_skb_load_bytes(skb, offset, header, IPV4_HEADER))
			return PACKET_OTHER;
		size = (header[0] & 15) * 4;
		if (header[0] >> 4 != 4 || size < IPV4_HEADER)
			return PACKET_OTHER;
		packet->length = read_u16(header + 2);
		packet->protocol = header[9];
		if (packet->protocol != PROTOCOL_TCP && packet->protocol != PROTOCOL_UDP && packet->protocol != PROTOCOL_ICMP)
			return PACKET_OTHER;
		fragment = read_u16(header + 6) & 0x3fff;
		/* Only the first fragment has a transport header. */
		if (fragment & 0x1fff)
			return PACKET_OTHER;
		if (fragment || size > IPV4_HEADER || header[8] <= 1)
			packet->flags |= PACKET_SLOW;
		packet->source[0] = packet->destination[0] = 0;
		packet->flow_information = header[1];
		packet->source[1] = mapped_ipv4(header + 12);
		packet->destination[1] = mapped_ipv4(header + 16);
	}
	if (packet->length < size + 8 || (!is_inner && offset + packet->length > skb->len && !has_fault(FAULT_LENGTH_IGNORED)))
		return PACKET_OTHER;
	packet->transport = offset + size;
	packet->headers = size;
	return parse_transport(skb, packet, is_inner);
}

/* Reads the packet of a frame. */
__attribute__((noinline)) int parse_packet(struct __sk_buff *skb, struct packet *packet)
{
	__u16 type;
	int is_ipv6;

	if (!skb || !packet)
		return PACKET_OTHER;
	if (skb->vlan_present || bpf_skb_load_bytes(skb, 12, &type, 2))
		return PACKET_OTHER;
	type = read_u16((__u8 *)&type);
	if (type != ETHERTYPE_IPV4 && type != ETHERTYPE_IPV6)
		return PACKET_OTHER;
	is_ipv6 = type == ETHERTYPE_IPV6;
	return parse_network(skb, packet, ETHERNET_HEADER, is_ipv6, 0);
}

#endif

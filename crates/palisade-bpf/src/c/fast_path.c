/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The fast path: what is proven allowed at both ends is delivered to its peer. Everything else passes to the stack, where
 * nftables judges it. A program drops only packets of a flow that it delivered before and that has been revoked.
 */
#include "flows.h"

/* The slot of an address of a workload, if it is still the workload's and, where flags are given, has those. */
static struct slot *slot_of(const __u64 *address, __u16 flags, __u16 *number)
{
	struct address key = { .words = { address[0], address[1] } };
	__u64 *row = bpf_map_lookup_elem(&endpoints, &key), word;
	struct slot *found;
	__u32 index;

	if (!row)
		return 0;
	word = *(volatile __u64 *)row;
	if (ENDPOINT_ECHO(word) != echo_of(address[0], address[1]))
		return 0;
	index = ENDPOINT_SLOT(word);
	found = bpf_map_lookup_elem(&slots, &index);
	if (!found || found->incarnation != ENDPOINT_INCARNATION(word))
		return 0;
	if ((found->flags & flags) != flags && !has_fault(FAULT_UNARMED_USED))
		return 0;
	*number = index;
	return found;
}

/* The ends of a packet. */
struct ends {
	struct slot *source, *destination;
	__u16 source_number, destination_number;
};

static int read_ends(const struct packet *packet, struct ends *ends)
{
	ends->source = slot_of(packet->source, SLOT_ARMED, &ends->source_number);
	if (!ends->source)
		return 0;
	ends->destination = slot_of(packet->destination, SLOT_ARMED, &ends->destination_number);
	/* What a workload sends to itself by this host is judged otherwise. */
	return ends->destination && ends->source->ifindex != ends->destination->ifindex;
}

/* The slots of the lower and the upper end, as an entry has them: numbers and incarnations. */
static __u64 ends_of(const struct flow *flow, const struct ends *ends)
{
	__u32 source = ends->source_number | (__u32)ends->source->incarnation << 16;
	__u32 destination = ends->destination_number | (__u32)ends->destination->incarnation << 16;

	return flow->from_lower ? source | (__u64)destination << 32 : destination | (__u64)source << 32;
}

/* What both ends say of the first packet of a flow. */
struct words {
	__u32 egress, ingress;
};

/* Judges the first packet of a flow at both ends, from one to the other: WORD_ALLOWED, WORD_DENIED, or 0. */
static __u32 judge_ends(const struct slot *from, const struct slot *to, __u32 epoch, __u32 header,
			struct words *words)
{
	/* A bit of the sum: the verifier of Linux 6.1 has no bounds of an exclusive or. */
	__u32 half = EPOCH_HALF(epoch + !!has_fault(FAULT_OTHER_HALF));

	words->egress = judge(from->egress_set[half], to->identity[half], half, header);
	words->ingress = 0;
	if (!(words->egress & WORD_ALLOWED))
		return words->egress & WORD_DENIED;
	if (has_fault(FAULT_INGRESS_NOT_JUDGED)) {
		words->ingress = words->egress;
		return WORD_ALLOWED;
	}
	words->ingress = judge(to->ingress_set[half], from->identity[half], half, header);
	return words->ingress & (WORD_ALLOWED | WORD_DENIED);
}

/* Counts a packet where it was judged. */
static void count_words(const struct words *words, __u32 bytes)
{
	count(words->egress, bytes);
	if (words->ingress)
		count(words->ingress, bytes);
}

/* Delivers a packet of an owned flow, or has the stack deliver it without judging it. */
static int deliver(struct __sk_buff *skb, const struct packet *packet, const struct slot *to, __u32 proof)
{
	/* Of a packet that will be cut into segments, the length of one. */
	__u32 length = skb->gso_size ? skb->gso_size + packet->headers : packet->length;

	if ((packet->flags & PACKET_SLOW && !has_fault(FAULT_LAST_HOP_IGNORED)) ||
	    (length > to->mtu && !has_fault(FAULT_MTU_IGNORED))) {
		skb->mark |= proof;
		return TCX_NEXT;
	}
	return bpf_redirect_peer(to->ifindex, 0);
}

/* A packet of a flow that has an entry. */
static int continue_flow(struct __sk_buff *skb, struct packet *packet, struct flow *flow, struct ends *ends, __u32 proof)
{
	__u64 epoch = config_word(CONFIG_EPOCH);
	int is_original = !!(flow->value.flags & FLOW_FROM_LOWER) == !!flow->from_lower;
	__u32 generation = EPOCH_GENERATION(epoch), verdict;
	__u8 flags = flow->value.flags;
	int changes = flow->value.seen != flow->now;

	if (flags & FLOW_VIA_STACK) {
		if (packet->flags & PACKET_ENDS)
			flags |= FLOW_CLOSING;
		if (changes || flags != flow->value.flags) {
			see_flow(flow, flags);
			refresh_flow(flow);
		}
		return TCX_NEXT;
	}
	/* An end of it is another workload now: nothing is known of this one. */
	if (flow->value.ends != ends_of(flow, ends) && !has_fault(FAULT_INCARNATION_IGNORED))
		return TCX_NEXT;
	/* Its receiver begins no connection by it. */
	if (!is_original && packet->flags & PACKET_SYN)
		return TCX_NEXT;
	if (flow->value.generation != generation && !has_fault(FAULT_GENERATION_IGNORED)) {
		/* As its first packet was judged: of an answer, the port or the type of what it answers. */
		__u32 port = is_original ? packet->judged_port : packet->source_port;
		struct words words = {};

		if (!is_original && packet->flags & PACKET_ANSWERS)
			port <<= 8;
		if (has_fault(FAULT_ANSWER_JUDGED))
			port = packet->judged_port;
		verdict = judge_ends(is_original ? ends->source : ends->destination,
				     is_original ? ends->destination : ends->source, epoch,
				     HEADER(packet->protocol, port), &words);
		if (!verdict && !has_fault(FAULT_UNPROVEN_DROPPED)) {
			/* Nothing is proven of it any more, and nothing is denied: the stack has it from here on. */
			see_flow(flow, flags | FLOW_VIA_STACK);
			refresh_flow(flow);
			return TCX_NEXT;
		}
		count_words(&words, packet->length);
		if (verdict != WORD_ALLOWED)
			return has_fault(FAULT_REVOKED_FLOW_PASSED) ? TCX_NEXT : TCX_DROP;
		flow->value.generation = generation;
		changes = 1;
	}
	if (!is_original)
		flags |= FLOW_ANSWERED;
	if (packet->flags & PACKET_ENDS)
		flags |= FLOW_CLOSING;
	if (changes || flags != flow->value.flags) {
		see_flow(flow, flags);
		refresh_flow(flow);
	}
	return deliver(skb, packet, ends->destination, proof);
}

/* An ICMP error: of the receiver of an owned flow, about a packet that it was sent, it goes to who sent that. */
static __attribute__((noinline)) int deliver_error(struct __sk_buff *skb, struct packet *error, struct flow *flow, __u32 proof)
{
	struct packet quoted = {};
	struct ends ends = {};

	if (parse_network(skb, &quoted, error->transport + 8, error->protocol == PROTOCOL_ICMPV6, 1) != PACKET_FLOW)
		return TCX_NEXT;
	if (has_fault(FAULT_ERROR_OF_ANYONE))
		goto found;
	if (quoted.source[0] != error->destination[0] || quoted.source[1] != error->destination[1] ||
	    quoted.destination[0] != error->source[0] || quoted.destination[1] != error->source[1])
		return TCX_NEXT;
found:
	if (!read_ends(&quoted, &ends))
		return TCX_NEXT;
	if (ends.destination->ifindex != skb->ifindex && !has_fault(FAULT_ERROR_OF_ANYONE))
		return TCX_NEXT;
	set_key(flow, &quoted);
	if (find_flow(flow) != FLOW_FOUND || flow->value.flags & FLOW_VIA_STACK ||
	    flow->value.ends != ends_of(flow, &ends) ||
	    flow->value.generation != EPOCH_GENERATION(config_word(CONFIG_EPOCH)))
		return TCX_NEXT;
	return deliver(skb, error, ends.source, proof);
}

SEC("classifier")
int from_pod(struct __sk_buff *skb)
{
	__u32 state = config_word(CONFIG_STATE), proof = config_word(CONFIG_PROOF_BIT);
	struct packet packet = {};
	struct flow flow = {};
	struct words words = {};
	struct ends ends = {};
	int kind, found;
	__u64 epoch;

	if (!has_fault(FAULT_PROOF_NOT_CLEARED))
		skb->mark &= ~proof;
	if (state == STATE_OFF || skb->pkt_type != PACKET_HOST)
		return TCX_NEXT;
	kind = parse_packet(skb, &packet);
	if (kind == PACKET_ERROR)
		return deliver_error(skb, &packet, &flow, proof);
	if (kind != PACKET_FLOW)
		return TCX_NEXT;
	if (!read_ends(&packet, &ends))
		return TCX_NEXT;
	if (ends.source->ifindex != skb->ifindex && !has_fault(FAULT_SENDER_NOT_CHECKED))
		return TCX_NEXT;
	set_key(&flow, &packet);
	found = find_flow(&flow);
	if (found == FLOW_FOUND && !(packet.flags & PACKET_SYN && flow.value.flags & FLOW_CLOSING &&
				     !has_fault(FAULT_CLOSED_CONTINUES)))
		return continue_flow(skb, &packet, &flow, &ends, proof);
	if (found == FLOW_BUSY)
		return TCX_NEXT;
	if (state != STATE_ON && !has_fault(FAULT_STATE_IGNORED)) {
		/* A connection with the ports of one that closes: the stack sees it begin, so it has all of it. */
		if (found == FLOW_FOUND) {
			see_flow(&flow, FLOW_VIA_STACK | (flow.from_lower ? FLOW_FROM_LOWER : 0));
			refresh_flow(&flow);
		}
		return TCX_NEXT;
	}
	if (!(packet.flags & PACKET_BEGINS) && !has_fault(FAULT_ANSWER_BEGINS))
		return TCX_NEXT;
	if (packet.flags & PACKET_SLOW && !has_fault(FAULT_FRAGMENT_BEGINS))
		return TCX_NEXT;
	epoch = config_word(CONFIG_EPOCH);
	if (judge_ends(ends.source, ends.destination, epoch, HEADER(packet.protocol, packet.judged_port), &words) !=
	    WORD_ALLOWED)
		return TCX_NEXT;
	flow.value.generation = EPOCH_GENERATION(epoch);
	see_flow(&flow, flow.from_lower ? FLOW_FROM_LOWER : 0);
	flow.value.ends = ends_of(&flow, &ends);
	if (found == FLOW_FOUND ? !refresh_flow(&flow) : !insert_flow(&flow))
		return TCX_NEXT;
	count_words(&words, packet.length);
	return deliver(skb, &packet, ends.destination, proof);
}

/* Remembers flows that the stack delivers: their answers are to go by it as well, which may translate them. */
SEC("classifier")
int to_pod(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct flow flow = {};
	__u16 number;

	if (config_word(CONFIG_STATE) == STATE_OFF || has_fault(FAULT_VIA_STACK_FORGOTTEN))
		return TCX_NEXT;
	if (parse_packet(skb, &packet) != PACKET_FLOW || packet.protocol == PROTOCOL_TCP)
		return TCX_NEXT;
	/* Of one that is not armed too: it may be soon, and flows that the stack has then are to be known. */
	if (!slot_of(packet.source, 0, &number))
		return TCX_NEXT;
	set_key(&flow, &packet);
	if (find_flow(&flow) != FLOW_ABSENT)
		return TCX_NEXT;
	see_flow(&flow, FLOW_VIA_STACK | (flow.from_lower ? FLOW_FROM_LOWER : 0));
	insert_flow(&flow);
	return TCX_NEXT;
}

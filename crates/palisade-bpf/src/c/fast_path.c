/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The fast path: what is proven allowed at both ends is delivered to its peer. Everything else passes to the stack, where
 * nftables judges it. A program drops only packets of a flow that it delivered before and that has been revoked.
 */
#include "flows.h"

enum place {
	/* No address of this host's workloads. */
	PLACE_OUTSIDE,
	/* One whose packets the stack has to deliver. */
	PLACE_REFUSED,
	/* One with a slot that has the flags that are asked for. */
	PLACE_SLOT,
};

/* Finds the slot of an address of a workload, if it is still the workload's and, where flags are given, has those. */
static enum place find_slot(const __u64 *address, __u16 flags, struct slot **slot, __u16 *number)
{
	struct address key = { .words = { address[0], address[1] } };
	__u64 *row = bpf_map_lookup_elem(&endpoints, &key), word;
	struct slot *found;
	__u32 index;

	if (!row)
		return PLACE_OUTSIDE;
	word = *(volatile __u64 *)row;
	if (ENDPOINT_ECHO(word) != echo_of(address[0], address[1]) && !has_fault(FAULT_ADDRESS_ECHO_IGNORED))
		return PLACE_REFUSED;
	index = ENDPOINT_SLOT(word);
	found = bpf_map_lookup_elem(&slots, &index);
	if (!found || found->incarnation != ENDPOINT_INCARNATION(word))
		return PLACE_REFUSED;
	if ((found->flags & flags) != flags && !has_fault(FAULT_UNARMED_USED))
		return PLACE_REFUSED;
	*slot = found;
	*number = index;
	return PLACE_SLOT;
}

/* The ends of a packet. One outside of this host has no slot. */
struct ends {
	struct slot *source, *destination;
	__u16 source_number, destination_number;
};

/* Reads the ends of a packet; whether the fast path may deliver it. */
static int read_ends(const struct packet *packet, struct ends *ends)
{
	if (find_slot(packet->source, SLOT_ARMED, &ends->source, &ends->source_number) == PLACE_REFUSED)
		return 0;
	if (find_slot(packet->destination, SLOT_ARMED, &ends->destination, &ends->destination_number) == PLACE_REFUSED)
		return 0;
	if (!ends->source || !ends->destination)
		/* Without networks nothing outside is known. */
		return (ends->source || ends->destination) && length_word(0);
	/* What a workload sends to itself by this host is judged otherwise. */
	return ends->source->ifindex != ends->destination->ifindex;
}

/* A slot as an entry has it: its number and incarnation; nothing of an end outside of this host. */
static __u32 end_of(const struct slot *slot, __u16 number)
{
	return slot ? number | (__u32)slot->incarnation << 16 : 0;
}

/* The slots of the lower and the upper end. */
static __u64 ends_of(const struct flow *flow, const struct ends *ends)
{
	__u32 source = end_of(ends->source, ends->source_number);
	__u32 destination = end_of(ends->destination, ends->destination_number);

	return flow->from_lower ? source | (__u64)destination << 32 : destination | (__u64)source << 32;
}

/* What both ends say of the first packet of a flow; nothing of one outside of this host. */
struct words {
	__u32 egress, ingress;
};

/* Who sends the first packet of a flow, and who is sent it: the slots, and the address of one that has none. */
struct opening {
	const struct slot *from, *to;
	struct address outside;
};

static void set_opening(struct opening *opening, const struct packet *packet, const struct ends *ends, int is_original)
{
	const __u64 *outside = ends->source ? packet->destination : packet->source;

	opening->from = is_original ? ends->source : ends->destination;
	opening->to = is_original ? ends->destination : ends->source;
	opening->outside.words[0] = outside[0];
	opening->outside.words[1] = outside[1];
}

/* What is known of a packet while it is handled. */
struct context {
	struct packet packet;
	struct flow flow;
	struct ends ends;
	struct opening opening;
	struct words words;
	struct route route;
	__u32 proof;
};

/* Judges the first packet of a flow at its ends on this host: WORD_ALLOWED, WORD_DENIED, or 0. */
static __u32 judge_ends(const struct opening *opening, __u32 epoch, __u32 header, struct words *words)
{
	/* A bit of the sum: the verifier of Linux 6.1 has no bounds of an exclusive or. */
	__u32 half = EPOCH_HALF(epoch + !!has_fault(FAULT_OTHER_HALF));
	const struct slot *from = opening->from, *to = opening->to;
	__u32 outside = 0;

	words->egress = words->ingress = 0;
	if (!from || !to) {
		if (!is_complete(half))
			return 0;
		outside = network_identity(&opening->outside, half);
		if (!outside)
			return 0;
		outside -= 1;
	}
	if (from) {
		words->egress = judge(from->egress_set[half], to ? to->identity[half] : outside, half, header);
		if (!(words->egress & WORD_ALLOWED) || !to)
			return words->egress & (WORD_ALLOWED | WORD_DENIED);
	}
	if (!to)
		return 0;
	if (from && has_fault(FAULT_INGRESS_NOT_JUDGED)) {
		words->ingress = words->egress;
		return WORD_ALLOWED;
	}
	words->ingress = judge(to->ingress_set[half], from ? from->identity[half] : outside, half, header);
	return words->ingress & (WORD_ALLOWED | WORD_DENIED);
}

/* Counts a packet where it was judged. */
static void count_words(const struct words *words, __u32 bytes)
{
	if (words->egress)
		count(words->egress, bytes);
	if (words->ingress)
		count(words->ingress, bytes);
}

/* Sends a packet of an owned flow to the next hop, or has the stack send it without judging it. */
static int send_outside(struct __sk_buff *skb, struct packet *packet, struct route *route, __u32 proof)
{
	if (packet->flags & PACKET_SLOW)
		goto stack;
	if (route->kind == ROUTE_UNKNOWN)
		find_route(skb, packet, route, 0);
	if (route->kind != ROUTE_UPLINK || !decrement_hops(skb, is_mapped(packet->source)))
		goto stack;
	return bpf_redirect_neigh(route->ifindex, &route->next_hop, sizeof(route->next_hop), 0);
stack:
	skb->mark |= proof;
	return TCX_NEXT;
}

/* Delivers a packet of an owned flow to a workload of this host or, without a slot, to another host; or has the stack
 * deliver it without judging it. */
static int deliver(struct __sk_buff *skb, struct packet *packet, const struct slot *to, struct route *route, __u32 proof)
{
	/* Of a packet that will be cut into segments, the length of one. */
	__u32 length = skb->gso_size ? skb->gso_size + packet->headers : packet->length;

	if (!to)
		return send_outside(skb, packet, route, proof);
	if ((packet->flags & PACKET_SLOW && !has_fault(FAULT_LAST_HOP_IGNORED)) ||
	    (length > to->mtu && !has_fault(FAULT_MTU_IGNORED))) {
		skb->mark |= proof;
		return TCX_NEXT;
	}
	return bpf_redirect_peer(to->ifindex, 0);
}

/* Tells of a packet that is dropped, or counts it as lost. */
static void report_denial(struct __sk_buff *skb, struct context *context, int is_original)
{
	const struct packet *packet = &context->packet;
	const struct slot *to = context->ends.destination;
	struct denial *denial;
	__u32 zero = 0;
	__u64 *lost;

	if (!to && context->route.kind == ROUTE_UNKNOWN)
		find_route(skb, packet, &context->route, 0);
	denial = bpf_ringbuf_reserve(&events, sizeof(*denial), 0);
	if (!denial) {
		lost = bpf_map_lookup_elem(&lost_events, &zero);
		if (lost && !has_fault(FAULT_LOSS_UNCOUNTED))
			__sync_fetch_and_add(lost, 1);
		return;
	}
	denial->time = bpf_ktime_get_ns();
	denial->source[0] = packet->source[0];
	denial->source[1] = packet->source[1];
	denial->destination[0] = packet->destination[0];
	denial->destination[1] = packet->destination[1];
	denial->input = skb->ifindex;
	denial->output = to ? to->ifindex : context->route.ifindex;
	denial->source_port =
		packet->protocol == PROTOCOL_ICMP || packet->protocol == PROTOCOL_ICMPV6 ? 0 : packet->source_port;
	denial->destination_port = packet->judged_port;
	denial->length = packet->length;
	denial->protocol = packet->protocol;
	denial->flags = is_original || has_fault(FAULT_ANSWER_REPORTED_AS_FIRST) ? 0 : DENIAL_ANSWERS;
	bpf_ringbuf_submit(denial, 0);
}

/* A packet of a flow that has an entry. */
static int continue_flow(struct __sk_buff *skb, struct context *context)
{
	struct packet *packet = &context->packet;
	struct flow *flow = &context->flow;
	struct ends *ends = &context->ends;
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

		if (!is_original && packet->flags & PACKET_ANSWERS)
			port <<= 8;
		if (has_fault(FAULT_ANSWER_JUDGED))
			port = packet->judged_port;
		set_opening(&context->opening, packet, ends, is_original);
		verdict = judge_ends(&context->opening, epoch, HEADER(packet->protocol, port), &context->words);
		if (!verdict && !has_fault(FAULT_UNPROVEN_DROPPED)) {
			/* Nothing is proven of it any more, and nothing is denied: the stack has it from here on. */
			see_flow(flow, flags | FLOW_VIA_STACK);
			refresh_flow(flow);
			return TCX_NEXT;
		}
		count_words(&context->words, packet->length);
		if (verdict != WORD_ALLOWED) {
			if (has_fault(FAULT_REVOKED_FLOW_PASSED))
				return TCX_NEXT;
			report_denial(skb, context, is_original);
			return TCX_DROP;
		}
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
	return deliver(skb, packet, ends->destination, &context->route, context->proof);
}

/* Where a packet comes from. */
enum origin { ORIGIN_WORKLOAD, ORIGIN_OUTSIDE };

/* Whether a packet that quotes another one may be about it: of a workload, what that was sent; from outside, where any
 * host between both ends sends errors, what a workload of this host has sent there. */
static int may_quote(const struct __sk_buff *skb, const struct ends *quoted, enum origin origin)
{
	if (origin == ORIGIN_OUTSIDE)
		return quoted->source && !quoted->destination;
	return quoted->destination && quoted->destination->ifindex == skb->ifindex;
}

/* An ICMP error: of the receiver of an owned flow, or of a host on the way to it, about a packet that it was sent, it goes
 * to who sent that. */
static __attribute__((noinline)) int deliver_error(struct __sk_buff *skb, struct context *context, enum origin origin)
{
	struct packet *error = &context->packet;
	struct flow *flow = &context->flow;
	struct ends *ends = &context->ends;
	struct packet quoted = {};

	if (parse_network(skb, &quoted, error->transport + 8, error->protocol == PROTOCOL_ICMPV6, 1) != PACKET_FLOW)
		return TCX_NEXT;
	if (has_fault(FAULT_ERROR_OF_ANYONE))
		goto found;
	if (quoted.source[0] != error->destination[0] || quoted.source[1] != error->destination[1])
		return TCX_NEXT;
	if (origin == ORIGIN_WORKLOAD &&
	    (quoted.destination[0] != error->source[0] || quoted.destination[1] != error->source[1]))
		return TCX_NEXT;
found:
	if (!read_ends(&quoted, ends))
		return TCX_NEXT;
	if (!may_quote(skb, ends, origin) && !has_fault(FAULT_ERROR_OF_ANYONE))
		return TCX_NEXT;
	set_key(flow, &quoted);
	if (find_flow(flow) != FLOW_FOUND || flow->value.flags & FLOW_VIA_STACK ||
	    flow->value.ends != ends_of(flow, ends) ||
	    flow->value.generation != EPOCH_GENERATION(config_word(CONFIG_EPOCH)))
		return TCX_NEXT;
	return deliver(skb, error, ends->source, &context->route, context->proof);
}

/* Whether the ends of a packet are where it comes from. */
static int is_from(const struct __sk_buff *skb, const struct ends *ends, enum origin origin)
{
	if (origin == ORIGIN_WORKLOAD)
		return ends->source && (ends->source->ifindex == skb->ifindex || has_fault(FAULT_SENDER_NOT_CHECKED));
	return ends->destination && (!ends->source || has_fault(FAULT_LOCAL_SOURCE_OUTSIDE));
}

/* Whether a flow may begin between these ends as far as routes say: what goes outside goes by an interface with programs,
 * and what comes from there is answered by the interface that it comes from. */
static int is_routed(struct __sk_buff *skb, struct context *context)
{
	struct route *route = &context->route;

	if (!context->ends.destination)
		return find_route(skb, &context->packet, route, 0) != ROUTE_OTHER;
	if (context->ends.source || has_fault(FAULT_SOURCE_ROUTE_IGNORED))
		return 1;
	return find_route(skb, &context->packet, route, 1) != ROUTE_OTHER && route->ifindex == skb->ifindex;
}

/* A packet that comes from a workload, or from outside of this host. */
static __attribute__((always_inline)) int receive(struct __sk_buff *skb, enum origin origin)
{
	struct context context = { .proof = config_word(CONFIG_PROOF_BIT) };
	__u32 state = config_word(CONFIG_STATE);
	struct packet *packet = &context.packet;
	struct flow *flow = &context.flow;
	struct ends *ends = &context.ends;
	int kind, found;
	__u64 epoch;

	if (!has_fault(FAULT_PROOF_NOT_CLEARED))
		skb->mark &= ~context.proof;
	if (state == STATE_OFF || skb->pkt_type != PACKET_HOST)
		return TCX_NEXT;
	kind = parse_packet(skb, packet);
	if (kind == PACKET_ERROR)
		return deliver_error(skb, &context, origin);
	if (kind != PACKET_FLOW)
		return TCX_NEXT;
	if (!read_ends(packet, ends))
		return TCX_NEXT;
	if (!is_from(skb, ends, origin))
		return TCX_NEXT;
	/* Where no flow may begin, the stack has policies for packets from outside, such as those of IPsec. */
	if (origin == ORIGIN_OUTSIDE && !is_uplink(skb->ifindex))
		packet->flags |= PACKET_SLOW;
	set_key(flow, packet);
	found = find_flow(flow);
	if (found == FLOW_FOUND && !(packet->flags & PACKET_SYN && flow->value.flags & FLOW_CLOSING &&
				     !has_fault(FAULT_CLOSED_CONTINUES)))
		return continue_flow(skb, &context);
	if (found == FLOW_BUSY)
		return TCX_NEXT;
	if (state != STATE_ON && !has_fault(FAULT_STATE_IGNORED)) {
		/* A connection with the ports of one that closes: the stack sees it begin, so it has all of it. */
		if (found == FLOW_FOUND) {
			see_flow(flow, FLOW_VIA_STACK | (flow->from_lower ? FLOW_FROM_LOWER : 0));
			refresh_flow(flow);
		}
		return TCX_NEXT;
	}
	if (!(packet->flags & PACKET_BEGINS) && !has_fault(FAULT_ANSWER_BEGINS))
		return TCX_NEXT;
	if (packet->flags & PACKET_SLOW && !has_fault(FAULT_FRAGMENT_BEGINS))
		return TCX_NEXT;
	epoch = config_word(CONFIG_EPOCH);
	set_opening(&context.opening, packet, ends, 1);
	if (judge_ends(&context.opening, epoch, HEADER(packet->protocol, packet->judged_port), &context.words) !=
	    WORD_ALLOWED)
		return TCX_NEXT;
	if (!is_routed(skb, &context))
		return TCX_NEXT;
	flow->value.generation = EPOCH_GENERATION(epoch);
	see_flow(flow, flow->from_lower ? FLOW_FROM_LOWER : 0);
	flow->value.ends = ends_of(flow, ends);
	if (found == FLOW_FOUND ? !refresh_flow(flow) : !insert_flow(flow))
		return TCX_NEXT;
	count_words(&context.words, packet->length);
	return deliver(skb, packet, ends->destination, &context.route, context.proof);
}

/* What a workload sends. */
SEC("classifier")
int from_pod(struct __sk_buff *skb)
{
	return receive(skb, ORIGIN_WORKLOAD);
}

/* What arrives from other hosts. */
SEC("classifier")
int from_net(struct __sk_buff *skb)
{
	return receive(skb, ORIGIN_OUTSIDE);
}

/* Whether a flow from or to this address may begin in the fast path now or soon. */
static int is_known(const __u64 *address)
{
	struct address outside = { .words = { address[0], address[1] } };
	struct slot *slot;
	__u16 number;

	/* Of one that is not armed too: it may be soon, and flows that the stack has then are to be known. */
	if (find_slot(address, 0, &slot, &number) != PLACE_OUTSIDE)
		return 1;
	return network_identity(&outside, 0) || network_identity(&outside, 1);
}

/* Remembers flows that the stack delivers: their answers are to go by it as well, which may translate them. */
static __attribute__((always_inline)) int remember(struct __sk_buff *skb, enum origin destination)
{
	struct packet packet = {};
	struct flow flow = {};
	struct slot *slot;
	__u16 number;

	if (config_word(CONFIG_STATE) == STATE_OFF || has_fault(FAULT_VIA_STACK_FORGOTTEN))
		return TCX_NEXT;
	if (destination == ORIGIN_OUTSIDE && !length_word(0))
		return TCX_NEXT;
	if (parse_packet(skb, &packet) != PACKET_FLOW || packet.protocol == PROTOCOL_TCP)
		return TCX_NEXT;
	if (destination == ORIGIN_OUTSIDE) {
		/* What this host sends for itself, or for workloads with its own address, is answered to itself. */
		if (find_slot(packet.source, 0, &slot, &number) == PLACE_OUTSIDE || !is_known(packet.destination))
			return TCX_NEXT;
	} else if (!is_known(packet.source)) {
		return TCX_NEXT;
	}
	set_key(&flow, &packet);
	if (find_flow(&flow) != FLOW_ABSENT)
		return TCX_NEXT;
	see_flow(&flow, FLOW_VIA_STACK | (flow.from_lower ? FLOW_FROM_LOWER : 0));
	insert_flow(&flow);
	return TCX_NEXT;
}

/* What is sent to a workload. */
SEC("classifier")
int to_pod(struct __sk_buff *skb)
{
	return remember(skb, ORIGIN_WORKLOAD);
}

/* What is sent to other hosts. */
SEC("classifier")
int to_net(struct __sk_buff *skb)
{
	return remember(skb, ORIGIN_OUTSIDE);
}

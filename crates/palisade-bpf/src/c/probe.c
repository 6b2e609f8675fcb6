/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Uses once each feature of the kernel that the fast path is built on. It is loaded and run on one packet without a
 * device, and never attached.
 */
#include "kernel.h"

/* The words of the probe's map. */
enum word {
	/* Written by a compare-and-swap. */
	WORD_SEQUENCE,
	/* Written by an addition. */
	WORD_SUM,
	/* The length of the packet, as the function told that reads it. */
	WORD_LENGTH,
	/* The time, in nanoseconds. */
	WORD_TIME,
	/* Set by a process to have the packet delivered: never by the probe. */
	WORD_DELIVER,
	WORDS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WORDS);
	__type(key, __u32);
	__type(value, __u64);
} probe_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16);
	__type(key, __u64);
	__type(value, __u64);
} probe_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} probe_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} probe_events SEC(".maps");

static __u64 *word(__u32 number)
{
	return bpf_map_lookup_elem(&probe_words, &number);
}

/* A function that is verified by itself. */
__attribute__((noinline)) int probe_packet(struct __sk_buff *skb)
{
	void *data, *end;

	if (!skb || bpf_skb_pull_data(skb, 34))
		return -1;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + 34 > end)
		return -1;
	/* The length that an IPv4 header tells. */
	return ((__u8 *)data)[16] << 8 | ((__u8 *)data)[17];
}

SEC("classifier")
int probe_features(struct __sk_buff *skb)
{
	__u64 *sequence = word(WORD_SEQUENCE), *sum = word(WORD_SUM), *length = word(WORD_LENGTH),
	      *time = word(WORD_TIME), *deliver = word(WORD_DELIVER), *counter, *row, *event;
	__u64 key = 1;
	__u32 zero = 0;
	int told;

	if (!sequence || !sum || !length || !time || !deliver)
		return TCX_NEXT;
	if (__sync_val_compare_and_swap(sequence, 2, 3) != 2)
		return TCX_NEXT;
	row = bpf_map_lookup_elem(&probe_rows, &key);
	if (row)
		__sync_fetch_and_add(sum, *row);
	counter = bpf_map_lookup_elem(&probe_counters, &zero);
	if (counter)
		*counter += 1;
	event = bpf_ringbuf_reserve(&probe_events, sizeof(*event), 0);
	if (event) {
		*event = key;
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	}
	told = probe_packet(skb);
	if (told < 0)
		return TCX_NEXT;
	*length = told;
	*time = bpf_ktime_get_coarse_ns();
	skb->mark = skb->gso_size;
	if (*deliver)
		return bpf_redirect_peer(skb->ifindex, 0);
	return TCX_NEXT;
}

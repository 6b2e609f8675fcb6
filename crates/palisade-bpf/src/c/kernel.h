/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What the programs use of the kernel's interface, which is stable: numbers, structures and helpers of
 * include/uapi/linux/bpf.h and if_ether.h. Nothing depends on the types of a running kernel.
 */
#ifndef PALISADE_KERNEL_H
#define PALISADE_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

enum map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum map_flag {
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
};

/* What a program says of a packet: let the next program decide, or drop it. */
enum verdict {
	TCX_NEXT = -1,
	TCX_DROP = 2,
};

enum ring_flag { BPF_RB_NO_WAKEUP = 1 };

/* The packet, as programs see it. The verifier translates each access. */
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys __attribute__((aligned(8)));
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk __attribute__((aligned(8)));
	__u32 gso_size;
};

enum packet_type { PACKET_HOST = 0 };

/* Nothing is moved across it by the compiler. */
#define barrier() __asm__ volatile("" ::: "memory")

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_skb_load_bytes)(const struct __sk_buff *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, __u32 len) = (void *)39;
static void *(*const bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static long (*const bpf_redirect_peer)(__u32 ifindex, __u64 flags) = (void *)155;
static __u64 (*const bpf_ktime_get_coarse_ns)(void) = (void *)160;

/* The licence that the kernel is told, one of the two of this source: it knows no name for the other. */
static const char kernel_license[] SEC("license") = "GPL";

#endif

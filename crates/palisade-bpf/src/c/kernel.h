/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What the programs use of the kernel's interface, which is stable: numbers, structures and helpers of
 * include/uapi/linux/bpf.h, if_ether.h and socket.h. Nothing depends on the types of a running kernel.
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

enum store_flag { BPF_F_RECOMPUTE_CSUM = 1 };

/* Address families of Linux. */
enum { FAMILY_IPV4 = 2, FAMILY_IPV6 = 10 };

/* A route is asked for, and told. Ports and addresses are in network order. */
struct bpf_fib_lookup {
	__u8 family;
	__u8 l4_protocol;
	__u16 sport;
	__u16 dport;
	/* The length that the packet has, to be compared with the route's MTU. */
	__u16 tot_len;
	/* By which the packet came; then, by which it goes. */
	__u32 ifindex;
	union {
		__u8 tos;
		__u32 flowinfo;
		__u32 rt_metric;
	};
	union {
		__u32 ipv4_src;
		__u32 ipv6_src[4];
	};
	/* Then the next hop. */
	union {
		__u32 ipv4_dst;
		__u32 ipv6_dst[4];
	};
	__u16 h_vlan_proto;
	__u16 h_vlan_TCI;
	__u8 smac[6];
	__u8 dmac[6];
};

enum route_result {
	BPF_FIB_LKUP_RET_SUCCESS = 0,
	BPF_FIB_LKUP_RET_NO_NEIGH = 7,
	BPF_FIB_LKUP_RET_FRAG_NEEDED = 8,
};

struct bpf_redir_neigh {
	__u32 nh_family;
	union {
		__u32 ipv4_nh;
		__u32 ipv6_nh[4];
	};
};

/* Nothing is moved across it by the compiler. */
#define barrier() __asm__ volatile("" ::: "memory")

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 len,
					 __u64 flags) = (void *)9;
static long (*const bpf_l3_csum_replace)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to,
					 __u64 size) = (void *)10;
static long (*const bpf_skb_load_bytes)(const struct __sk_buff *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, __u32 len) = (void *)39;
static long (*const bpf_fib_lookup)(void *ctx, struct bpf_fib_lookup *params, int size, __u32 flags) = (void *)69;
static void *(*const bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static long (*const bpf_redirect_neigh)(__u32 ifindex, struct bpf_redir_neigh *params, int size,
					__u64 flags) = (void *)152;
static long (*const bpf_redirect_peer)(__u32 ifindex, __u64 flags) = (void *)155;
static __u64 (*const bpf_ktime_get_coarse_ns)(void) = (void *)160;

/* The licence that the kernel is told, one of the two of this source: it knows no name for the other. */
static const char kernel_license[] SEC("license") = "GPL";

#endif

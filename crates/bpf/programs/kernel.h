/*
 * The part of the kernel's interface to BPF programs that the programs beside this file use: types, map
 * declarations, helper functions by number, contexts and packet headers.
 *
 * Written from the kernel's uapi headers (linux/bpf.h, linux/if_ether.h, linux/ip.h, linux/ipv6.h,
 * linux/tcp.h). A context ends at its last field in use: the verifier checks each access by its offset.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed long long s64;
typedef signed int s32;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define inlined static inline __attribute__((always_inline))

/* The kernel requires the GPL of programs that call some of its helpers, the clock among them. */
#define LICENSE char terms[] SEC("license") = "Dual MIT/GPL"

/* Members of a map declaration, which the loader reads from the types alone. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, value) typeof(value) *name

enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_LPM_TRIE = 11,
    BPF_MAP_TYPE_XSKMAP = 17,
    BPF_MAP_TYPE_REUSEPORT_SOCKARRAY = 20,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_F_NO_PREALLOC = 1 << 0,
    BPF_F_MMAPABLE = 1 << 10,
};

/* The order of the bytes in a packet; the programs are built for little-endian machines. */
#define NETWORK16(host) ((u16)__builtin_bswap16(host))
#define NETWORK32(host) ((u32)__builtin_bswap32(host))

/* A single access to memory that user space or another processor may change at any time. */
#define READ_ONCE(place) (*(const volatile typeof(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile typeof(place) *)&(place) = (value))

/* Hides a value's range from the compiler, so that it keeps a check that the verifier wants to see. */
#define FORGET(value) asm volatile("" : "+r"(value))

/* ---- helper functions ---- */

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime_get_ns)(void) = (void *)5;
static u32 (*const get_prandom_u32)(void) = (void *)7;
static u32 (*const get_smp_processor_id)(void) = (void *)8;
static long (*const skb_store_bytes)(void *skb, u32 offset, const void *from, u32 length, u64 flags) = (void *)9;
static long (*const l4_csum_replace)(void *skb, u32 offset, u64 from, u64 to, u64 flags) = (void *)11;
static long (*const clone_redirect)(void *skb, u32 device, u64 flags) = (void *)13;
static long (*const redirect)(u32 device, u64 flags) = (void *)23;
static long (*const skb_load_bytes)(const void *skb, u32 offset, void *to, u32 length) = (void *)26;
static s64 (*const csum_diff)(const void *from, u32 from_size, const void *to, u32 to_size, u32 seed) = (void *)28;
static long (*const skb_change_tail)(void *skb, u32 length, u64 flags) = (void *)38;
static u64 (*const get_socket_cookie)(void *context) = (void *)46;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const skb_load_bytes_relative)(const void *skb, u32 offset, void *to, u32 length, u32 start) =
    (void *)68;
static long (*const sk_select_reuseport)(void *context, void *map, void *key, u64 flags) = (void *)82;
static long (*const sk_release)(void *socket) = (void *)86;
static long (*const spin_lock)(void *lock) = (void *)93;
static long (*const spin_unlock)(void *lock) = (void *)94;
static struct bpf_sock *(*const skc_lookup_tcp)(void *context, const void *tuple, u32 size, u64 netns, u64 flags) =
    (void *)99;
static struct bpf_sock *(*const sk_fullsock)(struct bpf_sock *socket) = (void *)95;
static struct bpf_tcp_sock *(*const tcp_sock)(struct bpf_sock *socket) = (void *)96;
static long (*const ringbuf_output)(void *ring, const void *data, u64 size, u64 flags) = (void *)130;
static long (*const csum_level)(void *skb, u64 level) = (void *)135;
static u64 (*const ktime_get_coarse_ns)(void) = (void *)160;
static long (*const xdp_load_bytes)(void *packet, u32 offset, void *to, u32 length) = (void *)189;
static long (*const loop)(u32 rounds, long (*body)(u32 round, void *context), void *context, u64 flags) =
    (void *)181;

/* The `start` of skb_load_bytes_relative. */
enum { BPF_HDR_START_NET = 1 };
/* Of skb_store_bytes: keeps the checksum right that the device has delivered with the packet. */
enum { BPF_F_RECOMPUTE_CSUM = 1 };
/* Of csum_level: asks whether the device has checked the packet's checksum. */
enum { BPF_CSUM_LEVEL_QUERY = 0 };
/* Of map_update: fails if the key exists. */
enum { BPF_NOEXIST = 1 };
/* Of ringbuf_output: does not wake the reader, who looks by itself. */
enum { BPF_RB_NO_WAKEUP = 1 };
/* The network namespace of the device. */
#define BPF_F_CURRENT_NETNS ((u64)-1)

/* In the value of a map: a lock that programs on several processors take. */
struct bpf_spin_lock {
    u32 value;
};

/* An address of either family: IPv4 mapped into IPv6 (RFC 4291, section 2.5.5.2). */
struct address {
    u32 words[4];
};

#define MAPPED NETWORK32(0x0000ffff)

/* An address and a port that a server listens at; in network order. */
struct listener {
    struct address address;
    u16 port;
    u16 zero;
};

/* Returns the value that the body of a loop returns: 1 ends the loop. */
inlined long end_unless(int more) {
    FORGET(more);
    return more ? 0 : 1;
}

/* ---- contexts ---- */

struct bpf_sock;

/* Of programs at tc and at cgroups; in host order but for `protocol` and `vlan_proto`. */
struct __sk_buff {
    u32 len;
    u32 pkt_type;
    u32 mark;
    u32 queue_mapping;
    u32 protocol;
    u32 vlan_present;
    u32 vlan_tci;
    u32 vlan_proto;
    u32 priority;
    u32 ingress_ifindex;
    u32 ifindex;
    u32 unused[31];
    struct bpf_sock *sk;
};

/* A socket; `src_port` is in host order, addresses are in network order. */
struct bpf_sock {
    u32 bound_dev_if;
    u32 family;
    u32 type;
    u32 protocol;
    u32 mark;
    u32 priority;
    u32 src_ip4;
    u32 src_ip6[4];
    u32 src_port;
    u16 dst_port;
    u16 : 16;
    u32 dst_ip4;
    u32 dst_ip6[4];
    u32 state;
};

/* A TCP socket; host order. */
struct bpf_tcp_sock {
    u32 snd_cwnd;
    u32 srtt_us;
    u32 rtt_min;
    u32 snd_ssthresh;
    u32 rcv_nxt;
    u32 snd_nxt;
    u32 unused[14];
    u64 bytes_received;
    u64 bytes_acked;
};

enum { AF_INET = 2 };

/* `state` of a connection after its handshake and, with Fast Open, before its end; after a reset or both FINs; after a FIN
 * that answers the client's; and of a listener. */
enum { TCP_ESTABLISHED = 1, TCP_SYN_RECV = 3, TCP_CLOSE = 7, TCP_LAST_ACK = 9, TCP_LISTEN = 10 };

/* A connection, for skc_lookup_tcp; in network order. */
struct ipv4_tuple {
    u32 saddr, daddr;
    u16 sport, dport;
};

struct ipv6_tuple {
    struct address saddr, daddr;
    u16 sport, dport;
};

/* `pkt_type` of a packet to this host. */
enum { PACKET_HOST = 0 };

/* Verdicts of a tcx link: go on to the next program, or drop the packet. */
enum { TCX_NEXT = -1, TCX_DROP = 2 };

/* Verdicts of a program at a cgroup. */
enum { CGROUP_DROP = 0, CGROUP_PASS = 1 };

struct xdp_md {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
};

enum { XDP_DROP = 1, XDP_PASS = 2 };

struct sk_reuseport_md {
    void *data;
    void *data_end;
    u32 len;
    u32 eth_protocol;
    u32 ip_protocol;
    u32 bind_inany;
    u32 hash;
    u32 : 32;
    void *sk;
    void *migrating_sk;
};

enum { SK_DROP = 0, SK_PASS = 1 };

/* ---- packets ---- */

enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86dd, IPPROTO_TCP = 6 };

struct ethhdr {
    u8 h_dest[6];
    u8 h_source[6];
    u16 h_proto;
} __attribute__((packed));

struct iphdr {
    u8 version_ihl;
    u8 tos;
    u16 tot_len;
    u16 id;
    u16 frag_off;
    u8 ttl;
    u8 protocol;
    u16 check;
    u32 saddr;
    u32 daddr;
};

/* Routers must not fragment it. */
#define IP_DF NETWORK16(0x4000)
/* More fragments follow, or this is not the first. */
#define IP_FRAGMENT NETWORK16(0x3fff)

struct ipv6hdr {
    u32 version_class_flow;
    u16 payload_len;
    u8 nexthdr;
    u8 hop_limit;
    struct address saddr;
    struct address daddr;
};

struct tcphdr {
    u16 source;
    u16 dest;
    u32 seq;
    u32 ack_seq;
    u8 data_offset;
    u8 flags;
    u16 window;
    u16 check;
    u16 urg_ptr;
};

enum { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_PSH = 8, TCP_ACK = 16, TCP_URG = 32, TCP_ECE = 64 };

/* Sequence numbers wrap around (RFC 9293, section 3.4). */
inlined bool before(u32 a, u32 b) {
    return (s32)(a - b) < 0;
}

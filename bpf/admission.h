/*
 * Admission of SYNs to accept queues, by their identity and by a token bucket; the same code for every hook.
 *
 *    SYN to one of `listeners`? ── no ──────────────────────────────> untouched
 *       │ yes
 *    queue = that of the receiving processor, or identity mod `queue_count`
 *       │
 *    identity among the refused ones? ── yes ──> dropped
 *       │ no
 *    interval = 0? ── yes ──────────────────────────────> passed ───> the kernel's SYN queue
 *       │ no                                                ^
 *    theoretical arrival time > now + burst? ── no: + interval
 *       │ yes
 *    dropped: the client's kernel sends its SYN again after 1, 3, 7 s
 *
 * The identity of a SYN is a hash of the fields that its retransmission repeats. overload/src/hook/program.rs computes
 * the same hash, word for word: that program gives the SYN to the queue whose bucket it met here.
 *
 * The bucket is the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, annex A). All
 * processors share it, so that the rate is exact; a drop only reads it. The counters have a cache line for
 * each queue and processor.
 *
 * The server writes the settings by plain stores. A SYN that comes between two stores is decided by a mix of old and
 * new settings.
 */
#pragma once
#include "kernel.h"

/* Maximum number of addresses with their ports. */
#define LISTENERS 1024
/* Other processors may take a token while this one tries to. A SYN that loses this many times is dropped. */
#define ATTEMPTS 8

/* Set by the loader. */
const volatile u32 queue_count = 1;
const volatile u32 processor_count = 1;
/* Mixed into identities. */
const volatile u32 salt = 0;

struct listener {
    struct address address;
    /* In network order. */
    u16 port;
    u16 zero;
};

/* The limits of one accept queue. All zeros admit everything. */
struct queue {
    /* The time from one admitted SYN to the next; 0 for no limit. */
    u64 interval_ns;
    /* The time by which arrivals may be ahead of that rate. */
    u64 burst_ns;
    /* The time of the next SYN if all kept to the rate. Only this program writes it. */
    u64 theoretical_arrival_ns;
    /* The number of refused identities, of 2^32, from `first_refused` on. */
    u64 refused;
    u64 first_refused;
    u64 rest_of_line[3];
};

struct counters {
    u64 passed;
    u64 dropped;
    u64 rest_of_line[6];
};

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, LISTENERS);
    TYPE(key, struct listener);
    TYPE(value, u32);
} listeners SEC(".maps");

/* The loader makes one for each queue. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct queue);
} queues SEC(".maps");

/* The loader makes one for each queue and processor. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct counters);
} counters SEC(".maps");

/* The queue of a processor, plus 1; 0 for a processor that has none. The loader makes one for each processor. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, u32);
} processors SEC(".maps");

/* A packet that opens a connection. */
struct syn {
    struct listener to;
    /* The words that identify it, in network order. */
    u32 address, ports, sequence;
};

/* The finalizer of MurmurHash3 over three words and the salt. */
inlined u32 identity(const struct syn *syn) {
    u32 hash = NETWORK32(syn->address) * 0x9e3779b1;
    hash = (NETWORK32(syn->ports) ^ hash) * 0x85ebca77;
    hash ^= NETWORK32(syn->sequence) ^ salt;
    hash = (hash ^ hash >> 16) * 0x85ebca6b;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35;
    return hash ^ hash >> 16;
}

/* Returns the queue that the SYN will come to. */
inlined u32 queue_of(u32 identity, u32 processor) {
    if (queue_count == 1)
        return 0;
    u32 *own = map_lookup(&processors, &processor);
    return own && *own ? *own - 1 : identity % queue_count;
}

/* Takes a token. Returns false if there is none. */
inlined bool take_token(struct queue *queue) {
    u64 interval = READ_ONCE(queue->interval_ns);
    if (interval == 0)
        return true;
    u64 now = ktime_get_ns();
    u64 latest = now + READ_ONCE(queue->burst_ns);
    u64 *place = &queue->theoretical_arrival_ns;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        u64 arrival = READ_ONCE(*place);
        if (arrival > latest) {
            /* Only an earlier rate that was slower, or a burst that was longer, can have led this far ahead. */
            if (arrival > latest + interval)
                __sync_val_compare_and_swap(place, arrival, latest + interval);
            return false;
        }
        u64 next = (arrival > now ? arrival : now) + interval;
        if (__sync_val_compare_and_swap(place, arrival, next) == arrival)
            return true;
    }
    return false;
}

/* Decides on a SYN, and counts it if it is for one of our listeners. */
inlined bool admit(const struct syn *syn) {
    if (!map_lookup(&listeners, &syn->to))
        return true;
    u32 processor = get_smp_processor_id(), id = identity(syn);
    u32 number = queue_of(id, processor);
    u32 row = number * processor_count + processor;
    struct queue *queue = map_lookup(&queues, &number);
    struct counters *ours = map_lookup(&counters, &row);
    if (!queue || !ours)
        return true;
    u32 distance = id - (u32)READ_ONCE(queue->first_refused);
    bool admitted = distance >= READ_ONCE(queue->refused) && take_token(queue);
    *(admitted ? &ours->passed : &ours->dropped) += 1;
    return admitted;
}

struct ipv4_tcp {
    struct iphdr ip;
    struct tcphdr tcp;
};

struct ipv6_tcp {
    struct ipv6hdr ip;
    struct tcphdr tcp;
};

/* Copies bytes of the packet from `offset` after the start of its IP header. Returns false if it is shorter. */
inlined bool load(void *packet, u32 offset, void *to, u32 length);

/* Returns true if the flags are those of a connection's first segment. */
inlined bool opens_connection(u8 flags) {
    return (flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* Returns the word with both ports, as it lies in a packet whose IP header has no options. */
inlined u32 ports(const struct tcphdr *tcp) {
    return (u32)tcp->dest << 16 | tcp->source;
}

/* Returns true if the packet opens a connection over IPv4, and fills `syn`. */
inlined bool syn_over_ipv4(void *packet, struct syn *syn) {
    struct ipv4_tcp headers;
    if (!load(packet, 0, &headers, sizeof headers))
        return false;
    if (headers.ip.protocol != IPPROTO_TCP || headers.ip.frag_off & IP_FRAGMENT)
        return false;
    u32 length = (headers.ip.version_ihl & 15) * 4;
    if (length < sizeof headers.ip)
        return false;
    /* With IP options, the bytes of the options identify it: the offsets are those of a header without options. */
    syn->address = headers.ip.saddr;
    syn->ports = ports(&headers.tcp);
    syn->sequence = headers.tcp.seq;
    if (length > sizeof headers.ip && !load(packet, length, &headers.tcp, sizeof headers.tcp))
        return false;
    syn->to = (struct listener){{{0, 0, MAPPED, headers.ip.daddr}}, headers.tcp.dest, 0};
    return opens_connection(headers.tcp.flags);
}

/* Returns true if the packet opens a connection over IPv6, and fills `syn`. */
inlined bool syn_over_ipv6(void *packet, struct syn *syn) {
    struct ipv6_tcp headers;
    if (!load(packet, 0, &headers, sizeof headers) || headers.ip.nexthdr != IPPROTO_TCP)
        return false;
    syn->address = headers.ip.saddr.words[3];
    syn->ports = ports(&headers.tcp);
    syn->sequence = headers.tcp.seq;
    syn->to = (struct listener){headers.ip.daddr, headers.tcp.dest, 0};
    return opens_connection(headers.tcp.flags);
}

/*
 * Returns true if a packet whose link layer says `protocol` goes on. Packets that the program does not understand go
 * on: fragments, IPv6 with extension headers, everything but TCP.
 */
inlined bool may_pass(void *packet, u16 protocol) {
    struct syn syn;
    bool opens = protocol == NETWORK16(ETH_P_IP)     ? syn_over_ipv4(packet, &syn)
                 : protocol == NETWORK16(ETH_P_IPV6) ? syn_over_ipv6(packet, &syn)
                                                     : false;
    return !opens || admit(&syn);
}

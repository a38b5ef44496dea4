/*
 * Admission of SYNs by a token bucket, the same before every hook.
 *
 *    SYN to one of `listeners`? ── no ──────────────────────────────> untouched
 *       │ yes
 *    interval = 0? ── yes ──────────────────────────────> passed ───> the kernel's SYN queue
 *       │ no                                                ^
 *    theoretical arrival time > now + burst? ── no: + interval
 *       │ yes
 *    dropped: the client's kernel sends its SYN again after 1, 3, 7 s
 *
 * The bucket is the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, annex A). All
 * processors share it, so that the rate is exact; a drop only reads it. The counters have a cache line for
 * each processor.
 *
 * The server writes `interval_ns` and `burst_ns` by plain stores. A SYN that sees one of them new and the
 * other old is decided by that mixture.
 */
#pragma once
#include "kernel.h"

/* Most addresses with their ports. */
#define LISTENERS 1024
/* Other processors may take a token while this one tries to; a SYN that loses this often is dropped. */
#define ATTEMPTS 8

struct listener {
    struct address address;
    /* In network order. */
    u16 port;
    u16 zero;
};

struct bucket {
    /* From one admitted SYN to the next; 0 admits all. */
    u64 interval_ns;
    /* How far ahead of that rate arrivals may be. */
    u64 burst_ns;
    /* When the next SYN would come if all kept to the rate. Written here alone. */
    u64 theoretical_arrival_ns;
    u64 rest_of_line[5];
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

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct bucket);
} bucket SEC(".maps");

/* The loader makes one for each processor. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct counters);
} counters SEC(".maps");

/* Takes a token, or returns false where there is none. */
inlined bool take_token(struct bucket *bucket) {
    u64 interval = READ_ONCE(bucket->interval_ns);
    if (interval == 0)
        return true;
    u64 now = ktime_get_ns();
    u64 latest = now + READ_ONCE(bucket->burst_ns);
    u64 *place = &bucket->theoretical_arrival_ns;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        u64 arrival = READ_ONCE(*place);
        if (arrival > latest) {
            /* Only a rate that was slower, or a burst that was longer, can have led this far ahead. */
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

/* Decides on a SYN, and counts it where it is to one of our listeners. */
inlined bool admit(const struct listener *to) {
    if (!map_lookup(&listeners, to))
        return true;
    u32 first = 0, processor = get_smp_processor_id();
    struct bucket *shared = map_lookup(&bucket, &first);
    struct counters *ours = map_lookup(&counters, &processor);
    if (!shared || !ours)
        return true;
    bool admitted = take_token(shared);
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

/* Copies bytes of the packet from `offset` after the start of its IP header; false where it is shorter. */
inlined bool load(void *packet, u32 offset, void *to, u32 length);

/* Whether the flags of a segment are those of a connection's first. */
inlined bool opens_connection(u8 flags) {
    return (flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* Whether it opens a connection over IPv4, and to where. */
inlined bool syn_over_ipv4(void *packet, struct listener *to) {
    struct ipv4_tcp headers;
    if (!load(packet, 0, &headers, sizeof headers))
        return false;
    if (headers.ip.protocol != IPPROTO_TCP || headers.ip.frag_off & IP_FRAGMENT)
        return false;
    u32 length = (headers.ip.version_ihl & 15) * 4;
    if (length < sizeof headers.ip)
        return false;
    if (length > sizeof headers.ip && !load(packet, length, &headers.tcp, sizeof headers.tcp))
        return false;
    *to = (struct listener){{{0, 0, MAPPED, headers.ip.daddr}}, headers.tcp.dest, 0};
    return opens_connection(headers.tcp.flags);
}

/* Whether it opens a connection over IPv6, and to where. */
inlined bool syn_over_ipv6(void *packet, struct listener *to) {
    struct ipv6_tcp headers;
    if (!load(packet, 0, &headers, sizeof headers) || headers.ip.nexthdr != IPPROTO_TCP)
        return false;
    *to = (struct listener){headers.ip.daddr, headers.tcp.dest, 0};
    return opens_connection(headers.tcp.flags);
}

/*
 * Whether a packet whose link layer says `protocol` goes on. Packets that are not understood do: fragments,
 * IPv6 with extension headers, everything but TCP.
 */
inlined bool may_pass(void *packet, u16 protocol) {
    struct listener to;
    bool syn = protocol == NETWORK16(ETH_P_IP)     ? syn_over_ipv4(packet, &to)
               : protocol == NETWORK16(ETH_P_IPV6) ? syn_over_ipv6(packet, &to)
                                                   : false;
    return !syn || admit(&to);
}

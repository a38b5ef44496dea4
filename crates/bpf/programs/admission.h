/*
 * Admission of SYNs to accept queues by a token bucket, in which new clients come first; the same code for every hook.
 *
 *    SYN to the server (`is_ours`)? ─ no ──────────────────────────────> untouched
 *       │ yes
 *    queue = that of the receiving processor, or identity mod `queue_count`
 *       │
 *    interval = 0? ── yes ──────────────────────────────> passed ───> the kernel's SYN queue
 *       │ no                                                ^   ^
 *    limits outdated? ── yes ───────────────────────────> passed, because their writer has stopped
 *       │ no
 *    may be ahead of the rate by: burst / 4 if its identity was refused before
 *       │                         burst / 2 if its client takes more than an eighth of the rate
 *       │                         burst     otherwise
 *    theoretical arrival time > now + that? ── no: + interval   |
 *       │ yes                                                   |
 *    new, and new SYNs are free? ── yes ────────────────────────┘
 *       │ no
 *    from an exempt network, or a steady source? ── yes ─────────> passed, and the next one again
 *       │ no
 *    remembered and dropped: the client's kernel sends its SYN again after 1, 3, 7 s
 *
 * The bucket is the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, annex A). All
 * processors share it, so that the rate is exact. The counters have a cache line for each queue and processor.
 *
 * The part of the burst that a SYN may use decides who comes first. While new SYNs keep the bucket more than a quarter
 * ahead, no other SYN finds a token. If they leave tokens, the others take them.
 *
 * The identity of a SYN is a hash of the fields that its retransmission repeats. overload/src/hook/program.rs computes
 * the same hash, word for word: that program gives the SYN to the queue whose bucket it met here.
 *
 * Refused identities are kept in Bloom filters of a word each (Putze, Sanders and Singler 2007), of the present span of
 * 4.3 s and the one before. So a SYN is remembered for 4.3 s at least, more than the longest time between two of them, and
 * 8.6 s at most. A new SYN that is taken for a remembered one is refused earlier, and nothing worse.
 *
 * A source is steady if it connects at one pace, as a health check does. A source becomes steady while nobody is refused. In a
 * rush it can only stay so: no gap counts then, and no new source takes the place of a known one.
 *
 * The server writes the settings by plain stores. A SYN that comes between two stores is decided by a mix of old and
 * new settings.
 */
#pragma once
#include "kernel.h"

/* Other processors may take a token while this one tries to. A SYN that loses this many times is dropped. */
#define ATTEMPTS 8

/* Maximum number of networks that are never refused. */
#define EXEMPT_NETWORKS 256

/* Words of refused identities, a power of 2. */
#define REFUSED_BITS 18
/* Bits of a filter; the rest of its word has the span. */
#define FILTER_BITS 48
/* Clients with an allowance of their own, a power of 2. Others share one by chance. */
#define CLIENT_BITS 12
/* The part of the rate that one client may take before others, as a shift. */
#define CLIENT_SHARE 3

/* Gaps of one length in sequence that make a source steady. */
#define STEADY_GAPS 4
/* The shortest and the longest gap, in ns. Clients that connect again and again are faster. */
#define SHORTEST_GAP 500000000ULL
#define LONGEST_GAP (120 * 1000000000ULL)
/* Gaps of one length differ by a part of it at most, as a shift. */
#define GAP_TOLERANCE 3

/* Set by the loader. */
const volatile u32 queue_count = 1;
const volatile u32 processor_count = 1;
/* Mixed into identities. */
const volatile u32 salt = 0;
/* The networks in `exempt`. */
const volatile u32 exempt_networks = 0;
/* 1 if steady sources are never refused. */
const volatile u32 steady_sources = 0;

/* The limits of one accept queue. All zeros admit everything. */
struct queue {
    /* The time from one admitted SYN to the next; 0 for no limit. */
    u64 interval_ns;
    /* The time by which arrivals may be ahead of that rate. */
    u64 burst_ns;
    /* The time of the next SYN if all kept to the rate. Only this program writes it. */
    u64 theoretical_arrival_ns;
    /* 1 if only SYNs that were refused before are refused again. */
    u64 new_are_free;
    /* The time after which nothing is refused, because whoever sets the limits has stopped. */
    u64 until_ns;
    u64 rest_of_line[3];
};

struct counters {
    u64 passed;
    u64 dropped;
    u64 rest_of_line[6];
};

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

/* The filters of refused identities, each with the low bits of its span above; the span's lowest bit chooses one. */
struct filters {
    u64 of_span[2];
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1 << REFUSED_BITS);
    TYPE(key, u32);
    TYPE(value, struct filters);
} refused SEC(".maps");

/* The theoretical arrival time of a client's next SYN at its part of the rate. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1 << CLIENT_BITS);
    TYPE(key, u32);
    TYPE(value, u64);
} clients SEC(".maps");

/* The networks whose SYNs are never refused, such as those of health checks. */
struct network {
    /* Bits of the address that count. */
    u32 prefix;
    struct address address;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
    NUMBER(max_entries, EXEMPT_NETWORKS);
    NUMBER(map_flags, BPF_F_NO_PREALLOC);
    TYPE(key, struct network);
    TYPE(value, u32);
} exempt SEC(".maps");

/* The newest connections of a source. */
struct pace {
    /* The time of the newest one, and the gap between it and the one before. */
    u64 last_ns, gap_ns;
    /* Gaps in sequence that were as long as the one before. */
    u32 steady;
    /* Of the newest SYN: one that is sent again has the same. */
    u32 identity;
};

/* The loader makes room for more than one. A source that was quiet for long makes room for another. */
struct {
    NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    NUMBER(max_entries, 1);
    TYPE(key, struct address);
    TYPE(value, struct pace);
} paces SEC(".maps");

/* A packet that opens a connection. */
struct syn {
    struct listener to;
    struct address from;
    /* The words that identify it, in network order. */
    u32 address, ports, sequence;
    /* The client: an IPv4 address, or a hash of an IPv6 network of 64 bits. */
    u32 client;
};

/* The finalizer of MurmurHash3, with the salt. */
inlined u32 mixed(u32 hash) {
    hash ^= salt;
    hash = (hash ^ hash >> 16) * 0x85ebca6b;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35;
    return hash ^ hash >> 16;
}

inlined u32 identity(const struct syn *syn) {
    u32 hash = NETWORK32(syn->address) * 0x9e3779b1;
    hash = (NETWORK32(syn->ports) ^ hash) * 0x85ebca77;
    return mixed(NETWORK32(syn->sequence) ^ hash);
}

/* Returns the queue that the SYN will come to. */
inlined u32 queue_of(u32 identity, u32 processor) {
    if (queue_count == 1)
        return 0;
    u32 *own = map_lookup(&processors, &processor);
    return own && *own ? *own - 1 : identity % queue_count;
}

/* The limits of a queue, and the time. */
struct limits {
    u64 now, interval, burst;
};

/* Takes a token that may be this far `ahead` of the rate. Returns false if there is none. */
inlined bool take_token(struct queue *queue, const struct limits *limits, u64 ahead) {
    u64 now = limits->now, interval = limits->interval, furthest = now + limits->burst + interval;
    u64 *place = &queue->theoretical_arrival_ns;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        u64 arrival = READ_ONCE(*place);
        if (arrival > now + ahead) {
            /* Only an earlier rate that was slower, or a burst that was longer, can have led this far ahead. */
            if (arrival > furthest)
                __sync_val_compare_and_swap(place, arrival, furthest);
            return false;
        }
        u64 next = (arrival > now ? arrival : now) + interval;
        if (__sync_val_compare_and_swap(place, arrival, next) == arrival)
            return true;
    }
    return false;
}

/*
 * Takes a SYN from its client's allowance: a part of the rate, and the whole burst at once. Returns false if it is used
 * up. Two processors that come at once may take the same place.
 */
inlined bool is_within_allowance(const struct syn *syn, const struct limits *limits) {
    u32 client = mixed(syn->client) >> (32 - CLIENT_BITS);
    u64 *place = map_lookup(&clients, &client);
    if (!place)
        return true;
    u64 now = limits->now, arrival = READ_ONCE(*place), interval = limits->interval << CLIENT_SHARE;
    u64 latest = now + (limits->burst << CLIENT_SHARE);
    if (arrival > latest) {
        /* As for the bucket: the time of an earlier rate is not in force for long. */
        if (arrival > latest + interval)
            WRITE_ONCE(*place, latest + interval);
        return false;
    }
    WRITE_ONCE(*place, (arrival > now ? arrival : now) + interval);
    return true;
}

/* An identity in the filters. */
struct trace {
    u32 word;
    u64 bits;
};

/* One of the filter's bits, chosen by 16 bits of a hash. */
inlined u64 filter_bit(u64 hash) {
    return 1ULL << ((hash & 0xffff) * FILTER_BITS >> 16);
}

inlined struct trace trace_of(u32 identity) {
    u64 hash = identity * 0x9e3779b97f4a7c15;
    return (struct trace){hash >> (64 - REFUSED_BITS), filter_bit(hash) | filter_bit(hash >> 16) | filter_bit(hash >> 30)};
}

/* Returns true if the filter is of that span and has all these bits. */
inlined bool holds(u64 filter, u64 span, u64 bits) {
    return filter >> FILTER_BITS == (span & 0xffff) && (filter & bits) == bits;
}

/* Adds the bits to the filter of the present span. Another processor's bits may get lost, and with them a SYN's past. */
inlined void remember(struct filters *filters, u64 span, u64 bits) {
    u64 *place = &filters->of_span[span & 1], tag = span << FILTER_BITS, filter = READ_ONCE(*place);
    WRITE_ONCE(*place, (holds(filter, span, 0) ? filter : tag) | bits);
}

/* Decides on a SYN to a queue with limits. */
inlined bool has_room(const struct syn *syn, u32 identity, struct queue *queue, u64 interval) {
    struct limits limits = {ktime_get_ns(), interval, READ_ONCE(queue->burst_ns)};
    struct trace trace = trace_of(identity);
    struct filters *filters = map_lookup(&refused, &trace.word);
    if (!filters || limits.now > READ_ONCE(queue->until_ns))
        return true;
    u64 span = limits.now >> 32;
    bool again = holds(READ_ONCE(filters->of_span[span & 1]), span, trace.bits) ||
                 holds(READ_ONCE(filters->of_span[~span & 1]), span - 1, trace.bits);
    u64 ahead = again                              ? limits.burst / 4
                : is_within_allowance(syn, &limits) ? limits.burst
                                                   : limits.burst / 2;
    if (take_token(queue, &limits, ahead) || (!again && READ_ONCE(queue->new_are_free)))
        return true;
    remember(filters, span, trace.bits);
    return false;
}

inlined bool is_exempt(const struct syn *syn) {
    struct network client = {128, syn->from};
    return exempt_networks && map_lookup(&exempt, &client);
}

/* Adds a connection to its source's pace. Without `learns` the gap may end a steady pace, and adds nothing to it. */
inlined void keep_pace(struct pace *pace, u32 identity, bool learns, u64 now) {
    u64 gap = now - pace->last_ns, before = pace->gap_ns, difference = gap > before ? gap - before : before - gap;
    bool has_length = gap >= SHORTEST_GAP && gap <= LONGEST_GAP;
    pace->steady = has_length && difference <= before >> GAP_TOLERANCE ? pace->steady + learns : 0;
    pace->last_ns = now;
    pace->gap_ns = gap;
    pace->identity = identity;
}

/* Returns true if the SYN's source connects at a steady pace. Learns from the SYN if `learns`. */
inlined bool is_steady(const struct syn *syn, u32 identity, bool learns) {
    struct pace *pace = map_lookup(&paces, &syn->from);
    if (pace) {
        if (pace->identity != identity)
            keep_pace(pace, identity, learns, ktime_get_ns());
        return pace->steady >= STEADY_GAPS;
    }
    struct pace first = {ktime_get_ns(), 0, 0, identity};
    if (learns)
        map_update(&paces, &syn->from, &first, BPF_NOEXIST);
    return false;
}

/* Returns true if the SYN is for the server. Each program has its own rule. */
inlined bool is_ours(const struct syn *syn);

/* Decides on a SYN, and counts it if it is for the server. */
inlined bool admit(const struct syn *syn) {
    if (!is_ours(syn))
        return true;
    u32 processor = get_smp_processor_id(), id = identity(syn);
    u32 number = queue_of(id, processor);
    u32 row = number * processor_count + processor;
    struct queue *queue = map_lookup(&queues, &number);
    struct counters *ours = map_lookup(&counters, &row);
    if (!queue || !ours)
        return true;
    u64 interval = READ_ONCE(queue->interval_ns);
    bool steady = steady_sources && is_steady(syn, id, interval == 0);
    bool admitted = interval == 0 || has_room(syn, id, queue, interval) || is_exempt(syn) || steady;
    /* A choice between the two would be an offset that the verifier allows only with CAP_PERFMON. */
    ours->passed += admitted;
    ours->dropped += !admitted;
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
    syn->address = syn->client = headers.ip.saddr;
    syn->from = (struct address){{0, 0, MAPPED, headers.ip.saddr}};
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
    syn->from = headers.ip.saddr;
    syn->address = headers.ip.saddr.words[3];
    syn->client = headers.ip.saddr.words[0] * 0x9e3779b1 ^ headers.ip.saddr.words[1];
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

/*
 * The memory that the kernel cache shares with the server, and its records of connections.
 */
#pragma once
#include "tcp_segment.h"

/*
 * A response lies in pieces, each with its checksum, so that no request makes the program add up bytes. A segment has
 * three pieces if the path allows, which fits in an MTU of 1400. One piece fits everywhere.
 */
#define PIECE 448
#define PIECES 35
#define PIECES_PER_SEGMENT 3

/* Maximum size of a request, in 64-bit words. Most browsers send more, with cookies; the server answers those. */
#define REQUEST_WORDS 64
#define REQUEST (REQUEST_WORDS * 8)
/* Words that are hashed and compared at once. */
#define BLOCK 8
/* Number of places where a request may be found. */
#define WAYS 4

/* ---- written by the server, by plain stores ---- */

/*
 * A response. The server reuses a place that has had no valid response for two minutes, longer than a client goes on
 * with an old one. It changes `generation` first.
 */
struct object {
    /* CLOCK_MONOTONIC. No answer begins after this time. The server prolongs it while the file is unchanged. */
    u64 valid_until_ns;
    u32 generation;
    /* Bytes. */
    u32 length;
    /* Offset of the Date field's value in the first piece; 0 for none. */
    u32 date_at;
    /* The second of CLOCK_MONOTONIC in which it last answered a request; the program writes it, the server reads it. */
    u32 used_s;
    u16 sums[PIECES + 1];
    /* A segment of three pieces may begin with the last one. */
    u8 pieces[PIECES + PIECES_PER_SEGMENT - 1][PIECE];
};

/* A request, byte for byte, and its response. */
struct request {
    /* Odd while the server changes the rest; 0 before the first time. */
    u64 version;
    u64 hash;
    u32 object;
    u32 generation;
    u32 length;
    u32 rest;
    /* The request, followed by zeros. */
    u64 words[REQUEST_WORDS];
};

/* The value of the Date field (RFC 9110, section 5.6.7), followed by zeros, and its checksum. */
struct date {
    u8 text[32];
    u64 sum;
};

#define DATE 29

struct control {
    /* 0 if the program is to answer no further request. */
    u64 enabled;
    /* The index in `dates` of the date in force. The server writes the other date, and then this. */
    u64 date;
    struct date dates[2];
    /* The initial value of hashes. It is secret, so that no client can make two requests collide. */
    u64 seed;
    /* Nonzero if answers go to `log`. */
    u64 logging;
};

/* ---- counted here, read by the server; a pair of cache lines for each processor ---- */

struct counters {
    u64 answers;
    u64 bytes;
    /* Packets that made the program send parts of a response after its first burst. */
    u64 repeated;
    /* Connections taken over, and those of them that were handed over to the server. */
    u64 taken;
    u64 handed_over;
    /* Connections not taken because there was no room for them. */
    u64 no_room;
    /* Packets with a wrong checksum. */
    u64 damaged;
    /* Acknowledgements that brought the server's kernel nothing. */
    u64 swallowed;
    /* Connections reset because another response took the place of an unfinished one. */
    u64 aborted;
    /* Answers that `log` had no room for. */
    u64 unlogged;
    u64 rest_of_lines[6];
};

/* An answer, for the access log. */
struct event {
    u64 time_ns;
    struct address client;
    u16 client_port;
    u16 server_port;
    u32 object;
    u32 generation;
    u32 bytes;
};

/* ---- remembered of connections ---- */

/* A connection whose handshake has been seen and that has carried no data yet. */
struct embryo {
    struct tuple key;
    /* The first sequence number of each side's data. */
    u32 client_first;
    u32 server_first;
    /* The value of the server's timestamps. */
    u32 tsval;
    /* Maximum bytes in a segment to the client, options included. */
    u16 mss;
    /* The server's window as its segments show it. */
    u16 window;
    /* The shift of the client's window, in bits. */
    u8 scale;
    bool timestamps;
    /* The server has answered the SYN. */
    bool complete;
};

enum owner {
    /* The program answers requests. */
    OURS,
    /* The server answers. The program only translates sequence numbers. */
    KERNELS,
};

#define NANOSECONDS_PER_SECOND 1000000000

/*
 * A connection on which the program has answered a request.
 *
 *    client   client_first ........ client_acked ........ client_next
 *               │   answered          │  being answered     │
 *    server   server_first ..... start ... unacked .. sent .. server_next
 *               │   answered       │       being answered     │
 *
 * The kernel has not seen the bytes between the first and the last mark of either line.
 */
struct flow {
    /* The times of the last packet, and of the last request that was answered here. */
    u64 touched_ns, answered_ns;
    struct bpf_spin_lock lock;
    u32 owner;
    struct tuple key;
    u32 client_first, client_acked, client_next;
    u32 server_first, start, unacked, sent, server_next;
    u32 object, generation, length;
    /* The last gap, shown by selective acknowledgements, whose first segment was sent again. */
    u32 gap;
    /* Number of times that the request came again without a further acknowledgement. */
    u32 fruitless;
    u32 tsval, tsecr;
    /* The number after the server's FIN, as the client sees it, if `server_ended`. */
    u32 server_end;
    u16 window;
    u8 scale;
    u8 pieces_per_segment;
    bool timestamps;
    /* The kernel has sent data, a FIN or a RST, or got a RST: it owns the connection once no response is under way. */
    bool kernel_spoke;
    bool server_ended;
    struct date date;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct control);
} control SEC(".maps");

/* The loader sets the sizes of the maps from here on: the maximum number of objects, ... */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct object);
} objects SEC(".maps");

/* ... of requests, a power of two, which is `request_mask` + 1, ... */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct request);
} requests SEC(".maps");

const volatile u32 request_mask = 0;

/* The mark of our packets, from the hook that makes them to the hook where they leave. No other packet has it. */
const volatile u32 our_mark = 0;

/* ... of processors, ... */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct counters);
} counters SEC(".maps");

/* ... and of connections at once. This map must not forget a connection that the program has answered. */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_NO_PREALLOC);
    TYPE(key, struct tuple);
    TYPE(value, struct flow);
} flows SEC(".maps");

/* This map may forget connections, because the program has not answered them yet. */
struct {
    NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    NUMBER(max_entries, 1);
    TYPE(key, struct tuple);
    TYPE(value, struct embryo);
} embryos SEC(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, struct listener);
    TYPE(value, u32);
} listeners SEC(".maps");

/* The ports in `listeners`, a bit for each port. Most packets of a machine need no other look-up. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 65536 / 64);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, u64);
} ports SEC(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    NUMBER(max_entries, 1 << 18);
} log SEC(".maps");

/* The treatment of a segment. */
enum act {
    /* Lets it go on, with translated sequence numbers. */
    FORWARD,
    SWALLOW,
    /* Turns it into an acknowledgement, or into pieces of the response. */
    ACKNOWLEDGE,
    SEND,
};

/* The plan for a segment, decided under the flow's lock and carried out after it. */
struct plan {
    u32 act;
    /* FORWARD: added to the sequence number and to the acknowledgement. */
    u32 seq_add, ack_add;
    /* Of the reply. SEND: `seq` is that of the response's first byte. */
    u32 seq, ack;
    u32 tsval, tsecr;
    u16 window;
    bool timestamps;
    /* SEND: the number of pieces in a segment, the first piece to send, and the piece to end before. */
    u8 pieces_per_segment;
    u32 piece, end_piece;
    u32 object, generation, length;
    /* The first byte of the response that is not acknowledged. */
    u32 unacked;
    bool lacks_checksum;
};

/* The response to a segment. */
struct answer {
    bool known;
    u32 object, generation, length;
};

/* The offer of a SYN or of its answer. */
struct offer {
    u16 mss;
    u8 scale;
    bool scales;
    bool timestamps;
    u32 tsval;
};

/* An option of a segment: its kind, its offset in the packet, its length, and the offset of the next option. */
struct option {
    u32 kind;
    u32 at, length, next;
};

/*
 * Memory of one run of a program. It lies in a map and not on the stack, because the verifier follows values on the
 * stack through all paths, and there are too many.
 */
struct scratch {
    u64 words[REQUEST_WORDS];
    struct segment segment;
    struct answer answer;
    struct plan plan;
    struct offer offer;
    struct option option;
    struct embryo embryo;
    /* A `struct flow`. That type cannot be here, because memory of one processor cannot hold a lock. */
    u64 flow[(sizeof(struct flow) + 7) / 8];
    struct date date;
    /* An atomic addition to it is a full memory barrier. */
    u64 fence;
    u64 sum;
};

/* One for ingress and one for egress: a packet sent at ingress passes egress before the ingress program ends. */
enum { IN, OUT };

struct {
    NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    NUMBER(max_entries, 2);
    TYPE(key, u32);
    TYPE(value, struct scratch);
} scratches SEC(".maps");

inlined struct scratch *scratch_of(u32 way) {
    return map_lookup(&scratches, &way);
}

inlined struct counters *counters_here(void) {
    u32 processor = get_smp_processor_id();
    return map_lookup(&counters, &processor);
}

inlined struct control *settings(void) {
    u32 first = 0;
    return map_lookup(&control, &first);
}

/* Returns the socket of this connection in the server's kernel, which the caller releases; NULL without one. */
inlined struct bpf_sock *socket_in_kernel(struct __sk_buff *packet, const struct segment *s) {
    if (s->ipv6) {
        struct ipv6_tuple tuple = {s->key.client, s->key.server, s->key.client_port, s->key.server_port};
        return skc_lookup_tcp(packet, &tuple, sizeof tuple, BPF_F_CURRENT_NETNS, 0);
    }
    struct ipv4_tuple tuple = {s->key.client.words[3], s->key.server.words[3], s->key.client_port,
                               s->key.server_port};
    return skc_lookup_tcp(packet, &tuple, sizeof tuple, BPF_F_CURRENT_NETNS, 0);
}

/* Returns the state of this connection in the server's kernel; 0 without one. */
inlined u32 state_in_kernel(struct __sk_buff *packet, const struct segment *s) {
    struct bpf_sock *socket = socket_in_kernel(packet, s);
    if (!socket)
        return 0;
    u32 state = socket->state;
    sk_release(socket);
    return state;
}

/* Returns true if a reset with this sequence number ends the connection in the server's kernel: it has to be exactly the
 * next one (RFC 5961, section 3.2). */
inlined bool resets_in_kernel(struct __sk_buff *packet, const struct segment *s, u32 seq) {
    struct bpf_sock *socket = socket_in_kernel(packet, s);
    if (!socket)
        return false;
    const struct bpf_tcp_sock *tcp = tcp_sock(socket);
    bool exact = tcp && tcp->rcv_nxt == seq;
    sk_release(socket);
    return exact;
}

/* A function that the verifier checks once, and not again on each path to it. */
#define apart __attribute__((noinline))

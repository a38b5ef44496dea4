/*
 * What the kernel cache shares with the server, and what it remembers of connections.
 */
#pragma once
#include "tcp_segment.h"

/*
 * A response lies in pieces, each with its sum, so that no byte is added up per request. A segment takes three
 * pieces where the path allows, which fits in an MTU of 1400; one piece fits everywhere.
 */
#define PIECE 448
#define PIECES 35
#define PIECES_PER_SEGMENT 3

/* Longest request, in 64-bit words. Most browsers send more, with cookies; those are the server's. */
#define REQUEST_WORDS 64
#define REQUEST (REQUEST_WORDS * 8)
/* What is hashed and compared at once, in words. */
#define BLOCK 8
/* Places where a request may be found. */
#define WAYS 4

/* ---- written by the server, by plain stores ---- */

/*
 * A response. The server stores a new one where none has been valid for two minutes, longer than a client goes on
 * with an old one, and makes `generation` another number before.
 */
struct object {
    /* CLOCK_MONOTONIC; nothing new is begun from then on. The server prolongs it while the file is unchanged. */
    u64 valid_until_ns;
    u32 generation;
    /* Bytes. */
    u32 length;
    /* Where the value of the Date field is, in the first piece; 0 for nowhere. */
    u32 date_at;
    /* The second of CLOCK_MONOTONIC in which it last answered a request; written here, read by the server. */
    u32 used_s;
    u16 sums[PIECES + 1];
    /* A segment of three pieces may begin with the last. */
    u8 pieces[PIECES + PIECES_PER_SEGMENT - 1][PIECE];
};

/* A request, byte for byte, and what answers it. */
struct request {
    /* Odd while the server changes the rest; 0 before the first time. */
    u64 version;
    u64 hash;
    u32 object;
    u32 generation;
    u32 length;
    u32 rest;
    /* Zeros after the request. */
    u64 words[REQUEST_WORDS];
};

/* The value of the Date field (RFC 9110, section 5.6.7), with zeros behind it, and their sum. */
struct date {
    u8 text[32];
    u64 sum;
};

#define DATE 29

struct control {
    /* 0: no request is answered any more. */
    u64 enabled;
    /* Which of `dates` holds; the server writes the other and then this. */
    u64 date;
    struct date dates[2];
    /* Where hashes begin, so that nobody outside can make two requests collide. */
    u64 seed;
    /* Whether answers go to `log`. */
    u64 logging;
};

/* ---- counted here, read by the server; a pair of cache lines for each processor ---- */

struct counters {
    u64 answers;
    u64 bytes;
    /* Segments of responses sent again. */
    u64 repeated;
    /* Connections taken over, and given to the server afterwards. */
    u64 taken;
    u64 handed_over;
    /* Connections not taken because there was no room for them. */
    u64 no_room;
    /* Packets with a wrong checksum. */
    u64 damaged;
    /* Acknowledgements that brought the server's kernel nothing. */
    u64 swallowed;
    /* Responses that could not be ended because another took their place. */
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
    /* The first sequence number of data, of each side. */
    u32 client_first;
    u32 server_first;
    /* Of the server's timestamps. */
    u32 tsval;
    /* Most bytes in a segment to the client, options included. */
    u16 mss;
    /* The server's window as its segments show it. */
    u16 window;
    /* By how many bits the client's window is to be shifted. */
    u8 scale;
    bool timestamps;
    /* The server has answered the SYN. */
    bool complete;
};

enum owner {
    /* Requests are answered here. */
    OURS,
    /* The server answers; only sequence numbers are translated. */
    KERNELS,
};

/*
 * A connection on which something has been answered.
 *
 *    client   client_first ........ client_acked ........ client_next
 *               │   answered          │  being answered     │
 *    server   server_first ..... start ... unacked .. sent .. server_next
 *               │   answered       │       being answered     │
 *
 * The kernel has seen nothing of what lies between the first and the last mark of either line.
 */
struct flow {
    u64 touched_ns;
    struct bpf_spin_lock lock;
    u32 owner;
    struct tuple key;
    u32 client_first, client_acked, client_next;
    u32 server_first, start, unacked, sent, server_next;
    u32 object, generation, length;
    /* Where a segment was last sent again because selective acknowledgements showed a gap. */
    u32 gap;
    /* How often the request has come again with nothing more acknowledged. */
    u32 fruitless;
    u32 tsval, tsecr;
    u16 window;
    u8 scale;
    u8 pieces_per_segment;
    bool timestamps;
    /* The server's kernel has sent data, a FIN or a RST: the connection is its as soon as nothing is being answered. */
    bool kernel_spoke;
    struct date date;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct control);
} control SEC(".maps");

/* The loader sets the sizes from here on: as many objects as there may be, ... */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct object);
} objects SEC(".maps");

/* ... a power of two of requests, `request_mask` + 1, ... */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct request);
} requests SEC(".maps");

const volatile u32 request_mask = 0;

/* The mark of our packets between the hook that makes them and the hook that they leave by; nobody else's. */
const volatile u32 our_mark = 0;

/* ... one for each processor, ... */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct counters);
} counters SEC(".maps");

/* ... and as many connections as there may be at once. Connections that are answered here must not be forgotten: ... */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_NO_PREALLOC);
    TYPE(key, struct tuple);
    TYPE(value, struct flow);
} flows SEC(".maps");

/* ... those that are not yet may be. */
struct {
    NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    NUMBER(max_entries, 1);
    TYPE(key, struct tuple);
    TYPE(value, struct embryo);
} embryos SEC(".maps");

/* An address and a port that a server listens at; in network order. */
struct listener {
    struct address address;
    u16 port;
    u16 zero;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, struct listener);
    TYPE(value, u32);
} listeners SEC(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    NUMBER(max_entries, 1 << 18);
} log SEC(".maps");

/* What becomes of a segment. */
enum act {
    /* Goes on, with other sequence numbers. */
    FORWARD,
    SWALLOW,
    /* Comes back as an acknowledgement, or as pieces of the response. */
    ACKNOWLEDGE,
    SEND,
};

/* What to do with a segment, decided under the flow's lock and done after it. */
struct plan {
    u32 act;
    /* FORWARD: for the sequence number and the acknowledgement. */
    u32 seq_add, ack_add;
    /* Of the reply; SEND: of the response's first byte. */
    u32 seq, ack;
    u32 tsval, tsecr;
    u16 window;
    bool timestamps;
    /* SEND: which pieces, and how many of them a segment takes. */
    u8 pieces_per_segment;
    u32 piece, end_piece;
    u32 object, generation, length;
    /* The first byte of the response that is not acknowledged. */
    u32 unacked;
    bool lacks_checksum;
};

/* What answers a segment. */
struct answer {
    bool known;
    u32 object, generation, length;
};

/* What a SYN or its answer offers. */
struct offer {
    u16 mss;
    u8 scale;
    bool scales;
    bool timestamps;
    u32 tsval;
};

/* An option of a segment: where it is in the packet, how long, and where the next one is. */
struct option {
    u32 kind;
    u32 at, length, next;
};

/*
 * Memory of one run of a program. It lies in a map and not on the stack, because the verifier follows what lies on
 * the stack through all paths; there are too many.
 */
struct scratch {
    u64 words[REQUEST_WORDS];
    struct segment segment;
    struct answer answer;
    struct plan plan;
    struct offer offer;
    struct option option;
    struct embryo embryo;
    /* A `struct flow`, which by its type could not be here: a lock lies in no memory of one processor. */
    u64 flow[(sizeof(struct flow) + 7) / 8];
    struct date date;
    u64 fence;
    u64 sum;
};

/* For the way in and the way out: what is sent from the way in passes the way out before it has ended. */
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

/* A function that the verifier looks at once, whoever calls it, and not on each path to it. */
#define apart __attribute__((noinline))

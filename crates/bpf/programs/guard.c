/*
 * A guard of somebody else's server, at the cgroup of its sockets: counts requests and answers, and decides on SYNs.
 *
 *   packet ──> IP ──> TCP finds the socket ──> [guard_in] ──> the socket
 *                                                  │  listener: admission.h decides on the SYN ──> dropped
 *                                                  │  connection: new data begins a request
 *   packet <── IP <── [guard_out] <── the socket      │
 *                          │  connection: new data is an answer, and begins its first byte
 *
 *   A connection's state, in the place that its socket's cookie names:
 *
 *       quiet ── data in ──> waiting ── data out ──> quiet
 *                               └── FIN out, RST either way ──> quiet: ended without an answer
 *
 * Any device, any network namespace, after destination NAT: the socket has been found. A SYN meets the program before
 * the kernel makes a request socket for it.
 *
 * Cookies are numbers in sequence, so that a connection shares its place with those that came 65,536 sockets before or
 * later. A waiting request keeps its place, and the requests of the others are not counted until it ends.
 *
 * Segments that were sent again begin no request and are no answer. A first request that comes with the handshake's last
 * packet has no socket of its own yet, so that it is seen with its answer alone.
 *
 * A request is one burst of data and an answer is its reaction: a TLS handshake has two, and an HTTP/2 connection has one
 * request at a time however many streams it carries.
 *
 * Each request keeps the number of requests that were waiting before it. When it is answered, the answers that were given
 * meanwhile tell how many of those it has not overtaken. In a queue all of them are answered first. Requests that wait
 * for something else than their turn, such as half a request, are overtaken. Long polls and uploads say nothing about a
 * queue, so that only prompt answers tell.
 */
#include "admission.h"

/* The longest time of a prompt answer, in ms. Set by the loader, as are the next ones. */
const volatile u32 prompt_ms = 1000;
/* The listeners' port, in host order, and their address; all zeros for any. */
const volatile u32 port = 0;
const volatile u32 address_0 = 0, address_1 = 0, address_2 = 0, address_3 = 0;

/* Words of `totals`. */
enum { ASKED, ANSWERED, ENDED, FIRST, PROMPT, OVERTAKING, AHEAD, TIME, TOTALS };

/* Totals since the program was loaded, for all processors: each request compares two of them. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, TOTALS);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, u64);
} totals SEC(".maps");

/* Buckets for each power of two, as a shift. */
#define STEPS 3
#define BUCKETS (64 << STEPS)

/* Answers by the time from the request's first byte to the answer's, in ns. */
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, BUCKETS);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, u64);
} times SEC(".maps");

/* Places for connections: a power of two. */
#define PLACES (1 << 16)
/* After this time in ns, a request whose place another connection needs has ended unseen. */
#define ABANDONED (600 * 1000000000ULL)

struct connection {
    /* The socket's number in the kernel, which no other socket has; 0 in a place that was never taken. */
    u64 cookie;
    /* The time of the waiting request; 0 while none waits. */
    u64 since;
    /* The answers of all connections when it came, and the requests that waited then. */
    u64 answered;
    u64 ahead;
    /* 1 once it has asked. */
    u64 has_asked;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, PLACES);
    TYPE(key, u32);
    TYPE(value, struct connection);
} connections SEC(".maps");

inlined bool load(void *packet, u32 offset, void *to, u32 length) {
    return skb_load_bytes(packet, offset, to, length) == 0;
}

/* The listener has got the SYN already. */
inlined bool is_ours(const struct syn *syn) {
    (void)syn;
    return true;
}

inlined u64 total(u32 word) {
    u64 *place = map_lookup(&totals, &word);
    return place ? READ_ONCE(*place) : 0;
}

inlined void add(u32 word, u64 count) {
    u64 *place = map_lookup(&totals, &word);
    if (place)
        __sync_fetch_and_add(place, count);
}

inlined bool is_guarded(const struct bpf_sock *socket) {
    if (socket->src_port != port)
        return false;
    if (!(address_0 | address_1 | address_2 | address_3))
        return true;
    if (socket->family == AF_INET)
        return address_2 == MAPPED && socket->src_ip4 == address_3;
    return socket->src_ip6[0] == address_0 && socket->src_ip6[1] == address_1 && socket->src_ip6[2] == address_2 &&
           socket->src_ip6[3] == address_3;
}

/* The part of a segment that matters here. */
struct data {
    /* Of its first byte. */
    u32 sequence;
    /* Bytes of data. */
    u32 length;
    u8 flags;
};

/* Reads a segment. Returns false for everything but TCP, and for IPv6 with extension headers. */
inlined bool parse(struct __sk_buff *packet, struct data *data) {
    struct ipv6_tcp six;
    struct ipv4_tcp four;
    struct tcphdr *tcp;
    u32 start;
    if (packet->protocol == NETWORK16(ETH_P_IPV6)) {
        if (!load(packet, 0, &six, sizeof six) || six.ip.nexthdr != IPPROTO_TCP)
            return false;
        tcp = &six.tcp;
        start = sizeof six.ip;
    } else {
        if (!load(packet, 0, &four, sizeof four) || four.ip.protocol != IPPROTO_TCP)
            return false;
        tcp = &four.tcp;
        start = (four.ip.version_ihl & 15) * 4;
        if (start != sizeof four.ip && !load(packet, start, tcp, sizeof *tcp))
            return false;
    }
    start += (tcp->data_offset >> 4) * 4;
    data->sequence = NETWORK32(tcp->seq);
    data->length = packet->len > start ? packet->len - start : 0;
    data->flags = tcp->flags;
    return true;
}

inlined void ask(struct connection *connection, bool first) {
    u64 answered = total(ANSWERED), gone = answered + total(ENDED), asked = total(ASKED);
    connection->since = ktime_get_ns();
    connection->has_asked = 1;
    connection->answered = answered;
    connection->ahead = asked > gone ? asked - gone : 0;
    add(ASKED, 1);
    if (first)
        add(FIRST, 1);
}

/* Returns the bucket of a time: its highest bit, and the `STEPS` bits below. */
inlined u32 bucket_of(u64 time) {
    u32 bits = 0;
    u64 rest = time;
    for (u32 half = 32; half; half /= 2)
        if (rest >> half) {
            rest >>= half;
            bits += half;
        }
    u32 below = bits >= STEPS ? time >> (bits - STEPS) : time << (STEPS - bits);
    return bits << STEPS | (below & ((1 << STEPS) - 1));
}

/* Ends a waiting request. Returns its time, or 0 if none waits: another processor may have ended it. */
inlined u64 finish(struct connection *connection) {
    u64 since = READ_ONCE(connection->since);
    return since && __sync_val_compare_and_swap(&connection->since, since, 0) == since ? since : 0;
}

inlined void answer(struct connection *connection) {
    u64 others = total(ANSWERED) - connection->answered, ahead = connection->ahead, since = finish(connection);
    if (!since)
        return;
    u64 time = ktime_get_ns() - since;
    u32 bucket = bucket_of(time);
    u64 *place = map_lookup(&times, &bucket);
    if (place)
        __sync_fetch_and_add(place, 1);
    if (time <= prompt_ms * 1000000ULL) {
        add(TIME, time);
        add(AHEAD, ahead);
        add(OVERTAKING, others < ahead ? others : ahead);
        add(PROMPT, 1);
    }
    add(ANSWERED, 1);
}

inlined void end(struct connection *connection) {
    if (finish(connection))
        add(ENDED, 1);
}

/* Returns the connection's place. Takes it first if `take` is true and no request waits there; NULL without a place. */
inlined struct connection *connection_of(struct __sk_buff *packet, bool take) {
    u64 cookie = get_socket_cookie(packet);
    u32 number = cookie & (PLACES - 1);
    struct connection *place = map_lookup(&connections, &number);
    if (!place || place->cookie == cookie)
        return place;
    if (!take || (place->since && ktime_get_ns() - place->since < ABANDONED))
        return NULL;
    end(place);
    place->cookie = cookie;
    place->has_asked = 0;
    return place;
}

/* Returns the packet's socket; NULL for one without its own state. */
inlined struct bpf_sock *socket_of(struct __sk_buff *packet) {
    struct bpf_sock *socket = packet->sk;
    return socket ? sk_fullsock(socket) : NULL;
}

SEC("cgroup_skb/ingress")
int guard_in(struct __sk_buff *packet) {
    struct bpf_sock *socket = socket_of(packet);
    if (!socket || !is_guarded(socket))
        return CGROUP_PASS;
    if (socket->state == TCP_LISTEN)
        return may_pass(packet, packet->protocol) ? CGROUP_PASS : CGROUP_DROP;
    struct data data;
    if (!parse(packet, &data) || !(data.length || data.flags & TCP_RST))
        return CGROUP_PASS;
    struct bpf_tcp_sock *tcp = tcp_sock(socket);
    if (!tcp)
        return CGROUP_PASS;
    /* After its FIN the server answers nothing. */
    bool may_answer = socket->state == TCP_ESTABLISHED || socket->state == TCP_SYN_RECV;
    bool is_new = may_answer && data.length && before(tcp->rcv_nxt, data.sequence + data.length);
    struct connection *connection = connection_of(packet, is_new);
    if (!connection)
        return CGROUP_PASS;
    if (is_new && !connection->since)
        ask(connection, tcp->bytes_received == 0);
    if (data.flags & TCP_RST)
        end(connection);
    return CGROUP_PASS;
}

SEC("cgroup_skb/egress")
int guard_out(struct __sk_buff *packet) {
    struct bpf_sock *socket = socket_of(packet);
    if (!socket || socket->state == TCP_LISTEN)
        return CGROUP_PASS;
    /* A connection has given its port back before its reset leaves. Its cookie has a place only if it was guarded. */
    bool has_closed = socket->state == TCP_CLOSE;
    if (!has_closed && !is_guarded(socket))
        return CGROUP_PASS;
    struct data data;
    if (!parse(packet, &data) || !(data.length || data.flags & (TCP_FIN | TCP_RST)))
        return CGROUP_PASS;
    if (has_closed) {
        struct connection *closed = connection_of(packet, false);
        if (closed && data.flags & TCP_RST)
            end(closed);
        return CGROUP_PASS;
    }
    struct bpf_tcp_sock *tcp = tcp_sock(socket);
    if (!tcp)
        return CGROUP_PASS;
    bool is_new = data.length && !before(data.sequence, tcp->snd_nxt);
    /* Before its first answer, a request that came with the handshake has left nothing but its bytes. */
    bool is_first = is_new && tcp->bytes_received && tcp->bytes_acked <= 1;
    struct connection *connection = connection_of(packet, is_first);
    if (!connection)
        return CGROUP_PASS;
    if (is_first && !connection->has_asked)
        ask(connection, true);
    if (is_new && connection->since)
        answer(connection);
    if (data.flags & (TCP_FIN | TCP_RST))
        end(connection);
    return CGROUP_PASS;
}

LICENSE;

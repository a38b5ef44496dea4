/*
 * Answers hot requests from inside the kernel, on the server's own connections (TUX; Brecht 2004, section 3.3).
 *
 *   client                    this machine
 *     │  SYN                  ┌────────────────────────────┐
 *     ├──────────────────────>│ tc ingress ── passes ──────┼──> TCP: handshake, accept queue
 *     │<──────────────────────┼── tc egress ── notes <─────┼─── SYN-ACK
 *     │  request known ──────>│ tc ingress ── turned around│
 *     │<──────────────────────┼── response                 │    TCP sees nothing of either
 *     │  request known ──────>│    ...                     │
 *     │  anything else ──────>│ tc ingress ── renumbered ──┼──> TCP ──> server: the connection is its
 *     │<──────────────────────┼── tc egress ── renumbered <┼─── for good
 *     │                       └────────────────────────────┘
 *
 * This program owns a connection at first. It hands the connection over to the kernel's TCP once, at the first segment
 * that is not exactly a known request. From then on the program adds a constant to each sequence number and to each
 * acknowledgement of either direction. A connection does not change hands while a response is not wholly
 * acknowledged: the program drops a segment that would hand it over, and the client retransmits the segment.
 *
 * There is no timer here. A response of one segment acknowledges its request, because it comes whole or not at all. A
 * longer response does not acknowledge its request before the client has acknowledged the whole response. Until then
 * the client retransmits the request, which repairs the loss of any packet. Afterwards an empty segment acknowledges
 * the request, or the next response does.
 *
 * A connection leaves the table when nothing more can follow: at the acknowledgement of a FIN that answered the client's,
 * and at a reset of either side. The server removes those that end in other ways.
 *
 * The program knows no HTTP. It compares whole segments with requests that the server has answered before, so its
 * answers are those of the server. Invariants are in docs/decisions/0018.
 */
#include "known_request.h"

/* Sequence numbers farther than this from the expected one are not plausible. */
#define PLAUSIBLE 65536
/* Segments sent after an acknowledgement, and after a retransmitted request. */
#define MORE 2
/* After this many fruitless retransmissions segments are short, because the path may not carry long ones. */
#define PATIENCE 2

/* ---- a segment from the client, under the flow's lock ---- */

/* Plans to send pieces from `flow->sent` on, in at most `segments` segments. */
inlined void plan_pieces(struct flow *flow, struct plan *plan, u32 segments) {
    u32 done = flow->sent - flow->start, end = (flow->length + PIECE - 1) / PIECE;
    if (done >= flow->length) {
        plan->act = SWALLOW;
        return;
    }
    u32 piece = done / PIECE, last = piece + segments * flow->pieces_per_segment;
    last = last < end ? last : end;
    plan->act = SEND;
    plan->seq = flow->start;
    plan->piece = piece;
    plan->end_piece = last;
    u32 bytes = last * PIECE;
    u32 sent = flow->start + (bytes < flow->length ? bytes : flow->length);
    if (before(flow->sent, sent))
        flow->sent = sent;
}

/* Returns true if the response fits one segment. Such a response acknowledges its request: a client with Nagle's
 * algorithm waits for that before it sends another. */
inlined bool fits_one_segment(const struct flow *flow) {
    return flow->length <= (u32)flow->pieces_per_segment * PIECE;
}

/* Begins to answer a request. */
inlined void begin(struct flow *flow, const struct segment *s, const struct answer *answer,
                   const struct date *date, struct plan *plan) {
    flow->date = *date;
    flow->object = answer->object;
    flow->generation = answer->generation;
    flow->length = answer->length;
    flow->start = flow->unacked = flow->sent = flow->server_next;
    flow->gap = flow->start - 1; /* where no gap can begin */
    flow->server_next += answer->length;
    flow->client_next += s->length;
    flow->fruitless = 0;
    plan_pieces(flow, plan, BURST);
}

/* Takes an acknowledgement of the response under way. Returns true if it acknowledges the whole response. */
inlined bool take_acknowledgement(struct flow *flow, const struct segment *s) {
    flow->fruitless = 0;
    if (before(s->ack, flow->server_next)) {
        flow->unacked = s->ack;
        if (before(flow->sent, flow->unacked))
            flow->sent = flow->unacked;
        return false;
    }
    flow->unacked = flow->server_next;
    flow->client_acked = flow->client_next;
    if (flow->kernel_spoke)
        flow->owner = KERNELS;
    return true;
}

/* Decides on a segment without data while a response is under way. */
inlined void receive_bare(struct flow *flow, const struct segment *s, bool progress, struct plan *plan) {
    if (progress) {
        plan_pieces(flow, plan, MORE);
        return;
    }
    plan->act = SWALLOW;
    if (s->sack && s->ack == flow->unacked && flow->gap != s->ack) {
        /* A segment after a gap has arrived. The first segment of the gap is sent again, once for each gap. */
        u32 sent = flow->sent;
        flow->gap = s->ack;
        flow->sent = s->ack;
        plan_pieces(flow, plan, 1);
        flow->sent = sent;
    }
}

/* Decides on a segment with data or a FIN while a response is under way. */
inlined void receive_again(struct flow *flow, const struct segment *s, u32 end, struct plan *plan) {
    if (!before(s->seq, flow->client_next)) {
        /* New data, which the client retransmits. By then the response may have been acknowledged. */
        plan->act = SWALLOW;
    } else if (!before(flow->client_acked, end)) {
        plan->act = ACKNOWLEDGE;
    } else {
        /* The request again: sends from the first byte that is not acknowledged, as after any timeout. */
        flow->fruitless++;
        if (flow->fruitless >= PATIENCE)
            flow->pieces_per_segment = 1;
        flow->sent = flow->unacked;
        plan_pieces(flow, plan, MORE);
    }
}

/* Decides on a segment. */
inlined void receive(struct flow *flow, const struct segment *s, const struct answer *answer,
                     const struct date *date, struct plan *plan) {
    bool answering = flow->unacked != flow->server_next, completed = false, progress = false;
    u32 fin = s->flags & TCP_FIN ? 1 : 0, end = s->seq + s->length + fin;
    bool bare = s->length == 0 && !fin;
    plan->act = FORWARD;
    if (flow->owner == KERNELS)
        return;
    if (s->flags & TCP_RST) {
        /* The kernel decides if the reset is valid. */
        flow->kernel_spoke = true;
        if (!answering)
            flow->owner = KERNELS;
        return;
    }
    if (!s->sound || !(s->flags & TCP_ACK) || before(s->seq, flow->client_acked - PLAUSIBLE) ||
        before(flow->client_next + PLAUSIBLE, s->seq) ||
        (before(flow->server_next, s->ack) && !flow->kernel_spoke)) {
        if (answering)
            plan->act = SWALLOW;
        else if (!bare)
            flow->owner = KERNELS;
        return;
    }
    if (s->timestamps && before(flow->tsecr, s->tsval))
        flow->tsecr = s->tsval;
    if (answering && before(flow->unacked, s->ack)) {
        progress = true;
        completed = take_acknowledgement(flow, s);
        answering = !completed;
        if (flow->owner == KERNELS)
            return;
    }
    if (answering && bare) {
        receive_bare(flow, s, progress, plan);
    } else if (answering) {
        receive_again(flow, s, end, plan);
    } else if (bare) {
        /* The kernel gets only segments that may be news to it: probes, which lie before the expected number. */
        if (completed)
            plan->act = fits_one_segment(flow) ? SWALLOW : ACKNOWLEDGE;
        else if (s->seq == flow->client_next)
            plan->act = SWALLOW;
    } else if (!before(flow->client_next, end)) {
        plan->act = ACKNOWLEDGE;
    } else if (answer->known && s->seq == flow->client_next && s->ack == flow->server_next &&
               !flow->kernel_spoke && s->timestamps == flow->timestamps &&
               (u32)s->window << flow->scale >= answer->length) {
        begin(flow, s, answer, date, plan);
    } else {
        flow->owner = KERNELS;
    }
}

/* ---- connections ---- */

inlined bool same(const struct tuple *a, const struct tuple *b) {
    u32 differences = (a->client_port ^ b->client_port) | (a->server_port ^ b->server_port);
    for (int word = 0; word < 4; word++) {
        differences |= a->client.words[word] ^ b->client.words[word];
        differences |= a->server.words[word] ^ b->server.words[word];
    }
    return differences == 0;
}

/*
 * Takes a connection over at its first data, if that is a known request. Another processor may have another segment of
 * the connection on its way to the kernel. The processor that removes the embryo decides who owns the connection.
 */
apart int take_over(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(IN);
    struct counters *counts = counters_here();
    if (!scratch || !counts)
        return false;
    struct segment *s = &scratch->segment;
    struct embryo *embryo = map_lookup(&embryos, &s->key);
    struct flow *new = (struct flow *)scratch->flow;
    u32 length = scratch->answer.length;
    if (!embryo)
        return false;
    bool fits = scratch->answer.known && embryo->complete && same(&embryo->key, &s->key) &&
                s->seq == embryo->client_first && s->ack == embryo->server_first &&
                s->timestamps == embryo->timestamps && (u32)s->window << (embryo->scale & 15) >= length &&
                embryo->mss >= PIECE + 12;
    if (!fits || state_in_kernel(packet, s) != TCP_ESTABLISHED) {
        map_delete(&embryos, &s->key);
        return false;
    }
    __builtin_memset(new, 0, sizeof *new);
    new->key = s->key;
    new->client_first = new->client_acked = new->client_next = embryo->client_first;
    new->server_first = new->start = new->unacked = new->sent = new->server_next = embryo->server_first;
    new->tsval = embryo->tsval;
    new->tsecr = s->tsval;
    new->window = embryo->window;
    new->scale = embryo->scale & 15;
    new->timestamps = embryo->timestamps;
    u32 payload = embryo->mss - (embryo->timestamps ? 12 : 0);
    new->pieces_per_segment = payload >= PIECES_PER_SEGMENT * PIECE ? PIECES_PER_SEGMENT : 1;
    if (map_update(&flows, &s->key, new, BPF_NOEXIST)) {
        counts->no_room++;
        map_delete(&embryos, &s->key);
        return false;
    }
    if (map_delete(&embryos, &s->key)) {
        map_delete(&flows, &s->key);
        return false;
    }
    counts->taken++;
    return true;
}

/* Notes a client's SYN to one of our listeners. */
apart int note_syn(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch)
        return 0;
    struct segment *s = &scratch->segment;
    struct listener to = {s->key.server, s->key.server_port, 0};
    if (!map_lookup(&listeners, &to))
        return 0;
    /* The kernel keeps a connection whose SYN has data, or whose packets routers may fragment. */
    if (s->length || !s->whole) {
        map_delete(&embryos, &s->key);
        return 0;
    }
    read_offer(packet, scratch, IN);
    scratch->embryo = (struct embryo){.key = s->key, .mss = scratch->offer.mss, .scale = scratch->offer.scale};
    map_update(&embryos, &s->key, &scratch->embryo, 0);
    return 0;
}

/* Notes the answer to a SYN. It begins a new connection, so any older one between the same ends is forgotten. */
apart int note_answer(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(OUT);
    if (!scratch)
        return 0;
    struct segment *s = &scratch->segment;
    struct offer *offer = &scratch->offer;
    map_delete(&flows, &s->key);
    struct embryo *embryo = map_lookup(&embryos, &s->key);
    if (!embryo)
        return 0;
    if (s->flags & TCP_ECE) {
        /* With ECN the sender must react to congestion, and only the kernel does. */
        map_delete(&embryos, &s->key);
        return 0;
    }
    read_offer(packet, scratch, OUT);
    embryo->client_first = s->ack;
    embryo->server_first = s->seq + 1;
    embryo->mss = offer->mss < embryo->mss ? offer->mss : embryo->mss;
    embryo->window = s->window >> (offer->scale & 15);
    embryo->timestamps = offer->timestamps;
    embryo->tsval = offer->tsval;
    if (!offer->scales)
        embryo->scale = 0;
    embryo->complete = true;
    return 0;
}

/* ---- the hooks ---- */

/* Copies the fields that all replies of a flow have into the plan. */
inlined void fill_in(struct plan *plan, const struct flow *flow) {
    plan->seq_add = flow->client_first - flow->client_next;
    plan->ack_add = flow->server_first - flow->server_next;
    plan->ack = flow->client_acked;
    if (plan->act == ACKNOWLEDGE)
        plan->seq = flow->server_next;
    else if (plan->act == SEND && fits_one_segment(flow))
        plan->ack = flow->client_next;
    plan->unacked = flow->unacked;
    plan->tsval = flow->tsval;
    plan->tsecr = flow->tsecr;
    plan->window = flow->window;
    plan->timestamps = flow->timestamps;
    plan->pieces_per_segment = flow->pieces_per_segment;
    plan->object = flow->object;
    plan->generation = flow->generation;
    plan->length = flow->length;
}

/* Bytes that are added up at once, and the maximum number of such parts. The kernel checks longer segments itself. */
#define PART REQUEST
#define PARTS 4

/* Adds the next part of a segment to the sum. Returns false at its end. */
apart int add_part(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch)
        return false;
    u32 at = scratch->option.next, end = scratch->segment.payload + scratch->segment.length, length = end - at;
    if (at >= end)
        return false;
    if (length > PART)
        length = PART;
    /* Zeros follow the last part. */
    __builtin_memset(scratch->words, 0, PART);
    FORGET(length);
    if (length == 0 || length > PART || skb_load_bytes(packet, at, scratch->words, length))
        return false;
    scratch->sum += fold(csum_diff(NULL, 0, scratch->words, (length + 3) & ~3u, 0));
    scratch->option.next = at + length;
    return true;
}

static long add_next_part(u32 number, void *context) {
    (void)number;
    return end_unless(add_part(*(struct __sk_buff **)context));
}

/* Returns false if the packet's checksum is wrong. Notes if it is known to be right, and if a reply is to have one. */
apart int check(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch)
        return false;
    struct segment *s = &scratch->segment;
    u32 bytes = s->payload - s->tcp + s->length;
    /* The cheaper question comes first: a device has checked most packets that have a checksum. */
    bool checked = csum_level(packet, BPF_CSUM_LEVEL_QUERY) >= 0;
    scratch->plan.lacks_checksum = !checked && lacks_checksum(packet, s);
    s->sound = checked || scratch->plan.lacks_checksum;
    if (s->sound || bytes > PART * PARTS)
        return true;
    scratch->sum = pseudo_header(s, bytes);
    scratch->option.next = s->tcp;
    loop(PARTS, add_next_part, &packet, 0);
    s->sound = fold(scratch->sum) == 0xffff;
    return s->sound;
}

/* Returns true if the kernel forgets the connection at this segment: a valid reset, or the acknowledgement of a FIN that
 * answers the client's. */
apart int is_last(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch || !check(packet) || !scratch->segment.sound)
        return false;
    struct segment *s = &scratch->segment;
    if (s->flags & TCP_RST)
        return resets_in_kernel(packet, s, s->seq + scratch->plan.seq_add);
    return state_in_kernel(packet, s) == TCP_LAST_ACK;
}

/* Counts an answer, and logs it if answers are logged. */
apart int note_answered(u64 now) {
    struct scratch *scratch = scratch_of(IN);
    struct counters *counts = counters_here();
    struct control *set = settings();
    if (!scratch || !counts || !set)
        return 0;
    counts->answers++;
    counts->bytes += scratch->plan.length;
    u32 index = scratch->plan.object, second = now / NANOSECONDS_PER_SECOND;
    struct object *object = map_lookup(&objects, &index);
    /* Stored once a second, so that processors share the cache line and do not pass it around. */
    if (object && READ_ONCE(object->used_s) != second)
        WRITE_ONCE(object->used_s, second);
    if (!READ_ONCE(set->logging))
        return 0;
    struct event event = {
        .time_ns = now,
        .client = scratch->segment.key.client,
        .client_port = scratch->segment.key.client_port,
        .server_port = scratch->segment.key.server_port,
        .object = scratch->plan.object,
        .generation = scratch->plan.generation,
        .bytes = scratch->plan.length,
    };
    if (ringbuf_output(&log, &event, sizeof event, BPF_RB_NO_WAKEUP))
        counts->unlogged++;
    return 0;
}

/* Lets a packet go on with translated sequence numbers, also in its selective acknowledgements. */
apart int forward(struct __sk_buff *packet, u32 way, u32 seq_add, u32 ack_add) {
    struct scratch *scratch = scratch_of(way);
    if (!scratch)
        return TCX_DROP;
    struct segment *s = &scratch->segment;
    if (seq_add || ack_add)
        translate(packet, s, seq_add, ack_add);
    if (ack_add && !s->plain)
        translate_sack(packet, scratch, way, ack_add);
    return TCX_NEXT;
}

/* Carries out the plan. Returns the verdict on the packet. */
inlined int carry_out(struct __sk_buff *packet, struct scratch *scratch, struct flow *flow,
                      struct counters *counts) {
    struct plan *plan = &scratch->plan;
    if (plan->act == FORWARD)
        return forward(packet, IN, plan->seq_add, plan->ack_add);
    if (plan->act == SWALLOW) {
        counts->swallowed++;
        return TCX_DROP;
    }
    if (plan->act == ACKNOWLEDGE)
        return send_bare(packet, TCP_ACK);
    u32 index = plan->object;
    const struct object *object = map_lookup(&objects, &index);
    if (!object || READ_ONCE(object->generation) != plan->generation) {
        /* The response is gone, and the client has a part of it. No other bytes may follow, so this is a reset. */
        counts->aborted++;
        WRITE_ONCE(flow->owner, KERNELS);
        plan->seq = plan->unacked;
        return send_bare(packet, TCP_RST | TCP_ACK);
    }
    return send_pieces(packet);
}

/* Returns false if the packet's server port is none of a listener. Reads the port where it is in a segment that `parse`
 * accepts. */
inlined bool may_concern_us(struct __sk_buff *packet, u32 link_header, enum direction direction) {
    bool ipv4 = packet->protocol == NETWORK16(ETH_P_IP);
    u32 tcp = link_header + (ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
    u32 source = __builtin_offsetof(struct tcphdr, source), dest = __builtin_offsetof(struct tcphdr, dest);
    u16 port;
    if (skb_load_bytes(packet, tcp + (direction == TO_SERVER ? dest : source), &port, sizeof port))
        return false;
    port = NETWORK16(port);
    u32 word = port / 64;
    const u64 *bits = map_lookup(&ports, &word);
    return bits && READ_ONCE(*bits) >> (port % 64) & 1;
}

/* Handles a packet that a device has received. */
inlined int from_client(struct __sk_buff *packet, u32 link_header) {
    if (!may_concern_us(packet, link_header, TO_SERVER))
        return TCX_NEXT;
    struct scratch *scratch = scratch_of(IN);
    struct counters *counts = counters_here();
    if (!scratch || !counts || packet->pkt_type != PACKET_HOST || packet->vlan_present ||
        !parse(packet, link_header, TO_SERVER, &scratch->segment))
        return TCX_NEXT;
    struct segment *s = &scratch->segment;
    if (s->flags & TCP_SYN) {
        if (!(s->flags & TCP_ACK))
            note_syn(packet);
        return TCX_NEXT;
    }
    struct flow *flow = map_lookup(&flows, &s->key);
    if (!flow && (s->length == 0 || !map_lookup(&embryos, &s->key)))
        return TCX_NEXT;
    u64 now = ktime_get_coarse_ns();
    scratch->answer.known = false;
    if (!flow || READ_ONCE(flow->owner) == OURS) {
        if (!check(packet)) {
            counts->damaged++;
            return TCX_DROP;
        }
        if (s->length && s->sound)
            find_answer(packet, now);
    }
    if (!flow) {
        if (!take_over(packet))
            return TCX_NEXT;
        flow = map_lookup(&flows, &s->key);
        if (!flow)
            return TCX_NEXT;
    }
    copy_date(&scratch->date);
    spin_lock(&flow->lock);
    if (!same(&flow->key, &s->key)) {
        spin_unlock(&flow->lock);
        return TCX_NEXT;
    }
    enum owner owner = flow->owner;
    u32 next = flow->client_next;
    receive(flow, s, &scratch->answer, &scratch->date, &scratch->plan);
    flow->touched_ns = now;
    fill_in(&scratch->plan, flow);
    scratch->date = flow->date;
    bool begun = flow->client_next != next, handed_over = flow->owner != owner;
    flow->answered_ns = begun ? now : flow->answered_ns;
    bool ends = s->flags & TCP_RST || (flow->server_ended && s->flags & TCP_ACK && s->ack == flow->server_end);
    spin_unlock(&flow->lock);
    if (handed_over)
        counts->handed_over++;
    if (begun)
        note_answered(now);
    else if (scratch->plan.act == SEND)
        counts->repeated++;
    bool last = ends && scratch->plan.act == FORWARD && is_last(packet);
    int verdict = carry_out(packet, scratch, flow, counts);
    if (last)
        map_delete(&flows, &s->key);
    return verdict;
}

/* Handles a packet that this machine sends. */
inlined int from_server(struct __sk_buff *packet, u32 link_header) {
    if (packet->mark == our_mark) {
        packet->mark = 0;
        return TCX_NEXT;
    }
    /* A packet with a tag has been translated on the VLAN device. */
    if (packet->vlan_present || !may_concern_us(packet, link_header, FROM_SERVER))
        return TCX_NEXT;
    struct scratch *scratch = scratch_of(OUT);
    if (!scratch || !parse(packet, link_header, FROM_SERVER, &scratch->segment))
        return TCX_NEXT;
    struct segment *s = &scratch->segment;
    if (s->flags & TCP_SYN) {
        if (s->flags & TCP_ACK)
            note_answer(packet);
        return TCX_NEXT;
    }
    struct flow *flow = map_lookup(&flows, &s->key);
    bool speaks = s->length || s->flags & (TCP_FIN | TCP_RST);
    /* Without an embryo, another processor may have just taken the connection over. */
    if (!flow && speaks && map_delete(&embryos, &s->key))
        flow = map_lookup(&flows, &s->key);
    if (!flow)
        return TCX_NEXT;
    u64 now = ktime_get_coarse_ns();
    u32 seq_add = 0, ack_add = 0;
    bool reset = false;
    spin_lock(&flow->lock);
    if (same(&flow->key, &s->key)) {
        seq_add = flow->server_next - flow->server_first;
        ack_add = flow->client_acked - flow->client_first;
        if (speaks) {
            flow->kernel_spoke = true;
            if (flow->unacked == flow->server_next)
                flow->owner = KERNELS;
        }
        if (s->flags & TCP_FIN) {
            flow->server_ended = true;
            flow->server_end = s->seq + s->length + 1 + seq_add;
        }
        reset = s->flags & TCP_RST;
        /* The client drops answers that are older than this segment (PAWS; RFC 7323, section 5). */
        if (s->timestamps && before(flow->tsval, s->tsval))
            flow->tsval = s->tsval;
        flow->window = s->window;
        flow->touched_ns = now;
    }
    spin_unlock(&flow->lock);
    int verdict = forward(packet, OUT, seq_add, ack_add);
    if (reset)
        map_delete(&flows, &s->key);
    return verdict;
}

SEC("classifier")
int cache_in(struct __sk_buff *packet) {
    return from_client(packet, sizeof(struct ethhdr));
}

SEC("classifier")
int cache_out(struct __sk_buff *packet) {
    return from_server(packet, sizeof(struct ethhdr));
}

/* On devices without a link layer. */
SEC("classifier")
int cache_in_bare(struct __sk_buff *packet) {
    return from_client(packet, 0);
}

SEC("classifier")
int cache_out_bare(struct __sk_buff *packet) {
    return from_server(packet, 0);
}

LICENSE;

/*
 * A reply made of the segment that it answers: the same packet, turned around.
 */
#pragma once
#include "tcp_options.h"
#include "tcp_turn.h"

/* The part of a reply that changes from segment to segment. */
struct cut {
    u32 seq;
    u32 bytes;
    /* The checksum of the payload. */
    u64 sum;
    u8 flags;
};

struct tcp_with_timestamps {
    struct tcphdr tcp;
    u32 options[3];
};

inlined u32 reply_header(const struct plan *plan) {
    return plan->timestamps ? sizeof(struct tcp_with_timestamps) : sizeof(struct tcphdr);
}

/* Makes the packet a reply with room for `cut->bytes` of payload, which are to be stored. Returns false if there is no
 * memory. */
inlined bool write_headers(struct __sk_buff *packet, const struct segment *s, const struct plan *plan,
                           const struct cut *cut) {
    u32 header = reply_header(plan), tcp_bytes = header + cut->bytes;
    struct tcp_with_timestamps reply = {
        .tcp = {
            .source = s->key.server_port,
            .dest = s->key.client_port,
            .seq = NETWORK32(cut->seq),
            .ack_seq = NETWORK32(plan->ack),
            .data_offset = header / 4 << 4,
            .flags = cut->flags,
            .window = NETWORK16(plan->window),
        },
        .options = {PADDED(OPTION_TIMESTAMPS, 10), NETWORK32(plan->tsval), NETWORK32(plan->tsecr)},
    };
    if (skb_change_tail(packet, s->tcp + tcp_bytes, 0))
        return false;
    write_ip(packet, s, tcp_bytes);
    u64 sum = pseudo_header(s, tcp_bytes);
    if (plan->lacks_checksum) {
        /* The device adds the rest. */
        reply.tcp.check = fold(sum);
    } else {
        sum += fold(csum_diff(NULL, 0, &reply, sizeof reply.tcp, 0));
        if (plan->timestamps)
            sum += fold(csum_diff(NULL, 0, reply.options, sizeof reply.options, 0));
        reply.tcp.check = ~fold(sum + cut->sum);
    }
    if (plan->timestamps)
        return skb_store_bytes(packet, s->tcp, &reply, sizeof reply, 0) == 0;
    return skb_store_bytes(packet, s->tcp, &reply, sizeof reply.tcp, 0) == 0;
}

/* Sends the reply that the packet has become. */
inlined int leave(struct __sk_buff *packet) {
    packet->mark = our_mark;
    return redirect(packet->ifindex, 0);
}

/* Sends a reply without payload. Returns the verdict on its packet. */
apart int send_bare(struct __sk_buff *packet, u8 flags) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch)
        return TCX_DROP;
    struct segment *s = &scratch->segment;
    struct cut cut = {.seq = scratch->plan.seq, .flags = flags};
    if (s->ip)
        turn_ethernet(packet);
    return write_headers(packet, s, &scratch->plan, &cut) ? leave(packet) : TCX_DROP;
}

/* Stores `bytes` bytes of an object, from a piece on, at offset `at` of the packet. Returns false on failure. */
apart int store_pieces(struct __sk_buff *packet, u32 at, u32 index, u32 piece, u32 bytes) {
    const struct object *object = map_lookup(&objects, &index);
    if (!object || piece >= PIECES || bytes == 0 || bytes > PIECES_PER_SEGMENT * PIECE)
        return false;
    return skb_store_bytes(packet, at, object->pieces[piece], bytes, 0) == 0;
}

/* Stores the payload of a segment that begins with piece `piece`. Returns false if the object has changed. */
inlined bool write_payload(struct __sk_buff *packet, struct scratch *scratch, const struct object *object, u32 piece,
                           u32 bytes) {
    struct plan *plan = &scratch->plan;
    u32 at = scratch->segment.tcp + reply_header(plan), date_at = object->date_at;
    if (!store_pieces(packet, at, plan->object, piece, bytes))
        return false;
    if (piece == 0 && date_at && skb_store_bytes(packet, at + date_at, scratch->date.text, DATE, 0))
        return false;
    __sync_fetch_and_add(&scratch->fence, 1);
    return READ_ONCE(object->generation) == plan->generation;
}

/* Returns the checksum of `pieces` pieces with the date among them. */
inlined u64 payload_sum(const struct object *object, const struct date *date, u32 piece, u32 pieces) {
    u64 sum = 0;
    for (u32 next = 0; next < PIECES_PER_SEGMENT; next++) {
        u32 index = piece + next;
        if (next < pieces && index < PIECES)
            sum += object->sums[index];
    }
    if (piece == 0 && object->date_at) {
        u32 of_date = date->sum;
        /* At an odd offset its bytes count for the other halves of the checksum's words. */
        sum += object->date_at & 1 ? (of_date << 8 | of_date >> 8) & 0xffff : of_date & 0xffff;
    }
    return sum;
}

/* Makes the packet the segment that begins with piece `piece`. Returns false on failure. */
apart int write_segment(struct __sk_buff *packet, u32 piece) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch)
        return false;
    struct plan *plan = &scratch->plan;
    u32 index = plan->object, pieces = plan->pieces_per_segment, from = piece * PIECE;
    const struct object *object = map_lookup(&objects, &index);
    if (!object || piece >= PIECES || from >= plan->length)
        return false;
    u32 room = pieces * PIECE, left = plan->length - from;
    struct cut cut = {
        .seq = plan->seq + from,
        .bytes = left < room ? left : room,
        .sum = payload_sum(object, &scratch->date, piece, pieces),
        .flags = left <= room ? TCP_ACK | TCP_PSH : TCP_ACK,
    };
    return write_headers(packet, &scratch->segment, plan, &cut) &&
           write_payload(packet, scratch, object, piece, cut.bytes);
}

/* Maximum number of segments that leave at once: the initial window of RFC 6928. */
#define BURST 10

/* Sends a segment as a copy, if another follows. Returns false if none follows, or if it cannot be sent. */
apart int send_copy(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch)
        return false;
    struct plan *plan = &scratch->plan;
    u32 next = plan->piece + plan->pieces_per_segment;
    if (next >= plan->end_piece || !write_segment(packet, plan->piece))
        return false;
    packet->mark = our_mark;
    if (clone_redirect(packet, packet->ifindex, 0))
        return false;
    plan->piece = next;
    return true;
}

static long send_next_copy(u32 number, void *context) {
    (void)number;
    return end_unless(send_copy(*(struct __sk_buff **)context));
}

/* Sends pieces of a response, the last segment in the place of the packet and others as copies. Returns the verdict
 * on the packet. */
apart int send_pieces(struct __sk_buff *packet) {
    struct scratch *scratch = scratch_of(IN);
    if (!scratch)
        return TCX_DROP;
    if (scratch->segment.ip)
        turn_ethernet(packet);
    loop(BURST, send_next_copy, &packet, 0);
    struct plan *plan = &scratch->plan;
    if (plan->piece + plan->pieces_per_segment < plan->end_piece || !write_segment(packet, plan->piece))
        return TCX_DROP;
    return leave(packet);
}

/*
 * The options of a TCP segment (RFC 9293, section 3.1), one at a time. Each step is a function apart, because the
 * verifier would otherwise check all orders of the options.
 */
#pragma once
#include "cache_memory.h"

/* Maximum number of options that are read from a segment. */
#define OPTIONS 20

inlined void first_option(struct scratch *scratch) {
    scratch->option = (struct option){.next = scratch->segment.tcp + sizeof(struct tcphdr)};
}

/* Goes on to the next option. Returns false if there is none, or if its length is not valid. */
apart int next_option(struct __sk_buff *packet, u32 way) {
    struct scratch *scratch = scratch_of(way);
    u8 head[2];
    if (!scratch)
        return false;
    struct option *option = &scratch->option;
    u32 at = option->next, end = scratch->segment.payload;
    if (at + 2 > end || skb_load_bytes(packet, at, head, sizeof head) || head[0] == OPTION_END)
        return false;
    option->kind = head[0];
    option->at = at;
    option->length = head[0] == OPTION_NOP ? 1 : head[1];
    option->next = at + option->length;
    return head[0] == OPTION_NOP || (head[1] >= 2 && option->next <= end);
}

/* The input of a round of a loop over options. */
struct round {
    struct __sk_buff *packet;
    u32 way;
    u32 add;
};

/* Notes the offer in the present option of a SYN or of its answer. */
apart int take_offer(struct __sk_buff *packet, u32 way) {
    struct scratch *scratch = scratch_of(way);
    u8 value[4];
    if (!scratch)
        return 0;
    struct offer *offer = &scratch->offer;
    u32 kind = scratch->option.kind, at = scratch->option.at + 2;
    if (kind == OPTION_MSS && !skb_load_bytes(packet, at, value, 2)) {
        offer->mss = value[0] << 8 | value[1];
    } else if (kind == OPTION_SCALE && !skb_load_bytes(packet, at, value, 1)) {
        offer->scale = value[0] < 14 ? value[0] : 14;
        offer->scales = true;
    } else if (kind == OPTION_TIMESTAMPS && !skb_load_bytes(packet, at, value, 4)) {
        offer->tsval = (u32)value[0] << 24 | value[1] << 16 | value[2] << 8 | value[3];
        offer->timestamps = true;
    }
    return 0;
}

static long read_next_offer(u32 number, void *context) {
    struct round *round = context;
    (void)number;
    int more = next_option(round->packet, round->way);
    if (more)
        take_offer(round->packet, round->way);
    return end_unless(more);
}

/* Maximum segment size of a peer that offers none (RFC 9293, section 3.7.1). */
#define DEFAULT_MSS 536

/* Reads the options of a SYN or of its answer. */
inlined void read_offer(struct __sk_buff *packet, struct scratch *scratch, u32 way) {
    struct round round = {packet, way, 0};
    scratch->offer = (struct offer){.mss = DEFAULT_MSS};
    first_option(scratch);
    loop(OPTIONS, read_next_offer, &round, 0);
}

/* Adds to both edges of block number `block` of an option with selective acknowledgements. */
apart int translate_block(struct __sk_buff *packet, u32 way, u32 block, u32 add) {
    struct scratch *scratch = scratch_of(way);
    u32 old[2], new[2];
    if (!scratch || 2 + (block + 1) * sizeof old > scratch->option.length)
        return 0;
    u32 at = scratch->option.at + 2 + block * sizeof old;
    if (skb_load_bytes(packet, at, old, sizeof old))
        return 0;
    new[0] = NETWORK32(NETWORK32(old[0]) + add);
    new[1] = NETWORK32(NETWORK32(old[1]) + add);
    u32 difference = csum_diff(old, sizeof old, new, sizeof new, 0);
    /* Bytes at an odd offset count for the other halves of the checksum's words. */
    if ((at - scratch->segment.tcp) & 1)
        difference = difference >> 8 | difference << 24;
    update_checksum(packet, &scratch->segment, difference);
    skb_store_bytes(packet, at, new, sizeof new, 0);
    return 0;
}

/* Translates the blocks of an option, which holds four at most. */
apart int translate_blocks(struct __sk_buff *packet, u32 way, u32 add) {
    struct scratch *scratch = scratch_of(way);
    if (!scratch || scratch->option.kind != OPTION_SACK)
        return 0;
    translate_block(packet, way, 0, add);
    translate_block(packet, way, 1, add);
    translate_block(packet, way, 2, add);
    return translate_block(packet, way, 3, add);
}

static long translate_next_sack(u32 number, void *context) {
    struct round *round = context;
    (void)number;
    int more = next_option(round->packet, round->way);
    if (more)
        translate_blocks(round->packet, round->way, round->add);
    return end_unless(more);
}

/* Adds to the selective acknowledgements of a packet that goes on (RFC 2018). */
inlined void translate_sack(struct __sk_buff *packet, struct scratch *scratch, u32 way, u32 add) {
    struct round round = {packet, way, add};
    first_option(scratch);
    loop(OPTIONS, translate_next_sack, &round, 0);
}

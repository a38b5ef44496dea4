/*
 * A request that the kernel cache knows: its hash, its bytes, and its answer.
 *
 * A segment's payload is compared whole with requests that the server has answered. Part of kernel_cache.c alone.
 */
#pragma once
#include "tcp_reply.h"

/*
 * Applies DO to each block of a request. Written out, because the compiler does not unroll a loop with an exit, and
 * because without CAP_PERFMON an offset into a map's memory must not vary by the round.
 */
#define EACH_BLOCK(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
_Static_assert(REQUEST_WORDS == 8 * BLOCK, "EACH_BLOCK names them all");

inlined u64 hash_block(u64 hash, const u64 *words) {
    for (int word = 0; word < BLOCK; word++) {
        hash = (hash ^ words[word]) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 32;
    }
    return hash;
}

/* Copies the payload, and returns its hash. Returns 0 if the payload cannot be a known request. */
inlined u64 load_request(struct __sk_buff *packet, const struct segment *s, u64 *words, u64 seed) {
    u32 length = s->length;
    if (length < 16 || length > REQUEST)
        return 0;
    __builtin_memset(words, 0, REQUEST);
    if (skb_load_bytes(packet, s->payload, words, length))
        return 0;
    u64 hash = seed ^ length;
#define HASH(block)                                                                                                    \
    if (length > block * BLOCK * 8)                                                                                    \
        hash = hash_block(hash, words + block * BLOCK);
    EACH_BLOCK(HASH)
    return hash;
}

inlined u64 compare_block(const u64 *a, const u64 *b) {
    u64 differences = 0;
    for (int word = 0; word < BLOCK; word++)
        differences |= a[word] ^ b[word];
    return differences;
}

/* Returns true if a place has the request of the segment, and notes its object. If the server changes the place
 * during the comparison, the version differs before and after. */
apart int is_here(u32 place, u64 hash) {
    struct scratch *scratch = scratch_of(IN);
    struct request *here = map_lookup(&requests, &place);
    if (!scratch || !here)
        return false;
    u64 version = READ_ONCE(here->version), differences = 0;
    u32 length = scratch->segment.length;
    if (version == 0 || version & 1)
        return false;
    __sync_fetch_and_add(&scratch->fence, 1);
    if (here->hash != hash || here->length != length)
        return false;
#define COMPARE(block)                                                                                                 \
    if (length > block * BLOCK * 8)                                                                                    \
        differences |= compare_block(here->words + block * BLOCK, scratch->words + block * BLOCK);
    EACH_BLOCK(COMPARE)
    scratch->answer.object = here->object;
    scratch->answer.generation = here->generation;
    __sync_fetch_and_add(&scratch->fence, 1);
    return differences == 0 && READ_ONCE(here->version) == version;
}

/* Finds the object that answers the segment, if the object is valid now. */
apart int find_answer(struct __sk_buff *packet, u64 now) {
    struct scratch *scratch = scratch_of(IN);
    struct control *set = settings();
    if (!scratch || !set || !READ_ONCE(set->enabled))
        return 0;
    struct segment *s = &scratch->segment;
    struct answer *answer = &scratch->answer;
    if (!s->plain || s->flags & ~(TCP_ACK | TCP_PSH))
        return 0;
    u64 hash = load_request(packet, s, scratch->words, set->seed);
    if (hash == 0)
        return 0;
    for (u32 way = 0; way < WAYS; way++) {
        if (!is_here((hash + way) & request_mask, hash))
            continue;
        u32 index = answer->object;
        struct object *object = map_lookup(&objects, &index);
        if (!object || READ_ONCE(object->generation) != answer->generation ||
            READ_ONCE(object->valid_until_ns) <= now)
            return 0;
        answer->length = object->length;
        answer->known = answer->length > 0;
        return 0;
    }
    return 0;
}

/* The date that responses carry now. */
inlined void copy_date(struct date *to) {
    struct control *set = settings();
    if (set)
        *to = set->dates[READ_ONCE(set->date) & 1];
}

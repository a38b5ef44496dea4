/*
 * One count, which a program raises and its loader reads.
 */
#pragma once
#include "kernel.h"

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, u64);
} state SEC(".maps");

inlined void count_one(void) {
    u32 only = 0;
    u64 *count = map_lookup(&state, &only);
    if (count)
        __sync_fetch_and_add(count, 1);
}

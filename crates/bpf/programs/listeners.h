/*
 * The addresses that the admission on devices decides on. A packet there has no socket yet, so that the program compares
 * its destination.
 */
#pragma once
#include "admission.h"

/* Maximum number of addresses with their ports. */
#define LISTENERS 1024

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, LISTENERS);
    TYPE(key, struct listener);
    TYPE(value, u32);
} listeners SEC(".maps");

inlined bool is_ours(const struct syn *syn) {
    return map_lookup(&listeners, &syn->to);
}

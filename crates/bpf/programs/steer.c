/*
 * Choice of the worker that gets a new connection, at its SYN (SMPED, "scheduler"; steps 1 to 6).
 *
 *   SYN ──> TCP: the SO_REUSEPORT group of the address ──> [this program] ──> worker i's listener
 *                                                             ^    │
 *   a listener closes with connections in its queue ──────────┘    │ + 1
 *                                                                  v
 *   workers[i]: alive, connections, weight, capacity <── plain stores ── worker i, or its parent
 *
 * The paper ranks by (T_i / sum T) x (C_i / sum C). The sums are the same for all, so the rank is
 * weight x connections with T_i as the weight. Ties go to fewer connections, then to chance; so a worker
 * without connections comes before all others, which is step 1.
 *
 * The program adds a connection to its worker's count, so that the arrivals between two reports of a worker
 * do not all go to the same one. The worker's next report replaces the count.
 *
 * Deviations: a worker that has to be started cannot get this connection; `crowded` tells the parent that one
 * is wanted. When all are full the connection waits in the accept queue of the first by the schedule.
 */
#include "kernel.h"

/* Maximum number of workers, and of addresses that they listen at. */
#define WORKERS 256
#define GROUPS 16

enum schedule {
    /* The least weight x connections: the paper's. */
    LEAST_PRODUCT,
    LEAST_CONNECTIONS,
    /* Each in turn. */
    ROUND_ROBIN,
    /* A worker at random. */
    RANDOM,
};

struct worker {
    /* 0 if it gets no connections. Cleared before its listeners are closed. */
    u64 alive;
    u64 connections;
    u64 weight;
    /* The connections that it has room for. */
    u64 capacity;
    /* Connections ever given to it. */
    u64 assigned;
    u64 rest_of_line[3];
};

struct control {
    /* Slots of `workers` in use, and addresses in use. */
    u64 workers;
    u64 groups;
    u64 schedule;
    /* The slot that is next in turn. */
    u64 turn;
    /* Connections whose first worker by the schedule had no room. */
    u64 crowded;
    /* Connections among these for which no worker had room. */
    u64 full;
    /* Connections that the kernel's hash placed, because no worker was alive or its listener was missing. */
    u64 unsteered;
    /* Connections moved from a listener that was closed. */
    u64 migrated;
};

struct state {
    struct control control;
    struct worker workers[WORKERS];
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct state);
} state SEC(".maps");

/* Worker i's listener at address g is in place g x WORKERS + i. */
struct {
    NUMBER(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
    NUMBER(max_entries, WORKERS * GROUPS);
    TYPE(key, u32);
    TYPE(value, u32);
} listeners SEC(".maps");

/* The first worker by the schedule, of those seen so far. */
struct first {
    u64 rank;
    u64 connections;
    u32 slot;
    /* Number of workers equal to it, itself included; 0 before any worker has been seen. */
    u32 equals;
};

/* A search through the workers. */
struct search {
    struct first any;
    /* Of the workers that have room. */
    struct first roomy;
};

/* In a map, because the verifier follows values on the stack through all rounds of a loop, which are too many. */
struct {
    NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct search);
} searches SEC(".maps");

/* Considers a worker. Each of k equal workers becomes the first with a probability of 1 in k. */
inlined void consider(struct first *first, u32 slot, u64 rank, u64 connections) {
    bool equal = first->equals && rank == first->rank && connections == first->connections;
    bool before = !first->equals || rank < first->rank ||
                  (rank == first->rank && connections < first->connections);
    if (!before && !equal)
        return;
    first->equals = equal ? first->equals + 1 : 1;
    if (equal && get_prandom_u32() % first->equals != 0)
        return;
    first->rank = rank;
    first->connections = connections;
    first->slot = slot;
}

static long look_at(u32 slot, void *nothing) {
    (void)nothing;
    u32 first = 0;
    struct state *shared = map_lookup(&state, &first);
    struct search *search = map_lookup(&searches, &first);
    if (!shared || !search || slot >= WORKERS)
        return 1;
    struct worker *worker = &shared->workers[slot];
    if (!READ_ONCE(worker->alive))
        return 0;
    u64 schedule = shared->control.schedule, turn = READ_ONCE(shared->control.turn);
    u64 connections = READ_ONCE(worker->connections);
    u64 rank = 0, tie = 0;
    if (schedule == LEAST_PRODUCT) {
        rank = READ_ONCE(worker->weight) * connections;
        tie = connections;
    } else if (schedule == LEAST_CONNECTIONS) {
        rank = connections;
    } else if (schedule == ROUND_ROBIN) {
        rank = slot >= turn ? slot - turn : slot + WORKERS - turn;
    }
    consider(&search->any, slot, rank, tie);
    if (connections < READ_ONCE(worker->capacity))
        consider(&search->roomy, slot, rank, tie);
    return 0;
}

inlined void count(u64 *counter) {
    __sync_fetch_and_add(counter, 1);
}

/* Returns the first worker by the schedule that has room, or else the first. Returns WORKERS if none is alive. */
inlined u32 choose(struct state *state, struct search *search) {
    search->any.equals = search->roomy.equals = 0;
    loop(READ_ONCE(state->control.workers), look_at, NULL, 0);
    struct first any = search->any, roomy = search->roomy;
    if (!any.equals)
        return WORKERS;
    if (roomy.equals && roomy.rank == any.rank && roomy.connections == any.connections)
        return roomy.slot;
    count(&state->control.crowded);
    if (roomy.equals)
        return roomy.slot;
    count(&state->control.full);
    return any.slot;
}

SEC("sk_reuseport/migrate")
int steer(struct sk_reuseport_md *connection) {
    u32 first = 0;
    struct state *shared = map_lookup(&state, &first);
    struct search *search = map_lookup(&searches, &first);
    if (!shared || !search)
        return SK_PASS;
    u32 slot = choose(shared, search);
    u64 groups = READ_ONCE(shared->control.groups);
    if (slot < WORKERS) {
        for (u32 group = 0; group < GROUPS && group < groups; group++) {
            u32 place = group * WORKERS + slot;
            /* Fails for a listener at another address than the connection's. */
            if (sk_select_reuseport(connection, &listeners, &place, 0) != 0)
                continue;
            struct worker *worker = &shared->workers[slot];
            count(&worker->connections);
            count(&worker->assigned);
            WRITE_ONCE(shared->control.turn, slot + 1);
            if (connection->migrating_sk)
                count(&shared->control.migrated);
            return SK_PASS;
        }
    }
    count(&shared->control.unsteered);
    return SK_PASS;
}

LICENSE;

/*
 * Counts the connections that the kernel drops at their final ACK, for want of room in the accept queue.
 *
 *   SYN ──> SYN queue ──> SYN-ACK ──> final ACK ──> accept queue
 *                                         │ it is full
 *                                         v
 *                            trace point kfree_skb, with the reason ──> [this program] + 1
 *
 * The kernel's counter ListenOverflows has these connections and the SYNs that found the accept queue full. The trace
 * point sees every network namespace of the machine. The reason's number differs between kernels; the loader puts it in.
 */
#include "count.h"

/* The kernel's name; its value here is not used. */
enum skb_drop_reason {
    SKB_DROP_REASON_TCP_LISTEN_OVERFLOW = 1,
};

/* Arguments of the trace point, in order. */
struct dropped {
    u64 packet;
    u64 place;
    u64 reason;
};

SEC("raw_tp/kfree_skb")
int final_ack(const struct dropped *dropped) {
    enum { VALUE = 1 };
    u64 wanted = __builtin_preserve_enum_value(
        *(enum skb_drop_reason *)SKB_DROP_REASON_TCP_LISTEN_OVERFLOW, VALUE);

    if ((u32)dropped->reason == (u32)wanted)
        count_one();
    return 0;
}

LICENSE;

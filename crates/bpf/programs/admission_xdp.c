/*
 * Admission of SYNs as soon as a device has received them (XDP).
 *
 *   device ──> [this program] ──> socket buffer ──> traffic control ──> IP ──> TCP ──> SYN queue
 *                  │
 *                  └──> dropped
 *
 * A driver with XDP runs it before the kernel has made a socket buffer of the packet. For other devices the
 * kernel runs it right after (generic XDP). The device must have an Ethernet header.
 *
 * Passes packets with a VLAN tag: those are the VLAN device's.
 */
#include "listeners.h"

inlined bool load(void *packet, u32 offset, void *to, u32 length) {
    return xdp_load_bytes(packet, sizeof(struct ethhdr) + offset, to, length) == 0;
}

SEC("xdp")
int admission_xdp(struct xdp_md *packet) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct ethhdr *ethernet = data;
    if ((void *)(ethernet + 1) > end)
        return XDP_PASS;
    return may_pass(packet, ethernet->h_proto) ? XDP_PASS : XDP_DROP;
}

LICENSE;

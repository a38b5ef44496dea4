/*
 * Admission of SYNs in traffic control, at the ingress of a device (tcx, Linux 6.6).
 *
 *   device ──> tcx ingress: [this program] ──> others' programs ──> IP ──> TCP ──> SYN queue
 *                               │
 *                               └──> dropped
 *
 * Passes packets to other hosts, and packets with a VLAN tag: those are the VLAN device's, and are decided on
 * there. Finds the headers from the network header on, so that it works on devices without a link layer as
 * well (tun, wireguard).
 */
#include "listeners.h"

inlined bool load(void *packet, u32 offset, void *to, u32 length) {
    return skb_load_bytes_relative(packet, offset, to, length, BPF_HDR_START_NET) == 0;
}

SEC("classifier")
int admission_tc(struct __sk_buff *packet) {
    if (packet->pkt_type != PACKET_HOST || packet->vlan_present)
        return TCX_NEXT;
    return may_pass(packet, packet->protocol) ? TCX_NEXT : TCX_DROP;
}

LICENSE;

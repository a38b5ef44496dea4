/*
 * Counts the SYNs that arrive at a device, whatever becomes of them.
 *
 *   device ──> tcx ingress: [this program] + 1 ──> IP ──> TCP ──> SYN queue, or dropped
 *
 * Counts those to this host alone, whole packets with no IPv6 extension header.
 */
#include "count.h"

inlined bool load(void *packet, u32 offset, void *to, u32 length) {
    return skb_load_bytes_relative(packet, offset, to, length, BPF_HDR_START_NET) == 0;
}

/* Returns the offset of the TCP header from the network header; 0 if there is none. */
inlined u32 tcp_offset(struct __sk_buff *packet) {
    if (packet->protocol == NETWORK16(ETH_P_IP)) {
        struct iphdr ip;
        if (load(packet, 0, &ip, sizeof ip) && ip.protocol == IPPROTO_TCP && !(ip.frag_off & IP_FRAGMENT))
            return (ip.version_ihl & 15) * 4;
    } else if (packet->protocol == NETWORK16(ETH_P_IPV6)) {
        struct ipv6hdr ip;
        if (load(packet, 0, &ip, sizeof ip) && ip.nexthdr == IPPROTO_TCP)
            return sizeof ip;
    }
    return 0;
}

SEC("classifier")
int syns(struct __sk_buff *packet) {
    u32 offset = packet->pkt_type == PACKET_HOST ? tcp_offset(packet) : 0;
    struct tcphdr tcp;

    if (offset && load(packet, offset, &tcp, sizeof tcp) && (tcp.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
        count_one();
    return TCX_NEXT;
}

LICENSE;

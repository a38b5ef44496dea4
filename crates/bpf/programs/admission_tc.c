/*
 * Admission of SYNs in traffic control, at the ingress of a device (tcx, Linux 6.6).
 *
 *   device ──> tcx ingress: [this program] ──> others' programs ──> IP ──> TCP ──> SYN queue
 *                               │
 *                               ├──> dropped
 *   device <── reset <──────────┘ or, with `resets`: the SYN itself, turned around
 *
 * Passes packets to other hosts, and packets with a VLAN tag: those are the VLAN device's, and are decided on
 * there. Finds the headers from the network header on, so that it works on devices without a link layer as
 * well (tun, wireguard).
 */
#include "listeners.h"
#include "tcp_turn.h"

/* Set by the loader: 1 to answer refused SYNs with a reset. */
const volatile u32 resets = 0;

inlined bool load(void *packet, u32 offset, void *to, u32 length) {
    return skb_load_bytes_relative(packet, offset, to, length, BPF_HDR_START_NET) == 0;
}

/* Returns the bytes of the device's link header: those of Ethernet, or none. */
inlined u32 link_header(struct __sk_buff *packet) {
    u32 found[4] = {}, wanted[4] = {1};
    skb_load_bytes(packet, sizeof(struct ethhdr), found, sizeof found);
    skb_load_bytes_relative(packet, 0, wanted, sizeof wanted, BPF_HDR_START_NET);
    bool same = found[0] == wanted[0] && found[1] == wanted[1] && found[2] == wanted[2] && found[3] == wanted[3];
    return same ? sizeof(struct ethhdr) : 0;
}

/*
 * Turns a SYN around, as the reset that a closed port sends (RFC 9293, section 3.10.7.1). Drops it if it has IP options.
 */
inlined int reset(struct __sk_buff *packet) {
    struct segment s = {};
    u32 link = link_header(packet);
    if (!parse(packet, link, TO_SERVER, &s) || skb_change_tail(packet, s.tcp + sizeof(struct tcphdr), 0))
        return TCX_DROP;
    if (link)
        turn_ethernet(packet);
    write_ip(packet, &s, sizeof(struct tcphdr));
    struct tcphdr tcp = {
        .source = s.key.server_port,
        .dest = s.key.client_port,
        .ack_seq = NETWORK32(s.seq + 1),
        .data_offset = sizeof tcp / 4 << 4,
        .flags = TCP_RST | TCP_ACK,
    };
    tcp.check = ~fold(pseudo_header(&s, sizeof tcp) + fold(csum_diff(NULL, 0, &tcp, sizeof tcp, 0)));
    if (skb_store_bytes(packet, s.tcp, &tcp, sizeof tcp, BPF_F_RECOMPUTE_CSUM))
        return TCX_DROP;
    return redirect(packet->ifindex, 0);
}

SEC("classifier")
int admission_tc(struct __sk_buff *packet) {
    /* A packet for a VLAN meets the program on the VLAN's device. One of VLAN 0 has a priority alone. */
    if (packet->pkt_type != PACKET_HOST || (packet->vlan_present && packet->vlan_tci & 0x0fff))
        return TCX_NEXT;
    if (may_pass(packet, packet->protocol))
        return TCX_NEXT;
    return resets ? reset(packet) : TCX_DROP;
}

LICENSE;

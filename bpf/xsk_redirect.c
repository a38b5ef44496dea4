/*
 * TCP packets to the addresses of a load generator, past the kernel into its AF_XDP sockets.
 *
 *   device ──> [this program] ── TCP to `network` ──> the AF_XDP socket of the receive queue
 *                  │
 *                  └── everything else, ARP and neighbour discovery among it ──> the kernel
 *
 * A packet whose queue has no socket goes to the kernel as well, as do fragments, packets with a VLAN tag and
 * IPv6 with extension headers.
 */
#include "kernel.h"

/* Most receive queues. */
#define QUEUES 64

struct network {
    struct address address;
    struct address mask;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct network);
} network SEC(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_XSKMAP);
    NUMBER(max_entries, QUEUES);
    TYPE(key, u32);
    TYPE(value, u32);
} sockets SEC(".maps");

inlined bool contains(const struct network *network, const struct address *address) {
    u32 differences = 0;
    for (int word = 0; word < 4; word++)
        differences |= (address->words[word] ^ network->address.words[word]) & network->mask.words[word];
    return differences == 0;
}

/* The destination of a TCP packet; false where it is none, or a fragment of one. */
inlined bool tcp_destination(struct ethhdr *ethernet, void *end, struct address *to) {
    struct iphdr *ip4 = (void *)(ethernet + 1);
    struct ipv6hdr *ip6 = (void *)(ethernet + 1);
    if (ethernet->h_proto == NETWORK16(ETH_P_IP) && (void *)(ip4 + 1) <= end) {
        *to = (struct address){{0, 0, MAPPED, ip4->daddr}};
        return ip4->protocol == IPPROTO_TCP && !(ip4->frag_off & IP_FRAGMENT);
    }
    if (ethernet->h_proto == NETWORK16(ETH_P_IPV6) && (void *)(ip6 + 1) <= end) {
        *to = ip6->daddr;
        return ip6->nexthdr == IPPROTO_TCP;
    }
    return false;
}

SEC("xdp")
int xsk_redirect(struct xdp_md *packet) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct ethhdr *ethernet = data;
    struct address to;
    u32 first = 0;
    if ((void *)(ethernet + 1) > end || !tcp_destination(ethernet, end, &to))
        return XDP_PASS;
    struct network *ours = map_lookup(&network, &first);
    if (!ours || !contains(ours, &to))
        return XDP_PASS;
    return redirect_map(&sockets, packet->rx_queue_index, XDP_PASS);
}

LICENSE;

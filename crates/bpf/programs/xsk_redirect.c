/*
 * Redirects packets to the addresses of a load generator past the kernel, into its AF_XDP sockets.
 *
 *   device ──> [this program] ── to `network`, or asking for one of its hardware addresses ──> the AF_XDP socket
 *                  │                                                                           of the receive queue
 *                  └── everything else ──> the kernel
 *
 * The machine owns none of these addresses, so every packet to them is the generator's: TCP, but also ICMP errors and
 * fragments, which it counts. A packet whose queue has no socket goes to the kernel, as do packets with a VLAN tag.
 */
#include "kernel.h"

/* Maximum number of receive queues. */
#define QUEUES 64

enum { ETH_P_ARP = 0x0806, IPPROTO_ICMPV6 = 58, ND_SOLICITATION = 135 };

/* A question or an answer of ARP about IPv4 over Ethernet (RFC 826). */
struct arphdr {
    u16 hardware_type;
    u16 protocol_type;
    u8 hardware_length;
    u8 protocol_length;
    u16 operation;
    u8 sender[6];
    u32 sender_address;
    u8 target[6];
    u32 target_address;
} __attribute__((packed));

/* The start of a neighbour solicitation (RFC 4861, section 4.3). */
struct nd_solicitation {
    u8 type;
    u8 code;
    u16 checksum;
    u32 zero;
    struct address target;
};

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

/* Finds the address that an IPv6 packet concerns: the target of a neighbour solicitation, or else its destination. */
inlined bool subject_of_ipv6(struct ipv6hdr *ip, void *end, struct address *about) {
    struct nd_solicitation *question = (void *)(ip + 1);
    if ((void *)(ip + 1) > end)
        return false;
    *about = ip->daddr;
    if (ip->nexthdr != IPPROTO_ICMPV6)
        return true;
    if ((void *)(question + 1) > end)
        return false;
    if (question->type == ND_SOLICITATION)
        *about = question->target;
    return true;
}

/* Finds the address that a frame is sent to, or whose hardware address it is about. Returns false if there is none. */
inlined bool subject(struct ethhdr *ethernet, void *end, struct address *about) {
    struct iphdr *ip4 = (void *)(ethernet + 1);
    struct arphdr *arp = (void *)(ethernet + 1);
    if (ethernet->h_proto == NETWORK16(ETH_P_IP) && (void *)(ip4 + 1) <= end) {
        *about = (struct address){{0, 0, MAPPED, ip4->daddr}};
        return true;
    }
    if (ethernet->h_proto == NETWORK16(ETH_P_ARP) && (void *)(arp + 1) <= end) {
        *about = (struct address){{0, 0, MAPPED, arp->target_address}};
        return true;
    }
    return ethernet->h_proto == NETWORK16(ETH_P_IPV6) && subject_of_ipv6((void *)(ethernet + 1), end, about);
}

SEC("xdp")
int xsk_redirect(struct xdp_md *packet) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct ethhdr *ethernet = data;
    struct address about;
    u32 first = 0;
    if ((void *)(ethernet + 1) > end || !subject(ethernet, end, &about))
        return XDP_PASS;
    struct network *ours = map_lookup(&network, &first);
    if (!ours || !contains(ours, &about))
        return XDP_PASS;
    return redirect_map(&sockets, packet->rx_queue_index, XDP_PASS);
}

LICENSE;

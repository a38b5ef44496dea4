/*
 * A TCP segment in traffic control: finds its parts, checks its checksum, and translates its sequence
 * numbers.
 *
 * Works on IPv4 and IPv6, on devices with an Ethernet header and without a link layer. Does not interpret
 * segments. Fragments, IPv4 with options and IPv6 with extension headers are not parsed.
 */
#pragma once
#include "kernel.h"

/* The two ends of a connection, the same for both directions; ports in network order. */
struct tuple {
    struct address client;
    struct address server;
    u16 client_port;
    u16 server_port;
};

enum direction { TO_SERVER, FROM_SERVER };

struct segment {
    struct tuple key;
    /* Offsets in the packet of the IP header, the TCP header and the payload. */
    u32 ip, tcp, payload;
    /* Bytes of payload. */
    u32 length;
    u32 seq, ack;
    /* The value of the timestamps option, if `timestamps`: the option comes first, as on every segment of Linux. */
    u32 tsval;
    u16 window;
    u8 flags;
    bool ipv6;
    bool timestamps;
    /* No options but those timestamps. */
    bool plain;
    /* Selective acknowledgements follow. */
    bool sack;
    /* IPv6, or IPv4 that routers must not fragment. */
    bool whole;
    /* Its checksum has been found right. */
    bool sound;
};

enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_MSS = 2, OPTION_SCALE = 3, OPTION_SACK = 5, OPTION_TIMESTAMPS = 8 };

/* The first four bytes of two paddings and an option of this kind and length. */
#define PADDED(kind, length) NETWORK32(0x01010000 | (kind) << 8 | (length))
#define PADDED_MASK NETWORK32(0xffffff00)

inlined void set_ends(struct segment *s, enum direction direction, const struct address *from,
                      const struct address *to) {
    s->key.client = direction == TO_SERVER ? *from : *to;
    s->key.server = direction == TO_SERVER ? *to : *from;
}

/* Reads the IP header. Returns the bytes of the TCP segment; 0 if there is none. */
inlined u32 parse_ip(struct __sk_buff *packet, enum direction direction, struct segment *s) {
    if (packet->protocol == NETWORK16(ETH_P_IP)) {
        struct iphdr ip;
        if (skb_load_bytes(packet, s->ip, &ip, sizeof ip))
            return 0;
        u32 total = NETWORK16(ip.tot_len);
        /* A packet of many segments may be too long for the field. */
        total = total ? total : packet->len - s->ip;
        if (ip.version_ihl != 0x45 || ip.protocol != IPPROTO_TCP || ip.frag_off & IP_FRAGMENT ||
            total < sizeof ip)
            return 0;
        struct address from = {{0, 0, MAPPED, ip.saddr}}, to = {{0, 0, MAPPED, ip.daddr}};
        set_ends(s, direction, &from, &to);
        s->tcp = s->ip + sizeof ip;
        s->ipv6 = false;
        s->whole = ip.frag_off & IP_DF;
        return total - sizeof ip;
    }
    if (packet->protocol == NETWORK16(ETH_P_IPV6)) {
        struct ipv6hdr ip;
        if (skb_load_bytes(packet, s->ip, &ip, sizeof ip) || ip.nexthdr != IPPROTO_TCP)
            return 0;
        set_ends(s, direction, &ip.saddr, &ip.daddr);
        s->tcp = s->ip + sizeof ip;
        s->ipv6 = s->whole = true;
        u32 length = NETWORK16(ip.payload_len);
        return length ? length : packet->len - s->ip - sizeof ip;
    }
    return 0;
}

/* Parses a packet whose link layer has `link_header` bytes. Returns false if it is not a whole TCP segment. */
inlined bool parse(struct __sk_buff *packet, u32 link_header, enum direction direction, struct segment *s) {
    struct tcphdr tcp;
    u32 options[4] = {};
    s->ip = link_header;
    u32 bytes = parse_ip(packet, direction, s);
    if (bytes < sizeof tcp || skb_load_bytes(packet, s->tcp, &tcp, sizeof tcp))
        return false;
    u32 header = (tcp.data_offset >> 4) * 4;
    if (header < sizeof tcp || bytes < header)
        return false;
    s->key.client_port = direction == TO_SERVER ? tcp.source : tcp.dest;
    s->key.server_port = direction == TO_SERVER ? tcp.dest : tcp.source;
    s->payload = s->tcp + header;
    s->length = bytes - header;
    s->seq = NETWORK32(tcp.seq);
    s->ack = NETWORK32(tcp.ack_seq);
    s->window = NETWORK16(tcp.window);
    s->flags = tcp.flags;
    s->tsval = 0;
    s->timestamps = s->sack = s->sound = false;
    if (header >= sizeof tcp + sizeof options)
        skb_load_bytes(packet, s->tcp + sizeof tcp, options, sizeof options);
    else if (header == sizeof tcp + 12)
        skb_load_bytes(packet, s->tcp + sizeof tcp, options, 12);
    if (options[0] == PADDED(OPTION_TIMESTAMPS, 10)) {
        s->timestamps = true;
        s->tsval = NETWORK32(options[1]);
    }
    u32 next = s->timestamps ? options[3] : options[0];
    s->sack = (next & PADDED_MASK) == (PADDED(OPTION_SACK, 0) & PADDED_MASK);
    s->plain = header == (s->timestamps ? sizeof tcp + 12 : sizeof tcp);
    return true;
}

inlined u32 checksum_at(const struct segment *s) {
    return s->tcp + __builtin_offsetof(struct tcphdr, check);
}

/* Updates a packet's checksum by a change at an even offset. Does nothing if the device adds the checksum later. */
inlined void update_checksum(struct __sk_buff *packet, const struct segment *s, u32 difference) {
    l4_csum_replace(packet, checksum_at(s), 0, difference, 0);
}

/* Adds to the sequence number and to the acknowledgement of a packet that goes on. */
inlined void translate(struct __sk_buff *packet, const struct segment *s, u32 seq_add, u32 ack_add) {
    u32 old[2] = {NETWORK32(s->seq), NETWORK32(s->ack)};
    u32 new[2] = {NETWORK32(s->seq + seq_add), s->flags & TCP_ACK ? NETWORK32(s->ack + ack_add) : old[1]};
    update_checksum(packet, s, csum_diff(old, sizeof old, new, sizeof new, 0));
    skb_store_bytes(packet, s->tcp + __builtin_offsetof(struct tcphdr, seq), new, sizeof new, 0);
}

/*
 * Returns true if the packet has no checksum yet. Such a packet comes from this machine. A device adds the checksum,
 * or nobody does if the packet never leaves. Only the kernel knows, but it leaves the field of such a packet alone
 * when asked to change it.
 */
inlined bool lacks_checksum(struct __sk_buff *packet, const struct segment *s) {
    u16 first, second;
    if (skb_load_bytes(packet, checksum_at(s), &first, sizeof first))
        return false;
    l4_csum_replace(packet, checksum_at(s), 0, 1, sizeof first);
    if (skb_load_bytes(packet, checksum_at(s), &second, sizeof second) || first == second)
        return true;
    skb_store_bytes(packet, checksum_at(s), &first, sizeof first, 0);
    return false;
}

/* One's complement sum in 16 bits (RFC 1071). */
inlined u32 fold(u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* The sum over the pseudo-header of a segment of `bytes`, header included; the same for both directions. */
inlined u64 pseudo_header(const struct segment *s, u32 bytes) {
    const u32 *a = s->key.client.words, *b = s->key.server.words;
    u64 sum = (u64)a[3] + b[3] + NETWORK32(bytes) + NETWORK32(IPPROTO_TCP);
    if (s->ipv6)
        sum += (u64)a[0] + a[1] + a[2] + b[0] + b[1] + b[2];
    return sum;
}

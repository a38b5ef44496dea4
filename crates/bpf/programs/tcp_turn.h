/*
 * Turns a packet around: its Ethernet addresses, and its IP header from the server to the client.
 */
#pragma once
#include "tcp_segment.h"

/* Swaps the Ethernet addresses. */
inlined void turn_ethernet(struct __sk_buff *packet) {
    u8 addresses[12], turned[12];
    if (skb_load_bytes(packet, 0, addresses, sizeof addresses))
        return;
    __builtin_memcpy(turned, addresses + 6, 6);
    __builtin_memcpy(turned + 6, addresses, 6);
    skb_store_bytes(packet, 0, turned, sizeof turned, 0);
}

/* Writes an IP header to the client, before this many bytes of TCP. */
inlined void write_ip(struct __sk_buff *packet, const struct segment *s, u32 tcp_bytes) {
    if (s->ipv6) {
        struct ipv6hdr ip = {
            .version_class_flow = NETWORK32(6 << 28),
            .payload_len = NETWORK16(tcp_bytes),
            .nexthdr = IPPROTO_TCP,
            .hop_limit = 64,
            .saddr = s->key.server,
            .daddr = s->key.client,
        };
        skb_store_bytes(packet, s->ip, &ip, sizeof ip, 0);
        return;
    }
    struct iphdr ip = {
        .version_ihl = 0x45,
        .tot_len = NETWORK16(sizeof ip + tcp_bytes),
        .frag_off = IP_DF,
        .ttl = 64,
        .protocol = IPPROTO_TCP,
        .saddr = s->key.server.words[3],
        .daddr = s->key.client.words[3],
    };
    ip.check = ~fold(csum_diff(NULL, 0, &ip, sizeof ip, 0));
    skb_store_bytes(packet, s->ip, &ip, sizeof ip, 0);
}

//! Replays the corpora of the fuzz targets through the functions that the targets call, and tries random
//! inputs.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

use proptest::prelude::*;
use support::proxy_header_property;

#[test]
fn proxy_header() {
    corpus::replay("proxy_header", proxy_header_property);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn headers_with_any_content(
        size in any::<u8>(),
        command in prop::sample::select(vec![0x20_u8, 0x21, 0x22, 0x31]),
        family in prop::sample::select(vec![0_u8, 0x11, 0x12, 0x21, 0x31, 0x99]),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        rest in prop::collection::vec(any::<u8>(), 0..20),
        change in prop::option::of((0_usize..16, any::<u8>())),
    ) {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, family], &length, &payload, &rest].concat();
        if let Some((at, byte)) = change {
            bytes[at] = byte;
        }
        proxy_header_property(&[&[size][..], &bytes].concat());
    }
}

//! The bytes of a client, for tests.

/// Returns the bytes of an HTTP/2 client that asks for these paths, each on a stream of its own, and has windows for all of their content.
pub fn http2_requests(paths: &[&str]) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let (initial_window, window) = ([0, 4, 0x10, 0, 0, 0], [0x10, 0, 0, 0]);
    let mut bytes =
        [&http2::PREFACE[..], &frame(4, 0, 0, &initial_window), &frame(8, 0, 0, &window)].concat();
    for (number, path) in paths.iter().enumerate() {
        // GET and http are in HPACK's static table; the path and the authority are literals.
        let path = [&[0x82, 0x86, 0x04, path.len() as u8], path.as_bytes()].concat();
        let head = [&path[..], b"\x01\x04test"].concat();
        bytes.extend(frame(1, 5, 2 * number as u8 + 1, &head));
    }
    bytes
}

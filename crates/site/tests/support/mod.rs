//! The property of a request's path, which the tests and the fuzz target share, by path.

use site::normalise;

/// Whatever path a client asks for, it is refused or it names something below the root, and its canonical spelling means
/// the same thing.
///
/// # Panics
/// `normalise` breaks the property.
pub fn site_path_property(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let shown = normalise(raw, true);
    if let Ok(path) = &shown {
        let mut segments = path.relative.split(|&byte| byte == b'/');
        let is_root = path.relative.is_empty();
        let leaves = segments.any(|segment| matches!(segment, b"" | b"." | b".."));
        assert!(is_root || !leaves, "{raw:?} leads to {path:?}");
        assert!(!path.relative.contains(&0) && !path.relative.starts_with(b"/"), "{raw:?} leads to {path:?}");
        let written = &path.canonical;
        assert!(written.starts_with('/') && !written.starts_with("//"), "{raw:?} leads to {path:?}");
        assert!(written.bytes().all(|byte| byte.is_ascii_graphic()), "{raw:?} leads to {path:?}");
        assert_eq!(normalise(written, true).as_ref(), Ok(path), "{raw:?}");
    }
    match (normalise(raw, false), shown) {
        (Ok(path), Ok(shown)) => {
            let mut segments = path.relative.split(|&byte| byte == b'/');
            let first = segments.next().unwrap_or_default();
            let is_hidden = |segment: &[u8]| segment.starts_with(b".");
            let hidden = (is_hidden(first) && first != b".well-known") || segments.any(is_hidden);
            assert!(path == shown && !hidden, "{raw:?} leads to {path:?}");
        }
        (Err(_), _) => {}
        (Ok(path), Err(error)) => {
            panic!("{raw:?} leads to {path:?} only while dot-files are hidden: {error}")
        }
    }
}

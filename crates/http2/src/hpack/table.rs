//! The static and the dynamic table (RFC 7541, 2.3 and appendix A).

use std::collections::VecDeque;

use crate::limits::TABLE_BYTES;

/// Bytes that an entry counts for beside its name and value (RFC 7541, 4.1).
const ENTRY_BYTES: usize = 32;

/// The static table; the entry at place 0 has index 1.
#[rustfmt::skip]
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// The client's fields, newest first.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { entries: VecDeque::new(), size: 0, most: TABLE_BYTES }
    }
}

impl Table {
    /// The name and value with this index.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        match STATIC.get(index.checked_sub(1)?) {
            Some((name, value)) => Some((name.as_bytes(), value.as_bytes())),
            None => self.entries.get(index - 1 - STATIC.len()).map(|entry| entry.text.split_at(entry.name)),
        }
    }

    /// Adds a field: a text whose first `name` bytes are the name. A field larger than the table empties it.
    pub(super) fn insert(&mut self, text: &[u8], name: usize) {
        let size = text.len() + ENTRY_BYTES;
        self.shrink(self.most.saturating_sub(size));
        if size <= self.most {
            self.size += size;
            self.entries.push_front(Entry { text: text.into(), name });
        }
    }

    /// Changes the maximum size. Returns false if it exceeds the size that we allow.
    pub(super) fn resize(&mut self, most: usize) -> bool {
        if most > TABLE_BYTES {
            return false;
        }
        self.most = most;
        self.shrink(most);
        true
    }

    fn shrink(&mut self, most: usize) {
        while self.size > most {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= oldest.text.len() + ENTRY_BYTES;
        }
    }
}

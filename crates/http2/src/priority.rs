//! Priorities of responses (RFC 9218).
//!
//! Deviation: of a dictionary's syntax (RFC 8941) only the two known parameters are read, and the rest is skipped.

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priority {
    /// 0, the most urgent, to 7.
    pub(crate) urgency: u8,
    /// The client can use parts of the response.
    pub(crate) incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Reads the value of a `priority` field or of a PRIORITY_UPDATE frame. Unknown parts have no effect.
    pub(crate) fn parse(value: &[u8]) -> Priority {
        Priority::default().with(value)
    }

    /// Reads another line of a field. A later parameter replaces an earlier one.
    pub(crate) fn with(mut self, value: &[u8]) -> Priority {
        for item in value.split(|byte| *byte == b',') {
            match item.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.incremental = true,
                b"i=?0" => self.incremental = false,
                _ => {}
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9218_4_parameters() {
        let check = |text: &str, urgency, incremental| {
            assert_eq!(Priority::parse(text.as_bytes()), Priority { urgency, incremental }, "{text}");
        };
        check("", 3, false);
        check("u=0", 0, false);
        check("u=5, i", 5, true);
        check("i=?0,u=7", 7, false);
        check("u=8, i=2, x", 3, false);
        assert_eq!(Priority::parse(b"u=1").with(b"i"), Priority { urgency: 1, incremental: true });
    }
}

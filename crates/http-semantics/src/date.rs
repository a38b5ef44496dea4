//! The `Date` field (RFC 9110, 6.6.1), rendered once a second and copied into every response.

use std::io::Write;

use base::WallTime;

const NAME: &str = "Date: ";
/// The length of an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
const VALUE_BYTES: usize = 29;
const LINE_BYTES: usize = NAME.len() + VALUE_BYTES + 2;

/// A second of wall time in HTTP's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpDate {
    line: [u8; LINE_BYTES],
}

impl HttpDate {
    /// The date of a second. Years after 9999 have no such form and show the last second of 9999.
    pub fn new(wall: WallTime) -> HttpDate {
        const END_OF_9999: u64 = 253_402_300_799;
        let wall = WallTime { seconds: wall.seconds.min(END_OF_9999) };
        let mut line = [b' '; LINE_BYTES];
        write!(line.as_mut_slice(), "{NAME}{}\r\n", httpdate::HttpDate::from(wall.system_time()))
            .expect("an IMF-fixdate is 29 bytes long");
        HttpDate { line }
    }

    /// The 29 bytes of the field's value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.line[NAME.len()..NAME.len() + VALUE_BYTES]
    }

    /// The whole field line, CRLF included.
    #[inline]
    pub fn line(&self) -> &[u8] {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_an_imf_fixdate_of_29_bytes() {
        let date = HttpDate::new(WallTime { seconds: 784_111_777 });
        assert_eq!(date.value(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.line(), b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        let last = HttpDate::new(WallTime { seconds: u64::MAX });
        assert_eq!(last.value(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}

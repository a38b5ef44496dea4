//! The bytes, numbers and lists of field values (RFC 9110, 5.5 and 5.6).

/// True if the byte may occur in a token (RFC 9110, 5.6.2).
#[inline]
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// True if a field value or a quoted string may contain this byte: no controls but the tab.
#[inline]
pub fn is_text_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// True if a comma-separated list contains a token, compared without case.
#[inline]
pub fn has_token(list: &[u8], token: &str) -> bool {
    list.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Reads a number of digits only, such as the value of `Content-Length`. One beyond 64 bits is valid, and counts as the
/// largest of 64 bits.
#[inline]
pub fn number(digits: &[u8]) -> Option<u64> {
    let add = |value: u64, digit: &u8| value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, add))
}

/// Appends a number in decimal digits.
#[inline]
pub fn decimal(into: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

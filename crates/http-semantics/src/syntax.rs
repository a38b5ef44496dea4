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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_5_6_2_token_bytes_are_no_delimiters() {
        let delimiters = b"\"(),/:;<=>?@[\\]{}";
        for byte in 0..=u8::MAX {
            let expect = (b'!'..=b'~').contains(&byte) && !delimiters.contains(&byte);
            assert_eq!(is_token_byte(byte), expect, "{byte:#x}");
        }
    }

    #[test]
    fn rfc9110_5_5_text_has_no_controls_but_the_tab() {
        for byte in 0..=u8::MAX {
            assert_eq!(is_text_byte(byte), byte == b'\t' || !byte.is_ascii_control(), "{byte:#x}");
        }
    }

    #[test]
    fn lists_contain_whole_tokens_of_any_case() {
        for list in ["close", "CLOSE", "a, close", "close,a", "a ,\tClose , b"] {
            assert!(has_token(list.as_bytes(), "close"), "{list}");
        }
        for list in ["", "closed", "a close", "a;close"] {
            assert!(!has_token(list.as_bytes(), "close"), "{list}");
        }
    }

    #[test]
    fn numbers_are_digits_and_stop_at_64_bits() {
        for (digits, expect) in [("0", 0), ("0042", 42), ("18446744073709551615", u64::MAX)] {
            assert_eq!(number(digits.as_bytes()), Some(expect));
        }
        assert_eq!(number(b"18446744073709551616"), Some(u64::MAX));
        for text in ["", "-1", "+1", "1 ", "1a"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn decimal_digits_read_back_as_the_number() {
        for value in [0, 9, 10, 12_345, u64::MAX] {
            let mut text = b"n=".to_vec();
            decimal(&mut text, value);
            assert_eq!(text, format!("n={value}").as_bytes());
        }
    }
}

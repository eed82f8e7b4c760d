//! Character classes and scanners of RFC 3261 section 25.1 that all parsers share.

/// `token`.
pub(crate) const TOKEN: u16 = 1 << 0;
/// `word`, of which a Call-ID is made.
pub(crate) const WORD: u16 = 1 << 1;
/// `user` without `escaped`.
pub(crate) const USER: u16 = 1 << 2;
/// `password` without `escaped`.
pub(crate) const PASSWORD: u16 = 1 << 3;
/// `paramchar` without `escaped`.
pub(crate) const PARAM: u16 = 1 << 4;
/// `hname` and `hvalue` without `escaped`.
pub(crate) const HEADER: u16 = 1 << 5;
/// A label of `hostname`, and the underscore that real host names contain.
pub(crate) const LABEL: u16 = 1 << 6;
/// `DIGIT`.
pub(crate) const DIGIT: u16 = 1 << 7;
/// `HEXDIG`.
pub(crate) const HEX: u16 = 1 << 8;
/// `ALPHA`.
pub(crate) const ALPHA: u16 = 1 << 9;
/// Linear white space. CR and LF count: inside a header field they are a fold.
pub(crate) const WS: u16 = 1 << 10;
/// `gen-value` that is not a quoted string: `token` or `host`.
pub(crate) const VALUE: u16 = 1 << 11;
/// `uric` without `escaped`, of which URIs of unknown schemes are made.
pub(crate) const URIC: u16 = 1 << 12;
/// A character that phones put into the user part although it must be escaped there: `#`.
pub(crate) const HASH: u16 = 1 << 13;
/// `unreserved`.
pub(crate) const UNRESERVED: u16 = 1 << 14;
/// The characters after the first of an unquoted display name: `token`, white space, UTF-8.
pub(crate) const DISPLAY: u16 = 1 << 15;

static CLASS: [u16; 256] = classes();

const fn mark(mut table: [u16; 256], bytes: &[u8], class: u16) -> [u16; 256] {
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] |= class;
        i += 1;
    }
    table
}

const fn classes() -> [u16; 256] {
    let mut t = [0u16; 256];
    let mut i = 0usize;
    while i < 256 {
        let b = i as u8;
        if b.is_ascii_alphanumeric() {
            t[i] |= TOKEN | WORD | USER | PASSWORD | PARAM | HEADER | LABEL | VALUE | URIC;
            t[i] |= UNRESERVED | DISPLAY;
        }
        if b.is_ascii_digit() {
            t[i] |= DIGIT;
        }
        if b.is_ascii_hexdigit() {
            t[i] |= HEX;
        }
        if b.is_ascii_alphabetic() {
            t[i] |= ALPHA;
        }
        if b >= 0x80 {
            t[i] |= DISPLAY;
        }
        i += 1;
    }
    t = mark(t, b"-.!%*_+`'~", TOKEN | WORD | VALUE | DISPLAY);
    t = mark(t, b"()<>:\\\"/[]?{}", WORD);
    t = mark(t, b"[]:", VALUE);
    t = mark(t, b"-_.!~*'()", USER | PASSWORD | PARAM | HEADER | URIC | UNRESERVED);
    t = mark(t, b"&=+$,;?/", USER);
    t = mark(t, b"&=+$,", PASSWORD);
    t = mark(t, b"[]/:&+$", PARAM);
    t = mark(t, b"[]/?:+$", HEADER);
    t = mark(t, b";/?:@&=+$,", URIC);
    t = mark(t, b"-_", LABEL);
    t = mark(t, b"#", HASH);
    mark(t, b" \t\r\n", WS | DISPLAY)
}

/// Returns whether `b` is of one of the classes.
#[inline(always)]
pub(crate) fn is(b: u8, class: u16) -> bool {
    CLASS[b as usize] & class != 0
}

/// Returns whether all of `bytes` are of `class`; true of an empty slice.
#[inline]
pub(crate) fn all(bytes: &[u8], class: u16) -> bool {
    bytes.iter().all(|&b| is(b, class))
}

/// Returns the index of the first byte at or after `from` that is not of `class`.
#[inline(always)]
pub(crate) fn span(bytes: &[u8], from: usize, class: u16) -> usize {
    match bytes.get(from..) {
        Some(rest) => from + run(rest, class),
        None => from,
    }
}

/// Returns how many of the first octets are of `class`. One function for all classes, because it runs more often than
/// any other.
#[inline(never)]
fn run(text: &[u8], class: u16) -> usize {
    // Eight at a time, to check the length only once.
    let (chunks, rest) = text.as_chunks::<8>();
    for (i, chunk) in chunks.iter().enumerate() {
        for (n, &b) in chunk.iter().enumerate() {
            if !is(b, class) {
                return 8 * i + n;
            }
        }
    }
    8 * chunks.len() + rest.iter().take_while(|&&b| is(b, class)).count()
}

/// Returns the index of the first byte at or after `from` that is no white space: usually `from`.
#[inline(always)]
pub(crate) fn spaces(bytes: &[u8], from: usize) -> usize {
    let mut i = from;
    while i < bytes.len() && bytes[i] <= b' ' && is(bytes[i], WS) {
        i += 1;
    }
    i
}

/// Does the same as [`span`], but `%` and two hexadecimal digits pass as well. A `%` alone ends the span.
#[inline]
pub(crate) fn span_escaped(bytes: &[u8], from: usize, class: u16) -> usize {
    let mut i = span(bytes, from, class);
    while let Some([b'%', high, low, ..]) = bytes.get(i..)
        && is(*high, HEX)
        && is(*low, HEX)
    {
        i = span(bytes, i + 3, class);
    }
    i
}

/// One in every octet of a word.
pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns the eight octets from `at` on, the first of them lowest, padded with zeros.
#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => last_word(bytes, bytes.get(at..).unwrap_or_default()),
    }
}

/// Returns `rest`, fewer than eight octets and the last of `bytes`, as a word.
#[inline]
fn last_word(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk() {
        Some(chunk) if !rest.is_empty() => u64::from_le_bytes(*chunk) >> (64 - 8 * rest.len()),
        _ => rest.iter().rev().fold(0, |word, &octet| word << 8 | octet as u64),
    }
}

/// Returns a mark (0x80) in the lowest octet of `word` that is `wanted`, perhaps in higher ones too; zero if there is
/// none. `wanted` is never zero.
#[inline(always)]
pub(crate) fn marks_of(word: u64, wanted: u8) -> u64 {
    let x = word ^ (wanted as u64 * ONES);
    x.wrapping_sub(ONES) & !x & (0x80 * ONES)
}

/// Returns the index of the first `wanted` from `from` on. It compares eight octets at a time, for near positions.
#[inline(always)]
pub(crate) fn find_near(bytes: &[u8], from: usize, wanted: u8) -> Option<usize> {
    let (chunks, rest) = bytes.get(from..)?.as_chunks();
    let mut i = from;
    for chunk in chunks {
        let marks = marks_of(u64::from_le_bytes(*chunk), wanted);
        if marks != 0 {
            return Some(i + marks.trailing_zeros() as usize / 8);
        }
        i += 8;
    }
    let marks = marks_of(last_word(bytes, rest), wanted);
    (marks != 0).then(|| i + marks.trailing_zeros() as usize / 8)
}

/// Returns marks (0x80) in the octets of `word` that are control characters, tab included. The lowest may be at a `~`
/// after 0xff instead, all above it anywhere.
#[inline(always)]
fn marks_of_controls(word: u64) -> u64 {
    // Below 0x20 the difference is negative, above 0x7e the sum is.
    (word.wrapping_sub(0x20 * ONES) | word.wrapping_add(ONES)) & !word & (0x80 * ONES)
}

/// Returns the index of the first control character from `from` on: the next line end of a valid message. It may stop
/// before it at a tab or at an octet that is no control character.
#[inline(always)]
pub(crate) fn find_control(bytes: &[u8], from: usize) -> Option<usize> {
    let (chunks, rest) = bytes.get(from..)?.as_chunks();
    let mut i = from;
    for chunk in chunks {
        let marks = marks_of_controls(u64::from_le_bytes(*chunk));
        if marks != 0 {
            return Some(i + marks.trailing_zeros() as usize / 8);
        }
        i += 8;
    }
    rest.iter().position(|&b| b < 0x20 || b == 0x7f).map(|n| i + n)
}

/// Returns the bytes without white space and folds at either end.
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && *first <= b' '
        && is(*first, WS)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && *last <= b' '
        && is(*last, WS)
    {
        bytes = rest;
    }
    bytes
}

/// Returns the index after the closing quote of the quoted string that opens at `from`; `None` if it does not close. A
/// backslash escapes the next character, but never CR or LF.
pub(crate) fn quoted_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut i = from + 1;
    loop {
        let word = word(bytes, i);
        let marks = marks_of(word, b'"') | marks_of(word, b'\\');
        if marks == 0 {
            i += 8;
            if i >= bytes.len() {
                return None;
            }
            continue;
        }
        i += marks.trailing_zeros() as usize / 8;
        if bytes[i] == b'"' {
            return Some(i + 1);
        }
        if matches!(bytes.get(i + 1), None | Some(b'\r' | b'\n')) {
            return None;
        }
        i += 2;
    }
}

/// Parses a decimal number; returns `None` for an empty slice, other characters than digits, or a number above `max`.
#[inline]
pub(crate) fn number(bytes: &[u8], max: u64) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    /// The number of digits that never overflow.
    const SAFE: usize = 19;
    let mut n: u64 = 0;
    for &b in bytes {
        let d = b.wrapping_sub(b'0');
        if d > 9 {
            return None;
        }
        n = if bytes.len() <= SAFE {
            n * 10 + d as u64
        } else {
            n.checked_mul(10)?.checked_add(d as u64)?
        };
    }
    (n <= max).then_some(n)
}

/// Returns the number whose digits begin at `from`, and the index after them. From 10^18 on it may be `u64::MAX`;
/// without digits it is 0.
#[inline(always)]
pub(crate) fn digits(bytes: &[u8], from: usize) -> (u64, usize) {
    const MUCH: u64 = 1_000_000_000_000_000_000;
    let mut n = 0;
    let mut i = from;
    while let Some(digit) = bytes.get(i).map(|b| b.wrapping_sub(b'0'))
        && digit <= 9
    {
        n = if n < MUCH { n * 10 + digit as u64 } else { u64::MAX };
        i += 1;
    }
    (n, i)
}

/// Returns the value of a hexadecimal digit.
#[inline]
pub(crate) fn hex(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}

/// Returns the offset of `inner` in `outer`, of which it is a part.
#[inline]
pub(crate) fn offset(outer: &[u8], inner: &[u8]) -> usize {
    let at = (inner.as_ptr() as usize).wrapping_sub(outer.as_ptr() as usize);
    if at <= outer.len() { at } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Octets of which those that mean something are many, and stand in any place of a word.
    fn octets() -> impl Strategy<Value = Vec<u8>> {
        let octet = prop_oneof![
            4 => prop::sample::select(b"ab-.09Z".to_vec()),
            2 => prop::sample::select(b"\"\\:;%@ \t\r\n".to_vec()),
            1 => any::<u8>(),
        ];
        prop::collection::vec(octet, 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn scanners_do_what_they_say(text in octets(), from in 0usize..42) {
            let after = text.get(from..).unwrap_or_default();
            let at = |found: Option<usize>| found.map(|n| from + n);
            for class in [TOKEN, WORD, USER, LABEL, DIGIT, VALUE, DISPLAY, USER | HASH] {
                let count = after.iter().take_while(|&&b| is(b, class)).count();
                prop_assert_eq!(span(&text, from, class), from + count);
            }
            let blanks = after.iter().take_while(|&&b| is(b, WS)).count();
            prop_assert_eq!(spaces(&text, from), from + blanks);
            for wanted in [b':', b'a', b'\n', b'"', 0x80, 0xff] {
                let place = after.iter().position(|&b| b == wanted);
                prop_assert_eq!(find_near(&text, from, wanted), at(place));
            }
            let octets: Vec<u8> = after.iter().copied().chain([0; 8]).take(8).collect();
            prop_assert_eq!(word(&text, from).to_le_bytes().to_vec(), octets);
        }

        #[test]
        fn digits_are_a_number(text in "[0-9]{0,40}[a-z]?[0-9]?", from in 0usize..42) {
            let text = text.as_bytes();
            let (n, end) = digits(text, from);
            prop_assert_eq!(end, span(text, from, DIGIT));
            let exact = number(text.get(from..end).unwrap_or_default(), u64::MAX);
            match exact {
                Some(exact) if exact < 1_000_000_000_000_000_000 => prop_assert_eq!(n, exact),
                _ => prop_assert!(n >= 1_000_000_000_000_000_000 || end == from && n == 0),
            }
        }

        /// Every control character is found; what else is found is above 0xff.
        #[test]
        fn no_control_character_is_passed(text in octets(), from in 0usize..42) {
            let after = text.get(from..).unwrap_or_default();
            let first = after.iter().position(|&b| b < 0x20 || b == 0x7f).map(|n| from + n);
            let found = find_control(&text, from);
            prop_assert!(
                found == first || found.is_some_and(|n| text[n] == b'~' && text[n - 1] == 0xff)
            );
            prop_assert!(first.is_none_or(|first| found.is_some_and(|n| n <= first)));
        }

        #[test]
        fn escapes_pass_whole(text in octets(), from in 0usize..42) {
            let mut i = from;
            while let Some(&b) = text.get(i) {
                if is(b, USER) {
                    i += 1;
                } else if b == b'%' && text.get(i + 1..i + 3).is_some_and(|h| all(h, HEX)) {
                    i += 3;
                } else {
                    break;
                }
            }
            prop_assert_eq!(span_escaped(&text, from, USER), i);
        }

        #[test]
        fn quoted_strings_end_at_their_quote(text in octets()) {
            let text = [b"\"", &text[..]].concat();
            let mut i = 1;
            let end = loop {
                match text.get(i) {
                    None => break None,
                    Some(b'"') => break Some(i + 1),
                    Some(b'\\') if matches!(text.get(i + 1), None | Some(b'\r' | b'\n')) => {
                        break None;
                    }
                    Some(b'\\') => i += 2,
                    Some(_) => i += 1,
                }
            };
            prop_assert_eq!(quoted_end(&text, 0), end);
        }
    }

    #[test]
    fn classes_follow_the_grammar() {
        assert!(all(b"abc-.!%*_+`'~09AZ", TOKEN));
        for b in b"()<>@,;:\\\"/[]?={} \t" {
            assert!(!is(*b, TOKEN), "{}", *b as char);
        }
        assert!(!is(b'@', WORD) && is(b'"', WORD));
        assert!(is(b'/', USER) && !is(b'@', USER) && !is(b':', USER));
        assert!(is(b'#', HASH) && !is(b'#', USER) && !is(b'#', TOKEN));
    }

    #[test]
    fn a_lone_percent_stops_an_escaped_span() {
        assert_eq!(span_escaped(b"a%41b", 0, USER), 5);
        assert_eq!(span_escaped(b"a%4", 0, USER), 1);
        assert_eq!(span_escaped(b"a%zzb", 0, USER), 1);
    }

    #[test]
    fn quoted_strings_end_where_they_should() {
        assert_eq!(quoted_end(br#""a\"b" c"#, 0), Some(6));
        assert_eq!(quoted_end(br#""a"#, 0), None);
        assert_eq!(quoted_end(b"\"a\\\r\n b\"", 0), None);
    }

    #[test]
    fn what_is_near_is_found() {
        let text = b"Max-Forwards: 70 : x";
        assert_eq!(find_near(text, 0, b':'), Some(12));
        assert_eq!(find_near(text, 13, b':'), Some(17));
        assert_eq!(find_near(text, 18, b':'), None);
        assert_eq!(find_near(b"", 0, b':'), None);
        assert_eq!(find_near(b"\x3b\x39\xba\x3a\x3a\x00\x01\x02", 0, b':'), Some(3));
    }

    #[test]
    fn numbers_do_not_overflow() {
        assert_eq!(number(b"4294967295", u32::MAX as u64), Some(4294967295));
        assert_eq!(number(b"4294967296", u32::MAX as u64), None);
        assert_eq!(number(b"99999999999999999999999999", u64::MAX), None);
        assert_eq!(number(b"-1", 9), None);
        assert_eq!(number(b"", 9), None);
        assert_eq!(number(b"9999999999999999999", u64::MAX), Some(9999999999999999999));
        assert_eq!(number(b"18446744073709551615", u64::MAX), Some(u64::MAX));
        assert_eq!(number(b"00000000000000000000000000000007", 7), Some(7));
        assert_eq!(number(b"8", 7), None);
    }
}

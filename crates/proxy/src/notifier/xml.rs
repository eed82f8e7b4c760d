//! Parts of XML 1.0 documents.

use ringway_sip::write;

/// The first line of a document.
pub(super) const DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// Ends the previous attribute and begins another.
pub(super) fn attribute(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(b"\" ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    escape(out, value);
}

/// Ends the previous attribute and begins another, a number.
pub(super) fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    attribute(out, name, b"");
    write::decimal(out, value);
}

/// Appends text for attributes and between tags: markup is escaped, octets that are not UTF-8 and characters that XML does
/// not allow are replaced.
pub(super) fn escape(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '&' => out.extend_from_slice(b"&amp;"),
                '<' => out.extend_from_slice(b"&lt;"),
                '>' => out.extend_from_slice(b"&gt;"),
                '"' => out.extend_from_slice(b"&quot;"),
                '\'' => out.extend_from_slice(b"&apos;"),
                '\t' => out.push(b' '),
                '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => out.push(b'?'),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.push(b'?');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &[u8]) -> String {
        let mut out = Vec::new();
        escape(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn markup_and_rubbish_are_escaped() {
        assert_eq!(escaped(b"a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&apos;");
        assert_eq!(escaped("\u{fc}\u{1f600}".as_bytes()), "\u{fc}\u{1f600}");
        assert_eq!(escaped(b"x\xff\xfey\x00\x07\tz"), "x??y?? z");
    }
}

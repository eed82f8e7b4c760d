//! Text received from peers, in lines that people and other programs read.

use std::fmt::{self, Write as _};

/// Formats a text as one word: characters that could end the word or the line, or control a
/// terminal, are escaped.
pub fn clean(text: &str) -> impl fmt::Display + '_ {
    struct Clean<'a>(&'a str);
    impl fmt::Display for Clean<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for c in self.0.chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    c if c.is_control() || c.is_whitespace() => {
                        write!(f, "{}", c.escape_unicode())?;
                    }
                    c => f.write_char(c)?,
                }
            }
            Ok(())
        }
    }
    Clean(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_one_word() {
        assert_eq!(clean("sip:bob@a.org;x=é").to_string(), "sip:bob@a.org;x=é");
        let text = clean("a b\r\n\x1b[31m\u{85}\u{2028}\"\\").to_string();
        assert_eq!(text, r#"a\u{20}b\u{d}\u{a}\u{1b}[31m\u{85}\u{2028}\"\\"#);
        assert!(!text.contains(char::is_whitespace));
    }
}

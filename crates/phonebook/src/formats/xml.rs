//! A writer of XML that cannot be left.

use quick_xml::escape::escape;

/// Writes a document, element by element.
#[derive(Clone, Debug)]
pub(crate) struct Xml {
    out: String,
    open: Vec<&'static str>,
}

impl Xml {
    /// A document with this root.
    pub(crate) fn new(root: &'static str) -> Xml {
        let mut xml = Xml {
            out: String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"),
            open: Vec::new(),
        };
        xml.open(root);
        xml
    }

    /// Begins an element.
    pub(crate) fn open(&mut self, name: &'static str) {
        self.open_with(name, "");
    }

    /// Begins an element with attributes, which are written as they are.
    pub(crate) fn open_with(&mut self, name: &'static str, attributes: &'static str) {
        self.indent();
        self.out.extend(["<", name, attributes, ">\n"]);
        self.open.push(name);
    }

    /// Writes an element with a text.
    pub(crate) fn text(&mut self, name: &'static str, text: &str) {
        self.indent();
        // Characters that XML cannot have at all (XML 1.0 section 2.2) are removed, the others escaped.
        let text: String = text.chars().filter(|&c| is_char(c)).collect();
        self.out.extend(["<", name, ">", &escape(&*text), "</", name, ">\n"]);
    }

    /// Ends an element.
    pub(crate) fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            self.indent();
            self.out.extend(["</", name, ">\n"]);
        }
    }

    /// Ends all elements and returns the document.
    pub(crate) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }

    fn indent(&mut self) {
        self.out.extend(self.open.iter().map(|_| "  "));
    }
}

/// Returns whether a character may be in a document (XML 1.0 section 2.2).
fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use quick_xml::Reader;
    use quick_xml::events::Event;

    /// Returns the elements and texts of a document as a strict reader sees them: `path=text`.
    pub(crate) fn read(document: &str) -> Vec<String> {
        let mut reader = Reader::from_str(document);
        reader.config_mut().check_end_names = true;
        let (mut path, mut texts, mut text) = (Vec::<String>::new(), Vec::new(), None);
        loop {
            match reader.read_event().unwrap() {
                Event::Start(start) => {
                    path.push(start.name().as_ref().to_string());
                    text = Some(String::new());
                }
                Event::Text(part) => {
                    let part: &str = &part;
                    text.iter_mut().for_each(|text| text.push_str(part));
                }
                Event::GeneralRef(name) => {
                    let name = format!("&{};", &*name);
                    let part = quick_xml::escape::unescape(&name).unwrap();
                    text.iter_mut().for_each(|text| text.push_str(&part));
                }
                Event::End(_) => {
                    if let Some(text) = text.take() {
                        texts.push(format!("{}={text}", path.join("/")));
                    }
                    path.pop();
                }
                Event::Eof => break,
                Event::Decl(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        assert!(path.is_empty());
        texts
    }

    proptest! {
        /// A text is read as it was written, but for characters that XML cannot have.
        #[test]
        fn a_text_stays_within_its_element(text in any::<String>()) {
            let mut xml = Xml::new("a");
            xml.text("b", &text);
            let kept: String = text.chars().filter(|&c| is_char(c)).collect();
            prop_assert_eq!(read(&xml.finish()), [format!("a/b={kept}")]);
        }
    }

    #[test]
    fn control_characters_are_removed() {
        let mut xml = Xml::new("a");
        xml.text("b", "x\u{0}\u{1b}\u{fffe}\u{ffff}]]><!--&amp;");
        assert_eq!(read(&xml.finish()), ["a/b=x]]><!--&amp;"]);
    }
}

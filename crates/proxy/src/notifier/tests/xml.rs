//! A reader of XML just strict enough to notice a document that is not well-formed.

pub(super) struct Element {
    pub(super) name: String,
    attributes: Vec<(String, String)>,
    pub(super) children: Vec<Element>,
    pub(super) text: String,
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> &str {
        &self.attributes.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(n, _)| n == name)
    }

    /// Elements of this name at any depth, in order.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> Box<dyn Iterator<Item = &'a Element> + 'a> {
        Box::new(self.children.iter().flat_map(move |child| {
            (child.name == name).then_some(child).into_iter().chain(child.all(name))
        }))
    }
}

/// Parses a whole document; panics where it is not well-formed.
pub(super) fn parse(text: &str) -> Element {
    let rest =
        text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").expect("declaration");
    let mut rest = rest.trim_start();
    let root = element(&mut rest);
    assert_eq!(rest.trim(), "", "something after the root");
    root
}

fn element(rest: &mut &str) -> Element {
    take(rest, "<");
    let name = name(rest);
    let mut attributes: Vec<(String, String)> = Vec::new();
    loop {
        let spaced = rest.starts_with(' ');
        *rest = rest.trim_start();
        if rest.starts_with("/>") {
            take(rest, "/>");
            return Element { name, attributes, children: Vec::new(), text: String::new() };
        }
        if rest.starts_with('>') {
            take(rest, ">");
            break;
        }
        assert!(spaced, "no space before an attribute: {:.40}", rest);
        let key = self::name(rest);
        take(rest, "=\"");
        let end = rest.find('"').expect("end of an attribute");
        assert!(attributes.iter().all(|(k, _)| *k != key), "twice: {key}");
        attributes.push((key, unescape(&rest[..end])));
        *rest = &rest[end + 1..];
    }
    let (mut children, mut text) = (Vec::new(), String::new());
    loop {
        let end = rest.find('<').expect("a closing tag");
        text.push_str(&unescape(&rest[..end]));
        *rest = &rest[end..];
        if rest.starts_with("</") {
            take(rest, "</");
            assert_eq!(self::name(rest), name);
            take(rest, ">");
            return Element { name, attributes, children, text };
        }
        children.push(element(rest));
    }
}

fn take(rest: &mut &str, token: &str) {
    *rest = rest.strip_prefix(token).unwrap_or_else(|| panic!("no {token} at {rest:.40}"));
}

fn name(rest: &mut &str) -> String {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !":-_.".contains(c)).unwrap();
    assert!(end > 0, "no name at {rest:.40}");
    let (name, after) = rest.split_at(end);
    *rest = after;
    name.to_owned()
}

fn unescape(text: &str) -> String {
    assert!(!text.contains('<') && text.chars().all(|c| c == '\n' || c >= ' '), "{text:?}");
    let mut out = String::new();
    let mut parts = text.split('&');
    out.push_str(parts.next().unwrap());
    for part in parts {
        let (entity, after) = part.split_once(';').expect("end of an entity");
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            other => panic!("entity {other}"),
        });
        out.push_str(after);
    }
    out
}

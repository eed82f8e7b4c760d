//! A SIP message as a test sees it: start line, header fields, body.
//!
//! Read and written by code of its own, so that a fault of the parser under test does not hide
//! itself.

use std::fmt;

/// Header fields whose value is a comma separated list.
const LISTS: [&str; 10] = [
    "Via",
    "Route",
    "Record-Route",
    "Contact",
    "Path",
    "Service-Route",
    "Proxy-Require",
    "Require",
    "Unsupported",
    "Supported",
];

#[derive(Clone, PartialEq, Eq)]
pub struct Msg {
    pub start: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Msg {
    /// Reads a message that is known to be well-formed text.
    pub fn parse(bytes: &[u8]) -> Msg {
        let text = std::str::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("an empty line");
        let mut lines = head.split("\r\n");
        let start = lines.next().expect("a start line").to_string();
        let mut headers: Vec<(String, String)> = Vec::new();
        for line in lines {
            if line.starts_with([' ', '\t']) {
                let last = headers.last_mut().expect("a header field before its fold");
                last.1 = format!("{} {}", last.1, line.trim());
                continue;
            }
            let (name, value) = line.split_once(':').expect("a colon");
            headers.push((name.trim().to_string(), value.trim().to_string()));
        }
        Msg { start, headers, body: body.to_string() }
    }

    /// Reads what can be read.
    pub fn lossy(bytes: &[u8]) -> Msg {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.split("\r\n");
        let start = lines.next().unwrap_or_default().to_string();
        let pair = |l: &str| l.split_once(':').map(|(n, v)| (n.trim().into(), v.trim().into()));
        Msg { start, headers: lines.filter_map(pair).collect(), body: body.to_string() }
    }

    /// Returns the bytes on the wire. Content-Length is added if it has not been set.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.start);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !self.has("Content-Length") {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        text += "\r\n";
        text += &self.body;
        text.into_bytes()
    }

    pub fn is_request(&self) -> bool {
        !self.start.starts_with("SIP/2.0 ")
    }

    pub fn method(&self) -> &str {
        if self.is_request() {
            self.start.split(' ').next().unwrap()
        } else {
            self.get("CSeq").split(' ').nth(1).unwrap()
        }
    }

    /// 0 for a request.
    pub fn status(&self) -> u16 {
        if self.is_request() { 0 } else { self.start[8..11].parse().unwrap() }
    }

    /// The Request-URI.
    pub fn uri(&self) -> &str {
        self.start.split(' ').nth(1).unwrap()
    }

    /// Whether the message is what a few words say: `INVITE`, `INVITE sip:bob@example.org`, `180`,
    /// `200 BYE`, `4xx`.
    pub fn is(&self, words: &str) -> bool {
        let mut words = words.split(' ');
        let first = words.next().unwrap();
        let second = words.next();
        if self.is_request() {
            self.method() == first && second.is_none_or(|uri| uri == self.uri())
        } else {
            let status = self.status().to_string();
            let fits = match first.strip_suffix("xx") {
                Some(class) => status.starts_with(class),
                None => status == first,
            };
            fits && second.is_none_or(|method| method == self.method())
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    /// The first value; there must be one.
    pub fn get(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        match found {
            Some((_, value)) => value,
            None => panic!("no {name} in\n{self}"),
        }
    }

    /// All values, those of lists taken apart.
    pub fn all(&self, name: &str) -> Vec<String> {
        let values =
            self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v);
        if LISTS.iter().any(|l| l.eq_ignore_ascii_case(name)) {
            values.flat_map(|v| split_list(v)).collect()
        } else {
            values.cloned().collect()
        }
    }

    /// The URIs of all elements of a list of addresses.
    pub fn uris(&self, name: &str) -> Vec<String> {
        self.all(name).iter().map(|v| uri_of(v).to_string()).collect()
    }

    /// A parameter of the topmost Via.
    pub fn via(&self, name: &str) -> Option<String> {
        let via = &self.all("Via")[0];
        via.split(';').skip(1).find_map(|p| {
            let (n, v) = p.split_once('=').unwrap_or((p, ""));
            n.trim().eq_ignore_ascii_case(name).then(|| v.trim().to_string())
        })
    }

    pub fn branch(&self) -> String {
        self.via("branch").unwrap_or_default()
    }

    /// The tag of From or To.
    pub fn tag(&self, name: &str) -> Option<&str> {
        let value = self.get(name);
        let after = &value[value.find('>').map_or(0, |i| i)..];
        after.split(";tag=").nth(1).map(|t| t.split(';').next().unwrap())
    }

    /// With this header field, in place of those of the name there were.
    pub fn set(mut self, name: &str, value: impl fmt::Display) -> Msg {
        let at = self.headers.iter().position(|(n, _)| n.eq_ignore_ascii_case(name));
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        let at = at.unwrap_or(self.headers.len());
        self.headers.insert(at, (name.to_string(), value.to_string()));
        self
    }

    /// With one more header field, after all others.
    pub fn add(mut self, name: &str, value: impl fmt::Display) -> Msg {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    /// With one more header field, before all others.
    pub fn top(mut self, name: &str, value: impl fmt::Display) -> Msg {
        self.headers.insert(0, (name.to_string(), value.to_string()));
        self
    }

    /// Without header fields of this name.
    pub fn del(mut self, name: &str) -> Msg {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// With another Request-URI.
    pub fn aimed_at(mut self, uri: &str) -> Msg {
        self.start = format!("{} {uri} SIP/2.0", self.method());
        self
    }

    /// With a body of this many octets.
    pub fn padded(mut self, octets: usize) -> Msg {
        self.body = "x".repeat(octets);
        self.set("Content-Type", "text/plain")
    }

    /// The one header field in which `self` and `other` differ, or all of them: what a hop changed.
    pub fn same_but(&self, other: &Msg, names: &[&str]) {
        let strip = |m: &Msg| -> Vec<(String, String)> {
            let kept = |n: &str| !names.iter().any(|x| x.eq_ignore_ascii_case(n));
            m.headers.iter().filter(|(n, _)| kept(n)).cloned().collect()
        };
        assert_eq!(strip(self), strip(other), "\n{self}\n{other}");
        assert_eq!(self.body, other.body);
    }
}

impl fmt::Display for Msg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.start)?;
        for (name, value) in &self.headers {
            writeln!(f, "    {name}: {value}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Msg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Splits at commas that are neither quoted nor within angle brackets.
pub fn split_list(value: &str) -> Vec<String> {
    let (mut items, mut item) = (Vec::new(), String::new());
    let (mut quoted, mut angle) = (false, false);
    for c in value.chars() {
        match c {
            '"' => quoted = !quoted,
            '<' if !quoted => angle = true,
            '>' if !quoted => angle = false,
            ',' if !quoted && !angle => {
                items.push(std::mem::take(&mut item).trim().to_string());
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    items.push(item.trim().to_string());
    items
}

/// The URI of a name-addr or addr-spec.
pub fn uri_of(address: &str) -> &str {
    match address.split_once('<') {
        Some((_, rest)) => rest.split('>').next().unwrap(),
        None => address.split(';').next().unwrap(),
    }
}

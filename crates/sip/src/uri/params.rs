//! Parameters and header fields of a URI (RFC 3261 section 19.1.1).

/// The parameters of a URI, in order: name, and value if there is one. Nothing is unescaped.
#[derive(Clone, Debug)]
pub struct UriParams<'a> {
    rest: &'a [u8],
}

impl<'a> UriParams<'a> {
    /// Returns the parameters of a text that is empty or begins with a semicolon.
    pub fn new(params: &'a [u8]) -> Self {
        UriParams { rest: params.strip_prefix(b";").unwrap_or_default() }
    }

    /// Returns the first parameter of this name, in any case: `Some(None)` if it has no value.
    pub fn get(mut self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        self.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl<'a> Iterator for UriParams<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b';', self.rest).unwrap_or(self.rest.len());
        let param = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        Some(match memchr::memchr(b'=', param) {
            // `lr=` means the same as `lr`.
            Some(equal) if equal + 1 < param.len() => (&param[..equal], Some(&param[equal + 1..])),
            Some(equal) => (&param[..equal], None),
            None => (param, None),
        })
    }
}

/// The header fields of a URI, in order: name and value. Nothing is unescaped.
#[derive(Clone, Debug)]
pub struct UriHeaders<'a> {
    rest: &'a [u8],
}

impl<'a> UriHeaders<'a> {
    /// Returns the header fields of a text without the question mark.
    pub fn new(headers: &'a [u8]) -> Self {
        UriHeaders { rest: headers }
    }
}

impl<'a> Iterator for UriHeaders<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'&', self.rest).unwrap_or(self.rest.len());
        let header = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        let equal = memchr::memchr(b'=', header).unwrap_or(header.len());
        Some((&header[..equal], header.get(equal + 1..).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_and_headers() {
        let all: Vec<_> = UriParams::new(b";transport=tcp;lr;maddr=[::1];x=").collect();
        assert_eq!(
            all,
            [
                (&b"transport"[..], Some(&b"tcp"[..])),
                (b"lr", None),
                (b"maddr", Some(b"[::1]")),
                (b"x", None),
            ]
        );
        let all: Vec<_> = UriHeaders::new(b"subject=a%20b&x=").collect();
        assert_eq!(all, [(&b"subject"[..], &b"a%20b"[..]), (b"x", b"")]);
        assert_eq!(UriParams::new(b"").count(), 0);
    }
}

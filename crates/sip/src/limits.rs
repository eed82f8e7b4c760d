//! Every bound on input from a peer, with the status that answers a message beyond it.
//!
//! A bound holds in both directions: memory and time spent on one message stay below it, and no message within all
//! bounds is refused for its size.

/// Octets of one message, start line to end of body: what fits into one UDP datagram, and what a
/// stream may send as one message. Beyond it: 513 Message Too Large.
pub const MAX_MESSAGE: usize = 65_535;

/// Octets of the body. Beyond it: 413 Request Entity Too Large, determined by Content-Length alone.
pub const MAX_BODY: usize = 57_344;

/// Octets of the start line and header section together. Beyond it: 513.
pub const MAX_HEAD: usize = 32_768;

/// Header fields of one message, counted as lines (folds belong to their line). Beyond it: 513.
pub const MAX_HEADERS: usize = 255;

/// Octets of one header field with its folds. Beyond it: 513.
pub const MAX_LINE: usize = 8_192;

/// Octets of the Request-URI. Beyond it: 414 Request-URI Too Long.
pub const MAX_REQUEST_URI: usize = 2_048;

/// Octets of a URI elsewhere. Beyond it: 400.
pub const MAX_URI: usize = 2_048;

/// Parameters of one URI or of one header field element. Beyond it: 400.
pub const MAX_PARAMS: usize = 64;

/// Via elements of one message. Max-Forwards starts at 70, so a correct request never has more (RFC 3261 section
/// 8.1.1.6). Beyond it: 483 Too Many Hops.
pub const MAX_VIAS: usize = 71;

/// Contact elements of one message. Beyond it: 513.
pub const MAX_CONTACTS: usize = 64;

/// Elements of one message in Route, in Record-Route, and in Path and Service-Route together.
/// Beyond it: 513.
pub const MAX_ROUTES: usize = 64;

/// Elements of one header field that is a list of tokens (Require, Supported, Allow). Beyond it: 400.
pub const MAX_TOKENS: usize = 128;

/// The depth to which comments may nest (RFC 3261 section 25.1). Beyond it: 400.
pub const MAX_NESTING: usize = 16;

/// Octets of a Call-ID. Beyond it: 400.
pub const MAX_CALL_ID: usize = 512;

/// Octets of a branch or a tag. Beyond it: 400.
pub const MAX_TAG: usize = 512;

/// Octets of a method name. Beyond it: 400.
pub const MAX_METHOD: usize = 64;

/// Octets of a host name (RFC 1035 section 2.3.4). Beyond it: 400.
pub const MAX_HOST: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator's documentation has the numbers of the code.
    #[test]
    fn the_documentation_has_the_same_numbers() {
        let page = include_str!("../../../docs/messages.md");
        let all = [
            ("MAX_MESSAGE", MAX_MESSAGE),
            ("MAX_HEAD", MAX_HEAD),
            ("MAX_BODY", MAX_BODY),
            ("MAX_HEADERS", MAX_HEADERS),
            ("MAX_LINE", MAX_LINE),
            ("MAX_REQUEST_URI", MAX_REQUEST_URI),
            ("MAX_URI", MAX_URI),
            ("MAX_METHOD", MAX_METHOD),
            ("MAX_HOST", MAX_HOST),
            ("MAX_PARAMS", MAX_PARAMS),
            ("MAX_VIAS", MAX_VIAS),
            ("MAX_CONTACTS", MAX_CONTACTS),
            ("MAX_ROUTES", MAX_ROUTES),
            ("MAX_TOKENS", MAX_TOKENS),
            ("MAX_NESTING", MAX_NESTING),
            ("MAX_CALL_ID", MAX_CALL_ID),
            ("MAX_TAG", MAX_TAG),
        ];
        for (name, value) in all {
            assert!(page.contains(&format!("| `{name}` | {value} |")), "{name}");
        }
        assert_eq!(page.matches("| `MAX_").count(), all.len());
    }
}

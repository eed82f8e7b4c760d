//! Writing of a description, in the order of RFC 8866 section 5.

use super::{Attribute, Bandwidth, Connection, Media, Session, Text};
use crate::write::decimal;

impl Session<'_> {
    /// Appends the description.
    pub fn write(&self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(b"v=0\r\no=");
        words(buf, &[&self.origin.username, &self.origin.id]);
        buf.push(b' ');
        decimal(buf, self.origin.version);
        buf.push(b' ');
        connection(buf, &self.origin.address);
        buf.extend_from_slice(b"\r\n");
        // RFC 8866 section 5.3: never empty.
        line(buf, b's', if self.name.is_empty() { b"-" } else { &self.name });
        optional(buf, b'i', &self.information);
        optional(buf, b'u', &self.uri);
        self.emails.iter().for_each(|text| line(buf, b'e', text));
        self.phones.iter().for_each(|text| line(buf, b'p', text));
        connections(buf, self.connection.as_slice());
        bandwidths(buf, &self.bandwidths);
        for time in &self.times {
            buf.extend_from_slice(b"t=");
            decimal(buf, time.start);
            buf.push(b' ');
            decimal(buf, time.stop);
            buf.extend_from_slice(b"\r\n");
            time.repeats.iter().for_each(|text| line(buf, b'r', text));
            optional(buf, b'z', &time.zone);
        }
        optional(buf, b'k', &self.key);
        attributes(buf, &self.attributes);
        self.media.iter().for_each(|m| media(buf, m));
    }

    /// Returns the description as it is sent.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut buf = Vec::with_capacity(512);
        self.write(&mut buf);
        buf
    }
}

fn media(buf: &mut Vec<u8>, media: &Media<'_>) {
    buf.extend_from_slice(b"m=");
    buf.extend_from_slice(&media.kind);
    buf.push(b' ');
    decimal(buf, media.port as u64);
    if let Some(ports) = media.ports {
        buf.push(b'/');
        decimal(buf, ports as u64);
    }
    buf.push(b' ');
    buf.extend_from_slice(&media.protocol);
    for format in &media.formats {
        buf.push(b' ');
        buf.extend_from_slice(format);
    }
    buf.extend_from_slice(b"\r\n");
    optional(buf, b'i', &media.information);
    connections(buf, &media.connections);
    bandwidths(buf, &media.bandwidths);
    optional(buf, b'k', &media.key);
    attributes(buf, &media.attributes);
}

fn line(buf: &mut Vec<u8>, kind: u8, text: &[u8]) {
    buf.extend_from_slice(&[kind, b'=']);
    buf.extend_from_slice(text);
    buf.extend_from_slice(b"\r\n");
}

fn optional(buf: &mut Vec<u8>, kind: u8, text: &Option<Text<'_>>) {
    if let Some(text) = text {
        line(buf, kind, text);
    }
}

fn words(buf: &mut Vec<u8>, words: &[&[u8]]) {
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            buf.push(b' ');
        }
        buf.extend_from_slice(word);
    }
}

fn connection(buf: &mut Vec<u8>, c: &Connection<'_>) {
    words(buf, &[&c.net, &c.kind, &c.address]);
}

fn connections(buf: &mut Vec<u8>, connections: &[Connection<'_>]) {
    for c in connections {
        buf.extend_from_slice(b"c=");
        connection(buf, c);
        buf.extend_from_slice(b"\r\n");
    }
}

fn bandwidths(buf: &mut Vec<u8>, bandwidths: &[Bandwidth<'_>]) {
    for b in bandwidths {
        buf.extend_from_slice(b"b=");
        buf.extend_from_slice(&b.kind);
        buf.push(b':');
        decimal(buf, b.value);
        buf.extend_from_slice(b"\r\n");
    }
}

fn attributes(buf: &mut Vec<u8>, attributes: &[Attribute<'_>]) {
    for a in attributes {
        buf.extend_from_slice(b"a=");
        buf.extend_from_slice(&a.name);
        if let Some(value) = &a.value {
            buf.push(b':');
            buf.extend_from_slice(value);
        }
        buf.extend_from_slice(b"\r\n");
    }
}

//! A stream of LDAP, in pieces of the sizes that its first two octets say. Its answers are the same as if it came at once,
//! they are whole messages, and neither what waits nor the work of a call grows without a limit.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ringway_phonebook::ldap::{Connection, Directory, MAX_OUTPUT, Progress, ber};
use ringway_phonebook::{Book, Entry};
use ringway_sansio::Time;

const NOW: Time = Time::from_secs(1_000);

fn book() -> Arc<Book> {
    let entry = |n: u32| Entry {
        user: format!("user{n}"),
        number: (n % 3 != 0).then(|| (200 + n).to_string()),
        name: (n % 4 != 0).then(|| format!("Name{n} Émile")),
        domain: if n % 5 == 0 { "other" } else { "mesh" }.into(),
        present: n % 7 != 0,
    };
    Arc::new(Book::new((0..40).map(entry)))
}

fn answers(stream: &[u8], mut sizes: impl Iterator<Item = usize>) -> Vec<u8> {
    let (directory, book) = (Directory::new("mesh"), book());
    let mut connection = Connection::new(NOW);
    let (mut rest, mut received) = (stream, Vec::new());
    loop {
        let piece = &rest[..rest.len().min(sizes.next().unwrap_or(usize::MAX))];
        rest = &rest[connection.receive(NOW, piece)..];
        loop {
            let progress = connection.work(NOW, &directory, &book);
            let length = connection.output().len();
            assert!(length < MAX_OUTPUT + 65_536, "{length} octets wait");
            received.extend_from_slice(connection.output());
            connection.sent(NOW, length);
            match progress {
                Progress::Closing => return received,
                Progress::Waiting if length == 0 => break,
                _ => {}
            }
        }
        if rest.is_empty() {
            return received;
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((sizes, stream)) = data.split_first_chunk::<2>() else { return };
    let whole = answers(stream, core::iter::empty());
    let sizes = sizes.map(|size| usize::from(size).max(1));
    let pieces = answers(stream, sizes.into_iter().cycle());
    let mut rest = whole.as_slice();
    while !rest.is_empty() {
        // An answer may be longer than a request may be, so only its element is looked at.
        let length = match rest[1] {
            short @ ..0x80 => 2 + usize::from(short),
            long => {
                let count = usize::from(long & 0x7f);
                2 + count
                    + rest[2..2 + count].iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet))
            }
        };
        ber::parse(&rest[..length]).expect("an answer is a whole message");
        rest = &rest[length..];
    }
    // An abandon ends what came just before only if that has not been answered.
    if !stream.windows(2).any(|two| two[0] & 0xdf == 0x50) {
        assert_eq!(whole, pieces);
    }
});

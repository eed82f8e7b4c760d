//! Messages that are abandoned when they are late, over a lossy wire.

use super::support::*;
use ringway_sctp::{Reliability, SendOptions, Settings};

/// RFC 3758 section 3.5: what is late holds nothing up for long. A FORWARD TSN that does what it is for ends
/// the backing off, where no data is left that would, and a late message whose retransmission seems lost too
/// is not waited for.
#[test]
fn a_late_message_is_soon_skipped() {
    let mut longest = 0;
    for seed in 0..8 {
        let mut dice = Dice::new(seed);
        let wire: Wire =
            Box::new(move |_, _| if dice.chance(20) { Vec::new() } else { vec![ms(5)] });
        let mut pair = Pair::over(Settings::default(), Settings::default(), wire);
        pair.keep_log = false;
        let (a, b) = pair.open();
        let lifetime = Reliability::Lifetime(ms(20));
        let options = SendOptions { reliability: lifetime, ..SendOptions::default() };
        let mut came = 0;
        for n in 0..2000 {
            pair.a.send(pair.now, a, &options, pattern(n, 500)).unwrap();
            pair.run(ringway_sansio::Duration::from_micros(500));
            came += pair.received(b).len();
        }
        let from = pair.now;
        while pair.a.snapshot(a).unwrap().unacknowledged > 0 {
            pair.run(ms(10));
            came += pair.received(b).len();
        }
        let took = pair.now.since(from).as_millis();
        assert!(came > 200, "{came}");
        longest = longest.max(took);
    }
    assert!(longest < 10_000, "{longest} ms");
}

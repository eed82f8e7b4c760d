use super::*;
use crate::wire::Options;
use proptest::prelude::*;

/// Passes the feature options of one endpoint to the other.
fn pass(from: &mut Features, to: &mut Features, seq: u64) -> Result<usize, Reset> {
    let mut out = Vec::new();
    from.emit(Time::from_secs(seq), Seq::new(seq), false, false, &mut out);
    let mut mandatory = false;
    let mut count = 0;
    for option in Options::new(&out).map(Result::unwrap) {
        // Numbers of both directions are the same here, so that each packet acknowledges the last.
        let ack = Some(Seq::new(seq));
        match option {
            DccpOption::Mandatory => {
                mandatory = true;
                continue;
            }
            DccpOption::ChangeL(f, v) => to.handle_change(f, Location::Remote, v, mandatory)?,
            DccpOption::ChangeR(f, v) => to.handle_change(f, Location::Local, v, mandatory)?,
            DccpOption::ConfirmL(f, v) => to.handle_confirm(f, Location::Remote, v, ack)?,
            DccpOption::ConfirmR(f, v) => to.handle_confirm(f, Location::Local, v, ack)?,
            other => panic!("{other:?}"),
        }
        count += 1;
        mandatory = false;
    }
    Ok(count)
}

fn negotiate(client: &Settings, server: &Settings) -> Result<(Features, Features), Reset> {
    let mut c = Features::new(false, client);
    let mut s = Features::new(true, server);
    pass(&mut c, &mut s, 1)?;
    pass(&mut s, &mut c, 2)?;
    pass(&mut c, &mut s, 3)?;
    assert!(!c.wants_packet() && !s.wants_packet());
    assert_eq!((c.deadline(), s.deadline()), (None, None));
    for feature in ALL {
        let values = |f: &Features, l| f.get(feature, l);
        assert_eq!(values(&c, Location::Local), values(&s, Location::Remote), "{feature:?}");
        assert_eq!(values(&c, Location::Remote), values(&s, Location::Local), "{feature:?}");
    }
    Ok((c, s))
}

fn tfrc() -> Settings {
    Settings { ccid: Ccid::Tfrc, ..Settings::default() }
}

/// RFC 4340 section 6.3.1: the server's preference decides.
#[test]
fn the_servers_preference_decides() {
    let plain = Settings::default();
    for (client, server, expected) in
        [(plain, plain, 2), (tfrc(), plain, 2), (plain, tfrc(), 3), (tfrc(), tfrc(), 3)]
    {
        let (c, _) = negotiate(&client, &server).unwrap();
        assert_eq!(c.get(Feature::Ccid, Location::Local), expected);
        assert_eq!(c.get(Feature::Ccid, Location::Remote), expected);
    }
}

/// RFC 4340 sections 5.8.2 and 6.6.9: a mandatory Change that cannot be made ends the connection.
#[test]
fn a_mandatory_change_succeeds_or_resets() {
    let only3 = Settings { ccid_mandatory: true, ..tfrc() };
    let only2 = Settings { ccid_mandatory: true, ..Settings::default() };
    let (c, _) = negotiate(&only3, &Settings::default()).unwrap();
    assert_eq!(c.get(Feature::Ccid, Location::Local), 3);
    let reset = negotiate(&only3, &only2).unwrap_err();
    assert_eq!((reset.code, reset.data), (ResetCode::MandatoryError, [32, 1, 3]));
    // One that nobody knows.
    let mut features = Features::new(true, &Settings::default());
    assert!(features.handle_change(77, Location::Remote, &[1], true).is_err());
}

/// RFC 4340 section 6.6.7: an unknown feature is confirmed without a value.
#[test]
fn an_unknown_feature_is_confirmed_empty() {
    let mut features = Features::new(true, &Settings { ccid: Ccid::Tfrc, ..Settings::default() });
    features.handle_change(77, Location::Remote, &[1], false).unwrap();
    features.handle_change(5, Location::Remote, &[0, 0], false).unwrap();
    features.handle_change(5, Location::Local, &[0, 2], false).unwrap();
    assert_eq!(features.confirms, [35, 3, 77, 35, 3, 5, 33, 3, 5]);
}

/// RFC 4340 section 6.6.8: features have length limitations; a Confirm of another length resets.
#[test]
fn a_value_of_another_length_is_invalid() {
    let mut features = Features::new(true, &Settings { sequence_window: 200, ..tfrc() });
    features.handle_change(3, Location::Remote, &[200], false).unwrap();
    features.handle_change(5, Location::Remote, &[0, 0, 3], false).unwrap();
    assert_eq!(features.confirms, [35, 3, 3, 35, 3, 5]);
    features.emit(Time::from_secs(1), Seq::new(1), false, false, &mut Vec::new());
    let confirm = |features: &mut Features, values: &[u8]| {
        features.handle_confirm(3, Location::Local, values, Some(Seq::new(1)))
    };
    let reset = confirm(&mut features, &[0, 200]).unwrap_err();
    assert_eq!(reset.code, ResetCode::OptionError);
    assert_eq!(confirm(&mut features, &[0, 0, 0, 0, 0, 200]), Ok(()));
    assert_eq!(features.local_window(), 200);
}

/// RFC 4340 sections 6.3.2, 7.5.2 and 11.3.
#[test]
fn the_location_sets_a_non_negotiable_feature() {
    let wide = Settings { sequence_window: 1000, ..Settings::default() };
    let (mut c, mut s) = negotiate(&wide, &Settings::default()).unwrap();
    assert_eq!(s.get(Feature::SequenceWindow, Location::Remote), 1000);
    assert_eq!((c.local_window(), s.local_window()), (1000, 100));
    s.set(Feature::AckRatio, 7);
    assert!(s.wants_packet());
    pass(&mut s, &mut c, 4).unwrap();
    assert_eq!(c.get(Feature::AckRatio, Location::Remote), 7);
    assert!(s.is_changing(Feature::AckRatio, Location::Local));
    pass(&mut c, &mut s, 5).unwrap();
    assert_eq!(s.get(Feature::AckRatio, Location::Local), 7);
    s.set(Feature::AckRatio, 0);
    assert!(!s.is_changing(Feature::AckRatio, Location::Local), "not a value of the feature");
}

/// RFC 4340 sections 7.6.1, 9.2.1, 9.3 and 12.1.
#[test]
fn each_setting_has_its_feature() {
    let all = Settings {
        short_seqnos: true,
        ecn: false,
        ndp_count: true,
        coverage: 5,
        min_coverage: 2,
        data_checksum: true,
        loss_event_rate: true,
        ..tfrc()
    };
    let (c, _) = negotiate(&all, &all).unwrap();
    for location in [Location::Local, Location::Remote] {
        for feature in [
            Feature::AllowShortSeqnos,
            Feature::EcnIncapable,
            Feature::SendNdpCount,
            Feature::CheckDataChecksum,
            Feature::SendLossEventRate,
        ] {
            assert_eq!(c.get(feature, location), 1, "{feature:?}");
        }
        assert_eq!(c.get(Feature::MinChecksumCoverage, location), 2);
        assert_eq!(c.get(Feature::SendAckVector, location), 0);
    }
    let (c, _) = negotiate(&all, &tfrc()).unwrap();
    assert_eq!(c.get(Feature::AllowShortSeqnos, Location::Local), 0, "the server does not want it");
    assert_eq!(c.get(Feature::MinChecksumCoverage, Location::Remote), 0);
    assert_eq!(c.get(Feature::EcnIncapable, Location::Local), 1);
    assert_eq!(c.get(Feature::EcnIncapable, Location::Remote), 0);
}

/// RFC 4340 section 6.6.3: a Change is sent again, ever less often, and in the end given up.
#[test]
fn a_change_is_sent_again_until_it_is_given_up() {
    let mut features = Features::new(false, &tfrc());
    let mut now = Time::from_secs(100);
    let mut waits = Vec::new();
    for seq in 0..20 {
        let mut out = Vec::new();
        features.emit(now, Seq::new(seq), false, false, &mut out);
        let Some(at) = features.deadline() else { break };
        waits.push((at - now).as_secs());
        now = at;
        features.timeout();
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
    assert!(features.abandoned > 0 && !features.wants_packet());
}

/// A peer that refuses a value is not asked for it again and again.
#[test]
fn a_refused_value_is_not_asked_for_again() {
    let mut features = Features::new(false, &Settings::default());
    features.set(Feature::AckRatio, 4);
    features.emit(Time::ZERO, Seq::new(5), true, false, &mut Vec::new());
    for number in [5, 6] {
        let location = if number == 5 { Location::Local } else { Location::Remote };
        features.handle_confirm(number, location, &[], Some(Seq::new(5))).unwrap();
    }
    features.set(Feature::AckRatio, 8);
    features.change(Feature::SendAckVector, Location::Remote);
    assert!(!features.wants_packet());
    assert_eq!(features.get(Feature::AckRatio, Location::Local), 2);
}

/// RFC 4340 section 6.6.8: a Confirm that disagrees resets the connection; one that answers no Change
/// or an earlier one is ignored.
#[test]
fn a_wrong_confirm_resets() {
    let ack = |n| Some(Seq::new(n));
    let mut features = Features::new(false, &tfrc());
    assert_eq!(
        features.handle_confirm(1, Location::Local, &[9, 9], ack(5)),
        Ok(()),
        "nothing was sent"
    );
    features.emit(Time::ZERO, Seq::new(5), true, false, &mut Vec::new());
    assert_eq!(features.handle_confirm(1, Location::Local, &[9, 9], ack(4)), Ok(()), "too old");
    assert_eq!(
        features.handle_confirm(2, Location::Local, &[1, 1], ack(5)),
        Ok(()),
        "not changing"
    );
    let wrong = features.handle_confirm(1, Location::Local, &[3, 2, 3], ack(5));
    assert_eq!(wrong.map_err(|r| r.data), Err([35, 1, 3]));
    assert_eq!(features.handle_confirm(1, Location::Local, &[2, 2, 3], ack(5)), Ok(()));
    assert_eq!(features.get(Feature::Ccid, Location::Local), 2);
}

proptest! {
    #[test]
    fn any_options_are_handled_within_bounds(
        options in proptest::collection::vec(
            (any::<u8>(), any::<bool>(), any::<bool>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20)), 0..100),
    ) {
        let mut features = Features::new(true, &tfrc());
        features.emit(Time::ZERO, Seq::new(1), true, false, &mut Vec::new());
        for (number, local, change, mandatory, values) in options {
            let location = if local { Location::Local } else { Location::Remote };
            let number = if number % 3 == 0 { number } else { number % 11 };
            if change {
                let _ = features.handle_change(number, location, &values, mandatory);
            } else {
                let _ = features.handle_confirm(number, location, &values, Some(Seq::new(2)));
            }
            prop_assert!(features.confirms.len() < MAX_CONFIRMS + 32);
            for feature in ALL {
                for location in [Location::Local, Location::Remote] {
                    prop_assert!(feature.allows(features.get(feature, location)));
                }
            }
        }
    }
}

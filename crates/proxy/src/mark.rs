//! Dialog marks: the user part of our Record-Route, bound to its dialog.
//!
//! A request with a valid mark needs no credentials, because the proxy has been in the path of its dialog from the
//! beginning. So a mark is a MAC over all that identifies the dialog: Call-ID, the tags, the flow token beside it, its
//! side, the time, and the target of the requests of that side. It needs no table. The callee's mark is written into
//! the request, when only the caller's tag is known. The caller's mark replaces it in the responses, when both are
//! known (RFC 3261 section 16.7 item 8 allows a proxy to change its own Record-Route value).
//!
//! Nodes of a cluster share the keys of marks. A mark under such a key is one for the address of its Record-Route value, so that
//! it is of use at another node only if that takes over the address: elsewhere nobody knows whether the dialog has ended.
//!
//! It also has a hash of the router of the mesh behind which each party was, so that a party that moves to another one is
//! noticed: see `follow` in `core/dialogs.rs`.
//!
//! The target is a hash of its own, so that a party that moves by a target refresh (RFC 3261 section 12.2) can be
//! followed: see `refresh_target` in `core/dialogs.rs`.

use crate::keys::Keyring;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringway_sansio::{Duration, Time};
use ringway_sip::uri::{self, Uri};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// Side, time, routers, target and MAC.
const RAW: usize = AT_TARGET + TARGET + MAC;
const AT_ROUTERS: usize = 1 + 4;
const AT_TARGET: usize = AT_ROUTERS + 3;
/// The flag of the side of a mark whose target is verified.
const VERIFIED: u8 = 0x80;
const TARGET: usize = 5;
const MAC: usize = 8;

/// The length of a mark in characters of base64url.
pub const MARK_LEN: usize = RAW / 3 * 4;

/// The lifetime of a mark. Calls are shorter; a longer subscription is asked for credentials once.
pub const MAX_DIALOG: Duration = Duration::from_secs(7 * 24 * 3600);

/// The lifetime of the caller's mark in a provisional response.
pub const MAX_EARLY: Duration = Duration::from_secs(3600);

/// The maximum lead of the clock of the node that made a mark.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// A hash of the target of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetHash([u8; TARGET]);

impl TargetHash {
    /// Returns the hash as bytes, for a key of a table.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A hash of the router of the mesh behind which a party hangs, in 12 bits. Of 4,095 moves to another router one is not
/// noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterHash(u16);

impl RouterHash {
    /// The party hangs on this server.
    pub const HERE: RouterHash = RouterHash(0);
}

/// The owner of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The callee, in the request that began the dialog.
    Callee,
    /// The caller, in a provisional response.
    EarlyCaller,
    /// The caller, in a 2xx.
    Caller,
}

impl Side {
    const ALL: [Side; 3] = [Side::Callee, Side::EarlyCaller, Side::Caller];

    fn lifetime(self) -> Duration {
        match self {
            Side::EarlyCaller => MAX_EARLY,
            Side::Callee | Side::Caller => MAX_DIALOG,
        }
    }
}

/// The identity of a dialog, from the view of the request that began it.
#[derive(Clone, Copy, Debug)]
pub struct DialogId<'a> {
    /// Call-ID.
    pub call_id: &'a [u8],
    /// Tag of the From of that request.
    pub caller_tag: &'a [u8],
    /// Tag of the To of its response; empty in a mark for the callee, which had none yet.
    pub callee_tag: &'a [u8],
}

/// What stands beside a mark in its Record-Route value.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The flow token, or nothing.
    pub token: &'a [u8],
    /// The address; `None` if it is a name, which no value of ours has.
    pub address: Option<SocketAddr>,
}

/// Which key of [`Marks`] makes a mark and the hashes in it. It is valid until the keys change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkKey(u8);

impl MarkKey {
    /// That of new marks.
    pub const NEW: MarkKey = MarkKey(0);
    /// That of this server alone, which never changes, for keys of tables.
    pub const OWN: MarkKey = MarkKey(u8::MAX);
}

/// A valid mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The key that it is made with, which those after it in the dialog have too: hashes under different keys do not compare.
    pub key: MarkKey,
    /// The owner of the mark.
    pub side: Side,
    /// The time at which the dialog began, in whole seconds.
    pub began: Time,
    /// The target of its requests.
    pub target: TargetHash,
    /// Whether the party really is at the target: it sent from there, or the proxy itself led there.
    pub verified: bool,
    /// The router behind which the caller was.
    pub caller_at: RouterHash,
    /// The router behind which the callee was.
    pub callee_at: RouterHash,
}

impl Mark {
    /// Returns the router behind which a party was.
    pub fn router_of(&self, caller: bool) -> RouterHash {
        if caller { self.caller_at } else { self.callee_at }
    }
}

/// Makes and checks marks.
#[derive(Clone, Debug)]
pub struct Marks {
    keys: Keyring<[u8; 16]>,
    own: [u8; 16],
}

impl Marks {
    /// Returns the marks of `keys`. They and `own`, the key of this server alone, must be random and secret.
    pub const fn new(keys: Keyring<[u8; 16]>, own: [u8; 16]) -> Marks {
        Marks { keys, own }
    }

    fn key(&self, key: MarkKey) -> &[u8; 16] {
        match key {
            MarkKey::NEW => &self.keys.new,
            MarkKey(index) => self.keys.others.get(usize::from(index) - 1).unwrap_or(&self.own),
        }
    }

    fn hasher(&self, key: MarkKey) -> SipHasher13 {
        SipHasher13::new_with_key(self.key(key))
    }

    /// Returns the hash of the router of a message; `None` is no router.
    pub fn router(&self, key: MarkKey, router: Option<IpAddr>) -> RouterHash {
        let Some(router) = router else { return RouterHash::HERE };
        let mut h = self.hasher(key);
        crate::shared::hash_ip(&mut h, router);
        RouterHash((h.finish() % 0xfff) as u16 + 1)
    }

    /// Returns the hash of a target: of user, host and port of a URI, as RFC 3261 section 19.1.4 compares them. The
    /// parameters of a Request-URI may differ from those of the Contact it was made from.
    pub fn target(&self, key: MarkKey, uri: &[u8]) -> TargetHash {
        let parsed = Uri::parse(uri).ok();
        let ip = parsed.as_ref().and_then(Uri::host_ip);
        self.target_of(key, uri, parsed.as_ref(), ip)
    }

    /// Returns the same for a parsed URI, with its host as an address.
    pub(crate) fn target_of(
        &self,
        key: MarkKey,
        uri: &[u8],
        parsed: Option<&Uri<'_>>,
        ip: Option<IpAddr>,
    ) -> TargetHash {
        let mut h = self.hasher(key);
        match parsed {
            Some(uri) if uri.is_sip() => {
                if let Some(ip) = ip {
                    crate::shared::hash_ip(&mut h, ip);
                }
                let user = uri.user.unwrap_or_default();
                if user.contains(&b'%') {
                    let mut plain = Vec::with_capacity(user.len());
                    uri::unescape_into(user, &mut plain);
                    h.write(&plain);
                } else {
                    h.write(user);
                }
                h.write_u8(b'@');
                if ip.is_none() {
                    h.write(&uri.host.to_ascii_lowercase());
                }
                h.write_u16(uri.port.unwrap_or(0));
            }
            _ => h.write(uri),
        }
        let mut hash = [0; TARGET];
        hash.copy_from_slice(&h.finish().to_be_bytes()[..TARGET]);
        TargetHash(hash)
    }

    /// Returns the mark of a dialog, in characters of base64url.
    pub fn text(&self, mark: &Mark, dialog: &DialogId<'_>, beside: &Beside<'_>) -> [u8; MARK_LEN] {
        let mut raw = [0; RAW];
        raw[0] = mark.side as u8 | if mark.verified { VERIFIED } else { 0 };
        raw[1..5].copy_from_slice(&seconds(mark.began).to_be_bytes());
        let routers = u32::from(mark.caller_at.0) << 12 | u32::from(mark.callee_at.0);
        raw[AT_ROUTERS..AT_TARGET].copy_from_slice(&routers.to_be_bytes()[1..]);
        raw[AT_TARGET..AT_TARGET + TARGET].copy_from_slice(&mark.target.0);
        let mac = self.mac(mark.key, &raw[..RAW - MAC], dialog, beside);
        raw[RAW - MAC..].copy_from_slice(&mac);
        let mut text = [0; MARK_LEN];
        // The buffer is as long as the text, so encoding cannot fail.
        let _ = URL_SAFE_NO_PAD.encode_slice(raw, &mut text);
        text
    }

    /// Reads a mark; `None` if it is not one of ours for this dialog, or has expired.
    /// `dialog` returns the identity of the dialog for a mark of a side.
    pub fn read<'a>(
        &self,
        text: &[u8],
        beside: &Beside<'_>,
        now: Time,
        dialog: impl FnOnce(Side) -> DialogId<'a>,
    ) -> Option<Mark> {
        let mut raw = [0; RAW];
        if text.len() != MARK_LEN || URL_SAFE_NO_PAD.decode_slice(text, &mut raw) != Ok(RAW) {
            return None;
        }
        let side = *Side::ALL.get(usize::from(raw[0] & !VERIFIED))?;
        let dialog = dialog(side);
        let made_it = |key: &MarkKey| {
            let mac = self.mac(*key, &raw[..RAW - MAC], &dialog, beside);
            bool::from(mac.ct_eq(&raw[RAW - MAC..]))
        };
        let key = (0..=self.keys.others.len() as u8).map(MarkKey).find(made_it)?;
        let began = Time::from_secs(u32::from_be_bytes([raw[1], raw[2], raw[3], raw[4]]).into());
        let mut target = [0; TARGET];
        target.copy_from_slice(&raw[AT_TARGET..AT_TARGET + TARGET]);
        let routers = u32::from_be_bytes([0, raw[5], raw[6], raw[7]]);
        let caller_at = RouterHash((routers >> 12) as u16);
        let callee_at = RouterHash((routers & 0xfff) as u16);
        let fresh = now + MAX_SKEW >= began && now.since(began) < side.lifetime();
        let verified = raw[0] & VERIFIED != 0;
        let target = TargetHash(target);
        fresh.then_some(Mark { key, side, began, target, verified, caller_at, callee_at })
    }

    fn mac(
        &self,
        key: MarkKey,
        bytes: &[u8],
        dialog: &DialogId<'_>,
        beside: &Beside<'_>,
    ) -> [u8; MAC] {
        let mut h = self.hasher(key);
        h.write(bytes);
        // Each field is ended by an octet that it cannot contain, so that no two of them merge.
        for field in [dialog.call_id, dialog.caller_tag, dialog.callee_tag, beside.token] {
            h.write(field);
            h.write_u8(b'\n');
        }
        if *self.key(key) != self.own
            && let Some(address) = beside.address
        {
            crate::shared::hash_ip(&mut h, address.ip());
            h.write_u16(address.port());
        }
        h.finish().to_be_bytes()
    }
}

fn seconds(time: Time) -> u32 {
    (time.as_nanos() / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_secs(1_700_000_000);
    const DIALOG: DialogId<'_> = DialogId { call_id: b"call", caller_tag: b"a", callee_tag: b"b" };

    const ROUTER: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 1));

    fn beside(token: &[u8]) -> Beside<'_> {
        Beside { token, address: Some(([192, 0, 2, 1], 5060).into()) }
    }

    fn marks() -> Marks {
        Marks::new(Keyring::of([5; 16]), [5; 16])
    }

    fn text(side: Side) -> Vec<u8> {
        let target = marks().target(MarkKey::NEW, b"sip:a@192.0.2.1");
        marks().text(&mark(side, target), &DIALOG, &beside(b"token")).to_vec()
    }

    fn mark(side: Side, target: TargetHash) -> Mark {
        let (caller_at, callee_at) = (RouterHash::HERE, marks().router(MarkKey::NEW, Some(ROUTER)));
        Mark { key: MarkKey::NEW, side, began: NOW, target, verified: false, caller_at, callee_at }
    }

    #[test]
    fn a_mark_holds_for_its_dialog_token_and_time() {
        for side in Side::ALL {
            let text = text(side);
            assert_eq!(text.len(), MARK_LEN);
            let mark = marks().read(&text, &beside(b"token"), NOW, |_| DIALOG).unwrap();
            assert_eq!(mark, self::mark(side, mark.target));
            assert_eq!(mark.router_of(true), marks().router(MarkKey::NEW, None));
            assert_eq!(mark.router_of(false), marks().router(MarkKey::NEW, Some(ROUTER)));
            let others = [
                DialogId { call_id: b"other", ..DIALOG },
                DialogId { caller_tag: b"b", callee_tag: b"a", ..DIALOG },
                DialogId { callee_tag: b"", ..DIALOG },
                DialogId { call_id: b"call\na", caller_tag: b"", ..DIALOG },
            ];
            for other in others {
                assert_eq!(marks().read(&text, &beside(b"token"), NOW, |_| other), None);
            }
            assert_eq!(marks().read(&text, &beside(b""), NOW, |_| DIALOG), None);
            assert_eq!(
                Marks::new(Keyring::of([6; 16]), [6; 16]).read(
                    &text,
                    &beside(b"token"),
                    NOW,
                    |_| DIALOG
                ),
                None
            );
            let at = |time| marks().read(&text, &beside(b"token"), time, |_| DIALOG).is_some();
            assert!(!at(NOW + side.lifetime()));
            assert!(at(NOW + side.lifetime() / 2));
            assert!(!at(Time::from_secs(1_700_000_000 - 61)), "from the future");
        }
    }

    /// Where else the dialog may have ended, nobody knows.
    #[test]
    fn a_mark_under_a_shared_key_is_for_its_address() {
        let other = Beside { address: Some(([192, 0, 2, 2], 5060).into()), ..beside(b"") };
        let named = Beside { address: None, ..other };
        for (own, anywhere) in [([5; 16], true), ([6; 16], false)] {
            let marks = Marks::new(Keyring::of([5; 16]), own);
            let text = marks.text(
                &mark(Side::Caller, marks.target(MarkKey::NEW, b"sip:a@192.0.2.9")),
                &DIALOG,
                &beside(b""),
            );
            let read = |beside: &Beside<'_>| marks.read(&text, beside, NOW, |_| DIALOG).is_some();
            assert!(read(&beside(b"")));
            assert_eq!((read(&other), read(&named)), (anywhere, anywhere));
        }
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let good = text(Side::Caller);
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] = if bad[i] == b'A' { b'Q' } else { b'A' };
            assert_eq!(
                marks().read(&bad, &beside(b"token"), NOW, |_| DIALOG),
                None,
                "character {i}"
            );
        }
    }

    /// RFC 3261 section 19.1.4, as far as targets are compared.
    #[test]
    fn targets_compare_by_user_host_and_port() {
        let target = |uri: &str| marks().target(MarkKey::NEW, uri.as_bytes());
        let same =
            ["sip:a%61@EXAMPLE.org;transport=tcp", "sip:aa@example.org", "sips:aa@example.org"];
        assert!(same.iter().all(|uri| target(uri) == target(same[0])));
        assert_eq!(target("sip:a@[::ffff:192.0.2.1]"), target("sip:a@192.0.2.1"));
        for other in
            ["sip:aa@example.org:5061", "sip:AA@example.org", "sip:aa@example.com", "tel:aa"]
        {
            assert_ne!(target(other), target(same[0]), "{other}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(marks().read(&text, &beside(b""), NOW, |_| DIALOG), None);
        }
    }
}

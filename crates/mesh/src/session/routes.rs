//! What becomes of sessions when links and routes fail.

use super::Sessions;
use super::peer::{Path, Session};
use crate::crypto::Crypto;
use crate::routes::Detour;
use crate::wire::Slot;

impl<C: Crypto> Sessions<C> {
    /// Returns the sessions by which packets are sent, or will be.
    fn in_use(&mut self) -> impl Iterator<Item = &mut Session<C::Keys>> {
        self.peers.values_mut().flat_map(|peer| peer.session.iter_mut().chain(&mut peer.next))
    }

    /// A route with this mark is broken. Returns whether it was one of a session.
    pub fn broken(&mut self, mark: u32, entered: Slot) -> bool {
        let sessions = self.in_use();
        let mut broken = false;
        for session in sessions {
            if session.path.mark == mark && session.path.route.first == entered {
                session.break_route();
                broken = true;
            }
        }
        broken
    }

    /// A packet was not forwarded: `quoted` is from it. Where it was too long for a link, `mtu` is what passes there;
    /// otherwise the route is broken.
    pub fn failed(&mut self, quoted: u64, entered: Slot, mtu: Option<u16>) {
        for session in self.in_use() {
            let is_by = session.path.route.first == entered;
            let is_it = u64::from(session.remote) == quoted >> 32 && is_by;
            if is_it && session.has_sent((quoted & 0xffff_ffff) as u32) {
                match mtu {
                    Some(mtu) => session.lower_mtu(mtu),
                    None => session.break_route(),
                }
            }
        }
    }

    /// A link carries nothing, and there is a way round it, of which the first link takes packets of `mtu` octets. It
    /// serves until another route is found.
    pub fn detour(&mut self, slot: Slot, detour: Detour, mtu: u16) {
        let sessions = self.in_use();
        for session in sessions.filter(|session| session.path.route.first == slot) {
            let route = detour.redirect(&session.path.route);
            let path = route.map(|route| {
                let path = session.path.clone();
                Path { route, mtu: path.mtu.min(mtu), ..path }
            });
            match path.filter(Path::is_wide) {
                Some(path) => {
                    session.follow(path);
                    session.renew();
                }
                None => session.break_route(),
            }
        }
    }

    /// A route with this mark has become longer: another is looked for while it serves.
    pub fn detoured(&mut self, mark: u32, entered: Slot) {
        let sessions = self.in_use();
        let is_it = |session: &&mut Session<C::Keys>| {
            session.path.mark == mark && session.path.route.first == entered
        };
        sessions.filter(is_it).for_each(Session::renew);
    }

    /// A link is down: what went by it goes by another.
    pub fn link_down(&mut self, slot: Slot) {
        for session in self.in_use() {
            if session.path.route.first == slot {
                session.break_route();
            }
        }
    }
}

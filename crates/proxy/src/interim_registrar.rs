//! STUB
use crate::location::*;
use ringway_sansio::*;
use ringway_sip::Message;
/// c
#[derive(Clone, Debug, Default)]
pub struct RegistrarConfig {}
/// r
pub struct Registrar;
/// x
pub struct Registered {
    /// s
    pub status: u16,
    /// s
    pub reason: &'static str,
    /// s
    pub commit: Commit,
    /// s
    pub changed: bool,
}
impl Registrar {
    /// n
    pub fn new(_: RegistrarConfig, _: &[u8; 32]) -> Self {
        Registrar
    }
    /// n
    pub fn reconfigure(&mut self, _: RegistrarConfig) {}
    /// n
    pub fn register(
        &mut self,
        now: Time,
        flow: &Flow,
        request: &Message<'_>,
        aor: &[u8],
        tag: CommitTag,
        store: &dyn LocationStore,
        _random: &mut dyn Random,
        headers: &mut Vec<u8>,
    ) -> Registered {
        let c = request.items(ringway_sip::HeaderId::Contact).next().unwrap();
        let na = ringway_sip::NameAddr::parse(c).unwrap();
        store.update(aor, now, tag, &mut |e| {
            let _ = e.put(&BindingView {
                contact: na.uri,
                params: b"",
                q: 1000,
                expires: now + Duration::from_secs(3600),
                path: b"",
                instance: b"",
                reg_id: 0,
                flow: Some(*flow),
                call_id: request.call_id(),
                cseq: 1,
                outbound: false,
                epoch: 0,
                first_cseq: 0,
                nat: false,
            });
            e.commit();
        });
        let _ = headers;
        Registered { status: 200, reason: "OK", commit: Commit::Done, changed: true }
    }
}

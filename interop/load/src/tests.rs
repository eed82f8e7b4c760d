//! The instrument itself under test: both ends through a proxy made of text, where every fault can
//! be put in; and whole runs through the floor over real sockets.

use std::net::SocketAddr;
use std::thread;

use clap::Parser;

use crate::call::{Calls, Parties, Rules};
use crate::clock::{MILLISECOND, SECOND};
use crate::compose::Composer;
use crate::drive::{Home, Play};
use crate::floor;
use crate::port::{Incoming, Local, Outgoing, Transport};
use crate::registration::{Registrations, Terms};
use crate::tally::{Fault, Step};
use crate::target::Target;
use crate::udp::Socket;

const RULES: Rules = Rules {
    hold: 0,
    timeout: 4 * SECOND,
    late: SECOND / 2,
    retransmit: false,
    reliable: false,
    floor: false,
};

fn local() -> Local {
    Local::new(0, "127.0.0.1:4000".parse().unwrap(), Transport::Udp)
}

/// What the text proxy does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    Lose(&'static str),
    Double(&'static str),
    NoRecordRoute,
    KeepVia,
    KeepMaxForwards,
    KeepUri,
    Refuse,
}

/// One call through a proxy that only edits text.
struct Bench {
    calls: Calls,
    local: Local,
    out: Outgoing,
    wrong: Wrong,
    now: u64,
    sent: Vec<String>,
}

impl Bench {
    fn new(rules: Rules, wrong: Wrong) -> Self {
        let calls = Calls::new(rules, Composer::new("example.org", 7, 0, false));
        Self { calls, local: local(), out: Outgoing::default(), wrong, now: SECOND, sent: vec![] }
    }

    fn call(&mut self) {
        let parties = Parties { caller: 1, callee: 2, callee_port: 0 };
        self.calls.start(self.now, true, parties, &self.local, &mut self.out);
        self.carry();
    }

    /// Carries messages between the ends until nobody says more.
    fn carry(&mut self) {
        loop {
            let messages = self.out.drain();
            if messages.is_empty() {
                break;
            }
            for message in messages {
                self.sent.push(message.clone());
                for through in self.proxy(&message) {
                    let incoming = Incoming { bytes: through.as_bytes(), at: 5, truncated: false };
                    self.calls.message(self.now, &incoming, &self.local, &mut self.out);
                }
            }
        }
    }

    fn proxy(&self, message: &str) -> Vec<String> {
        let name = name_of(message);
        let mut out = match self.wrong {
            Wrong::Lose(what) if what == name => return vec![],
            Wrong::Refuse if name == "INVITE" => return vec![answer(message, "503 Overloaded")],
            _ if message.starts_with("SIP/2.0 ") => vec![self.back(message)],
            _ => vec![self.forth(message)],
        };
        if matches!(self.wrong, Wrong::Double(what) if what == name) {
            out.push(out[0].clone());
        }
        if name == "INVITE" && self.wrong != Wrong::Lose("100") {
            out.insert(0, answer(message, "100 Trying"));
        }
        out
    }

    fn back(&self, message: &str) -> String {
        if self.wrong == Wrong::KeepVia {
            return message.into();
        }
        let start = message.find("Via: ").unwrap();
        let end = start + message[start..].find("\r\n").unwrap() + 2;
        format!("{}{}", &message[..start], &message[end..])
    }

    fn forth(&self, message: &str) -> String {
        let invite = message.starts_with("INVITE");
        let route = if invite && self.wrong != Wrong::NoRecordRoute {
            "Record-Route: <sip:127.0.0.1:5060;lr>\r\n"
        } else {
            ""
        };
        let via = format!("{route}Via: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKp\r\nVia: ");
        let mut text = message.replacen("Via: ", &via, 1);
        if self.wrong != Wrong::KeepMaxForwards {
            text = text.replace("Max-Forwards: 70", "Max-Forwards: 69");
        }
        if invite && self.wrong != Wrong::KeepUri {
            text = text.replacen("INVITE sip:u2@example.org", "INVITE sip:u2@127.0.0.1:4000", 1);
        }
        text
    }
}

/// Method or status, and of a response to BYE both.
fn name_of(message: &str) -> &str {
    match message.strip_prefix("SIP/2.0 ") {
        Some(_) if message.contains("\r\nCSeq: 2 BYE") => "BYE 200",
        Some(rest) => &rest[..3],
        None => message.split(' ').next().unwrap(),
    }
}

fn answer(request: &str, status: &str) -> String {
    let mut text = format!("SIP/2.0 {status}\r\n");
    for line in request.split("\r\n").skip(1) {
        let copied = ["Via:", "From:", "To:", "Call-ID:", "CSeq:", "Contact:"];
        if copied.iter().any(|name| line.starts_with(name)) {
            text += &format!("{line}\r\n");
        }
    }
    text + "Content-Length: 0\r\n\r\n"
}

/// RFC 3261 section 12.2.1.1: ACK and BYE go to the contact along the recorded route.
#[test]
fn a_call_through_a_correct_proxy_is_clean() {
    let mut bench = Bench::new(RULES, Wrong::Nothing);
    bench.call();
    assert!(bench.calls.tally.clean());
    assert_eq!(bench.calls.active(), 0);
    let names: Vec<_> = bench.sent.iter().map(|m| name_of(m)).collect();
    assert_eq!(names, ["INVITE", "180", "200", "ACK", "BYE", "BYE 200"]);
    for request in &bench.sent[3..5] {
        assert!(request.contains(" sip:u2@127.0.0.1:4000 SIP/2.0\r\n"), "{request}");
        assert!(request.contains("\r\nRoute: <sip:127.0.0.1:5060;lr>\r\n"), "{request}");
        assert!(request.contains("To: <sip:u2@example.org>;tag=u"), "{request}");
    }
}

#[test]
fn every_lost_message_fails_the_call_with_its_name() {
    for (lost, step) in [
        ("INVITE", Step::Invite),
        ("100", Step::Trying),
        ("180", Step::Ringing),
        ("200", Step::Ok),
        ("ACK", Step::Ack),
        ("BYE", Step::Bye),
        ("BYE 200", Step::ByeOk),
    ] {
        let mut bench = Bench::new(RULES, Wrong::Lose(lost));
        bench.call();
        bench.calls.tick(bench.now + 3 * SECOND, &mut []);
        assert_eq!(bench.calls.active(), 1, "{lost}");
        bench.calls.tick(bench.now + 5 * SECOND, &mut []);
        assert_eq!(bench.calls.active(), 0, "{lost}");
        let mut expected = [0; 7];
        expected[step as usize] = 1;
        assert_eq!(bench.calls.tally.failed, expected, "{lost}");
        assert!(!bench.calls.tally.clean(), "{lost}");
    }
}

#[test]
fn a_repeated_message_is_counted_even_when_the_call_completes() {
    for (double, step) in
        [("INVITE", Step::Invite), ("180", Step::Ringing), ("200", Step::Ok), ("ACK", Step::Ack)]
    {
        let mut bench = Bench::new(RULES, Wrong::Double(double));
        bench.call();
        let tally = &bench.calls.tally;
        assert_eq!(tally.completed, 1, "{double}");
        assert!(tally.repeated[step as usize] > 0, "{double}");
        assert!(!tally.clean(), "{double}");
    }
    let mut bench = Bench::new(RULES, Wrong::Double("BYE 200"));
    bench.call();
    assert_eq!((bench.calls.tally.completed, bench.calls.tally.stray), (1, 1));
}

#[test]
fn what_a_proxy_must_do_is_checked() {
    for (wrong, fault) in [
        (Wrong::NoRecordRoute, Fault::NoRecordRoute),
        (Wrong::KeepVia, Fault::Via),
        (Wrong::KeepMaxForwards, Fault::MaxForwards),
        (Wrong::KeepUri, Fault::RequestUri),
    ] {
        let mut bench = Bench::new(RULES, wrong);
        bench.call();
        assert!(bench.calls.tally.faults[fault as usize] > 0, "{fault:?}");
        assert!(!bench.calls.tally.clean(), "{fault:?}");
    }
}

/// RFC 3261 section 17.1.1.3: the ACK of a refusal has the INVITE's branch and URI.
#[test]
fn a_refusal_is_counted_and_acknowledged() {
    let mut bench = Bench::new(RULES, Wrong::Refuse);
    bench.call();
    assert_eq!(bench.calls.tally.rejected.get(&503), Some(&1));
    assert_eq!(bench.calls.tally.completed, 0);
    let ack = &bench.sent[1];
    assert!(ack.starts_with("ACK sip:u2@example.org SIP/2.0\r\n"), "{ack}");
    let branch = |m: &str| m.split("branch=").nth(1).unwrap()[..22].to_owned();
    assert_eq!(branch(ack), branch(&bench.sent[0]));
}

#[test]
fn the_bye_waits_for_the_hold_time() {
    let mut bench = Bench::new(Rules { hold: SECOND, ..RULES }, Wrong::Nothing);
    bench.call();
    assert_eq!(bench.sent.len(), 4, "no BYE yet");
    assert_eq!(bench.calls.next(), Some(bench.now + SECOND));
    let mut ports = [udp_port()];
    bench.calls.tick(bench.now + SECOND, &mut ports);
    bench.out = std::mem::take(&mut ports[0].out);
    bench.carry();
    assert!(bench.calls.tally.clean());
}

/// RFC 3261 section 17.1.1.2: an INVITE nobody answers is sent again after 0.5, 1.5, 3.5 s.
#[test]
fn an_unanswered_invite_is_sent_again_by_timer_a() {
    let rules = Rules { retransmit: true, ..RULES };
    let mut bench = Bench::new(rules, Wrong::Lose("INVITE"));
    bench.call();
    let mut ports = [udp_port()];
    let mut times = Vec::new();
    for step in 0..80 {
        let now = bench.now + step * 50 * MILLISECOND;
        bench.calls.tick(now, &mut ports);
        for message in ports[0].out.drain() {
            assert_eq!(message, bench.sent[0]);
            times.push((now - bench.now) / MILLISECOND);
        }
    }
    assert_eq!(times, [500, 1_500, 3_500]);
}

/// RFC 3261 sections 17.1.1.2 and 13.3.1.4: over a reliable transport a request is sent once, but
/// the 200 is still repeated until its ACK comes.
#[test]
fn over_a_reliable_transport_only_the_200_is_repeated() {
    let rules = Rules { retransmit: true, reliable: true, ..RULES };
    for (lost, repeated) in [("INVITE", 0), ("200", 3), ("BYE", 0)] {
        let mut bench = Bench::new(rules, Wrong::Lose(lost));
        bench.call();
        let mut ports = [udp_port()];
        let mut count = 0;
        for step in 0..80 {
            bench.calls.tick(bench.now + step * 50 * MILLISECOND, &mut ports);
            count += ports[0].out.drain().len();
        }
        assert_eq!(count, repeated, "{lost}");
    }
}

fn udp_port() -> crate::port::Port {
    let server: SocketAddr = "127.0.0.1:9".parse().unwrap();
    crate::port::Port::connect(0, server, Transport::Udp, None).unwrap()
}

#[derive(Parser)]
struct Only {
    #[command(flatten)]
    target: Target,
}

fn target(server: SocketAddr, more: &[&str]) -> Target {
    let server = server.to_string();
    let fixed = ["test", "--server", &server, "--users", "8", "--ports", "2"];
    Only::parse_from(fixed.iter().chain(more)).target
}

fn registrar_side(more: &[&str]) -> Registrations {
    let target = target("127.0.0.1:5060".parse().unwrap(), more);
    let home = Home { contact: b"127.0.0.1:4000".to_vec(), port: 0, number: 4000 };
    Registrations::new(&target, 0, 7, &[home], Terms::setup(3_600))
}

fn tell(users: &mut Registrations, text: &str, out: &mut Outgoing) {
    let incoming = Incoming { bytes: text.as_bytes(), at: 9, truncated: false };
    users.message(SECOND, &incoming, &local(), out);
}

/// RFC 3261 section 10.2.4: a refresh keeps the Call-ID and raises the CSeq.
#[test]
fn a_refresh_keeps_its_call_id() {
    let mut users = registrar_side(&[]);
    let mut out = Outgoing::default();
    let mut field = Vec::new();
    for n in [3, 11] {
        users.launch(n, SECOND, true, &local(), &mut out);
        let sent = out.drain().remove(0);
        tell(&mut users, &answer(&sent, "200 OK"), &mut out);
        let line = |name| sent.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
        field.push((line("Call-ID:"), line("CSeq:"), line("To:")));
    }
    assert!(users.tally.clean());
    assert_eq!(field[0].0, field[1].0);
    assert_eq!(
        (field[0].1.as_str(), field[1].1.as_str()),
        ("CSeq: 1 REGISTER", "CSeq: 2 REGISTER")
    );
    assert_eq!(field[0].2, "To: <sip:u3@127.0.0.1>");
}

/// RFC 3261 section 10.3 step 8: the answer lists the bindings; one that does not is a fault.
#[test]
fn an_answer_without_the_contact_is_not_clean() {
    let mut users = registrar_side(&[]);
    let mut out = Outgoing::default();
    users.launch(3, SECOND, true, &local(), &mut out);
    let good = answer(&out.drain().remove(0), "200 OK");
    let line = good.lines().find(|l| l.starts_with("Contact:")).unwrap().to_owned() + "\r\n";
    tell(&mut users, &good.replace(&line, ""), &mut out);
    assert_eq!(users.tally.accepted, 1);
    assert_eq!(users.tally.faults[Fault::ContactMissing as usize], 1);
    assert!(!users.tally.clean());
}

#[test]
fn challenges_are_answered_and_the_nonce_is_used_again() {
    let mut users = registrar_side(&["--auth", "sha-256", "--password", "x"]);
    let mut out = Outgoing::default();
    users.launch(0, SECOND, true, &local(), &mut out);
    let first = out.drain().remove(0);
    let challenge = answer(&first, "401 Unauthorized").replacen(
        "Content-Length",
        "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", algorithm=MD5, qop=\"auth\"\r\n\
         WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", algorithm=SHA-256, qop=\"auth\"\r\n\
         Content-Length",
        1,
    );
    tell(&mut users, &challenge, &mut out);
    let second = out.drain().remove(0);
    assert!(second.contains("algorithm=SHA-256") && second.contains("nc=00000001"), "{second}");
    assert!(second.contains("CSeq: 2 REGISTER"), "{second}");
    tell(&mut users, &answer(&second, "200 OK"), &mut out);
    users.launch(8, SECOND, true, &local(), &mut out);
    let third = out.drain().remove(0);
    assert!(third.contains("nc=00000002"), "{third}");
    tell(&mut users, &answer(&third, "403 Forbidden"), &mut out);
    assert_eq!((users.tally.accepted, users.tally.challenged, users.active()), (1, 1, 0));
    assert_eq!(users.tally.refused.get(&403), Some(&1));
}

/// A run of the command itself through a floor on real sockets.
#[test]
fn runs_through_a_floor_are_clean_and_complete() {
    let socket = Socket::bound("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = socket.local().to_string();
    thread::spawn(move || floor::forward(&socket));
    let file = std::env::temp_dir().join(format!("ringway-load-test-{}", std::process::id()));
    let json = file.to_str().unwrap().to_owned();
    let common = ["--server", &server, "--floor", "--ports", "2", "--json", &json];
    let rate = ["--rate", "200", "--seconds", "0.5", "--warm-up", "0.1", "--workers", "2"];
    // How long a busy machine takes over it says nothing of the generator; and no user is asked for twice.
    let patient = ["--late-ms", "60000", "--timeout-ms", "60000", "--users", "240"];
    let timed = [&rate[..], &patient].concat();
    let report = |command: &str, more: &[&str]| {
        let words = ["ringway-load", command].into_iter().chain(common).chain(more.iter().copied());
        let done = crate::run(&crate::Arguments::parse_from(words).command).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        (done, serde_json::from_str::<serde_json::Value>(&text).unwrap())
    };
    let (clean, calls) = report("calls", &timed);
    assert!(clean, "{calls}");
    assert_eq!(calls["completed"], 120);
    assert_eq!(calls["delay_us"]["added"]["count"], 300, "three messages of each measured call");
    let (clean, register) = report("register", &timed);
    assert!(clean, "{register}");
    assert_eq!(register["accepted"], 120);
    let (done, fill) = report("fill", &["--window", "4", "--users", "8"]);
    assert!(done, "{fill}");
    assert_eq!(fill["accepted"], 8);
    std::fs::remove_file(&file).unwrap();
}

//! Connections and NATs: flows and flow tokens of RFC 5626, RFC 3581.

use crate::common::*;
use ringway_sansio::Target;

const INSTANCE: &str = "urn:uuid:00000000-0000-1000-8000-000a95a0e128";

/// RFC 5626 section 7: a request is sent over the flow the phone registered on.
#[test]
fn a_registered_connection_is_used() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@10.0.0.7:5060;transport=tcp").over(DAVE_TCP).outbound(INSTANCE, 1));
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let sent = w.expect_sent(DAVE_TCP, "MESSAGE sip:bob@10.0.0.7:5060;transport=tcp");
    assert_eq!(sent.to, Target::Flow(DAVE_TCP.flow(0)));
    w.answer(DAVE_TCP, &sent.msg, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 5626 section 7: for UDP, to the address and port the REGISTER came from.
#[test]
fn a_phone_behind_a_nat_is_reached_at_its_source() {
    let outside = BOB.at("203.0.113.2:33333");
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@10.0.0.7:5060").over(outside).nat());
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(outside, "INVITE sip:bob@10.0.0.7:5060");
    let ok = response(outside, &got, 200).set("Contact", "<sip:bob@10.0.0.7:5060>");
    w.from(outside, &ok);
    let ok = w.expect(ALICE, "200");
    // Section 5.3: the flow token leads later requests there too.
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    let branch = w.branch();
    w.from(ALICE, &caller.request("ACK", &branch));
    w.expect(outside, "ACK sip:bob@10.0.0.7:5060");
    let branch = w.branch();
    w.from(ALICE, &caller.request("BYE", &branch));
    let bye = w.expect(outside, "BYE sip:bob@10.0.0.7:5060");
    assert!(!bye.has("Route"));
    w.answer(outside, &bye, 200);
    w.expect(ALICE, "200 BYE");
    w.finish();
}

/// RFC 5626 section 5.3: a caller behind a NAT is reached within the dialog as well.
#[test]
fn a_caller_behind_a_nat_is_reached_within_the_dialog() {
    let outside = ALICE.at("198.51.100.1:44444");
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w
        .request(ALICE, "INVITE sip:bob@example.org")
        .set("Via", "SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKnat;rport")
        .set("Contact", "<sip:alice@10.0.0.5:5060>");
    w.from(outside, &invite);
    w.expect(outside, "100");
    let got = w.expect(BOB, "INVITE");
    // RFC 3581 section 4: source address and port are written down.
    assert_eq!(
        got.all("Via")[1],
        "SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKnat;received=198.51.100.1;rport=44444"
    );
    let ok = w.answer(BOB, &got, 200);
    w.expect(outside, "200");
    let mut callee = Dialog::of_callee(BOB, &got, &ok);
    let branch = w.branch();
    w.from(BOB, &callee.request("BYE", &branch));
    let bye = w.expect(outside, "BYE sip:alice@10.0.0.5:5060");
    w.answer(outside, &bye, 200);
    w.expect(BOB, "200 BYE");
    w.finish();
}

/// RFC 5626 section 5.3.1: a token of a flow that is gone is 430 where Outbound was negotiated, one that
/// was tampered with 403.
#[test]
fn tokens_of_lost_flows_and_forged_ones() {
    let mut w = World::new();
    let contact = "sip:bob@10.0.0.7;transport=tcp;ob";
    w.bind("bob", bind(contact).over(DAVE_TCP).outbound(INSTANCE, 1));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(DAVE_TCP, "INVITE");
    let ok = response(DAVE_TCP, &got, 200).set("Contact", format!("<{contact}>"));
    w.from(DAVE_TCP, &ok);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.break_flow(DAVE_TCP);
    let branch = w.branch();
    w.from(ALICE, &caller.request("INFO", &branch));
    w.expect(ALICE, "430");
    // One character of the token is another.
    for route in &mut caller.route {
        if route.contains('.') && route.len() > 60 {
            let other = if &route[5..6] == "A" { "B" } else { "A" };
            route.replace_range(5..6, other);
        }
    }
    let branch = w.branch();
    w.from(ALICE, &caller.request("INFO", &branch));
    w.expect(ALICE, "403");
    w.finish();
}

/// RFC 5626 section 7: of one instance only one flow is tried at a time; the next one after 430, 408
/// or a lost connection.
#[test]
fn one_flow_of_an_instance_at_a_time() {
    for failure in ["430", "408", "closed"] {
        let mut w = World::new();
        // The most recent is CAROL's.
        w.bind("bob", bind("sip:bob@10.0.0.7;ob").over(DAVE_TCP).outbound(INSTANCE, 1));
        w.bind("bob", bind("sip:bob@10.0.0.8;ob").over(CAROL_TCP).outbound(INSTANCE, 2));
        if failure == "closed" {
            w.break_flow(CAROL_TCP);
        }
        w.call(ALICE, "MESSAGE sip:bob@example.org");
        if failure != "closed" {
            let got = w.expect(CAROL_TCP, "MESSAGE sip:bob@10.0.0.8;ob");
            w.quiet();
            w.answer(CAROL_TCP, &got, failure.parse().unwrap());
        }
        let got = w.expect(DAVE_TCP, "MESSAGE sip:bob@10.0.0.7;ob");
        w.answer(DAVE_TCP, &got, 200);
        w.expect(ALICE, "200");
        w.finish();
    }
}

/// RFC 5626 section 7: any other final response is the instance's answer; no second flow is tried.
#[test]
fn an_answer_of_an_instance_is_its_answer() {
    for status in [486, 503, 404, 603] {
        let mut w = World::new();
        w.bind("bob", bind("sip:bob@10.0.0.7;ob").over(DAVE_TCP).outbound(INSTANCE, 1));
        w.bind("bob", bind("sip:bob@10.0.0.8;ob").over(CAROL_TCP).outbound(INSTANCE, 2));
        w.call(ALICE, "MESSAGE sip:bob@example.org");
        let got = w.expect(CAROL_TCP, "MESSAGE");
        w.answer(CAROL_TCP, &got, status);
        let status = if status == 503 { 500 } else { status };
        w.expect(ALICE, &status.to_string());
        w.finish();
    }
}

/// RFC 5626 section 7: through edge proxies it is the Path that differs; 430 leads to the next one.
#[test]
fn an_instance_behind_two_edge_proxies() {
    let mut w = World::new();
    let first = "<sip:token1@192.0.2.60;lr;ob>";
    let second = "<sip:token2@192.0.2.61;lr;ob>";
    w.bind("bob", bind("sip:bob@10.0.0.8").path(first).outbound(INSTANCE, 1));
    w.bind("bob", bind("sip:bob@10.0.0.9").path(second).outbound(INSTANCE, 2));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(GATEWAY2, "INVITE sip:bob@10.0.0.9");
    assert_eq!(got.all("Route"), [second]);
    w.quiet();
    w.answer(GATEWAY2, &got, 430);
    w.expect(GATEWAY2, "ACK");
    let got = w.expect(GATEWAY, "INVITE sip:bob@10.0.0.8");
    assert_eq!(got.all("Route"), [first]);
    w.answer(GATEWAY, &got, 486);
    w.expect(GATEWAY, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 5626 section 5.3: as an edge proxy, we forward by the token in the Route that came from a
/// Path of ours.
#[test]
fn different_instances_ring_together() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@10.0.0.7;ob").over(DAVE_TCP).outbound(INSTANCE, 1));
    w.bind("bob", bind("sip:bob@10.0.0.8;ob").over(CAROL_TCP).outbound("urn:uuid:other", 1));
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let one = w.expect(DAVE_TCP, "OPTIONS");
    let two = w.expect(CAROL_TCP, "OPTIONS");
    w.answer(DAVE_TCP, &one, 200);
    w.expect(ALICE, "200");
    w.answer(CAROL_TCP, &two, 200);
    w.finish();
}

/// RFC 5626 section 7 and RFC 7118 section 5: a WebSocket that has closed cannot be opened; nothing
/// else is tried.
#[test]
fn a_closed_websocket_is_not_opened() {
    let mut w = World::new();
    w.bind("bob", bind("sip:x@df7jal23ls0d.invalid;transport=ws").over(ERIN_WS));
    w.break_flow(ERIN_WS);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let answer = w.expect(ALICE, "480");
    assert!(answer.tag("To").is_some());
    w.finish();
}

/// RFC 3261 section 18.4: a plain TCP phone whose connection is gone may still listen where its
/// Contact says.
#[test]
fn a_lost_tcp_connection_is_opened_anew() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@203.0.113.31:5060;transport=tcp").over(DAVE_TCP));
    w.break_flow(DAVE_TCP);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let listening = DAVE_TCP.at("203.0.113.31:5060");
    let got = w.expect(listening, "MESSAGE");
    w.answer(Peer { serial: 99, ..listening }, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// A call to bob over TCP, answered: the request he got, the 200 he sent, and alice's dialog.
fn call_over_tcp(w: &mut World, contact: &str) -> Dialog {
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(DAVE_TCP, "INVITE");
    let ok = response(DAVE_TCP, &got, 200).set("Contact", format!("<{contact}>"));
    w.from(DAVE_TCP, &ok);
    let ok = w.expect(ALICE, "200");
    Dialog::of_caller(ALICE, &invite, &ok)
}

/// RFC 3261 section 18.1.1: a party over TCP whose connection has ended is connected to where its
/// Contact says: ACK, INFO and BYE arrive. It has no flow token, having negotiated nothing.
#[test]
fn a_dialog_outlives_its_connection() {
    let contact = "sip:bob@203.0.113.31:5060;transport=tcp";
    let mut w = World::new();
    w.bind("bob", bind(contact).over(DAVE_TCP));
    let mut caller = call_over_tcp(&mut w, contact);
    assert!(caller.route.iter().all(|route| route.split('@').next().unwrap().len() < 40));
    w.close(DAVE_TCP);
    let listening = Peer { serial: 99, ..DAVE_TCP.at("203.0.113.31:5060") };
    for method in ["ACK", "INFO", "BYE"] {
        let branch = w.branch();
        w.from(ALICE, &caller.request(method, &branch));
        let got = w.expect(listening, method);
        if method != "ACK" {
            w.answer(listening, &got, 200);
            w.expect(ALICE, "200");
        }
    }
    w.finish();
}

/// The same for the caller.
#[test]
fn a_callers_dialog_outlives_its_connection() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w
        .request(CAROL_TCP, "INVITE sip:bob@example.org")
        .set("Contact", "<sip:carol@198.51.100.30:5060;transport=tcp>");
    w.from(CAROL_TCP, &invite);
    w.expect(CAROL_TCP, "100");
    let got = w.expect(BOB, "INVITE");
    let ok = w.answer(BOB, &got, 200);
    w.expect(CAROL_TCP, "200");
    let mut callee = Dialog::of_callee(BOB, &got, &ok);
    w.close(CAROL_TCP);
    let listening = Peer { serial: 99, ..CAROL_TCP.at("198.51.100.30:5060") };
    w.from(BOB, &callee.request("BYE", "z9hG4bKbye"));
    let bye = w.expect(listening, "BYE");
    w.answer(listening, &bye, 200);
    w.expect(BOB, "200");
    w.finish();
}

/// A phone behind a NAT that has registered again is reached over its new connection, by ACK and BYE
/// alike; so is one that negotiated Outbound.
#[test]
fn a_dialog_follows_the_user_to_a_new_connection() {
    let contacts = ["sip:bob@10.0.0.7:5060;transport=tcp", "sip:bob@10.0.0.7;transport=tcp;ob"];
    for contact in contacts {
        let over = |peer: Peer, id| match contact.ends_with(";ob") {
            true => bind(contact).over(peer).outbound(INSTANCE, id),
            false => bind(contact).over(peer),
        };
        let mut w = World::new();
        w.bind("bob", over(DAVE_TCP, 1));
        let mut caller = call_over_tcp(&mut w, contact);
        w.break_flow(DAVE_TCP);
        let again = Peer { serial: 32, ..DAVE_TCP.at("203.0.113.31:40099") };
        w.close(DAVE_TCP);
        w.bind("bob", over(again, 2));
        for method in ["ACK", "INFO", "BYE"] {
            let branch = w.branch();
            w.from(ALICE, &caller.request(method, &branch));
            let got = w.expect(again, method);
            if method != "ACK" {
                w.answer(again, &got, 200);
                w.expect(ALICE, "200");
            }
        }
        w.finish();
    }
}

/// Where the flow is gone, a Request-URI that is not the dialog's is not followed.
#[test]
fn a_lost_flow_does_not_open_another_target() {
    let contact = "sip:bob@10.0.0.7:5060;transport=tcp";
    let mut w = crate::relay::closed();
    w.bind("bob", bind(contact).over(DAVE_TCP));
    let outside = "<sip:eve@example.com>;tag=1";
    let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", outside);
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(DAVE_TCP, "INVITE");
    let ok = response(DAVE_TCP, &got, 200).set("Contact", format!("<{contact}>"));
    w.from(DAVE_TCP, &ok);
    let ok = w.expect(PROXY, "200");
    let mut caller = Dialog::of_caller(PROXY, &invite, &ok);
    w.close(DAVE_TCP);
    for method in ["INFO", "ACK"] {
        let request = caller.request(method, "z9hG4bKtoll").aimed_at("sip:0900@192.0.2.60");
        w.from(PROXY, &request);
    }
    w.expect(PROXY, "430");
    w.quiet();
}

/// A phone that has registered over UDP with a Contact over TCP gets its ACK over TCP, as the INVITE.
#[test]
fn a_registration_over_udp_does_not_imply_tcp() {
    let mut w = World::new();
    let contact = "sip:bob@203.0.113.2:5060;transport=tcp";
    w.bind("bob", bind(contact).over(BOB));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let tcp = Peer { serial: 99, ..BOB.listening_tcp() };
    let got = w.expect(tcp, "INVITE");
    let ok = response(tcp, &got, 200);
    w.from(tcp, &ok);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(tcp, "ACK");
    w.from(ALICE, &caller.request("BYE", "z9hG4bKbye"));
    let bye = w.expect(tcp, "BYE");
    w.answer(tcp, &bye, 200);
    w.expect(ALICE, "200");
    w.finish();
}

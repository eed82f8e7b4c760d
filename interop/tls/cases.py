"""TLS by clients that exist for it: OpenSSL's s_client and the ssl module of Python."""

import re
import secrets
import select
import socket
import ssl
import threading

from cases import case
from server import Server
from sip import Client, credentials


def context(server):
    """Trusts only the certificate the server was given."""
    return ssl.create_default_context(cafile=str(server.certificate))


@case("tls/openssl-s_client-registers")
def s_client(c):
    """RFC 3261 26.2: a REGISTER with digest over `openssl s_client`, the certificate verified."""
    server = Server(c, tls=True)
    local = f"{secrets.token_hex(6)}.invalid"

    def register(cseq, authorization=""):
        lines = [f"REGISTER sip:{server.domain} SIP/2.0",
                 f"Via: SIP/2.0/TLS {local};branch=z9hG4bK{secrets.token_hex(8)};rport", "Max-Forwards: 70",
                 f"From: <sip:alice@{server.domain}>;tag=1", f"To: <sip:alice@{server.domain}>",
                 f"Call-ID: {local}", f"CSeq: {cseq} REGISTER",
                 f"Contact: <sip:alice@{local};transport=tls>;expires=60"]
        return "\r\n".join([*lines, *([authorization] if authorization else []), "Content-Length: 0", "", ""])

    peer = c.start("s_client", ["openssl", "s_client", "-connect", f"{server.host}:{server.tls_port}", "-quiet",
                                "-CAfile", server.certificate, "-verify_return_error", "-servername", server.domain,
                                "-verify_hostname", server.domain], stdin=True)

    def say(text):
        peer.popen.stdin.write(text.encode())
        peer.popen.stdin.flush()

    say(register(1))
    c.expect(peer.wait_output("SIP/2.0 401", 30), f"expected 401 over TLS, got {peer.output()[-600:]}")
    challenge = re.search(r"WWW-Authenticate: *(.*)", peer.output()).group(1)
    proof = credentials(challenge, "alice", "wonderland", "REGISTER", f"sip:{server.domain}")
    say(register(2, f"Authorization: {proof}"))
    c.expect(peer.wait_output("SIP/2.0 200", 30), f"expected 200 over TLS, got {peer.output()[-600:]}")
    c.expect(server.contacts() == 1, f"expected 1 contact, got {server.contacts()}")
    server.alive()


@case("tls/versions")
def versions(c):
    """TLS 1.2 and 1.3 are spoken, older ones are not (RFC 8996)."""
    server = Server(c, tls=True)
    for version, spoken in [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True),
                            (ssl.TLSVersion.TLSv1_3, True)]:
        trust = context(server)
        if not spoken:
            trust.set_ciphers("ALL:@SECLEVEL=0")
        trust.minimum_version = trust.maximum_version = version
        try:
            with Client(server.host, server.tls_port, "tls", context=trust, server_name=server.domain) as client:
                answer = client.register("alice", "wonderland", server.domain, ["<sip:alice@a.invalid;transport=tls>"])
                done = answer is not None and answer.status == 200
        except (ssl.SSLError, ConnectionError):
            done = False
        c.expect(done == spoken, f"{version.name}: {'registered' if done else 'refused'}")
    server.alive()


@case("tls/message-over-the-registered-connection")
def reuse(c):
    """A request for a TLS client comes over the connection it registered with (RFC 5626 section 5.3)."""
    server = Server(c, tls=True)
    with Client(server.host, server.tls_port, "tls", context=context(server), server_name=server.domain) as bob:
        answer = bob.register("bob", "builder", server.domain,
                              [(f"<sip:bob@{bob.local[0]}:{bob.local[1]};transport=tls>;reg-id=1"
                                ';+sip.instance="<urn:uuid:00000000-0000-1000-8000-000a95a0e128>"')],
                              headers=["Supported: path, outbound, gruu"])
        c.expect(answer is not None and answer.status == 200, f"REGISTER: {answer and answer.start}")

        def answer_message():
            request = bob.receive(30)
            if request is None or request.method != "MESSAGE":
                return
            kept = [f"{n.title()}: {v}" for n, v in request.headers if n in ("via", "from", "call-id", "cseq")]
            to = request.get("to") + ";tag=bob"
            bob.send("\r\n".join(["SIP/2.0 200 OK", *kept, f"To: {to}", "Content-Length: 0", "", ""]))
        waiting = threading.Thread(target=answer_message)
        waiting.start()
        with Client(server.host, server.port) as alice:
            sender, target = f"sip:alice@{server.domain}", f"sip:bob@{server.domain}"
            answer = alice.ask(alice.request("MESSAGE", target, sender=sender, headers=["Content-Type: text/plain"],
                                             body="hello"))
            c.expect(answer is not None and answer.status == 407,
                     f"MESSAGE: expected 407, got {answer and answer.start}")
            proof = credentials(answer.get("proxy-authenticate"), "alice", "wonderland", "MESSAGE", target, b"hello")
            answer = alice.ask(alice.request("MESSAGE", target, sender=sender, cseq=2, body="hello",
                                             headers=["Content-Type: text/plain", f"Proxy-Authorization: {proof}"]), 10)
        waiting.join()
        c.expect(answer is not None and answer.status == 200, f"MESSAGE: expected 200, got {answer and answer.start}")
    server.alive()


@case("tls/half-open-peers")
def half_open(c):
    """Peers that connect and say nothing do not keep others out."""
    server = Server(c, tls=True, extra='[limits]\nconnections_per_source = 2000\nhandshake = "6s"\n')
    silent = [socket.create_connection((server.host, server.tls_port), timeout=5) for _ in range(300)]
    for peer in silent[::2]:
        peer.sendall(b"\x16\x03\x01\x02\x00\x01")
    with Client(server.host, server.tls_port, "tls", context=context(server), server_name=server.domain) as client:
        answer = client.register("alice", "wonderland", server.domain, ["<sip:alice@a.invalid;transport=tls>"])
    c.expect(answer is not None and answer.status == 200, f"REGISTER: {answer and answer.start}")
    closed, _, _ = select.select(silent, [], [], 0)
    c.expect(len(closed) < len(silent), "a REGISTER took as long as silent peers may stay")
    if c.server_kind == "ringway":
        for peer in silent:
            peer.settimeout(60)
            try:
                c.expect(peer.recv(100) is not None, "")
            except TimeoutError:
                c.expect(False, "a peer that never finished its handshake was not cut off after 6 s")
            except ConnectionError:
                pass
    for peer in silent:
        peer.close()
    server.alive()

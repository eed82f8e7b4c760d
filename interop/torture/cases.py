"""The torture messages of RFC 4475 and RFC 5118 over real sockets.

The octets and what the RFCs ask for are in crates/sip/tests/torture; here each is sent to the running
server, and what comes back is held against its verdict. Between them, a request from elsewhere shows
that the server is still there.
"""

import re
import socket
import tomllib

from cases import case
from server import ROOT, Server
from sip import Client, Message

FOLDER = ROOT / "crates" / "sip" / "tests" / "torture"
# Most of the messages name users of example.com.
DOMAIN = "example.com"
WAIT, SILENCE = 3.0, 0.4


def messages():
    """(name, octets, verdict) of each."""
    table = tomllib.loads((FOLDER / "verdicts.toml").read_text())
    for verdict in table["message"]:
        yield verdict["name"], (FOLDER / verdict["file"]).read_bytes(), verdict


def response_port(octets):
    """Where a server answers over UDP: the port of the topmost Via, RFC 3261 18.2.2."""
    head = re.sub(rb"\r\n[ \t]+", b" ", octets.split(b"\r\n\r\n")[0])
    head = re.sub(rb"\[[^\]\r\n]*\]", b"v6", head)
    via = re.search(rb"(?im)^v(?:ia)?[ \t]*:[^\r\n;,]*?\w[ \t]*:[ \t]*(\d{2,5})", head)
    return int(via.group(1)) if via else 5060


def fits(status, allowed):
    """Whether a final status (None for silence) is what the verdict allows."""
    for one in allowed:
        if (one == "ignore" and status is None) or one == status:
            return True
        if one == "forward" and status is not None and status != 400 and status < 500:
            return True
    return False


def final(received):
    """The final response among datagrams, as (status, text)."""
    for data in received:
        message = Message(data)
        if message.status >= 200:
            return message.status, message.text
    return None, ""


def lives(server, transport):
    """An ordinary request is still answered."""
    with Client(server.host, server.port, transport) as client:
        answer = client.ask(client.request("OPTIONS", f"sip:{DOMAIN}"))
    return answer is not None


@case("torture/udp", limit=150, own=True)
def over_udp(c):
    """RFC 4475 section 3 and RFC 5118 section 4, one datagram each."""
    server = Server(c, domain=DOMAIN)
    wrong, count = [], 0
    for number, (name, octets, verdict) in enumerate(messages()):
        count += 1
        # An address of its own each, so that no answer is taken for another's.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind((f"127.0.77.{number + 1}", response_port(octets)))
            peer.sendto(octets, (server.host, server.port))
            received, silent = [], verdict["answer"] == ["ignore"]
            peer.settimeout(SILENCE if silent else WAIT)
            try:
                while final(received)[0] is None:
                    received.append(peer.recv(65_535))
            except TimeoutError:
                pass
        status, text = final(received)
        print(f"{name}: {status}, expected {verdict['answer']}")
        if not fits(status, verdict["answer"]):
            wrong.append(f"{name} ({verdict['section']}): expected {verdict['answer']}, got "
                         f"{text.splitlines()[:1] or 'nothing'}")
        if silent and received:
            wrong.append(f"{name}: a response was answered: {received[0][:60]}")
        if not lives(server, "udp"):
            wrong.append(f"{name}: the server no longer answers")
            break
    c.expect(count == 61, f"expected 61 messages, found {count}")
    c.expect(not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong))
    server.alive()


def framed(octets):
    """Whether a stream carries this message alone and whole: its Content-Length is that of its body."""
    head, end, body = octets.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^(?:l|content-length)[ \t]*:[ \t]*(\d+)[ \t]*\r?$", head)
    return bool(end) and length is not None and int(length.group(1)) == len(body)


@case("torture/tcp", limit=150, own=True)
def over_tcp(c):
    """The same over TCP: those that a stream can carry are answered alike, and none ends the server."""
    server = Server(c, domain=DOMAIN)
    wrong, held = [], 0
    for name, octets, verdict in messages():
        with Client(server.host, server.port, "tcp") as client:
            client.send(octets)
            silent = verdict["answer"] == ["ignore"]
            strict = framed(octets) and not silent and verdict["parse"] != "unparsable"
            status = None
            while (answer := client.receive(WAIT if strict else SILENCE)) is not None:
                if answer.status >= 200:
                    status = answer.status
                    break
        print(f"{name}: {status}, expected {verdict['answer'] if strict else 'to live'}")
        if strict:
            held += 1
            if not fits(status, verdict["answer"]):
                wrong.append(f"{name} ({verdict['section']}): expected {verdict['answer']}, got {status}")
        elif silent and status is not None:
            wrong.append(f"{name}: a response was answered with {status}")
        if not lives(server, "tcp"):
            wrong.append(f"{name}: the server no longer answers")
            break
    c.expect(held >= 30, f"only {held} messages were held against their verdict")
    c.expect(not wrong, "\n".join(wrong))
    server.alive()

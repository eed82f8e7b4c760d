"""Tokens of one node at another: a nonce, a temporary GRUU, and a call whose node's address another one takes."""

import re
import secrets

from sip import Client, credentials

# The key of the secrets that nodes share.
SECRETS = "ringway:secrets:{ringway:nodes}"
# Milliseconds for which one is in use.
ROTATION = 30 * 24 * 3600 * 1000


def changes(server):
    """How often a node has read other secrets, or another one of them is in use."""
    return server.process.output().count("the secrets of tokens that nodes share have changed")


def nonce_at(c, first, second, user, password):
    """The answer of the second node to a REGISTER with proof for the challenge of the first."""
    uri, aor = f"sip:{first.domain}", f"sip:{user}@{first.domain}"
    with Client(first.host, first.port) as client:
        challenged = client.ask(client.request("REGISTER", uri, to=aor, sender=aor))
        c.expect(challenged.status == 401, f"expected a challenge, got {challenged.start}")
    with Client(second.host, second.port) as client:
        proof = credentials(challenged.get("www-authenticate"), user, password, "REGISTER", uri)
        return client.ask(client.request("REGISTER", uri, to=aor, sender=aor, headers=[f"Authorization: {proof}"]))


def gruu(c, server, client, user, password):
    """Registers a phone, and returns its temporary GRUU."""
    contact = f'<sip:{user}@127.0.0.1:{client.local[1]}>;+sip.instance="<urn:uuid:{secrets.token_hex(8)}>"'
    answer = client.register(user, password, server.domain, [contact], headers=["Supported: gruu"])
    found = re.search('temp-gruu="([^"]+)"', answer.get("contact"))
    c.expect(answer.status == 200 and found, f"no temporary GRUU: {answer.start} {answer.get('contact')}")
    return found.group(1)


def respond(client, request, status, contact=True):
    """Answers a request as a phone that has no more to say."""
    echoed = [f"{name}: {value}" for name, value in request.headers
              if name in ("via", "from", "call-id", "cseq", "record-route")]
    to = request.get("to") + ("" if ";tag=" in request.get("to") else ";tag=callee")
    here = [f"Contact: <sip:callee@127.0.0.1:{client.local[1]}>"] if contact else []
    lines = [f"SIP/2.0 {status} So", *echoed, f"To: {to}", *here, "Content-Length: 0"]
    client.send("\r\n".join(lines) + "\r\n\r\n")


def heard(c, client, method):
    """The next request of a method, without those that are sent again."""
    request = client.receive(5)
    c.expect(request is not None and request.start.startswith(f"{method} "),
             f"expected {method}, got {request and request.start}")
    return request


def final(client):
    """The next final response."""
    answer = client.receive(5)
    while answer is not None and answer.status < 200:
        answer = client.receive(5)
    return answer


def rings(c, server, caller, callee, user):
    """A call of alice for a user whose phone rings: the request that it has."""
    here = f"Contact: <sip:alice@127.0.0.1:{caller.local[1]}>"
    caller.send(caller.proved(server, "alice", "INVITE", f"sip:{user}@{server.domain}", headers=[here]))
    request = heard(c, callee, "INVITE")
    respond(callee, request, 180)
    return request


def answered_call(c, server, caller, callee, uri):
    """A call of alice that is answered: what her requests within it need."""
    call = {"call_id": secrets.token_hex(8), "tag": secrets.token_hex(4)}
    here = f"Contact: <sip:alice@127.0.0.1:{caller.local[1]}>"
    invite = caller.proved(server, "alice", "INVITE", uri, headers=[here], **call)
    caller.send(invite)
    respond(callee, heard(c, callee, "INVITE"), 200)
    answer = final(caller)
    c.expect(answer is not None and answer.status == 200, f"expected 200, got {answer and answer.start}")
    target = re.search("<([^>]+)>", answer.get("contact")).group(1)
    routes = [f"Route: {route}" for route in reversed(answer.all("record-route"))]
    fields = {"uri": target, "to_field": answer.get("to"), "sender": f"sip:alice@{server.domain}",
              "headers": routes, **call}
    caller.send(caller.request("ACK", cseq=2, **fields))
    heard(c, callee, "ACK")
    return fields


def ends(c, caller, callee, call):
    """Alice hangs up, without credentials."""
    caller.send(caller.request("BYE", cseq=3, **call))
    respond(callee, heard(c, callee, "BYE"), 200, contact=False)
    answer = caller.receive(5)
    c.expect(answer is not None and answer.status == 200, f"BYE: expected 200, got {answer and answer.start}")

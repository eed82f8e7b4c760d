"""Just enough SIP to register a contact, ask a question and read the answer.

Not a user agent: the checks use programs that others wrote for that. Written against RFC 3261 and
RFC 7616 on purpose without a look at the server's own code.
"""

import hashlib
import re
import secrets
import socket
import ssl
import time

from cases import Failed

COMPACT = {"v": "via", "f": "from", "t": "to", "i": "call-id", "m": "contact", "l": "content-length",
           "c": "content-type", "e": "content-encoding", "k": "supported", "s": "subject"}
ALGORITHMS = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256,
              "SHA-512-256": lambda data: hashlib.new("sha512_256", data)}


class Message:
    """A message as read: its first line, its header fields in order, its body."""

    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = re.sub(r"\r\n[ \t]+", " ", head.decode("utf-8", "replace")).split("\r\n")
        self.start = lines[0]
        self.headers = []
        for line in lines[1:]:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            self.headers.append((COMPACT.get(name, name), value.strip()))
        self.text = data.decode("utf-8", "replace")

    @property
    def status(self):
        """The status of a response, 0 for a request."""
        found = re.match(r"SIP/2\.0 (\d{3})", self.start)
        return int(found.group(1)) if found else 0

    @property
    def method(self):
        """The method of a request, or of the CSeq for a response."""
        return (self.get("cseq") or " ").split()[-1] if self.status else self.start.split(" ")[0]

    def get(self, name):
        """The first value of a header field, or None."""
        return next((v for n, v in self.headers if n == name.lower()), None)

    def all(self, name):
        """All values of a header field, one per line."""
        return [v for n, v in self.headers if n == name.lower()]


def parameters(value):
    """The comma separated `name=value` pairs of a challenge."""
    return {n.lower(): q if q or not t else t
            for n, q, t in re.findall(r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))', value)}


def credentials(challenge, user, password, method, uri, body=b"", count=1, qop="auth"):
    """The value of an Authorization header field for one challenge (RFC 7616 section 3.4)."""
    asked = parameters(challenge)
    algorithm = asked.get("algorithm", "MD5")
    digest = lambda text: ALGORITHMS[algorithm.upper()](text.encode()).hexdigest()  # noqa: E731
    realm, nonce, cnonce = asked["realm"], asked["nonce"], secrets.token_hex(8)
    offered = [o.strip() for o in asked.get("qop", "").split(",") if o.strip()]
    ha1 = digest(f"{user}:{realm}:{password}")
    a2 = f"{method}:{uri}"
    if qop == "auth-int" and offered:
        a2 += ":" + ALGORITHMS[algorithm.upper()](body).hexdigest()
    ha2 = digest(a2)
    fields = f'Digest username="{user}", realm="{realm}", nonce="{nonce}", uri="{uri}", algorithm={algorithm}'
    if offered:
        nc = f"{count:08x}"
        response = digest(f"{ha1}:{nonce}:{nc}:{cnonce}:{qop}:{ha2}")
        fields += f', qop={qop}, nc={nc}, cnonce="{cnonce}"'
    else:
        response = digest(f"{ha1}:{nonce}:{ha2}")
    if "opaque" in asked:
        fields += f', opaque="{asked["opaque"]}"'
    return f'{fields}, response="{response}"'


class Client:
    """One socket to the server: UDP, TCP or TLS, by `transport`."""

    def __init__(self, host, port, transport="udp", source="127.0.0.1", context=None, server_name=None,
                 source_port=0):
        self.host, self.port, self.transport = host, port, transport
        self._rest = b""
        self.last = b""
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if transport == "udp":
            self.socket = socket.socket(self.family, socket.SOCK_DGRAM)
            self.socket.bind((source, source_port))
            self.socket.connect((host, port))
        else:
            self.socket = socket.create_connection((host, port), timeout=20, source_address=(source, source_port))
            if transport == "tls":
                self.socket = context.wrap_socket(self.socket, server_hostname=server_name)
        self.local = self.socket.getsockname()[:2]

    def close(self):
        """Closes the socket."""
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        """Sends bytes, or text with its line ends as they are."""
        data = data.encode() if isinstance(data, str) else data
        if self.transport == "udp":
            self.socket.send(data)
        else:
            self.socket.sendall(data)

    def receive(self, seconds=20.0):
        """The next message, or None after `seconds` or when the peer has closed."""
        deadline = time.monotonic() + seconds
        while True:
            message = self._next()
            if message is not None:
                return message
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65_535)
            except (TimeoutError, ConnectionError, ssl.SSLError):  # silence, or the peer is gone
                return None
            if not data and self.transport != "udp":
                return None
            self._rest = data if self.transport == "udp" else self._rest + data

    def _next(self):
        self._rest = self._rest.lstrip(b"\r\n\0")
        if not self._rest:
            return None
        head, separator, rest = self._rest.partition(b"\r\n\r\n")
        if not separator:
            return None
        if self.transport == "udp":
            data, self._rest = self._rest, b""
        else:
            length = int(Message(head + b"\r\n\r\n").get("content-length") or 0)
            if len(rest) < length:
                return None
            size = len(head) + 4 + length
            data, self._rest = self._rest[:size], self._rest[size:]
        self.last = data
        return Message(data)

    def request(self, method, uri, to=None, sender="sip:probe@probe.invalid", headers=(), body=b"",
                cseq=1, call_id=None, tag=None, to_field=None):
        """A request's bytes with the fields every request has; `to_field` is the To of a dialog, tag and all."""
        body = body.encode() if isinstance(body, str) else body
        here = f"[{self.local[0]}]" if ":" in self.local[0] else self.local[0]
        lines = [
            f"{method} {uri} SIP/2.0",
            (f"Via: SIP/2.0/{self.transport.upper()} {here}:{self.local[1]}"
             f";branch=z9hG4bK{secrets.token_hex(8)};rport"),
            "Max-Forwards: 70",
            f"From: <{sender}>;tag={tag or secrets.token_hex(4)}",
            f"To: {to_field or f'<{to or uri}>'}",
            f"Call-ID: {call_id or secrets.token_hex(8)}",
            f"CSeq: {cseq} {method}",
            *headers,
            f"Content-Length: {len(body)}",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def ask(self, data, seconds=20.0):
        """Sends a request and returns its final response, or None; over UDP it is sent again each second."""
        deadline = time.monotonic() + seconds
        self.send(data)
        while time.monotonic() < deadline:
            answer = self.receive(min(1.0, max(0.05, deadline - time.monotonic())))
            if answer is None:
                if self.transport == "udp":
                    self.send(data)
            elif answer.status >= 200:
                return answer
        return None

    def proved(self, server, user, method, uri, cseq=1, call_id=None, tag=None, **fields):
        """A request with credentials of `user`, which answer the challenge to the same request without them (RFC 3261
        section 22)."""
        call_id, tag = call_id or secrets.token_hex(8), tag or secrets.token_hex(4)
        fields = {"sender": f"sip:{user}@{server.domain}", **fields}
        headers = list(fields.pop("headers", ()))
        body = fields.get("body", b"")
        data = self.request(method, uri, cseq=cseq, call_id=call_id, tag=tag, headers=headers, **fields)
        refused = self.ask(data)
        if refused is None or refused.status not in (401, 407):
            raise Failed(f"{method}: expected a challenge, got {refused and refused.start}")
        if method == "INVITE":
            ack = data.replace(b"INVITE ", b"ACK ", 1).replace(b" INVITE\r\n", b" ACK\r\n", 1)
            self.send(re.sub(rb"(?<=\r\nTo: )[^\r]*", lambda _: refused.get("to").encode(), ack, count=1))
        asked, answers = (("www-authenticate", "Authorization") if refused.status == 401 else
                          ("proxy-authenticate", "Proxy-Authorization"))
        proof = credentials(refused.get(asked), user, server.wanted.users[user], method, uri,
                            body.encode() if isinstance(body, str) else body)
        return self.request(method, uri, cseq=cseq + 1, call_id=call_id, tag=tag,
                            headers=[*headers, f"{answers}: {proof}"], **fields)

    def register(self, user, password, domain, contacts, expires=300, algorithm="MD5", headers=(),
                 call_id=None, cseq=1, qop="auth"):
        """Registers `contacts` (header values; empty to fetch), answering one challenge. The last answer."""
        uri = f"sip:{domain}"
        aor = f"sip:{user}@{domain}"
        call_id = call_id or secrets.token_hex(8)
        fields = [f"Contact: {c}" for c in contacts] + ([f"Expires: {expires}"] if contacts else []) + list(headers)
        data = self.request("REGISTER", uri, to=aor, sender=aor, headers=fields, call_id=call_id, cseq=cseq)
        answer = self.ask(data)
        if answer is None or answer.status != 401:
            return answer
        for challenge in answer.all("www-authenticate"):
            if parameters(challenge).get("algorithm", "MD5").upper() == algorithm.upper():
                break
        else:
            return answer
        fields.append("Authorization: " + credentials(challenge, user, password, "REGISTER", uri, qop=qop))
        return self.ask(self.request("REGISTER", uri, to=aor, sender=aor, headers=fields,
                                     call_id=call_id, cseq=cseq + 1))


def register(server, user, port, transport="udp", parameters=""):
    """Registers an address on this host for `user`, as that user's phone would."""
    with Client(server.host, server.port) as client:
        contact = f"<sip:{user}@127.0.0.1:{port};transport={transport}>{parameters}"
        answer = client.register(user, server.wanted.users.get(user, ""), server.domain, [contact])
    server.context.expect(answer is not None and answer.status == 200,
                          f"REGISTER of {user}: expected 200, got {answer and answer.start}")

"""Memory of connections that registered and are idle: over TCP, TLS and WebSocket.

Resident memory is read when a first lot of connections is registered and idle, and again when a second lot of
the same size is: what the first one of a kind takes once is not counted. What the kernel holds for a socket is not
in it. Each connection has a user of its own and sends one REGISTER and a keep-alive.
"""

import resource
import socket
import ssl
import time

from subjects import HOST, Trouble, memory_of

# Connections of each lot.
LOT = 2000
# Seconds from the last message to the reading.
PAUSE = 3
# Loopback addresses that the connections come from, so that none has more than its share.
SOURCES = 64


class Client:
    """One phone on one connection."""

    def __init__(self, number, transport, port, context):
        source = f"127.0.1.{1 + number % SOURCES}"
        self.transport = transport
        self.socket = socket.create_connection((HOST, port), timeout=30, source_address=(source, 0))
        if context:
            self.socket = context.wrap_socket(self.socket)
        if transport == "ws":
            self.socket.sendall((f"GET / HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
                                 "Sec-WebSocket-Protocol: sip\r\n\r\n").encode())
            self.expect(b"\r\n\r\n")
        user = f"idle{number}"
        self.send((f"REGISTER sip:{HOST} SIP/2.0\r\n"
                   f"Via: SIP/2.0/{transport.upper()} {source}:5060;branch=z9hG4bK{user};rport\r\n"
                   f"Max-Forwards: 70\r\nFrom: <sip:{user}@{HOST}>;tag=a\r\nTo: <sip:{user}@{HOST}>\r\n"
                   f"Call-ID: {user}\r\nCSeq: 1 REGISTER\r\nContact: <sip:{user}@{source}:5060>\r\n"
                   "Expires: 3600\r\nUser-Agent: idle\r\nContent-Length: 0\r\n\r\n").encode())
        if b" 200 " not in self.expect(b"\r\n\r\n"):
            raise Trouble("a REGISTER was not answered by 200")
        self.send(b"\r\n\r\n")
        self.expect(b"\r\n")

    def send(self, data):
        """Sends a message; over a WebSocket as one masked frame (RFC 6455 section 5.2)."""
        if self.transport == "ws":
            length = bytes([len(data) | 0x80]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
            data = b"\x81" + length + bytes(4) + data
        self.socket.sendall(data)

    def expect(self, end):
        """What comes until `end`."""
        got = b""
        while end not in got:
            more = self.socket.recv(65536)
            if not more:
                raise Trouble(f"the server closed an idle connection over {self.transport.upper()}")
            got += more
        return got


def measure(subject, transport, port, context=None):
    """Bytes of resident memory for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * LOT + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * LOT + 1000), hard))
    clients, readings = [], []
    try:
        for lot in range(2):
            clients += [Client(number, transport, port, context) for number in range(lot * LOT, (lot + 1) * LOT)]
            time.sleep(PAUSE)
            readings.append(memory_of(subject.processes()))
    finally:
        for client in clients:
            client.socket.close()
    return (readings[1] - readings[0]) / LOT


def trusting():
    """A context that takes any certificate: who the server is does not matter here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

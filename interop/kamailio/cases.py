"""Kamailio as a neighbour: as next hop for its domain, and as the proxy of a caller.

SIPp is at both ends, so that a call crosses two proxies that were written by different people, each
with its own Record-Route.
"""

import kamailio
from cases import case
from server import Route, Server
from sip import Client, register
from sipp import Sipp

THEIR_DOMAIN = "kamailio.test"
THEIR_HOST = "127.0.0.3"
TWO_PROXIES = {"max_forwards": 68, "too_many_vias": "Via:.*Via:.*Via:.*Via:"}


class Neighbour:
    """A Kamailio that serves its own domain and knows the way to the other."""

    def __init__(self, c, routes, port, registrar=None):
        self.context, self.port = c, port
        self.folder = c.folder / "neighbour"
        self.folder.mkdir()
        config = kamailio.write_config(self.folder, THEIR_HOST, self.port, domain=THEIR_DOMAIN, routes=routes,
                                       registrar=registrar)
        kamailio.start(c, "neighbour", self.folder, config)
        c.until(lambda: kamailio.rpc(c, self.folder, "core.uptime"), 10, "Kamailio does not start")

    def register(self, user, port, transport):
        """Registers an address on this host."""
        with Client(THEIR_HOST, self.port) as client:
            answer = client.register(user, "", THEIR_DOMAIN, [f"<sip:{user}@127.0.0.1:{port};transport={transport}>"])
        self.context.expect(answer is not None and answer.status == 200,
                            f"Kamailio: REGISTER: {answer and answer.start}")


def to_kamailio(c, transport):
    """An authenticated user of ours calls someone at the neighbour's."""
    port = c.ports.take()
    server = Server(c, routes=[Route(THEIR_DOMAIN, f"sip:{THEIR_HOST}:{port};transport={transport}")])
    neighbour = Neighbour(c, [], port)
    uas = Sipp(c, "uas", "uas-answer", transport=transport, service="bob", words=TWO_PROXIES).listening()
    neighbour.register("bob", uas.port, transport)
    uac = Sipp(c, "uac", "uac-call", remote=(server.host, server.port), transport=transport,
               keys={"target": THEIR_DOMAIN}, login=("alice", "wonderland"))
    uac.passed()
    uas.passed()
    server.alive()


def from_kamailio(c, transport):
    """A user of the neighbour calls one of ours; the neighbour is trusted."""
    server = Server(c, trusted=[THEIR_HOST])
    neighbour = Neighbour(c, [(server.domain, f"sip:{server.host}:{server.port};transport={transport}")],
                          c.ports.take())
    uas = Sipp(c, "uas", "uas-answer", transport=transport, service="bob", words=TWO_PROXIES).listening()
    register(server, "bob", uas.port, transport)
    uac = Sipp(c, "uac", "uac-call", remote=(THEIR_HOST, neighbour.port), transport=transport,
               domain=THEIR_DOMAIN, keys={"target": server.domain})
    uac.passed()
    uas.passed()
    server.alive()


def behind_an_edge(c, transport):
    """A phone registers through Kamailio as edge proxy, which adds a Path; calls find it that way (RFC 3327)."""
    server = Server(c)
    edge = Neighbour(c, [], c.ports.take(), registrar=f"sip:{server.host}:{server.port};transport={transport}")
    uas = Sipp(c, "uas", "uas-answer", transport=transport, service="bob", words=TWO_PROXIES).listening()
    with Client(THEIR_HOST, edge.port, transport) as client:
        answer = client.register("bob", "builder", server.domain,
                                 [f"<sip:bob@127.0.0.1:{uas.port};transport={transport}>"], headers=["Supported: path"])
    c.expect(answer is not None and answer.status == 200, f"REGISTER through the edge: {answer and answer.start}")
    c.expect(THEIR_HOST in (answer.get("path") or ""), f"the 200 does not repeat the Path: {answer.text}")
    uac = Sipp(c, "uac", "uac-call", remote=(server.host, server.port), transport=transport,
               login=("alice", "wonderland"))
    uac.passed()
    uas.passed()
    server.alive()


for _name, _body in (("next-hop", to_kamailio), ("callers-proxy", from_kamailio), ("edge-with-path", behind_an_edge)):
    for _transport in ("udp", "tcp"):
        case(f"kamailio/{_name}-{_transport}")(lambda c, b=_body, t=_transport: b(c, t))

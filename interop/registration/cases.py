"""Every user agent at hand registers with a server as it is delivered: default challenge, workers and limits.

`interop/phones/measure` tries the same agents with other challenges.
"""

import agents
from cases import case
from process import PATIENCE
from server import Server

# The algorithms that the default challenge offers.
OFFERED = ("MD5",)
SECONDS = 10


def registers(name):
    """One agent, one contact, and no algorithm that was not offered."""
    def body(c):
        start, _ = agents.ALL[name]
        server = Server(c, websocket=name in agents.BROWSERS, tls=name in agents.BROWSERS)
        agent = start(c, server, "bob", "builder")
        c.expect(agents.settled(server, agent, PATIENCE * SECONDS),
                 f"{name} does not register: {agent.output()[-600:]}")
        used = agents.answered_with(c, server)
        c.expect(used and set(used) <= set(OFFERED), f"{name} answered with {used}, offered was {OFFERED}")
        c.expect(len(used) == 1, f"{name} needed {len(used)} attempts with credentials")
        server.alive()
    body.__doc__ = f"RFC 3261 section 22.2: {name} registers with the shipped defaults."
    case(f"registration/{name}", limit=90)(body)


# Asterisk and pjsua are not in Debian 12; interop/phones/measure tries them where they are.
for _name in ("baresip", "linphone", "sipp", "kamailio-uac", "jssip", "sipjs"):
    registers(_name)

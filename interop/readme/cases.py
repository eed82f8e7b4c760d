"""README.md against the program: its configurations are accepted."""

import re

from cases import case
from server import ROOT, binary

README = ROOT / "README.md"


def blocks(kind):
    """The contents of the code blocks of a kind; an empty kind is those without one."""
    every = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [text for found, text in every if found == kind]


@case("readme/configurations", own=True)
def configurations(c):
    """Every configuration that README.md shows is accepted where its certificate and its addresses are."""
    status, output = c.run("openssl", [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=example.org", "-keyout", "key.pem", "-out", "fullchain.pem",
        "-addext", "subjectAltName=DNS:example.org"])
    c.expect(status == 0, f"openssl: {output}")
    shown = [text for text in blocks("toml") if "listen" in text]
    c.expect(len(shown) >= 2, f"expected at least 2 configurations in {README}, found {len(shown)}")
    for number, text in enumerate(shown):
        # Addresses and ports of this machine instead of those of the example.
        text = re.sub(r"://(0\.0\.0\.0|10\.1\.0\.1,10\.2\.0\.1)",
                      lambda m: "://127.0.0.1" + (",127.0.0.2" if "," in m[1] else ""), text)
        text = re.sub(r":(5060|5061|8443)\"", lambda _: f':{c.ports.take()}"', text).replace("sctp://", "sctp+udp://")
        path = c.folder / f"{number}.toml"
        path.write_text(text)
        status, output = c.run("check", [binary(), "config", "check", path], env={"XDG_STATE_HOME": str(c.folder)})
        c.expect(status == 0, f"configuration {number + 1} of README.md: {output}")

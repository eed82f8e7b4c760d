"""README.md against the program: its configurations are accepted, and its commands exist."""

import os
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


@case("readme/commands", own=True)
def commands(c):
    """Every command that README.md shows is one of the program, with the flags it is given."""
    found = 0
    for line in re.sub("#.*", "", "\n".join(blocks(""))).splitlines():
        if "ringway " not in line:
            continue
        words = line[line.index("ringway ") + len("ringway "):].split()
        depth = next((n for n, word in enumerate(words) if word.startswith("-") or not word.isalpha()), len(words))
        flags = [word for word in words if word.startswith("--")]
        # A command's own help names it in its usage; an argument in place of a command does not.
        for taken in range(depth, 0, -1):
            status, output = c.run("help", [binary(), *words[:taken], "--help"],
                                   env={"HOME": os.environ.get("HOME", "/")})
            if status == 0 and f"Usage: ringway {' '.join(words[:taken])}" in output:
                break
        else:
            c.expect(False, f"README.md shows {line.strip()!r}, which is no command")
        missing = [flag for flag in flags if flag not in output]
        c.expect(not missing, f"README.md shows {line.strip()!r}: no flag {missing}")
        found += 1
    c.expect(found >= 8, f"found only {found} commands in {README}")

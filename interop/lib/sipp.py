"""SIPp: scenario templates, and a process that passes or says why not."""

import re
from pathlib import Path

from cases import Failed

SCENARIOS = Path(__file__).resolve().parent.parent / "sipp"
# Milliseconds: how long a call is held, rings, how late the ringing starts, how soon a caller gives up.
DEFAULTS = {"hold": 300, "ring": 200, "delay": 0, "wait": 500,
            # One proxy on the way to the callee.
            "max_forwards": 69, "too_many_vias": "Via:.*Via:.*Via:"}


def with_credentials(text):
    """A caller's scenario whose INVITE is challenged first: 407, ACK, and the INVITE again with credentials (RFC 3261
    section 22.3)."""
    first = re.search(r'  <send retrans="500">.*?</send>\n', text, flags=re.DOTALL)
    challenged = re.sub(r"(branch=\S*)", r"\1-challenged", first.group(0))
    # RFC 3261 section 17.1.1.3: what the ACK of a refused INVITE takes from it.
    head = [line.strip() for line in challenged.split("<![CDATA[")[1].strip().splitlines()]
    kept = [line for line in head if re.match(r"(Via|From|Call-ID|Max-Forwards):", line)]
    to = next(line for line in head if line.startswith("To:")) + "[peer_tag_param]"
    ack = [head[0].replace("INVITE", "ACK", 1), *kept, to, "CSeq: 1 ACK", "Content-Length: 0", "", ""]
    refused = """  <recv response="100" optional="true"/>
  <recv response="407" auth="true">
    <action>
      <ereg regexp="realm=.*nonce=.*" search_in="hdr" header="Proxy-Authenticate:" check_it="true"
            assign_to="challenge"/>
    </action>
  </recv>
  <send>
    <![CDATA[

""" + "\n".join(ack) + """
    ]]>
  </send>
"""
    again = first.group(0).replace("Max-Forwards:", "[authentication]\n      Max-Forwards:", 1)
    rest = (again + text[first.end():]).replace("CSeq: 1 ", "CSeq: 2 ")
    return text[:first.start()] + challenged + refused + rest


def render(context, name, template, parts=(), words=None, login=False):
    """Writes a scenario from a template; returns its path. With `login` its INVITE is challenged.

    A template may hold sections between `<!-- if NAME -->` and `<!-- end -->`, kept when NAME is in
    `parts`, and `%word%`s that `words` replaces.
    """
    text = (SCENARIOS / f"{template}.xml").read_text()
    text = re.sub(r"[ \t]*<!-- if (\w+) -->\n(.*?)[ \t]*<!-- end -->\n",
                  lambda m: m.group(2) if m.group(1) in parts else "", text, flags=re.DOTALL)
    if login:
        text = with_credentials(text)
    words = {name: str(value) for name, value in {**DEFAULTS, **(words or {})}.items()}
    # A line that only holds an empty word goes: a blank line would end the header.
    text = re.sub(r"^[ \t]*%(\w+)%\n", lambda m: m.group(0) if words[m.group(1)] else "", text, flags=re.MULTILINE)
    text = re.sub(r"%(\w+)%", lambda m: words[m.group(1)], text)
    # SIPp refuses a variable that is only assigned; what a check assigns is of no further use.
    names = dict.fromkeys(re.findall(r'assign_to="(\w+)"', text))
    references = "".join(f'  <Reference variables="{n}"/>\n' for n in names)
    path = context.folder / f"{name}.xml"
    path.write_text(text.replace("</scenario>", references + "</scenario>"))
    return path


def listens(port, transport):
    """Whether something listens on a local port."""
    table = Path(f"/proc/net/{transport}").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") for line in table)


class Sipp:
    """A running SIPp with one scenario."""

    def __init__(self, context, name, template, *, remote=None, transport="udp", service="bob", caller="alice",
                 domain="ringway.test", port=None, source="127.0.0.1", calls=1, rate=10, seconds=30,
                 parts=(), words=None, keys=None, login=None, quiet=False, sockets="one", arguments=(),
                 prefix=()):
        self.context, self.name, self.transport = context, name, transport
        self.port = port or context.ports.take(2)
        self.seconds = seconds
        # Unless told otherwise the caller hangs up.
        if not {"hangs_up", "waits"} & set(parts):
            parts = (*parts, "hangs_up" if template.startswith("uac") else "waits")
        scenario = render(context, name, template, parts, words,
                          login=login is not None and template.startswith("uac"))
        keys = {"domain": domain, "target": domain, "caller": caller, **(keys or {})}
        mode = {"udp": "u", "tcp": "t"}[transport] + {"one": "1", "each": "n"}[sockets]
        argv = [*prefix, "sipp", "-sf", scenario, "-i", source, "-p", self.port, "-t", mode,
                "-m", calls, "-r", rate, "-s", service, "-mp", context.ports.take(4), "-nostdin",
                "-timeout", f"{seconds}s", "-timeout_error",
                *arguments]
        if sockets == "each":
            argv += ["-max_socket", 900]
        if not quiet:
            argv += ["-trace_err", "-error_file", context.folder / f"{name}.err",
                     "-trace_msg", "-message_file", context.folder / f"{name}.msg"]
        for key, value in keys.items():
            argv += ["-key", key, value]
        if login:
            argv += ["-au", login[0], "-ap", login[1]]
        argv.append(f"{remote[0]}:{remote[1]}" if remote else source)
        self.process = context.start(name, argv)

    def listening(self):
        """Waits until a callee can be called."""
        self.context.until(lambda: listens(self.port, self.transport), 5, f"sipp {self.name} does not listen")
        return self

    def passed(self):
        """Waits for the end; fails unless every call went by the scenario."""
        status = self.process.wait(self.seconds + 10)
        if status == 0:
            return
        error = self.context.folder / f"{self.name}.err"
        said = error.read_text(errors="replace") if error.exists() else ""
        raise Failed(f"sipp {self.name} ended with {status}: {' '.join(said.split())[:700]}")

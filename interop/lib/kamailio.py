"""Kamailio, as a stand-in for the server under test and as a neighbour of it.

The configuration is a plain stateful proxy with an in-memory registrar: enough to show that a check
passes against a server that is known to work.
"""

import json
import re
from pathlib import Path

from cases import Failed

MODULES = "tm sl rr maxfwd usrloc registrar pv textops siputils sanity xlog ctl kex corex nathelper"


def write_config(folder, host, port, *, domain, routes=(), users=None, redirect=False, tls_port=None,
                 ws_port=None, wss_port=None, certificate=None, key=None, registrar=None, sctp=None):
    """Writes kamailio.cfg (and what it needs) to `folder`; returns its path.

    `routes` are (domain, next hop URI) pairs; `users` is None where nobody is asked for a password;
    `registrar` is the URI that an edge proxy sends registrations on to, with a Path (RFC 3327); `sctp` an
    address it is at over SCTP too, with the same port.
    """
    folder = Path(folder)
    modules = MODULES.split()
    listen = [f"listen=udp:{host}:{port}", f"listen=tcp:{host}:{port}"]
    params = [f'modparam("ctl", "binrpc", "unix:{folder}/ctl")', 'modparam("rr", "enable_double_rr", 1)',
              'modparam("registrar", "method_filtering", 0)', 'modparam("tm", "fr_timer", 32000)',
              'modparam("tm", "contacts_avp", "tm_contacts")', 'modparam("tm", "contact_flows_avp", "tm_flows")',
              'modparam("registrar", "gruu_enabled", 0)', 'modparam("registrar", "use_path", 1)',
              'modparam("usrloc", "db_mode", 0)']
    globals_ = ["debug=2", "log_stderror=yes", "fork=yes", "children=2", "tcp_children=2", "auto_aliases=no",
                f'alias="{domain}"', "server_header=\"Server: stand-in\"", "mlock_pages=no", "dns=no",
                "rev_dns=no", "use_dns_cache=off", "tcp_connection_lifetime=3605",
                "tcp_accept_no_cl=yes"]
    if users is not None:
        modules += ["auth", "db_text", "auth_db"]
        params += [f'modparam("auth_db", "db_url", "text://{folder}/db")', 'modparam("auth_db", "calculate_ha1", 1)',
                   'modparam("auth_db", "password_column", "password")', 'modparam("auth", "qop", "auth")']
        (folder / "db").mkdir(exist_ok=True)
        rows = "".join(f"{n}:{user}:{domain}:{password}\n" for n, (user, password) in enumerate(users.items(), 1))
        (folder / "db" / "subscriber").write_text(
            "id(int,auto) username(string) domain(string) password(string)\n" + rows)
        (folder / "db" / "version").write_text("table_name(string) table_version(int)\nsubscriber:7\n")
    if registrar:
        modules.append("path")
        # Two Path headers where the two sides differ, as Record-Route has them.
        params.append('modparam("path", "enable_r2", 1)')
    if sctp:
        modules.append("sctp")
        globals_.append("enable_sctp=yes")
        listen.append(f"listen=sctp:{sctp}:{port}")
    if tls_port or wss_port:
        modules.append("tls")
        globals_.append("enable_tls=yes")
        params += [f'modparam("tls", "certificate", "{certificate}")', f'modparam("tls", "private_key", "{key}")',
                   'modparam("tls", "tls_method", "TLSv1.2+")']
        listen += [f"listen=tls:{host}:{p}" for p in (tls_port, wss_port) if p]
    if ws_port:
        modules += ["xhttp", "websocket"]
        params += [f'modparam("{m}", "received_avp", "$avp(received)")' for m in ("registrar", "nathelper")]
        listen.append(f"listen=tcp:{host}:{ws_port}")
    script = (Path(__file__).with_suffix(".cfg")).read_text()
    for mark, on in [("AUTH", users is not None), ("REDIRECT", redirect), ("WEBSOCKET", bool(ws_port)),
                     ("EDGE", bool(registrar))]:
        if not on:
            script = re.sub(rf"#!{mark}\n.*?#!END\n", "", script, flags=re.DOTALL)
    script = re.sub(r"#!(AUTH|REDIRECT|WEBSOCKET|EDGE|END)\n", "", script)
    hops = "".join(f'    if ($rd == "{name}") {{ $du = "{hop}"; route(RELAY); exit; }}\n' for name, hop in routes)
    script = script.replace("    # ROUTES\n", hops).replace("REGISTRAR", registrar or "")
    path = folder / "kamailio.cfg"
    path.write_text("\n".join([
        *globals_, *listen, 'mpath="/usr/lib/x86_64-linux-gnu/kamailio/modules/"',
        *(f'loadmodule "{m}.so"' for m in modules), *params, script]))
    return path


def start(context, name, folder, config):
    """Starts it in the foreground."""
    return context.start(name, ["kamailio", "-DD", "-E", "-f", config, "-m", "64", "-M", "8",
                                "-w", folder, "-Y", folder])


def rpc(context, folder, *words):
    """What `kamcmd` answers, or None."""
    code, output = context.run("kamcmd", ["kamcmd", "-s", f"unix:{folder}/ctl", *words], seconds=5)
    return output if code == 0 and "error:" not in output else None


class StandIn:
    """The same face as `server.Ringway`."""

    def __init__(self, server):
        self.server = server
        wanted = server.wanted
        self.config = write_config(
            server.folder, server.host, server.port, domain=wanted.domain,
            routes=[(r.domain, r.hop) for r in wanted.routes], redirect=wanted.redirect,
            users=None if wanted.open_because else wanted.users, tls_port=server.tls_port if wanted.tls else None,
            ws_port=server.ws_port if wanted.websocket else None,
            wss_port=server.wss_port if wanted.websocket else None,
            certificate=server.certificate, key=server.key)

    def start(self, name):
        """Starts the stand-in."""
        return start(self.server.context, name, self.server.folder, self.config)

    def ready(self):
        """Whether it answers on its control socket."""
        return rpc(self.server.context, self.server.folder, "core.uptime") is not None

    def _number(self, command, key):
        output = rpc(self.server.context, self.server.folder, *command.split()) or ""
        found = re.search(rf"\b{key}: (\d+)", output)
        if not found:
            raise Failed(f"kamcmd {command} says no {key}: {output}")
        return int(found.group(1))

    def transactions(self):
        """Transactions in its tables."""
        return self._number("tm.stats", "current")

    def contacts(self):
        """Registered contacts."""
        output = rpc(self.server.context, self.server.folder, "ul.dump") or ""
        return len(re.findall(r"^\s*Address: ", output, flags=re.MULTILINE))

    def tables(self):
        """For error messages."""
        return json.dumps(rpc(self.server.context, self.server.folder, "tm.stats"))

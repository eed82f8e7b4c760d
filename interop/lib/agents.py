"""User agents that only register: who they are, how each is started, and which challenge it answers.

Each function starts one agent for `user` and returns its process. What became of it is read from the server
(`registered`) and from the wire (`answered_with`), not from what the agent prints.

`root` is the folder of another Debian system whose programs are run instead of this machine's, with this
checkout mounted into it (`interop/phones/measure --root`).
"""

import os
import re
import shutil
import time
from pathlib import Path

from phones import Baresip, Linphone
from sipp import Sipp

BROWSER = Path(__file__).resolve().parent.parent / "jssip"
# Where Debian has the modules of Asterisk.
ASTERISK_MODULES = "/usr/lib/x86_64-linux-gnu/asterisk/modules"
# What chan_pjsip needs to register, and no more.
ASTERISK = ["res_sorcery_config", "res_sorcery_memory", "res_sorcery_astdb", "res_pjproject", "res_pjsip",
            "res_pjsip_session", "res_pjsip_outbound_registration", "res_pjsip_outbound_authenticator_digest",
            "res_pjsip_pubsub", "res_statsd", "res_http_websocket", "chan_pjsip"]


def enter(root):
    """What a program of another system is started under."""
    return ["chroot", root] if root else []


def find(program, root=""):
    """Whether a program is there."""
    if "/" in program:
        return os.access(program, os.X_OK)
    if root:
        return any(os.access(f"{root}{folder}/{program}", os.X_OK) for folder in ("/usr/bin", "/usr/sbin"))
    return shutil.which(program) is not None


def baresip(c, server, user, password, root=""):
    """baresip."""
    return Baresip(c, user, password, server.domain, server, tone=440, prefix=enter(root)).process


def linphone(c, server, user, password, root=""):
    """linphone's console program."""
    return Linphone(c, user, password, server.domain, server, tone=440, prefix=enter(root)).process


def sipp(c, server, user, password, root=""):
    """SIPp with one scenario: REGISTER, 401, REGISTER, 200."""
    return Sipp(c, f"sipp-{user}", "register", remote=(server.host, server.port), service=user, seconds=15,
                login=(user, password), keys={"first": "1", "second": "2"}, prefix=enter(root),
                words={"contact": f"Contact: <sip:{user}@127.0.0.1:9001>", "answer": "200", "expected": ""}).process


def kamailio_uac(c, server, user, password, root=""):
    """Kamailio's uac module, which registers with another server as a phone does."""
    folder, port = c.folder / "uac", c.ports.take()
    (folder / "db").mkdir(parents=True)
    columns = ("id(int,auto) l_uuid(string) l_username(string) l_domain(string) r_username(string) r_domain(string) "
               "realm(string) auth_username(string) auth_password(string) auth_ha1(string,null) auth_proxy(string) "
               "expires(int) flags(int) reg_delay(int) contact_addr(string) socket(string,null)\n")
    proxy = f"sip\\:{server.host}\\:{server.port}"
    row = [1, f"{user}-1", user, server.domain, user, server.domain, server.domain, user, password, "", proxy, 120, 0,
           0, f"127.0.0.1\\:{port}", ""]
    (folder / "db" / "uacreg").write_text(columns + ":".join(map(str, row)) + "\n")
    (folder / "db" / "version").write_text("table_name(string) table_version(int)\nuacreg:5\n")
    config = folder / "kamailio.cfg"
    modules = "/usr/lib/x86_64-linux-gnu/kamailio/modules/"
    config.write_text("\n".join([
        "debug=2", "log_stderror=yes", "children=1", "disable_tcp=yes", "dns=no", "rev_dns=no", "auto_aliases=no",
        f"listen=udp:127.0.0.1:{port}", f'mpath="{modules}"',
        *(f'loadmodule "{m}.so"' for m in ["tm", "sl", "pv", "rr", "textops", "siputils", "db_text", "uac"]),
        f'modparam("uac", "reg_db_url", "text://{folder}/db")', 'modparam("uac", "reg_timer_interval", 1)',
        f'modparam("uac", "reg_contact_addr", "127.0.0.1:{port}")', 'modparam("uac", "reg_retry_interval", 5)',
        'modparam("uac", "restore_mode", "none")', "request_route { exit; }", ""]))
    return c.start("kamailio-uac", [*enter(root), "kamailio", "-DD", "-E", "-f", config, "-m", "64", "-M", "8",
                                    "-w", folder, "-Y", folder])


def pjsua(c, server, user, password, root="", program="pjsua"):
    """pjsua, the example program of pjproject."""
    return c.start("pjsua", [
        *enter(root), program, "--null-audio", "--no-tcp", "--no-cli-console", "--app-log-level=5",
        f"--local-port={c.ports.take()}", "--bound-addr=127.0.0.1", f"--id=sip:{user}@{server.domain}",
        f"--registrar=sip:{server.domain}", f"--outbound=sip:{server.host}:{server.port};lr",
        f"--realm={server.domain}", f"--username={user}", f"--password={password}", "--reg-timeout=120"], stdin=True)


def asterisk(c, server, user, password, root=""):
    """Asterisk's chan_pjsip as a client of a provider."""
    folder, port = c.folder / "asterisk", c.ports.take()
    folder.mkdir()
    names = ("astetcdir", "astvarlibdir", "astdbdir", "astkeydir", "astdatadir", "astagidir", "astspooldir",
             "astrundir", "astlogdir")
    data = {"astdatadir": "/usr/share/asterisk", "astvarlibdir": "/usr/share/asterisk"}
    (folder / "asterisk.conf").write_text("\n".join([
        "[directories]", f"astmoddir => {ASTERISK_MODULES}", *(f"{n} => {data.get(n, folder)}" for n in names),
        "[options]", "nocolor = yes", ""]))
    (folder / "modules.conf").write_text(
        "[modules]\nautoload = no\n" + "".join(f"load = {name}.so\n" for name in ASTERISK))
    (folder / "logger.conf").write_text("[logfiles]\nconsole => notice,warning,error\n")
    (folder / "pjsip.conf").write_text(f"""[global]
type = global
[transport]
type = transport
protocol = udp
bind = 127.0.0.1:{port}
[login]
type = auth
auth_type = digest
username = {user}
password = {password}
[provider]
type = registration
transport = transport
outbound_auth = login
server_uri = sip:{server.domain}
client_uri = sip:{user}@{server.domain}
contact_user = {user}
outbound_proxy = sip:{server.host}:{server.port}\\;lr
retry_interval = 5
expiration = 120
""")
    return c.start("asterisk", [*enter(root), "asterisk", "-f", "-n", "-C", folder / "asterisk.conf"])


def _browser(library):
    def start(c, server, user, password, root=""):  # noqa: ARG001 each agent is started alike
        """A page in headless Chromium that registers over a WebSocket."""
        return c.start(library, ["node", BROWSER / "register.mjs", library, c.folder, server.domain,
                                 f"ws://127.0.0.1:{server.ws_port}/", f"{user}:{password}"], cwd=BROWSER)
    return start


jssip, sipjs = _browser("jssip"), _browser("sipjs")

# Name, how it is started, and the program without which it cannot be.
ALL = {
    "baresip": (baresip, "baresip"),
    "linphone": (linphone, "linphonec"),
    "sipp": (sipp, "sipp"),
    "kamailio-uac": (kamailio_uac, "kamailio"),
    "jssip": (jssip, "chromium"),
    "sipjs": (sipjs, "chromium"),
    "pjsua": (pjsua, "pjsua"),
    "asterisk": (asterisk, "asterisk"),
}
BROWSERS = ("jssip", "sipjs")


def settled(server, agent, seconds):
    """Waits until a contact is registered or the agent has given up; whether one is."""
    deadline = time.monotonic() + seconds
    while server.contacts() == 0:
        if not agent.running() or time.monotonic() > deadline:
            # It may have ended because all is done.
            return server.contacts() > 0
        time.sleep(0.1)
    return True


def answered_with(c, server):
    """The digest algorithms of the credentials on the wire, in the order they came; MD5 where none is named."""
    # dumpcap writes what it has twice a second.
    time.sleep(1)
    c.capture().end()
    capture = c.folder / "capture.pcapng"
    _, output = c.run("tshark", ["tshark", "-r", capture, "-d", f"udp.port=={server.port},sip", "-d",
                                 f"tcp.port=={server.ws_port},http",
                                 "-Y", "sip.Method == REGISTER && sip.Authorization",
                                 "-T", "fields", "-e", "sip.Method", "-e", "sip.auth.algorithm"])
    found = re.findall(r'^REGISTER\t"?([\w-]*)', output, flags=re.MULTILINE)
    return [name or "MD5" for name in found]

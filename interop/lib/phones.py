"""Two phones that others wrote, run without a screen or a sound card: baresip and linphone's linphonec.

Both play a tone from a file and record what they hear to one.
"""

import contextlib
import json
import re
import shutil
import socket
import tempfile
from pathlib import Path

import audio
from cases import Failed


def plain(context, folder):
    """A name of a folder without spaces, commas and what else such a program's configuration cannot hold."""
    if re.fullmatch(r"[\w./-]+", str(folder), flags=re.ASCII):
        return folder
    scratch = Path(tempfile.mkdtemp(prefix="ringway-"))
    (scratch / "folder").symlink_to(folder)
    context.after(lambda: shutil.rmtree(scratch))
    return scratch / "folder"


class Baresip:
    """baresip 1.0: a file as microphone, its sndfile module as recorder, its TCP control socket. One in a network
    namespace has an `address` there, and neither recorder nor control socket."""

    def __init__(self, context, user, password, domain, server, *, tone, answer=True, transport="udp", prefix=(),
                 second=None, address="127.0.0.1"):
        self.context, self.user = context, user
        is_here = address == "127.0.0.1"
        modules = ("g711", "aufile", *(("sndfile", "rtcpsummary", "ctrl_tcp") if is_here else ()))
        (context.folder / f"baresip-{user}").mkdir()
        self.folder = plain(context, context.folder / f"baresip-{user}")
        self.control = context.ports.take()
        self._buffer = b""
        sip_port, rtp_port = context.ports.take(2), context.ports.take(20)
        audio.write_tone(self.folder / "tone.wav", tone)
        (self.folder / "contacts").touch()
        (self.folder / "config").write_text("\n".join([
            f"sip_listen {address}:{sip_port}", f"net_interface {address}", f"rtp_ports {rtp_port}-{rtp_port + 19}",
            f"audio_source aufile,{self.folder}/tone.wav", f"snd_path {self.folder}",
            "audio_path /usr/share/baresip", f"ctrl_tcp_listen 127.0.0.1:{self.control}",
            "module_path /usr/lib/baresip/modules",
            *(f"module {m}.so" for m in modules),
            *(["module_tmp uuid.so"] if second else []), "module_tmp account.so", "module_app menu.so", ""]))
        # RFC 5626: a flow to each of two servers.
        flows = f';outbound2="sip:{second.host}:{second.port};transport={transport}";sipnat=outbound' if second else ""
        (self.folder / "accounts").write_text(
            f"<sip:{user}@{domain};transport={transport}>;auth_user={user};auth_pass={password}"
            f';outbound="sip:{server.host}:{server.port};transport={transport}"{flows};regint=120'
            f";answermode={'auto' if answer else 'manual'}\n")
        self.process = context.start(f"baresip-{user}", [*prefix, "baresip", "-f", self.folder, "-s"])
        if is_here:
            context.until(self._connect, 10, lambda: f"baresip's control port does not open: {self._said()}")

    def _said(self):
        return self.process.output()[-400:]

    def _connect(self):
        try:
            self.socket = socket.create_connection(("127.0.0.1", self.control), timeout=2)
        except OSError:
            return False
        self.context.after(self.socket.close)
        return True

    def command(self, command, params=""):
        """One command, as a netstring of JSON."""
        text = json.dumps({"command": command, "params": params, "token": command}).encode()
        self.socket.sendall(b"%d:%s," % (len(text), text))

    def event(self, wanted, seconds=15):
        """Waits for an event of the control socket."""
        def read():
            self.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                self._buffer += self.socket.recv(65_536)
            return f'"type":"{wanted}"'.encode() in self._buffer
        self.context.until(read, seconds, lambda: f"baresip: no {wanted} in {seconds} s: {self._said()}")

    def registered(self):
        """Waits until it is registered."""
        # Not by the control socket: the answer may come before that is open.
        self.context.until(lambda: " 200 OK (" in self.process.output() and "binding" in self.process.output(), 15,
                           lambda: f"baresip does not register: {self._said()}")

    def call(self, uri):
        """Calls."""
        self.command("dial", uri)

    def established(self):
        """Waits until a call is up."""
        self.event("CALL_ESTABLISHED")

    def hang_up(self):
        """Ends the call."""
        self.command("hangup")

    def ended(self):
        """Waits until the call is over."""
        self.event("CALL_CLOSED")

    def packets_received(self):
        """RTP packets it received in its last call, by its own count."""
        found = re.findall(r"EX=BareSip;.*?PR=(\d+)", self.process.output())
        return int(found[-1]) if found else 0

    def recording(self):
        """What it heard in its last call."""
        found = sorted(self.folder.glob("dump-*-dec.wav"))
        if not found:
            raise Failed("baresip recorded nothing")
        return found[-1]

    def recorded(self):
        """Bytes recorded so far."""
        return sum(path.stat().st_size for path in self.folder.glob("dump-*-dec.wav"))


class Linphone:
    """linphonec 5: files instead of a sound card, commands on its standard input."""

    def __init__(self, context, user, password, domain, server, *, tone, answer=True, transport="udp", prefix=()):
        self.context, self.user = context, user
        for name in (".local/share/linphone", ".config/linphone"):
            (context.folder / f"linphone-{user}" / name).mkdir(parents=True)
        self.folder = plain(context, context.folder / f"linphone-{user}")
        audio.write_tone(self.folder / "tone.wav", tone)
        self.debug = self.folder / "debug.log"
        ports = {"udp": -1, "tcp": -1, "tls": -1, transport: context.ports.take(2)}
        proxy = f"<sip:{server.host}:{server.port};transport={transport}"
        (self.folder / "rc").write_text(f"""[sip]
sip_port={ports["udp"]}
sip_tcp_port={ports["tcp"]}
sip_tls_port={ports["tls"]}
register_only_when_network_is_up=0
use_ipv6=0
[rtp]
audio_rtp_port={context.ports.take(2)}
[video]
enabled=0
[auth_info_0]
username={user}
passwd={password}
realm={domain}
domain={domain}
[proxy_0]
reg_proxy={proxy}>
reg_identity=sip:{user}@{domain}
reg_route={proxy};lr>
reg_expires=120
reg_sendregister=1
publish=0
""")
        self.process = context.start(
            f"linphone-{user}", [*prefix, "linphonec", "-c", self.folder / "rc", "-d", "6", "-l", self.debug,
                                 *(["-a"] if answer else [])],
            env={"HOME": str(self.folder), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}, stdin=True)
        for line in ("soundcard use files", f"play {self.folder}/tone.wav", f"record {self.folder}/heard.wav"):
            self.process.write(line)

    def _wait(self, text, seconds=15, what=None):
        self.context.until(lambda: text in self.process.output(), seconds, lambda:
                           f"linphone: no {what or text!r} in {seconds} s: {self.process.output()[-400:]}")

    def registered(self):
        """Waits until it is registered."""
        self.context.until(
            lambda: self.debug.exists() and "to [LinphoneRegistrationOk]" in self.debug.read_text(errors="replace"),
            15, lambda: f"linphone does not register: {self.process.output()[-400:]}")

    def call(self, uri):
        """Calls."""
        self.process.write(f"call {uri}")

    def established(self):
        """Waits until a call is up."""
        self._wait("Media streams established")

    def hang_up(self):
        """Ends the call."""
        self.process.write("terminate")

    def ended(self):
        """Waits until the call is over."""
        self._wait("ended (")

    def packets_received(self):
        """RTP packets it received in its last call, by its own count."""
        text = self.debug.read_text(errors="replace")
        found = re.findall(r"AUDIO SESSION'S RTP STATISTICS.*?received +(\d+) packets", text, flags=re.DOTALL)
        return int(found[-1]) if found else 0

    def recording(self):
        """What it heard."""
        return self.folder / "heard.wav"

    def recorded(self):
        """Bytes recorded so far."""
        return self.recording().stat().st_size if self.recording().exists() else 0

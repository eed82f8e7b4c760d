"""One connection of the kernel's TCP: sends and checks the same pattern as its counterpart.

The last line says how it ended; the exit status is 0 when it did as expected.
"""

import argparse
import ipaddress
import socket
import struct
import sys
import threading
import time

PERIOD = 1 << 16
PATTERN = bytes(((i * 31) ^ (i >> 8)) & 0xFF for i in range(PERIOD)) * 2


class Peer:
    """What the program above the kernel's TCP does."""

    def __init__(self, options):
        self.options = options
        self.received = 0
        self.ended, self.wrong = None, None
        self.eof = threading.Event()
        self.socket = self.open()
        self.opened = time.monotonic()

    def open(self):
        """Connects, or takes one connection."""
        o = self.options
        family = socket.AF_INET6 if ipaddress.ip_address(o.address).version == 6 else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if o.congestion:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, o.congestion.encode())
        if o.buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, o.buffer)
        if o.listen:
            made.bind((o.address, o.listen))
            made.listen(4)
            print("listening", flush=True)
            made.settimeout(o.limit)
            taken, _ = made.accept()
            made.close()
            taken.settimeout(o.limit)
            return taken
        if o.bind:
            made.bind(("", o.bind))
        made.settimeout(o.limit)
        made.connect((o.address, o.connect))
        return made

    def wait(self, milliseconds):
        """Until so long after the connection opened."""
        left = self.opened + milliseconds / 1000 - time.monotonic()
        if left > 0:
            time.sleep(left)

    def send(self):
        """Sends everything, and the FIN."""
        o = self.options
        if o.after_eof:
            self.eof.wait(o.limit)
        sent = 0
        try:
            while sent < o.send:
                at = sent % PERIOD
                sent += self.socket.send(PATTERN[at:at + min(PERIOD, o.send - sent)])
            self.wait(o.linger)
            if o.end != "abort":
                self.socket.shutdown(socket.SHUT_WR)
        except (ConnectionResetError, BrokenPipeError):
            self.ended = "reset"
        except OSError as error:
            self.wrong = self.wrong or f"sending: {error}"

    def receive(self):
        """Reads to the end, and compares."""
        o = self.options
        self.wait(o.pause)
        try:
            while True:
                if o.end == "abort" and self.received >= o.receive:
                    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.ended = "abort"
                    self.socket.close()
                    return
                data = self.socket.recv(PERIOD)
                if not data:
                    break
                at = self.received % PERIOD
                if data != PATTERN[at:at + len(data)]:
                    self.wrong = f"a wrong byte after {self.received}"
                self.received += len(data)
            self.ended = self.ended or "finished"
        except ConnectionResetError:
            self.ended = "reset"
        except OSError as error:
            self.wrong = self.wrong or f"receiving: {error}"
        self.eof.set()

    def run(self):
        """Both directions at once; gives what went wrong."""
        sender = threading.Thread(target=self.send, daemon=True)
        sender.start()
        self.receive()
        sender.join(self.options.limit)
        o = self.options
        if self.wrong:
            return self.wrong
        if self.ended != o.end:
            return f"expected the end {o.end}, got {self.ended}"
        if o.end == "finished" and self.received != o.receive:
            return f"expected {o.receive} bytes, got {self.received}"
        return None


def main():
    """Runs what the arguments ask for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--listen", type=int)
    parser.add_argument("--connect", type=int)
    parser.add_argument("--bind", type=int)
    for number in ("send", "receive", "pause", "linger", "buffer"):
        parser.add_argument(f"--{number}", type=int, default=0)
    parser.add_argument("--congestion")
    parser.add_argument("--after-eof", action="store_true")
    parser.add_argument("--end", default="finished", choices=("finished", "reset", "refused", "abort"))
    parser.add_argument("--limit", type=int, default=60)
    options = parser.parse_args()
    try:
        wrong = Peer(options).run()
    except ConnectionRefusedError:
        wrong = None if options.end == "refused" else "refused"
    print(wrong or "as expected", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

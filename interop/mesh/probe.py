"""Pings between namespaces from one process: a raw ICMPv6 socket in each, so that two hundred cost no two hundred
programs. What a ping is: an echo request with 56 octets, answered within a second or lost."""

import os
import random
import select
import socket
import struct
import time

DEADLINE = 1.0
ECHO_REQUEST, ECHO_REPLY = 128, 129
ICMP6_FILTER, PASS_ECHO_REPLY = 1, struct.pack("8I", *(0xffffffff ^ (2 if i == ECHO_REPLY // 32 else 0)
                                                       for i in range(8)))
PAYLOAD = bytes(56)
# In a list of round trip times: neither answered nor lost yet.
WAITING = "waiting"


class Probe:
    """The sockets of a network's routers."""

    def __init__(self, spaces, nodes):
        self.sockets, self.nodes = {}, {}
        self.poll = select.epoll()
        self.identity, self.number = random.Random(os.getpid()).getrandbits(16), 0
        for node in nodes:
            with spaces.inside(node):
                opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6)
            opened.setsockopt(socket.IPPROTO_ICMPV6, ICMP6_FILTER, PASS_ECHO_REPLY)
            self.sockets[node] = opened
            self.nodes[opened.fileno()] = node
            self.poll.register(opened, select.EPOLLIN)

    def close(self):
        """Closes them."""
        for opened in self.sockets.values():
            opened.close()
        self.poll.close()

    def ping(self, pairs, span, address):
        """Sends one ping for each pair, spread over `span` seconds, and waits for the last; `address` gives the
        address of a node or None. Returns the round trip time of each in seconds, None for one that was lost."""
        return self.run(spread(pairs, time.monotonic(), span), address)

    def run(self, plan, address, enough=lambda _: False):
        """Sends pings at the times of `plan`, a list of (time, pair), until `enough` of the round trip times, in
        which a ping that is under way is `WAITING`. Returns them."""
        times, pending, sending = [], {}, True
        while pending or sending:
            sending = sending and len(times) < len(plan) and not enough(times)
            now = time.monotonic()
            while sending and len(times) < len(plan) and plan[len(times)][0] <= now:
                self.number = (self.number + 1) % 65536
                if self.send(*plan[len(times)][1], address):
                    pending[self.number] = (len(times), now)
                    times.append(WAITING)
                else:
                    times.append(None)
            first = next(iter(pending), None)
            if first is not None and now - pending[first][1] > DEADLINE:
                times[pending.pop(first)[0]] = None
                continue
            until = [at for at, _ in plan[len(times):len(times) + 1] if sending]
            if first is not None:
                until.append(pending[first][1] + DEADLINE)
            for file, _ in self.poll.poll(max(0.0, min(until, default=now) - now) + 0.0005):
                for number in self.replies(file):
                    if number in pending:
                        index, at = pending.pop(number)
                        times[index] = time.monotonic() - at
        return times

    def send(self, source, target, address):
        """Sends a ping; whether that was possible."""
        to = address(target)
        if to is None:
            return False
        try:
            self.sockets[source].sendto(struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, self.identity, self.number) + PAYLOAD,
                                        (to, 0))
        except OSError:
            return False
        return True

    def replies(self, file):
        """Numbers of the pings that are answered at a socket."""
        found = []
        while True:
            try:
                data = self.sockets[self.nodes[file]].recv(2048)
            except OSError:
                # Errors that routers on the way reported come here, too; after them there may be more.
                return found
            kind, _, _, identity, number = struct.unpack("!BBHHH", data[:8])
            if kind == ECHO_REPLY and identity == self.identity:
                found.append(number)


def spread(pairs, begin, span):
    """A plan of pings at equal distances from `begin` on."""
    return [(begin + span * index / len(pairs), pair) for index, pair in enumerate(pairs)]


def share(times):
    """Percentage of pings that were answered."""
    return 100 * sum(time is not None for time in times) / len(times)

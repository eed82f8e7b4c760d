"""SCTP in virtual time: two hosts, an association, and links between them.

>>> from ringway.sctp import Pair
>>> pair = Pair({"rate": "1 Mbit/s", "delay": "20 ms"}, seed=1)
>>> pair.client.send(b"hello", stream=3)
>>> pair.run(1.0)
>>> [(message.stream, message.data) for message in pair.server.messages]
[(3, b'hello')]
>>> [event.name for event in pair.client.events]
['up']

`Endpoint` is one host alone, without a clock and without a network: packets, times and messages in, packets, events
and messages out. `Pair` joins two of them by links of `ringway.link`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ringway import _ringway
from ringway._ringway import Error, UsageError
from ringway.link import Link

__all__ = ["Endpoint", "Event", "Host", "Message", "Packet", "Pair"]

PORT = 5060
# Events at one time that are no progress: a fault, or a link without rate and delay between talkative hosts.
MAX_TURNS = 1_000_000


class Event(NamedTuple):
    """Something that happened to an association."""

    at: float
    """When, in seconds of virtual time."""
    name: str
    """`up`, `restarted`, `readable`, `writable`, `peer-shutdown`, `path`, `peer-error`, `send-failed`, `changed`,
    `closed`."""
    association: int
    detail: dict[str, Any]


class Message(NamedTuple):
    """A message, or a part of one that is larger than half the receive buffer."""

    at: float
    """When it was read."""
    association: int
    stream: int
    data: bytes
    ppid: int
    unordered: bool
    begins: bool
    ends: bool


class Packet(NamedTuple):
    """A packet to send."""

    source: str
    destination: str
    data: bytes
    """From the SCTP header on."""
    size: int
    """With the IP header, in bytes."""
    ecn: bool


class Endpoint:
    """The SCTP of one host. After each call the caller takes all packets, and then asks for the next timer.

    `settings` are those of docs/python.md, as `streams=8` or `rack=True`; times are in seconds.
    """

    def __init__(self, seed: int, **settings: Any) -> None:
        self._endpoint = _ringway.Endpoint(seed, settings)

    def listen(self, local: Sequence[str], port: int = PORT) -> None:
        """Accepts associations at addresses and a port."""
        self._endpoint.listen(local, port)

    def connect(
        self, now: float, local: Sequence[str], remote: Sequence[str], port: int = PORT, local_port: int = 0
    ) -> int:
        """Opens an association, whose primary path is between the first addresses, and returns its number."""
        return self._endpoint.connect(now, local, remote, port, local_port)

    def send(
        self,
        now: float,
        association: int,
        data: bytes,
        *,
        stream: int = 0,
        ppid: int = 0,
        unordered: bool = False,
        lifetime: float | None = None,
        retransmissions: int | None = None,
    ) -> None:
        """Queues a message; it may be abandoned after `lifetime` seconds or a number of retransmissions."""
        self._endpoint.send(now, association, data, stream, ppid, unordered, lifetime, retransmissions)

    def receive(self, now: float, association: int) -> Message | None:
        """Returns the next message; None when none is waiting."""
        got = self._endpoint.receive(association)
        if got is None:
            return None
        stream, data, ppid, unordered, begins, ends = got
        return Message(now, association, stream, data, ppid, unordered, begins, ends)

    def shutdown(self, now: float, association: int) -> None:
        """Ends an association once all is delivered."""
        self._endpoint.shutdown(now, association)

    def abort(self, association: int, reason: bytes = b"") -> None:
        """Ends an association at once."""
        self._endpoint.abort(association, reason)

    def set_primary(self, association: int, remote: str) -> None:
        """Sets the primary path to an address of the peer."""
        self._endpoint.set_primary(association, remote)

    def handle_packet(self, now: float, source: str, destination: str, data: bytes, *, ce: bool = False) -> None:
        """Handles a packet that has come; `ce` says that it is marked by congestion."""
        self._endpoint.handle_packet(now, source, destination, data, ce)

    def poll_transmit(self, now: float) -> Packet | None:
        """Returns the next packet to send; None when there is none now."""
        packet = self._endpoint.poll_transmit(now)
        return None if packet is None else Packet(*packet)

    def poll_timeout(self) -> float | None:
        """Returns when `handle_timeout` is due."""
        return self._endpoint.poll_timeout()

    def handle_timeout(self, now: float) -> None:
        """Handles the timers that are due."""
        self._endpoint.handle_timeout(now)

    def poll_event(self, now: float) -> Event | None:
        """Returns the next event."""
        event = self._endpoint.poll_event()
        return None if event is None else Event(now, *event)

    def snapshot(self, association: int) -> dict[str, Any]:
        """Returns the state of an association: its paths with `cwnd`, `srtt` and `rto`, and its counters."""
        return self._endpoint.snapshot(association)


class Host:
    """One end of a `Pair`."""

    def __init__(self, pair: "Pair", endpoint: Endpoint, addresses: list[str]) -> None:
        self.endpoint = endpoint
        self.addresses = addresses
        self.association: int | None = None
        """The number of its association; None at the server until it is up."""
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self._pair = pair

    def _open(self) -> int:
        if self.association is None:
            raise Error("the association is not up yet")
        return self.association

    def send(self, data: bytes, **options: Any) -> None:
        """Queues a message now, with the options of `Endpoint.send`."""
        self.endpoint.send(self._pair.now, self._open(), data, **options)

    def shutdown(self) -> None:
        """Ends the association once all is delivered."""
        self.endpoint.shutdown(self._pair.now, self._open())

    def snapshot(self) -> dict[str, Any]:
        """Returns the state of the association."""
        return self.endpoint.snapshot(self._open())

    def _collect(self, now: float) -> None:
        while (event := self.endpoint.poll_event(now)) is not None:
            if self.association is None:
                self.association = event.association
            if event.name != "readable":
                self.events.append(event)
                continue
            while (message := self.endpoint.receive(now, event.association)) is not None:
                self.messages.append(message)


class Pair:
    """A client and a server, joined by one link or several, one for each path.

    `there` are the settings of the links from client to server, and `back` those in the other direction, by default
    the same. Path number i is between the addresses 10.0.i.1 and 10.0.i.2; the first is the primary one.
    """

    def __init__(
        self,
        there: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        back: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        seed: int = 12345,
        **settings: Any,
    ) -> None:
        forward = _listed(there)
        reverse = forward if back is None else _listed(back)
        if not 1 <= len(forward) <= 250 or len(forward) != len(reverse):
            raise UsageError(f"expected 1 to 250 links in each direction, got {len(forward)} and {len(reverse)}")
        self.now = 0.0
        ends = [[f"10.0.{path}.{host}" for path in range(len(forward))] for host in (1, 2)]
        self.client = Host(self, Endpoint(2 * seed, **settings), ends[0])
        self.server = Host(self, Endpoint(2 * seed + 1, **settings), ends[1])
        # By destination: the link, and the host at its end.
        self._links: dict[str, tuple[Link, Host]] = {}
        for path in range(len(forward)):
            towards = Link(forward[path], name=f"path-{path}/there", seed=seed)
            away = Link(reverse[path], name=f"path-{path}/back", seed=seed)
            self._links[ends[1][path]] = (towards, self.server)
            self._links[ends[0][path]] = (away, self.client)
        self._carried: dict[tuple[str, int], Packet] = {}
        # A copy may arrive after its original: then packets are kept until their link is empty.
        self._copies = any("duplicate" in str(link) for link in (*forward, *reverse))
        self.server.endpoint.listen(ends[1])
        self.client.association = self.client.endpoint.connect(0.0, ends[0], ends[1])

    def run(self, until: float) -> None:
        """Lets time pass until `until`, in seconds from the start."""
        turns, last = 0, self.now
        while True:
            self._transmit()
            due = [link.next_event for link, _ in self._links.values()]
            due += [host.endpoint.poll_timeout() for host in (self.client, self.server)]
            at = min((moment for moment in due if moment is not None), default=None)
            if at is None or at > until:
                break
            turns, last = (turns + 1, at) if at <= last else (0, at)
            if turns > MAX_TURNS:
                raise Error(f"more than {MAX_TURNS} events at {at} s")
            self.now = max(self.now, at)
            self._deliver()
            for host in (self.client, self.server):
                timeout = host.endpoint.poll_timeout()
                if timeout is not None and timeout <= self.now:
                    host.endpoint.handle_timeout(self.now)
                host._collect(self.now)
        self.now = max(self.now, until)

    def _transmit(self) -> None:
        for host in (self.client, self.server):
            host._collect(self.now)
            while (packet := host.endpoint.poll_transmit(self.now)) is not None:
                if packet.destination in self._links:
                    link, _ = self._links[packet.destination]
                    number = link.offer(self.now, packet.size, ecn=packet.ecn, data=packet.data)
                    self._carried[packet.destination, number] = packet

    def _deliver(self) -> None:
        for destination, (link, host) in self._links.items():
            for fate in link.advance(self.now):
                original = fate.packet if fate.copy_of is None else fate.copy_of
                packet = self._carried.get((destination, original))
                if fate.copy_of is None and not self._copies:
                    del self._carried[destination, fate.packet]
                if packet is None or fate.dropped is not None:
                    continue
                data = packet.data
                if fate.flipped_bit is not None:
                    data = _flip(data, fate.flipped_bit - 8 * (packet.size - len(data)))
                host.endpoint.handle_packet(self.now, packet.source, destination, data, ce=fate.ce)
        if self._copies and not any(link.carried for link, _ in self._links.values()):
            self._carried.clear()


def _listed(links: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    if links is None:
        return [{}]
    return [links] if isinstance(links, Mapping) else list(links)


def _flip(data: bytes, bit: int) -> bytes:
    """Inverts a bit; one of the IP header, before the data, is not looked at."""
    if not 0 <= bit < 8 * len(data):
        return data
    changed = bytearray(data)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)

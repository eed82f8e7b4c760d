"""One direction of a link: rate, delay, loss, queue and the rest, without a network around it.

The settings are those of a link in a scenario (docs/lab.md). Packets are offered with their times, in seconds of
virtual time, and the link returns what becomes of each.

>>> from ringway.link import Link
>>> link = Link(rate="1 Mbit/s", delay="20 ms", queue={"discipline": "drop-tail", "limit": 1})
>>> for _ in range(3):
...     number = link.offer(0.0, 1250)
>>> [(fate.packet, fate.at, fate.dropped) for fate in link.advance(1.0)]
[(2, 0.0, 'queue full'), (0, 0.03, None), (1, 0.04, None)]
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ringway import _ringway
from ringway._ringway import Table, UsageError

__all__ = ["Fate", "Link"]


class Fate(NamedTuple):
    """What became of a packet."""

    at: float
    """When it arrived or was lost."""
    packet: int
    """Its number, as `offer` returned it; a copy has a number of its own."""
    size: int
    offered: float
    """When it was offered."""
    sent: float | None
    """When its last bit was sent; None if it was lost before."""
    copy_of: int | None
    """The packet that the link made it of."""
    ce: bool
    """Whether it is marked as having experienced congestion."""
    flipped_bit: int | None
    """The bit that was inverted."""
    dropped: str | None
    """Why it was lost; None if it arrived."""


class Link:
    """One direction of a link; its random numbers are those of `seed`, `replication` and `name`."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        name: str = "link",
        seed: int = 12345,
        replication: int = 0,
        **settings: Any,
    ) -> None:
        try:
            text = json.dumps({**(config or {}), **settings})
        except (TypeError, ValueError) as error:
            raise UsageError(f"expected the settings of a link: {error}") from None
        self._link = _ringway.Link(text, name, seed, replication)

    @property
    def now(self) -> float:
        """The present time in seconds."""
        return self._link.now

    @property
    def queued(self) -> int:
        """The number of packets in the queue."""
        return self._link.queued

    @property
    def carried(self) -> int:
        """The number of packets that have neither arrived nor been lost."""
        return self._link.carried

    @property
    def next_event(self) -> float | None:
        """The time of the next decision or arrival; None if nothing is to come."""
        return self._link.next_event

    def offer(
        self, at: float, size: int, *, flow: int = 0, ecn: bool = False, data: bytes | None = None
    ) -> int:
        """Offers a packet of `size` bytes and returns its number. Times must not go back.

        `flow` distinguishes flows for fair queues, `ecn` says that the packet may be marked, `data` is what loss by a
        pattern looks at.
        """
        return self._link.offer(at, size, flow, ecn, data)

    def advance(self, until: float) -> list[Fate]:
        """Lets time pass and returns what became of packets since the last call, in the order of time."""
        return [Fate(*fate) for fate in self._link.advance(until)]

    def feed(
        self,
        times: Iterable[float],
        sizes: int | Iterable[int],
        *,
        flows: int | Iterable[int] = 0,
        until: float | None = None,
    ) -> Table:
        """Offers a packet at each time, lets the link run empty (or time pass until `until`), and returns a table.

        >>> table = Link(loss={"model": "random", "chance": "10 %"}).feed(range(1000), 100)
        >>> table.column_names[:6]
        ['packet', 'size_bytes', 'offered_s', 'sent_s', 'arrived_s', 'fate']
        """
        moments = list(times)
        return self._link.feed(moments, _each(sizes, moments), _each(flows, moments), until)


def _each(values: int | Iterable[int], moments: list[float]) -> list[int]:
    listed = [values] * len(moments) if isinstance(values, int) else list(values)
    if len(listed) != len(moments):
        raise UsageError(f"expected {len(moments)} values, one for each time, got {len(listed)}")
    return listed

"""`ringway.link` and `ringway.sctp`."""

import itertools
import unittest

import polars
import ringway
from common import Case
from ringway.link import Link
from ringway.sctp import Endpoint, Pair


class Links(Case):
    def test_a_packet_takes_its_time_on_the_line_and_in_the_queue(self):
        table = polars.DataFrame(Link(rate="1 Mbit/s", delay="20 ms").feed([0.0] * 3, 1250))
        self.assertEqual(table["arrived_s"].to_list(), [0.03, 0.04, 0.05])
        self.assertEqual(table["sent_s"].to_list(), [0.01, 0.02, 0.03])

    def test_feeding_and_offering_decide_alike(self):
        config = {
            "rate": "20 Mbit/s",
            "delay": "10 ms",
            "jitter": "3 ms",
            "loss": {"model": "random", "chance": "5 %"},
            "duplicate": {"chance": "2 %"},
            "queue": {"discipline": "drop-tail", "limit": 20},
        }
        times = [i / 1000 for i in range(2000)]
        fed = polars.DataFrame(Link(config, seed=4).feed(times, 1500))
        link = Link(config, seed=4)
        fates = []
        for at in times:
            link.offer(at, 1500)
            fates += link.advance(at)
        fates += link.advance(100)
        fates.sort(key=lambda fate: fate.packet)
        self.assertEqual(fed["packet"].to_list(), [fate.packet for fate in fates])
        self.assertEqual(fed["fate"].to_list(), [fate.dropped or "arrived" for fate in fates])
        arrived = [None if fate.dropped else fate.at for fate in fates]
        self.assertEqual(fed["arrived_s"].to_list(), arrived)
        self.assertGreater(fed["copy_of"].drop_nulls().len(), 10)
        self.assertEqual(set(fed["fate"]), {"arrived", "random loss"})
        self.assertEqual((link.carried, link.next_event), (0, None))
        other = polars.DataFrame(Link(config, seed=5).feed(times, 1500))
        self.assertFalse(other.equals(fed))

    def test_what_is_on_a_line_that_goes_down_is_lost(self):
        link = Link(delay="1 s", schedule=[{"at": "500 ms", "up": False}, {"at": "2 s", "up": True}])
        numbers = [link.offer(at, 100) for at in (0.0, 1.0, 2.5)]
        why = {fate.packet: fate.dropped for fate in link.advance(5)}
        self.assertEqual([why[number] for number in numbers], ["link went down on the way", "link down", None])

    def test_errors_say_what_was_expected(self):
        with self.assertRaisesRegex(ringway.UsageError, "unknown field `jiter`"):
            Link(jiter="1 ms")
        with self.assertRaisesRegex(ringway.UsageError, "expected a time with its unit"):
            Link(delay="10")
        link = Link()
        link.offer(1.0, 100)
        with self.assertRaisesRegex(ringway.UsageError, "expected a time from 1 s on, got 0.5 s"):
            link.offer(0.5, 100)
        with self.assertRaisesRegex(ringway.UsageError, "expected 2 values"):
            link.feed([1.0, 2.0], [1])
        with self.assertRaisesRegex(ringway.UsageError, "from 0 to"):
            link.offer(float("nan"), 100)


class Sctp(Case):
    def test_messages_arrive_once_and_in_the_order_of_their_stream(self):
        line = {
            "rate": "2 Mbit/s",
            "delay": "20 ms",
            "jitter": "2 ms",
            "loss": {"model": "random", "chance": "5 %"},
            "duplicate": {"chance": "2 %"},
            "corrupt": {"chance": "2 %"},
        }
        pair = Pair(line, seed=3)
        for number in range(400):
            pair.client.send(b"%d" % number * 20, stream=number % 4)
        pair.run(60)
        for stream in range(4):
            got = [message.data for message in pair.server.messages if message.stream == stream]
            self.assertEqual(got, [b"%d" % number * 20 for number in range(stream, 400, 4)])
        self.assertGreater(pair.client.snapshot()["retransmits"], 0)
        again = Pair(line, seed=3)
        for number in range(400):
            again.client.send(b"%d" % number * 20, stream=number % 4)
        again.run(60)
        self.assertEqual(again.server.messages, pair.server.messages)

    def test_both_ends_talk_and_shut_down(self):
        pair = Pair({"delay": "10 ms"})
        pair.run(1)
        self.assertEqual(pair.server.events[0].detail, {"accepted": True})
        pair.server.send(b"from the server", ppid=46, unordered=True)
        pair.run(2)
        message = pair.client.messages[0]
        self.assertEqual((message.data, message.ppid, message.unordered), (b"from the server", 46, True))
        pair.client.shutdown()
        pair.run(3)
        self.assertEqual(pair.client.events[-1].detail, {"why": "finished"})
        self.assertIn("peer-shutdown", [event.name for event in pair.server.events])

    def test_a_second_path_takes_over(self):
        good = {"rate": "1 Mbit/s", "delay": "10 ms"}
        failing = {**good, "schedule": [{"at": "2 s", "up": False}]}
        pair = Pair([failing, good], profile="ss7")
        pair.run(2)
        for number in itertools.count():
            pair.client.send(b"%d" % number)
            pair.run(pair.now + 0.05)
            if pair.now > 10:
                break
        self.assertEqual(len(pair.server.messages), number + 1)
        failed = [event for event in pair.client.events if event.detail.get("state") == "inactive"]
        self.assertEqual(failed[0].detail["remote"], "10.0.0.2")

    def test_an_old_message_is_abandoned(self):
        pair = Pair({"delay": "10 ms"}, {"delay": "10 ms"})
        pair.run(1)
        lossy = Pair({"delay": "10 ms", "loss": {"model": "random", "chance": "30 %"}}, {"delay": "10 ms"}, seed=2)
        lossy.run(20)
        for number in range(200):
            lossy.client.send(b"%d" % number, lifetime=0.05)
            lossy.run(lossy.now + 0.02)
        lossy.run(lossy.now + 60)
        self.assertLess(len(lossy.server.messages), 200)
        self.assertGreater(len(lossy.server.messages), 50)

    def test_an_endpoint_alone_has_no_clock(self):
        client, server = Endpoint(1, streams=2), Endpoint(2)
        server.listen(["10.0.0.2"])
        number = client.connect(0.0, ["10.0.0.1"], ["10.0.0.2"])
        client.send(0.0, number, b"hello")
        for _ in range(10):
            for one, other in ((client, server), (server, client)):
                while (packet := one.poll_transmit(0.0)) is not None:
                    other.handle_packet(0.0, packet.source, packet.destination, packet.data)
        event = server.poll_event(0.0)
        self.assertEqual(event.name, "up")
        self.assertEqual(server.receive(0.0, event.association).data, b"hello")
        # Garbage is dropped.
        server.handle_packet(0.0, "10.0.0.1", "10.0.0.2", b"\xff" * 40)
        self.assertEqual(client.snapshot(number)["state"], "Established")

    def test_errors_say_what_was_expected(self):
        with self.assertRaisesRegex(ringway.UsageError, 'setting "rak": no such setting'):
            Pair(rak=True)
        with self.assertRaisesRegex(ringway.UsageError, "an MTU"):
            Pair(mtu=10)
        with self.assertRaisesRegex(ringway.UsageError, "expected one of rfc9260, cubic"):
            Pair(algorithm="reno")
        with self.assertRaisesRegex(ringway.Error, "not up yet"):
            Pair().server.send(b"")
        with self.assertRaisesRegex(ringway.UsageError, "expected an IP address"):
            Endpoint(1).listen(["here"])
        with self.assertRaisesRegex(ringway.UsageError, "no association 7"):
            Endpoint(1).send(0.0, 7, b"")


if __name__ == "__main__":
    unittest.main()

"""The page of `ringway lab view` in headless Chromium: what it draws is what the run has written."""

import csv
import json
import os
import statistics
from bisect import bisect_right
from pathlib import Path

from cases import case
from server import binary

HERE = Path(__file__).resolve().parent
NANOSECONDS = 1e9
# A frame that takes so long, in milliseconds, is no animation on any machine.
UNBEARABLE = 400


def page_of(c, scenario, name):
    """Runs a scenario and makes its page: (folder, page)."""
    out = c.folder / name
    status, output = c.run("run", [binary(), "lab", "run", scenario, "--reps", "1", "--out", out], seconds=60)
    c.expect(status == 0, f"lab run {scenario}: {output}")
    status, output = c.run("view", [binary(), "lab", "view", out])
    c.expect(status == 0, f"lab view {out}: {output}")
    return out, out / "view.html"


def look(c, page, **plan):
    """What Chromium finds in a page."""
    shots = os.environ.get("LAB_VIEW_SHOTS")
    plan = {"name": c.case.name.replace("/", "-"), **plan, **({"shots": shots} if shots else {})}
    program = c.start("node", ["node", HERE / "look.mjs", c.folder, page, json.dumps(plan)], cwd=HERE)
    status = program.wait(110)
    # Not by splitlines, which knows more ends of lines than JSON.
    lines = program.output().strip().split("\n")
    c.expect(lines and lines[-1].startswith("{"), f"node ended with {status}: {program.output()[-600:]}")
    seen = json.loads(lines[-1])
    c.expect(status == 0, f"the page: {seen.get('failed')}")
    c.expect(seen["errors"] == [], f"errors: {seen['errors'][:5]}")
    others = [url for url in seen["requests"] if url != page.as_uri()]
    c.expect(others in ([], ["http://127.0.0.1:9/"]), f"requests: {others}")
    c.expect(seen["fetched"] != "came" and seen["refused"], f"no refusal by the policy: {seen['fetched']}")
    return seen


def layers(seen, title):
    """The series of a plot by name."""
    plot = next(plot for plot in seen["plots"] if plot["title"] == title)
    return {layer["name"]: layer for layer in plot["layers"]}


def step_at(layer, nanoseconds):
    """The value of a step line at a time; None before its first."""
    index = bisect_right(layer["t"], nanoseconds)
    return layer["y"][index - 1] if index else None


def series(out, what, event=""):
    """The observations of a probe: (seconds, value)."""
    with open(out / "series.csv", newline="", encoding="utf-8") as file:
        return [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)
                if row["probe"] == what and row["event"] == event]


def windows(out):
    """The rows of windows.csv."""
    with open(out / "windows.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def papers(c, transport, expected_losses):
    """One of Figures 3.1, 3.3 and 3.5 of Gangurde et al.: four nodes, a queue at n0 and packets on their way to n3."""
    out, page = page_of(c, f"gangurde-{transport}", transport)
    seen = look(c, page, times=[0, 5, 20], lanes=["n0-n2", "n2-n3"], plots=True)
    start, *later = seen["at"]
    c.expect(start["drawn"]["moving"] <= 1 and start["loss"] == 0, f"at the start: {start}")
    for at in later:
        c.expect(at["drawn"]["queues"].get("n0-n2", 0) > 5, f"no queue: {at}")
        c.expect(at["drawn"]["moving"] >= 1 and at["data"] > start["data"] + 100, f"no packets: {at}, {start}")
        c.expect(at["around"]["n0-n2"]["entry"] > 40, f"the queue is not at its link: {at}")
        # This link is never idle, and has no queue.
        c.expect(at["around"]["n2-n3"]["way"] > 100, f"no packet on its way: {at}")
    flow = json.loads((out / "runs.json").read_text())[0]["flows"][0]
    c.expect(flow["dropped"] == expected_losses, f"dropped {flow['dropped']}")
    # What the plots show, and what the run has written.
    queue = layers(seen, "Queues")["n0-n2"]
    samples = series(out, "queue")
    c.expect(len(samples) > 100, f"{len(samples)} samples of the queue")
    wrong = [(at, waiting, step_at(queue, round(at * NANOSECONDS))) for at, waiting in samples
             if step_at(queue, round(at * NANOSECONDS)) != waiting]
    c.expect(not wrong, f"the queue, the plot: {wrong[:3]} of {len(wrong)}")
    lost = layers(seen, "Sequence numbers").get("lost", {"t": []})
    c.expect(len(lost["t"]) == expected_losses, f"{len(lost['t'])} losses in the plot")
    for title, count in zip(("Sequence numbers", "Congestion window", "Queues", "Link in use by data"),
                            seen["plotPixels"], strict=True):
        c.expect(count > 50 or (transport == "udp" and title == "Congestion window"), f"{title}: {count} pixels")
    return out, seen


@case("lab_view/figure-3.1", own=True, limit=90)
def tcp(c):
    """Figure 3.1, TCP.nam: nothing is lost; the window is that of windows.csv."""
    out, seen = papers(c, "tcp", 0)
    c.expect(all(at["loss"] == 0 and at["drawn"]["lost"] == 0 for at in seen["at"]), f"{seen['at']}")
    rows = windows(out)
    for column, name in (("cwnd_bytes", "tcp: cwnd"), ("ssthresh_bytes", "tcp: ssthresh")):
        curve = layers(seen, "Congestion window")[name]
        expected = [(int(row["at_ns"]), float(row[column])) for row in rows]
        c.expect(list(zip(curve["t"], curve["y"], strict=True)) == expected, f"{column} differs from windows.csv")


@case("lab_view/figure-3.3", own=True, limit=90)
def udp(c):
    """Figure 3.3, UDP.nam: packets fall off the full queue."""
    _, seen = papers(c, "udp", 819)
    for at in seen["at"][1:]:
        c.expect(at["drawn"]["falling"] > 0 and at["loss"] > 20, f"nothing falls: {at}")
    sent = layers(seen, "Sequence numbers")["sent"]
    c.expect(sent["y"] == list(range(1569)), f"{len(sent['y'])} datagrams")


@case("lab_view/figure-3.5", own=True, limit=90)
def sctp(c):
    """Figure 3.5, Sctp.nam: twelve packets are lost and sent again."""
    _, seen = papers(c, "sctp", 12)
    again = layers(seen, "Sequence numbers")["sent again"]
    c.expect(len(again["t"]) >= 12, f"{len(again['t'])} sent again")


@case("lab_view/failure", own=True, limit=120)
def failure(c):
    """A link that is down is drawn broken as long as it is, losses fall off it, data moves to the other link, and all
    controls work."""
    _, page = page_of(c, "two-cables", "cables")
    # A packet is lost on its way a moment before 5.003 s; the association has moved at 7 s.
    seen = look(c, page, times=[1.0, 4.9999, 5.0001, 7.0], plots=True, use=True)
    before, last, cut, after = seen["at"]
    c.expect(before["loss"] == 0 and last["loss"] == 0, f"broken too early: {before}, {last}")
    for at in (cut, after):
        c.expect(at["drawn"]["down"] == ["first"] and at["loss"] > 100, f"not broken: {at}")
        c.expect("down: first" in at["status"], f"the status line: {at['status']}")
    rows = layers(seen, "Link in use by data")
    for flow in ("default", "ss7"):
        first, second = rows[f"{flow}: first"]["t"], rows[f"{flow}: second"]["t"]
        c.expect(min(second) > 5 * NANOSECONDS > first[0] and max(second) > 9 * NANOSECONDS, f"{flow}: no change")
    curves = layers(seen, "Congestion window")
    c.expect({"default by first: cwnd", "default by second: cwnd", "ss7 by second: ssthresh"} <= set(curves),
             f"windows: {list(curves)}")
    controls(c, seen["use"])


def controls(c, did):
    """What mouse and keyboard did."""
    c.expect(did["playing"] and did["paused"], f"playing: {did}")
    c.expect(did["stepped"] > 0 and did["back"] <= 0, f"steps: {did}")
    c.expect(abs(did["sought"] - 0.5) < 0.01, f"seek: {did['sought']}")
    c.expect(did["zoomed"] > 1 and did["zoomedByKey"] > 1 and did["resetStage"] == 1, f"zoom: {did}")
    c.expect(did["moved"] > 20, f"moved by {did['moved']}")
    whole = did["whole"]["to"] - did["whole"]["from"]

    def span(name):
        return did[name]["to"] - did[name]["from"]

    c.expect(span("plotZoomed") < 0.9 * whole, f"zoom of a plot: {did['plotZoomed']}")
    c.expect(abs(span("plotReset") - whole) < 1e-6, f"double click: {did['plotReset']}")
    c.expect(0.1 * whole < span("selected") < 0.4 * whole, f"selection: {did['selected']}")
    c.expect(did["panned"]["from"] > did["selected"]["from"], f"arrow: {did['panned']}")
    c.expect(0.3 * whole < did["clicked"] < 0.7 * whole, f"click: {did['clicked']}")
    c.expect(did["themes"][0] != did["themes"][1], f"themes: {did['themes']}")
    c.expect(len(did["labels"]) == 5 and all(len(label) > 20 for label in did["labels"]), f"labels: {did['labels']}")


HOSTILE = "</script><script>window.injected = 1</script><img src=x onerror=\"window.injected = 1\"><!-- '\u2028"


@case("lab_view/names", own=True, limit=90)
def names(c):
    """Text of the files that looks like markup is shown as text."""
    out, page = page_of(c, "cable-pulled", "names")
    network = json.loads((out / "network.json").read_text())
    network["title"] = HOSTILE
    network["flows"][0]["transport"] = HOSTILE
    network["links"][0]["there"]["text"] = HOSTILE
    (out / "network.json").write_text(json.dumps(network))
    status, output = c.run("view", [binary(), "lab", "view", out])
    c.expect(status == 0, output)
    seen = look(c, page, times=[1.0])
    c.expect(seen["heading"] == HOSTILE, f"heading: {seen['heading']}")
    # The program of the page is the only script that is left: it removes its data.
    c.expect(seen["injected"][1:] == [0, 1] and seen["injected"][0] is None, f"injected: {seen['injected']}")


# A hundred thousand segments in twelve seconds, and their acknowledgments, over two links.
LARGE = """
[scenario]
title = "Many packets"
nodes = ["a", "b", "r", "c"]
stop = "12 s"

[[link]]
between = ["a", "r"]
rate = "200 Mbit/s"
delay = "2 ms"

[[link]]
between = ["b", "r"]
rate = "200 Mbit/s"
delay = "3 ms"

[[link]]
name = "narrow"
between = ["r", "c"]
rate = "100 Mbit/s"
delay = "15 ms"
queue = { discipline = "drop-tail", limit = 200 }

[[flow]]
name = "one"
from = "a"
to = "c"
transport = "tcp"
traffic = "bulk"
stop = "12 s"

[[flow]]
name = "two"
from = "b"
to = "c"
transport = "sctp"
traffic = "bulk"
stop = "12 s"
"""


@case("lab_view/large", own=True, limit=180)
def large(c):
    """A run of more than a hundred thousand packets opens, and its frames are drawn in time to be an animation."""
    scenario = c.folder / "large.toml"
    scenario.write_text(LARGE)
    _, page = page_of(c, scenario, "large")
    seen = look(c, page, times=[6.0], measure=200)
    run = seen["run"]
    c.expect(run["packets"] >= 100_000, f"{run['packets']} packets")
    at = seen["at"][0]
    c.expect(at["drawn"]["moving"] > 50 and at["data"] > 100, f"no packets: {at}")
    for what, took in (("animation", seen["frames"]), ("plots", seen["plotFrames"])):
        took = sorted(took)
        median, late = statistics.median(took), took[int(0.95 * len(took))]
        print(f"{what}: {run['packets']} packets, {run['hops']} hops, {len(took)} frames, median {median:.1f} ms, "
              f"95 % within {late:.1f} ms; opened in {seen['opened']:.0f} ms, {page.stat().st_size} bytes", flush=True)
        c.expect(median < UNBEARABLE, f"{what}: a frame takes {median:.0f} ms")

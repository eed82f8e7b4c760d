"""The result for people: one table, and whether the aims are reached."""

import statistics

from trust import offered, usable

# The aims, each against Kamailio in the same run.
CPU_SHARE, RATE_FACTOR, CONTACT_BYTES, GOODPUT_SHARE = 0.2, 2.0, 600, 0.8
IDLE_BYTES = {"tcp": 4096, "tls": 12288, "ws": 4096}


def median(runs, *path):
    """Median of the value at `path` over the runs to go by; None without runs."""
    values = []
    for run in usable(runs)[0]:
        for key in path:
            run = run[key]
        values.append(run)
    return statistics.median(values) if values else None


def sound(runs):
    """Whether the figures of these runs are the server's: undisturbed, and every call completed."""
    chosen, quiet = usable(runs)
    return quiet and all(run["clean"] for run in chosen)


def settled(found):
    """Whether a highest clean rate was confirmed and is the server's own limit or the generator's."""
    return found["confirmed"] and not found["disturbed"]


def really_offered(overload):
    """Whether the generator kept to its schedule at every multiple."""
    return all(offered(step["calls"]) for run in overload for step in run["steps"])


def goodput_share(overload):
    """Goodput at the highest multiple over the best at any, of the medians of all runs."""
    medians = [statistics.median(step["goodput"] for step in steps)
               for steps in zip(*(run["steps"] for run in overload), strict=True)]
    return medians[-1] / max(medians)


def cell(value, form="{:.1f}"):
    """A number, or a dash."""
    return "-" if value is None else form.format(value)


class Rows:
    """The table as it grows."""

    def __init__(self, results):
        self.results = results
        self.names = list(results["subjects"])
        self.rows = []

    def add(self, label, values, form="{:.1f}", doubtful=()):
        """A line with a value for each subject, and how Ringway's compares, if there is one. What is
        doubtful has a question mark, and so has what is computed from it."""
        compared = []
        for other in ("kamailio", "floor"):
            mine, theirs = values.get("ringway"), values.get(other)
            mark = "?" if {"ringway", other} & set(doubtful) else ""
            compared.append(f"{mine / theirs:.2f}{mark}" if mine and theirs else "-")
        if any(values.get(name) is not None for name in self.names):
            cells = [cell(values.get(name), form) + ("?" if name in doubtful and values.get(name) is not None else "")
                     for name in self.names]
            self.rows.append([label, *cells, *compared])

    def costs(self):
        """A line for each fixed rate."""
        costs = self.results["costs"]
        loads = dict.fromkeys(load for runs in costs.values() for load in runs)
        for load in loads:
            command, rate = load.split()
            what = "call" if command == "calls" else "REGISTER"
            by_name = {name: costs.get(name, {}).get(load, []) for name in self.names}
            doubtful = [name for name, runs in by_name.items() if runs and not sound(runs)]
            self.add(f"CPU us a {what} at {rate}/s",
                     {name: median(runs, "server", "cpu_us_each") for name, runs in by_name.items()},
                     doubtful=doubtful)
            self.add("  processors waited for",
                     {name: median(runs, "server", "waited") for name, runs in by_name.items()}, "{:.2f}",
                     doubtful)
            path = ("delay_us", "added") if command == "calls" else ("delay_us",)
            label = "added delay" if command == "calls" else "answer after"
            for quantile, short in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")):
                self.add(f"  {label} us, {short}",
                         {name: median(runs, *path, quantile) for name, runs in by_name.items()}, "{:.0f}", doubtful)

    def clean(self):
        """The highest clean rates and the delays at them."""
        for command, what in (("calls", "calls"), ("register", "REGISTER")):
            found = {name: self.results["clean"].get(name, {}).get(command) for name in self.names}
            rates = {name: got["rate"] for name, got in found.items() if got and got["rate"]}
            doubtful = [name for name in rates if not settled(found[name])]
            self.add(f"highest clean {what}/s", rates, "{:.0f}", doubtful)
            path = ("delay_us", "added") if command == "calls" else ("delay_us",)
            at = {name: got["report"] for name, got in found.items() if got and got["report"]}
            for quantile, short in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")):
                self.add(f"  delay us at it, {short}",
                         {name: median([report], *path, quantile) for name, report in at.items()}, "{:.0f}")
            self.add("  generator headroom %",
                     {name: 100 * report["generator"]["headroom"] for name, report in at.items()}, "{:.0f}")

    def rest(self):
        """Contacts and overload."""
        contacts, overload = self.results["contacts"], self.results["overload"]
        self.add("bytes a contact", {name: got["bytes_each"] for name, got in contacts.items()}, "{:.0f}")
        self.add("CPU us a new contact", {name: got["cpu_us_each"] for name, got in contacts.items()})
        for transport in ("tcp", "tls", "ws"):
            self.add(f"bytes an idle connection, {transport.upper()}",
                     {name: got[transport] for name, got in self.results["idle"].items() if transport in got}, "{:.0f}")
        self.add("goodput at 4 x clean rate, %",
                 {name: 100 * goodput_share(got) for name, got in overload.items()}, "{:.0f}",
                 [name for name, got in overload.items() if not really_offered(got)])

    def text(self):
        """All lines in columns."""
        head = ["", *self.names, "r/kamailio", "r/floor"]
        lines = [head, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        return "\n".join("  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))).rstrip() for line in lines)


def aims(results):
    """Whether each aim is reached; what rests on doubtful figures is not judged either way."""
    lines = []

    def aim(text, reached, trusted):
        verdict = ("reached" if reached else "MISSED") if trusted else "UNKNOWN"
        lines.append(f"{verdict:8} {text}{'' if trusted else ' (doubtful figures: not judged)'}")

    costs = results["costs"]
    for load in costs.get("ringway", {}):
        both = [costs.get(name, {}).get(load, []) for name in ("ringway", "kamailio")]
        pair = [median(runs, "server", "cpu_us_each") for runs in both]
        if all(pair):
            share = pair[0] / pair[1]
            aim(f"CPU of {load}/s at most {CPU_SHARE:.2f} of Kamailio's: {share:.2f}", share <= CPU_SHARE,
                all(sound(runs) for runs in both))
    found = [results["clean"].get(name, {}).get("calls") for name in ("ringway", "kamailio")]
    if all(found) and all(got["rate"] for got in found):
        factor = found[0]["rate"] / found[1]["rate"]
        aim(f"highest clean call rate at least {RATE_FACTOR:.0f} x Kamailio's: {factor:.1f}", factor >= RATE_FACTOR,
            all(settled(got) for got in found))
    if "ringway" in results["contacts"]:
        each = results["contacts"]["ringway"]["bytes_each"]
        aim(f"at most {CONTACT_BYTES} bytes a contact: {each:.0f}", each <= CONTACT_BYTES, True)
    for transport, most in IDLE_BYTES.items():
        if transport in results["idle"].get("ringway", {}):
            each = results["idle"]["ringway"][transport]
            aim(f"at most {most} bytes an idle connection over {transport.upper()}: {each:.0f}", each <= most, True)
    if "ringway" in results["overload"]:
        got = results["overload"]["ringway"]
        share = goodput_share(got)
        aim(f"goodput at 4 x at least {100 * GOODPUT_SHARE:.0f} % of the best: {100 * share:.0f} %",
            share >= GOODPUT_SHARE, really_offered(got))
    return lines


def notes(results):
    """The setup as RFC 7502 section 5.1 wants it stated."""
    machine, setup = results["machine"], results["setup"]
    lines = [
        (f"{machine['processors']} x {machine['processor']}, {machine['memory_mib']} MiB, Linux {machine['kernel']}, "
         f"{machine['rustc']}, load average {machine['load_before']} before and "
         f"{machine.get('load_after', '?')} after"),
        (f"{setup['transport'].upper()} on loopback; server on processor {setup['server_cpus']}, generator on "
         f"{setup['generator_cpus']}; {setup['users']} users, {setup['ports']} + {setup['ports']} generator ports, "
         f"session duration 0 s, no media, no retransmission, threshold 4 s (2 s in searches), late above 0.5 s; "
         f"medians of {setup['rounds']} rounds"),
    ]
    for name, about in results["subjects"].items():
        lines.append(f"{name}: " + ", ".join(f"{key} {value}" for key, value in about.items()))
    buffers = {name: about["receive_buffer"] for name, about in results["subjects"].items()
               if about.get("receive_buffer")}
    if len(set(buffers.values())) > 1:
        lines.append("RECEIVE BUFFERS DIFFER, which favours the larger in the search for the highest clean rate: "
                     + ", ".join(f"{name} {size}" for name, size in buffers.items()))
    for name, by_command in results["clean"].items():
        for command, found in by_command.items():
            lines.append(f"clean {command} of {name}: {len(found['trials'])} trials, "
                         f"{found['second_chances']} needed a second try, {found['void']} void{found['note']}")
    for name, loads in results["costs"].items():
        for load, runs in loads.items():
            chosen, quiet = usable(runs)
            failed = sum(not run["clean"] for run in chosen)
            if not quiet or failed or len(chosen) < len(runs):
                lines.append(f"{name} {load}/s: {len(chosen) if quiet else 0} of {len(runs)} runs undisturbed"
                             f"{f', {failed} of those used not clean' if failed else ''}")
    return lines


def show(results):
    """Everything, ready to print."""
    rows = Rows(results)
    rows.costs()
    rows.clean()
    rows.rest()
    marked = any("?" in field for row in rows.rows for field in row)
    legend = ["?  disturbed by other work, not clean or not confirmed: not the server's figure"] if marked else []
    return "\n".join([*notes(results), "", rows.text(), *legend, "", *aims(results)])

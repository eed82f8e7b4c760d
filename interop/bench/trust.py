"""Whether a measurement says something about the server, or about what else the machine did.

Other work on the same processors does not only add delay. A server that could not run finds many
datagrams waiting, takes them with one system call, and so seems cheaper than it is; one that takes
each by itself gains nothing. So disturbance does not average out: it favours those that batch, and
no number of rounds removes it.
"""

# Processors a server was ready for and did not get, from which a run counts as disturbed.
MOST_WAITED = 0.05
# The same for a server at its limit, whose own processes wait for each other.
MOST_WAITED_AT_LIMIT = 0.25
# Lateness of the generator's own schedule, p99 in microseconds, from which the load was another one.
TOO_LATE_US = 50_000
# Share of its processor a generator must have left.
LEAST_HEADROOM = 0.05


def saturated(report):
    """Whether the generator itself was at its end."""
    return report["generator"]["headroom"] < LEAST_HEADROOM


def held_up(report):
    """Whether a generator with time to spare was kept from its schedule or its sockets."""
    own = report["generator"]
    return not saturated(report) and (own["schedule_late_us"]["p99"] > TOO_LATE_US
                                      or own["troubles"]["own_drops"] > 0)


def starved(report):
    """Whether the server was kept from its processor."""
    return report["server"] is not None and report["server"]["waited"] > MOST_WAITED


def crowded_out(report):
    """Whether a server offered more than it may be able to take had less than the processor."""
    return report["server"] is not None and report["server"]["waited"] > MOST_WAITED_AT_LIMIT


def disturbed(report):
    """Whether other work stood in the way of either."""
    return held_up(report) or starved(report)


def offered(report):
    """Whether the load that was asked for was really offered."""
    return not saturated(report) and report["generator"]["schedule_late_us"]["p99"] <= TOO_LATE_US


def usable(runs):
    """The runs to take figures from: the undisturbed ones, or all when there are none; and whether
    there were any undisturbed."""
    quiet = [run for run in runs if not disturbed(run)]
    return (quiet, True) if quiet else (runs, False)

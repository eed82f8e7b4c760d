"""The highest rate a server takes without one failure (RFC 7502 section 4.10, by halving).

The RFC's procedure climbs and falls by a tenth until it has come to the same rate ten times, with
50,000 sessions each; for several servers in one run that takes hours. Here the rate is bracketed by
steps of a quarter and then halved until 5 % are left; the lower end is then offered three times as
long, and lowered, by 5 % and then by twice as much each time, until that holds too.

A rate counts as failed only when it failed twice: on a machine that other work shares, one burst of
theirs would otherwise end the search. A trial in which other work kept the generator itself from its
schedule says nothing about the server and is made again. How often either happened is in the result.
"""

import time

from trust import crowded_out, held_up, saturated

STEP = 1.25
PRECISION = 1.05
CONFIRM_TIMES = 3
MAX_TRIALS = 24
MAX_CONFIRMATIONS = 12
MAX_VOID = 2
# Of the time allowed, what confirming may have for itself.
CONFIRM_SHARE = 0.45


class Search:
    """One search: what was tried, and what is left of the time."""

    def __init__(self, offer, seconds, allowed):
        self.offer, self.seconds = offer, seconds
        self.deadline = time.monotonic() + allowed * (1 - CONFIRM_SHARE)
        self.reserve = allowed * CONFIRM_SHARE
        self.trials, self.second_chances, self.void, self.generator_limit = [], 0, 0, False
        self.best, self.most = None, MAX_TRIALS

    def over(self):
        """Whether the search must end."""
        return time.monotonic() > self.deadline or len(self.trials) >= self.most

    def confirm(self, rate):
        """The highest rate up to `rate` that also holds for long, and whether there is one."""
        self.deadline = max(self.deadline, time.monotonic()) + self.reserve
        self.most += MAX_CONFIRMATIONS
        lower = PRECISION
        while not self.over():
            if self.clean(rate, CONFIRM_TIMES):
                return rate, True
            rate, lower = rate / lower, lower ** 2
        return rate, False

    def clean(self, rate, times=1):
        """Whether a rate holds, at the second try at the latest."""
        failures = voids = 0
        while failures < 2:
            report = self.offer(rate, self.seconds * times)
            self.trials.append({"rate": rate, "seconds": self.seconds * times, "clean": report["clean"],
                                "saturated": saturated(report), "held_up": held_up(report),
                                "crowded_out": crowded_out(report)})
            self.generator_limit = saturated(report)
            if report["clean"]:
                self.second_chances += failures
                self.best = report
                return True
            if self.over():
                break
            if held_up(report) and voids < MAX_VOID:
                voids += 1
            else:
                failures += 1
        self.void += voids
        return False

    def bracket(self, guess):
        """The highest rate that held and the lowest that did not; either may be missing."""
        low, high, rate = None, None, guess * 0.7
        while not self.over() and (low is None or high is None):
            if self.clean(rate):
                low, rate = rate, rate * STEP
            else:
                high, rate = rate, rate / STEP ** 2
        return low, high


def highest_clean(offer, guess, seconds, allowed):
    """Searches from `guess`; `offer(rate, seconds)` is a trial. Takes about `allowed` seconds at most."""
    search = Search(offer, seconds, allowed)
    low, high = search.bracket(guess)
    limited = search.generator_limit and high is not None
    while low and high and high / low > PRECISION and not search.over():
        middle = (low * high) ** 0.5
        if search.clean(middle):
            low = middle
        else:
            high = middle
            limited = search.generator_limit
    low, confirmed = search.confirm(low) if low else (low, False)
    note = "" if confirmed else " (not confirmed, no time left)"
    if limited:
        note += " (limited by the generator: at least this)"
    best = search.best if confirmed else None
    # A rate that failed while other work had the server's processor is no bound of the server's.
    crowded = any(trial["crowded_out"] and not trial["clean"] for trial in search.trials)
    if crowded:
        note += " (disturbed: at least this)"
    return {
        "rate": low or 0.0, "confirmed": confirmed, "limited_by_generator": limited, "disturbed": crowded,
        "second_chances": search.second_chances, "void": search.void, "note": note, "trials": search.trials,
        "report": best,
    }

"""What the soak of a cluster prints of requests, and which of those that failed should not have."""

UNKNOWN = 504
SHOWN = 20


def summary(outcomes, began):
    """How many there are; of each status but 200, how many and when the first and the last began."""
    failed = {}
    for one in outcomes:
        if one.status != 200:
            failed.setdefault(one.status or "silence", []).append(one.at - began)
    each = [f"{len(at)} {status} ({min(at):.1f} to {max(at):.1f} s)" for status, at in sorted(failed.items(), key=str)]
    return f"{len(outcomes)}, {', '.join(each) or 'all 200'}"


def print_requests(who, outcomes, began, concerned):
    """Prints registrations and calls; the calls that failed and that the event does not concern."""
    calls = [o for o in outcomes if o.method != "REGISTER"]
    mine, other = ([o for o in calls if concerned(o) is wanted] for wanted in (True, False))
    print(f"  {who}REGISTER: {summary([o for o in outcomes if o.method == 'REGISTER'], began)}\n"
          f"  {who}calls that it concerns: {summary(mine, began)}\n"
          f"  {who}other calls: {summary(other, began)}", flush=True)
    return [o for o in other if o.status != 200]


def gaps(calls, began):
    """When it was not found: from each first call that failed to the next that did not, or on."""
    found, start = [], None
    for call in sorted(calls):
        if call.status != 200:
            start = call.at if start is None else start
        elif start is not None:
            found.append(f"{start - began:.1f} to {call.at - began:.1f} s")
            start = None
    return found + ([f"from {start - began:.1f} s on"] if start is not None else [])


def print_phone(phone, began, end, excused):
    """Prints what a baresip or linphone did, and for how long it was not found; the calls that failed until `end` and
    that nothing excuses."""
    calls = [call for call in phone.calls if call.at >= began]
    away = gaps(calls, began)
    answers = [f"{status} at {at - began:.1f} s" for at, _, status in phone.answers if at >= began]
    print(f"  {phone}: calls: {summary(calls, began)}{'; not found ' + ', '.join(away) if away else ''}; "
          f"its REGISTER: {', '.join(answers) or 'none'}", flush=True)
    return [call for call in calls if call.status != 200 and call.at < end and not excused(call)]


def is_bad(failed, absent, began):
    """Whether one of them should not have failed, which is printed."""
    bad = [o for o in failed if not (absent and o.status == UNKNOWN)]
    for one in bad[:SHOWN]:
        print(f"  should not have failed: {one.method} at {one.at - began:.2f} s by node {one.node} for a phone at "
              f"{one.home}: {one.status or 'silence'} after {one.took:.2f} s")
    return bool(bad)

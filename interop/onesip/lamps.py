"""Lamps and presence: phones that watch users of other routers."""

import re
import signal
import threading
import time

# Until a change is shown: look-ups of a user who has just come, and RFC 3856's five seconds between notifications.
SHOWN = 40
# Until a router that has been killed is noticed by those that watch its users.
NOTICED = 120


class Lamp:
    """A phone with a lamp for each of some users: it subscribes to their calls at its own router (RFC 4235)."""

    def __init__(self, c, phone, users):
        self.c, self.phone = c, phone
        # The states of each user's dialogs as the last NOTIFY has them, and all that there were.
        self.shown = {}
        self.history = {user: [] for user in users}
        self.lock = threading.Lock()
        self.over = False
        for user in users:
            c.until(lambda user=user: self.subscribe(user) == 200, SHOWN, f"no lamp for {user}")
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()
        c.after(self.stop)

    def subscribe(self, user):
        """Subscribes. Returns the status of the answer."""
        client = self.phone.client
        headers = [f"Contact: <sip:{self.phone.user}@[{client.local[0]}]:{client.local[1]}>", "Event: dialog",
                   "Accept: application/dialog-info+xml", "Expires: 600"]
        answer = client.ask(client.proved(self.phone, self.phone.user, "SUBSCRIBE", f"sip:{user}@{self.phone.domain}",
                                          headers=headers))
        return answer.status if answer else 0

    def listen(self):
        """Answers what comes, and reads what it says."""
        while not self.over:
            request = self.phone.client.receive(0.5)
            if request is None or request.status or request.method != "NOTIFY":
                continue
            kept = [f"{name.title()}: {value}" for name, value in request.headers
                    if name in ("via", "from", "to", "call-id", "cseq")]
            self.phone.client.send("\r\n".join(["SIP/2.0 200 OK", *kept, "Content-Length: 0", "", ""]))
            body = request.body.decode()
            user = re.search(r'entity="sip:(\w+)@', body)[1]
            dialogs = re.findall(r"<dialog ([^>]*)><state>(\w+)</state>", body)
            states = [((re.search(r'direction="(\w+)"', head) or ["", ""])[1] + " " + state).strip()
                      for head, state in dialogs]
            with self.lock:
                self.shown[user] = states
                self.history[user].append((time.monotonic(), states))

    def stop(self):
        """Ends the thread."""
        self.over = True
        self.thread.join()

    def shows(self, user, *states, seconds=SHOWN):
        """Waits until the lamp of a user shows these states. Returns the seconds that took."""
        begun = time.monotonic()
        self.c.until(lambda: self.shown.get(user) == list(states), seconds,
                     lambda: f"the lamp of {user} shows {self.shown.get(user)}, expected {states}: "
                             f"{self.history[user]}")
        return time.monotonic() - begun


def of_a_call(lamp, caller, callee):
    """Both lamps of a call between two baresips, from the first ring to the end. Prints how long each took to show."""
    lamp.shows(caller.user, "terminated")
    lamp.shows(callee.user, "terminated")
    caller.call(callee.user)
    on = lamp.shows(callee.user, "recipient confirmed"), lamp.shows(caller.user, "initiator confirmed")
    caller.command("hangup")
    off = lamp.shows(callee.user, "terminated"), lamp.shows(caller.user, "terminated")
    print(f"lamps: on after {on[0]:.1f} s and {on[1]:.1f} s, off after {off[0]:.1f} s and {off[1]:.1f} s")


def of_a_dead_router(lamp, caller, callee):
    """The router of a party dies in a call: its user is in no call any more, as far as anybody can know."""
    caller.call(callee.user)
    lamp.shows(callee.user, "recipient confirmed")
    callee.router.process.signal(signal.SIGKILL)
    took = lamp.shows(callee.user, "terminated", seconds=NOTICED)
    print(f"lamps: off {took:.1f} s after the router was killed")


def presence_of(phone, other):
    """What baresip shows of a contact: the last that it has printed."""
    found = re.findall(rf"<sip:{other}@\S+>\S* changed status from \S+ to (\S+)", phone.process.output())
    # Colours of a terminal.
    return re.sub(r"\x1b\[[\d;]*m", "", found[-1]).strip("[]") if found else None

"""Messages for users who are away: left at one router, delivered at another one after the first has been killed."""

import re
import signal
import time

# Until a registration at another router is known there and what was left is delivered.
DELIVERED = 60
# Whatever would come twice has come by then.
QUIET = 15
TEXT = "Supper is at seven."


def leave(phone, to, text):
    """Sends a message with a body. Returns the status of the answer, or 0."""
    request = phone.client.proved(phone, phone.user, "MESSAGE", f"sip:{to}@{phone.domain}", body=text.encode(),
                                  headers=["Content-Type: text/plain"])
    answer = phone.client.ask(request)
    return answer.status if answer else 0


def kept(c, phone, to, text):
    """Leaves a message until that is accepted: once, unless the DHT does not answer yet."""
    statuses = []

    def once():
        statuses.append(leave(phone, to, text))
        return statuses[-1] == 202
    c.until(once, 40, lambda: f"a message for {to} is not accepted: {statuses}")


def by_a_phone(c, sender, receiver):
    """A message for a phone that registers afterwards: as it was sent, with a Date, and once."""
    before = time.time()
    kept(c, sender, receiver.user, TEXT)
    receiver.registered()
    request = receiver.answer(DELIVERED)
    c.expect(request is not None, f"{receiver.user} receives nothing")
    c.expect(request.method == "MESSAGE" and request.body == TEXT.encode(), request.text)
    c.expect(f"<sip:{sender.user}@{sender.domain}>" in request.get("from"), request.text)
    sent = time.mktime(time.strptime(request.get("date"), "%a, %d %b %Y %H:%M:%S GMT")) - time.timezone
    c.expect(-1 <= sent - before <= 40, f"Date is {request.get('date')}, the message was sent at {before}")
    c.expect(receiver.answer(QUIET) is None, f"{receiver.user} receives the message twice")


def by_baresip(c, sender, home, open_phone):
    """A message for a user whose phone is a baresip that comes as a guest, when the sender's router is dead."""
    kept(c, sender, home, TEXT)
    sender.router.process.signal(signal.SIGKILL)
    receiver = open_phone()
    receiver.registered()

    def arrived():
        return re.findall(rf"^MESSAGE sip:{home}\S* SIP/2\.0\r?$", receiver.process.output(), re.MULTILINE)

    def answered():
        return re.search(r"^SIP/2\.0 200 OK\r?\n(?:[\w-]+: .*\n)*CSeq: \d+ MESSAGE", receiver.process.output(),
                         re.MULTILINE)
    c.until(lambda: arrived() and answered(), DELIVERED,
            lambda: f"{home} receives nothing: {receiver.process.output()[-800:]}")
    time.sleep(QUIET)
    output = receiver.process.output()
    c.expect(len(arrived()) == 1, f"{home} receives the message {len(arrived())} times")
    c.expect(TEXT in output and f"From: <sip:{sender.user}@{sender.domain}>" in output, output[-800:])

"""Tones: written to a file that a phone plays, and found again in what the other one recorded."""

import math
import struct
import wave

RATE = 8_000
AMPLITUDE = 12_000


def write_tone(path, hertz, seconds=40):
    """A mono 16 bit tone at 8 kHz."""
    one = b"".join(struct.pack("<h", int(AMPLITUDE * math.sin(2 * math.pi * hertz * n / RATE))) for n in range(RATE))
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(one * seconds)


def samples(path):
    """(rate, samples of the first channel). The length in the file's header may be wrong: phones die."""
    with wave.open(str(path), "rb") as sound:
        rate, channels = sound.getframerate(), sound.getnchannels()
        data = sound.readframes(sound.getnframes())
    count = len(data) // 2
    return rate, struct.unpack(f"<{count}h", data[:2 * count])[::channels]


def share(window, rate, hertz):
    """How much of a window's power is at one frequency, 0 to 1 (Goertzel)."""
    total = sum(v * v for v in window)
    if not total:
        return 0.0
    factor = 2 * math.cos(2 * math.pi * hertz / rate)
    before = last = 0.0
    for value in window:
        before, last = last, value + factor * last - before
    power = last * last + before * before - factor * last * before
    return 2 * power / (len(window) * total)


def seconds_of_tone(path, hertz):
    """How many tenths-of-a-second windows are mostly this tone, in seconds."""
    rate, values = samples(path)
    size = rate // 10
    windows = (values[n:n + size] for n in range(0, len(values) - size + 1, size))
    return sum(share(w, rate, hertz) > 0.8 for w in windows) / 10

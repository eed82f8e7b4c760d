"""One frame with a tag (IEEE 802.1Q) from an interface to another.

    tagged.py receive IF        prints "listening", then the tag of the next frame of the experimental type
    tagged.py send IF           sends one with the tag 5
"""

import socket
import struct
import sys

# Linux: the option and the structure that hold what the kernel has taken out of a frame.
SOL_PACKET, PACKET_AUXDATA, ALL = 263, 8, 3
AUXDATA = struct.Struct("IIIHHHH")
KIND = b"\x88\xb5"


def receive(interface):
    """Waits for a frame."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL)) as opened:
        opened.bind((interface, ALL))
        opened.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        opened.settimeout(60)
        print("listening", flush=True)
        while True:
            frame, extra, _, _ = opened.recvmsg(2048, 128)
            if frame[12:14] == KIND:
                print("tag", AUXDATA.unpack(extra[0][2][:AUXDATA.size])[5], len(frame), flush=True)
                return


def send(interface):
    """Sends a frame."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as opened:
        opened.bind((interface, 0))
        opened.send(bytes.fromhex("ffffffffffff020000000001") + b"\x81\x00\x00\x05" + KIND + bytes(60))


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](sys.argv[2])

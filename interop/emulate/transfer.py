"""One transfer by the kernel's TCP; the receiving end prints its size and how long it took.

    transfer.py receive ADDRESS PORT SIZE       waits for a connection, prints "listening", then "SIZE SECONDS"
    transfer.py send ADDRESS PORT SIZE          connects, sends
"""

import socket
import sys
import time

PIECE = 1 << 16


def receive(address, size):
    """Counts what comes, from the connection on."""
    listener = socket.create_server(address)
    print("listening", flush=True)
    connection, _ = listener.accept()
    begun, octets = time.monotonic(), 0
    while octets < size:
        piece = connection.recv(PIECE)
        if not piece:
            break
        octets += len(piece)
    print(octets, time.monotonic() - begun, flush=True)


def send(address, size):
    """Sends so many octets, and waits until they are taken."""
    with socket.create_connection(address) as connection:
        left = size
        while left > 0:
            piece = bytes(min(PIECE, left))
            connection.sendall(piece)
            left -= len(piece)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


if __name__ == "__main__":
    way, host, port, total = sys.argv[1:]
    {"receive": receive, "send": send}[way]((host, int(port)), int(total))

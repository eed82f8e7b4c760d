"""What Wireshark's dissector finds in packets of Ringway's DCCP."""

import os
import re
from pathlib import Path

from cases import Failed, case

ROOT = Path(__file__).resolve().parent.parent.parent
# Wireshark's severity of errors.
ERROR = 0x00800000
# Request to Reset; an exchange within its windows has no Sync.
EVERY_TYPE = {str(number) for number in range(8)}


def binary():
    """The program, as `cargo build --profile quick` leaves it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    path = target / "quick" / "examples" / "capture"
    if not path.exists():
        raise Failed(f"no program at {path}: run cargo build --profile quick -p ringway-dccp --example capture")
    return path


@case("dccp/capture", own=True)
def capture(c):
    """Handshake, data with losses and close, with CCID 2 and 3: tshark finds nothing malformed and each checksum right.
    Packets in UDP (RFC 6773) are not read by its dissector."""
    file = c.folder / "dccp.pcapng"
    status, told = c.run("capture", [binary(), file])
    c.expect(status == 0, f"capture: {told}")
    fields = ["frame.number", "dccp.type", "dccp.checksum.status", "_ws.malformed", "_ws.expert.severity",
              "dccp.option_unknown", "dccp.option_reserved"]
    shown = [word for name in fields for word in ("-e", name)]
    command = ["tshark", "-n", "-r", file, "-o", "dccp.check_checksum:TRUE", "-Y", "dccp", "-T", "fields", *shown]
    status, told = c.run("tshark", command, seconds=60)
    c.expect(status == 0, f"tshark: {told[-500:]}")
    # Run by root it also says that it is.
    rows = [line.split("\t") for line in told.splitlines() if re.match(r"\d+\t", line)]
    wrong = [row for row in rows if row[2] != "1" or row[3] or row[5] or row[6]
             or any(int(word) >= ERROR for word in row[4].split(",") if word)]
    c.expect(len(rows) > 200 and not wrong, f"{len(wrong)} of {len(rows)} packets are faulty: {wrong[:3]}")
    types = {row[1] for row in rows}
    c.expect(types >= EVERY_TYPE, f"types {sorted(types)}")

"""Ringway's laboratory, links and SCTP in virtual time.

`ringway.lab` runs scenarios, campaigns and papers, `ringway.sweep` spreads a campaign over a cluster,
`ringway.link` is one direction of a link, and `ringway.sctp` is two hosts with an association.

>>> import ringway
>>> ringway.lab.run("gangurde-udp").value("udp", "sent")
1569.0
"""

from ringway import _ringway, lab, link, sctp
from ringway._ringway import Error, Table, UsageError

__all__ = ["Error", "Table", "UsageError", "__version__", "lab", "link", "sctp"]

__version__: str = _ringway.version()
# Results of a campaign are kept by the hash of this file, as those of the command line by its program's.
_ringway.set_program(_ringway.__file__)

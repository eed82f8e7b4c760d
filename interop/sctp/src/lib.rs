//! Ringway's SCTP against two that others wrote: `dcsctp` (WebRTC's) and `sctp-proto` (str0m's),
//! packet by packet in virtual time. Nothing is in here; everything is in `tests/peers`.

//! Packets in one line of text, as packet tables write them.

use super::{DccpOption, Kind, Packet};
use core::fmt;

/// `5000 > 5001: Request 7 service 1685677923 ChangeL(1: 2 3) len 0`.
impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.header;
        write!(f, "{} > {}: ", header.source, header.destination)?;
        write!(f, "{} {}", header.kind.name(), header.seq)?;
        if let Some(ack) = self.ack() {
            write!(f, " ack {ack}")?;
        }
        match header.kind {
            Kind::Request(service) | Kind::Response(service) => write!(f, " service {service}")?,
            Kind::Reset(reset) => write!(f, " {:?}", reset.code)?,
            _ => {}
        }
        if header.ccval != 0 {
            write!(f, " ccval {}", header.ccval)?;
        }
        if header.coverage != 0 {
            write!(f, " cscov {}", header.coverage)?;
        }
        for option in self.options() {
            match option {
                Ok(option) => write!(f, " {option}")?,
                Err((kind, _)) => write!(f, " malformed option {kind}")?,
            }
        }
        if header.kind.may_carry_data() {
            write!(f, " len {}", self.data.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for DccpOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut feature = |name: &str, number: u8, values: &[u8]| {
            write!(f, "{name}({number}:")?;
            for value in values {
                write!(f, " {value}")?;
            }
            write!(f, ")")
        };
        match *self {
            DccpOption::ChangeL(number, values) => feature("ChangeL", number, values),
            DccpOption::ConfirmL(number, values) => feature("ConfirmL", number, values),
            DccpOption::ChangeR(number, values) => feature("ChangeR", number, values),
            DccpOption::ConfirmR(number, values) => feature("ConfirmR", number, values),
            DccpOption::AckVector(runs) => {
                write!(f, "AckVector(")?;
                for byte in runs {
                    write!(
                        f,
                        "{}{}",
                        ["+", "*", "?", "-"][usize::from(byte >> 6)],
                        (byte & 63) + 1
                    )?;
                }
                write!(f, ")")
            }
            DccpOption::InitCookie(cookie) => write!(f, "InitCookie({} bytes)", cookie.len()),
            DccpOption::Unknown(kind, value) => write!(f, "option {kind} ({} bytes)", value.len()),
            ref other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::seq::Seq;
    use crate::wire::{Carrier, DccpOption, Header, Kind, Packet};

    #[test]
    fn a_packet_is_one_line() {
        let header = Header {
            source: 1,
            destination: 2,
            ccval: 3,
            coverage: 1,
            kind: Kind::DataAck,
            long: true,
            seq: Seq::new(10),
            ack: Seq::new(20),
        };
        let (mut options, mut out) = (Vec::new(), Vec::new());
        DccpOption::AckVector(&[0x01, 0xc0]).emit(&mut options);
        DccpOption::ChangeL(5, &[0, 4]).emit(&mut options);
        header.emit(Carrier::Udp, &options, b"abc", &mut out);
        let packet = Packet::parse_unchecked(&out).unwrap();
        assert_eq!(
            packet.to_string(),
            "1 > 2: DataAck 10 ack 20 ccval 3 cscov 1 AckVector(+2-1) ChangeL(5: 0 4) len 3"
        );
    }
}

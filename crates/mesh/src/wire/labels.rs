//! Routes as hop labels.
//!
//! A *slot* is a router's number for one of its neighbours. A *label* is a slot in a code of nibbles that reads the same
//! from both ends:
//!
//! | class | code | slots |
//! |---|---|---|
//! | short | `s` with s = 0 to 14 | 0 to 14 |
//! | long | `F a b F` with a, b = 0 to 14 | 15a + b = 0 to 224 |
//! | wide | `F F w x y z F F` | 0 to 65,535 |
//!
//! When a route is recorded each router chooses the smallest class that fits both its neighbours on the way. So a router
//! that forwards a packet can write the slot by which the packet came in where it has read the slot by which it goes
//! out, in as many nibbles: a packet carries the way back to its sender wherever it is. Only the router that made a
//! label can read it.

use ringway_sansio::{Got, Malformed};

use super::nibbles::Nibbles;
use crate::config::MAX_CONTROL_NIBBLES;

/// A router's number for a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(pub u16);

/// The nibble that begins and ends the codes of more than one nibble.
const ESCAPE: u8 = 15;
/// Values of a nibble that is not [`ESCAPE`].
const BASE: u16 = 15;

/// The code of a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// One nibble.
    Short,
    /// Four nibbles.
    Long,
    /// Eight nibbles.
    Wide,
}

impl Class {
    /// Returns the smallest class for a slot.
    pub const fn of(slot: Slot) -> Class {
        match slot.0 {
            0..BASE => Class::Short,
            BASE..225 => Class::Long,
            _ => Class::Wide,
        }
    }

    /// Returns the smallest class for two slots.
    pub fn for_both(one: Slot, other: Slot) -> Class {
        Class::of(one).max(Class::of(other))
    }

    /// Returns the number of nibbles of a label.
    pub const fn nibbles(self) -> usize {
        match self {
            Class::Short => 1,
            Class::Long => 4,
            Class::Wide => 8,
        }
    }
}

fn nibble(bytes: &[u8], at: usize) -> u8 {
    let byte = bytes.get(at / 2).copied().unwrap_or(0);
    if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

fn set_nibble(bytes: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = bytes.get_mut(at / 2) {
        *byte =
            if at.is_multiple_of(2) { (*byte & 15) | (value << 4) } else { (*byte & 0xf0) | value };
    }
}

/// Returns the class of the label of which `first` is the nibble at an end and `second` the one next to it.
fn class(first: u8, second: u8) -> Class {
    match (first, second) {
        (ESCAPE, ESCAPE) => Class::Wide,
        (ESCAPE, _) => Class::Long,
        _ => Class::Short,
    }
}

/// Reads the slot of the label of `class` in the nibbles from `at`.
fn read(bytes: &[u8], at: usize, class: Class) -> Result<Slot, Malformed> {
    let digit = |offset| u16::from(nibble(bytes, at + offset));
    let whole = match class {
        Class::Short => return Ok(Slot(digit(0))),
        Class::Long => digit(0) == 15 && digit(1) < BASE && digit(2) < BASE && digit(3) == 15,
        Class::Wide => [0, 1, 6, 7].iter().all(|&end| digit(end) == 15),
    };
    if !whole {
        return Err(Malformed::bad("expected a label", Got::Number(digit(0).into()), at / 2));
    }
    Ok(Slot(match class {
        Class::Wide => (2..6).fold(0, |slot, offset| (slot << 4) | digit(offset)),
        _ => BASE * digit(1) + digit(2),
    }))
}

/// Writes a label of `class` into the nibbles from `at`. The slot must fit.
fn write(bytes: &mut [u8], at: usize, class: Class, slot: Slot) {
    let digits = [12, 8, 4, 0].map(|shift| (slot.0 >> shift) as u8 & 15);
    let code: &[u8] = match class {
        Class::Short => &[digits[3]],
        Class::Long => &[ESCAPE, (slot.0 / BASE) as u8, (slot.0 % BASE) as u8, ESCAPE],
        Class::Wide => {
            &[ESCAPE, ESCAPE, digits[0], digits[1], digits[2], digits[3], ESCAPE, ESCAPE]
        }
    };
    for (offset, &value) in code.iter().enumerate() {
        set_nibble(bytes, at + offset, value);
    }
}

/// Returns the label that begins at nibble `at` of `nibbles`.
fn read_at(bytes: &[u8], nibbles: usize, at: usize) -> Result<(Class, Slot), Malformed> {
    let class = class(nibble(bytes, at), nibble(bytes, at + 1));
    if at + class.nibbles() > nibbles {
        return Err(Malformed::bad("expected a whole label", Got::End, at / 2));
    }
    Ok((class, read(bytes, at, class)?))
}

/// Returns the label that ends before nibble `end`.
fn read_before(bytes: &[u8], end: usize) -> Result<(Class, Slot), Malformed> {
    let class = class(nibble(bytes, end.wrapping_sub(1)), nibble(bytes, end.wrapping_sub(2)));
    let start = end.checked_sub(class.nibbles());
    let start = start.ok_or(Malformed::bad("expected a whole label", Got::End, 0))?;
    Ok((class, read(bytes, start, class)?))
}

/// A route would be longer than [`MAX_CONTROL_NIBBLES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a route of at most {MAX_CONTROL_NIBBLES} nibbles, got a longer one")]
pub struct RouteTooLong;

/// A sequence of labels.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Labels {
    /// Two nibbles an octet; a last half octet is zero.
    all: Nibbles,
}

impl Labels {
    /// Parses `nibbles` nibbles, each of which must belong to a label.
    pub fn parse(bytes: &[u8], nibbles: usize) -> Result<Labels, Malformed> {
        if nibbles > MAX_CONTROL_NIBBLES || bytes.len() != nibbles.div_ceil(2) {
            let got = Got::Number(nibbles as u64);
            return Err(Malformed::bad("expected at most 1022 nibbles of labels", got, 0));
        }
        if nibbles % 2 == 1 && nibble(bytes, nibbles) != 0 {
            return Err(Malformed::here("expected a half octet of zero", bytes, nibbles / 2));
        }
        let (mut at, mut count) = (0, 0);
        while at < nibbles {
            at += read_at(bytes, nibbles, at)?.0.nibbles();
            count += 1;
        }
        Ok(Labels { all: Nibbles::new(bytes, nibbles as u16, count) })
    }

    /// Returns the number of nibbles.
    pub fn nibbles(&self) -> u16 {
        self.all.nibbles()
    }

    /// Returns the number of labels.
    pub fn count(&self) -> u16 {
        self.all.labels()
    }

    /// Returns the octets on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        self.all.octets()
    }

    /// Returns the labels in order.
    pub fn iter(&self) -> impl Iterator<Item = (Class, Slot)> + '_ {
        let (mut at, nibbles, bytes) = (0, usize::from(self.nibbles()), self.as_bytes());
        core::iter::from_fn(move || {
            if at >= nibbles {
                return None;
            }
            // Checked when they were parsed or pushed.
            let label = read_at(bytes, nibbles, at).ok()?;
            at += label.0.nibbles();
            Some(label)
        })
    }

    /// Appends a label for `slot` in a class that fits `other` too.
    pub fn push(&mut self, slot: Slot, other: Slot) -> Result<(), RouteTooLong> {
        self.push_class(Class::for_both(slot, other), slot)
    }

    /// Appends a label of a class that the slot fits.
    pub(crate) fn push_class(&mut self, class: Class, slot: Slot) -> Result<(), RouteTooLong> {
        let at = usize::from(self.nibbles());
        let nibbles = at + class.nibbles();
        if nibbles > MAX_CONTROL_NIBBLES {
            return Err(RouteTooLong);
        }
        self.all.resize(nibbles as u16, self.count() + 1);
        write(self.all.octets_mut(), at, class, slot);
        Ok(())
    }

    /// Appends all labels of `other`.
    pub fn extend(&mut self, other: &Labels) -> Result<(), RouteTooLong> {
        other.iter().try_for_each(|(class, slot)| self.push_class(class, slot))
    }

    /// Takes the step of a router that came to its label at `at`, as [`Cursor::swap`] does, where the labels must grow: the
    /// label is widened to fit `entered`, and the router that is next finds `inserted` before all others. Returns the slot
    /// that was read, and the new position.
    pub(crate) fn rewrite(
        &mut self,
        at: u16,
        reverse: bool,
        entered: Slot,
        inserted: Option<(Class, Slot)>,
    ) -> Result<(Slot, u16), Malformed> {
        let (class, out) = self.cursor(at, reverse)?.peek()?;
        let start = if reverse { at - class.nibbles() as u16 } else { at };
        let own = (class.max(Class::of(entered)), entered);
        let mut labels = Labels::default();
        let mut rest = self.iter();
        let mut push = |label: (Class, Slot)| {
            let pushed = labels.push_class(label.0, label.1);
            pushed
                .map(|()| labels.nibbles())
                .map_err(|_| Malformed::bad("expected room for a label", Got::Number(at.into()), 0))
        };
        let mut passed = 0;
        while passed < start
            && let Some(label) = rest.next()
        {
            passed = push(label)?;
        }
        rest.next();
        let first = if reverse { inserted } else { Some(own) };
        let at = first.map_or(Ok(start), &mut push)?;
        if let Some(label) = if reverse { Some(own) } else { inserted } {
            push(label)?;
        }
        for label in rest {
            push(label)?;
        }
        *self = labels;
        Ok((out, at))
    }

    /// Keeps the first `count` labels.
    pub fn truncate(&mut self, count: u16) {
        let kept = self.iter().take(count.into());
        let nibbles: usize = kept.map(|(class, _)| class.nibbles()).sum();
        self.all.resize(nibbles as u16, self.count().min(count));
        if nibbles % 2 == 1 {
            set_nibble(self.all.octets_mut(), nibbles, 0);
        }
    }

    /// Removes the last label and returns its slot.
    pub fn pop(&mut self) -> Option<Slot> {
        let (_, slot) = read_before(self.as_bytes(), self.nibbles().into()).ok()?;
        self.truncate(self.count() - 1);
        Some(slot)
    }

    /// Returns a position in the labels, which can be changed there.
    pub fn cursor(&mut self, at: u16, reverse: bool) -> Result<Cursor<'_>, Malformed> {
        let nibbles = self.nibbles();
        Cursor::new(self.all.octets_mut(), nibbles, at, reverse)
    }

    /// Returns the labels in reverse order.
    pub fn reversed(&self) -> Labels {
        let mut reversed = Labels::default();
        let mut end = usize::from(self.nibbles());
        while let Ok((class, slot)) = read_before(self.as_bytes(), end) {
            // As many nibbles as before, so it fits.
            if end == 0 || reversed.push_class(class, slot).is_err() {
                break;
            }
            end -= class.nibbles();
        }
        reversed
    }
}

/// The way to another router: the slot of the first hop, and the labels of all routers between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The local router's slot.
    pub first: Slot,
    /// Labels of the routers on the way.
    pub labels: Labels,
}

/// Appends the label of `slot` to labels of `nibbles` nibbles that begin at `start` of `out` and end with it, in the class
/// that fits `other` too. Returns the new number of nibbles.
pub(crate) fn append_label(
    out: &mut Vec<u8>,
    start: usize,
    nibbles: u16,
    slot: Slot,
    other: Slot,
) -> Result<u16, RouteTooLong> {
    let class = Class::for_both(slot, other);
    let end = usize::from(nibbles) + class.nibbles();
    if end > MAX_CONTROL_NIBBLES {
        return Err(RouteTooLong);
    }
    out.resize(start + end.div_ceil(2), 0);
    write(&mut out[start..], nibbles.into(), class, slot);
    Ok(end as u16)
}

impl Route {
    /// The route to a neighbour.
    pub fn direct(first: Slot) -> Route {
        Route { first, labels: Labels::default() }
    }

    /// Returns the number of links.
    pub fn hops(&self) -> u16 {
        self.labels.count() + 1
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.labels.all.heap_bytes()
    }

    /// Returns the labels that lead along this route when they are appended to a route that enters this router by
    /// `entered`.
    pub fn onward(&self, entered: Slot) -> Result<Labels, RouteTooLong> {
        let mut labels = Labels::default();
        labels.push(self.first, entered)?;
        labels.extend(&self.labels)?;
        Ok(labels)
    }

    /// Returns the slots by which it leaves its routers.
    fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        core::iter::once(self.first).chain(self.labels.iter().map(|(_, slot)| slot))
    }

    /// Returns where this route parts from `other` of the same router: the number of links that both begin with, and
    /// the labels from there on. The way back of `other` goes on by them if as many links at its end are left out.
    pub fn part(&self, other: &Route) -> Result<(u16, Labels), RouteTooLong> {
        let common = self.slots().zip(other.slots()).take_while(|(ours, theirs)| ours == theirs);
        let common = common.count();
        let mut labels = Labels::default();
        if let Some(slot) = self.slots().nth(common) {
            labels.push(slot, other.slots().nth(common).unwrap_or(slot))?;
        }
        let mut rest = self.labels.iter().skip(common);
        rest.try_for_each(|(class, slot)| labels.push_class(class, slot))?;
        Ok((common as u16, labels))
    }

    /// Returns the route that turns off this one `back` links before its end, and goes on by `onward`. `None` if it would be
    /// too long, or has no such router.
    pub fn branch(&self, back: u16, onward: &Labels) -> Option<Route> {
        if let Some(kept) = self.hops().checked_sub(back)?.checked_sub(1) {
            let mut route = self.clone();
            route.labels.truncate(kept);
            return route.join(onward).ok();
        }
        // From here: the first of the labels is this router's own.
        let mut onward = onward.iter();
        let mut route = Route::direct(onward.next()?.1);
        onward.try_for_each(|(class, slot)| route.labels.push_class(class, slot)).ok()?;
        Some(route)
    }

    /// Returns the route that goes on behind the end of this one by `onward`.
    pub fn join(&self, onward: &Labels) -> Result<Route, RouteTooLong> {
        let mut route = self.clone();
        route.labels.extend(onward)?;
        Ok(route)
    }
}

/// The position of a packet in the labels it carries. Each router overwrites its own.
#[derive(Debug)]
pub struct Cursor<'a> {
    bytes: &'a mut [u8],
    nibbles: usize,
    at: usize,
    reverse: bool,
}

impl<'a> Cursor<'a> {
    /// The position `at` in `nibbles` nibbles, on the way there or in reverse. The labels are not checked.
    pub fn new(
        bytes: &'a mut [u8],
        nibbles: u16,
        at: u16,
        reverse: bool,
    ) -> Result<Cursor<'a>, Malformed> {
        if bytes.len() != usize::from(nibbles).div_ceil(2) || at > nibbles {
            let got = Got::Number(at.into());
            return Err(Malformed::bad("expected a position within the labels", got, 0));
        }
        Ok(Cursor { bytes, nibbles: nibbles.into(), at: at.into(), reverse })
    }

    /// Returns the position in nibbles.
    pub fn at(&self) -> u16 {
        self.at as u16
    }

    /// Returns whether all labels are used up.
    pub fn is_at_end(&self) -> bool {
        self.at == if self.reverse { 0 } else { self.nibbles }
    }

    /// Returns the next label.
    pub fn peek(&self) -> Result<(Class, Slot), Malformed> {
        if self.reverse {
            read_before(self.bytes, self.at)
        } else {
            read_at(self.bytes, self.nibbles, self.at)
        }
    }

    /// Replaces the next label by `entered`, the way back, and moves behind it. Returns the slot that was read.
    pub fn swap(&mut self, entered: Slot) -> Result<Slot, Malformed> {
        let (class, slot) = self.peek()?;
        if Class::of(entered) > class {
            // A route that was recorded does not come in here.
            let got = Got::Number(entered.0.into());
            return Err(Malformed::bad(
                "expected a label that fits the way back",
                got,
                self.at / 2,
            ));
        }
        let start = if self.reverse { self.at - class.nibbles() } else { self.at };
        write(self.bytes, start, class, entered);
        self.at = if self.reverse { start } else { start + class.nibbles() };
        Ok(slot)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slots of each class.
    pub(crate) fn slot() -> impl Strategy<Value = Slot> {
        prop_oneof![0u16..15, 15u16..225, 225u16..].prop_map(Slot)
    }

    pub(crate) fn labels() -> impl Strategy<Value = Labels> {
        proptest::collection::vec((slot(), slot()), 0..40).prop_map(|slots| {
            let mut labels = Labels::default();
            slots.into_iter().for_each(|(slot, other)| labels.push(slot, other).unwrap());
            labels
        })
    }

    #[test]
    fn a_route_of_120_hops_takes_60_octets() {
        let mut labels = Labels::default();
        for hop in 0..120 {
            labels.push(Slot(hop % 15), Slot((hop + 1) % 15)).unwrap();
        }
        assert_eq!((labels.count(), labels.as_bytes().len()), (120, 60));
    }

    #[test]
    fn codes_are_those_of_the_table() {
        for (slot, other, code) in [
            (14, 0, &[0xe0][..]),
            (15, 0, &[0xf1, 0x0f]),
            (0, 15, &[0xf0, 0x0f]),
            (224, 0, &[0xfe, 0xef]),
            (225, 0, &[0xff, 0x00, 0xe1, 0xff]),
            (65_535, 0, &[0xff, 0xff, 0xff, 0xff]),
        ] {
            let mut labels = Labels::default();
            labels.push(Slot(slot), Slot(other)).unwrap();
            assert_eq!(labels.as_bytes(), code, "slot {slot} beside {other}");
        }
    }

    #[test]
    fn faulty_labels_are_refused() {
        for (bytes, nibbles, fault) in [
            (&[0xf1, 0x00][..], 4, "expected a label, got 15 at octet 0"),
            (&[0xf1], 2, "expected a whole label, got the end at octet 0"),
            (&[0x01], 1, "expected a half octet of zero, got octet 0x01 at octet 0"),
            (&[0x01], 3, "expected at most 1022 nibbles of labels, got 3 at octet 0"),
            (&[0xff, 0, 0, 0xf0], 8, "expected a label, got 15 at octet 0"),
        ] {
            assert_eq!(Labels::parse(bytes, nibbles).unwrap_err().to_string(), fault);
        }
    }

    #[test]
    fn a_route_ends_at_its_limit() {
        let mut labels = Labels::default();
        for _ in 0..MAX_CONTROL_NIBBLES {
            labels.push(Slot(1), Slot(1)).unwrap();
        }
        assert_eq!(labels.push(Slot(1), Slot(1)), Err(RouteTooLong));
        let route = Route { first: Slot(0), labels };
        assert_eq!(route.onward(Slot(0)), Err(RouteTooLong));
        let onward = Route::direct(Slot(3)).onward(Slot(300)).unwrap();
        assert_eq!(onward.iter().collect::<Vec<_>>(), [(Class::Wide, Slot(3))]);
        assert_eq!(route.join(&onward), Err(RouteTooLong));
    }

    /// The route that leaves its routers by these slots, at each of which it came in by 1.
    fn route(slots: &[u16]) -> Route {
        let mut route = Route::direct(Slot(slots[0]));
        slots[1..].iter().for_each(|&slot| route.labels.push(Slot(slot), Slot(1)).unwrap());
        route
    }

    #[test]
    fn routes_are_joined_where_they_part() {
        // Who asks is four links away, and comes by slots 5 to 8 of the routers between.
        let (towards, back) = (route(&[30, 31, 32, 33]), route(&[5, 6, 7, 8]));
        for (there, links, joined) in [
            // Nothing in common.
            (&[40, 41][..], 0, Some(&[5, 6, 7, 8, 40, 41][..])),
            // They part on the way; from the last router before who asks; and at that.
            (&[30, 31, 42, 43], 2, Some(&[5, 6, 42, 43])),
            (&[30, 31, 32, 44], 3, Some(&[5, 44])),
            (&[30, 31, 32, 33, 45, 46], 4, Some(&[45, 46])),
            // To somebody on the way.
            (&[30, 31], 2, Some(&[5, 6])),
            (&[30, 31, 32, 33], 4, None),
        ] {
            let (common, onward) = route(there).part(&towards).unwrap();
            assert_eq!(common, links, "{there:?}");
            let found = back.branch(common, &onward);
            let slots = found.map(|route| route.slots().map(|slot| slot.0).collect::<Vec<_>>());
            assert_eq!(slots.as_deref(), joined, "{there:?}");
        }
        // The router where they part has room for both slots in its label.
        let (_, onward) = route(&[30, 2]).part(&route(&[30, 300])).unwrap();
        assert_eq!(onward.iter().next(), Some((Class::Wide, Slot(2))));
        assert_eq!(back.branch(5, &onward), None);
    }

    proptest! {
        #[test]
        fn labels_are_parsed_back(labels in labels()) {
            let read = Labels::parse(labels.as_bytes(), labels.nibbles().into());
            prop_assert_eq!(read.as_ref(), Ok(&labels));
            let mut all: Vec<_> = labels.iter().collect();
            prop_assert_eq!(all.len(), usize::from(labels.count()));
            all.reverse();
            let reversed = labels.reversed();
            prop_assert_eq!(reversed.iter().collect::<Vec<_>>(), all);
            prop_assert_eq!(reversed.reversed(), labels);
        }

        #[test]
        fn the_first_labels_stay(labels in labels(), count in 0u16..50) {
            let mut cut = labels.clone();
            cut.truncate(count);
            let first: Vec<_> = labels.iter().take(count.into()).collect();
            prop_assert_eq!(cut.iter().collect::<Vec<_>>(), first);
            prop_assert_eq!(&Labels::parse(cut.as_bytes(), cut.nibbles().into()).unwrap(), &cut);
            let last = labels.iter().last().map(|(_, slot)| slot);
            let mut popped = labels.clone();
            prop_assert_eq!(popped.pop(), last);
            prop_assert_eq!(popped.count(), labels.count().saturating_sub(1));
        }

        /// Whoever reads labels forwards and writes other slots of the same class finds them again on the way back.
        #[test]
        fn swapped_labels_lead_back(pairs in proptest::collection::vec((slot(), slot()), 0..40)) {
            let mut labels = Labels::default();
            pairs.iter().for_each(|&(out, entered)| labels.push(out, entered).unwrap());
            let (nibbles, mut bytes) = (labels.nibbles(), labels.as_bytes().to_vec());
            let mut there = Cursor::new(&mut bytes, nibbles, 0, false).unwrap();
            for &(out, entered) in &pairs {
                prop_assert!(!there.is_at_end());
                prop_assert_eq!(there.swap(entered), Ok(out));
            }
            prop_assert!(there.is_at_end() && there.at() == nibbles);
            let mut back = Cursor::new(&mut bytes, nibbles, nibbles, true).unwrap();
            for &(out, entered) in pairs.iter().rev() {
                prop_assert_eq!(back.swap(out), Ok(entered));
            }
            prop_assert!(back.is_at_end());
            prop_assert_eq!(&bytes[..], labels.as_bytes());
        }

        #[test]
        fn any_octets_are_read_without_a_panic(bytes: Vec<u8>, nibbles in 0u16..300, at in 0u16..300, entered in slot(), reverse: bool) {
            if let Ok(labels) = Labels::parse(&bytes, nibbles.into()) {
                prop_assert_eq!(labels.iter().count(), usize::from(labels.count()));
            }
            let mut bytes = bytes;
            let before = bytes.len();
            if let Ok(mut cursor) = Cursor::new(&mut bytes, nibbles, at, reverse) {
                while !cursor.is_at_end() && cursor.swap(entered).is_ok() {}
            }
            prop_assert_eq!(bytes.len(), before);
        }
    }
}

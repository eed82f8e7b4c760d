//! STUB
use crate::location::*;
use ringway_sansio::*;
/// e
pub struct RegEvents;
impl RegEvents {
    /// n
    pub fn new(_: &[u8; 32], _: Time) -> Self {
        RegEvents
    }
    /// n
    pub fn handle_timeout(&mut self, _: Time, _: &dyn LocationStore) {}
    /// n
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }
    /// n
    pub fn len(&self) -> usize {
        0
    }
}

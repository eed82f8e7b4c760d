//! All dialogs that one request brings forth when it is forked (RFC 3261 section 13.2.2).

use super::{Dialog, DialogError, State};
use crate::message::Message;

/// Dialogs that one request may make. Further ones are refused: whoever forks wider than this
/// means harm.
pub const MAX_FORKS: usize = 32;

/// What a response did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: 100, or a provisional response without a tag.
    None,
    /// The dialog at this index is new, early or confirmed.
    New(usize),
    /// The dialog at this index was known: it may have been confirmed or retargeted now.
    Known(usize),
    /// The request failed: no dialog of it is early any more.
    Failed,
    /// One more fork than [`MAX_FORKS`].
    TooMany,
}

/// The dialogs of one request that may make some.
#[derive(Clone, Debug, Default)]
pub struct Dialogs {
    dialogs: Vec<Dialog>,
}

impl Dialogs {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a response to `request`, whichever branch it comes from. Every 2xx makes a dialog or
    /// confirms one, and each is to be acknowledged; the caller ends those it does not want with
    /// a BYE.
    pub fn response(
        &mut self,
        request: &Message<'_>,
        response: &Message<'_>,
        secure_flow: bool,
    ) -> Result<Effect, DialogError> {
        let status = response.status();
        if status >= 300 {
            for dialog in self.dialogs.iter_mut().filter(|d| d.state() == State::Early) {
                dialog.terminate();
            }
            return Ok(Effect::Failed);
        }
        if status == 100 || status < 200 && response.to()?.tag().is_none() {
            return Ok(Effect::None);
        }
        if let Some(i) = self.dialogs.iter().position(|d| d.matches(response)) {
            self.dialogs[i].response(response)?;
            return Ok(Effect::Known(i));
        }
        if self.dialogs.len() == MAX_FORKS {
            return Ok(Effect::TooMany);
        }
        self.dialogs.push(Dialog::new_uac(request, response, secure_flow)?);
        Ok(Effect::New(self.dialogs.len() - 1))
    }

    /// Ends the dialogs that are early still, once no further 2xx can come: 64*T1 after the first
    /// (RFC 3261 section 13.2.2.4).
    pub fn end_early(&mut self) {
        for dialog in self.dialogs.iter_mut().filter(|d| d.state() == State::Early) {
            dialog.terminate();
        }
    }

    /// All dialogs, in the order in which they came.
    pub fn all(&self) -> &[Dialog] {
        &self.dialogs
    }

    /// The dialog at an index.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Dialog> {
        self.dialogs.get_mut(index)
    }

    /// The dialog a received message belongs to.
    pub fn find(&mut self, message: &Message<'_>) -> Option<&mut Dialog> {
        self.dialogs.iter_mut().find(|d| d.matches(message))
    }
}

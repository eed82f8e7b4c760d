//! The dialogs of one forked request (RFC 3261 section 13.2.2).

use super::{Dialog, DialogError, State};
use crate::message::Message;

/// The maximum number of dialogs of one request. Further ones are refused: a wider fork is taken for an attack.
pub const MAX_FORKS: usize = 32;

/// The effect of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: 100, or a provisional response without a tag.
    None,
    /// The dialog at this index is new, early or confirmed.
    New(usize),
    /// The dialog at this index existed: it may have been confirmed or retargeted now.
    Known(usize),
    /// The request failed: none of its dialogs is early any more.
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
    /// Returns an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes a response to `request`, of any branch. Every 2xx makes a dialog or confirms one, and each must be
    /// acknowledged. The caller ends those it does not want with a BYE.
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

    /// Ends the dialogs that are still early, once no further 2xx can come: 64*T1 after the first (RFC 3261 section
    /// 13.2.2.4).
    pub fn end_early(&mut self) {
        for dialog in self.dialogs.iter_mut().filter(|d| d.state() == State::Early) {
            dialog.terminate();
        }
    }

    /// Returns all dialogs, in the order in which they came.
    pub fn all(&self) -> &[Dialog] {
        &self.dialogs
    }

    /// Returns the dialog at an index.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Dialog> {
        self.dialogs.get_mut(index)
    }

    /// Returns the dialog of a received message.
    pub fn find(&mut self, message: &Message<'_>) -> Option<&mut Dialog> {
        self.dialogs.iter_mut().find(|d| d.matches(message))
    }
}

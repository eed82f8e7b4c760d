//! What the user is shown.

use std::sync::Arc;

/// Takes lines for the user.
pub type Lines = Arc<dyn Fn(&str) + Send + Sync>;

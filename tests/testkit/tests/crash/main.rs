//! The explorer of crash states on logs whose states are known, and its oracle on broken subjects.

mod explore;
mod oracle;

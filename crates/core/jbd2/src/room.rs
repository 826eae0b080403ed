//! The decision whether more blocks fit in the running transaction (`reserve.rs`), apart from the
//! journal, so that `tests/it/reservations.rs` runs it under every schedule that shuttle draws.

/// Answer to a request for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Granted.
    Free,
    /// Reservations and handles of others have it; they end.
    Reserved,
    /// The transaction has it, until its owner commits.
    Full,
}

impl Room {
    /// Returns whether `blocks` more fit within `limit`, where `held` are in the transaction for
    /// good and `reserved` may come. An operation of any size fits alone.
    pub(crate) fn of(limit: u32, held: u32, reserved: u32, blocks: u32) -> Room {
        let needed = held.saturating_add(blocks);
        if needed.saturating_add(reserved) <= limit || held == 0 && reserved == 0 {
            Room::Free
        } else if needed <= limit || held == 0 {
            Room::Reserved
        } else {
            Room::Full
        }
    }
}

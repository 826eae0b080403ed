//! Replacement policies on traces: exact counts, plain models, bounds, memory.

mod bounds;
mod golden;
mod traces;

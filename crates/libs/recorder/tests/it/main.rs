//! The recorder: against a model, through power cuts, in virtual time on flash, on this system.

mod cuts;
mod fuzz;
mod hour;
mod model;
mod support;
mod system;

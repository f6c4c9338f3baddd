//! Every optimizer: against the recorded vectors, against the formulas for one element, and what a
//! store does with them while it runs.

mod golden;
mod random;
mod schedules;
mod vectors;

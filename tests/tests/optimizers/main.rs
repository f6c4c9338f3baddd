//! Every optimizer: against the recorded vectors, against the formulas for one element, and what a
//! store does with them while it runs.

mod golden;
mod noise;
mod random;
mod running;
mod schedules;
mod vectors;

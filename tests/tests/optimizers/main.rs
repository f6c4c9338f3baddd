//! Every optimizer: against the recorded vectors, against the formulas for one element, and what a
//! store does with them while it runs.

#![allow(clippy::float_cmp, reason = "numbers that a float holds exactly, and equal bits")]

mod alone;
mod golden;
mod layerwise;
mod lazy;
mod noise;
mod random;
mod running;
mod schedules;
mod vectors;
mod zero_rate;

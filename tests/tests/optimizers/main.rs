//! Every optimizer, compared with the recorded vectors and with the formulas for one element, also
//! while its settings change on a running store.

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

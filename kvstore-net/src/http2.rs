//! The settings of HTTP/2 of both sides of a connection.

use std::time::Duration;

/// The windows of flow control. The default of 64 KiB would limit the rate to one window per round
/// trip.
pub(crate) const WINDOW: u32 = 16 << 20;

/// The most bytes of an HTTP/2 frame: a message with the most data, and 64 KiB for a request. Each
/// frame is a call of the system on both sides, and the default of 16 KiB makes these calls the
/// largest part of a long transfer.
pub(crate) const FRAME: u32 = (512 + 64) << 10;

/// How often server and client test a connection, and how long a test may take. Otherwise they
/// would not notice that the other machine is gone.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);

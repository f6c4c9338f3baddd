//! [`Pausing`]: a connection that reads no more than the server can work on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::access::Peer;

/// The number of bytes after which other tasks run.
const BYTES: usize = 1 << 20;

/// The most requests of a peer that wait for the first turn of their tasks. While there are more,
/// its connections read nothing.
const MOST_WAITING: usize = 64;

/// The most bytes that a connection reads at once while a request of its peer waits, because they
/// may contain many more.
const SHORT_READ: usize = 1 << 10;

/// The most requests that a connection reads while its peer takes no replies.
const MOST_UNANSWERED: usize = 256;

/// A connection that pauses after each mebibyte that it reads, so that the task that needs the data
/// runs while they are in the cache. Without pauses, a complete window of data would arrive first,
/// because the task of a connection reads until the socket is empty.
///
/// It also pauses while many requests of its peer wait for their tasks, and while the peer takes no
/// replies to many requests. What it has read before a pause may contain more requests.
#[derive(Debug)]
pub(super) struct Pausing<S> {
    stream: S,
    peer: Peer,
    /// The number of bytes that it has read since the last pause.
    num_read: usize,
    /// The number of requests when the peer stopped taking replies, if it has.
    stopped_after: Option<usize>,
}

impl<S> Pausing<S> {
    pub(super) fn new(stream: S, peer: Peer) -> Self {
        Self { stream, peer, num_read: 0, stopped_after: None }
    }

    /// Notes whether the peer takes replies.
    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(_) => self.stopped_after = None,
            Poll::Pending if self.stopped_after.is_none() => {
                self.stopped_after = Some(self.peer.num_requests());
            }
            Poll::Pending => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pausing<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let num_requests = self.peer.num_requests();
        if self.stopped_after.is_some_and(|before| num_requests - before >= MOST_UNANSWERED) {
            // The task of the connection runs again when the peer takes replies.
            return Poll::Pending;
        }
        let num_waiting = self.peer.account().num_waiting();
        if self.num_read >= BYTES || num_waiting >= MOST_WAITING {
            self.num_read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        if num_waiting > 0 {
            let most = SHORT_READ.min(buffer.remaining());
            let mut short = ReadBuf::new(buffer.initialize_unfilled_to(most));
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut short))?;
            let num_read = short.filled().len();
            buffer.advance(num_read);
        } else {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        }
        self.num_read += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pausing<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::future::poll_fn;
    use std::net::IpAddr;

    use kvstore_core::Backends;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::accounts::{Accounts, Limits};

    fn peer() -> Peer {
        let accounts = Accounts::new(&Limits::default(), &Backends::new(Vec::new()));
        Peer::new(accounts.connect(IpAddr::from([127, 0, 0, 1])).unwrap())
    }

    /// Reads once. Returns the number of bytes, or `None` for a pause.
    async fn read<S: AsyncRead + Unpin>(
        stream: &mut Pausing<S>,
        bytes: &mut [u8],
    ) -> Option<usize> {
        poll_fn(|context| {
            let mut buffer = ReadBuf::new(bytes);
            let read = Pin::new(&mut *stream).poll_read(context, &mut buffer);
            Poll::Ready(read.is_ready().then(|| buffer.filled().len()))
        })
        .await
    }

    #[tokio::test]
    async fn a_connection_pauses_after_a_mebibyte_and_loses_nothing() {
        let data: Vec<u8> = (0..=250).cycle().take(3 * BYTES + 5).collect();
        let mut stream = Pausing::new(&data[..], peer());
        let mut first: Vec<u8> = (0..BYTES).map(|_| 0).collect();
        assert_eq!(read(&mut stream, &mut first).await, Some(BYTES));
        assert_eq!(read(&mut stream, &mut first).await, None);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(data.strip_prefix(&first[..]) == Some(&rest[..]));
    }

    #[tokio::test]
    async fn a_connection_reads_little_while_requests_wait() {
        let (data, peer) = ([7; 4 * SHORT_READ], peer());
        let mut stream = Pausing::new(&data[..], peer.clone());
        let mut bytes = [0; 2 * SHORT_READ];
        let waiting: Vec<_> = (0..MOST_WAITING).map(|_| peer.account().count_waiting()).collect();
        assert_eq!(read(&mut stream, &mut bytes).await, None);
        drop(waiting);
        let waiting = peer.account().count_waiting();
        assert_eq!(read(&mut stream, &mut bytes).await, Some(SHORT_READ));
        assert!(bytes.starts_with(&data[..SHORT_READ]));
        drop(waiting);
        assert_eq!(read(&mut stream, &mut bytes).await, Some(bytes.len()));
    }

    #[tokio::test]
    async fn a_connection_reads_few_requests_while_the_peer_takes_no_replies() {
        let (mut other, stream) = tokio::io::duplex(16);
        let peer = peer();
        let mut stream = Pausing::new(stream, peer.clone());
        other.write_all(b"request").await.unwrap();
        let reply = [1; 24];
        assert_eq!(stream.write(&reply).await.unwrap(), 16);
        let writing = poll_fn(|context| {
            Poll::Ready(Pin::new(&mut stream).poll_write(context, &reply[16..]).is_pending())
        });
        assert!(writing.await);
        (1..MOST_UNANSWERED).for_each(|_| peer.count_request());
        let mut bytes = [0; 4];
        assert_eq!(read(&mut stream, &mut bytes).await, Some(4));
        peer.count_request();
        assert_eq!(read(&mut stream, &mut bytes).await, None);
        other.read_exact(&mut [0; 16]).await.unwrap();
        stream.write_all(&reply[16..]).await.unwrap();
        assert_eq!(read(&mut stream, &mut bytes).await, Some(3));
    }
}

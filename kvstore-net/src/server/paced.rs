//! [`Paced`]: a connection that yields to other tasks after each MiB that it receives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// The number of bytes after which other tasks run.
const BYTES: usize = 1 << 20;

/// A connection that pauses after each mebibyte that it receives, so that the task that needs the
/// data runs while they are in the cache. Without pauses, a complete window of data would arrive
/// first, because the task of a connection reads until the socket is empty.
#[derive(Debug)]
pub(super) struct Paced {
    stream: TcpStream,
    /// The number of bytes that have arrived since the last pause.
    received: usize,
}

impl Paced {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, received: 0 }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received >= BYTES {
            self.received = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.received += buffer.filled().len() - before;
        Poll::Ready(read)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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

impl Connected for Paced {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// Reads once. Returns the number of bytes, or `None` for a pause.
    async fn read(paced: &mut Paced, bytes: &mut [u8]) -> Option<usize> {
        poll_fn(|context| {
            let mut buffer = ReadBuf::new(bytes);
            let read = Pin::new(&mut *paced).poll_read(context, &mut buffer);
            Poll::Ready(read.is_ready().then(|| buffer.filled().len()))
        })
        .await
    }

    #[tokio::test]
    async fn a_connection_pauses_after_a_mebibyte_and_loses_nothing() {
        const LEN: usize = 3 * BYTES + 5;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sending = tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut message = tokio::io::repeat(7).take(u64::try_from(LEN).unwrap());
            tokio::io::copy(&mut message, &mut stream).await.unwrap();
        });
        let mut paced = Paced::new(listener.accept().await.unwrap().0);
        let (mut first, mut bytes) = ([0; 100], Vec::new());
        paced.read_exact(&mut first).await.unwrap();
        paced.received = BYTES;
        assert_eq!(read(&mut paced, &mut first).await, None);
        assert_eq!(paced.received, 0);
        paced.read_to_end(&mut bytes).await.unwrap();
        sending.await.unwrap();
        assert_eq!(bytes.len(), LEN - first.len());
    }
}

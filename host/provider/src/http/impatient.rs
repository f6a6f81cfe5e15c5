//! A stream that is given up when its other end takes nothing for too long: its place is another's then.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream, and how long a write to it may wait.
#[derive(Debug)]
pub struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// Since the other end takes nothing: when that is too long.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// One that waits so long.
    pub fn new(stream: S, patience: Duration) -> Impatient<S> {
        Impatient { stream, patience, end: None }
    }

    fn judge(&mut self, context: &mut Context<'_>, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if written.is_ready() {
            self.end = None;
            return written;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(patience)));
        end.as_mut().poll(context).map(|()| {
            let what = format!("nothing was taken for {} s", patience.as_secs());
            Err(Error::new(ErrorKind::TimedOut, what))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.judge(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket has nothing to flush, and its end waits for nobody.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Runs on a clock that goes on as soon as everybody waits.
    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(future)
    }

    #[test]
    fn whoever_takes_nothing_is_given_up() {
        run(async {
            let (near, _far) = duplex(8);
            let begin = tokio::time::Instant::now();
            let mut near = Impatient::new(near, PATIENCE);
            let write = tokio::time::timeout(10 * PATIENCE, near.write_all(&[0; 16]));
            let error = write.await.expect("it ends").expect_err("nobody reads");
            assert_eq!((error.kind(), begin.elapsed().as_secs()), (ErrorKind::TimedOut, PATIENCE.as_secs()));
        });
    }

    #[test]
    fn whoever_is_slow_is_waited_for() {
        run(async {
            let (near, mut far) = duplex(1);
            let mut near = Impatient::new(near, PATIENCE);
            let slow = async {
                for _ in 0..16 {
                    tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
                    far.read_u8().await.expect("a byte");
                }
            };
            let (written, ()) = tokio::join!(near.write_all(&[0; 16]), slow);
            written.expect("all of it");
        });
    }
}

//! Sockets that write nothing once this host may not act any more.
//!
//! The check comes directly before the system call that writes, below TLS: whatever a process prepared before it was
//! stopped is refused when it resumes. Data in the kernel is bounded, too: the kernel gives up when the lease ends, and
//! the socket discards what it has not sent. Knows nothing of requests.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt as _, service_fn};

use crate::fence::{FOREVER, Fence};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// A silent connection counts as dead after this time and three more of the same.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// The connection ends if sent data is not acknowledged for this long.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// This host may not act any more, so nothing was written.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this host does not hold the lease any more")]
pub struct Refused {
    /// Whether a part of the same request was written before.
    pub begun: bool,
}

impl Refused {
    /// Converts it to the error of a system call.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }

    /// Finds the refusal among an error's causes.
    pub fn among(error: &(dyn Error + 'static)) -> Option<Self> {
        links(error).find_map(|link| link.downcast_ref::<Self>().copied())
    }
}

/// An error and its causes, outermost first, including those within the standard library's errors.
pub(crate) fn links<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        within.map(|within| within as _).or_else(|| error.source())
    })
}

/// Opens connections to a server or a proxy; none while this host may not act. `timeout` is for each connection;
/// several addresses of a name share it.
pub(crate) fn dialer(fence: Fence, timeout: Duration) -> BoxCloneSyncService<Uri, Socket, BoxError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    BoxCloneSyncService::new(service_fn(move |to: Uri| {
        let (tcp, fence) = (tcp.clone(), fence.clone());
        async move {
            if !fence.may_act() {
                return Err(Refused { begun: false }.into());
            }
            let tcp = tcp.oneshot(to).await?;
            Ok(Socket { tcp, fence })
        }
    }))
}

/// One TCP connection.
pub(crate) struct Socket {
    tcp: TokioIo<TcpStream>,
    fence: Fence,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.fence.may_act() {
            // After this, closing makes the kernel discard what it still holds. If this fails, the kernel gives up by
            // itself.
            let _ = self.tcp.inner().set_zero_linger();
        }
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.tcp.connected()
    }
}

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl Write for Socket {
    /// Writes if this host may act.
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(left) = self.fence.left()
            && left < FOREVER
        {
            // Limits how long the kernel retransmits lost data, or holds data back for a full receiver. Zero would
            // select the system's default, a quarter of an hour.
            let ms = left.min(USER_TIMEOUT).as_millis().max(1);
            set_tcp_user_timeout(self.tcp.inner(), u32::try_from(ms).unwrap_or(u32::MAX))?;
        }
        // Nothing may come between these two.
        if self.fence.may_act() {
            Pin::new(&mut self.tcp).poll_write(cx, buf)
        } else {
            Poll::Ready(Err(Refused { begun: false }.into_io()))
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Only says that nothing more comes, which is no request.
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

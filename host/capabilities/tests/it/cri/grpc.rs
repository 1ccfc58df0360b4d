//! gRPC by hand over HTTP/2 on a unix socket: a server with scripted answers, including false ones, and a client.
//!
//! Independent of the code under test: the backend's gRPC library has no part in it.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// HTTP/2's frames carry bytes of this type.
type Bytes = axum::body::Bytes;

/// gRPC's code and message.
pub(crate) type Refusal = (u32, String);

/// The server's reaction to a call.
pub(crate) enum Reply {
    /// Answers with a message and success.
    Message(Vec<u8>),
    /// Answers with a code and a text.
    Refusal(Refusal),
    /// Leaves the caller without an answer, on an open connection.
    Silence,
    /// Answers half a message and breaks the connection.
    Break,
}

impl From<Result<Vec<u8>, Refusal>> for Reply {
    fn from(result: Result<Vec<u8>, Refusal>) -> Self {
        match result {
            Ok(message) => Self::Message(message),
            Err(refusal) => Self::Refusal(refusal),
        }
    }
}

pub(crate) type Replying = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A server on its own socket, in its own folder; both end with it.
pub(crate) struct Server {
    socket: PathBuf,
    accepting: JoinHandle<()>,
    _folder: TempDir,
}

impl Server {
    /// Answers each call, by path and message, with the result of `reply`.
    pub(crate) fn start(reply: impl Fn(String, Vec<u8>) -> Replying + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("runtime.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let reply = Arc::new(reply);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let reply = Arc::clone(&reply);
                tokio::spawn(async move {
                    // In some tests the caller disconnects during its answer.
                    let _ = serve(stream, &*reply).await;
                });
            }
        });
        Self {
            socket,
            accepting,
            _folder: folder,
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: UnixStream, reply: &(impl Fn(String, Vec<u8>) -> Replying + ?Sized)) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    let (break_off, mut broken) = tokio::sync::mpsc::channel::<()>(1);
    loop {
        let (request, respond) = tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(request) => request?,
                None => return Ok(()),
            },
            // Returning drops the connection and all calls on it.
            _ = broken.recv() => return Ok(()),
        };
        let (path, mut body) = (request.uri().path().to_owned(), request.into_body());
        let (read, _) = read(&mut body).await?;
        let replying = reply(path, unframed(&read));
        let break_off = break_off.clone();
        tokio::spawn(async move {
            match replying.await {
                Reply::Silence => std::future::pending().await,
                Reply::Break => {
                    let _ = half_answer(respond).await;
                    let _ = break_off.send(()).await;
                }
                Reply::Message(message) => {
                    let _ = answer(respond, &message);
                }
                Reply::Refusal(refusal) => {
                    let _ = refuse(respond, &refusal);
                }
            }
        });
    }
}

fn answer(mut respond: SendResponse<Bytes>, message: &[u8]) -> Result<(), h2::Error> {
    let mut body = respond.send_response(head(&[]), false)?;
    body.send_data(framed(message), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    body.send_trailers(trailers)
}

async fn half_answer(mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut body = respond.send_response(head(&[]), false)?;
    body.send_data(framed(&[0; 8]).slice(..8), false)?;
    // Lets it be sent before the connection ends.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn refuse(mut respond: SendResponse<Bytes>, (code, message): &Refusal) -> Result<(), h2::Error> {
    let message = utf8_percent_encode(message, NON_ALPHANUMERIC).to_string();
    let head = head(&[("grpc-status", &code.to_string()), ("grpc-message", &message)]);
    respond.send_response(head, true).map(drop)
}

fn head(headers: &[(&str, &str)]) -> Response<()> {
    let head = Response::builder().header("content-type", "application/grpc");
    let head = headers
        .iter()
        .fold(head, |head, (name, value)| head.header(*name, *value));
    head.body(()).unwrap()
}

/// One call, over a connection of its own.
pub(crate) async fn call(socket: &Path, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let stream = UnixStream::connect(socket).await.unwrap();
    let (mut sending, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut body) = sending.send_request(request, false).unwrap();
    body.send_data(framed(message), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    let (read, trailers) = read(&mut body).await.unwrap();
    connection.abort();
    // An error without a message is only in the head.
    let status = |name: &str| {
        let value = head.headers.get(name).or_else(|| trailers.get(name));
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    match status("grpc-status").as_deref() {
        Some("0") => Ok(unframed(&read)),
        code => {
            let message = status("grpc-message").unwrap_or_default();
            let message = percent_decode_str(&message).decode_utf8().unwrap().into_owned();
            Err((code.unwrap().parse().unwrap(), message))
        }
    }
}

async fn read(body: &mut RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut read = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        read.extend_from_slice(&chunk);
    }
    Ok((read, body.trailers().await?.unwrap_or_default()))
}

/// A message as gRPC sends it: not compressed, its length, itself.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    Bytes::from([&[0], &length[..], message].concat())
}

fn unframed(frame: &[u8]) -> Vec<u8> {
    let (head, message) = frame.split_at(5);
    assert_eq!(
        head[0], 0,
        "a compressed message, which the client did not offer to read"
    );
    let length = u32::from_be_bytes(head[1..].try_into().unwrap());
    assert_eq!(length as usize, message.len(), "one message, and all of it");
    message.to_vec()
}

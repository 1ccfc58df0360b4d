//! `wasi:io/streams`: an input that has ended, and two outputs that go to the guest's log, line by line. And
//! `wasi:cli`: these streams, and an exit that ends the call. The library answers the rest: no environment, no
//! arguments and no terminal.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::cli::{exit, stderr, stdin, stdout};
use wasmtime_wasi::p2::bindings::io::streams;
use wasmtime_wasi::p2::pipe::{ClosedInputStream, SinkOutputStream};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, StreamError};

use super::state::Output;
use crate::Host;
use crate::ask::Stop;
use crate::bindings::host::log::Level;

/// The maximum size of one write, which `check-write` permits: a page or a few of text. Longer output is written in
/// parts.
const WRITE_BYTES_MAX: u64 = 64 << 10;

/// The maximum number of zeroes written without a permit, as WASI specifies.
const ZEROES_BYTES_MAX: u64 = 4_096;

type Result<T, E = StreamError> = std::result::Result<T, E>;

impl Host {
    /// Writes one line to the log.
    pub(super) fn print(&mut self, output: Output, line: &str) {
        let level = match output {
            Output::Stdout => Level::Info,
            Output::Stderr => Level::Warn,
        };
        if output == Output::Stderr && !line.trim().is_empty() {
            self.last_words = Some(crate::log::line(line, &[]));
        }
        self.log_line(level, line, &[]);
    }

    fn print_bytes(&mut self, stream: &Resource<DynOutputStream>, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > WRITE_BYTES_MAX {
            return Err(too_much(bytes.len() as u64, WRITE_BYTES_MAX));
        }
        let wasi = self.wasi();
        let Some(&output) = wasi.outputs.get(&stream.rep()) else {
            return Err(StreamError::Closed);
        };
        for line in wasi.lines.entry(output).or_default().take(bytes) {
            self.print(output, &line);
        }
        Ok(())
    }

    fn print_zeroes(&mut self, stream: &Resource<DynOutputStream>, len: u64, max: u64) -> Result<()> {
        if len > max {
            return Err(too_much(len, max));
        }
        self.print_bytes(stream, &vec![0; usize::try_from(len).unwrap_or_default()])
    }
}

/// A mistake of the guest's runtime: `check-write` has told it the limit.
fn too_much(bytes: u64, max: u64) -> StreamError {
    StreamError::trap(&format!(
        "writes {bytes} bytes to a stream of WASI at once, above the {max} that are permitted"
    ))
}

impl streams::Host for Host {
    fn convert_stream_error(&mut self, error: StreamError) -> wasmtime::Result<streams::StreamError> {
        streams::Host::convert_stream_error(&mut self.wasi().table, error)
    }
}

impl streams::HostInputStream for Host {
    fn read(&mut self, _: Resource<DynInputStream>, _: u64) -> Result<Vec<u8>> {
        Err(StreamError::Closed)
    }

    async fn blocking_read(&mut self, _: Resource<DynInputStream>, _: u64) -> Result<Vec<u8>> {
        Err(StreamError::Closed)
    }

    fn skip(&mut self, _: Resource<DynInputStream>, _: u64) -> Result<u64> {
        Err(StreamError::Closed)
    }

    async fn blocking_skip(&mut self, _: Resource<DynInputStream>, _: u64) -> Result<u64> {
        Err(StreamError::Closed)
    }

    fn subscribe(&mut self, _: Resource<DynInputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        self.wasi().pollable(None)
    }

    async fn drop(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<()> {
        self.wasi().table.delete(stream)?;
        Ok(())
    }
}

impl streams::HostOutputStream for Host {
    fn check_write(&mut self, _: Resource<DynOutputStream>) -> Result<u64> {
        Ok(WRITE_BYTES_MAX)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> Result<()> {
        self.print_bytes(&stream, &bytes)
    }

    async fn blocking_write_and_flush(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> Result<()> {
        self.print_bytes(&stream, &bytes)
    }

    /// Only an end of line completes a line; a flush does not.
    fn flush(&mut self, _: Resource<DynOutputStream>) -> Result<()> {
        Ok(())
    }

    async fn blocking_flush(&mut self, _: Resource<DynOutputStream>) -> Result<()> {
        Ok(())
    }

    fn subscribe(&mut self, _: Resource<DynOutputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        self.wasi().pollable(None)
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> Result<()> {
        self.print_zeroes(&stream, len, WRITE_BYTES_MAX)
    }

    async fn blocking_write_zeroes_and_flush(&mut self, stream: Resource<DynOutputStream>, len: u64) -> Result<()> {
        self.print_zeroes(&stream, len, ZEROES_BYTES_MAX)
    }

    /// Every input has ended.
    fn splice(&mut self, _: Resource<DynOutputStream>, _: Resource<DynInputStream>, _: u64) -> Result<u64> {
        Err(StreamError::Closed)
    }

    async fn blocking_splice(
        &mut self,
        _: Resource<DynOutputStream>,
        _: Resource<DynInputStream>,
        _: u64,
    ) -> Result<u64> {
        Err(StreamError::Closed)
    }

    async fn drop(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<()> {
        let wasi = self.wasi();
        wasi.outputs.remove(&stream.rep());
        wasi.table.delete(stream)?;
        Ok(())
    }
}

impl exit::Host for Host {
    fn exit(&mut self, status: Result<(), ()>) -> wasmtime::Result<()> {
        self.exit_with_code(u8::from(status.is_err()))
    }

    fn exit_with_code(&mut self, status: u8) -> wasmtime::Result<()> {
        Err(Stop::Exited { status }.into())
    }
}

impl Host {
    fn output(&mut self, output: Output) -> wasmtime::Result<Resource<DynOutputStream>> {
        let wasi = self.wasi();
        // Its bytes are taken before they reach it: see `print_bytes`.
        let stream: DynOutputStream = Box::new(SinkOutputStream);
        let stream = wasi.push(stream)?;
        wasi.outputs.insert(stream.rep(), output);
        Ok(stream)
    }
}

impl stdin::Host for Host {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        let stream: DynInputStream = Box::new(ClosedInputStream);
        self.wasi().push(stream)
    }
}

impl stdout::Host for Host {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.output(Output::Stdout)
    }
}

impl stderr::Host for Host {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.output(Output::Stderr)
    }
}

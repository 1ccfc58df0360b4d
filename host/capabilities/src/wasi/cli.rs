//! `wasi:cli`: an input that has ended, two outputs, and an exit that ends the call. The library answers the rest: no
//! environment, no arguments and no terminal.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::cli::{exit, stderr, stdin, stdout};
use wasmtime_wasi::p2::pipe::{ClosedInputStream, SinkOutputStream};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

use super::state::Output;
use crate::Host;
use crate::ask::Stop;

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
        // Its bytes are taken before they reach it: see `streams.rs`.
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

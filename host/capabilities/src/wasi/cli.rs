//! `wasi:cli`: no environment, no arguments, no input and no terminal; an exit ends the call.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::cli::{
    environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr, terminal_stdin,
    terminal_stdout,
};
use wasmtime_wasi::p2::pipe::{ClosedInputStream, SinkOutputStream};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

use super::state::Output;
use crate::Host;
use crate::ask::Stop;

impl environment::Host for Host {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
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

impl terminal_input::Host for Host {}

impl terminal_input::HostTerminalInput for Host {
    fn drop(&mut self, terminal: Resource<terminal_input::TerminalInput>) -> wasmtime::Result<()> {
        self.wasi().table.delete(terminal)?;
        Ok(())
    }
}

impl terminal_output::Host for Host {}

impl terminal_output::HostTerminalOutput for Host {
    fn drop(&mut self, terminal: Resource<terminal_output::TerminalOutput>) -> wasmtime::Result<()> {
        self.wasi().table.delete(terminal)?;
        Ok(())
    }
}

impl terminal_stdin::Host for Host {
    fn get_terminal_stdin(&mut self) -> wasmtime::Result<Option<Resource<terminal_input::TerminalInput>>> {
        Ok(None)
    }
}

impl terminal_stdout::Host for Host {
    fn get_terminal_stdout(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}

impl terminal_stderr::Host for Host {
    fn get_terminal_stderr(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}

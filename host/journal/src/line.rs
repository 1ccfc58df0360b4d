//! Writes the lines of a journal into a buffer: keys in their fixed order, compact, one newline at the end.
//!
//! Only this module knows the spelling of a line; the tape writes through it without building an `Entry` first.

use std::fmt;
use std::io::Write;

use serde_json::value::RawValue;

use crate::entry::{Ending, Header, Origin};

/// The text between the arguments of a question and its answer.
pub(crate) const ANSWER: &[u8] = br#","answer":"#;

pub(crate) fn header(line: &mut Vec<u8>, n: u64, header: &Header) {
    put(line, format_args!(r#"{{"n":{n},"header":"#));
    json(line, header);
}

/// A call: when it began, its name and its arguments.
pub(crate) fn call(line: &mut Vec<u8>, n: u64, (at_ms, name, args): (u64, &str, &RawValue), (by, about): Origin<'_>) {
    put(line, format_args!(r#"{{"n":{n},"at_ms":{at_ms},"call":"#));
    json(line, name);
    line.extend_from_slice(br#","args":"#);
    line.extend_from_slice(args.get().as_bytes());
    if let Some(by) = by {
        line.extend_from_slice(br#","by":"#);
        json(line, by);
    }
    if let Some(about) = about {
        line.extend_from_slice(br#","about":"#);
        json(line, about);
    }
}

/// Everything before the arguments, which the caller appends.
pub(crate) fn ask(line: &mut Vec<u8>, n: u64, name: &str) {
    put(line, format_args!(r#"{{"n":{n},"ask":"#));
    json(line, name);
    line.extend_from_slice(br#","args":"#);
}

pub(crate) fn ending(line: &mut Vec<u8>, n: u64, ending: &Ending) {
    let (key, value) = ending.parts();
    put(line, format_args!(r#"{{"n":{n},"{key}":"#));
    match value {
        Ok(raw) => line.extend_from_slice(raw.get().as_bytes()),
        Err(text) => json(line, text),
    }
}

pub(crate) fn rolled_back(line: &mut Vec<u8>, n: u64, last_valid: u64) {
    put(line, format_args!(r#"{{"n":{n},"rolled-back":{last_valid}"#));
}

/// Closes the object and the line. Removes line breaks within raw values.
pub(crate) fn finish(line: &mut Vec<u8>) {
    if line.contains(&b'\n') || line.contains(&b'\r') {
        remove_whitespace(line);
    }
    line.extend_from_slice(b"}\n");
}

/// Removes the whitespace between the tokens of JSON text; strings stay as they are.
fn remove_whitespace(json: &mut Vec<u8>) {
    let mut in_string = false;
    let mut escaped = false;
    json.retain(|byte| {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            return true;
        }
        in_string = *byte == b'"';
        !byte.is_ascii_whitespace()
    });
}

fn put(line: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // Writing to a `Vec` cannot fail.
    let _ = line.write_fmt(text);
}

/// Only for values that always have a JSON form: text, numbers, and a header of text and raw JSON.
fn json<T: serde::Serialize + ?Sized>(line: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(line, value);
}

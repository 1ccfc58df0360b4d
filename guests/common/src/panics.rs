//! Sends a panic's text, file and line to the host: a line of the guest's log, which the host adds to the trap's text.

/// Passes the text of each panic to `emit`, which logs it as an error. Call it first in `init`.
pub fn report(emit: fn(&str)) {
    std::panic::set_hook(Box::new(move |panic| emit(&panic.to_string())));
}

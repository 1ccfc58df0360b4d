//! A panic's text, file and line reach the host: a line of the guest's log, which the host adds to the text of the trap.

/// Hands the text of each panic to `emit`, which writes it to the log as an error. To be called first in `init`.
pub fn report(emit: fn(&str)) {
    std::panic::set_hook(Box::new(move |panic| emit(&panic.to_string())));
}

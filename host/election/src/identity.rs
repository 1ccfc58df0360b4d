//! A name that no other process has: the host's name, which tells an operator where to look, and a random part, which
//! distinguishes two processes of one host, and a process from the one before it.

use std::path::Path;

use trueup_base::regular;

/// The kernel's host name; in a pod, the pod's name.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// A new random UUID at each read.
const RANDOM_UUID: &str = "/proc/sys/kernel/random/uuid";

/// `<hostname>_<uuid>`, as users of client-go name themselves.
///
/// # Errors
/// One line if the kernel does not give them.
pub fn identity_of_this_process() -> Result<String, String> {
    Ok(format!("{}_{}", said(HOST_NAME)?, said(RANDOM_UUID)?))
}

fn said(file: &str) -> Result<String, String> {
    let text = regular::read_text(Path::new(file), regular::SMALL);
    let text = text.map_err(|error| format!("can't read `{file}`: {error}; set `election.identity`"))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("`{file}` is empty; set `election.identity`"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_two_are_alike_and_each_begins_with_the_hosts_name() {
        let host = fs::read_to_string(HOST_NAME).unwrap();
        let (one, other) = (identity_of_this_process().unwrap(), identity_of_this_process().unwrap());
        assert_ne!(one, other);
        let uuid = one.strip_prefix(&format!("{}_", host.trim())).unwrap();
        assert_eq!(uuid.len(), 36, "{one}");
    }

    #[test]
    fn a_kernel_that_does_not_say_leaves_it_to_the_operator() {
        let error = said("/proc/nothing").unwrap_err();
        assert_eq!(
            error,
            "can't read `/proc/nothing`: No such file or directory (os error 2); set `election.identity`"
        );
    }
}

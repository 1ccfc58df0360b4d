//! This node's network interfaces from a file: read at the start, and again whenever it changes.
//!
//! The receivers always have the last valid list: if the file disappears or becomes invalid, only the log changes. At
//! the start the file must exist: with an empty list, the guest would treat every allocation as stale, so that is an
//! error.
//!
//! ```text
//! {"enis": [...]} -> parse -> mistakes -> watch channel
//! ```

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::RecursiveMode;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use trueup_base::address::canonical;
use trueup_base::regular::{self, folder_of};
use trueup_base::text;

use crate::rescans::{RESCAN_UNWATCHED, Rescans};

/// A list of 50,000 addresses is about a megabyte. A larger file is the wrong file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// An invalid file is read once more after this delay before the error is reported: it may be half-written.
const SETTLE: Duration = Duration::from_millis(250);

/// This node's network interfaces, as the configuration or the watched file gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enis {
    /// The interfaces, in any order.
    pub enis: Vec<Eni>,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eni {
    /// Its id: any text. Each id occurs once.
    pub id: String,
    /// Its device number.
    pub device_number: i32,
    /// Whether it is the node's first interface. Absent means no.
    #[serde(default)]
    pub is_primary: bool,
    /// Whether it carries branch interfaces. Absent means no.
    #[serde(default)]
    pub is_trunk: bool,
    /// Dotted IPv4 addresses in any order. Each occurs once on the node.
    pub addresses: Vec<String>,
}

/// The errors in a list whose interfaces are individually valid, in its order: duplicate ids, and addresses that are
/// not canonical or not unique on the whole node. Each has its interface, counted from 0, and a text with the place,
/// the given value and the valid values: `enis[0].addresses[1]: was "10.0.0.01", must be ...`.
pub fn mistakes(enis: &Enis) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
    let mut addresses: BTreeMap<Ipv4Addr, (usize, usize)> = BTreeMap::new();
    for (index, eni) in enis.enis.iter().enumerate() {
        let mut wrong = |place: &str, was: &str, must: &str| {
            let was = serde_json::Value::from(was);
            found.push((index, format!("enis[{index}].{place}: was {was}, must {must}")));
        };
        let first = *ids.entry(&eni.id).or_insert(index);
        if first != index {
            wrong("id", &eni.id, &format!("differ from enis[{first}].id"));
        }
        for (at, text) in eni.addresses.iter().enumerate() {
            let place = format!("addresses[{at}]");
            let Some(address) = canonical(text) else {
                let must = "be an IPv4 address: four numbers from 0 to 255 without leading zeros, and nothing else";
                wrong(&place, text, must);
                continue;
            };
            let (eni, nth) = *addresses.entry(address).or_insert((index, at));
            if (eni, nth) != (index, at) {
                wrong(&place, text, &format!("differ from enis[{eni}].addresses[{nth}]"));
            }
        }
    }
    found
}

/// Reads the file.
///
/// # Errors
/// If it cannot be read, is no such list, or contains a mistake: one line with its name and the first error.
pub fn load(file: &Path) -> Result<Enis, String> {
    let text = regular::read_text(file, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => format!("longer than {FILE_BYTES_MAX} bytes, so no such list"),
        _ => format!("can't read the file: {}", text::cause(&error)),
    });
    let enis = text.and_then(|text| parse(&text));
    enis.map_err(|why| format!("network interfaces {}: {why}", file.display()))
}

/// The error is the text after the file's name.
fn parse(text: &str) -> Result<Enis, String> {
    const FORM: &str = "{\"enis\":[{\"id\":\"eni-1\",\"device_number\":0,\"addresses\":[\"10.0.0.2\"]}]}";
    // serde takes an array for a struct, and would then refuse its first element as if it were the field.
    if text.trim_start().starts_with('[') {
        return Err(format!("is an array, must be an object; the form is {FORM}"));
    }
    let enis: Enis = serde_json::from_str(text).map_err(|error| format!("{error}; the form is {FORM}"))?;
    let first = mistakes(&enis).into_iter().next();
    first.map_or(Ok(enis), |(_, mistake)| Err(mistake))
}

/// A file that is watched until this is dropped.
#[derive(Debug)]
pub struct Watched {
    /// The last valid list.
    pub enis: watch::Receiver<Enis>,
    /// The current error, sent once for each different error. `None`: the file is valid again.
    pub problems: mpsc::UnboundedReceiver<Option<String>>,
}

/// Reads the file, and reads it again whenever it changes, until both receivers are dropped. Requires a tokio runtime
/// with time.
///
/// # Errors
/// As [`load`]: there is no initial list.
pub fn watch(file: &Path) -> Result<Watched, String> {
    // Watch before the first look: a change during it then causes an event.
    let mut rescans = Rescans::default();
    // The folder, not the file: a writer usually replaces the file, and a ConfigMap's file is a link whose folder
    // changes.
    if let Err(error) = rescans.watch(folder_of(file), RecursiveMode::NonRecursive) {
        let seconds = RESCAN_UNWATCHED.as_secs();
        tracing::warn!(file = %file.display(), %error, "cannot watch the network interfaces: looking every {seconds} s instead");
    }
    let (sender, enis) = watch::channel(load(file)?);
    let (tell, problems) = mpsc::unbounded_channel();
    tokio::spawn(follow(file.to_owned(), sender, tell, rescans));
    Ok(Watched { enis, problems })
}

type Tell = mpsc::UnboundedSender<Option<String>>;

async fn follow(file: PathBuf, enis: watch::Sender<Enis>, tell: Tell, mut rescans: Rescans) {
    let mut said: Option<String> = None;
    loop {
        tokio::select! {
            () = enis.closed() => return,
            () = rescans.next(None) => {}
        }
        let mut looked = look(&file).await;
        if looked.is_err() && looked.as_ref().err() != said.as_ref() {
            sleep(SETTLE).await;
            looked = look(&file).await;
        }
        match looked {
            Ok(new) => {
                if said.take().is_some() {
                    tracing::info!(file = %file.display(), "the network interfaces can be read again");
                    // Ignore the error: the receiver has ended, or is ending.
                    _ = tell.send(None);
                }
                if *enis.borrow() != new {
                    enis.send_replace(new);
                }
            }
            Err(error) if said.as_ref() != Some(&error) => {
                _ = tell.send(Some(format!("{error}; going on with the last list that was right")));
                said = Some(error);
            }
            Err(_) => {}
        }
        if said.is_some() {
            // The operating system treats a recreated folder as a new one.
            _ = rescans.watch(folder_of(&file), RecursiveMode::NonRecursive);
        }
    }
}

/// Runs on a blocking thread: a disk may be slow.
async fn look(file: &Path) -> Result<Enis, String> {
    let path = file.to_owned();
    let looked = tokio::task::spawn_blocking(move || load(&path)).await;
    let file = file.display();
    let why = "reading the file ended early";
    looked.unwrap_or_else(|error| Err(format!("network interfaces {file}: {why}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"enis":[{"id":"eni-1","device_number":0,"addresses":["10.0.0.2","10.0.0.3"]}]}"#;

    #[test]
    fn a_file_gives_its_interfaces_with_every_default() {
        let text = r#"{"enis":[{"id":"eni-1","device_number":-1,"is_primary":true,"addresses":["10.0.0.2"]},
                               {"id":"","device_number":-1,"is_trunk":true,"addresses":[]}]}"#;
        let enis = parse(text).unwrap().enis;
        let flags: Vec<_> = enis.iter().map(|eni| (eni.is_primary, eni.is_trunk)).collect();
        assert_eq!(flags, [(true, false), (false, true)]);
        assert_eq!(parse(r#"{"enis":[]}"#), Ok(Enis::default()), "a node may have lost all");
    }

    /// Asserts the error for a text, without the reminder of the format.
    #[track_caller]
    fn refused(text: &str, said: &str) {
        let error = parse(text).unwrap_err();
        assert_eq!(error.split("; the form is ").next(), Some(said), "of {text}");
    }

    #[test]
    fn an_invalid_list_of_interfaces_is_refused_with_its_first_error() {
        refused("", "EOF while parsing a value at line 1 column 0");
        refused(
            r#"{"enis":[{"id":"a","#,
            "EOF while parsing a value at line 1 column 19",
        );
        for array in ["[]", r#"[{"id":"a","device_number":0,"addresses":[]}]"#, "\n[[]]"] {
            refused(array, "is an array, must be an object");
        }
        refused("{}", "missing field `enis` at line 1 column 2");
        refused(
            r#"{"enis":[],"eni":[]}"#,
            "unknown field `eni`, expected `enis` at line 1 column 16",
        );
        refused(
            r#"{"enis":[{"id":"a","device_number":0,"addresses":["10.0.0.1"," 10.0.0.2"]}]}"#,
            "enis[0].addresses[1]: was \" 10.0.0.2\", must be an IPv4 address: four numbers from 0 to 255 without \
             leading zeros, and nothing else",
        );
        refused(
            r#"{"enis":[{"id":"a","device_number":0,"addresses":["10.0.0.1"]},
                        {"id":"b","device_number":1,"addresses":["10.0.0.1"]}]}"#,
            "enis[1].addresses[0]: was \"10.0.0.1\", must differ from enis[0].addresses[0]",
        );
        refused(
            r#"{"enis":[{"id":"a","device_number":0,"addresses":[]},{"id":"a","device_number":1,"addresses":[]}]}"#,
            "enis[1].id: was \"a\", must differ from enis[0].id",
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("enis.json");
        let error = watch(&file).unwrap_err().to_string();
        let said = "can't read the file: No such file or directory (os error 2)";
        assert_eq!(error, format!("network interfaces {}: {said}", file.display()));
    }

    /// Replaces a file atomically, as a careful writer does.
    fn put(file: &Path, text: &str) {
        let draft = file.with_extension("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, file).unwrap();
    }

    #[tokio::test]
    async fn a_watched_file_is_followed_and_a_bad_edit_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("enis.json");
        put(&file, ONE);
        let Watched { mut enis, mut problems } = watch(&file).unwrap();
        assert_eq!(*enis.borrow_and_update(), parse(ONE).unwrap());

        let grown = ONE.replace("10.0.0.3", "10.0.0.4");
        put(&file, &grown);
        enis.changed().await.unwrap();
        assert_eq!(*enis.borrow_and_update(), parse(&grown).unwrap());

        // This time in place, as an editor may do it.
        std::fs::write(&file, &ONE[..40]).unwrap();
        let said = problems.recv().await.unwrap().unwrap();
        let begin = format!("network interfaces {}: EOF while parsing", file.display());
        assert!(
            said.starts_with(&begin) && said.ends_with("; going on with the last list that was right"),
            "{said}"
        );
        std::fs::remove_file(&file).unwrap();
        let said = problems.recv().await.unwrap().unwrap();
        assert!(said.contains("can't read the file: No such file"), "{said}");
        assert!(!enis.has_changed().unwrap(), "{:?}", *enis.borrow());

        put(&file, ONE);
        enis.changed().await.unwrap();
        assert_eq!(*enis.borrow_and_update(), parse(ONE).unwrap());
        assert_eq!(problems.recv().await, Some(None), "it can be read again");
        assert!(problems.try_recv().is_err(), "each wrong is said once");
    }
}

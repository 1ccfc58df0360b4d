//! Writes a first configuration of one world: the sections of its example, with the source that is asked for.
//!
//! It works as it is: backends are simulated, and comments say how to use real ones. Never overwrites a file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;
use trueup_work::kind::Kind;
use trueup_work::setup::SetupError;
use trueup_worlds::KINDS;

/// The file of the configuration.
const CONFIGURATION: &str = "trueup.toml";

/// Where manifests are in an example.
const MANIFESTS: &str = "manifests/";

/// A file that only its owner may read.
const TOKEN: &str = "token";

/// The longest `cluster`.
const LABEL_LENGTH_MAX: usize = 63;

/// What the written file begins with.
const HEAD: &str = "\
# Written by `trueup init`: everything here is yours to change. Paths are relative to this file. `trueup check` says what is
# missing, `trueup plan` what a run would do. What each key means: docs/operators.md.";

/// Where the host keeps its state: the default, in words.
const STATE: &str = "\
# What the host must know after a restart, compiled guests and recordings. On a machine name a folder that lasts, such as
# /var/lib/trueup/controller, which the packaged unit makes for its user.
state_dir = \".trueup\"";

/// The source of a cluster.
const CLUSTER: &str = "\
# What should be: the objects of a cluster. A run writes to them, even what simulated backends say: for a trial, name a
# cluster of your own, or only plan. `{}` is the pod's own service account, or else the kubeconfig that kubectl takes;
# `kubernetes = { kubeconfig = \"FILE\", context = \"NAME\" }` names another.
[source]
kubernetes = {}";

/// How a comment begins whose key has a value for simulated backends: a cluster's configuration has the default.
const FOR_SIMULATION: &str = "# For a simulation:";

/// What a cluster's name is.
const NAMED: &str = "# From the kubeconfig: its current context. Two clusters must not have one name.";

/// Where the desired state comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A folder of manifests.
    Manifests,
    /// An API server.
    Kubernetes,
}

/// The worlds that have an example: their names, and whether they read a source.
pub fn worlds() -> Vec<(&'static str, bool)> {
    let kinds = KINDS.iter().filter(|kind| !kind.example().is_empty());
    let world = |kind: &&dyn Kind| (kind.sections().about().name, kind.reads_source());
    kinds.map(world).collect()
}

/// Writes the files, and returns their paths, the configuration first. `from` is for a world that reads a source.
///
/// # Errors
/// If one of them exists, which is left as it is, or can't be written. Then none is written.
pub fn write(folder: &Path, world: &str, from: From) -> Result<Vec<PathBuf>, SetupError> {
    let files = files(folder, world, from);
    if let Some((taken, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        let next = "name another folder, or move it away";
        let why = format!("{} exists already, and is left as it is: {next}", taken.display());
        return Err(SetupError::Misused(why));
    }
    for (count, (path, text)) in files.iter().enumerate() {
        write_new(path, text).map_err(|error| {
            // They would be in the way of the next try.
            let written = files.iter().take(count);
            written.for_each(|(path, _)| drop(fs::remove_file(path)));
            SetupError::Failed(format!("writing {}: {error}", path.display()))
        })?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mode = if path.ends_with(TOKEN) { 0o600 } else { 0o666 };
    let mut file = File::options().write(true).create_new(true).mode(mode).open(path)?;
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// The paths and contents of a world's first files.
fn files(folder: &Path, world: &str, from: From) -> Vec<(PathBuf, String)> {
    let kind = KINDS.iter().filter(|kind| kind.sections().about().name == world);
    let all = kind.flat_map(|kind| kind.example());
    let wanted = all.filter(|(name, _)| from == From::Manifests || !name.starts_with(MANIFESTS));
    let text = |name: &str, text: &str| match name {
        CONFIGURATION => configuration(text, world, from, &name_of_cluster()),
        _ => text.to_owned(),
    };
    let file = |&(name, example): &(&str, &str)| (folder.join(name), text(name, example));
    wanted.map(file).collect()
}

/// The parts of an example that concern a world, with another beginning and perhaps another source. An empty line ends
/// a part, and a part is about the first section in it. With a cluster as the source its name is `cluster`.
fn configuration(example: &str, world: &str, from: From, cluster: &str) -> String {
    let others: Vec<&str> = KINDS.iter().map(|kind| kind.sections().about().name).collect();
    let is_of_another = |section: &str| {
        let name = section.split('.').nth(1).unwrap_or_default();
        name != world && others.contains(&name)
    };
    let mut parts = vec![HEAD, STATE];
    for part in example.split("\n\n").skip(1) {
        let section = part.lines().find_map(|line| line.strip_prefix('[')?.split(']').next());
        match section.unwrap_or_default() {
            "source" if from == From::Kubernetes => parts.push(CLUSTER),
            section if is_of_another(section) => {}
            _ => parts.push(part.trim_end()),
        }
    }
    let mut is_left_out = false;
    let line = |line: &str| {
        let is_of_cluster = from == From::Kubernetes;
        is_left_out |= is_of_cluster && line.starts_with(FOR_SIMULATION);
        if is_left_out {
            is_left_out = line.starts_with('#');
            return String::new();
        }
        match is_of_cluster && line.starts_with("cluster = ") {
            true => format!("{NAMED}\ncluster = \"{cluster}\"\n"),
            false => format!("{line}\n"),
        }
    };
    parts.join("\n\n").lines().map(line).collect()
}

/// The name of kubectl's context as a part of resources' names. Empty without one, which a check then refuses: another
/// cluster's name would let this one's host change its resources.
fn name_of_cluster() -> String {
    let context = Kubeconfig::read().ok().and_then(|read| read.current_context);
    as_label(&context.unwrap_or_default())
}

fn as_label(context: &str) -> String {
    let is_of_label = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let all = context.chars().map(|c| if is_of_label(c) { c } else { '-' });
    all.take(LABEL_LENGTH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_a_name_of_its_own_and_no_value_for_a_simulation() {
        let example = "# An example.\n\n[guests.lbaas]\nuse = \"builtin:lbaas@1\"\n# For a simulation: shorter\n# pauses.\n\
                       settings = { backoff_initial_ms = 200 }\ngrants = {}\n\n[adapter.lbaas]\ncluster = \"quickstart\"\n";
        let written = |from| configuration(example, "lbaas", from, &as_label("arn:aws/prod"));
        let of_cluster = written(From::Kubernetes);
        assert!(of_cluster.contains("\ncluster = \"arn-aws-prod\"\n"));
        assert!(
            of_cluster.contains("\nuse = \"builtin:lbaas@1\"\ngrants = {}\n"),
            "{of_cluster}"
        );
        let of_manifests = written(From::Manifests);
        assert!(of_manifests.contains("\ncluster = \"quickstart\"\n") && of_manifests.contains("\nsettings = {"));
    }

    #[test]
    fn a_cluster_has_the_defaults_where_an_example_hurries_its_simulation() {
        let examples = KINDS.iter().flat_map(|kind| kind.example());
        let hurried = examples.filter(|(_, text)| text.contains(FOR_SIMULATION));
        assert!(hurried.count() >= 2);
    }

    #[test]
    fn a_failed_write_leaves_no_file_in_the_way_of_the_next_try() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("manifests");
        fs::write(&in_the_way, "").unwrap();
        write(folder.path(), "lbaas", From::Manifests).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::remove_file(in_the_way).unwrap();
        write(folder.path(), "lbaas", From::Manifests).unwrap();
    }
}

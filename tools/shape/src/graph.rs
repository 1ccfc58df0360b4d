//! Which files use which others, and the knots among them.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, Use};

/// The nodes that each node uses.
pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

/// The groups of nodes that reach each other, largest first, without single nodes.
pub(crate) fn knots(edges: &Edges) -> Vec<Vec<String>> {
    // Kosaraju: the order in which a walk leaves the nodes, then walks against the edges in reverse order.
    let mut back = Edges::new();
    for (from, to) in edges {
        for to in to {
            back.entry(to.clone()).or_default().insert(from.clone());
        }
    }
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    for node in edges.keys() {
        order.extend(walk(node, edges, &mut seen));
    }
    let mut seen = BTreeSet::new();
    let groups = order.iter().rev().map(|node| walk(node, &back, &mut seen));
    let mut knots: Vec<_> = groups.filter(|group| group.len() > 1).collect();
    knots.iter_mut().for_each(|knot| knot.sort());
    knots.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    knots
}

/// The nodes that `from` reaches and that were not seen before, each after those that it reaches first.
fn walk(from: &str, edges: &Edges, seen: &mut BTreeSet<String>) -> Vec<String> {
    let mut left = Vec::new();
    let mut open = vec![(from.to_owned(), false)];
    while let Some((node, is_done)) = open.pop() {
        if is_done {
            left.push(node);
        } else if seen.insert(node.clone()) {
            open.push((node.clone(), true));
            let next = edges.get(&node).into_iter().flatten();
            open.extend(
                next.filter(|next| !seen.contains(*next))
                    .map(|next| (next.clone(), false)),
            );
        }
    }
    left
}

/// The files of one crate by module path, such as `a::b`; the root's is empty.
#[derive(Default)]
pub(crate) struct Crate<'a> {
    pub(crate) files: BTreeMap<Vec<&'a str>, &'a Source>,
}

impl<'a> Crate<'a> {
    /// The file of what `used` in module `from` names. Follows re-exports to their origin. `None` if it is outside the
    /// crate.
    pub(crate) fn target(&self, from: &[&'a str], used: &'a Use) -> Option<&'a Source> {
        // Two modules may re-export each other's names: limit the way to the number of files.
        self.follow(from, &used.path, self.files.len())
    }

    fn follow(&self, from: &[&'a str], path: &'a [String], steps_max: usize) -> Option<&'a Source> {
        let mut rest = path.iter().map(String::as_str).peekable();
        let mut module: Vec<&str> = match *rest.peek()? {
            "crate" => Vec::new(),
            "self" | "super" => from.to_vec(),
            first => self.is_module(from, first).then(|| from.to_vec())?,
        };
        rest.next_if(|first| ["crate", "self"].contains(first));
        while rest.next_if_eq(&"super").is_some() {
            module.pop();
        }
        while let Some(next) = rest.next_if(|next| self.is_module(&module, next)) {
            module.push(next);
        }
        let file = self.files.get(&module)?;
        let passed_on = |used: &&Use| used.is_public && rest.peek().is_some_and(|name| *name == used.name);
        let further = file.uses.iter().find(passed_on).filter(|_| steps_max > 0);
        further
            .and_then(|used| self.follow(&module, &used.path, steps_max - 1))
            .or(Some(file))
    }

    fn is_module(&self, inside: &[&str], name: &str) -> bool {
        let path: Vec<_> = inside.iter().copied().chain([name]).collect();
        self.files.contains_key(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(&str, &str)]) -> Edges {
        let mut edges = Edges::new();
        for (from, to) in pairs {
            edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        edges
    }

    #[test]
    fn a_knot_is_what_reaches_itself_by_way_of_another() {
        let found = knots(&edges(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "d"),
            ("d", "e"),
            ("e", "d"),
            ("f", "a"),
        ]));
        assert_eq!(found, [vec!["a", "b", "c"], vec!["d", "e"]]);
        assert_eq!(
            knots(&edges(&[("a", "b"), ("a", "c"), ("b", "c")])),
            Vec::<Vec<String>>::new()
        );
    }

    #[test]
    fn a_use_leads_to_the_file_that_holds_what_it_names() {
        let files = [
            ("", "mod a; mod c;"),
            ("a", "pub use b::Passed; use b::Kept;"),
            ("a::b", "pub struct Passed;"),
            ("c", ""),
        ];
        let files = files.map(|(path, text)| Source::read(path.to_owned(), text, false));
        let modules = files
            .iter()
            .map(|file| (file.path.split("::").filter(|part| !part.is_empty()).collect(), file));
        let named = Crate {
            files: modules.collect(),
        };
        let target = |from: &'static [&str], path: &str| {
            let path = path.split("::").map(str::to_owned).collect();
            let used = Box::leak(Box::new(Use { path, ..Use::default() }));
            named.target(from, used).map(|file| file.path.as_str())
        };
        assert_eq!(target(&["c"], "crate::a::b::Type"), Some("a::b"));
        assert_eq!(target(&["c"], "crate::a::Type"), Some("a"));
        assert_eq!(target(&["c"], "crate::a::Passed"), Some("a::b"));
        assert_eq!(target(&["c"], "crate::a::Kept"), Some("a"));
        assert_eq!(target(&["a", "b"], "super::Type"), Some("a"));
        assert_eq!(target(&["a", "b"], "super::super::c::Type"), Some("c"));
        assert_eq!(target(&["a"], "b::Type"), Some("a::b"));
        assert_eq!(target(&["a"], "self::b::Type"), Some("a::b"));
        assert_eq!(target(&["a"], "std::c::Type"), None);
    }
}

//! One Rust file in the form that the figures need: which lines are code or comment, which belong to tests, its
//! functions and uses.

use std::ops::Range;

use crate::tokens::{Kind, Token, tokens};

/// A file of the workspace.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path from the workspace's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) lines: Vec<Line>,
    pub(crate) functions: Vec<Function>,
    /// Its uses outside its tests.
    pub(crate) uses: Vec<Use>,
    /// The words and literals outside its tests, each once, with its first line.
    pub(crate) words: Vec<(String, usize)>,
    /// The files that hold only its tests, as `mod` names them: `tests`, or a path from its folder.
    pub(crate) test_modules: Vec<TestModule>,
}

/// A line of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// Its length in characters.
    pub(crate) width: usize,
    pub(crate) is_code: bool,
    pub(crate) is_comment: bool,
    pub(crate) is_test: bool,
    /// The contents that the search for repeated lines compares: literally, and with every name and literal alike.
    /// Empty if there is too little.
    pub(crate) exact: String,
    /// Its names, literals and keywords.
    pub(crate) words: usize,
    pub(crate) shape: String,
}

/// A function with a body, lines counted from 0, from `fn` to its last brace.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: Range<usize>,
    /// Whether it is in code that is built only for tests.
    pub(crate) is_test: bool,
    /// Whether it is a test itself.
    pub(crate) runs: bool,
}

/// One path of a `use` declaration, with groups expanded.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// As written: `super`, `a`, `B`.
    pub(crate) path: Vec<String>,
    /// Its name in this file.
    pub(crate) name: String,
    /// Whether other modules may import it from here.
    pub(crate) is_public: bool,
}

/// A module that is built only for tests and has its own file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TestModule {
    Named(String),
    At(String),
}

impl Source {
    /// Parses `text`, which is all test code if `is_test` is true.
    pub(crate) fn read(path: String, text: &str, is_test: bool) -> Self {
        let found = tokens(text);
        let list = &found.list;
        let items = items_of_tests(list);
        let is_test = is_test || items.whole_file;
        let in_tests = |line: usize| is_test || items.lines.iter().any(|lines| lines.contains(&line));
        let mut lines: Vec<Line> = text
            .lines()
            .zip(&found.is_code)
            .enumerate()
            .map(|(at, (line, is_code))| Line {
                width: line.chars().count(),
                is_code: *is_code,
                is_comment: !is_code && !line.trim().is_empty(),
                is_test: in_tests(at),
                ..Line::default()
            })
            .collect();
        say_what_repeats(&mut lines, list);
        let product: Vec<_> = list.iter().filter(|token| !in_tests(token.line)).copied().collect();
        Self {
            path,
            text: text.to_owned(),
            functions: functions(list, &items.running, in_tests),
            uses: uses(&product),
            words: words(&product),
            test_modules: items.modules,
            lines,
        }
    }

    /// The number of lines that are neither blank nor comment nor test.
    pub(crate) fn code_lines(&self) -> usize {
        self.lines.iter().filter(|line| line.is_code && !line.is_test).count()
    }
}

/// The parts that are built only for tests.
#[derive(Default)]
struct Tests {
    whole_file: bool,
    lines: Vec<Range<usize>>,
    modules: Vec<TestModule>,
    /// The lines of the `fn`s of tests.
    running: Vec<usize>,
}

fn items_of_tests(list: &[Token<'_>]) -> Tests {
    let mut tests = Tests::default();
    let mut at = 0;
    while let Some(token) = list.get(at) {
        let is_inner = list.get(at + 1).is_some_and(|next| next.is("!"));
        let open = at + 1 + usize::from(is_inner);
        if !token.is("#") || !list.get(open).is_some_and(|next| next.is("[")) {
            at += 1;
            continue;
        }
        let close = close_of(list, open);
        let attribute = list.get(open + 1..close).unwrap_or_default();
        if is_inner {
            tests.whole_file |= is_cfg_test(attribute);
        } else if is_cfg_test(attribute) || is_test(attribute) {
            let end = item_end(list, close + 1);
            let item = list.get(at..end).unwrap_or_default();
            let last = item.last().map_or(token.line, |last| last.line);
            tests.lines.push(token.line..last + 1);
            tests.modules.extend(module_in_file(item));
            if is_test(attribute) {
                tests
                    .running
                    .extend(item.iter().find(|token| token.is("fn")).map(|token| token.line));
            }
        }
        at = close + 1;
    }
    tests
}

fn is_cfg_test(attribute: &[Token<'_>]) -> bool {
    attribute.first().is_some_and(|token| token.is("cfg"))
        && attribute.iter().any(|token| token.is("test"))
        && !attribute.iter().any(|token| token.is("not"))
}

/// `test` and `tokio::test`, with or without arguments.
fn is_test(attribute: &[Token<'_>]) -> bool {
    let path = attribute
        .iter()
        .take_while(|token| token.kind == Kind::Word || token.is(":"));
    path.last().is_some_and(|token| token.is("test"))
}

/// `mod NAME;`, optionally with a `#[path = "FILE"]` before it.
fn module_in_file(item: &[Token<'_>]) -> Option<TestModule> {
    let mut words = item.iter().skip_while(|token| !token.is("mod")).skip(1);
    let name = words.next()?;
    words.next().filter(|token| token.is(";"))?;
    let path = item.windows(3).find_map(|three| match three {
        [path, is, file] if path.is("path") && is.is("=") => Some(file.text.trim_matches('"')),
        _ => None,
    });
    Some(path.map_or_else(
        || TestModule::Named(name.text.to_owned()),
        |path| TestModule::At(path.to_owned()),
    ))
}

/// The position of the bracket that closes the one at `open`, or the end.
fn close_of(list: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in list.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" if token.kind == Kind::Punctuation => depth += 1,
            ")" | "]" | "}" if token.kind == Kind::Punctuation => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    list.len()
}

/// The position after the item, statement, field or arm that begins at `at`, with its attributes.
fn item_end(list: &[Token<'_>], mut at: usize) -> usize {
    const ITEMS: [&str; 16] = [
        "fn",
        "mod",
        "use",
        "impl",
        "struct",
        "enum",
        "const",
        "static",
        "type",
        "trait",
        "async",
        "unsafe",
        "extern",
        "union",
        "let",
        "macro_rules",
    ];
    while list.get(at).is_some_and(|token| token.is("#")) {
        at = close_of(list, at + 1) + 1;
    }
    if list.get(at).is_some_and(|token| token.is("pub")) {
        at += 1;
        if list.get(at).is_some_and(|token| token.is("(")) {
            at = close_of(list, at) + 1;
        }
    }
    let first = list.get(at).map_or("", |token| token.text);
    let ends_with_semicolon = ["use", "const", "static", "let", "type"].contains(&first)
        && !list.get(at + 1).is_some_and(|token| token.is("fn"));
    while let Some(token) = list.get(at) {
        if token.is(";") || (token.is(",") && !ITEMS.contains(&first)) {
            return at + 1;
        }
        if token.is("}") || token.is(")") || token.is("]") {
            return at;
        }
        if token.is("{") || token.is("(") || token.is("[") {
            at = close_of(list, at);
            if token.is("{") && !ends_with_semicolon {
                return at + 1;
            }
        }
        at += 1;
    }
    list.len()
}

fn functions(list: &[Token<'_>], running: &[usize], in_tests: impl Fn(usize) -> bool) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, pair) in list.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        if !keyword.is("fn") || name.kind != Kind::Word {
            continue;
        }
        let mut body = at + 2;
        while list
            .get(body)
            .is_some_and(|token| token.is("(") || token.is("[") || !(token.is("{") || token.is(";")))
        {
            let opens = list.get(body).is_some_and(|token| token.is("(") || token.is("["));
            body = if opens { close_of(list, body) + 1 } else { body + 1 };
        }
        if !list.get(body).is_some_and(|token| token.is("{")) {
            continue;
        }
        let Some(last) = list.get(close_of(list, body)) else {
            continue;
        };
        found.push(Function {
            name: name.text.to_owned(),
            lines: keyword.line..last.line + 1,
            is_test: in_tests(keyword.line),
            runs: running.contains(&keyword.line),
        });
    }
    found
}

/// All paths of all `use` declarations: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn uses(list: &[Token<'_>]) -> Vec<Use> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = list.get(at) {
        // `use<'a>` in a bound is no declaration.
        if token.is("use") && !list.get(at + 1).is_some_and(|token| token.is("<")) {
            let before = at.checked_sub(1).and_then(|before| list.get(before));
            let is_public = before.is_some_and(|token| token.is("pub") || token.is(")"));
            let begun = Use {
                is_public,
                ..Use::default()
            };
            at = use_tree(list, at + 1, &begun, &mut found);
        }
        at += 1;
    }
    found
}

/// Parses one branch of a `use` from `at` on, and returns the position after it.
fn use_tree(list: &[Token<'_>], mut at: usize, begun: &Use, found: &mut Vec<Use>) -> usize {
    let mut used = begun.clone();
    while let Some(token) = list.get(at) {
        match token.text {
            "{" => {
                at += 1;
                while let Some(token) = list.get(at).filter(|token| !token.is("}")) {
                    at = if token.is(",") {
                        at + 1
                    } else {
                        use_tree(list, at, &used, found)
                    };
                }
                return at + 1;
            }
            "," | ";" | "}" => break,
            ":" => {}
            "as" => {
                at += 1;
                used.name = list.get(at).map_or(String::new(), |name| name.text.to_owned());
            }
            // `a::{self}` is `a`.
            "self" if !used.path.is_empty() => {}
            text => {
                text.clone_into(&mut used.name);
                used.path.push(used.name.clone());
            }
        }
        at += 1;
    }
    found.push(used);
    at
}

fn words(list: &[Token<'_>]) -> Vec<(String, usize)> {
    let mut found: Vec<_> = list
        .iter()
        .filter(|token| matches!(token.kind, Kind::Word | Kind::Literal))
        .map(|token| (token.text.to_owned(), token.line))
        .collect();
    found.sort();
    found.dedup_by(|later, first| later.0 == first.0);
    found
}

/// Fills in the contents for the search for repeated lines. Lines of a `use`, and those without a word, have too
/// little.
fn say_what_repeats(lines: &mut [Line], list: &[Token<'_>]) {
    let mut at = 0;
    while let Some(token) = list.get(at) {
        let end = list
            .iter()
            .skip(at)
            .position(|other| other.line != token.line)
            .map_or(list.len(), |length| at + length);
        let of_line = list.get(at..end).unwrap_or_default();
        let begins_use = of_line
            .iter()
            .find(|token| !token.is("pub"))
            .is_some_and(|token| token.is("use"));
        if begins_use {
            at = item_end(list, at);
            continue;
        }
        if let Some(line) = lines
            .get_mut(token.line)
            .filter(|_| of_line.iter().any(|token| token.kind != Kind::Punctuation))
        {
            line.words = of_line.iter().filter(|token| token.kind != Kind::Punctuation).count();
            for token in of_line {
                line.exact.push_str(token.text);
                line.exact.push(' ');
                line.shape.push_str(match token.kind {
                    Kind::Word if is_keyword(token.text) => token.text,
                    Kind::Word => "a",
                    Kind::Literal => "0",
                    Kind::Lifetime => "'",
                    Kind::Punctuation => token.text,
                });
                line.shape.push(' ');
            }
        }
        at = end;
    }
}

fn is_keyword(word: &str) -> bool {
    const KEYWORDS: [&str; 36] = [
        "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "false", "fn", "for",
        "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "Self",
        "static", "struct", "super", "trait", "true", "type", "unsafe", "where", "while",
    ];
    KEYWORDS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read("host/a/src/b.rs".to_owned(), text, false)
    }

    #[test]
    fn blank_lines_comments_and_tests_are_no_code() {
        let source =
            read("//! Doc.\n\nfn a() {\n    // Why.\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n");
        assert_eq!(source.code_lines(), 3);
        assert_eq!(source.lines.iter().filter(|line| line.is_comment).count(), 2);
        assert_eq!(read("#![cfg(test)]\nfn a() {}\n").code_lines(), 0);
        assert_eq!(read("#[cfg(not(test))]\nfn a() {}\n").code_lines(), 2);
    }

    #[test]
    fn what_follows_a_test_item_is_code_again() {
        for item in [
            "use a::{b, c};",
            "counting::count();",
            "field: [u8; 2],",
            "fn a() -> [u8; 2] { [1; 2] }",
            "const A: B = B { c: 1 };",
            "struct A;",
        ] {
            assert_eq!(
                read(&format!("#[cfg(test)]\n#[allow(b)]\n{item}\nfn c() {{}}\n")).code_lines(),
                1,
                "{item}"
            );
        }
    }

    #[test]
    fn a_function_counts_from_its_keyword_to_its_last_brace() {
        let text = "#[test]\nfn one<const N: usize>(a: [u8; 2])\nwhere\n    A: B,\n{\n    '}';\n}\ntrait T {\n    fn two();\n    fn three() { fn() }\n}\n";
        let source = read(text);
        let found: Vec<_> = source
            .functions
            .iter()
            .map(|function| (function.name.as_str(), function.lines.clone(), function.runs))
            .collect();
        assert_eq!(found, [("one", 1..7, true), ("three", 9..10, false)]);
        let [one, three] = &source.functions[..] else {
            panic!("{found:?}")
        };
        assert!(one.is_test && !three.is_test);
    }

    #[test]
    fn a_use_is_written_out() {
        let source = read(
            "use a::b::{self, c::D as E, f};\npub(crate) use super::g;\n#[cfg(test)]\nuse h;\nfn i() -> impl J + use<'_> {}\n",
        );
        let found: Vec<_> = source
            .uses
            .iter()
            .map(|used| (used.path.join("::"), used.name.as_str(), used.is_public))
            .collect();
        let expected = [
            ("a::b", "b", false),
            ("a::b::c::D", "E", false),
            ("a::b::f", "f", false),
            ("super::g", "g", true),
        ];
        assert_eq!(
            found,
            expected.map(|(path, name, is_public)| (path.to_owned(), name, is_public))
        );
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_is_named() {
        let source =
            read("#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod more;\nmod product;\n");
        assert_eq!(
            source.test_modules,
            [
                TestModule::Named("tests".to_owned()),
                TestModule::At("b_tests.rs".to_owned())
            ]
        );
    }
}

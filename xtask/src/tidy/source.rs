//! A Rust file as tokens with lines, so that comments and strings never look like code.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;
use super::tree::TextFile;

/// A word, a sign, a literal or one half of a pair of brackets.
#[derive(Debug, Clone)]
pub struct Token {
    /// As written; a literal keeps its quotes.
    pub text: String,
    /// The line where it starts, from 1.
    pub line: usize,
    /// The line where it ends.
    pub end_line: usize,
    /// For an opening bracket, the place of its closing one.
    pub close: Option<usize>,
}

/// A parsed file.
#[derive(Debug)]
pub struct Source<'a> {
    /// The file.
    pub file: &'a TextFile,
    /// Its tokens in order; doc comments appear as attributes with a literal.
    pub tokens: Vec<Token>,
    tests: Vec<Part>,
}

/// Something that only tests compile.
#[derive(Debug)]
struct Part {
    lines: RangeInclusive<usize>,
    /// `mod x { .. }`
    is_module: bool,
}

/// A function with its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// The line of `fn`.
    pub line: usize,
    /// Lines from `fn` to the closing bracket that hold code: neither blank nor comment.
    pub code_lines: usize,
}

impl<'a> Source<'a> {
    /// Splits a file into tokens.
    ///
    /// # Errors
    /// A finding if this is not Rust.
    pub fn parse(file: &'a TextFile) -> Result<Self, Finding> {
        let stream = TokenStream::from_str(&file.text)
            .map_err(|error| Finding::file(&file.path, format!("is not Rust: {error}")))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let tests = test_parts(&tokens);
        Ok(Self {
            file,
            tokens,
            tests,
        })
    }

    /// Whether the whole file is a test: under `tests/` or `benches/`, or named `tests.rs`.
    #[must_use]
    pub fn is_test_file(&self) -> bool {
        self.file
            .path
            .split('/')
            .any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
    }

    /// Whether a line is compiled only for tests.
    #[must_use]
    pub fn is_test_line(&self, line: usize) -> bool {
        self.is_test_file() || self.tests.iter().any(|part| part.lines.contains(&line))
    }

    /// The number of lines outside `#[cfg(test)] mod x { .. }`.
    #[must_use]
    pub fn production_lines(&self) -> usize {
        let modules = self.tests.iter().filter(|part| part.is_module);
        let tests: BTreeSet<usize> = modules.flat_map(|part| part.lines.clone()).collect();
        self.file.text.lines().count() - tests.len()
    }

    /// The places where these tokens stand in a row.
    pub fn find<'s>(&'s self, row: &'s [&str]) -> impl Iterator<Item = usize> + 's {
        self.tokens
            .windows(row.len())
            .enumerate()
            .filter(move |(_, window)| {
                window
                    .iter()
                    .zip(row)
                    .all(|(token, text)| token.text == *text)
            })
            .map(|(at, _)| at)
    }

    /// Every function with a body, nested ones and those in macros too.
    #[must_use]
    pub fn functions(&self) -> Vec<Function<'_>> {
        let mut found = Vec::new();
        for at in self.find(&["fn"]) {
            let Some(name) = self.tokens.get(at + 1).filter(|token| is_word(&token.text)) else {
                continue;
            };
            if let Some(end) = body_end(&self.tokens, at + 2) {
                found.push(Function {
                    name: &name.text,
                    line: self.tokens[at].line,
                    code_lines: code_lines(&self.tokens[at..=end]),
                });
            }
        }
        found
    }
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    let push = |out: &mut Vec<Token>, text: String, span: proc_macro2::Span| {
        let (line, end_line) = (span.start().line, span.end().line);
        out.push(Token {
            text,
            line,
            end_line,
            close: None,
        });
    };
    for tree in stream {
        let span = tree.span();
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                let at = out.len();
                push(out, open.to_owned(), group.span_open());
                flatten(group.stream(), out);
                out[at].close = Some(out.len());
                push(out, close.to_owned(), group.span_close());
            }
            TokenTree::Ident(word) => push(out, word.to_string(), span),
            TokenTree::Punct(sign) => push(out, sign.as_char().to_string(), span),
            TokenTree::Literal(literal) => push(out, literal.to_string(), span),
        }
    }
}

/// Where the first `{ .. }` after `from` closes; `None` if a `;` comes first.
fn body_end(tokens: &[Token], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(token) = tokens.get(at) {
        // `Foo<{ N }>` or `Foo<T, { N }>` in a signature is no body.
        let text = |at: usize| tokens.get(at).map(|token| token.text.as_str());
        let before = at.checked_sub(1).and_then(text);
        let after = token.close.and_then(|close| text(close + 1));
        let is_argument =
            before == Some("<") || (before == Some(",") && matches!(after, Some("," | ">")));
        match (token.text.as_str(), token.close) {
            (";", _) | ("}", _) => return None,
            ("{", Some(close)) if !is_argument => return Some(close),
            (_, Some(close)) => at = close + 1,
            _ => at += 1,
        }
    }
    None
}

fn code_lines(tokens: &[Token]) -> usize {
    let lines = tokens.iter().flat_map(|token| token.line..=token.end_line);
    lines.collect::<BTreeSet<_>>().len()
}

fn test_parts(tokens: &[Token]) -> Vec<Part> {
    let mut parts = Vec::new();
    for at in 0..tokens.len() {
        let Some(end) = attribute_end(tokens, at) else {
            continue;
        };
        let inside: Vec<&str> = tokens[at..end]
            .iter()
            .map(|token| token.text.as_str())
            .collect();
        if !(inside.get(2) == Some(&"cfg") && inside.contains(&"test") && !inside.contains(&"not"))
        {
            continue;
        }
        let mut item = end + 1;
        while let Some(next) = attribute_end(tokens, item) {
            item = next + 1;
        }
        let Some(last) = body_end(tokens, item) else {
            continue;
        };
        let mut head = tokens[item..last].iter().map(|token| token.text.as_str());
        parts.push(Part {
            lines: tokens[at].line..=tokens[last].end_line,
            is_module: head.next() == Some("mod"),
        });
    }
    parts
}

/// If an attribute `#[..]` starts at `at`, the place of its closing bracket.
fn attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    let next = tokens.get(at + 1).filter(|next| next.text == "[")?;
    (tokens[at].text == "#").then_some(next.close).flatten()
}

/// Whether a token is a name or a keyword.
#[must_use]
pub fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! A file.\n\
        #[cfg(test)]\n\
        mod tests;\n\
        fn one<const N: usize>(a: [u8; N]) -> Foo<{ N }> {\n\
        \x20   // a comment\n\
        \n\
        \x20   let text = \"\n\
        \x20       fn two() {}\n\
        \x20   \";\n\
        }\n\
        trait T { fn none(&self); fn three() {} }\n\
        type F = fn(u8) -> u8;\n\
        #[cfg(test)]\n\
        #[allow(x)]\n\
        mod inline {\n\
        \x20   fn four() { sleep(1) }\n\
        }\n\
        #[cfg(not(test))]\n\
        mod other { fn five() {} }\n";

    #[test]
    fn functions_are_found_with_their_code_lines() {
        let file = TextFile::new("src/a.rs", TEXT);
        let source = Source::parse(&file).expect("Rust");
        let found: Vec<_> = source
            .functions()
            .iter()
            .map(|f| (f.name, f.line, f.code_lines))
            .map(|(name, line, lines)| (name.to_owned(), line, lines))
            .collect();
        let one = |name: &str, line, lines| (name.to_owned(), line, lines);
        assert_eq!(
            found,
            [
                one("one", 4, 5),
                one("three", 11, 1),
                one("four", 16, 1),
                one("five", 19, 1)
            ]
        );
    }

    #[test]
    fn a_body_starts_after_the_bounds() {
        let text = "fn a<T>() -> Foo<T, { N }>\nwhere\n    T: X,\n{\n    b();\n}\nfn c() {}\n";
        let file = TextFile::new("a.rs", text);
        let source = Source::parse(&file).expect("Rust");
        let lines: Vec<usize> = source.functions().iter().map(|f| f.code_lines).collect();
        assert_eq!(lines, [6, 1]);
    }

    #[test]
    fn test_parts_are_known() {
        let file = TextFile::new("src/a.rs", TEXT);
        let source = Source::parse(&file).expect("Rust");
        let lines: Vec<usize> = (1..=19).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(lines, [13, 14, 15, 16, 17]);
        assert_eq!(source.production_lines(), 14);
        let file = TextFile::new("src/a/tests.rs", TEXT);
        assert!(Source::parse(&file).expect("Rust").is_test_line(1));
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        let file = TextFile::new(
            "a.rs",
            "// unsafe\nfn f() { \"unsafe\"; r#\"unsafe\"#; 'u'; }",
        );
        let source = Source::parse(&file).expect("Rust");
        assert_eq!(source.find(&["unsafe"]).count(), 0);
        assert_eq!(source.find(&["fn", "f", "(", ")"]).count(), 1);
    }

    #[test]
    fn a_broken_file_is_a_finding() {
        let file = TextFile::new("a.rs", "fn f( {");
        assert_eq!(Source::parse(&file).expect_err("broken").path, "a.rs");
    }
}

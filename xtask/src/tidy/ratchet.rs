//! The budgets with their exceptions, which may only shrink.
//!
//! An exception is a line `path kind lines` in the ratchet file, with `file` or `function` as its
//! kind. It must be exactly what the file needs: one that is too large or not needed any more is a
//! finding as well, so that nothing grows back unseen.

use std::collections::BTreeMap;

use super::{Finding, RATCHET};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Budget {
    /// Lines of a file outside its tests.
    File,
    /// All lines of a file of tests.
    TestFile,
    /// Lines of code of the longest function.
    Function,
}

impl Budget {
    /// What is wanted. More needs an exception.
    #[must_use]
    pub fn wanted(self) -> usize {
        match self {
            Self::File => 400,
            Self::TestFile => 800,
            Self::Function => 70,
        }
    }

    /// What no exception allows to exceed.
    #[must_use]
    pub fn hard(self) -> usize {
        match self {
            Self::File | Self::TestFile => 800,
            Self::Function => 140,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::File | Self::TestFile => "file",
            Self::Function => "function",
        }
    }
}

/// A file against one budget.
#[derive(Debug, Clone)]
pub struct Measure {
    /// The file.
    pub path: String,
    /// The budget.
    pub budget: Budget,
    /// How many lines there are.
    pub lines: usize,
    /// Where they start; 0 for the whole file.
    pub at: usize,
    /// What they are of, for the message.
    pub of: String,
}

/// Compares the measures with the budgets and the exceptions in the ratchet file.
#[must_use]
pub fn check(measures: &[Measure], ratchet: &str) -> Vec<Finding> {
    let (mut exceptions, mut findings) = read(ratchet);
    for measure in measures {
        let (wanted, hard) = (measure.budget.wanted(), measure.budget.hard());
        let key = (measure.path.clone(), measure.budget.word());
        let exception = exceptions.remove(&key);
        let found = |what| Finding::at(&measure.path, measure.at, what);
        let told = format!("{} lines {}", measure.lines, measure.of);
        let told = told.trim_end();
        match exception {
            _ if measure.lines > hard => {
                findings.push(found(format!(
                    "{told}, at most {hard} even with an exception"
                )));
            }
            None if measure.lines > wanted => {
                findings.push(found(format!("{told}, at most {wanted}; split it")));
            }
            Some((_, allowed)) if measure.lines > allowed && measure.lines > wanted => {
                findings.push(found(format!(
                    "{told}, its exception of {allowed} may not grow"
                )));
            }
            Some((line, _)) if measure.lines <= wanted => {
                let what = format!("{} needs no exception any more; remove it", measure.path);
                findings.push(Finding::at(RATCHET, line, what));
            }
            Some((line, allowed)) if allowed > measure.lines => {
                let what = format!("{} has {told}; lower {allowed} to it", measure.path);
                findings.push(Finding::at(RATCHET, line, what));
            }
            _ => {}
        }
    }
    for ((path, kind), (line, _)) in exceptions {
        let what = format!("there is no {kind} to measure in {path}; remove the exception");
        findings.push(Finding::at(RATCHET, line, what));
    }
    findings
}

type Exceptions = BTreeMap<(String, &'static str), (usize, usize)>;

fn read(ratchet: &str) -> (Exceptions, Vec<Finding>) {
    let mut exceptions = Exceptions::new();
    let mut findings = Vec::new();
    for (index, text) in ratchet.lines().enumerate() {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = match words.as_slice() {
            [path, "file", lines] => Some((*path, "file", lines.parse().ok())),
            [path, "function", lines] => Some((*path, "function", lines.parse().ok())),
            _ => None,
        };
        let fresh = match parsed {
            Some((path, kind, Some(lines))) => exceptions
                .insert((path.to_owned(), kind), (index + 1, lines))
                .is_none(),
            _ => false,
        };
        if !fresh {
            let what = format!("`{text}` is not one `path file|function lines` for its path");
            findings.push(Finding::at(RATCHET, index + 1, what));
        }
    }
    (exceptions, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(budget: Budget, lines: usize, ratchet: &str) -> Vec<String> {
        let measure = Measure {
            path: "a.rs".to_owned(),
            budget,
            lines,
            at: 7,
            of: "in `f`".to_owned(),
        };
        check(&[measure], ratchet)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn refused(budget: Budget, lines: usize, ratchet: &str, what: &str) {
        let told = told(budget, lines, ratchet);
        assert!(
            told.len() == 1 && told[0].contains(what),
            "{what}: {told:?}"
        );
    }

    #[test]
    fn within_the_budget_nothing_is_said() {
        for (budget, lines) in [
            (Budget::File, 400),
            (Budget::TestFile, 800),
            (Budget::Function, 70),
        ] {
            assert_eq!(told(budget, lines, "# none\n\n"), Vec::<String>::new());
            refused(budget, lines + 1, "", "a.rs:7: ");
        }
    }

    #[test]
    fn an_exception_is_exact() {
        assert_eq!(
            told(Budget::File, 500, "a.rs file 500\n"),
            Vec::<String>::new()
        );
        assert_eq!(
            told(Budget::Function, 71, "a.rs function 71\n"),
            Vec::<String>::new()
        );
        refused(Budget::File, 501, "a.rs file 500\n", "may not grow");
        refused(
            Budget::File,
            499,
            "a.rs file 500\n",
            "txt:1: a.rs has 499 lines in `f`; lower",
        );
        refused(Budget::File, 400, "a.rs file 500\n", "needs no exception");
    }

    #[test]
    fn nothing_lifts_the_hard_limit() {
        refused(Budget::File, 801, "a.rs file 801\n", "even with");
        refused(Budget::TestFile, 801, "a.rs file 801\n", "even with");
        refused(Budget::Function, 141, "a.rs function 141\n", "even with");
    }

    #[test]
    fn stale_and_broken_lines_are_found() {
        refused(
            Budget::File,
            10,
            "gone.rs file 500\n",
            "no file to measure in gone.rs",
        );
        refused(
            Budget::File,
            10,
            "a.rs function 90\n",
            "no function to measure",
        );
        refused(Budget::File, 10, "a.rs files 90\n", "is not one");
        refused(Budget::File, 10, "a.rs file many\n", "is not one");
        refused(
            Budget::File,
            500,
            "a.rs file 500\na.rs file 500\n",
            "is not one",
        );
    }
}

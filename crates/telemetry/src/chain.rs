//! Prints an error with everything that caused it, each part once.

use std::error::Error;

/// The deepest chain that is printed. A longer one is a cycle or noise.
const DEPTH_MAX: usize = 32;

/// The message of `error` and of each of its sources, joined by `: `.
///
/// Our own errors never repeat their source in their message. Some from outside do; a source whose
/// text already ends what stands to its left is left out, so that no sentence is read twice.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    for _ in 0..DEPTH_MAX {
        let Some(cause) = next else { return text };
        let part = cause.to_string();
        if !part.is_empty() && !text.ends_with(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: String,
        source: Option<Box<Link>>,
    }

    fn chain(texts: &[&str]) -> Link {
        let mut link: Option<Box<Link>> = None;
        for text in texts.iter().rev() {
            link = Some(Box::new(Link {
                text: (*text).to_owned(),
                source: link,
            }));
        }
        *link.expect("a chain has a link")
    }

    #[test]
    fn prints_every_source_in_order() {
        let error = chain(&[
            "cannot start the agent",
            "cannot bind the port",
            "address in use",
        ]);
        assert_eq!(
            error_chain(&error),
            "cannot start the agent: cannot bind the port: address in use"
        );
    }

    #[test]
    fn prints_an_error_without_source_as_it_is() {
        assert_eq!(error_chain(&chain(&["out of space"])), "out of space");
    }

    #[test]
    fn leaves_out_what_is_already_said() {
        let error = chain(&["cannot read x: not found", "not found", "os error 2"]);
        assert_eq!(error_chain(&error), "cannot read x: not found: os error 2");
    }

    #[test]
    fn ends_on_a_chain_without_end() {
        let texts: Vec<String> = (0..1000).map(|n| format!("<{n}>")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let text = error_chain(&chain(&texts));
        assert!(text.ends_with("<32>"), "{text}");
    }
}

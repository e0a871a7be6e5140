//! Suites of the log.

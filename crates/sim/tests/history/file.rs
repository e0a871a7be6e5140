//! Histories that are kept come back as they were.

use std::io::Cursor;

use larder_sim::history::{
    History, HistoryError, Interval, Kept, LINE_BYTES_MAX, Losses, read_history, write_history,
};

use super::register::small;

fn written(kept: &Kept) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_history(kept, &mut bytes).expect("memory takes it");
    bytes
}

#[test]
fn a_history_comes_back() {
    for seed in 0..50 {
        let made = small(seed);
        let mut operations = made.operations;
        operations[0].key = "\u{1}\"ä".repeat(1024);
        let kept = Kept {
            note: format!("seed {seed}"),
            losses: made.losses,
            history: History::new(operations).expect("it fits"),
        };
        let read = read_history(Cursor::new(written(&kept)), 100).expect("what was written");
        assert_eq!(read, kept);
        let few = read_history(Cursor::new(written(&kept)), 2);
        assert!(matches!(few, Err(HistoryError::Full { operations_max: 2 })));
    }
}

/// Files are kept for years, so their words may not change.
#[test]
fn the_lines_of_a_file_are_these() {
    let text = concat!(
        "{\"history\":1,\"note\":\"n\",\"losses\":{\"during\":[{\"from_ns\":1,\"to_ns\":2}]}}\n",
        "{\"client\":1,\"key\":\"k\",\"call\":{\"put\":7},\"invoked_ns\":1,\"ended_ns\":2,",
        "\"outcome\":\"done\"}\n",
        "{\"client\":1,\"key\":\"k\",\"call\":\"get\",\"invoked_ns\":3,\"ended_ns\":4,",
        "\"outcome\":{\"got\":7}}\n",
        "{\"client\":2,\"key\":\"k\",\"call\":\"remove\",\"invoked_ns\":3,\"ended_ns\":null,",
        "\"outcome\":\"unknown\"}\n",
    );
    let kept = read_history(Cursor::new(text), 9).expect("it is one");
    let from_to = Interval {
        from_ns: 1,
        to_ns: 2,
    };
    assert_eq!(kept.losses, Losses::During(vec![from_to]));
    assert_eq!(String::from_utf8(written(&kept)).expect("text"), text);
}

#[test]
fn what_is_no_history_is_refused() {
    let header = "{\"history\":1,\"note\":\"\",\"losses\":\"never\"}\n";
    let read = |text: String| read_history(Cursor::new(text), 9);
    assert!(matches!(
        read(String::new()),
        Err(HistoryError::Version { version: 0 })
    ));
    let newer = header.replace(":1,", ":2,");
    assert!(matches!(
        read(newer),
        Err(HistoryError::Version { version: 2 })
    ));
    let bad = read(format!("{header}{{}}\n"));
    assert!(matches!(bad, Err(HistoryError::Line { line: 2, .. })));
    let long = " ".repeat(usize::try_from(LINE_BYTES_MAX).expect("small") + 1);
    let long = read(format!("{header}{long}\n"));
    assert!(matches!(long, Err(HistoryError::LongLine { line: 2, .. })));
}

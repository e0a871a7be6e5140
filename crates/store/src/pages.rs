//! A sorted set of 64-bit words in short pages.
//!
//! For indexes with millions of small entries: 8 bytes each and up to as much again in slack, a
//! copy is a few `memcpy`s, and no step moves more than one page and the list of pages.

/// The most words of a page: 4 KiB, which a processor moves in less than 100 ns.
const PAGE: usize = 512;
/// A page with fewer is merged with its neighbour if both fit well into one, so that there are
/// never many more pages than words ÷ 128.
const SPARSE: usize = 128;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct SortedPages {
    /// Each sorted and not empty; each page's words lie above those of the page before.
    pages: Vec<Vec<u64>>,
    /// The first word of each page.
    firsts: Vec<u64>,
    len: usize,
}

impl SortedPages {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a word; whether it was not there.
    pub(crate) fn insert(&mut self, word: u64) -> bool {
        let Some(at) = self.page_of(word) else {
            match self.pages.first_mut().filter(|page| page.len() < PAGE) {
                Some(page) => {
                    page.insert(0, word);
                    self.firsts[0] = word;
                }
                None => self.add_page(0, vec![word]),
            }
            self.len += 1;
            return true;
        };
        let page = &mut self.pages[at];
        let Err(place) = page.binary_search(&word) else {
            return false;
        };
        self.len += 1;
        if page.len() < PAGE {
            page.insert(place, word);
        } else if place == PAGE {
            // Words often come in order: full pages stay full.
            self.add_page(at + 1, vec![word]);
        } else {
            let mut upper = page.split_off(PAGE / 2);
            if place <= PAGE / 2 {
                page.insert(place, word);
            } else {
                upper.insert(place - PAGE / 2, word);
            }
            self.add_page(at + 1, upper);
        }
        true
    }

    /// Takes a word out; whether it was there.
    pub(crate) fn remove(&mut self, word: u64) -> bool {
        let Some(at) = self.page_of(word) else {
            return false;
        };
        let page = &mut self.pages[at];
        let Ok(place) = page.binary_search(&word) else {
            return false;
        };
        page.remove(place);
        self.len -= 1;
        match page.first() {
            None => {
                self.pages.remove(at);
                self.firsts.remove(at);
            }
            Some(first) => {
                self.firsts[at] = *first;
                if page.len() < SPARSE {
                    self.merge(at);
                }
            }
        }
        true
    }

    /// The highest word that is at most `word`.
    pub(crate) fn at_or_below(&self, word: u64) -> Option<u64> {
        let page = &self.pages[self.page_of(word)?];
        let place = page.partition_point(|held| *held <= word);
        page.get(place.checked_sub(1)?).copied()
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.pages.last()?.last().copied()
    }

    /// Each word from `word` on, in order.
    pub(crate) fn from(&self, word: u64) -> impl Iterator<Item = u64> + '_ {
        let at = self.page_of(word).unwrap_or(0);
        let (first, rest) = match self.pages.get(at..) {
            Some([first, rest @ ..]) => (first.as_slice(), rest),
            _ => (&[][..], &[][..]),
        };
        let place = first.partition_point(|held| *held < word);
        let rest = rest.iter().flatten();
        first[place..].iter().chain(rest).copied()
    }

    /// Each word from the highest on.
    pub(crate) fn descending(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages
            .iter()
            .rev()
            .flat_map(|page| page.iter().rev())
            .copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.iter().flatten().copied()
    }

    /// The page that holds the word, if any does.
    fn page_of(&self, word: u64) -> Option<usize> {
        self.firsts
            .partition_point(|first| *first <= word)
            .checked_sub(1)
    }

    fn add_page(&mut self, at: usize, page: Vec<u64>) {
        if let Some(first) = page.first() {
            self.firsts.insert(at, *first);
            self.pages.insert(at, page);
        }
    }

    fn merge(&mut self, at: usize) {
        let fits = |a: &Vec<u64>, b: &Vec<u64>| a.len() + b.len() <= PAGE - SPARSE;
        let lower = match (at.checked_sub(1), self.pages.get(at + 1)) {
            (_, Some(next)) if fits(&self.pages[at], next) => at,
            (Some(before), _) if fits(&self.pages[before], &self.pages[at]) => before,
            _ => return,
        };
        let mut upper = self.pages.remove(lower + 1);
        self.firsts.remove(lower + 1);
        self.pages[lower].append(&mut upper);
    }
}

impl PartialEq for SortedPages {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for SortedPages {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Remove(u64),
        Run { start: u64, count: u64, adds: bool },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let word = || prop_oneof![0..3_000u64, Just(u64::MAX), Just(0)];
        let step = prop_oneof![
            3 => word().prop_map(Step::Insert),
            3 => word().prop_map(Step::Remove),
            2 => (0..3_000u64, 1..700u64, any::<bool>())
                .prop_map(|(start, count, adds)| Step::Run { start, count, adds }),
        ];
        prop::collection::vec(step, 1..60)
    }

    fn holds_its_shape(set: &SortedPages) {
        assert_eq!(set.pages.len(), set.firsts.len());
        assert_eq!(set.len, set.pages.iter().map(Vec::len).sum::<usize>());
        for (page, first) in set.pages.iter().zip(&set.firsts) {
            assert_eq!(page.first(), Some(first));
            assert!(page.len() <= PAGE);
        }
        assert!(
            set.pages.len() <= 2 + 2 * set.len.div_ceil(SPARSE),
            "pages are merged"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 128,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn does_what_a_tree_set_does(steps in steps(), probe in 0..3_100u64) {
            let (mut set, mut tree) = (SortedPages::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(word) => prop_assert_eq!(set.insert(word), tree.insert(word)),
                    Step::Remove(word) => prop_assert_eq!(set.remove(word), tree.remove(&word)),
                    Step::Run { start, count, adds } => {
                        for word in start..start + count {
                            if adds {
                                prop_assert_eq!(set.insert(word), tree.insert(word));
                            } else {
                                prop_assert_eq!(set.remove(word), tree.remove(&word));
                            }
                        }
                    }
                }
                holds_its_shape(&set);
                prop_assert_eq!(set.len(), tree.len());
                prop_assert_eq!(set.last(), tree.last().copied());
                prop_assert_eq!(set.at_or_below(probe), tree.range(..=probe).next_back().copied());
                prop_assert!(set.from(probe).eq(tree.range(probe..).copied()));
            }
            prop_assert!(set.iter().eq(tree.iter().copied()));
            prop_assert!(set.descending().eq(tree.iter().rev().copied()));
            for word in tree {
                prop_assert!(set.remove(word));
            }
            prop_assert!(set.len() == 0 && set == SortedPages::default());
        }
    }
}

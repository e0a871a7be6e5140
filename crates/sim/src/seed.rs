//! One number from which everything that is left to chance follows.

/// The root of a run's chance. Each part of a world draws from a stream of its own name, so that a
/// part that draws once more moves no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

/// Numbers that look random and follow from a seed and a name. Its algorithm (SplitMix64) stands
/// here and not in a library, so that a kept seed means the same for ever.
#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

impl Seed {
    /// The stream of this name.
    #[must_use]
    pub fn stream(self, name: &str) -> Stream {
        self.child(name).into_stream()
    }

    /// The stream of this name and number.
    #[must_use]
    pub fn stream_of(self, name: &str, number: u64) -> Stream {
        let mut state = self.child(name).0 ^ mix(number.wrapping_add(1));
        state = mix(state);
        Stream { state }
    }

    /// A seed of its own for a part that has streams itself.
    #[must_use]
    pub fn child(self, name: &str) -> Self {
        let fold = |state: u64, byte: &u8| mix(state ^ u64::from(*byte));
        Self(name.as_bytes().iter().fold(mix(self.0), fold))
    }

    fn into_stream(self) -> Stream {
        Stream { state: self.0 }
    }
}

/// The finalizer of SplitMix64 after one step.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        let drawn = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        drawn
    }

    /// A number below `end`; 0 if that is 0. Multiplication instead of remainder, so that high
    /// numbers are not rarer by more than one in 2^64 ÷ `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from `from` to `to`, both included; `from` if `to` is lower.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        match to.saturating_sub(from).checked_add(1) {
            Some(end) => from + self.below(end),
            None => self.draw(),
        }
    }

    /// Whether something of this chance happens.
    pub fn happens(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// A place in a list of this length; 0 for an empty one.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let place = self.place(from.len());
        from.get(place)
    }

    /// Puts a list into any order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            let place = self.place(end + 1);
            list.swap(end, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_follow_from_seed_and_name() {
        let drawn = |mut stream: Stream| [stream.draw(), stream.draw(), stream.draw()];
        let seed = Seed(7);
        assert_eq!(drawn(seed.stream("net")), drawn(seed.stream("net")));
        let all = [
            drawn(seed.stream("net")),
            drawn(seed.stream("disk")),
            drawn(Seed(8).stream("net")),
            drawn(seed.stream_of("net", 0)),
            drawn(seed.stream_of("net", 1)),
            drawn(seed.child("net").stream("net")),
        ];
        let mut numbers: Vec<u64> = all.into_iter().flatten().collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all.len() * 3);
    }

    /// Kept seeds must mean the same in every version: these numbers may not change.
    #[test]
    fn a_kept_seed_means_the_same_for_ever() {
        let mut stream = Seed(42).stream("net");
        let drawn: Vec<u64> = (0..3).map(|_| stream.below(1_000_000)).collect();
        assert_eq!(drawn, [327_770, 142_494, 820_785]);
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_them() {
        let mut stream = Seed(1).stream("bounds");
        let mut counts = [0_u32; 5];
        for _ in 0..1000 {
            counts[stream.place(5)] += 1;
            assert!((3..=4).contains(&stream.between(3, 4)));
        }
        assert!(counts.iter().all(|count| *count > 120), "{counts:?}");
        assert_eq!((stream.below(0), stream.between(9, 3)), (0, 9));
        assert_eq!(stream.pick::<u8>(&[]), None);
        assert!(!stream.happens(0) && stream.happens(1000));
        let mut list: Vec<u32> = (0..50).collect();
        stream.shuffle(&mut list);
        assert!(!list.is_sorted());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    }
}

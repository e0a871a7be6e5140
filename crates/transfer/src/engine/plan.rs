//! From transfers to slices: what lies together goes together, and what is large is cut. Pure.
//!
//! Only transfers that follow each other in the list are joined, and only if nothing tells them
//! apart but their place: a slice has one direction and one class, tenant and deadline, so that a
//! background neighbour cannot ride on a foreground transfer, nor hold it up. Lists are not sorted:
//! engines name the blocks of a run in order, and sorting would cost everybody else.

use super::class::Class;

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the peer's buffer to the own one.
    Read,
    /// From the own buffer to the peer's.
    Write,
}

/// A byte of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer's registration.
    pub registration: u64,
    /// From its start, in bytes.
    pub offset_bytes: u64,
}

impl Place {
    /// So many bytes further.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self {
            registration: self.registration,
            offset_bytes: self.offset_bytes.saturating_add(bytes),
        }
    }
}

/// What tells transfers apart that share a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos {
    /// Class of service.
    pub class: Class,
    /// Who pays, as the owner of the queue numbers tenants.
    pub tenant: u32,
    /// When nobody wants it any more, in ns.
    pub deadline_ns: u64,
}

/// One contiguous range of one buffer here, and one of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where bytes go.
    pub direction: Direction,
    /// The own buffer.
    pub local: Place,
    /// The peer's buffer.
    pub remote: Place,
    /// How many; at least 1.
    pub bytes: u64,
    /// How urgent, and whose.
    pub qos: Qos,
}

impl Transfer {
    /// Whether `next` goes on where this one ends, and may go with it.
    fn is_followed_by(&self, next: &Self) -> bool {
        next.direction == self.direction
            && next.qos == self.qos
            && next.local == self.local.plus(self.bytes)
            && next.remote == self.remote.plus(self.bytes)
    }
}

/// What goes over a rail at once: a part of a transfer, or of several that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first transfer that has bytes in it, by its number in the list.
    pub first: u32,
    /// How many transfers have.
    pub count: u32,
    /// Where bytes go.
    pub direction: Direction,
    /// The own buffer.
    pub local: Place,
    /// The peer's buffer.
    pub remote: Place,
    /// How many.
    pub bytes: u64,
}

/// How transfers are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The size of a slice, in bytes; at least 1. The last one may be a quarter larger, so that no
    /// crumb is left.
    pub slice_bytes: u64,
    /// The most transfers that go together.
    pub transfers_max: u32,
}

/// Cuts `transfers` into slices, appended to `slices`, in order. `until_edge` tells how many bytes
/// there are from two places, the own and the peer's, to the end of the region that ends first: the
/// memory behind it is reached in another way. At least 1.
///
/// A list that was planned before costs no allocation if `slices` is used again.
pub fn plan(
    transfers: &[Transfer],
    cut: Cut,
    until_edge: impl Fn(Place, Place) -> u64,
    slices: &mut Vec<Slice>,
) {
    let mut at = 0;
    while at < transfers.len() {
        let run = run_from(transfers, at, cut.transfers_max);
        cut_run(transfers, at..at + run, cut, &until_edge, slices);
        at += run;
    }
}

/// How many transfers from `at` on lie together.
fn run_from(transfers: &[Transfer], at: usize, transfers_max: u32) -> usize {
    let most = usize::try_from(transfers_max.max(1)).unwrap_or(usize::MAX);
    let pairs = transfers[at..].windows(2).take(most - 1);
    1 + pairs
        .take_while(|pair| pair[0].is_followed_by(&pair[1]))
        .count()
}

fn cut_run(
    transfers: &[Transfer],
    run: std::ops::Range<usize>,
    cut: Cut,
    until_edge: &impl Fn(Place, Place) -> u64,
    slices: &mut Vec<Slice>,
) {
    let Some(head) = transfers.get(run.start) else {
        return;
    };
    let total: u64 = transfers[run.clone()].iter().map(|one| one.bytes).sum();
    let slice_bytes = cut.slice_bytes.max(1);
    let mut done = 0;
    // The transfer that holds byte `done` of the run, and where it begins.
    let (mut first, mut begins) = (run.start, 0);
    while done < total {
        let (local, remote) = (head.local.plus(done), head.remote.plus(done));
        let edge = until_edge(local, remote).max(1);
        let left = (total - done).min(edge);
        let bytes = if left <= slice_bytes + slice_bytes / 4 {
            left
        } else {
            slice_bytes
        };
        let end = done + bytes;
        while begins + transfers[first].bytes <= done {
            begins += transfers[first].bytes;
            first += 1;
        }
        let (mut last, mut ends) = (first, begins + transfers[first].bytes);
        while ends < end {
            last += 1;
            ends += transfers[last].bytes;
        }
        slices.push(Slice {
            first: number(first),
            count: number(last - first + 1),
            direction: head.direction,
            local,
            remote,
            bytes,
        });
        done = end;
    }
}

/// Lists are shorter than that.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QOS: Qos = Qos {
        class: Class::Foreground,
        tenant: 1,
        deadline_ns: 9,
    };
    const CUT: Cut = Cut {
        slice_bytes: 100,
        transfers_max: 64,
    };

    fn write(local: u64, remote: u64, bytes: u64) -> Transfer {
        let place = |offset_bytes| Place {
            registration: 1,
            offset_bytes,
        };
        Transfer {
            direction: Direction::Write,
            local: place(local),
            remote: place(remote),
            bytes,
            qos: QOS,
        }
    }

    fn sizes(
        transfers: &[Transfer],
        until_edge: impl Fn(Place, Place) -> u64,
    ) -> Vec<(u32, u32, u64)> {
        let mut slices = Vec::new();
        plan(transfers, CUT, until_edge, &mut slices);
        let size = |slice: &Slice| (slice.first, slice.count, slice.bytes);
        slices.iter().map(size).collect()
    }

    const fn far(_: Place, _: Place) -> u64 {
        u64::MAX
    }

    #[test]
    fn what_lies_together_goes_together() {
        let list = [write(0, 500, 40), write(40, 540, 40), write(80, 700, 40)];
        assert_eq!(sizes(&list, far), [(0, 2, 80), (2, 1, 40)]);
    }

    #[test]
    fn what_is_large_is_cut_without_a_crumb() {
        assert_eq!(sizes(&[write(0, 0, 125)], far), [(0, 1, 125)]);
        assert_eq!(sizes(&[write(0, 0, 126)], far), [(0, 1, 100), (0, 1, 26)]);
        assert_eq!(sizes(&[write(0, 0, 220)], far), [(0, 1, 100), (0, 1, 120)]);
    }

    #[test]
    fn no_slice_crosses_an_edge() {
        let left = |place: Place| 64 - place.offset_bytes % 64;
        let edge = |local, remote| left(local).min(left(remote));
        let cuts = sizes(&[write(32, 0, 100)], edge);
        assert_eq!(cuts, [(0, 1, 32), (0, 1, 32), (0, 1, 32), (0, 1, 4)]);
    }

    #[test]
    fn nothing_goes_with_another_class_tenant_or_deadline() {
        let apart = [
            Qos {
                class: Class::Prefetch,
                ..QOS
            },
            Qos { tenant: 2, ..QOS },
            Qos {
                deadline_ns: 10,
                ..QOS
            },
        ];
        for qos in apart {
            let other = Transfer {
                qos,
                ..write(10, 10, 10)
            };
            assert_eq!(sizes(&[write(0, 0, 10), other], far).len(), 2, "{qos:?}");
        }
        let back = Transfer {
            direction: Direction::Read,
            ..write(10, 10, 10)
        };
        assert_eq!(sizes(&[write(0, 0, 10), back], far).len(), 2);
    }

    #[test]
    fn an_end_of_the_address_space_is_no_neighbour_of_itself() {
        let list = [write(u64::MAX, 0, 1), write(u64::MAX, 1, 1)];
        // The sum saturates; that both lie within their buffers is checked before.
        assert_eq!(sizes(&list, far).iter().map(|cut| cut.2).sum::<u64>(), 2);
    }

    proptest! {
        /// Each byte of each transfer is in one slice, at its place, and slices are no larger than
        /// they may be.
        #[test]
        fn every_byte_goes_once(
            list in prop::collection::vec(
                (1_u64..400, prop::bool::ANY, 0_u64..3, prop::bool::ANY), 0..40),
            slice_bytes in 1_u64..300,
            edge in 1_u64..500,
            transfers_max in 1_u32..8,
        ) {
            let (mut local, mut remote) = (0, 0);
            let mut transfers = Vec::new();
            for (bytes, is_apart, tenant, is_read) in list {
                if is_apart {
                    local += 1_000;
                    remote += 3_000;
                }
                let direction = if is_read { Direction::Read } else { Direction::Write };
                let qos = Qos { tenant: tenant as u32, ..QOS };
                transfers.push(Transfer { direction, qos, ..write(local, remote, bytes) });
                local += bytes;
                remote += bytes;
            }
            let cut = Cut { slice_bytes, transfers_max };
            let mut slices = Vec::new();
            plan(&transfers, cut, |place, _| edge - place.offset_bytes % edge, &mut slices);
            let mut seen = vec![0_u64; transfers.len()];
            for slice in &slices {
                prop_assert!(slice.bytes >= 1 && slice.bytes <= slice_bytes + slice_bytes / 4);
                prop_assert!(slice.local.offset_bytes / edge
                    == (slice.local.offset_bytes + slice.bytes - 1) / edge);
                prop_assert!(slice.count >= 1 && slice.count <= transfers_max);
                let end = slice.local.offset_bytes + slice.bytes;
                let of = slice.first as usize..(slice.first + slice.count) as usize;
                for at in of.clone() {
                    let one = &transfers[at];
                    let qos = transfers[of.start].qos;
                    prop_assert_eq!((one.direction, one.qos), (slice.direction, qos));
                    let from = one.local.offset_bytes.max(slice.local.offset_bytes);
                    let to = (one.local.offset_bytes + one.bytes).min(end);
                    prop_assert!(from < to, "each has bytes in it");
                    seen[at] += to - from;
                    // As far from the remote start as from the local one.
                    let of_slice = slice.remote.offset_bytes + (from - slice.local.offset_bytes);
                    let of_one = one.remote.offset_bytes + (from - one.local.offset_bytes);
                    prop_assert_eq!(of_slice, of_one);
                }
            }
            let whole: Vec<u64> = transfers.iter().map(|one| one.bytes).collect();
            prop_assert_eq!(seen, whole);
        }
    }
}

//! Soft state beside objects: a value per place in a tenant's table.

use crate::objects::ObjectId;

/// Places per chunk.
const CHUNK: usize = 1024;

/// An array by [`ObjectId`] that grows by whole chunks, so that no growth moves what is there.
#[derive(Clone, Debug, Default)]
pub struct Slots<T> {
    chunks: Vec<Option<Box<[T]>>>,
}

impl<T: Clone + Default> Slots<T> {
    /// The value at this place; `None` if its chunk was never written.
    #[must_use]
    pub fn get(&self, id: ObjectId) -> Option<&T> {
        let (chunk, at) = place(id);
        self.chunks.get(chunk)?.as_ref()?.get(at)
    }

    /// The value at this place, to be changed; the default if none was set.
    pub fn entry(&mut self, id: ObjectId) -> &mut T {
        let (chunk, at) = place(id);
        if self.chunks.len() <= chunk {
            // The list of chunks moves when it grows: 16 bytes for each 1,024 objects.
            self.chunks.resize(chunk + 1, None);
        }
        let values = self.chunks[chunk].get_or_insert_with(|| vec![T::default(); CHUNK].into());
        &mut values[at]
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.chunks.clear();
    }
}

const fn place(id: ObjectId) -> (usize, usize) {
    (id.0 as usize / CHUNK, id.0 as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_where_they_were_set_and_nowhere_else() {
        let mut slots = Slots::<u8>::default();
        *slots.entry(ObjectId(5_000)) = 7;
        assert_eq!(slots.get(ObjectId(5_000)), Some(&7));
        assert_eq!(slots.get(ObjectId(5_001)), Some(&0));
        assert_eq!(slots.get(ObjectId(0)), None);
        slots.clear();
        assert_eq!(slots.get(ObjectId(5_000)), None);
    }
}

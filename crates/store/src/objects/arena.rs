//! Places of one type, in chunks: growing moves nothing that is there.

/// Given-back numbers per chunk.
const FREE_CHUNK: usize = 4096;

/// Values by number; a number that was given back is given again.
#[derive(Clone, Debug)]
pub(super) struct Arena<T> {
    chunks: Vec<Vec<T>>,
    /// Numbers that were given back, in chunks for the same reason.
    free: Vec<Vec<u32>>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Arena<T> {
    /// Places per chunk: none is much larger than 512 KiB, as the last one moves when it grows.
    const CHUNK: usize = if size_of::<T>() <= 128 { 4096 } else { 512 };

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.chunks
            .get(at as usize / Self::CHUNK)?
            .get(at as usize % Self::CHUNK)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.chunks
            .get_mut(at as usize / Self::CHUNK)?
            .get_mut(at as usize % Self::CHUNK)
    }

    /// Puts a value into a free place, or into a new one.
    pub(super) fn add(&mut self, value: T) -> u32 {
        if let Some(at) = self.free_place()
            && let Some(place) = self.get_mut(at)
        {
            *place = value;
            return at;
        }
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.len() == Self::CHUNK)
        {
            self.chunks.push(Vec::new());
        }
        let before = (self.chunks.len() - 1) * Self::CHUNK;
        let chunk = &mut self.chunks[before / Self::CHUNK];
        chunk.push(value);
        // Memory ends long before the numbers: 2^32 places of the smallest type take 120 GB.
        u32::try_from(before + chunk.len() - 1).unwrap_or(u32::MAX)
    }

    /// Gives a place back; its value is to be replaced by the caller if it holds memory.
    pub(super) fn give_back(&mut self, at: u32) {
        match self.free.last_mut().filter(|free| free.len() < FREE_CHUNK) {
            Some(free) => free.push(at),
            None => self.free.push(vec![at]),
        }
    }

    /// Frees up to `chunks_max` chunks of an arena in which no place is used; how many.
    pub(super) fn trim(&mut self, chunks_max: usize) -> usize {
        self.free.clear();
        let kept = self.chunks.len().saturating_sub(chunks_max);
        let freed = self.chunks.len() - kept;
        self.chunks.truncate(kept);
        if self.chunks.is_empty() {
            *self = Self::default();
        }
        freed
    }

    pub(super) const fn is_unused(&self) -> bool {
        self.chunks.is_empty()
    }

    fn free_place(&mut self) -> Option<u32> {
        let free = self.free.last_mut()?;
        let at = free.pop();
        if free.is_empty() {
            self.free.pop();
        }
        at
    }
}

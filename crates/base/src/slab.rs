//! A slab whose keys carry a generation.
//!
//! The kernel reuses a descriptor number at once after a close, and a table reuses its place. Events of the
//! old life may then still be under way. A [`Key`] names one life. Looking up a key of a past life returns
//! `None`, and the caller counts a stale event instead of serving the wrong connection.
//!
//! Invariant: a place's generation is odd while the place is occupied, even while it is free, and only grows.

/// Names a value by its place and the life of that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The index of the place in the table.
    pub index: u32,
    /// The number of the place's life.
    pub generation: u32,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by [`Key`], with constant-time insertion, look-up and removal. The slab reuses freed places, the
/// latest first, so that a busy server touches little memory.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// An empty slab that has allocated nothing.
    pub fn new() -> Slab<T> {
        Slab::default()
    }

    /// Number of values in the slab.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True if the slab is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key that the next insertion will return.
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(index) => {
                let generation = self.places[*index as usize].generation.wrapping_add(1);
                Key { index: *index, generation }
            }
            None => Key { index: self.places.len() as u32, generation: 1 },
        }
    }

    /// Stores a value under a key that was never returned before.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Stores the value that `make` returns for its own key.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).expect("a slab holds fewer than 2^32 values");
                self.places.push(Place { generation: 0, value: None });
                index
            }
        };
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        let key = Key { index, generation: place.generation };
        place.value = Some(make(key));
        key
    }

    /// The value of a living key.
    pub fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        if place.generation == key.generation { place.value.as_ref() } else { None }
    }

    /// The value of a living key, mutable.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.value.as_mut() } else { None }
    }

    /// Removes a value. Its key is dead from then on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// The keys of all values, in the order of their places.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.value.is_some())
            .map(|(index, place)| Key { index: index as u32, generation: place.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_past_life_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.index, first.index, "the place is used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
    }

    #[test]
    fn counts_and_lists_what_it_holds() {
        let mut slab = Slab::new();
        let keys: Vec<Key> = (0..4).map(|n| slab.insert(n)).collect();
        slab.remove(keys[1]);
        assert_eq!(slab.len(), 3);
        assert_eq!(slab.keys().collect::<Vec<_>>(), vec![keys[0], keys[2], keys[3]]);
    }
}

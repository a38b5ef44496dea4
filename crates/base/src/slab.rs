//! A slab whose keys carry a generation.
//!
//! A descriptor number, and so a place in a table, is used again at once after a close, while events of
//! the old life may still be on their way. A [`Key`] names one life: looking up a key of a past life
//! gives nothing, and the caller counts a stale event instead of serving the wrong connection.
//!
//! Invariant: a place's generation is odd while it is occupied, even while it is free, and only grows.

/// Names one value in one life of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The place in the table.
    pub index: u32,
    /// Which life of that place.
    pub generation: u32,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by [`Key`], with constant-time insertion, look-up and removal. Freed places are used again,
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

    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key that the next insertion will give.
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(index) => {
                let generation = self.places[*index as usize].generation.wrapping_add(1);
                Key { index: *index, generation }
            }
            None => Key { index: self.places.len() as u32, generation: 1 },
        }
    }

    /// Stores a value under a key never given before.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Stores the value made from its own key.
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

    /// The value of a living key, to change.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.value.as_mut() } else { None }
    }

    /// Takes the value out; its key is dead from here on.
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

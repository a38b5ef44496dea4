//! The encoded requests of a table. Many of them are in a file without a name, so that the kernel can take their memory back:
//! a table may be larger than memory.

use std::io;

use bytes::Bytes;
use sys::shared::nameless::NamelessFile;

use super::Place;

/// The bytes that stay in memory. Larger tables are in a temporary file, in chunks of this size.
const CHUNK: usize = 64 << 20;

/// A growing table.
#[derive(Debug, Default)]
pub(super) struct Arena {
    memory: Vec<u8>,
    /// The chunks before; `None` before the first full one.
    file: Option<NamelessFile>,
}

impl Arena {
    /// Adds a request, which `encode` appends.
    ///
    /// # Errors
    /// The temporary file's.
    pub fn add(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Place) -> io::Result<Place> {
        if self.memory.len() >= CHUNK {
            self.spill()?;
        }
        let before = self.file.as_ref().map_or(0, NamelessFile::length);
        let Place { start, middle, end } = encode(&mut self.memory);
        Ok(Place { start: before + start, middle: before + middle, end: before + end })
    }

    /// The bytes of all requests.
    ///
    /// # Errors
    /// The temporary file's, or ENOMEM.
    pub fn freeze(mut self) -> io::Result<Bytes> {
        if self.file.is_some() {
            self.spill()?;
        }
        match self.file {
            Some(file) => Ok(Bytes::from_owner(file.map()?)),
            None => Ok(self.memory.into()),
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(NamelessFile::create()?),
        };
        file.append(&self.memory)?;
        self.memory.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_in_memory_and_in_a_file() {
        for requests in [3_u8, 200] {
            let mut arena = Arena::default();
            let mut places = Vec::new();
            for number in 0..requests {
                let place = arena.add(|memory| {
                    let start = memory.len();
                    memory.extend_from_slice(&[number; 1 << 20]);
                    Place { start, middle: start + 1, end: memory.len() }
                });
                places.push(place.unwrap());
            }
            assert_eq!(arena.file.is_some(), requests > 64);
            let bytes = arena.freeze().unwrap();
            for (number, place) in places.iter().enumerate() {
                let request = &bytes[place.start..place.end];
                assert_eq!(
                    (request.len(), request[0], request[request.len() - 1]),
                    (1 << 20, number as u8, number as u8)
                );
            }
        }
    }
}

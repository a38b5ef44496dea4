//! The scoreboard of worker processes, and the kernel cache's requests: one writer, readers that never wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::thread;
use words::{Word, version};

use super::word::{Number, SOUND, UNORDERED, check};

/// A writer changes two words together, twice. A reader looks once.
fn readers_get_one_moment<const FAULT: u8>() {
    check(|| {
        let words: Arc<[Number<FAULT>; 3]> = Arc::new([Number::new(), Number::new(), Number::new()]);
        let writers = Arc::clone(&words);
        let writer = thread::spawn(move || {
            for value in [1, 2] {
                version::write(&writers[0], || {
                    writers[1].store(value, Ordering::Relaxed);
                    writers[2].store(value, Ordering::Relaxed);
                });
            }
        });
        let load = |word: usize| words[word].load(Ordering::Relaxed);
        let ((first, second), of_one_moment) = version::read(&words[0], || (load(1), load(2)));
        assert!(!of_one_moment || first == second, "two moments: {first} and {second}");
        writer.join().unwrap();
    });
}

#[test]
fn read_words_are_of_one_moment() {
    readers_get_one_moment::<SOUND>();
}

#[test]
#[should_panic(expected = "two moments")]
fn unordered_version_is_found() {
    readers_get_one_moment::<UNORDERED>();
}

#[test]
fn dead_writer_leaves_a_version_that_ends() {
    let version = std::sync::atomic::AtomicU64::new(0);
    version::write(&version, || ());
    version.fetch_add(1, Ordering::Relaxed);
    assert!(!version::read(&version, || ()).1);
    version::end_for_the_dead(&version);
    assert!(version::read(&version, || ()).1);
    assert_eq!(version.load(Ordering::Relaxed), 4);
}

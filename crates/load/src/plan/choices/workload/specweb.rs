//! The SPECweb99-like file set and its popularity (Brecht 2004, section 5).
//!
//! Each directory has 36 files in four classes of nine. File `n` (from 1) of class `c` has `102.4 x 10^c x n`
//! bytes, rounded down: 5,119,484 bytes per directory. Class, file and directory are chosen independently.
//!
//! Deviation: SPECweb99 names the first file of a class `classC_0`, and it is the smallest; so does this set.

use crate::plan::terms::draws::Draws;

/// The default number of directories: 20, about 100 MB.
pub const DIRECTORIES: u32 = 20;

/// The probabilities of the classes, in percent.
const CLASSES: [f64; 4] = [35.0, 50.0, 14.0, 1.0];

/// The probabilities of the files within a class, in percent. They add up to 99.9 in the paper and are
/// scaled.
const FILES: [f64; 9] = [3.9, 5.9, 8.8, 17.7, 35.3, 11.8, 7.1, 5.0, 4.4];

/// The mean of [`session_length`].
pub(super) const SESSION_LENGTH_MEAN: f64 = 0.3 + 0.7 * 10.0;

/// One file of the set.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The path below the root, such as `/dir00000/class0_0`.
    pub path: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The frequency of requests, relative to the other files.
    pub weight: f64,
}

/// All files of a set of `directories` directories, for the client's table and for generating the set.
/// Directories follow Zipf's law with exponent 1.
pub fn files(directories: u32) -> impl Iterator<Item = File> {
    (0..directories).flat_map(|directory| {
        (0..CLASSES.len()).flat_map(move |class| {
            (0..FILES.len()).map(move |file| File {
                path: format!("/dir{directory:05}/class{class}_{file}"),
                bytes: 1024 * 10u64.pow(class as u32) * (file as u64 + 1) / 10,
                weight: CLASSES[class] * FILES[file] / f64::from(directory + 1),
            })
        })
    })
}

/// Draws 1 request for 30 % of sessions, and 5 to 15 for 70 %.
pub(super) fn session_length(draws: &mut Draws) -> u32 {
    if draws.unit() < 0.3 { 1 } else { draws.between(5, 15) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::choices::workload::Spec;
    use crate::plan::requests::tests;

    /// The sum of (observed - expected)^2 / expected.
    fn chi_square(observed: &[u64], shares: &[f64]) -> f64 {
        let draws = observed.iter().sum::<u64>() as f64;
        let total: f64 = shares.iter().sum();
        let terms = observed.iter().zip(shares).map(|(count, share)| {
            let expected = draws * share / total;
            (*count as f64 - expected).powi(2) / expected
        });
        terms.sum()
    }

    #[test]
    fn the_set_has_the_sizes_of_the_paper() {
        let one: Vec<File> = files(1).collect();
        assert_eq!(one.len(), 36);
        assert_eq!(one.iter().map(|file| file.bytes).sum::<u64>(), 5_119_484);
        assert_eq!((one[0].bytes, one[8].bytes, one[35].bytes), (102, 921, 921_600));
        assert_eq!(files(20).last().unwrap().path, "/dir00019/class3_8");
    }

    /// The limits are those of the chi-square distribution at one in a hundred thousand, for the degrees of
    /// freedom of each table. The seed is fixed, so the test passes always or never.
    #[test]
    fn requests_follow_the_published_shares() {
        let directories = 20;
        let workload = tests::workload(&["http://host/"], Spec::Specweb99 { directories }, None);
        let mut draws = Draws::new(99);
        let (mut by_class, mut by_file, mut by_directory) = ([0; 4], [0; 9], vec![0; directories as usize]);
        for _ in 0..200_000 {
            let index = workload.pick(&mut draws).0 as usize;
            by_directory[index / 36] += 1;
            by_class[index % 36 / 9] += 1;
            by_file[index % 9] += 1;
        }
        let zipf: Vec<f64> = (1..=directories).map(|rank| 1.0 / f64::from(rank)).collect();
        assert!(chi_square(&by_class, &CLASSES) < 25.9, "3 degrees: {by_class:?}");
        assert!(chi_square(&by_file, &FILES) < 37.3, "8 degrees: {by_file:?}");
        assert!(chi_square(&by_directory, &zipf) < 57.0, "19 degrees: {by_directory:?}");
    }

    #[test]
    fn sessions_have_the_published_lengths() {
        let mut draws = Draws::new(5);
        let mut counts = [0u64; 16];
        for _ in 0..100_000 {
            counts[session_length(&mut draws) as usize] += 1;
        }
        assert_eq!(counts[2..5].iter().sum::<u64>() + counts[0], 0);
        let mut shares = vec![0.3];
        shares.extend([0.7 / 11.0; 11]);
        let observed = [&counts[1..2], &counts[5..]].concat();
        assert!(chi_square(&observed, &shares) < 42.9, "11 degrees: {observed:?}");
        let mean =
            counts.iter().enumerate().map(|(length, count)| length as f64 * *count as f64).sum::<f64>()
                / 100_000.0;
        assert!((mean - SESSION_LENGTH_MEAN).abs() < 0.05, "{mean}");
    }
}

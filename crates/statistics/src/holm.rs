//! Many tests together.

/// Corrects probabilities for their number (Holm, 1979, Scandinavian Journal of Statistics 6): the k-th least of m
/// is multiplied by m - k + 1, and is never less than the one before. The chance that any of those at most 0.05 is an
/// error is then at most 0.05.
pub fn corrected_for_many(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut corrected = vec![1.0; chances.len()];
    let mut least = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max((chances[at] * (chances.len() - rank) as f64).min(1.0));
        corrected[at] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_multiplied_most_and_the_order_stays() {
        let close = |found: Vec<f64>, expected: &[f64]| {
            let same = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
            assert!(same && found.len() == expected.len(), "{found:?}");
        };
        close(corrected_for_many(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]);
        close(corrected_for_many(&[0.6, 0.7]), &[1.0, 1.0]);
        close(corrected_for_many(&[]), &[]);
    }
}

//! The fairness of the distribution of connections over waiters.

/// Jain's index (Jain, Chiu and Hawe, 1984), (sum x)^2 / (n sum x^2), divided by its maximum for this number
/// of connections and waiters. The value 1 is as even as possible: the counts of any two waiters differ by
/// one at most. If one waiter gets all k connections the value is 1/min(k, n), provided that n divides k or k
/// < n. `None` without connections.
pub fn fairness(connections: &[u64]) -> Option<f64> {
    let total: u64 = connections.iter().sum();
    if total == 0 {
        return None;
    }
    let squares: u64 = connections.iter().map(|count| count * count).sum();
    let (each, left) = (total / connections.len() as u64, total % connections.len() as u64);
    // In the most even distribution some waiters get one more than `each`.
    let least = connections.len() as u64 * each * each + left * (2 * each + 1);
    Some(least as f64 / squares as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_where_it_could_not_be_more_even() {
        assert_eq!(fairness(&[3, 3, 3]), Some(1.0));
        assert_eq!(fairness(&[1, 0, 1, 0]), Some(1.0));
        assert_eq!(fairness(&[2, 1, 2]), Some(1.0));
        assert_eq!(fairness(&[8, 0, 0, 0]), Some(0.25));
        assert_eq!(fairness(&[2, 0, 0, 0]), Some(0.5));
        assert_eq!(fairness(&[0, 0]), None);
    }
}

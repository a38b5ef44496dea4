//! Caution while nobody knows why many requests wait.
//!
//! A rush at ten times the capacity and 150 half requests at once look alike, until the answers tell. In a server of 40
//! requests per second eight answers take a fifth of a second, in which a rush brings two seconds of work. So while more
//! requests wait than a server like this one explains, the hook admits at most twice the best recent rate of answers.
//!
//! This refuses nobody at a load that the server has answered in the last minute, whatever waits there. It costs
//! something only if the load more than doubles at the same moment.

/// The fewest unexplained requests that call for caution.
const FEWEST: f64 = 16.0;
/// The least wait that they would have, in seconds.
const WAIT: f64 = 0.15;
/// The admitted rate, in multiples of the best recent rate of answers. As many requests as it asks for in the time of an
/// answer are explained.
const MULTIPLE: f64 = 2.0;
/// The fewest answers that tell a rate.
const ANSWERS: u64 = 16;
/// The least admitted rate, in requests per second: a page of many parts is no rush.
const LEAST: f64 = 16.0;

/// The rate to admit, in requests per second; `None` while there is no reason for caution. `unanswered` requests are not
/// known to be stuck, `best` is the best recent rate of answers, `alone` the time of an answer by itself in seconds, and
/// `answered` counts all answers.
pub fn rate(unanswered: f64, best: f64, alone: f64, answered: u64) -> Option<f64> {
    let most = (MULTIPLE * best).max(LEAST);
    let unexplained = unanswered - most * alone;
    (answered >= ANSWERS && unexplained >= FEWEST.max(WAIT * best)).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_best_rate_is_admitted_in_doubt() {
        let after = |answered| rate(40.0, 20.0, 0.1, answered);
        assert_eq!((after(ANSWERS - 1), after(ANSWERS)), (None, Some(40.0)));
        assert_eq!(rate(19.0, 20.0, 0.1, 100), None, "four are in service, and fifteen are too few");
        assert_eq!(rate(19.0, 20.0, 0.0, 100), Some(40.0));
        assert_eq!(rate(100.0, 1000.0, 0.0, 1000), None, "a tenth of a second of work");
    }
}

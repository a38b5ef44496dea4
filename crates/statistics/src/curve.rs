//! The bend of a curve, and the crossing of two curves.
//!
//! Both functions take a single measurement of a curve, point by point. To estimate the error, find the place
//! in each repetition and examine the variation.

use crate::median;

/// The x at which y stops growing in proportion to x: the bend of y = a min(x, knee), for points ascending in
/// x.
///
/// The function tries each place to divide the points. The points before it rise with the median of y/x; the
/// points after it lie at the median of y. The bend is the meeting point of the two, kept between the neighbouring
/// points. The division with the least sum of |ln(y / fitted)| wins. Returns `None` for fewer than three points,
/// or if a point is not positive. Also returns `None` if no division is better than a rise throughout: then the
/// curve does not reach its knee.
pub fn knee(points: &[(f64, f64)]) -> Option<f64> {
    let is_positive = |(x, y): &(f64, f64)| *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite();
    if points.len() < 3 || !points.iter().all(is_positive) {
        return None;
    }
    let rate = |part: &[(f64, f64)]| median(&part.iter().map(|(x, y)| y / x).collect::<Vec<_>>());
    let misfit =
        |a: f64, knee: f64| -> f64 { points.iter().map(|(x, y)| (y / (a * x.min(knee))).ln().abs()).sum() };
    let throughout = misfit(rate(points), f64::INFINITY);
    let bends = (1..points.len()).map(|parting| {
        let (rise, flat) = points.split_at(parting);
        let a = rate(rise);
        let level = median(&flat.iter().map(|(_, y)| *y).collect::<Vec<_>>());
        let bend = (level / a).clamp(rise[parting - 1].0, flat[0].0);
        (bend, misfit(a, bend))
    });
    let (bend, least) = bends.min_by(|one, other| one.1.total_cmp(&other.1))?;
    // A last point that lies a little low is not a plateau.
    (least < throughout * 0.9).then_some(bend)
}

/// The x from which the first curve lies above the second: their last passage, linear between points. Both curves are
/// (x, y) ascending in x, and are compared at the x of points that both have. Returns `None` if the first does not end
/// above the second, or lies above it throughout.
pub fn crossing(first: &[(f64, f64)], second: &[(f64, f64)]) -> Option<f64> {
    let beside = |(x, y): &(f64, f64)| {
        let (_, other) = second.iter().find(|(at, _)| at == x)?;
        (y - other).is_finite().then_some((*x, y - other))
    };
    let leads: Vec<(f64, f64)> = first.iter().filter_map(beside).collect();
    let behind = leads.iter().rposition(|(_, lead)| *lead <= 0.0)?;
    let ((x0, lead0), (x1, lead1)) = (leads[behind], *leads.get(behind + 1)?);
    Some(x0 + (x1 - x0) * (lead0 / (lead0 - lead1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hinge(a: f64, knee: f64, xs: &[f64]) -> Vec<(f64, f64)> {
        xs.iter().map(|x| (*x, a * x.min(knee))).collect()
    }

    #[test]
    fn the_knee_of_a_hinge_is_its_bend() {
        let points = hinge(2.0, 130.0, &[25.0, 50.0, 75.0, 100.0, 150.0, 200.0, 400.0]);
        assert!((knee(&points).unwrap() - 130.0).abs() < 1e-9);
    }

    #[test]
    fn curve_falling_after_its_bend_has_its_knee_there() {
        let points = [(50.0, 50.0), (100.0, 100.0), (130.0, 130.0), (200.0, 122.0), (400.0, 115.0)];
        let knee = knee(&points).unwrap();
        assert!((110.0..=135.0).contains(&knee), "{knee}");
    }

    #[test]
    fn a_rise_throughout_has_no_knee() {
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 2.02), (3.0, 2.97), (4.0, 4.0)]), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 1.0)]), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 0.0), (3.0, 1.0)]), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0)]), None);
    }

    #[test]
    fn curves_cross_between_their_points() {
        let poll = [(0.0, 10.0), (2000.0, 8.0), (4000.0, 4.0), (6000.0, 2.0)];
        let fdm = [(0.0, 8.0), (2000.0, 7.0), (4000.0, 5.0), (6000.0, 4.0)];
        assert_eq!(crossing(&fdm, &poll), Some(3000.0));
        assert_eq!(crossing(&poll, &fdm), None, "it falls below the other");
    }

    #[test]
    fn curves_that_do_not_meet_do_not_cross() {
        let (low, high) = ([(1.0, 1.0), (2.0, 1.0)], [(1.0, 2.0), (2.0, 2.0)]);
        assert_eq!(crossing(&low, &high), None);
        assert_eq!(crossing(&high, &low), None);
        assert_eq!(crossing(&low, &low), None);
        assert_eq!(crossing(&[], &high), None);
        assert_eq!(crossing(&[(5.0, 1.0)], &high), None);
    }

    proptest! {
        #[test]
        fn a_knee_lies_among_the_points(ys in prop::collection::vec(0.1_f64..100.0, 3..12)) {
            let points: Vec<(f64, f64)> =
                ys.iter().enumerate().map(|(index, y)| (index as f64 + 1.0, *y)).collect();
            if let Some(bend) = knee(&points) {
                prop_assert!((1.0..=ys.len() as f64).contains(&bend));
            }
        }

        #[test]
        fn the_bend_of_any_hinge_is_found(a in 0.1_f64..10.0, bend in 2.0_f64..9.0) {
            let xs: Vec<f64> = (1..=12).map(f64::from).collect();
            let found = knee(&hinge(a, bend, &xs)).unwrap();
            prop_assert!((found - bend).abs() < 1e-6, "{found} for {bend}");
        }
    }
}

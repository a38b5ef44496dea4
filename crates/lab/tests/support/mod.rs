//! The property of an experiment's file, which the tests and the fuzz target share, by path.

use experiment::Experiment;
use lab::run::schedule::{estimate, schedule};
use record::experiment::Form;

/// Whatever a file says, it is refused with its mistakes, or both of its forms can be planned: their trials are bounded,
/// and an estimate with repeated trials is no shorter than one without. Returns true if they can.
///
/// # Panics
/// The reader or the plan breaks the property.
pub fn experiment_file_property(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let experiment = match Experiment::parse(text) {
        Ok(experiment) => experiment,
        Err(mistakes) => {
            assert!(!mistakes.0.is_empty(), "a file is refused without a reason");
            return false;
        }
    };
    for form in [Form::Full, Form::Quick] {
        let planned = experiment.in_form(form);
        let estimated = estimate(&planned, form);
        assert_eq!(estimated.trials, schedule(&planned).len());
        assert!(estimated.time <= estimated.at_most, "{} > {}", estimated.time, estimated.at_most);
    }
    true
}

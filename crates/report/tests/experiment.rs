//! Tests of an experiment's records: claims judged, reports written, runs compared.

mod experiment {
    mod claims;
    mod experiment_runs;
    pub mod fixture;
    mod report;
}

//! `cargo xtask package`: what is released, built and started by `packaging/build`, which owns all of it.

use std::path::Path;

use anyhow::ensure;
use base::Nanos;
use sys::process::Streams;

use crate::test_bed::outside_cargo;

/// Builds packages of these kinds, or of all. Blocks, for two hours at most.
///
/// # Errors
/// A tool is missing, a build failed, or what was built does not serve.
pub fn run(kinds: &[String]) -> anyhow::Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/build");
    let mut child = outside_cargo(script).arguments(kinds).with_streams(Streams::Ours).start()?;
    let exit = child.wait(Nanos::from_secs(7200))?;
    ensure!(exit.is_some_and(|exit| exit.status.success()), "packaging/build failed");
    Ok(())
}

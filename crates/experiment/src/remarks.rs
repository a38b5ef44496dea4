//! Remarks on the claims of finished runs, from a file beside the folders of their records.
//!
//! ```toml
//! [[remark]]
//! experiment = "smped-2"
//! claims = ["With 1600 clients MP answers less than with 200"]
//! not-tested = "at most 55 processes were there at once"
//! ```
//!
//! A record keeps the experiment's text as it was run. What is found later about a set-up stands here, in the words of a
//! claim. A remark takes a verdict away or explains it; it cannot give one.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::{Experiment, Mistakes};

/// The remarks of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remarks {
    /// The remarks, in the order of the file.
    #[serde(default, rename = "remark")]
    pub all: Vec<Remark>,
}

/// A remark on claims of one experiment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Remark {
    /// The experiment's name.
    pub experiment: String,
    /// The statements of the claims, word for word.
    pub claims: Vec<String>,
    /// The reason why the set-up cannot judge them: see [`Claim::not_tested`](super::Claim::not_tested).
    pub not_tested: Option<String>,
    /// The difference from the paper's setting: see [`Claim::differs`](super::Claim::differs).
    pub differs: Option<String>,
    /// True if the claims turn out to be the experiment's own: they are about something that the paper did not measure.
    #[serde(default)]
    pub own: bool,
}

impl Remarks {
    /// The name of the file.
    pub const FILE: &'static str = "remarks.toml";

    /// Reads the remarks in a folder. A folder without the file has no remarks.
    ///
    /// # Errors
    /// The file cannot be read or is no file of remarks. The error names it.
    pub fn read(folder: &Path) -> Result<Remarks, Mistakes> {
        let path = folder.join(Remarks::FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Remarks::default()),
            Err(cause) => return Err(Mistakes(vec![format!("cannot read {}: {cause}", path.display())])),
        };
        toml::from_str(&text)
            .map_err(|cause| Mistakes(vec![format!("{}: {}", path.display(), cause.to_string().trim_end())]))
    }

    /// Adds the remarks to the claims of the experiment of that name.
    ///
    /// # Errors
    /// A remark is about a claim that the experiment does not have.
    pub fn apply(&self, name: &str, experiment: &mut Experiment) -> Result<(), Mistakes> {
        for remark in self.all.iter().filter(|remark| remark.experiment == name) {
            for text in &remark.claims {
                let Some(claim) = experiment.claims.iter_mut().find(|claim| claim.text == *text) else {
                    return Err(Mistakes(vec![format!("{}: {name} has no claim '{text}'", Remarks::FILE)]));
                };
                claim.not_tested = remark.not_tested.clone().or(claim.not_tested.take());
                claim.differs = remark.differs.clone().or(claim.differs.take());
                claim.paper = claim.paper.take().filter(|_| !remark.own);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "title = 't'\npaper = 'p'\nserver = [{ name = 's' }]\nload = [{ name = 'l', rate = '9' }]\n\
                        claim = [{ text = 'c', paper = '+71 %', value = { metric = 'goodput_per_s' }, at-least = 1 }]";

    fn remarked(text: &str) -> Result<Experiment, Mistakes> {
        let remarks: Remarks = toml::from_str(text).unwrap();
        let mut experiment = Experiment::parse(FILE).unwrap();
        remarks.apply("e", &mut experiment).map(|()| experiment)
    }

    #[test]
    fn remark_takes_verdict_and_paper_away() {
        let claim = |remark: &str| {
            let text = format!("[[remark]]\nexperiment = 'e'\nclaims = ['c']\n{remark}");
            remarked(&text).unwrap().claims.remove(0)
        };
        assert_eq!(claim("not-tested = 'why'").not_tested.as_deref(), Some("why"));
        let own = claim("differs = 'select'\nown = true");
        assert_eq!((own.differs.as_deref(), own.paper, own.not_tested), (Some("select"), None, None));
    }

    #[test]
    fn remark_on_unknown_claim_is_an_error() {
        let wrong = "[[remark]]\nexperiment = 'e'\nclaims = ['d']\nown = true";
        assert_eq!(remarked(wrong).unwrap_err().to_string(), "remarks.toml: e has no claim 'd'");
        assert!(remarked(&wrong.replace("'e'", "'other'")).is_ok());
    }
}

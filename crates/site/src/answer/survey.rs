//! Which file answers a path: the file of its name, one with an ending that addresses leave out, or a folder's index.

use base::Clock;

use crate::cache::Survey;
use crate::path::SitePath;
use crate::root::{Directory, LookupError, Reach};
use crate::rules::Slashes;
use crate::{Named, Site};

impl<C: Clock> Site<C> {
    /// The name of the file for a path, and its stored forms.
    pub(crate) fn survey(
        &self,
        directory: &Directory,
        path: &SitePath,
        reach: Reach,
    ) -> Result<Named, LookupError> {
        if !path.directory {
            return self.survey_file(directory, path, reach);
        }
        if self.rules.slashes == Slashes::Add || path.relative.is_empty() {
            return self.survey_index(directory, path, reach);
        }
        match self.survey_file(directory, path, reach) {
            Ok(_) => Err(LookupError::HasSlash),
            // It has no index, but may be listed.
            Err(LookupError::IsDirectory) => Err(LookupError::NotFound),
            Err(error) => Err(error),
        }
    }

    /// The file of the path's name, or of its name with an ending that addresses leave out.
    fn survey_file(
        &self,
        directory: &Directory,
        path: &SitePath,
        reach: Reach,
    ) -> Result<Named, LookupError> {
        let mut result = Err(LookupError::NotFound);
        for ending in std::iter::once("").chain(self.rules.endings.iter().map(String::as_str)) {
            let name = [&path.relative, ending.as_bytes()].concat();
            match Survey::of(directory, &name, reach) {
                Err(LookupError::NotFound) => {}
                Err(LookupError::IsDirectory) if ending.is_empty() => result = Err(LookupError::IsDirectory),
                Err(LookupError::IsDirectory) => {}
                survey => return Ok((name, survey?)),
            }
        }
        if matches!(result, Err(LookupError::IsDirectory)) && self.rules.slashes == Slashes::Remove {
            result = self.survey_index(directory, path, reach);
            let is_listed = || self.rules.lists(&format!("{}/", path.canonical));
            if matches!(result, Err(LookupError::NotFound)) && is_listed() {
                return Err(LookupError::IsDirectory);
            }
        }
        result
    }

    /// The first index of a folder that exists.
    fn survey_index(
        &self,
        directory: &Directory,
        path: &SitePath,
        reach: Reach,
    ) -> Result<Named, LookupError> {
        for index in &self.rules.index {
            let slash = if path.relative.is_empty() { "" } else { "/" };
            let name = [&path.relative, slash.as_bytes(), index.as_bytes()].concat();
            match Survey::of(directory, &name, reach) {
                Err(LookupError::NotFound | LookupError::IsDirectory) => {}
                survey => return Ok((name, survey?)),
            }
        }
        Err(LookupError::NotFound)
    }
}

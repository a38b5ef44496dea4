//! `inrush fileset`: writes the lab's generated files into a folder of the user's.
//!
//! Invariant: the command overwrites only files of such a set.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use stage::fileset;

use crate::cli::FilesetFlags;
use crate::exit::Exit;
use crate::output;

/// Writes the set, and prints its size and its use.
pub fn run(flags: FilesetFlags) -> Result<(), Exit> {
    let FilesetFlags { dir, directories, seed } = flags;
    let shown = dir.display();
    match stranger(&dir, directories) {
        Ok(None) => {}
        Ok(Some(name)) => {
            return Err(Exit::Usage(format!(
                "DIR {shown} holds '{}', which is not of a file set of {directories} directories; expected an \
                 absent or empty folder, or one with such a set",
                name.display()
            )));
        }
        Err(cause) => return Err(Exit::Usage(format!("DIR {shown}: cannot read it as a folder: {cause}"))),
    }
    let written = fs::create_dir_all(&dir)
        .and_then(|()| fileset::write(&dir, directories, seed))
        .map_err(|cause| Exit::Failed(format!("DIR {shown}: cannot write the files: {cause}")))?;
    let files = fileset::CLASSES * fileset::FILES_PER_CLASS;
    let told = format!(
        "{shown}: {directories} directories of {files} files, {} bytes, from seed {seed}\n\
         To serve it:   inrush serve {shown}\n\
         To ask for it: inrush load URL --workload specweb99:{directories}\n",
        written.0
    );
    output::text("the description of the files", &told)
}

/// An entry of the folder that a set of `directories` directories does not have. An absent folder has none.
fn stranger(dir: &Path, directories: u32) -> io::Result<Option<OsString>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let first_of = |directory| Path::new(&fileset::file_name(directory, 0, 0)).parent().map(OsString::from);
    let own: HashSet<OsString> = (0..directories).filter_map(first_of).collect();
    for entry in entries {
        let entry = entry?;
        if !own.contains(&entry.file_name()) || !entry.file_type()?.is_dir() {
            return Ok(Some(entry.file_name()));
        }
    }
    Ok(None)
}

//! Shell scripts in the place of programs. A test puts their folder first on PATH.

use std::path::{Path, PathBuf};

use assert_cmd::Command;

/// Makes programs with these names and scripts in `folder/bin`, and returns that folder.
pub fn stand_ins(folder: &Path, programs: &[(&str, &str)]) -> PathBuf {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for (name, script) in programs {
        // A process of its own writes the file: a child that another test starts would inherit our open descriptor, and the
        // kernel runs no file that somebody may write.
        let mut install = Command::new("install");
        install.args(["-m", "755", "/dev/stdin"]).arg(bin.join(name));
        install.write_stdin(format!("#!/bin/sh\n{script}\n")).assert().success();
    }
    bin
}

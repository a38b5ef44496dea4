//! `inrush fileset` writes the announced set, and overwrites nothing else.

use std::fs;

use super::{inrush, refused};

#[test]
fn a_set_is_written_and_written_anew() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("a/set");
    let arguments = ["fileset", dir.to_str().unwrap(), "--directories=2"];
    let first = inrush(&arguments, 0).get_output().stdout.clone();
    let told = String::from_utf8(first).unwrap();
    assert!(told.contains("2 directories of 36 files, 10238968 bytes, from seed 1"), "{told}");
    assert!(told.contains("--workload specweb99:2"), "{told}");
    let file = dir.join("dir00001/class2_8");
    let contents = fs::read(&file).unwrap();
    assert_eq!(contents.len(), 92_160);
    fs::write(&file, "spoilt").unwrap();
    inrush(&arguments, 0);
    assert_eq!(fs::read(&file).unwrap(), contents);
    inrush(&[&arguments[..], &["--seed=2"]].concat(), 0);
    assert_ne!(fs::read(&file).unwrap(), contents);
}

#[test]
fn what_is_not_of_the_set_is_named_and_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().to_str().unwrap();
    for (stranger, name) in
        [("notes.txt", "notes.txt"), ("dir00002/file", "dir00002"), ("dir00000", "dir00000")]
    {
        let path = place.path().join(stranger);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "mine").unwrap();
        refused(
            &["fileset", dir, "--directories=2"],
            2,
            &[dir, &format!("'{name}'"), "2 directories", "empty"],
        );
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        fs::remove_file(&path).unwrap();
        let _ = fs::remove_dir(place.path().join(name));
    }
    refused(&["fileset", "/dev/null"], 2, &["/dev/null", "as a folder"]);
    refused(&["fileset", dir, "--directories=0"], 2, &["--directories", "1..=10000"]);
    refused(&["fileset"], 2, &["<DIR>"]);
}

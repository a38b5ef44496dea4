//! Files that cannot be used: each mistake is one line that names the flag and the file.

mod support;

use std::fs;
use std::path::PathBuf;

use support::identity;
use tls::{Files, Material, Sessions};

/// Returns the error for these files.
fn said(certificate: &str, key: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let files =
        Files { certificate: folder.path().join("c"), key: folder.path().join("k"), ocsp: None, host: None };
    fs::write(&files.certificate, certificate).unwrap();
    fs::write(&files.key, key).unwrap();
    let said = Material::read(&[files]).and_then(Sessions::new).unwrap_err().to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    said.replace(&folder.path().display().to_string(), "")
}

#[test]
fn what_cannot_be_used_is_named_with_what_can() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (identity(folder.path(), "one", &["a"]), identity(folder.path(), "other", &["b"]));
    let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
    let (certificate, key) = (read(&one.files.certificate), read(&one.files.key));
    let cases = [
        (
            certificate.as_str(),
            read(&other.files.key),
            "--tls-key /k: it does not belong to the certificate in /c; each",
        ),
        ("", key.clone(), "--tls-cert /c: it has no certificate; expected a PEM file of certificates"),
        (&key, key.clone(), "--tls-cert /c: it has no certificate; expected a PEM file of certificates"),
        (&certificate, String::new(), "--tls-key /k: it has no private key; expected a PEM file with one"),
        (
            &certificate,
            certificate.clone(),
            "--tls-key /k: it has no private key; expected a PEM file with one",
        ),
        (
            &certificate,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMA==\n-----END ENCRYPTED PRIVATE KEY-----\n".to_owned(),
            "--tls-key /k: the key is encrypted, and nobody is asked for its password; decrypt it",
        ),
        (
            &certificate,
            "-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n".to_owned(),
            "--tls-key /k: its kind is not supported; expected ECDSA",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
            key.clone(),
            "--tls-cert /c: its first certificate cannot be read",
        ),
        ("-----BEGIN CERTIFICATE-----\n*", key.clone(), "--tls-cert /c: it is not a PEM file"),
    ];
    for (certificate, key, expected) in cases {
        let said = said(certificate, &key);
        assert!(said.starts_with(expected), "{said}\ninstead of\n{expected}");
    }
}

#[test]
fn unusable_ocsp_response_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let one = identity(folder.path(), "one", &["a"]);
    let response = folder.path().join("response");
    let said = |bytes: &[u8]| {
        fs::write(&response, bytes).unwrap();
        let files = Files { ocsp: Some(response.clone()), ..one.files.clone() };
        let said = Material::read(&[files]).and_then(Sessions::new).unwrap_err().to_string();
        said.replace(&folder.path().display().to_string(), "")
    };
    // A successful answer without content, one of a type that nobody knows, and one cut short.
    let unknown_type = b"\x30\x10\x0a\x01\x00\xa0\x0b\x30\x09\x06\x03\x2a\x03\x04\x04\x02\x30\x00";
    for bytes in [&b""[..], b"-----BEGIN", b"\x30\x03\x0a\x01\x00", unknown_type, &unknown_type[..9]] {
        let expected = "--tls-ocsp /response: it is not an OCSP response; expected an OCSP response in DER";
        assert_eq!(said(bytes), expected, "{bytes:x?}");
    }
    assert_eq!(
        said(b"\x30\x03\x0a\x01\x03"),
        "--tls-ocsp /response: the responder answered TryLater; expected an OCSP response in DER with the status Successful"
    );
}

#[test]
fn what_cannot_be_read_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let one = identity(folder.path(), "one", &["a"]);
    let said = |key: PathBuf| {
        let files = Files { key, ..one.files.clone() };
        Material::read(&[files]).err().unwrap().to_string()
    };
    let missing = folder.path().join("missing");
    let expected = format!("--tls-key {}: cannot read it: No such file", missing.display());
    assert!(said(missing).starts_with(&expected));
    assert!(said(folder.path().to_owned()).ends_with("it is not a file; expected a PEM file"));
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len(2 << 20).unwrap();
    assert!(said(large).ends_with("it is larger than 1 MiB; expected a PEM file"));
}

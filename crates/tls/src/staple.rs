//! The check of an OCSP response (RFC 6960) before the server staples it (RFC 6066, 8; RFC 8446, 4.4.2.1).
//!
//! Owns the form of the response, its status, the certificate that it is about, and its end. Leaves the signature to clients:
//! the server knows no certificate authorities.

use der::asn1::ObjectIdentifier;
use der::{Decode, Error};
use x509_ocsp::{BasicOcspResponse, OcspResponse, OcspResponseStatus};

/// id-pkix-ocsp-basic, the type of response that RFC 6960, 4.2.1 asks every client to know.
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");

/// The defect of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum Defect {
    /// The bytes are no basic response in DER.
    Form,
    /// The responder answered with an error.
    Status(OcspResponseStatus),
    /// The response is about other certificates.
    Subject,
}

impl From<Error> for Defect {
    fn from(_: Error) -> Defect {
        Defect::Form
    }
}

/// Checks a response for the certificate with a serial number, in big-endian bytes. Returns its end (`nextUpdate`) in seconds
/// since 1970; `None` for a response without an end.
///
/// # Errors
/// [`Defect`].
pub fn check(response: &[u8], serial: &[u8]) -> Result<Option<u64>, Defect> {
    let response = OcspResponse::from_der(response)?;
    if response.response_status != OcspResponseStatus::Successful {
        return Err(Defect::Status(response.response_status));
    }
    let bytes = response.response_bytes.filter(|bytes| bytes.response_type == BASIC).ok_or(Defect::Form)?;
    let basic = BasicOcspResponse::from_der(bytes.response.as_bytes())?;
    let is_about = |other: &[u8]| significant(other) == significant(serial);
    let mut singles = basic.tbs_response_data.responses.iter();
    let single = singles.find(|single| is_about(single.cert_id.serial_number.as_bytes()));
    let next_update = single.ok_or(Defect::Subject)?.next_update;
    Ok(next_update.map(|time| time.0.to_unix_duration().as_secs()))
}

/// The number without the zeros that DER puts before some numbers.
fn significant(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    &serial[zeros..]
}

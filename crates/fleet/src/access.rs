//! Access to NATS: the connection and the two buckets of a fleet.
//!
//! Both buckets are in memory. `inrush-agents` forgets an agent that stays silent for [`PRESENCE_AGE`], and
//! `inrush-runs` forgets a run after [`RUN_AGE`].

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::error::FleetError;

/// An agent that has not renewed its presence for this time is no longer a member.
pub(crate) const PRESENCE_AGE: Duration = Duration::from_secs(5);

/// The longest run, with time to deliver its parts.
const RUN_AGE: Duration = Duration::from_secs(24 * 3600);

/// The largest payload that is sent as one message: half of the limit that NATS servers have by default.
pub(crate) const PIECE_BYTES: usize = 512 * 1024;

/// The schemes of addresses.
const SCHEMES: [&str; 4] = ["nats", "tls", "ws", "wss"];

/// The attempts to open a bucket that another member creates at the same moment, and the pause between two.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// The server and the credentials, as other clients of NATS have them.
#[derive(Clone, Debug)]
pub struct Access {
    /// Addresses such as `nats://USER:PASSWORD@HOST:4222` or `tls://HOST`, separated by commas.
    pub url: String,
    /// A file of credentials: a JWT and the seed of its key.
    pub creds: Option<PathBuf>,
    /// A PEM file of trusted certificates.
    pub tls_ca: Option<PathBuf>,
    /// PEM files of the client's certificate and key.
    pub tls_identity: Option<(PathBuf, PathBuf)>,
}

/// A connection with the buckets of a fleet.
#[derive(Clone)]
pub(crate) struct Nats {
    pub client: Client,
    pub agents: Store,
    pub runs: Store,
}

impl Access {
    /// Checks what no later attempt would mend: the form of the addresses, and that each file can be opened.
    ///
    /// # Errors
    /// [`FleetError::Access`].
    pub fn check(&self) -> Result<(), FleetError> {
        self.addresses()?;
        let identity = self.tls_identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        for file in self.creds.iter().chain(&self.tls_ca).chain(identity) {
            let unreadable = |cause| FleetError::Access(format!("cannot read {}: {cause}", file.display()));
            std::fs::File::open(file).map_err(unreadable)?;
        }
        Ok(())
    }

    fn addresses(&self) -> Result<Vec<ServerAddr>, FleetError> {
        let parse = |address: &str| {
            // The client would take any other scheme for nats.
            match address.trim().split_once("://") {
                Some((scheme, _)) if !SCHEMES.contains(&scheme) => {
                    Err(format!("'{scheme}' is not a scheme of NATS"))
                }
                _ => address.trim().parse::<ServerAddr>().map_err(|error| error.to_string()),
            }
        };
        // The URL itself may hold a password.
        let wrong =
            |cause| FleetError::Access(format!("--nats: {cause}; expected nats://HOST:4222 or tls://HOST"));
        self.url.split(',').map(parse).collect::<Result<_, _>>().map_err(wrong)
    }

    /// Connects, and creates the buckets unless they exist.
    pub(crate) async fn connect(&self, name: &str) -> Result<Nats, FleetError> {
        let client = self.client(name).await?;
        let context = jetstream::new(client.clone());
        let open = async |bucket: &str, max_age| {
            let failed = "opening a bucket (JetStream)";
            let mut attempts = ATTEMPTS;
            while let Err(error) = context.create_stream(bucket_stream(bucket, max_age)).await {
                attempts -= 1;
                if attempts == 0 || !is_being_created(&error) {
                    return Err(FleetError::nats(failed)(error));
                }
                tokio::time::sleep(PAUSE).await;
            }
            context.get_key_value(bucket).await.map_err(FleetError::nats(failed))
        };
        let agents = open("inrush-agents", PRESENCE_AGE).await?;
        let runs = open("inrush-runs", RUN_AGE).await?;
        Ok(Nats { client, agents, runs })
    }

    async fn client(&self, name: &str) -> Result<Client, FleetError> {
        let addresses = self.addresses()?;
        let mut options = ConnectOptions::new().name(format!("inrush fleet {name}"));
        // The client leaves the user, the password and the token in an address to its caller.
        if let Some(address) = addresses.first() {
            options = match (decoded(address.username())?, decoded(address.password())?) {
                (Some(user), Some(password)) => options.user_and_password(user, password),
                (Some(token), None) => options.token(token),
                (None, _) => options,
            };
        }
        if let Some(creds) = &self.creds {
            let given = options.credentials_file(creds).await;
            options = given.map_err(FleetError::nats("reading the credentials"))?;
        }
        if let Some(ca) = &self.tls_ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &self.tls_identity {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        options.connect(addresses).await.map_err(FleetError::nats("connecting"))
    }
}

/// A part of an address, which the client returns in percent-encoding.
fn decoded(part: Option<&str>) -> Result<Option<String>, FleetError> {
    let decode = |part: &str| percent_decode_str(part).decode_utf8().map(Cow::into_owned);
    part.map(decode).transpose().map_err(FleetError::nats("reading the address"))
}

impl Nats {
    /// Puts a value into the bucket of runs.
    pub async fn put(&self, key: &str, value: &impl Serialize) -> Result<(), FleetError> {
        self.put_bytes(key, encode(value)?).await
    }

    /// Puts bytes into the bucket of runs.
    pub async fn put_bytes(&self, key: &str, bytes: Vec<u8>) -> Result<(), FleetError> {
        let put = self.runs.put(key, bytes.into()).await;
        put.map(drop).map_err(FleetError::nats("writing to the bucket of runs"))
    }

    /// Sends a message to all listeners; it is in the client's buffer afterwards.
    pub async fn publish(&self, subject: String, message: &impl Serialize) -> Result<(), FleetError> {
        let sent = self.client.publish(subject, encode(message)?.into()).await;
        sent.map_err(FleetError::nats("sending"))
    }
}

/// The stream behind a bucket, with the form that clients of NATS give it (ADR-8). The client's own call asks for the
/// account first, and does not understand the answer of servers before 2.10.
fn bucket_stream(bucket: &str, max_age: Duration) -> Config {
    Config {
        name: format!("KV_{bucket}"),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        num_replicas: 1,
        storage: StorageType::Memory,
        max_age,
        ..Config::default()
    }
}

/// Tells whether another member creates the stream at this moment.
fn is_being_created(error: &CreateStreamError) -> bool {
    match error.kind() {
        CreateStreamErrorKind::JetStream(error) => error.error_code() == ErrorCode::STREAM_SUBJECT_OVERLAP,
        _ => false,
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, FleetError> {
    serde_json::to_vec(value).map_err(|error| FleetError::Settings(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_attempt_would_mend_is_refused_at_once() {
        let access = |url: &str, creds: Option<&str>| Access {
            url: url.to_owned(),
            creds: creds.map(PathBuf::from),
            tls_ca: None,
            tls_identity: None,
        };
        let told = |access: Access| access.check().unwrap_err().to_string();
        let scheme = told(access("nats://a:4222, ftp://b", None));
        assert!(scheme.starts_with("--nats: "), "{scheme}");
        assert!(scheme.ends_with("; expected nats://HOST:4222 or tls://HOST"), "{scheme}");
        let file = told(access("nats://a:4222", Some("/no/such/file")));
        assert!(file.starts_with("cannot read /no/such/file: "), "{file}");
        access("tls://a, nats://b:4222", None).check().unwrap();
    }

    #[test]
    fn the_credentials_in_an_address_are_decoded() {
        let address: ServerAddr = "nats://user:p%40ss%2Fw:rd@localhost:4222".parse().unwrap();
        assert_eq!(decoded(address.username()).unwrap().as_deref(), Some("user"));
        assert_eq!(decoded(address.password()).unwrap().as_deref(), Some("p@ss/w:rd"));
        assert_eq!(decoded(None).unwrap(), None);
        assert!(decoded(Some("%ff")).unwrap_err().to_string().starts_with("NATS: reading the address: "));
    }
}

//! The settings of a run as they travel to another machine.
//!
//! A setting travels as the text that its type prints, and is parsed and checked again where it arrives. Settings
//! of one machine do not travel: source addresses, the stack, the processes, and the clean rate. A
//! setting that names a file is refused on both sides, because the files of two machines differ.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::plan::choices::arrivals::Process;
use crate::plan::choices::expected::Statuses;
use crate::plan::choices::population::Population;
use crate::plan::choices::retry::Retry;
use crate::plan::choices::tls::Trust;
use crate::plan::choices::workload::{Body, Field, Length, Method, Spec, Think};
use crate::plan::config::Sockets;
use crate::plan::terms::digest::Digest;
use crate::plan::terms::target::Url;
use crate::plan::terms::target::addressing::{ConnectTo, Resolve};

/// The beginnings of texts that name a file, beside those of arrival processes.
const FILES: [&str; 3] = ["urls:", "unix:", "@"];

/// Refuses a setting that names a file.
fn without_file(text: String) -> Result<String, String> {
    if Process::names_file(&text) || FILES.iter().any(|beginning| text.starts_with(beginning)) {
        return Err(format!("'{text}' names a file of one machine; a fleet accepts settings without files"));
    }
    Ok(text)
}

fn write<S: Serializer>(setting: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&without_file(setting.to_string()).map_err(S::Error::custom)?)
}

fn read<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    let text = without_file(String::deserialize(deserializer)?).map_err(D::Error::custom)?;
    text.parse().map_err(D::Error::custom)
}

macro_rules! travels_as_text {
    ($($setting:ty),*) => {$(
        impl Serialize for $setting {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                write(self, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $setting {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$setting, D::Error> {
                read(deserializer)
            }
        }
    )*};
}

travels_as_text!(
    Body, ConnectTo, Digest, Field, Length, Method, Population, Process, Resolve, Retry, Sockets, Spec,
    Statuses, Think, Trust, Url
);

impl Display for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if matches!(self, Trust::Roots(_)) { "@" } else { "" };
        write!(f, "{mark}{}", self.name())
    }
}

impl FromStr for Trust {
    type Err = String;

    fn from_str(text: &str) -> Result<Trust, String> {
        match text {
            "system" => Ok(Trust::System),
            "anybody" => Ok(Trust::Anybody),
            _ => Err(format!("'{text}' is not a trust: expected system or anybody")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use base::{Nanos, PerSecond, Seed};
    use serde_json::Value;

    use super::*;
    use crate::plan::choices::tls::{KeyExchange, TlsVersion};
    use crate::plan::config::{Client, Close, Config, Processes};
    use crate::plan::terms::target::addressing::Family;

    /// Every setting that travels, each with a value that is not its default.
    fn config() -> Config {
        let arrivals = "on-off:6,5%,10s".parse().unwrap();
        let client = Client::SClient { rate: PerSecond(2_000.0), arrivals, sockets: "400".parse().unwrap() };
        let mut config = Config::new(vec!["https://server.test/a?b=c".parse().unwrap()], client);
        config.threads = NonZeroU32::new(3).unwrap();
        (config.duration, config.warmup) = (Nanos::from_secs(40), Nanos::from_secs(7));
        config.connect_timeout = Nanos::from_millis(600);
        config.request_timeout = Nanos::from_secs(9);
        config.workload = "specweb99:12".parse().unwrap();
        config.requests_per_connection = Some("2..5".parse().unwrap());
        config.connections = NonZeroU32::new(6);
        config.streams = NonZeroU32::new(8);
        config.think = Some("0ms..20ms".parse().unwrap());
        config.form.method = Some("PUT".parse().unwrap());
        config.form.fields = vec!["Accept: text/html".parse().unwrap()];
        config.form.body = Some("a=b".parse().unwrap());
        config.follow = true;
        config.retry = "exponential:10ms,1s,5".parse().unwrap();
        config.expected.status = "200,4xx".parse().unwrap();
        config.expected.length = Some(12);
        config.expected.digest = Some(format!("sha256:{}", "ab".repeat(32)).parse().unwrap());
        config.expected.deadline = Some(Nanos::from_millis(300));
        config.populations =
            vec!["idle:60,half-request".parse().unwrap(), "slow-read:5,1KiB/s".parse().unwrap()];
        config.tls.trust = Trust::Anybody;
        config.tls.resume = !config.tls.resume;
        config.addressing.connect_to = vec!["server.test::127.0.0.1:8443".parse().unwrap()];
        config.addressing.resolve = vec!["127.0.0.1:8443:127.0.0.2".parse().unwrap()];
        config.tls.server_name = Some("sni.test".to_owned());
        config.tls.version = Some(TlsVersion::V1_2);
        config.tls.key_exchange = KeyExchange::Classical;
        config.addressing.family = Some(Family::V4);
        config.seed = Seed(2);
        config.close = Close::Reset;
        config.interval = Nanos::from_millis(250);
        config.own_this_server = true;
        config
    }

    /// Asserts that a setting, or each of its parts, differs from the other value.
    fn assert_differs(name: &str, setting: &Value, other: &Value) {
        match setting.as_object() {
            Some(parts) => parts.iter().for_each(|(name, part)| assert_differs(name, part, &other[name])),
            None => assert_ne!(setting, other, "{name} has its default here: a test would not see it lost"),
        }
    }

    #[test]
    fn settings_arrive_as_they_were() {
        let clients = NonZeroU32::new(9).unwrap();
        let usual = Config::new(Vec::new(), Client::Closed { clients });
        let sent = Config { processes: Processes::Auto, ..config() };
        let [text, of_usual] = [&sent, &usual].map(|config| serde_json::to_value(config).unwrap());
        assert_differs("config", &text, &of_usual);
        let clients =
            [Client::Closed { clients }, Client::Pending { connects: clients }, sent.client.clone()];
        for client in clients {
            let sent = Config { client, ..sent.clone() };
            let text = serde_json::to_value(&sent).unwrap();
            let arrived: Config = serde_json::from_str(&text.to_string()).unwrap();
            assert_eq!(arrived.describe(), sent.describe());
            assert_eq!(serde_json::to_value(&arrived).unwrap(), text);
            assert!(arrived.own_this_server, "no description has it");
        }
    }

    #[test]
    fn settings_of_one_machine_stay_there() {
        let mut sent = config();
        sent.source = Some("127.0.0.9".parse().unwrap());
        sent.clean_rate = Some(PerSecond(5.0));
        let arrived: Config = serde_json::from_str(&serde_json::to_string(&sent).unwrap()).unwrap();
        assert_eq!((arrived.source, arrived.clean_rate), (None, None));
    }

    #[test]
    fn file_setting_is_refused_by_both_sides() {
        let mut sent = config();
        sent.tls.trust = Trust::Roots("/etc/ca.pem".into());
        let refused = serde_json::to_string(&sent).unwrap_err().to_string();
        assert!(refused.contains("'@/etc/ca.pem' names a file of one machine"), "{refused}");
        let text = serde_json::to_string(&config()).unwrap();
        for (from, to) in
            [("a=b", "@/etc/passwd"), ("specweb99:12", "urls:/etc/passwd"), ("on-off:6,0.05,10s", "trace:/x")]
        {
            assert!(text.contains(from), "{text}");
            let refused = serde_json::from_str::<Config>(&text.replace(from, to)).unwrap_err().to_string();
            assert!(refused.contains("names a file of one machine"), "{refused}");
        }
    }

    #[test]
    fn an_order_with_more_than_settings_is_refused() {
        let text = serde_json::to_string(&config()).unwrap();
        let more = text.replacen('{', r#"{"command":"rm","#, 1);
        assert!(serde_json::from_str::<Config>(&more).is_err());
        let wrong = text.replace("specweb99:12", "specweb99:0");
        assert!(serde_json::from_str::<Config>(&wrong).is_err());
    }
}

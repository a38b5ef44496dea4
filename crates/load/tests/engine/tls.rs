//! The engine over TLS: the same figures, with full and resumed handshakes counted separately.

use std::sync::Arc;

use load::{Config, KeyExchange, Trust};
use record::{Outcome, Verdict};

use super::identity::{Identity, identity, identity_with};
use super::servers::Server;
use super::{assert_all, config, run};

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn secure(server: &Server, identity: &Identity) -> Config {
    let mut secure = config(server);
    secure.urls = vec![server.secure_url()];
    secure.tls.trust = Trust::Roots(identity.pem.path().to_owned());
    secure
}

#[test]
fn sessions_resume_what_the_first_has_agreed_upon() {
    let identity = identity();
    let server = Server::replying_over_tls(Arc::clone(&identity.config), REPLY);
    let result = run(secure(&server, &identity));
    assert_all(&result, Outcome::Ok);
    let handshakes = result.handshakes.unwrap();
    assert!(handshakes.resumed > 0 && handshakes.resumed_per_s > 0.0, "{handshakes:?}");
    assert!(handshakes.full + handshakes.resumed <= result.connections.established);
    let mut full = secure(&server, &identity);
    full.tls.resume = false;
    full.requests_per_connection = Some("3".parse().unwrap());
    let result = run(full);
    assert_all(&result, Outcome::Ok);
    let handshakes = result.handshakes.unwrap();
    assert!(handshakes.full > 0 && handshakes.resumed == 0, "{handshakes:?}");
    assert!(handshakes.full < result.outcomes.get(Outcome::Ok), "a connection has three requests");
}

#[test]
fn a_server_that_nobody_vouches_for_is_no_target() {
    let (identity, stranger) = (identity(), identity());
    let server = Server::replying_over_tls(Arc::clone(&stranger.config), REPLY);
    let refused = run(secure(&server, &identity));
    assert_all(&refused, Outcome::TlsFailed);
    assert_eq!(refused.verdict, Verdict::Unreachable);
    let said = refused.reasons.join(" ");
    assert!(said.contains("The first TLS failure: "), "{said}");
    let mut credulous = secure(&server, &identity);
    credulous.tls.trust = Trust::Anybody;
    assert_all(&run(credulous), Outcome::Ok);
}

#[test]
fn a_server_that_speaks_no_tls_is_named_so() {
    let identity = identity();
    let server = Server::greeting(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert_all(&run(secure(&server, &identity)), Outcome::TlsFailed);
}

#[test]
fn populations_shake_hands_too() {
    let identity = identity();
    let server = Server::replying_over_tls(Arc::clone(&identity.config), REPLY);
    let mut beside = secure(&server, &identity);
    beside.populations = vec!["idle:3".parse().unwrap(), "slow-read:2,1KiB/s".parse().unwrap()];
    let result = run(beside);
    assert_all(&result, Outcome::Ok);
    let slow = &result.populations["slow-read:2,1KiB/s"];
    assert_eq!(slow.outcomes.get(Outcome::TlsFailed) + slow.outcomes.get(Outcome::Malformed), 0, "{slow:?}");
    for population in result.populations.values() {
        assert_eq!(population.connections.established, population.clients, "{population:?}");
    }
}

#[test]
fn result_names_the_groups_that_the_server_chose() {
    for (hybrid, key_exchange, group) in [
        (true, KeyExchange::Hybrid, "X25519MLKEM768"),
        (true, KeyExchange::Classical, "X25519"),
        (false, KeyExchange::Hybrid, "X25519"),
    ] {
        let identity = if hybrid { identity_with(tls::provider()) } else { identity() };
        let server = Server::replying_over_tls(Arc::clone(&identity.config), REPLY);
        let mut asking = secure(&server, &identity);
        asking.tls.key_exchange = key_exchange;
        let result = run(asking);
        assert_all(&result, Outcome::Ok);
        assert_eq!(result.manifest.config["tls_key_exchange"], key_exchange.to_string());
        let handshakes = result.handshakes.unwrap();
        let all = handshakes.full + handshakes.resumed;
        assert!(all > 0, "{handshakes:?}");
        assert_eq!(handshakes.groups, [(group.to_owned(), all)].into());
    }
}

//! A session against a client of rustls, in memory.

mod support;

use std::fs;
use std::sync::Arc;

use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, Error, HandshakeKind, NamedGroup, SupportedProtocolVersion};
use support::{Identity, Pair, client, client_of, identity, trusting};
use tls::{Asked, Material, Sessions, is_a_request};

fn sessions(identities: &[&Identity]) -> Sessions {
    let files: Vec<_> = identities.iter().map(|identity| identity.files.clone()).collect();
    Sessions::new(Material::read(&files).unwrap()).unwrap()
}

#[test]
fn any_pieces_of_the_bytes_mean_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path(), "a", &["a.test"]);
    let sessions = sessions(&[&identity]);
    let text = b"GET / HTTP/1.1\r\n\r\n".repeat(3000);
    for version in [&TLS12, &TLS13] {
        for piece in [1, 7, 1000, usize::MAX] {
            let config = client(&[&identity], &[version], &["http/1.1"]);
            let mut pair = Pair::new(&config, "a.test", sessions.begin().unwrap());
            pair.piece = piece;
            pair.run().unwrap().unwrap();
            pair.says(&text);
            pair.client.send_close_notify();
            pair.run().unwrap().unwrap();
            assert_eq!(pair.told.established, Some(false));
            assert!(pair.told.bytes == text && pair.told.ended && pair.server.has_ended());
            pair.server.send(&text);
            pair.server.close();
            pair.run().unwrap().unwrap();
            assert!(pair.received() == (text.clone(), true));
        }
    }
}

#[test]
fn certificate_is_the_hosts_or_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = identity(folder.path(), "first", &["first.test", "both.test"]);
    let other =
        identity(folder.path(), "other", &["other.test", "both.test", "*.wild.test", "WWW.Other.Test"]);
    let sessions = sessions(&[&first, &other]);
    assert_eq!(sessions.names(), ["*.wild.test", "both.test", "first.test", "other.test", "www.other.test"]);
    for (name, expected) in [
        ("first.test", &first),
        ("other.test", &other),
        ("both.test", &first),
        ("x.wild.test", &other),
        ("www.other.test", &other),
    ] {
        let config = client(&[expected], &[&TLS13], &[]);
        Pair::new(&config, name, sessions.begin().unwrap()).run().unwrap().expect(name);
    }
    // The server sends its first certificate, and the client decides.
    for name in ["x.y.wild.test", "wild.test", "unknown.test", "127.0.0.1"] {
        let config = client(&[&first, &other], &[&TLS13], &[]);
        let refused = Pair::new(&config, name, sessions.begin().unwrap()).run();
        assert!(!matches!(refused, Ok(Ok(()))), "{name}");
        let mut pair = Pair::new(&trusting(&config), name, sessions.begin().unwrap());
        pair.run().unwrap().expect(name);
        assert!(pair.client.peer_certificates().unwrap()[0] == first.certificate, "{name}");
    }
}

#[test]
fn a_hosts_own_certificates_come_before_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let all = identity(folder.path(), "all", &["a.test", "b.test", "c.test"]);
    let mut own = identity(folder.path(), "own", &["b.test"]);
    own.files.host = Some(2);
    let mut other = identity(folder.path(), "other", &["*.b.test", "lent.test"]);
    other.files.host = Some(2);
    let parent = sessions(&[&all, &own, &other]);
    let worker = Sessions::from_bytes(&parent.to_bytes()).unwrap();
    // Host 1 has a.test and lent.test, host 2 b.test and all names below it, and nobody has c.test.
    let host_of = |name: &str| match name {
        "a.test" | "lent.test" => Some(1),
        name if name.ends_with("b.test") => Some(2),
        _ => None,
    };
    for sessions in [&parent, &worker] {
        sessions.choose_hosts(std::sync::Arc::new(host_of));
        for (name, expected, asked) in [
            ("a.test", &all, (1, 0)),
            ("B.test", &own, (2, 1)),
            ("x.b.test", &other, (2, 2)),
            ("x.y.b.test", &own, (2, 1)),
            ("c.test", &all, (0, 0)),
            ("lent.test", &other, (1, 2)),
            ("unknown.test", &all, (0, 0)),
        ] {
            // A client that trusts every name: which certificate it gets is what matters.
            let config = client(&[&all, &own, &other], &[&TLS13], &[]);
            let mut pair = Pair::new(&trusting(&config), name, sessions.begin().unwrap());
            pair.run().unwrap().expect(name);
            let shown = pair.client.peer_certificates().unwrap();
            assert!(shown[0] == expected.certificate, "{name}");
            let (host, certificate) = asked;
            assert_eq!(pair.told.asked, Some(Asked { host, certificate }), "{name}");
        }
    }
    for (certificate, name, may) in [
        (0, "a.test", true),
        (0, "C.test", true),
        (0, "b.test", true),
        (0, "x.b.test", false),
        (1, "b.test", true),
        (1, "x.y.b.test", true),
        (1, "x.b.test", false),
        (2, "x.b.test", true),
        (2, "b.test", false),
        (9, "b.test", false),
    ] {
        assert_eq!(parent.speaks_for(certificate, name), may, "{certificate} {name}");
    }
    for (name, has) in [("a.test", true), ("*.b.test", true), ("x.y.b.test", false), ("unknown.test", false)]
    {
        assert_eq!(parent.vouches_for(name), has, "{name}");
    }
}

#[test]
fn tickets_resume_with_whoever_has_the_same_keys() {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path(), "a", &["a.test"]);
    let sessions = sessions(&[&identity]);
    let worker = Sessions::from_bytes(&sessions.to_bytes()).unwrap();
    let stranger = self::sessions(&[&identity]);
    for version in [&TLS12, &TLS13] {
        let config = client(&[&identity], &[version], &[]);
        for (server, resumed) in [(&sessions, false), (&sessions, true), (&worker, true), (&stranger, false)]
        {
            let mut pair = Pair::new(&config, "a.test", server.begin().unwrap());
            pair.run().unwrap().unwrap();
            assert_eq!(pair.told.established, Some(resumed), "{version:?}");
            assert_eq!(pair.client.handshake_kind() == Some(HandshakeKind::Resumed), resumed);
        }
    }
}

#[test]
fn other_protocols_are_refused_with_an_alert() {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path(), "a", &["a.test"]);
    let sessions = sessions(&[&identity]);
    for (offered, chosen) in [
        (&["http/1.1", "h2"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&["spdy/3", "http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let config = client(&[&identity], &[&TLS13], offered);
        let mut pair = Pair::new(&config, "a.test", sessions.begin().unwrap());
        pair.run().unwrap().unwrap();
        assert_eq!(pair.client.alpn_protocol(), chosen.map(str::as_bytes), "{offered:?}");
    }
    let config = client(&[&identity], &[&TLS13], &["spdy/3"]);
    let refused = Pair::new(&config, "a.test", sessions.begin().unwrap()).run();
    assert_eq!(refused, Err(Error::NoApplicationProtocol));
    let mut session = sessions.begin().unwrap();
    assert!(session.receive(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", |_| panic!("nothing to tell")).is_err());
    assert!(session.wants_write(), "an alert");
    let mut session = sessions.begin().unwrap();
    let endless = [&b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"[..], &[0; 20_000]].concat();
    assert!(session.receive(&endless, |_| panic!("nothing to tell")).is_err(), "a hello has a bound");
}

#[test]
fn certificates_are_replaced_for_the_next_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) =
        (identity(folder.path(), "old", &["a.test"]), identity(folder.path(), "new", &["a.test"]));
    let other = identity(folder.path(), "other", &["b.test"]);
    let sessions = sessions(&[&old, &other]);
    let worker = Sessions::from_bytes(&sessions.to_bytes()).unwrap();
    let mut under_way = Pair::new(&client(&[&old], &[&TLS13], &[]), "a.test", sessions.begin().unwrap());
    under_way.run().unwrap().unwrap();
    fs::copy(&new.files.certificate, &old.files.certificate).unwrap();
    fs::copy(&new.files.key, &old.files.key).unwrap();
    // The key of the other certificate is malformed now.
    fs::write(&other.files.key, "half a ke").unwrap();
    let (has_changed, errors) = sessions.read_again();
    assert!(has_changed);
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert!(error.to_string().starts_with(&format!("--tls-key {}: ", other.files.key.display())), "{error}");
    let (has_changed, errors) = sessions.read_again();
    assert_eq!((has_changed, errors.len()), (false, 1), "the files are as they were");
    worker.replace_from_bytes(&sessions.to_bytes());
    worker.replace_from_bytes(b"nonsense");
    for server in [&sessions, &worker] {
        Pair::new(&client(&[&new], &[&TLS13], &[]), "a.test", server.begin().unwrap())
            .run()
            .unwrap()
            .unwrap();
        let refused = Pair::new(&client(&[&old], &[&TLS13], &[]), "a.test", server.begin().unwrap()).run();
        assert!(matches!(refused, Ok(Err(Error::InvalidCertificate(_)))), "{refused:?}");
        Pair::new(&client(&[&other], &[&TLS13], &[]), "b.test", server.begin().unwrap())
            .run()
            .unwrap()
            .unwrap();
    }
    under_way.says(b"still here");
    under_way.run().unwrap().unwrap();
    assert_eq!(under_way.told.bytes, b"still here");
}

#[test]
fn requests_and_records_begin_differently() {
    assert!(b"GPHDOTCgp\r\n".iter().all(|first| is_a_request(*first)));
    assert!([22, 0x80, 0, 21, 23, 0xff].iter().all(|first| !is_a_request(*first)));
}

/// The group and the kind of a handshake with a client of this provider, which sends its share for `hint` if it has one.
fn handshake_of(
    provider: CryptoProvider,
    version: &'static SupportedProtocolVersion,
    hint: Option<NamedGroup>,
) -> (NamedGroup, HandshakeKind) {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path(), "a", &["a.test"]);
    let mut config = ClientConfig::clone(&client_of(provider, &[&identity], &[version], &[]));
    let store = ClientSessionMemoryCache::new(1);
    if let Some(hint) = hint {
        store.set_kx_hint("a.test".try_into().unwrap(), hint);
    }
    config.resumption = Resumption::store(Arc::new(store));
    let mut pair = Pair::new(&Arc::new(config), "a.test", sessions(&[&identity]).begin().unwrap());
    pair.run().unwrap().unwrap();
    let group = pair.client.negotiated_key_exchange_group().unwrap().name();
    (group, pair.client.handshake_kind().unwrap())
}

#[test]
fn hybrid_group_is_used_if_the_client_prefers_it() {
    let classical = rustls::crypto::ring::default_provider;
    let last = || {
        let mut provider = tls::provider();
        provider.kx_groups.rotate_left(1);
        provider
    };
    for (provider, version, group) in [
        (tls::provider(), &TLS13, NamedGroup::X25519MLKEM768),
        (classical(), &TLS13, NamedGroup::X25519),
        (last(), &TLS13, NamedGroup::X25519),
        (tls::provider(), &TLS12, NamedGroup::X25519),
    ] {
        assert_eq!(handshake_of(provider, version, None), (group, HandshakeKind::Full));
    }
}

#[test]
fn client_without_a_hybrid_share_is_asked_for_it() {
    let again = handshake_of(tls::provider(), &TLS13, Some(NamedGroup::X25519));
    assert_eq!(again, (NamedGroup::X25519MLKEM768, HandshakeKind::FullWithHelloRetryRequest));
}

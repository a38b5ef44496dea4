//! A helper process: makes the calls that may wait for a disk in place of the main process.
//!
//! It answers the request for itself, with sites that keep nothing, and drops the answer. The kernel then
//! has the names and the contents in memory.

use std::io;

use base::{Clock, Nanos, RealClock};
use http_semantics::{Header, Request};
use rustix::io::{pread, retry_on_intr};
use site::{Hosts, Sites};

use super::need::{Need, TOUCH_BYTES};
use crate::ground::error::{ServeError, system};
use crate::processes::{Control, Heard, Message, Sent, Worker, orphaned};

/// Fetches on the parent's request until the parent tells it to end. Blocks.
pub fn work(worker: Worker, control: Control) -> Result<(), ServeError> {
    let mut helper = Helper::new(worker.plan.hosts());
    let reconfigure = worker.reconfigurer();
    loop {
        match control.receive().map_err(system("understand the parent"))? {
            Heard::Message(message) => {
                helper.serve(message, &control).map_err(system("answer the parent"))?;
            }
            Heard::Changed(text) => reconfigure(&text),
            Heard::Drain => return Ok(()),
            Heard::Nothing => control.wait(),
            // A helper has no connections to close.
            Heard::Reclaim => {}
            Heard::Gone => orphaned(),
        }
    }
}

struct Helper {
    sites: Sites,
    clock: RealClock,
    scratch: Box<[u8]>,
}

impl Helper {
    fn new(hosts: &Hosts) -> Helper {
        let hosts = hosts.with(|options| {
            options.fetches_only = true;
            // An errand names neither the host that the client asked for nor TLS, on which redirects may depend.
            options.skips_redirects = true;
            options.cache.entries = 0;
            options.cache.fresh_for = Nanos::ZERO;
        });
        let clock = RealClock::new();
        Helper { sites: hosts.sites(clock), clock, scratch: vec![0; TOUCH_BYTES].into_boxed_slice() }
    }

    /// Fetches, and sends the notice.
    fn serve(&mut self, message: Message, control: &Control) -> io::Result<()> {
        let (id, need) = Need::read(message).ok_or(io::ErrorKind::InvalidData)?;
        match need {
            Some(Need::Look { host, path, encodings }) => self.look_up_path(host, &path, &encodings),
            Some(Need::Touch { file, offset }) => {
                // The main process finds out about a read error itself.
                let _ = retry_on_intr(|| pread(&*file.0, &mut *self.scratch, offset));
            }
            // The main process finds the contents missing once more.
            None => {}
        }
        match control.send(&id.to_ne_bytes(), &[])? {
            Sent::Yes => Ok(()),
            Sent::Gone => orphaned(),
            Sent::Full => Err(io::Error::other("the parent has sent more than one errand")),
        }
    }

    fn look_up_path(&mut self, host: u16, path: &str, encodings: &[u8]) {
        let fields = [Header { name: "Accept-Encoding", value: encodings }];
        let request = Request { fields: &fields, ..Request::get(path) };
        self.sites.respond_as(host, &request, self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::super::need::tests::need_of;
    use super::super::need::{SameFile, read_notice};
    use super::*;

    #[test]
    fn every_fetch_is_answered_by_its_id() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"content").unwrap();
        let root = Arc::new(site::Root::open(folder.path()).unwrap());
        let mut helper = Helper::new(&Hosts::one(root, site::Options::default()));
        let (main, control) = Control::pair().unwrap();
        let open = Arc::new(File::open(folder.path().join("file")).unwrap().into());
        let touch = Need::Touch { file: SameFile(open), offset: 0 };
        let needs =
            [need_of("/file"), need_of("/missing"), need_of("/../escape"), need_of("/%zz"), touch.clone()];
        for (id, need) in (5..).zip(needs) {
            let (bytes, file) = need.message(id);
            main.send(&bytes, file.as_slice()).unwrap();
            let Heard::Message(message) = control.receive().unwrap() else { panic!() };
            helper.serve(message, &control).unwrap();
            let Heard::Message(notice) = main.receive().unwrap() else { panic!() };
            assert_eq!(read_notice(&notice.bytes), Some(id));
        }
        assert!(helper.sites.counts().misses > 0);
        // The file's descriptor was lost on the way.
        let (bytes, _) = touch.message(9);
        helper.serve(Message { bytes, ..Message::default() }, &control).unwrap();
        assert!(matches!(main.receive().unwrap(), Heard::Message(_)));
        assert!(helper.serve(Message::default(), &control).is_err());
    }

    #[test]
    fn file_under_a_redirect_of_other_hosts_is_fetched() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"content").unwrap();
        let root = Arc::new(site::Root::open(folder.path()).unwrap());
        let redirects = vec!["/* https://example.org/* 301".parse().unwrap()];
        let rules = site::LiveRules::new(site::Rules { redirects, ..site::Rules::default() });
        let mut helper = Helper::new(&Hosts::one(root, site::Options { rules, ..site::Options::default() }));
        helper.look_up_path(0, "/file", b"");
        assert_eq!((helper.sites.counts().redirects, helper.sites.counts().misses), (0, 1));
    }
}

//! The locality-aware mechanism behind the common contract; [`locality`](crate::locality) names the paper and
//! the deviations. Listeners must be registered as locked. Deadlines are not used: the loops keep theirs in
//! [`Timers`](crate::Timers).

use std::io;
use std::os::fd::RawFd;

use base::setting::{Chosen, Declaration, Setting};
use base::{Nanos, RealClock};

use super::{Change, Mechanism, Poll, poll_bits, poll_event};
use crate::capabilities::Capabilities;
use crate::locality::{self, LONGEST, PollingSets, Rule, Settings};
use crate::wait_settings::{NAP, SLEEP_THRESHOLD, Tunable};
use crate::{Event, Interest, Token, Waited};

pub(crate) static LIVE_COUNTER: Setting<Tunable> = Setting::new(Declaration {
    flag: "--fdm-live-counter",
    value: "N|adaptive",
    help: "N, where poll set k is polled every N^k calls; adaptive tunes it [default: 3]",
    ..ALONE
});

pub(crate) static RULE: Setting<Rule> = Setting::parsed_by(
    Declaration {
        flag: "--fdm-rule",
        value: "RULE",
        help: "rule that moves descriptors between poll sets: silences (default) or counter",
        ..ALONE
    },
    |text| match text {
        "silences" => Ok(Rule::Silences),
        "counter" => Ok(Rule::Counter),
        _ => Err("expected silences or counter".to_owned()),
    },
);

/// What the settings of this mechanism alone have in common.
const ALONE: Declaration = Declaration {
    flag: "",
    value: "",
    help: "",
    more: None,
    without: "has no poll sets of different frequency",
    in_kernel: None,
};

fn settings(chosen: &Chosen) -> Settings {
    let mut settings = Settings::default();
    match chosen.get(&LIVE_COUNTER) {
        Some(Tunable::Fixed(number)) => settings.live_counter = number,
        Some(Tunable::Adaptive) => settings.adapts.live_counter = true,
        None => {}
    }
    match chosen.get(&SLEEP_THRESHOLD) {
        Some(Tunable::Fixed(number)) => settings.sleep_threshold = number,
        Some(Tunable::Adaptive) => settings.adapts.sleep_threshold = true,
        None => {}
    }
    settings.rule = chosen.get(&RULE).unwrap_or(settings.rule);
    settings.nap = chosen.get(&NAP).unwrap_or(settings.nap);
    settings
}

/// The locality-aware mechanism.
pub struct Fdm {
    sets: PollingSets,
    /// Reports of the sets, before they are translated for the contract.
    reported: Vec<locality::Event>,
}

impl Fdm {
    /// Empty sets with these settings. Timers end the loops' waits, and most timers have no deadline behind
    /// them any more. No such timer is worth a poll of every set, so `freshness` is [`LONGEST`].
    pub fn with(settings: Settings) -> Fdm {
        let settings = Settings { freshness: LONGEST, ..settings };
        Fdm { sets: PollingSets::new(settings, RealClock::new()), reported: Vec::new() }
    }
}

impl Mechanism for Fdm {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "fdm",
        settings: &[&LIVE_COUNTER, &RULE, &SLEEP_THRESHOLD, &NAP],
        ..Poll::CAPABILITIES
    };
    const SPINS: u32 = 100;

    fn new() -> io::Result<Fdm> {
        Ok(Fdm::with(Settings::default()))
    }

    fn configured(chosen: &Chosen) -> io::Result<Fdm> {
        Ok(Fdm::with(settings(chosen)))
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        let Some(interest) = change.to.filter(|interest| *interest != Interest::None) else {
            // poll reports a member's hang-ups even without interest.
            self.sets.unregister(change.fd);
            return Ok(());
        };
        let (bits, payload) = (poll_bits(interest), change.token.0);
        if !self.sets.update(change.fd, bits, payload, None) {
            self.sets.register(change.fd, bits, payload, change.locked);
        }
        Ok(())
    }

    fn closing(&mut self, fd: RawFd) {
        self.sets.unregister(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let waited = self.sets.wait(&mut self.reported, timeout)?;
        events.extend(self.reported.drain(..).map(|event| poll_event(Token(event.payload), event.bits)));
        Ok(waited)
    }
}

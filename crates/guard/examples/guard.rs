//! The smallest guard: `cargo run -p guard --example guard -- :8080`, as root, until it is killed.

use base::{Clock, Nanos, RealClock};
use guard::{Guard, HookChoice, Place, Server, Settings, Wanted};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("name a listener, such as :8080")?.parse()?;
    let place = Place::find(&Server::AtAddress, Some(address))?;
    let wanted = Wanted { hook: Some(HookChoice::Auto), ..Wanted::default() };
    let clock = RealClock::new();
    let settings = Settings { target: Nanos::from_millis(20), wanted };
    let mut guard = Guard::open(place, settings, clock.now())?;
    sys::say!("guarding {}", guard.description());
    loop {
        sys::readiness::poll::wait(&mut [], Some(guard.due().saturating_sub(clock.now())))?;
        for event in guard.tick(clock.now()) {
            sys::say!("{event}");
        }
    }
}

//! Clients: the load's Poisson arrivals, and the clients beside it.

use base::{Nanos, Rng};
use rand::RngExt;
use rand_distr::Exp1;

use super::{Beside, Scenario};

/// The seconds from each SYN to the next one, with `tcp_syn_linear_timeouts` 4: SYNs again after 1, 2, 3, 4, 5, 7, 11 s.
const RETRANSMISSIONS: [u64; 7] = [1, 1, 1, 1, 1, 2, 4];

/// One connection, and its client.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The time at which it was due.
    pub due: Nanos,
    /// SYNs that were dropped.
    pub tries: u8,
    /// The identity's position among all SYNs, from 0 to 1; the same for each retransmission.
    pub identity: f64,
    /// `None` for a client of the load.
    pub beside: Option<Beside>,
}

impl Client {
    /// The time of the next SYN after a dropped one; `None` for a client that gives up.
    pub fn again(&mut self, now: Nanos, patience: Nanos) -> Option<Nanos> {
        let at = now + Nanos::from_secs(*RETRANSMISSIONS.get(usize::from(self.tries))?);
        self.tries += 1;
        (at <= self.due + patience).then_some(at)
    }
}

/// Draws all clients of a run.
pub fn draw(scenario: &Scenario, draws: &mut Rng) -> Vec<Client> {
    let mut clients = Vec::new();
    let capacity = scenario.capacity();
    let mut at = Nanos::ZERO;
    for (until, times) in &scenario.load {
        loop {
            let gap: f64 = draws.sample(Exp1);
            let next = at.saturating_add(Nanos::from_secs_f64((gap / (capacity * times)).min(1e6)));
            if next >= *until {
                at = *until;
                break;
            }
            at = next;
            clients.push(Client { due: at, tries: 0, identity: draws.random(), beside: None });
        }
    }
    for beside in &scenario.beside {
        clients.extend((0..beside.clients).map(|nth| Client {
            due: beside.from + beside.within * u64::from(nth) / u64::from(beside.clients),
            tries: 0,
            identity: draws.random(),
            beside: Some(*beside),
        }));
    }
    clients
}

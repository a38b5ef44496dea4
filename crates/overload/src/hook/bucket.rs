//! The hook of a token bucket in the kernel: a program on devices, or at a cgroup, refuses the SYNs.

use std::io;

use base::{Clock, Nanos, RealClock};
use bpf::admission::{LimitTable, Limits};

use super::{Admission, Hook};

/// Refuses SYNs to one accept queue by the limits of a program. The program's owner keeps it attached.
pub struct BucketHook {
    name: &'static str,
    table: LimitTable,
    queue: usize,
    /// True while the queue has limits.
    limits: bool,
    /// The time for which limits hold; `None` for ever.
    lasting: Option<Nanos>,
}

impl BucketHook {
    /// The hook of one of the table's queues. `name` says where the program is.
    pub fn new(name: &'static str, table: LimitTable, queue: usize) -> BucketHook {
        BucketHook { name, table, queue, limits: false, lasting: None }
    }

    /// Makes limits end by themselves. [`Hook::admit`] renews them. So a process that is stopped refuses nobody for longer.
    pub fn lasting(self, time: Nanos) -> BucketHook {
        BucketHook { lasting: Some(time), ..self }
    }
}

impl Hook for BucketHook {
    fn name(&self) -> &'static str {
        self.name
    }

    fn admit(&mut self, admission: &Admission) -> io::Result<()> {
        let limits = !admission.is_all();
        if limits {
            let limits = Limits {
                interval: admission.interval(),
                burst: admission.burst_time(),
                new_are_free: admission.new_are_free,
                until: self.lasting.map(|time| RealClock::new().now() + time),
            };
            self.table.limit(self.queue, &limits);
        } else if self.limits {
            self.table.admit_all(self.queue);
        }
        self.limits = limits;
        Ok(())
    }

    fn refused(&mut self) -> io::Result<u64> {
        Ok(self.table.totals(self.queue).dropped)
    }

    fn seen(&self) -> Option<u64> {
        let totals = self.table.totals(self.queue);
        Some(totals.passed + totals.dropped)
    }
}

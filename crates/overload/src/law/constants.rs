//! The numbers of the law; most are multiples of the one setting, the target delay.
//!
//! The sweep in `docs/decisions/0017-the-accept-queue-is-bounded-by-time.md` chose them.
//! `cargo run --release -p inrush-overload --example sweep` repeats it.

/// The constants of the law. Times are in target delays, so that one setting moves all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The estimated wait above which shedding begins, in target delays.
    pub enter_wait: f64,
    /// The hard bound of the queue while nothing is refused, in target delays. If more handshakes are in progress, as
    /// with more distant clients, the kernel answers with cookies.
    pub standing: f64,
    /// The estimated wait above which a shorter hard bound holds before shedding begins, in target delays.
    pub alarm: f64,
    /// The time ahead for which the growth of the queue is predicted at the current rates, in target delays.
    pub enter_horizon: f64,
    /// The fraction of the configured backlog that also begins shedding, if it is shorter than that wait.
    pub enter_full: f64,
    /// The consecutive ticks of growth before shedding begins. One tick is not enough: a burst or a stall of
    /// the processor makes a queue grow once, and then it shrinks again.
    pub enter_ticks: u32,
    /// The shortest expected queue that can begin shedding, in connections. A slow server has only a few
    /// connections in its target delay, and Poisson arrivals below its capacity exceed those.
    pub enter_queue: f64,
    /// The fraction of connections whose first request came too late above which shedding begins.
    pub enter_late: f64,
    /// The target of the wait while shedding, in target delays.
    pub set_point: f64,
    /// The shortest target of the queue, in connections: with a shorter one, a slow server would often run
    /// dry.
    pub set_point_queue: f64,
    /// The time in which an excess wait is worked off, in target delays. The loop is stable if this is at
    /// least about twice the clients' round trip.
    pub drain_time: f64,
    /// The fraction of the service rate that is admitted even when the wait is long.
    pub least_admitted: f64,
    /// The excess over the service rate that an empty queue admits. It decides how fast the estimate follows
    /// a server that has become faster.
    pub probe: f64,
    /// The largest value of this excess, which doubles each tick while the server takes more than its
    /// estimated rate. Otherwise a server would seem slow for seconds after a stall.
    pub most_probe: f64,
    /// The fraction of the service rate below which the load lets the queue drain, so that nothing is
    /// refused.
    pub drains_below: f64,
    /// The number of connections over which that load is measured: a tick of a slow server holds too few.
    pub drains_connections: f64,
    /// The consecutive ticks of such a load before nothing is refused. Clients of a rush may pause for one tick, and
    /// come back all at once.
    pub drain_ticks: u32,
    /// The consecutive ticks of a higher load before refusals begin again. A burst is shorter than that.
    pub refuse_ticks: u32,
    /// The time without refusals after which shedding ends, in target delays.
    pub leave_after: f64,
    /// The hard bound of the queue while it is long, and while shedding, in target delays at the service rate.
    pub backlog: f64,
    /// The growth factor of the bound in a tick in which handshakes did not fit into it.
    pub far_growth: f64,
    /// The largest factor of the bound for handshakes.
    pub most_far: f64,
    /// The smallest hard bound, in connections.
    pub least_backlog: u32,
    /// The time over which the service rate is measured, in target delays.
    pub memory: f64,
    /// The fewest connections over which the service rate is measured.
    pub memory_connections: f64,
    /// The time in which a measurement of the service rate loses its weight, in target delays.
    pub fade: f64,
    /// The weight of a tick in the smoothed rate of arrivals.
    pub smoothing: f64,
    /// The time in which the share is corrected for missing arrivals, in target delays.
    pub correction: f64,
    /// The largest share at which the refused SYNs show the number of all SYNs.
    pub most_counted: f64,
    /// The burst of a token bucket while nothing is refused, in target delays at the measured service rate; 0 without a
    /// bucket then.
    pub opening: f64,
    /// The burst of a token bucket, in target delays at the measured service rate.
    pub burst: f64,
    /// The smallest burst of a token bucket, in connections.
    pub least_burst: f64,
}

impl Constants {
    /// The constants that the sweep chose.
    pub const CHOSEN: Constants = Constants {
        enter_wait: 2.5,
        standing: 7.5,
        alarm: 1.0,
        enter_horizon: 0.25,
        enter_full: 0.9,
        enter_ticks: 2,
        enter_queue: 64.0,
        enter_late: 0.25,
        set_point: 0.2,
        set_point_queue: 4.0,
        drain_time: 5.0,
        least_admitted: 0.1,
        probe: 0.2,
        most_probe: 1.0,
        drains_below: 0.9,
        drains_connections: 8.0,
        drain_ticks: 2,
        refuse_ticks: 4,
        leave_after: 25.0,
        backlog: 3.0,
        far_growth: 1.5,
        most_far: 3.3,
        least_backlog: 64,
        memory: 1.0,
        memory_connections: 16.0,
        fade: 50.0,
        smoothing: 0.3,
        correction: 10.0,
        most_counted: 0.8,
        opening: 2.0,
        burst: 0.2,
        least_burst: 8.0,
    };
}

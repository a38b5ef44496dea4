//! The server's counters, and how the loops publish them.
//!
//! Each loop counts for itself, in plain integers. It publishes a copy at most every [`PUBLISH_EVERY`], and before it
//! goes to sleep with something new. Publishing takes one uncontended lock; counting a request takes none. Readers
//! see figures that are at most [`PUBLISH_EVERY`] old.

use std::borrow::Borrow;
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Nanos, lock};
use connection::PeerCounts;
use serde::Serialize;
use sys::socket::AcceptQueue;

/// Maximum age of published figures.
pub const PUBLISH_EVERY: Nanos = Nanos::from_millis(10);

base::counts! {
    /// Totals of one event loop.
    pub struct LoopCounts {
        /// Connections accepted.
        accepts,
        /// Visits to ready listeners in which connections were accepted.
        accept_phases,
        /// Calls of get-events; with a pool of threads or processes, waits for a connection that have ended.
        waits,
        /// Events reported.
        events,
        /// Events for a connection that no longer exists.
        stale_events,
        /// Connections that have ended.
        closed,
        /// Connections that had not finished when the drain timeout ended.
        cut_off_at_shutdown,
        /// Connections that had died in the accept queue.
        aborted_in_queue,
        /// Accepts that found no descriptor: EMFILE, ENFILE.
        no_descriptor,
        /// Connections answered 503: the server had no free connection slot or descriptor, and no idle connection to
        /// reclaim.
        turned_away,
        /// Idle connections closed to make room for new ones.
        reclaimed,
        /// Requests answered 503 because they had waited for too long during an overload.
        refused_late,
        /// Connections whose first request was answered 503 because it had waited for too long.
        late_connections,
        /// Accepts that failed for another reason on the server's side.
        accept_errors,
        /// Connections given up because no thread could be started for them.
        no_thread,
        /// Times that a new connection met the connection limit.
        limit_connections,
        /// Times that the limit of worker processes kept the server from starting another.
        limit_workers,
        /// Times that a connection's turn ended before its work did.
        limit_turn,
        /// Receives that ended because no receive buffer was free, and began again: ENOBUFS of an io_uring.
        no_receive_buffer,
        /// Times that the event mechanism's queue overflowed, after which the server looked at every descriptor.
        event_queue_overflows,
        /// Changes of interest handed to the event mechanism.
        interest_applied,
        /// Changes of interest taken back before they were applied.
        interest_taken_back,
        /// Worker processes started, including replacements.
        workers_started,
        /// Worker processes that ended unasked, or not in the way in which they were asked to.
        worker_deaths,
        /// Replacements of worker processes that could not be started.
        workers_not_started,
        /// Access log lines dropped: the disk was full, or too slow.
        log_lines_dropped,
        /// Connections of the admin interface closed to make room for another.
        admin_evicted,
        /// Requests to the admin interface refused for their host, their origin or their token.
        admin_refused,
        /// Streams of events that were refused because all places were taken.
        admin_streams_refused,
        /// Streams of events that were closed because their clients did not read.
        admin_streams_cut,
        /// Connections of the agent check closed to make room for another.
        agent_evicted,
        /// CPU time of worker processes, in microseconds.
        worker_cpu_time,
    }
    /// What the peers of its connections did.
    with peers: PeerCounts
}

base::counts! {
    /// A dispatcher's decisions by reason (SMPED), and their results.
    pub struct Decisions {
        /// Connections placed with a worker that had no connection.
        placed_on_idle_worker,
        /// Connections placed with the worker that came first by the schedule.
        placed_on_first_worker,
        /// Connections placed with a worker started because the first was full.
        placed_on_new_worker,
        /// Connections placed with another worker because the first was full and the pool could not grow.
        placed_on_next_worker,
        /// Times that a new connection found all workers full.
        all_workers_full,
        /// Times that a worker did not answer within 100 ms. Its untouched connections were placed anew.
        workers_silent,
        /// Workers stopped because they were idle.
        workers_stopped_idle,
        /// Connections that ended because their worker died.
        connections_lost_with_worker,
        /// Times that a worker's socket was full, so that a connection was passed on later.
        passing_on_waited,
    }
}

base::counts! {
    /// Totals of a server whose workers the kernel chooses at the SYN.
    pub struct SteeringCounts {
        /// Connections given to workers by the schedule.
        steered,
        /// Connections whose first worker by the schedule had C_max connections.
        steering_crowded,
        /// Connections among these that found all workers full. They wait in the accept queue of the first.
        steering_full,
        /// Connections that the kernel's hash placed, because no worker was alive.
        steering_unsteered,
        /// Connections moved from the accept queue of one worker to that of another.
        steering_migrated,
        /// Times that a worker with connections in its accept queue made no turn for 100 ms.
        workers_silent,
        /// Workers stopped because they were idle.
        workers_stopped_idle,
        /// Connections that ended because their worker died.
        connections_lost_with_worker,
    }
}

/// A worker, in its dispatcher's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WorkerFigures {
    /// Its place among the workers.
    pub place: usize,
    /// T_i: replies per second, smoothed.
    pub throughput_per_s: f64,
    /// C_i: with `fd`, connections placed with the worker and not yet reported closed. With `kernel`, its open
    /// connections plus those in its accept queue.
    pub connections: u32,
}

/// One stage of a staged server, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StageFigures {
    /// The stage's name.
    pub name: &'static str,
    /// Events that wait in its queue.
    pub queued: u64,
    /// The most that have waited at once since the start.
    pub longest_queue: u64,
    /// Threads of its pool.
    pub threads: u64,
    /// Events that a thread has taken since the start.
    pub processed: u64,
}

/// Admission by response time, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AdmissionFigures {
    /// Requests admitted per second; `None` without a limit.
    pub rate_per_s: Option<f64>,
    /// The smoothed 90th percentile of the response time; 0 before the first sample.
    pub response_time_p90_s: f64,
    /// Requests answered 503 since the start.
    pub refused: u64,
}

base::counts! {
    /// Counters of requests that memory could not answer.
    pub struct HelperCounts {
        /// Fetches requested from helpers.
        helper_fetches,
        /// Fetches repeated by another helper because the first had died.
        helper_fetches_repeated,
        /// Times that a connection waited for a helper. Other connections went on.
        helper_waits,
        /// Times that the main process made a call that may have waited for a disk, because helpers could not
        /// help.
        main_waits,
    }
}

base::counts! {
    /// Totals of the kernel cache since the start.
    pub struct KernelCacheCounts {
        /// Requests answered inside the kernel.
        kernel_cache_answers,
        /// Bytes of responses sent inside the kernel.
        kernel_cache_bytes,
        /// Packets that made the kernel cache send parts of a response after its first burst.
        kernel_cache_repeated,
        /// Connections that the kernel cache answered.
        kernel_cache_connections,
        /// Connections handed over to the server after answers inside the kernel.
        kernel_cache_handed_over,
        /// Connections left to the server because the kernel cache had no room for another.
        kernel_cache_no_room,
        /// Packets dropped for a wrong checksum.
        kernel_cache_damaged,
        /// Acknowledgements that the kernel's TCP did not need to see.
        kernel_cache_swallowed,
        /// Connections reset because an unfinished response was gone.
        kernel_cache_aborted,
        /// Answers missing from the access log because the log's ring buffer was full.
        kernel_cache_unlogged,
        /// Responses put into the kernel cache.
        kernel_cache_objects_put,
        /// Responses removed because their file changed.
        kernel_cache_objects_changed,
        /// Responses removed because no client asked for them.
        kernel_cache_objects_unused,
        /// Hot responses left out because all places were taken.
        kernel_cache_objects_refused,
    }
}

/// All figures of one loop, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Totals of the loop.
    pub loops: LoopCounts,
    /// Totals of the protocol.
    pub http: http_semantics::server::Counts,
    /// Totals of HTTP/2 alone.
    pub http2: http2::Counts,
    /// Totals of the service, by name.
    pub service: Vec<(&'static str, u64)>,
    /// Connections open now.
    pub connections: u64,
    /// The accept queues of its listeners together, at the time of publication.
    pub queue: AcceptQueue,
    /// The workers of its dispatcher, if it has one.
    pub workers: Vec<WorkerFigures>,
    /// The decisions of its dispatcher.
    pub decisions: Option<Decisions>,
    /// Totals of the kernel's hand-off; `None` without it.
    pub steering: Option<SteeringCounts>,
    /// Totals of the kernel cache, if there is one.
    pub kernel_cache: Option<KernelCacheCounts>,
    /// Its stages, if it has any.
    pub stages: Vec<StageFigures>,
    /// Its admission, if it is controlled.
    pub admission: Option<AdmissionFigures>,
}

impl Counters {
    /// Returns the totals of a server: of its loops, and of the loop that answers refused connections.
    pub fn of_server(loops: impl IntoIterator<Item = impl Borrow<Counters>>, refusals: &Board) -> Counters {
        let mut total = Counters::default();
        loops.into_iter().for_each(|counters| total.add(counters.borrow()));
        total.add_refusals(&refusals.read());
        total
    }

    /// Adds the counters of another loop.
    pub fn add(&mut self, other: &Counters) {
        self.loops.add(&other.loops);
        self.http.add(&other.http);
        self.http2.add(&other.http2);
        self.connections += other.connections;
        self.queue.depth += other.queue.depth;
        self.queue.limit += other.queue.limit;
        // The kernel's counters wrap, and so does their sum.
        self.queue.drops = self.queue.drops.wrapping_add(other.queue.drops);
        self.workers.extend_from_slice(&other.workers);
        if let Some(decisions) = &other.decisions {
            self.decisions.get_or_insert_default().add(decisions);
        }
        if let Some(steering) = &other.steering {
            self.steering.get_or_insert_default().add(steering);
        }
        if let Some(kernel_cache) = &other.kernel_cache {
            self.kernel_cache.get_or_insert_default().add(kernel_cache);
        }
        self.stages.extend_from_slice(&other.stages);
        self.admission = self.admission.take().or_else(|| other.admission.clone());
        if self.service.is_empty() {
            self.service.clone_from(&other.service);
        } else {
            for (sum, (_, count)) in self.service.iter_mut().zip(&other.service) {
                sum.1 += count;
            }
        }
    }

    /// Adds the totals of the loop that answers refused connections. These do not count as connections of the server,
    /// but what their peers did counts, and so does their HTTP.
    pub fn add_refusals(&mut self, refused: &Counters) {
        self.http.add(&refused.http);
        self.http2.add(&refused.http2);
        self.loops.peers.add(&refused.loops.peers);
    }

    /// Iterates over all totals with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let decisions = self.decisions.iter().flat_map(Decisions::named);
        let kernel_cache = self.kernel_cache.iter().flat_map(KernelCacheCounts::named);
        let steering = self.steering.iter().flat_map(SteeringCounts::named);
        let service = self.service.iter().copied();
        let of_loops = self.loops.named().chain(self.http.named()).chain(self.http2.named()).chain(service);
        of_loops.chain(decisions).chain(steering).chain(kernel_cache)
    }

    /// Returns the mean number of connections accepted per accept phase (Brecht 2004, equation 1); 0 before the
    /// first.
    pub fn mean_accepted_per_phase(&self) -> f64 {
        self.loops.accepts as f64 / self.loops.accept_phases.max(1) as f64
    }
}

/// Returns the description of a total, by its name.
pub fn meaning(name: &str) -> Option<&'static str> {
    let tables = [
        LoopCounts::MEANINGS,
        PeerCounts::MEANINGS,
        http_semantics::server::Counts::MEANINGS,
        http2::Counts::MEANINGS,
        site::Counts::MEANINGS,
        HelperCounts::MEANINGS,
        Decisions::MEANINGS,
        SteeringCounts::MEANINGS,
        KernelCacheCounts::MEANINGS,
    ];
    tables.into_iter().flatten().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

/// Adds figures as of the moment of reading: gauges, and totals that threads share.
type Live = Arc<dyn Fn(&mut Counters) + Send + Sync>;

/// Receives figures as soon as they are published.
type Shown = Arc<dyn Fn(&Counters) + Send + Sync>;

/// The place where a loop, or a group of threads, publishes its counters.
#[derive(Clone, Default)]
pub struct Board {
    published: Arc<Mutex<Counters>>,
    live: Option<Live>,
    shown: Option<Shown>,
}

impl Board {
    /// Makes a board whose readers also see the additions of `live`.
    pub fn with_live(live: impl Fn(&mut Counters) + Send + Sync + 'static) -> Board {
        Board { live: Some(Arc::new(live)), ..Board::default() }
    }

    /// Also passes published counters to `shown`, for example to show them to the parent process.
    pub fn shown_to(self, shown: impl Fn(&Counters) + Send + Sync + 'static) -> Board {
        Board { shown: Some(Arc::new(shown)), ..self }
    }

    /// Replaces the published counters.
    pub fn publish(&self, counters: Counters) {
        let mut published = self.lock();
        *published = counters;
        self.show(&published);
    }

    /// Adds one thread's totals to those of its group.
    pub fn merge(&self, counters: &Counters) {
        let mut published = self.lock();
        published.add(counters);
        self.show(&published);
    }

    /// Returns the counters published last.
    pub fn read(&self) -> Counters {
        let published = self.lock().clone();
        self.with_gauges(published)
    }

    fn with_gauges(&self, mut counters: Counters) -> Counters {
        if let Some(live) = &self.live {
            live(&mut counters);
        }
        counters
    }

    fn show(&self, published: &Counters) {
        if let Some(shown) = &self.shown {
            shown(&self.with_gauges(published.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        lock(&self.published)
    }
}

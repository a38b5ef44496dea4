use proptest::prelude::*;

use super::*;

fn pool(settings: &str, schedule: Schedule) -> Pool {
    let settings: SmpedSettings = settings.parse().unwrap();
    let mut pool = Pool::new(&settings, schedule, Seed(1), Nanos::ZERO);
    (0..settings.initial).for_each(|slot| pool.started(slot, Nanos::ZERO));
    pool
}

fn load(pool: &Pool, slot: usize) -> (f64, u32) {
    pool.loads().find(|(at, _)| *at == slot).map(|(_, load)| (load.throughput, load.connections)).unwrap()
}

#[test]
fn throughput_is_forgotten_at_the_last_close() {
    let mut pool = pool("p-min=1,initial=1", Schedule::Smped);
    assert_eq!((pool.place(Nanos::ZERO), pool.place(Nanos::ZERO)), (Placement::To(0), Placement::To(0)));
    pool.reported(0, 10, 0, Nanos::ZERO);
    assert_eq!(pool.period_ends(), Some(Nanos::from_millis(100)));
    pool.end_period(Nanos::from_millis(100));
    assert_eq!(load(&pool, 0), (80.0, 2));
    pool.reported(0, 5, 1, Nanos::from_millis(150));
    assert_eq!(load(&pool, 0), (80.0, 1));
    pool.reported(0, 5, 1, Nanos::from_millis(150));
    assert_eq!(load(&pool, 0), (0.0, 0));
    assert_eq!(pool.period_ends(), None);
    pool.place(Nanos::from_secs(9));
    assert_eq!(pool.period_ends(), Some(Nanos::from_millis(9100)));
}

#[test]
fn pool_grows_to_its_ceiling_and_shrinks_to_its_floor() {
    let mut pool = pool("c-max=1,p-min=1,p-max=3,initial=2,idle=5s", Schedule::Smped);
    let mut placed: Vec<Placement> = (0..2).map(|_| pool.place(Nanos::ZERO)).collect();
    placed.sort_by_key(|placement| format!("{placement:?}"));
    assert_eq!(placed, [Placement::To(0), Placement::To(1)]);
    assert_eq!(pool.place(Nanos::ZERO), Placement::Start(2));
    pool.grown(2, Nanos::ZERO);
    assert!(!pool.has_room(Nanos::ZERO));
    assert_eq!(pool.place(Nanos::ZERO), Placement::Full);
    assert_eq!(pool.next_surplus(), None);
    for (slot, at) in [(1, 1), (2, 2), (0, 3)] {
        pool.reported(slot, 1, 1, Nanos::from_secs(at));
    }
    assert_eq!(pool.take_surplus(Nanos::from_millis(5999)), None);
    assert_eq!(pool.take_surplus(Nanos::from_secs(9)), Some(1));
    assert_eq!(pool.vacancy(Nanos::ZERO), None, "it has not ended yet");
    pool.left(1);
    assert_eq!(pool.vacancy(Nanos::ZERO), Some(1));
    assert_eq!(pool.take_surplus(Nanos::from_secs(9)), Some(2));
    assert_eq!(pool.take_surplus(Nanos::from_secs(9)), None, "one is the floor");
    assert_eq!(pool.decisions.workers_stopped_idle, 2);
}

#[test]
fn relief_starts_one_worker_up_to_the_ceiling() {
    let mut pool = pool("c-max=adaptive,p-min=1,p-max=3,initial=1", Schedule::Smped);
    (0..1000).for_each(|_| assert_eq!(pool.place(Nanos::ZERO), Placement::To(0)));
    pool.relieve(&[true, false, false], Nanos::ZERO);
    assert_eq!(pool.place(Nanos::ZERO), Placement::Start(1));
    pool.grown(1, Nanos::ZERO);
    assert!(matches!(pool.place(Nanos::ZERO), Placement::To(_)), "the next period has not begun");
    pool.relieve(&[true, true, true], Nanos::ZERO);
    assert_eq!(pool.place(Nanos::ZERO), Placement::Start(2));
    pool.grown(2, Nanos::ZERO);
    pool.relieve(&[true, true, true], Nanos::ZERO);
    assert!(matches!(pool.place(Nanos::ZERO), Placement::To(_)));
    assert_eq!(pool.connections(), 1004);
}

#[test]
fn failed_starts_leave_connections_to_other_workers() {
    let fixed = ("c-max=2,p-min=1,p-max=3,initial=2", 4);
    for (settings, placed) in [fixed, ("c-max=adaptive,p-min=1,p-max=2,initial=1", 1)] {
        let mut pool = pool(settings, Schedule::RoundRobin);
        (0..placed).for_each(|_| assert!(matches!(pool.place(Nanos::ZERO), Placement::To(_))));
        // The first by the schedule is full.
        pool.reported(1, 1, 1, Nanos::ZERO);
        pool.relieve(&[true, false], Nanos::ZERO);
        let Placement::Start(slot) = pool.place(Nanos::ZERO) else { panic!("there is a vacancy") };
        pool.pause(Nanos::SECOND);
        assert_eq!((pool.vacancy(Nanos::ZERO), pool.pause_ends(Nanos::ZERO)), (None, Some(Nanos::SECOND)));
        assert!(pool.has_room(Nanos::ZERO));
        assert!(matches!(pool.place(Nanos::ZERO), Placement::To(_)));
        assert_eq!((pool.vacancy(Nanos::SECOND), pool.pause_ends(Nanos::SECOND)), (Some(slot), None));
    }
}

#[test]
fn dead_worker_returns_without_its_connections() {
    let mut pool = pool("c-max=4,p-min=1,p-max=1,initial=1", Schedule::Smped);
    (0..3).for_each(|_| assert_eq!(pool.place(Nanos::ZERO), Placement::To(0)));
    pool.reported(0, 100, 0, Nanos::ZERO);
    pool.end_period(Nanos::SECOND);
    pool.died(0, 1);
    assert_eq!(pool.decisions.connections_lost_with_worker, 2);
    assert!(!pool.has_room(Nanos::ZERO), "the only worker is down");
    pool.reported(0, 100, 1, Nanos::SECOND);
    pool.replaced(0, Nanos::SECOND);
    assert_eq!(load(&pool, 0), (0.0, 0));
}

/// An event of a pool. Numbers choose among the present workers.
#[derive(Clone, Debug)]
enum Happening {
    Arrival,
    Report { worker: usize, replies: u64, closed: u32 },
    Death { worker: usize },
    Replacement,
    Time(u64),
    Ended,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => Just(Happening::Arrival),
        4 => (any::<usize>(), 0_u64..1000, 0_u32..5)
            .prop_map(|(worker, replies, closed)| Happening::Report { worker, replies, closed }),
        1 => any::<usize>().prop_map(|worker| Happening::Death { worker }),
        1 => Just(Happening::Replacement),
        2 => (1_u64..3000).prop_map(Happening::Time),
        1 => Just(Happening::Ended),
    ]
}

/// The pool beside the simplest model: a list of connections by worker.
struct Model {
    pool: Pool,
    now: Nanos,
    connections: Vec<Option<u32>>,
    down: Vec<usize>,
    leaving: Vec<usize>,
}

impl Model {
    fn running(&self, number: usize) -> Option<usize> {
        let running: Vec<usize> = self.pool.loads().map(|(slot, _)| slot).collect();
        (!running.is_empty()).then(|| running[number % running.len()])
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival => {
                let room = self.pool.has_room(self.now);
                match self.pool.place(self.now) {
                    Placement::To(slot) => *self.connections[slot].as_mut().expect("it runs") += 1,
                    Placement::Start(slot) => {
                        self.pool.grown(slot, self.now);
                        assert_eq!(self.connections[slot].replace(1), None);
                    }
                    Placement::Full => assert!(!room),
                }
            }
            Happening::Report { worker, replies, closed } => {
                let Some(slot) = self.running(worker) else { return };
                let open = self.connections[slot].as_mut().unwrap();
                let closed = closed.min(*open);
                *open -= closed;
                self.pool.reported(slot, replies, u64::from(closed), self.now);
            }
            Happening::Death { worker } => {
                let Some(slot) = self.running(worker) else { return };
                let open = self.connections[slot].take().unwrap();
                let lost = self.pool.decisions.connections_lost_with_worker;
                self.pool.died(slot, u64::from(open / 2));
                let lost = self.pool.decisions.connections_lost_with_worker - lost;
                assert_eq!(lost, u64::from(open - open / 2));
                self.down.push(slot);
            }
            Happening::Replacement => {
                let Some(slot) = self.down.pop() else { return };
                self.pool.replaced(slot, self.now);
                self.connections[slot] = Some(0);
            }
            Happening::Time(millis) => {
                self.now += Nanos::from_millis(millis);
                self.pool.end_period(self.now);
                while let Some(slot) = self.pool.take_surplus(self.now) {
                    assert_eq!(self.connections[slot].take(), Some(0));
                    self.leaving.push(slot);
                }
            }
            Happening::Ended => {
                if let Some(slot) = self.leaving.pop() {
                    self.pool.left(slot);
                }
            }
        }
    }

    fn check(&self, settings: &SmpedSettings) {
        let running: Vec<(usize, Load)> = self.pool.loads().collect();
        for (slot, load) in &running {
            assert_eq!(self.connections[*slot], Some(load.connections));
            assert!(load.connections <= settings.c_max);
            assert!(load.throughput.is_finite() && load.throughput >= 0.0);
            assert!(load.connections > 0 || load.throughput == 0.0);
        }
        assert_eq!(running.len(), self.connections.iter().flatten().count());
        let staying = running.len() + self.down.len();
        assert!(staying >= settings.p_min && staying + self.leaving.len() <= settings.p_max);
        let open: u32 = self.connections.iter().flatten().sum();
        assert_eq!(self.pool.connections(), u64::from(open));
    }
}

proptest! {
    #[test]
    fn the_account_is_right_whatever_happens(
        happenings in prop::collection::vec(happening(), 1..300),
        schedule in prop::sample::select(
            &[Schedule::Smped, Schedule::LeastConnections, Schedule::RoundRobin, Schedule::Random][..]
        ),
    ) {
        let settings: SmpedSettings = "c-max=3,p-min=2,p-max=5,initial=3,idle=2s".parse().unwrap();
        let mut model = Model {
            pool: pool(&settings.to_string(), schedule),
            now: Nanos::ZERO,
            connections: vec![Some(0), Some(0), Some(0), None, None],
            down: Vec::new(),
            leaving: Vec::new(),
        };
        for happening in happenings {
            model.happen(happening);
            model.check(&settings);
        }
    }
}

#[test]
fn silent_worker_gets_nothing_until_it_answers() {
    let mut pool = pool("c-max=4,p-min=2,p-max=2,initial=2", Schedule::LeastConnections);
    let placed = |pool: &mut Pool, count| {
        (0..count).map(|_| pool.place(Nanos::ZERO)).filter(|placement| *placement == Placement::To(0)).count()
    };
    assert_eq!(placed(&mut pool, 4), 2);
    pool.falls_silent(0, 1);
    assert_eq!((load(&pool, 0).1, pool.connections()), (1, 3));
    assert_eq!(placed(&mut pool, 2), 0);
    assert!(!pool.has_room(Nanos::ZERO), "the other one is full");
    assert_eq!(pool.place(Nanos::ZERO), Placement::Full);
    pool.answers(0);
    assert_eq!(placed(&mut pool, 3), 3);
    pool.falls_silent(0, 0);
    pool.falls_silent(1, 0);
    assert!(!pool.has_answering_worker(Nanos::ZERO));
    assert_eq!(pool.decisions.workers_silent, 3);
}

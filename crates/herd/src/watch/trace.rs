//! Counts by the scheduler's trace points: exact, but needs root.
//!
//! A waiter wakes with a sched_waking and a sched_wakeup of it. The waker makes the first record before its
//! call returns; the waiter's processor may make the second much later. The waiter sleeps again with a sched_switch away from it in any state
//! but runnable; a preempted waiter stays awake. The later of the two times tells whether a task is awake,
//! because the records of several processors may be read out of order.
//!
//! Wake-ups are counted by the sleeps that end them: between two moments at which every task sleeps the
//! numbers are equal. About 1 in 100,000 sched_wakeup records is lost, when an interrupt wakes another task
//! between the kernel's filter and its record.

use std::collections::HashMap;

use base::{Clock, Nanos, RealClock};
use rustix::process::Pid;

use super::tracefs::Instance;
use super::{Settled, deadline, nap, stuck};
use crate::error::{HerdError, system};
use crate::population::Population;

/// The time between two looks at the records; it does not affect their timestamps.
const LOOK_EVERY: Nanos = Nanos::from_micros(200);

/// Consecutive looks without a record, with every task asleep, before the herd counts as settled.
const QUIET_LOOKS: u32 = 2;

/// The buffer for one waiter, which makes four or five records of about 70 bytes per connection, more when
/// preempted.
const BUFFER_KIB_PER_WAITER: usize = 1;
const BUFFER_KIB_LEAST: usize = 512;

/// The PID namespace of the machine, whose number the kernel fixes (PROC_PID_INIT_INO).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

#[derive(Clone, Copy, Default)]
struct Task {
    woken_at: Nanos,
    asleep_at: Nanos,
}

pub(crate) struct Trace {
    instance: Instance,
    text: Vec<u8>,
    numbers: HashMap<i32, usize>,
    tasks: Vec<Task>,
    waiters: usize,
    /// Returns of waiters to sleep since the sample began.
    sleeps: u64,
}

impl Trace {
    /// Returns an error with the reason if this process cannot use trace points.
    pub fn available() -> Result<(), String> {
        // NSpid in `status` shows no outer numbers if /proc belongs to the namespace itself, as in a container.
        let namespace = std::fs::read_link("/proc/self/ns/pid")
            .map_err(|error| format!("cannot read /proc/self/ns/pid: {error}"))?;
        if namespace.as_os_str() != FIRST_NAMESPACE {
            return Err("in a PID namespace tasks have other numbers than in traces".to_owned());
        }
        let probe = Instance::start(&[rustix::process::getpid()], BUFFER_KIB_LEAST);
        probe.map(drop).map_err(|error| error.to_string())
    }

    pub fn start(herd: &Population, tasks: &[Pid]) -> Result<Trace, HerdError> {
        let buffer_kib = (tasks.len() * BUFFER_KIB_PER_WAITER).max(BUFFER_KIB_LEAST);
        let number = |(index, task): (usize, &Pid)| (task.as_raw_nonzero().get(), index);
        Ok(Trace {
            instance: Instance::start(tasks, buffer_kib).map_err(system("set up trace points"))?,
            text: Vec::new(),
            numbers: tasks.iter().enumerate().map(number).collect(),
            tasks: vec![Task::default(); tasks.len()],
            waiters: herd.waiters,
            sleeps: 0,
        })
    }

    pub fn begin(&mut self) -> Result<(), HerdError> {
        self.read_records()?;
        self.sleeps = 0;
        Ok(())
    }

    pub fn await_all_asleep(&mut self, herd: &Population, start: Nanos) -> Result<Settled, HerdError> {
        let (deadline, mut quiet) = (deadline(), 0);
        while quiet < QUIET_LOOKS {
            nap(LOOK_EVERY);
            let news = self.read_records()?;
            let awake = self.tasks.iter().any(|task| task.woken_at > task.asleep_at);
            quiet = if news || awake || self.sleeps == 0 { 0 } else { quiet + 1 };
            if RealClock.now() > deadline {
                return Err(stuck(herd, "the waiters did not settle"));
            }
        }
        let at = self.tasks[..self.waiters].iter().map(|task| task.asleep_at).max().unwrap_or(start);
        Ok(Settled { wakeups: self.sleeps, at, late_by: Nanos::ZERO })
    }

    /// Reads the records since the last look; returns true if there were any.
    fn read_records(&mut self) -> Result<bool, HerdError> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        self.instance.drain(&mut text).map_err(system("read trace points"))?;
        for line in text.split(|byte| *byte == b'\n') {
            if line.windows(5).any(|word| word == b"[LOST") {
                let lost = std::io::Error::other("records were lost, the buffer was too small");
                return Err(system("read trace points")(lost));
            }
            if let Some(record) = std::str::from_utf8(line).ok().and_then(parse) {
                self.take_in(&record);
            }
        }
        let news = !text.is_empty();
        self.text = text;
        Ok(news)
    }

    fn take_in(&mut self, record: &Record) {
        let (Record::Woken { task, at } | Record::Asleep { task, at }) = *record;
        let Some(index) = self.numbers.get(&task).copied() else { return };
        let task = &mut self.tasks[index];
        if matches!(record, Record::Woken { .. }) {
            task.woken_at = task.woken_at.max(at);
            return;
        }
        task.asleep_at = task.asleep_at.max(at);
        // The acceptor's sleep matters for settling, but it is not a waiter.
        self.sleeps += u64::from(index < self.waiters);
    }
}

/// The content of a trace line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Woken { task: i32, at: Nanos },
    Asleep { task: i32, at: Nanos },
}

/// Parses a line such as `  <idle>-0  [001] d..2.  12.345678: sched_switch: prev_comm=...`; `None` for other
/// events. Task names may contain anything, so keys are searched from the end.
fn parse(line: &str) -> Option<Record> {
    let woken = line.split_once(": sched_waking: ").or_else(|| line.split_once(": sched_wakeup: "));
    if let Some((before, fields)) = woken {
        return Some(Record::Woken { task: number(fields, " pid=")?, at: time(before)? });
    }
    let (before, fields) = line.split_once(": sched_switch: ")?;
    let (previous, _) = fields.rsplit_once(" ==> ")?;
    let (previous, state) = previous.rsplit_once(" prev_state=")?;
    if state.starts_with('R') {
        return None;
    }
    Some(Record::Asleep { task: number(previous, " prev_pid=")?, at: time(before)? })
}

fn number(fields: &str, key: &str) -> Option<i32> {
    let (_, value) = fields.rsplit_once(key)?;
    value.split(' ').next()?.parse().ok()
}

/// Parses seconds with six decimals from the last word.
fn time(before: &str) -> Option<Nanos> {
    let (seconds, micros) = before.rsplit(' ').next()?.split_once('.')?;
    Some(Nanos::from_secs(seconds.parse().ok()?) + Nanos::from_micros(micros.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use sys::process::{Program, this_program};

    use super::*;

    #[test]
    fn trace_is_unavailable_in_a_pid_namespace() {
        const INSIDE: &str = "INRUSH_TEST_IN_PID_NAMESPACE";
        if std::env::var_os(INSIDE).is_some() {
            let reason = Trace::available().unwrap_err();
            return assert!(reason.starts_with("in a PID namespace "), "{reason}");
        }
        let (_, path) = module_path!().split_once("::").unwrap();
        let test = format!("{path}::trace_is_unavailable_in_a_pid_namespace");
        let again = Program::new("unshare").environment(INSIDE, "1");
        let again = again.arguments(["--pid", "--fork", "--mount-proc"]);
        let again = again.arguments([this_program().unwrap()]).arguments(["--exact", &test]);
        let output = match again.start().and_then(|child| child.output(Nanos::SECOND, || true)) {
            Ok(output) => output,
            Err(error) => return println!("skipped: unshare: {error}"),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        if !said.contains("running 1 test") {
            return println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        assert!(output.exit.status.success(), "{said}");
    }

    #[test]
    fn waking_and_sleeping_are_told_from_everything_else() {
        let at = Nanos(3_128_423_741_000);
        let woken = "          <idle>-0       [001] dNh4.  3128.423741: sched_wakeup: comm=wait er pid=77 prio=120 target_cpu=001";
        assert_eq!(parse(woken), Some(Record::Woken { task: 77, at }));
        assert_eq!(
            parse(&woken.replace("sched_wakeup", "sched_waking")),
            Some(Record::Woken { task: 77, at })
        );
        let asleep = "          waiter-77      [001] d..2.  3128.423741: sched_switch: prev_comm=a pid=1 b prev_pid=77 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120";
        assert_eq!(parse(asleep), Some(Record::Asleep { task: 77, at }));
        assert_eq!(parse(&asleep.replace("prev_state=S", "prev_state=R+")), None);
        assert_eq!(parse(&asleep.replace("prev_state=S", "prev_state=R")), None);
        assert_eq!(parse("CPU:1 [LOST 5 EVENTS]"), None);
        assert_eq!(parse(""), None);
    }
}

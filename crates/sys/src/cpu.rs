//! Processors: the set that this thread may use, CPU time, idle time, and burning CPU time on purpose.

use std::io;

use base::Nanos;
use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::check;

/// The processors that this thread may run on, in ascending order.
///
/// # Errors
/// None in practice.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Ties this thread, and the threads and processes that it starts later, to some processors.
///
/// # Errors
/// EINVAL if none of them is online and allowed.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set)?;
    Ok(())
}

/// The quota of processor time in processors, such as 0.5: the smallest of this process's control group and of those
/// above it. `None` without a quota.
pub fn quota() -> Option<f64> {
    quota_by(|path| std::fs::read_to_string(path).ok())
}

fn quota_by(read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let groups = read("/proc/self/cgroup")?;
    // cgroup v2: most and period in one file, or `max`.
    let unified = |folder: &str| {
        let text = read(&format!("/sys/fs/cgroup{folder}/cpu.max"))?;
        let (most, period) = text.trim().split_once(' ')?;
        Some((most.parse().ok()?, period.parse().ok()?))
    };
    // cgroup v1: a file each, and -1 for no quota.
    let legacy = |folder: &str| {
        let number = |name: &str| -> Option<f64> {
            read(&format!("/sys/fs/cgroup/cpu{folder}/cpu.cfs_{name}_us"))?.trim().parse().ok()
        };
        Some((number("quota")?, number("period")?))
    };
    let quotas = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let is_legacy = controllers.split(',').any(|name| name == "cpu");
        folders(group).filter_map(move |folder| match (controllers, is_legacy) {
            ("", _) => unified(folder),
            (_, true) => legacy(folder),
            _ => None,
        })
    });
    quotas
        .map(|(most, period): (f64, f64)| most / period)
        .filter(|quota| *quota > 0.0 && quota.is_finite())
        .reduce(f64::min)
}

/// The folder of a control group and those above it, without the last slash.
fn folders(group: &str) -> impl Iterator<Item = &str> {
    let above = |folder: &&str| folder.rfind('/').map(|end| group.get(..end).unwrap_or_default());
    std::iter::successors(Some(group.trim_end_matches('/')), above)
}

fn read(which: libc::clockid_t) -> io::Result<Nanos> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call, which writes it.
    check(unsafe { libc::clock_gettime(which, &mut time) })?;
    Ok(Nanos(time.tv_sec as u64 * Nanos::SECOND.0 + time.tv_nsec as u64))
}

fn clock(which: libc::clockid_t) -> Nanos {
    read(which).expect("one's own CPU-time clock can be read")
}

/// The CPU time that this thread has used, user and system.
pub fn thread_time() -> Nanos {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU time that all threads of this process have used, user and system.
pub fn process_time() -> Nanos {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The CPU time that a thread of this process has used, by its thread number.
///
/// # Errors
/// EINVAL if this process has no such thread.
pub fn thread_time_of(thread: Pid) -> io::Result<Nanos> {
    // The kernel's layout of the clock's number: ~number in the upper bits, 4 for a thread, and 2 for the
    // time as the scheduler counts it.
    read((!thread.as_raw_nonzero().get() << 3) | 6)
}

/// The CPU time that all threads of a process have used.
///
/// # Errors
/// EINVAL if there is no such process.
pub fn process_time_of(process: Pid) -> io::Result<Nanos> {
    read((!process.as_raw_nonzero().get() << 3) | 2)
}

/// The time that processors were idle, and that a hypervisor took from them (steal), in the kernel's hundredths of a
/// second. The kernel measures idle time whenever one falls asleep and wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTime {
    ticks: u64,
    stolen: u64,
    cpus: u32,
}

impl IdleTime {
    /// Adds up the idle time of some processors in the text of `/proc/stat`, with waits for the disk. Its lines are
    /// `cpuN user nice system idle iowait irq softirq steal guest ...`.
    pub fn read(stat: &str, cpus: &[usize]) -> IdleTime {
        let mut total = IdleTime::default();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let number = words.next().and_then(|name| name.strip_prefix("cpu")).and_then(|n| n.parse().ok());
            if !number.is_some_and(|number: usize| cpus.contains(&number)) {
                continue;
            }
            let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
            let of = |field: usize| ticks.get(field).copied().unwrap_or(0);
            total.ticks += of(3) + of(4);
            total.stolen += of(7);
            total.cpus += 1;
        }
        total
    }

    /// Returns the mean number of busy processors over `over_s` seconds. One that a hypervisor took away is not busy.
    pub fn cores_busy_since(self, earlier: IdleTime, over_s: f64) -> f64 {
        let cpus = f64::from(self.cpus);
        let away = || self.cores_idle_since(earlier, over_s) + self.cores_stolen_since(earlier, over_s);
        if over_s > 0.0 { (cpus - away()).clamp(0.0, cpus) } else { 0.0 }
    }

    /// Returns the mean number of processors that a hypervisor took away over `over_s` seconds, above 0.
    pub fn cores_stolen_since(self, earlier: IdleTime, over_s: f64) -> f64 {
        self.stolen.saturating_sub(earlier.stolen) as f64 / clock_ticks_per_second() as f64 / over_s
    }

    /// Returns the share of their time that a hypervisor took away over `over_s` seconds, from 0 to 1.
    pub fn share_stolen_since(self, earlier: IdleTime, over_s: f64) -> f64 {
        let cpus = f64::from(self.cpus);
        let is_known = over_s > 0.0 && cpus > 0.0;
        if is_known { (self.cores_stolen_since(earlier, over_s) / cpus).min(1.0) } else { 0.0 }
    }

    /// Returns the mean number of idle processors over `over_s` seconds, above 0.
    pub fn cores_idle_since(self, earlier: IdleTime, over_s: f64) -> f64 {
        self.ticks.saturating_sub(earlier.ticks) as f64 / clock_ticks_per_second() as f64 / over_s
    }
}

/// Burns `time` of this thread's CPU time. Time in which another thread has the processor does not count, so
/// an artificial cost is the same on a busy machine.
pub fn burn(time: Nanos) {
    let end = thread_time() + time;
    while thread_time() < end {
        // Reading the clock is a system call of some 200 ns. The processor works between two calls.
        for _ in 0..64 {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_quota_up_the_group_tree_holds() {
        let quota = |groups: &str, files: &[(&str, &str)]| {
            quota_by(|path| match path.strip_prefix("/sys/fs/cgroup") {
                None => Some(groups.to_owned()),
                Some(path) => Some(files.iter().find(|(known, _)| *known == path)?.1.to_owned()),
            })
        };
        assert_eq!(quota("0::/\n", &[]), None);
        assert_eq!(quota("0::/\n", &[("/cpu.max", "50000 100000\n")]), Some(0.5));
        assert_eq!(quota("0::/pod/c\n", &[("/pod/c/cpu.max", "max 100000\n")]), None);
        let both = [("/pod/cpu.max", "150000 100000\n"), ("/pod/c/cpu.max", "200000 100000\n")];
        assert_eq!(quota("0::/pod/c\n", &both), Some(1.5));
        assert_eq!(quota("0::/pod\n", &[("/pod/cpu.max", "junk")]), None);
        let legacy = [("/cpu/a/cpu.cfs_quota_us", "25000\n"), ("/cpu/a/cpu.cfs_period_us", "100000\n")];
        assert_eq!(quota("2:cpuset:/\n1:cpuacct,cpu:/a/b\n0::/\n", &legacy), Some(0.25));
        let none = [("/cpu/cpu.cfs_quota_us", "-1\n"), ("/cpu/cpu.cfs_period_us", "100000\n")];
        assert_eq!(quota("1:cpu:/\n", &none), None);
    }

    #[test]
    fn idle_times_of_chosen_processors_are_added_up() {
        let text =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 5 80 4 0 2 7 3 0\ncpu1 1 0 0 99 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(IdleTime::read(text, &[0]), IdleTime { ticks: 84, stolen: 7, cpus: 1 });
        assert_eq!(IdleTime::read(text, &[1]), IdleTime { ticks: 99, stolen: 0, cpus: 1 });
        assert_eq!(IdleTime::read(text, &[0, 1]), IdleTime { ticks: 183, stolen: 7, cpus: 2 });
        assert_eq!(IdleTime::read("cpu", &[0]), IdleTime::default());
    }

    #[test]
    fn busy_is_what_the_processors_were_not_idle() {
        let second = clock_ticks_per_second();
        let earlier = IdleTime { ticks: 10, stolen: 0, cpus: 2 };
        let later = IdleTime { ticks: 10 + second, stolen: 0, cpus: 2 };
        assert_eq!(later.cores_busy_since(earlier, 2.0), 1.5);
        assert_eq!(later.cores_idle_since(earlier, 2.0), 0.5);
        assert_eq!(later.cores_busy_since(later, 2.0), 2.0);
        assert_eq!(later.cores_busy_since(earlier, 0.4), 0.0, "idle time is rounded");
        assert_eq!(later.cores_busy_since(earlier, 0.0), 0.0);
        let robbed = IdleTime { stolen: second, ..later };
        assert_eq!(robbed.cores_busy_since(earlier, 2.0), 1.0, "stolen time is not busy");
        assert_eq!(robbed.share_stolen_since(earlier, 2.0), 0.25);
    }

    #[test]
    fn burning_uses_the_cpu_time_it_says() {
        let before = thread_time();
        burn(Nanos::from_micros(200));
        assert!(thread_time() - before >= Nanos::from_micros(200));
    }

    #[test]
    fn cpu_time_is_read_by_thread_and_process_number() {
        let (thread, process) = (rustix::thread::gettid(), rustix::process::getpid());
        let before = (thread_time_of(thread).unwrap(), process_time_of(process).unwrap());
        burn(Nanos::from_micros(200));
        assert!(thread_time_of(thread).unwrap() - before.0 >= Nanos::from_micros(200));
        assert!(process_time_of(process).unwrap() - before.1 >= Nanos::from_micros(200));
        assert!(thread_time_of(rustix::process::Pid::INIT).is_err());
    }

    #[test]
    fn a_thread_can_be_tied_to_the_first_processor_it_has() {
        let first = allowed().unwrap()[0];
        std::thread::spawn(move || {
            pin(&[first]).unwrap();
            assert_eq!(allowed().unwrap(), [first]);
        })
        .join()
        .unwrap();
        assert!(pin(&[]).is_err());
    }
}

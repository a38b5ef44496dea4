//! A private trace instance: a buffer beside the machine's own, with its own events and filter.
//!
//! The instance lives in tracefs. This process mounts tracefs without a place in the file tree, so it need
//! not be mounted on the machine. Dropping the instance removes it. The next instance removes those that
//! killed processes left behind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::Pid;

/// The prefix of an instance's name; the process number and a serial number follow.
const PREFIX: &str = "inrush-herd";

/// The number of instances that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A trace instance that records the wake-ups and sleeps of some tasks.
pub(super) struct Instance {
    instances: OwnedFd,
    name: String,
    /// Must be closed before the instance can be removed.
    pipe: Option<File>,
}

impl Instance {
    /// Begins to record sched_waking, sched_wakeup and sched_switch of these tasks, with timestamps of
    /// CLOCK_MONOTONIC. The
    /// buffer of each processor has `buffer_kib` KiB.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; ENODEV without tracefs; errors of writing tracefs files.
    pub fn start(tasks: &[Pid], buffer_kib: usize) -> io::Result<Instance> {
        let instances = mount()?;
        remove_left_behind(&instances)?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{}-{number}", rustix::process::getpid().as_raw_nonzero());
        mkdirat(&instances, &name, Mode::RWXU)?;
        let mut instance = Instance { instances, name, pipe: None };
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &buffer_kib.to_string())?;
        instance.filter(tasks)?;
        for event in ["sched_waking", "sched_wakeup", "sched_switch"] {
            instance.write(&format!("events/sched/{event}/enable"), "1")?;
        }
        instance.pipe = Some(instance.open("trace_pipe", OFlags::RDONLY | OFlags::NONBLOCK)?);
        Ok(instance)
    }

    /// Appends the records since the last call, as text. Does not block.
    pub fn drain(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let pipe = self.pipe.as_mut().expect("open while the instance lives");
        match pipe.read_to_end(into) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Restricts the records to these tasks. The first write replaces the filter, later ones extend it.
    fn filter(&self, tasks: &[Pid]) -> io::Result<()> {
        let mut file = self.open("set_event_pid", OFlags::WRONLY | OFlags::TRUNC)?;
        for some in tasks.chunks(100) {
            let numbers: Vec<String> = some.iter().map(|task| task.as_raw_nonzero().to_string()).collect();
            // A partial write would cut a number in two.
            let text = format!("{} ", numbers.join(" "));
            if file.write(text.as_bytes())? != text.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        self.open(file, OFlags::WRONLY | OFlags::TRUNC)?.write_all(value.as_bytes())
    }

    fn open(&self, file: &str, flags: OFlags) -> io::Result<File> {
        let path = Path::new(&self.name).join(file);
        Ok(openat(&self.instances, path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.pipe = None;
        // The next instance removes one that cannot be removed now.
        let _ = unlinkat(&self.instances, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Mounts tracefs and returns the directory of all instances.
fn mount() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&root, "instances", flags, Mode::empty())?)
}

fn remove_left_behind(instances: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(instances)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if owner(name).is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            // Another process may have removed it first.
            let _ = unlinkat(instances, name, AtFlags::REMOVEDIR);
        }
    }
    Ok(())
}

/// The process that made an instance; `None` for instances of other programs.
fn owner(name: &str) -> Option<&str> {
    let process = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split_once('-')?.0;
    process.bytes().all(|letter| letter.is_ascii_digit()).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_names_its_process() {
        assert_eq!(owner("inrush-herd-123-4"), Some("123"));
        assert_eq!(owner("inrush-herd-x-4"), None);
        assert_eq!(owner("somebody-elses"), None);
    }

    #[test]
    fn tracefs_instance_is_removed_on_drop_or_by_the_next() {
        let instance = match Instance::start(&[rustix::process::getpid()], 64) {
            Ok(instance) => instance,
            Err(error) => return println!("skipped: no trace points ({error})"),
        };
        let (name, instances) = (instance.name.clone(), mount().unwrap());
        let exists = |name: &str| openat(&instances, name, OFlags::PATH, Mode::empty()).is_ok();
        assert!(exists(&name));
        // No process has this number: it is above the largest possible one.
        let left = format!("{PREFIX}-4194305-0");
        mkdirat(&instances, &left, Mode::RWXU).unwrap();
        drop(instance);
        // The instance of another test may remove the leftovers at any time.
        assert!(!exists(&name));
        drop(Instance::start(&[rustix::process::getpid()], 64).unwrap());
        assert!(!exists(&left));
    }
}

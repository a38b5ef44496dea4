//! The user and the groups that a process changes to when it no longer needs to be root.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::fchown;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist, setgid, setgroups, setuid};
use rustix::process::{
    getpid, getppid, kill_process, parent_process_death_signal, set_parent_process_death_signal,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// The reason why an account cannot be used. The text follows the name of the setting and its value.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No entry in the user database.
    #[error("there is no such user on this machine; expected NAME or NAME:GROUP, by name or number")]
    NoUser,
    /// No entry in the group database.
    #[error("there is no such group on this machine; expected NAME or NAME:GROUP, by name or number")]
    NoGroup,
    /// The account has the rights that are to be given up.
    #[error("root keeps its rights; expected another user")]
    Root,
    /// The process cannot change its user.
    #[error("only root can change to another user; leave the setting out, or start the server as root")]
    NotRoot,
    /// The process cannot change its group.
    #[error("only root can change to another group; leave the group out, or start the server as root")]
    NotRootsGroup,
    /// The database of users cannot be read.
    #[error("cannot look it up: {0}")]
    System(io::Error),
}

impl From<nix::Error> for AccountError {
    fn from(errno: nix::Error) -> AccountError {
        AccountError::System(errno.into())
    }
}

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    name: String,
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl Account {
    /// Looks up `NAME` or `NAME:GROUP`, each by name or number. Without a group, the account has those of the user
    /// database; a number that the database lacks needs one. Reads `/etc/passwd` and `/etc/group`.
    ///
    /// # Errors
    /// [`AccountError`]; [`AccountError::NotRoot`] where this process can become no other user, and
    /// [`AccountError::NotRootsGroup`] where it can take no other group.
    pub fn find(text: &str) -> Result<Account, AccountError> {
        let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
        let known = match User::from_name(name)? {
            Some(user) => Some(user),
            None => name.parse().ok().map(Uid::from_raw).map(User::from_uid).transpose()?.flatten(),
        };
        let user = match (&known, name.parse()) {
            (Some(user), _) => user.uid,
            (None, Ok(number)) => Uid::from_raw(number),
            (None, Err(_)) => return Err(AccountError::NoUser),
        };
        let asked = group.map(find_group).transpose()?;
        let group = match (asked, &known) {
            (Some(group), _) => group,
            (None, Some(user)) => user.gid,
            (None, None) => return Err(AccountError::NoGroup),
        };
        if user.is_root() {
            return Err(AccountError::Root);
        }
        if !is_root() && Uid::current() != user {
            return Err(AccountError::NotRoot);
        }
        if !is_root() && asked.is_some_and(|group| group != Gid::current()) {
            return Err(AccountError::NotRootsGroup);
        }
        let groups = match known.as_ref().and_then(|user| CString::new(user.name.as_str()).ok()) {
            Some(name) => getgrouplist(&name, group)?,
            None => vec![group],
        };
        Ok(Account { name: known.map_or_else(|| name.to_owned(), |user| user.name), user, group, groups })
    }

    /// Returns the user's name, or its number if it has no name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the account the owner of a regular file, so that it can open the file again. Does nothing to other files,
    /// or in a process that is not root's.
    ///
    /// # Errors
    /// As fchown(2).
    pub fn own(&self, file: &File) -> io::Result<()> {
        if !is_root() || !file.metadata()?.is_file() {
            return Ok(());
        }
        fchown(file, Some(self.user.as_raw()), Some(self.group.as_raw()))
    }

    /// Changes all threads of this process to the account, for good. They have no capability afterwards. The process
    /// still gets its signal at the death of its parent. Does nothing in a process that is the user's already.
    ///
    /// # Errors
    /// As setuid(2). The process must not serve after a failure, because some threads may have changed.
    pub fn become_it(&self) -> io::Result<()> {
        if !is_root() {
            return Ok(());
        }
        let (signal, parent) = (parent_process_death_signal()?, getppid());
        // The C library makes each of these calls in every thread.
        setgroups(&self.groups)?;
        setgid(self.group)?;
        setuid(self.user)?;
        // The kernel forgets the signal when a process changes its user.
        set_parent_process_death_signal(signal)?;
        match signal {
            Some(signal) if getppid() != parent => Ok(kill_process(getpid(), signal)?),
            _ => Ok(()),
        }
    }
}

fn find_group(text: &str) -> Result<Gid, AccountError> {
    let known = Group::from_name(text)?.map(|group| group.gid);
    known.or_else(|| text.parse().ok().map(Gid::from_raw)).ok_or(AccountError::NoGroup)
}

/// Returns true if this process is the superuser's.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Drops the capabilities of the calling thread, for good.
///
/// # Errors
/// None in practice.
pub fn drop_capabilities() -> io::Result<()> {
    // A server does this behind its filter of system calls, which has no capget.
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Drops the capabilities of the calling thread but these, for good. Programs that it starts get no more of them from an
/// ambient set.
///
/// # Errors
/// None in practice.
pub fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let sets = CapabilitySets {
        effective: effective & kept,
        permitted: permitted & kept,
        inheritable: inheritable & kept,
    };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        if !is_root() {
            return println!("skipped: only root may become another user");
        }
        let nobody = Account::find("nobody").unwrap();
        assert_eq!(nobody.name(), "nobody");
        assert_eq!(Account::find(&nobody.user.to_string()).unwrap(), nobody);
        let with_group = Account::find("nobody:root").unwrap();
        assert_eq!((with_group.user, with_group.group), (nobody.user, Gid::from_raw(0)));
        let by_numbers = Account::find("12345:54321").unwrap();
        assert_eq!((by_numbers.name(), by_numbers.groups.as_slice()), ("12345", &[Gid::from_raw(54321)][..]));
    }

    #[test]
    fn account_without_root_is_that_of_the_thread() {
        let find = || {
            if is_root() {
                rustix::thread::set_thread_gid(rustix::fs::Gid::from_raw(12_345)).unwrap();
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(12_345)).unwrap();
            }
            let (user, group) = (Uid::current().as_raw(), Gid::current().as_raw());
            [(user, group), (user, group + 1), (user + 1, group)]
                .map(|(user, group)| Account::find(&format!("{user}:{group}")))
        };
        let [same, other_group, other_user] = std::thread::spawn(find).join().unwrap();
        assert!(same.is_ok(), "{same:?}");
        assert!(other_group.unwrap_err().to_string().starts_with("only root can change to another group"));
        assert!(other_user.unwrap_err().to_string().starts_with("only root can change to another user"));
    }

    #[test]
    fn a_thread_that_dropped_its_capabilities_has_none() {
        let capabilities = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let lines = status.lines().filter(|line| !line.starts_with("CapBnd"));
            lines
                .filter_map(|line| line.strip_prefix("Cap")?.rsplit('\t').next().map(str::to_owned))
                .collect()
        };
        let left: Vec<String> =
            std::thread::spawn(move || drop_capabilities().map(|()| capabilities())).join().unwrap().unwrap();
        assert_eq!(left, ["0000000000000000"; 4]);
    }

    #[test]
    fn accounts_that_cannot_be_used_are_refused() {
        let refused = |text: &str| Account::find(text).unwrap_err().to_string();
        assert!(refused("no-such-user-here").starts_with("there is no such user"));
        assert!(refused("").starts_with("there is no such user"));
        assert!(refused("12345").starts_with("there is no such group"));
        assert!(refused("nobody:no-such-group").starts_with("there is no such group"));
        assert!(refused("root").starts_with("root keeps its rights"));
        assert!(refused("0:0").starts_with("root keeps its rights"));
    }
}

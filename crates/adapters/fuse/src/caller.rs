//! The calling thread of a request: its ids, and its groups and capabilities from /proc.
//!
//! Linux passes a FUSE mount neither the groups of a caller nor its capabilities. The kernel's
//! answer to "may this caller keep set-group-id" is in a form of SETXATTR that is not asked for
//! (FUSE_SETXATTR_EXT). The caller waits for the reply, so its entry in /proc is valid; it is read
//! only if a set-id bit depends on it. If /proc shows other ids than the request, as for an NFS
//! server that acts for a client, the ids of the request count and there are no further groups.
//!
//! Source: proc(5), `in_group_or_capable` (fs/attr.c).

/// Capabilities by their numbers (linux/capability.h).
const CAP_FSETID: u32 = 4;
const CAP_SYS_ADMIN: u32 = 21;

use crate::host::Host;

/// The caller of a request, as the kernel names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Number of the thread; 0: the kernel on its own.
    pub(crate) thread: u32,
    /// File system uid.
    pub(crate) uid: u32,
    /// File system gid.
    pub(crate) gid: u32,
}

/// Credentials of a thread in /proc.
#[derive(Debug, Default, PartialEq, Eq)]
struct Credentials {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

impl Credentials {
    fn may(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 != 0
    }
}

impl Caller {
    /// Reports whether it may keep set-group-id of a file of this group.
    pub(crate) fn keeps_set_gid(self, host: &dyn Host, group: u32) -> bool {
        let may = |of: Credentials| of.groups.contains(&group) || of.may(CAP_FSETID);
        self.gid == group || self.uid == 0 || self.credentials(host).is_some_and(may)
    }

    /// Reports whether it keeps set-id bits of what it changes.
    pub(crate) fn keeps_set_id(self, host: &dyn Host) -> bool {
        self.may(host, CAP_FSETID)
    }

    /// Reports whether it sees attributes of the administrator.
    pub(crate) fn is_administrator(self, host: &dyn Host) -> bool {
        self.may(host, CAP_SYS_ADMIN)
    }

    fn may(self, host: &dyn Host, capability: u32) -> bool {
        self.uid == 0 || self.credentials(host).is_some_and(|of| of.may(capability))
    }

    /// `None` where it is not to be seen, or acts as somebody else.
    fn credentials(self, host: &dyn Host) -> Option<Credentials> {
        let (text, in_namespace) = host.status(self.thread).filter(|_| self.thread != 0)?;
        let mut found = parse(&text)?;
        // In a user namespace of its own a thread has every capability, over nothing of ours.
        if !in_namespace {
            found.capabilities = 0;
        }
        ((found.uid, found.gid) == (self.uid, self.gid)).then_some(found)
    }
}

/// The numbers of /proc/PID/status: the fourth of `Uid` and `Gid` is for files.
fn parse(status: &str) -> Option<Credentials> {
    let line = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let for_files = |name| line(name)?.split_whitespace().nth(3)?.parse().ok();
    Some(Credentials {
        uid: for_files("Uid")?,
        gid: for_files("Gid")?,
        groups: line("Groups")?.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
        capabilities: u64::from_str_radix(line("CapEff")?.trim(), 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;
    use crate::options::FuseOptions;

    #[test]
    fn the_fourth_number_is_for_files() {
        let status = "Name:\tsh\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t10 11 \n\
                      CapInh:\tffffffffffffffff\nCapEff:\t0000000000200010\n";
        let found = parse(status).unwrap();
        assert_eq!((found.uid, found.gid, &found.groups[..]), (4, 8, &[10, 11][..]));
        assert!(found.may(CAP_FSETID) && found.may(CAP_SYS_ADMIN) && !found.may(0));
        assert_eq!(parse("Uid:\t1\n"), None);
        assert_eq!(parse(&status.replace("CapEff", "CapEfx")), None);
    }

    #[test]
    fn who_acts_as_somebody_else_has_no_more_groups() {
        let thread = std::process::id();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let own = parse(&status).unwrap();
        let caller = |thread, uid, gid| Caller { thread, uid, gid };
        let ourselves = caller(thread, own.uid, own.gid);
        let host = &Machine::new("/".as_ref(), "/".as_ref(), &FuseOptions::default());
        assert!(ourselves.credentials(host).is_some() && ourselves.keeps_set_gid(host, own.gid));
        let other = caller(thread, own.uid + 1, own.gid + 1);
        assert_eq!(other.credentials(host), None);
        assert!(other.keeps_set_gid(host, own.gid + 1) && !other.keeps_set_gid(host, own.gid));
        assert!(!other.keeps_set_id(host));
        assert!(!caller(0, own.uid + 1, own.gid).is_administrator(host));
    }
}

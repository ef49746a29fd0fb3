//! The memory of the machine that this process may still take.

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// Bytes of host memory that the process may still allocate, as far as the system reports them: the free memory of the
/// machine and of the process's control group, and three quarters of what a limit on the process (`ulimit -v`) leaves,
/// since drivers and threads take address space too. The system overcommits, so more would end the process.
pub fn available_memory() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let machine = Some(system.available_memory()).filter(|&bytes| bytes > 0);
    let pid = sysinfo::get_current_pid().ok();
    if let Some(pid) = pid {
        let what = ProcessRefreshKind::nothing().with_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    }
    let own = pid.and_then(|pid| system.process(pid));
    // The group's cache of files counts as used there, but is given back when memory is asked for.
    let group = own.and_then(|p| p.cgroup_limits()).map(|l| l.total_memory.saturating_sub(l.rss));
    let taken = own.map_or(0, |p| p.virtual_memory());
    let limit = process_limit().map(|limit| limit.saturating_sub(taken) / 4 * 3);
    [machine, group, limit].into_iter().flatten().min()
}

/// The limit on the address space of the process, in bytes.
#[cfg(unix)]
fn process_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure that it is given.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
#[cfg(not(unix))]
fn process_limit() -> Option<u64> {
    None
}

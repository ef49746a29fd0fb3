//! The threads of a processor: a team that helps whoever runs a kernel.
//!
//! Kernels follow each other every few dozen microseconds, and to wake a sleeping thread takes longer than many of
//! them. So a thread that has nothing to do looks out for work for a short time ([`SPIN`]) before it falls asleep:
//! within a run it stays awake, and an idle team takes no time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread looks out for work before it falls asleep: longer than the kernels of a run that one thread
/// computes alone.
const SPIN: Duration = Duration::from_micros(200);

/// Threads that help with the jobs of any number of callers.
#[derive(Debug)]
pub(crate) struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// Changes with each job, and when the team ends: what threads look at that are not asleep.
    news: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs that still have work for others than who is at it.
    jobs: Vec<Arc<Job>>,
    asleep: usize,
    ended: bool,
}

/// What a caller wants to be helped with.
#[derive(Debug)]
struct Job {
    work: Work,
    /// Threads of the team that are at it.
    helpers: AtomicUsize,
    failed: AtomicBool,
    caller: Thread,
}

/// A function that lives as long as its job has helpers or is listed.
#[derive(Clone, Copy, Debug)]
struct Work(*const (dyn Fn() + Sync));
// SAFETY: the function may be called by several threads at once, and lives long enough; see `Team::share`.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

impl Team {
    /// Starts `helpers` threads.
    ///
    /// # Errors
    /// Threads that the system does not start.
    pub(crate) fn start(helpers: usize) -> std::io::Result<Team> {
        let mut team = Team { shared: Arc::default(), threads: vec![] };
        for n in 0..helpers {
            let shared = team.shared.clone();
            let named = std::thread::Builder::new().name(format!("weft-cpu-{n}"));
            // On an error the threads so far end with the team.
            team.threads.push(named.spawn(move || shared.help())?);
        }
        Ok(team)
    }
    /// Threads of the team; callers come to them.
    pub(crate) fn helpers(&self) -> usize {
        self.threads.len()
    }
    /// Calls `work` on this thread and on those of the team that are free. It returns when there is nothing left to
    /// begin with: whoever returns from it first, nobody begins it anew.
    ///
    /// # Panics
    /// If `work` does on any thread.
    pub(crate) fn share(&self, work: &(dyn Fn() + Sync)) {
        // SAFETY: only the lifetime changes. The function is called by this thread, and by helpers that found the job
        // in the list. Before this function returns or unwinds, the job is taken off the list and its helpers are done.
        let work_of_all = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
        let job = Arc::new(Job {
            work: Work(work_of_all),
            helpers: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            caller: std::thread::current(),
        });
        let asleep = {
            let mut state = self.shared.lock();
            state.jobs.push(job.clone());
            self.shared.news.fetch_add(1, Ordering::Release);
            state.asleep
        };
        if asleep > 0 {
            self.shared.wake.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(work));
        self.shared.lock().remove(&job);
        job.wait();
        match own {
            Err(panic) => resume_unwind(panic),
            Ok(()) => assert!(!job.failed.load(Ordering::Relaxed), "a thread of the team has panicked"),
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.news.fetch_add(1, Ordering::Release);
        self.shared.wake.notify_all();
        // A thread catches the panics of work.
        self.threads.drain(..).for_each(|t| drop(t.join()));
    }
}

impl State {
    fn remove(&mut self, job: &Arc<Job>) {
        self.jobs.retain(|j| !Arc::ptr_eq(j, job));
    }
}

impl Job {
    /// Waits until no helper is at it. None joins any more.
    fn wait(&self) {
        let start = Instant::now();
        while self.helpers.load(Ordering::Acquire) > 0 {
            match start.elapsed() < SPIN {
                true => std::hint::spin_loop(),
                // The last helper unparks this thread.
                false => std::thread::park(),
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What a thread of the team does.
    fn help(&self) {
        loop {
            let seen = self.news.load(Ordering::Acquire);
            while let Some(job) = self.join() {
                // SAFETY: the job has a helper, so that its caller keeps the function.
                let work = unsafe { &*job.work.0 };
                if catch_unwind(AssertUnwindSafe(work)).is_err() {
                    job.failed.store(true, Ordering::Relaxed);
                }
                // Nothing of it is left to begin with.
                self.lock().remove(&job);
                let caller = job.caller.clone();
                // From here on the caller may be gone.
                if job.helpers.fetch_sub(1, Ordering::Release) == 1 {
                    caller.unpark();
                }
            }
            if !self.wait(seen) {
                return;
            }
        }
    }
    /// The job with the fewest helpers, with one more.
    fn join(&self) -> Option<Arc<Job>> {
        let state = self.lock();
        let job = state.jobs.iter().min_by_key(|j| j.helpers.load(Ordering::Relaxed))?.clone();
        // While the list is locked, so that the caller, who takes the job off it, sees all helpers.
        job.helpers.fetch_add(1, Ordering::Relaxed);
        Some(job)
    }
    /// Waits for other news than those that were seen; false when the team has ended.
    fn wait(&self, seen: u64) -> bool {
        let start = Instant::now();
        while self.news.load(Ordering::Acquire) == seen && start.elapsed() < SPIN {
            (0..32).for_each(|_| std::hint::spin_loop());
        }
        let mut state = self.lock();
        while self.news.load(Ordering::Acquire) == seen && !state.ended {
            state.asleep += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
        }
        !state.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Numbers up to `n`, each taken by one thread.
    fn sum(team: &Team, n: usize) -> usize {
        let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
        team.share(&|| {
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    i if i < n => sum.fetch_add(i, Ordering::Relaxed),
                    _ => return,
                };
            }
        });
        sum.into_inner()
    }

    #[test]
    fn every_part_is_done_once_and_all_before_the_end() {
        for helpers in [0, 1, 3] {
            let team = Team::start(helpers).expect("threads");
            for n in (0..2000).step_by(7) {
                assert_eq!(sum(&team, n), n * n.saturating_sub(1) / 2);
            }
        }
    }

    /// The barrier lets nobody through before the caller and both helpers are there.
    #[test]
    fn helpers_work_at_the_same_time_awake_or_asleep() {
        let team = Team::start(2).expect("threads");
        for _ in 0..3 {
            let (barrier, arrived) = (Barrier::new(3), AtomicUsize::new(0));
            team.share(&|| {
                if arrived.fetch_add(1, Ordering::Relaxed) < 3 {
                    barrier.wait();
                }
            });
            while team.shared.lock().asleep < 2 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn callers_share_a_team() {
        let team = Team::start(2).expect("threads");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..300).for_each(|n| assert_eq!(sum(&team, n), n * n.saturating_sub(1) / 2)));
            }
        });
        assert!(team.shared.lock().jobs.is_empty());
    }

    #[test]
    fn a_panic_of_any_thread_reaches_the_caller() {
        let team = Team::start(1).expect("threads");
        for of_caller in [true, false] {
            let barrier = Barrier::new(2);
            let caller = std::thread::current().id();
            let began = AtomicUsize::new(0);
            let work = || {
                if began.fetch_add(1, Ordering::Relaxed) < 2 {
                    barrier.wait();
                    assert!((std::thread::current().id() == caller) != of_caller, "as asked");
                }
            };
            assert!(catch_unwind(AssertUnwindSafe(|| team.share(&work))).is_err());
            // The team works on.
            assert_eq!(sum(&team, 100), 4950);
        }
    }
}

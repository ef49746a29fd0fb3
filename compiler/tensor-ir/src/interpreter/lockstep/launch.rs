//! The launch of a kernel: its grid, its workgroups, and how their threads form subgroups.
//!
//! Without a subgroup size, each task of a loop over subgroups gets all threads of the workgroup. That is right for any
//! number of lanes as long as no value moves from one subgroup to another inside the loop, which [`crate::check`]
//! proves. With a size (`run_scheduled_on_subgroups`), it runs as devices do: subgroups of that many threads take tasks
//! by their number, in rounds, and lanes share out loops.

use super::code::{Code, IntCode};
use crate::tir::LoopKind;

/// Sizes of the launch: per axis the largest extent of a loop that is bound to it.
pub(super) struct Sizes {
    pub(super) grid: [usize; 3],
    pub(super) local: [usize; 3],
    /// Tasks of subgroups along x and y.
    pub(super) tasks: [usize; 2],
    /// Loops over subgroups that stand in no other such loop.
    task_loops: usize,
}

impl Sizes {
    /// Those of a kernel.
    ///
    /// # Errors
    /// When the extent of a bound loop is no constant.
    pub(super) fn of(body: &Code) -> Result<Sizes, String> {
        let mut sizes = Sizes { grid: [1; 3], local: [1; 3], tasks: [1; 2], task_loops: 0 };
        sizes.add(body, false)?;
        Ok(sizes)
    }
    fn add(&mut self, code: &Code, in_task: bool) -> Result<(), String> {
        match code {
            Code::Seq(list) => list.iter().try_for_each(|c| self.add(c, in_task)),
            Code::For { extent, kind, body, .. } => {
                let of_tasks = matches!(kind, LoopKind::Subgroup(_));
                self.task_loops += usize::from(of_tasks && !in_task);
                let axis = match kind {
                    LoopKind::Group(a) => Some((&mut self.grid[..], *a)),
                    LoopKind::Local(a) => Some((&mut self.local[..], *a)),
                    LoopKind::Subgroup(a) => Some((&mut self.tasks[..], *a)),
                    _ => None,
                };
                if let Some((sizes, axis)) = axis {
                    let IntCode::Const(n) = extent else { return Err("a bound loop has no constant extent".into()) };
                    let size = sizes.get_mut(axis as usize).ok_or_else(|| format!("no axis {axis}"))?;
                    *size = (*size).max(usize::try_from(*n).unwrap_or(0));
                }
                self.add(body, in_task || of_tasks)
            }
            Code::Kernel(_) => Err("a kernel inside a kernel".into()),
            Code::Block(_) | Code::Nothing => Ok(()),
        }
    }
}

/// How the threads of a workgroup form subgroups, and which task each has.
///
/// Without a size, each task has a subgroup with all threads of the workgroup; every size must give the same results.
/// With a size, threads form subgroups of that many lanes in the order of their index. Subgroup i runs task i; if there
/// are fewer subgroups than tasks, it continues with task i + subgroups. A subgroup beyond the last task repeats that
/// task, and its lanes store nothing.
#[derive(Debug)]
pub(super) struct Subgroups {
    /// Threads of a subgroup; `None` without a size.
    size: Option<usize>,
    /// Threads of a workgroup.
    threads: usize,
    /// Tasks along x and y.
    tasks: [usize; 2],
    /// A loop goes over them.
    shared_out: bool,
    /// How often the workgroup went round.
    pub(super) round: usize,
}

impl Subgroups {
    pub(super) fn new(size: Option<usize>) -> Subgroups {
        Subgroups { size: size.map(|s| s.max(1)), threads: 1, tasks: [1; 2], shared_out: false, round: 0 }
    }
    /// Begins a kernel and gives the number of threads that run.
    ///
    /// # Errors
    /// Where subgroups of this size cannot do the tasks.
    pub(super) fn launch(&mut self, sizes: &Sizes) -> Result<usize, String> {
        self.threads = sizes.local.iter().fold(1usize, |n, &l| n.saturating_mul(l));
        (self.tasks, self.shared_out, self.round) = (sizes.tasks, sizes.task_loops > 0, 0);
        match self.size {
            Some(size) if self.shared_out && !self.threads.is_multiple_of(size) => {
                Err(format!("a workgroup of {} threads is no whole number of subgroups of {size}", self.threads))
            }
            Some(_) if sizes.task_loops > 1 && self.rounds() > 1 => {
                let (tasks, there) = (self.all_tasks(), self.count());
                Err(format!("{tasks} tasks for {there} subgroups: a loop over them may read what another one stored"))
            }
            Some(_) => Ok(self.threads),
            None => Ok(self.threads.saturating_mul(self.all_tasks())),
        }
    }
    fn all_tasks(&self) -> usize {
        self.tasks[0].saturating_mul(self.tasks[1])
    }
    /// Threads from one subgroup to the next.
    pub(super) fn lanes(&self) -> usize {
        self.size.unwrap_or(self.threads)
    }
    /// Subgroups of a workgroup.
    pub(super) fn count(&self) -> usize {
        self.size.map_or(self.all_tasks(), |s| self.threads.div_ceil(s))
    }
    /// Number of rounds until all tasks are done.
    pub(super) fn rounds(&self) -> usize {
        self.all_tasks().div_ceil(self.count().max(1))
    }
    /// True if the subgroup size is known, so that lanes differ.
    pub(super) fn has_lanes(&self) -> bool {
        self.size.is_some()
    }
    /// The subgroup of a thread.
    pub(super) fn number(&self, thread: usize) -> usize {
        thread / self.lanes()
    }
    /// A thread's place in its subgroup.
    pub(super) fn lane(&self, thread: usize) -> usize {
        thread % self.lanes()
    }
    fn next_task(&self, thread: usize) -> usize {
        self.round * self.count() + self.number(thread)
    }
    /// Whether the subgroup of a thread has a task of its own in this round.
    pub(super) fn has_task(&self, thread: usize) -> bool {
        !self.shared_out || self.next_task(thread) < self.all_tasks()
    }
    /// The task of a thread's subgroup, along x and y.
    pub(super) fn task(&self, thread: usize) -> [usize; 2] {
        let own = self.next_task(thread).min(self.all_tasks().saturating_sub(1));
        [own % self.tasks[0].max(1), own / self.tasks[0].max(1)]
    }
}

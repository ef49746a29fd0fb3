//! A thread that polls a device on behalf of futures.
//!
//! wgpu calls back only while a thread polls the device, and polling until a submission is done blocks. A future must
//! not block, so it passes the submission to this thread and is woken by the callback. The thread starts with the first
//! future and ends with the device.

use std::sync::mpsc;
use std::thread::JoinHandle;

/// Who polls the device until a submission is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polling {
    /// The calling thread, which blocks.
    Caller,
    /// The device's polling thread, which wakes the caller.
    Thread,
}

/// A submission to wait for, and a callback for a device that no longer answers.
struct Job {
    index: wgpu::SubmissionIndex,
    failed: Box<dyn FnOnce(String) + Send>,
}

/// The thread of one device.
pub(crate) struct Poller {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(device: wgpu::Device) -> std::io::Result<Poller> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let work = move || {
            for job in todo {
                let wait = wgpu::PollType::Wait { submission_index: Some(job.index), timeout: None };
                if let Err(e) = device.poll(wait) {
                    (job.failed)(e.to_string());
                }
            }
        };
        let thread = std::thread::Builder::new().name("weft-poll".into()).spawn(work)?;
        Ok(Poller { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Polls until the submission is done; its callbacks are called on the thread.
    pub(crate) fn watch(&self, index: wgpu::SubmissionIndex, failed: impl FnOnce(String) + Send + 'static) {
        let job = Job { index, failed: Box::new(failed) };
        if let Some(Err(mpsc::SendError(job))) = self.jobs.as_ref().map(|j| j.send(job)) {
            (job.failed)("its polling thread has ended".into());
        }
    }
}

impl Drop for Poller {
    /// Waits for the thread, so that no driver is at work when the process ends; unless a callback on the thread itself
    /// drops the device.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take().filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

//! Compiles the model again on a separate thread.

use super::{Host, Made, Ticket, Wanted};
use compiler::trace::Options;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The result of a compilation.
pub type Done = Result<Made, String>;

/// A compilation that is wanted, and the one that goes on.
pub struct Again {
    /// Whether its window is there.
    pub open: bool,
    /// The options.
    pub wanted: Wanted,
    /// The new compilation comes beside the old one, else in its place.
    pub beside: bool,
    /// Why the last one failed.
    pub fault: Option<String>,
    running: Option<(Arc<Ticket>, Mutex<Receiver<Done>>)>,
    thread: Option<JoinHandle<()>>,
}

impl Again {
    /// With the options of a trace.
    pub fn new(o: &Options) -> Again {
        let wanted = Wanted {
            amp: o.amp.clone(),
            layout: o.layout.clone(),
            fuse: o.fuse.clone(),
            opt_level: o.opt_level,
            keep_f32: vec![],
            find_keep: false,
            times: true,
            errors: false,
        };
        Again { open: false, wanted, beside: true, fault: None, running: None, thread: None }
    }
    /// Starts; `wake` is called at the end.
    pub fn start(&mut self, host: Arc<dyn Host>, wake: impl Fn() + Send + 'static) {
        let (ticket, wanted) = (Arc::new(Ticket::default()), self.wanted.clone());
        let (done, answer) = channel();
        let own = ticket.clone();
        self.thread = Some(std::thread::spawn(move || {
            // Nobody listens once it is cancelled.
            let _ = done.send(host.compile(&wanted, &own));
            wake();
        }));
        self.fault = None;
        self.running = Some((ticket, Mutex::new(answer)));
    }
    /// Stops waiting. The work ends where it next looks at its ticket.
    pub fn cancel(&mut self) {
        if let Some((ticket, _)) = self.running.take() {
            ticket.cancel();
        }
    }
    /// What is being done, and how much of it; `None` while nothing is.
    pub fn progress(&self) -> Option<(String, f32)> {
        self.running.as_ref().map(|(ticket, _)| ticket.progress())
    }
    /// The new compilation, once it is there.
    pub fn take(&mut self) -> Option<Made> {
        let (_, answer) = self.running.as_mut()?;
        let done = match answer.get_mut().map(|a| a.try_recv()) {
            Ok(Ok(done)) => done,
            Ok(Err(TryRecvError::Empty)) => return None,
            _ => Err("the compilation ended without a result: this is a bug".into()),
        };
        self.running = None;
        done.map_err(|why| self.fault = Some(why)).ok()
    }
}

/// As a `Worker` does.
impl Drop for Again {
    fn drop(&mut self) {
        self.cancel();
        // A panic of the thread was reported there.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

//! Work off the window's thread: requests are answered one after another, and answers are kept.

use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A thread that turns questions into answers, and the answers that it gave. Dropped, it waits for the answer that is
/// being made: a thread that still uses a device while the process ends may crash in the driver.
pub struct Worker<Q, A> {
    asks: Option<Sender<Q>>,
    answers: Option<Mutex<Receiver<(Q, A)>>>,
    thread: Option<JoinHandle<()>>,
    ready: FxHashMap<Q, A>,
    asked: FxHashSet<Q>,
    /// The largest total weight of kept answers, and the weight of one.
    keep: (usize, fn(&A) -> usize),
}

impl<Q: Clone + Eq + Hash + Send + 'static, A: Clone + Send + 'static> Worker<Q, A> {
    /// Starts the thread. `start` runs on it and gives what answers; `wake` is called after each answer.
    pub fn new<F: FnMut(&Q) -> A>(
        start: impl FnOnce() -> F + Send + 'static,
        wake: impl Fn() + Send + 'static,
    ) -> Self {
        let (asks, questions) = channel::<Q>();
        let (done, answers) = channel();
        let thread = std::thread::spawn(move || {
            let mut answer = start();
            // It ends when one end of each channel is dropped.
            for question in questions {
                let made = answer(&question);
                if done.send((question, made)).is_err() {
                    return;
                }
                wake();
            }
        });
        let (ready, asked) = (FxHashMap::default(), FxHashSet::default());
        let (asks, answers) = (Some(asks), Some(Mutex::new(answers)));
        Worker { asks, answers, thread: Some(thread), ready, asked, keep: (usize::MAX, |_| 0) }
    }
    /// Forgets all answers when together they weigh more than `most`.
    pub fn keeping(mut self, most: usize, weight: fn(&A) -> usize) -> Self {
        self.keep = (most, weight);
        self
    }
    /// The answer, if it is ready; else it is asked for.
    pub fn get(&mut self, question: &Q) -> Option<A> {
        self.collect();
        let found = self.ready.get(question).cloned();
        if found.is_none() && self.asked.insert(question.clone()) {
            // The thread lives as long as this does.
            let _ = self.asks.as_ref().map(|asks| asks.send(question.clone()));
        }
        found
    }
    /// Whether answers are being made.
    pub fn busy(&mut self) -> bool {
        self.collect();
        !self.asked.is_empty()
    }
    fn collect(&mut self) {
        let Some(Ok(answers)) = self.answers.as_mut().map(Mutex::get_mut) else { return };
        let new: Vec<(Q, A)> = answers.try_iter().collect();
        let (most, weight) = self.keep;
        for (question, answer) in new {
            if self.ready.values().map(weight).sum::<usize>() > most {
                self.ready.clear();
            }
            self.asked.remove(&question);
            self.ready.insert(question, answer);
        }
    }
}

impl<Q, A> Drop for Worker<Q, A> {
    fn drop(&mut self) {
        (self.asks, self.answers) = (None, None);
        // A panic of the thread was reported there.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::Worker;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_being_answered_is_waited_for_and_no_more() {
        let (begun, first) = channel();
        let answered = Arc::new(AtomicUsize::new(0));
        let count = answered.clone();
        let start = move || {
            move |_: &usize| {
                begun.send(()).expect("the test listens");
                std::thread::sleep(std::time::Duration::from_millis(50));
                count.fetch_add(1, Ordering::SeqCst)
            }
        };
        let mut w = Worker::new(start, || ());
        (0..100).for_each(|n| assert_eq!(w.get(&n), None));
        first.recv().expect("a question is being answered");
        drop(w);
        assert_eq!(answered.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn answers_are_made_once_and_forgotten_where_they_weigh_too_much() {
        let (made, count) = channel();
        // The worker waits until both questions have been asked.
        let (go, gate) = channel::<()>();
        let start = move || {
            move |n: &usize| {
                gate.recv().expect("the test says when");
                made.send(*n).expect("the test listens");
                n * 10
            }
        };
        let (wake, woken) = channel();
        let mut w = Worker::new(start, move || wake.send(()).expect("the test listens")).keeping(25, |a| *a);
        for n in [1, 2, 3] {
            assert_eq!(w.get(&n), None);
            assert_eq!(w.get(&n), None, "asked for once");
            go.send(()).expect("the worker waits");
            woken.recv().expect("an answer");
            assert_eq!(w.get(&n), Some(n * 10));
            assert!(!w.busy());
        }
        assert_eq!(count.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
        // 10 and 20 together weigh more than 25: they went when 30 came.
        assert_eq!((w.get(&3), w.get(&1)), (Some(30), None));
        go.send(()).expect("the worker waits");
    }
}

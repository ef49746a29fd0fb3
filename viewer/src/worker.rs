//! Work off the window's thread: requests are answered one after another, and answers are kept.

use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A thread that turns questions into answers, and the answers that it gave.
pub struct Worker<Q, A> {
    asks: Sender<Q>,
    answers: Mutex<Receiver<(Q, A)>>,
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
        std::thread::spawn(move || {
            let mut answer = start();
            // It ends when the window is closed, which drops one end of each channel.
            for question in questions {
                let made = answer(&question);
                if done.send((question, made)).is_err() {
                    return;
                }
                wake();
            }
        });
        let (ready, asked) = (FxHashMap::default(), FxHashSet::default());
        Worker { asks, answers: Mutex::new(answers), ready, asked, keep: (usize::MAX, |_| 0) }
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
            let _ = self.asks.send(question.clone());
        }
        found
    }
    /// Whether answers are being made.
    pub fn busy(&mut self) -> bool {
        self.collect();
        !self.asked.is_empty()
    }
    fn collect(&mut self) {
        let Ok(answers) = self.answers.get_mut() else { return };
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

#[cfg(test)]
mod tests {
    use super::Worker;
    use std::sync::mpsc::channel;

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
    }
}

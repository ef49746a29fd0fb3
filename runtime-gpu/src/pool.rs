//! A pool of objects that one run at a time may use.

use async_channel::{Receiver, Sender};
use std::ops::{Deref, DerefMut};

/// The objects to lend. If all are lent, the caller waits, as a thread or as a future.
pub(crate) struct Pool<T> {
    back: Sender<T>,
    free: Receiver<T>,
}

impl<T> Pool<T> {
    pub(crate) fn of(things: Vec<T>) -> Pool<T> {
        let (back, free) = async_channel::bounded(things.len().max(1));
        for thing in things {
            // There is room for each, and both ends are open.
            let _ = back.try_send(thing);
        }
        Pool { back, free }
    }

    /// One of the things, once one is free.
    pub(crate) async fn take(&self) -> Lease<T> {
        let thing = self.free.recv().await.expect("the pool itself holds a sender");
        Lease { thing: Some(thing), back: self.back.clone() }
    }

    /// How many there are, lent or not.
    pub(crate) fn size(&self) -> usize {
        self.back.capacity().unwrap_or(1)
    }
}

/// A thing on loan; dropping it gives it back.
pub(crate) struct Lease<T> {
    thing: Option<T>,
    back: Sender<T>,
}

impl<T> Deref for Lease<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.thing.as_ref().expect("there until it is dropped")
    }
}

impl<T> DerefMut for Lease<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("there until it is dropped")
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        if let Some(thing) = self.thing.take() {
            // It came from the pool, so there is room for it. If the pool is gone, it is dropped.
            let _ = self.back.try_send(thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_waits_for_the_first() {
        let pool = Pool::of(vec![0]);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..100 {
                        let mut lent = pollster::block_on(pool.take());
                        let before = *lent;
                        std::thread::yield_now();
                        *lent = before + 1;
                    }
                });
            }
        });
        assert_eq!(*pollster::block_on(pool.take()), 400);
    }

    #[test]
    fn a_wait_that_is_given_up_takes_nothing() {
        let pool = Pool::of(vec![7]);
        let first = pollster::block_on(pool.take());
        let mut second = Box::pin(pool.take());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(second);
        drop(first);
        assert_eq!(*pollster::block_on(pool.take()), 7);
    }
}

//! A small cache by lists of sizes: the last 16 that were used are kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many are kept.
pub const KEPT: usize = 16;

/// Keys with their values, the most recently used last.
type List<K, V> = VecDeque<(K, Arc<V>)>;

/// Values that cost something to make, by key.
pub struct Recent<K, V>(Mutex<List<K, V>>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent(Mutex::default())
    }
}

impl<K: PartialEq, V> Recent<K, V> {
    fn list(&self) -> MutexGuard<'_, List<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value for a key; it is made if it is missing. Other values are available meanwhile.
    ///
    /// # Errors
    /// An error of `make`.
    pub fn get<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<Arc<V>, E> {
        if let Some(value) = take(&mut self.list(), &key) {
            return Ok(value);
        }
        let made = Arc::new(make(&key)?);
        let mut list = self.list();
        // Another thread may have been faster.
        if let Some(value) = take(&mut list, &key) {
            return Ok(value);
        }
        add(&mut list, key, made.clone());
        Ok(made)
    }

    /// As [`Recent::get`], but nothing is made twice: whoever asks meanwhile waits, whatever the key.
    ///
    /// # Errors
    /// An error of `make`.
    pub fn get_once<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut list = self.list();
        if let Some(value) = take(&mut list, &key) {
            return Ok(value);
        }
        let made = Arc::new(make(&key)?);
        add(&mut list, key, made.clone());
        Ok(made)
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.list().len()
    }

    /// True if none is there.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Whether one of them is so.
    pub fn any(&self, is: &dyn Fn(&V) -> bool) -> bool {
        self.list().iter().any(|(_, v)| is(v))
    }
}

/// Adds the one that was used last. The one that was used longest ago makes room.
fn add<K, V>(list: &mut List<K, V>, key: K, value: Arc<V>) {
    list.push_back((key, value));
    if list.len() > KEPT {
        list.pop_front();
    }
}

/// The value for a key, which becomes the one that was used last.
fn take<K: PartialEq, V>(list: &mut List<K, V>, key: &K) -> Option<Arc<V>> {
    let at = list.iter().position(|(k, _)| k == key)?;
    let found = list.remove(at)?;
    let value = found.1.clone();
    list.push_back(found);
    Some(value)
}

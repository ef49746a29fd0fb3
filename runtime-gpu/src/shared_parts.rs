//! Parts that sessions on one device share while one of them is open: pipelines by their code; constants by type,
//! shape, data and packing.
//!
//! A session publishes its pipelines and constants only after it opened successfully. A pipeline's label is that of the
//! session that built it. Packed weights on disk keep the digest of their source data, so a second start does not read
//! the weights for the comparison. A file of pipelines records whether it has all pipelines of its plan.

use compiler::fingerprint::Fingerprint;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A kernel ready to dispatch.
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// A constant on the device, in slices if it exceeds one binding. It is never written.
pub(crate) struct DeviceConstant {
    pub(crate) slices: Vec<wgpu::Buffer>,
}

/// The parts that a session made when it opened, and those that other sessions had made already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Constants that it uploaded.
    pub constants: usize,
    /// Bytes of those.
    pub constant_bytes: u64,
    /// Constants that were on the device.
    pub shared_constants: usize,
    /// Pipelines that it built.
    pub pipelines: usize,
    /// Pipelines that were built.
    pub shared_pipelines: usize,
}

/// Objects by fingerprint, as weak references.
pub(crate) struct Kept<T>(Mutex<HashMap<Fingerprint, Weak<T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept(Mutex::default())
    }
}

impl<T> Kept<T> {
    /// An object that is still alive.
    pub(crate) fn find(&self, key: Fingerprint) -> Option<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key)?.upgrade()
    }
    /// Adds objects, and removes entries of dropped ones.
    pub(crate) fn add<'a>(&self, things: impl IntoIterator<Item = (Fingerprint, &'a Arc<T>)>)
    where
        T: 'a,
    {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, held| held.strong_count() > 0);
        map.extend(things.into_iter().map(|(key, thing)| (key, Arc::downgrade(thing))));
    }
}

/// Parts that sessions on a device share.
#[derive(Default)]
pub(crate) struct SharedParts {
    pub(crate) pipelines: Kept<Pipeline>,
    pub(crate) constants: Kept<DeviceConstant>,
}

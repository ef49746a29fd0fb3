//! The device that tests run on.

use runtime_gpu::{DeviceChoice, Gpu};
use std::sync::{Arc, OnceLock};

/// The first adapter, opened once in a process.
///
/// # Errors
/// A test that was to run on a device has not run without one: there is no going on.
pub fn test_device() -> Result<Arc<Gpu>, String> {
    static GPU: OnceLock<Result<Arc<Gpu>, String>> = OnceLock::new();
    let open = || {
        Gpu::open(&DeviceChoice::Index(0)).map(Arc::new).map_err(|e| {
            format!("no device for the tests: {e}; `cargo xtask test` installs Mesa's software driver where it can")
        })
    };
    GPU.get_or_init(open).clone()
}

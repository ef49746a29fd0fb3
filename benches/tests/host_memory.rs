//! Host memory of opening a session: the heap's peak stays below 1.3 times the weights. Memory that a driver allocates
//! for the device is not counted, not even on software drivers.

use benches::test_device::test_device;
use compiler::compile::{CompileOptions, compile};
use compiler::profile::DeviceProfile;
use runtime_gpu::{Session, SessionOptions};
use shaders_gen::Emitter;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counting.
struct Counting;
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to `System` unchanged; counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn opening_a_session_holds_little_more_than_the_weights() {
    let gpu = test_device().unwrap_or_else(|e| panic!("{e}"));
    let profile = DeviceProfile { ..gpu.profile.clone() };
    for name in ["resnet18", "vgg16"] {
        PEAK.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = NOW.load(Ordering::Relaxed);
        let module = benches::zoo::build(name, 1, 0).expect("a zoo model");
        let c = compile(module, &CompileOptions::default(), &profile, &Emitter, &mut |_, _, _| ()).expect("compiles");
        let session = Session::open(gpu.clone(), &c.plan, &c.module, &SessionOptions::default(), &mut |_, _, _| ());
        drop(session.expect("opens"));
        let peak = PEAK.load(Ordering::Relaxed) - before;
        let (mib, ratio) = (peak >> 20, peak as f64 / c.memory.weights as f64);
        assert!(ratio < 1.3, "{name}: the heap's peak is {mib} MiB, {ratio:.2} times the weights");
    }
}

//! Times of single kernels for the compiler's cost model.

use crate::device::Gpu;
use crate::session::{Session, SessionOptions};
use compiler::compile::Compiled;
use compiler::compile::MeasureKernel;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use std::sync::Arc;

/// Times compiled modules on a device.
pub struct KernelTimer {
    gpu: Arc<Gpu>,
    runs: usize,
}

impl KernelTimer {
    /// A timer that takes the fastest of `runs` runs, after two warm-up runs: other load on the machine only adds time.
    pub fn new(gpu: Arc<Gpu>, runs: usize) -> KernelTimer {
        KernelTimer { gpu, runs: runs.max(1) }
    }
    fn open(&self, compiled: &Compiled) -> Result<Session, String> {
        let options = SessionOptions::default();
        Session::open(self.gpu.clone(), &compiled.plan, &compiled.module, &options, &mut |_, _, _| ())
            .map_err(|e| e.to_string())
    }
}

impl MeasureKernel for KernelTimer {
    fn measure(&mut self, compiled: &Compiled) -> Result<f64, String> {
        let session = self.open(compiled)?;
        if session.has_host_steps() {
            return Err("it runs on the host".into());
        }
        let inputs: Vec<Tensor> = session.plan().inputs.iter().map(|s| random_tensor(s.dtype, &s.shape, 1)).collect();
        let mut resident = session.resident(&inputs).map_err(|e| e.to_string())?;
        let mut times = Vec::with_capacity(self.runs);
        for run in 0..self.runs + 2 {
            let (_, list) = resident.time_dispatches().map_err(|e| e.to_string())?;
            if run >= 2 {
                times.push(list.iter().map(|d| d.2 * 1e3).sum::<f64>());
            }
        }
        Ok(times.into_iter().fold(f64::INFINITY, f64::min))
    }
}

//! Runs emitted kernels through wgpu. A test that finds no adapter fails.

use compiler::plan::EmittedKernel;
use compiler::profile::{DeviceProfile, MatrixShape};
use compiler::tir::{BufferId, TensorFunction};
use shaders_gen::GeneratedModule;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;
use wgpu::util::DeviceExt;

pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pub profile: DeviceProfile,
}

pub fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| pollster::block_on(open()))
}

/// True where shaders may hold f16. Where they may not, `test` is not run, and says so: SwiftShader has none. Any other
/// driver must.
pub fn has_f16(test: &str) -> bool {
    let DeviceProfile { f16, name, .. } = &gpu().profile;
    if !f16 {
        assert!(name.contains("SwiftShader"), "{test} needs f16 in shaders, which {name} does not have");
        eprintln!("NOT RUN: {test} needs f16 in shaders, which {name} does not have");
    }
    *f16
}

async fn open() -> Gpu {
    let mut desc = wgpu::InstanceDescriptor::new_without_display_handle();
    desc.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let instance = wgpu::Instance::new(desc);
    let adapter = instance
        .request_adapter(&wgpu::RequestAdapterOptions::default())
        .await
        .expect("these tests need a GPU adapter or a software driver");
    let matrices = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    let halves = wgpu::Features::SHADER_F16 | wgpu::Features::SHADER_I16;
    let wanted = halves | wgpu::Features::SUBGROUP | wgpu::Features::IMMEDIATES | matrices;
    let features = adapter.features() & wanted;
    let limits = adapter.limits();
    let info = adapter.get_info();
    let (device, queue) = adapter
        .request_device(&wgpu::DeviceDescriptor {
            required_features: features,
            required_limits: limits.clone(),
            // SAFETY: the lowering checks what it uses of matrices itself.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..Default::default()
        })
        .await
        .expect("device");
    let shapes = if features.contains(matrices) { adapter.cooperative_matrix_properties() } else { vec![] };
    let shape = |p: &wgpu::CooperativeMatrixProperties| MatrixShape {
        mnk: [p.m_size, p.n_size, p.k_size],
        ab: format!("{:?}", p.ab_type).to_lowercase(),
        cr: format!("{:?}", p.cr_type).to_lowercase(),
    };
    let profile = DeviceProfile {
        matrix_shapes: shapes.iter().map(shape).collect(),
        shared_memory: limits.max_compute_workgroup_storage_size,
        name: info.name.clone(),
        subgroup: if features.contains(wgpu::Features::SUBGROUP) {
            (info.subgroup_min_size, info.subgroup_max_size)
        } else {
            (0, 0)
        },
        f16: features.contains(wgpu::Features::SHADER_F16),
        i16: features.contains(wgpu::Features::SHADER_I16),
        immediates: if features.contains(wgpu::Features::IMMEDIATES) { limits.max_immediate_size } else { 0 },
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_invocations: limits.max_compute_invocations_per_workgroup,
        ..DeviceProfile::baseline()
    };
    Gpu { device, queue, profile }
}

/// Device memory of a tensor function: bytes of each global buffer.
pub type Memory = HashMap<BufferId, Vec<u8>>;

impl Gpu {
    /// Runs all kernels of `f` in order on `memory`; missing buffers start filled with 0xff.
    pub fn run(
        &self,
        f: &TensorFunction,
        kernels: &[EmittedKernel],
        symbols: &[i32],
        memory: &mut Memory,
        slice_bytes: u64,
    ) {
        let mut buffers: HashMap<(BufferId, u32), wgpu::Buffer> = HashMap::new();
        let mut order: Vec<(BufferId, u32)> = vec![];
        for b in kernels.iter().flat_map(|k| &k.bindings) {
            if buffers.contains_key(&(b.buffer, b.slice)) {
                continue;
            }
            let info = &f.buffers[b.buffer];
            let numel = info.numel().as_const().expect("constant shape") as u64;
            let bytes = info.encoding.storage_bytes(info.dtype, numel) as usize;
            let data = memory.entry(b.buffer).or_insert_with(|| vec![0xff; bytes]);
            data.resize(bytes, 0);
            let from = (u64::from(b.slice) * slice_bytes) as usize;
            let to = (from + slice_bytes as usize).min(bytes);
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
            let desc = wgpu::util::BufferInitDescriptor { label: None, contents: &data[from..to], usage };
            buffers.insert((b.buffer, b.slice), self.device.create_buffer_init(&desc));
            order.push((b.buffer, b.slice));
        }
        for k in kernels {
            self.dispatch(k, symbols, &buffers);
        }
        for key in order {
            let bytes = self.read(&buffers[&key]);
            let from = (u64::from(key.1) * slice_bytes) as usize;
            memory.get_mut(&key.0).expect("filled above")[from..from + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Prints the rate of one kernel on zeros, over some ten dispatches.
    pub fn measure(&self, f: &TensorFunction, k: &EmittedKernel, flops: f64) {
        let mut buffers = HashMap::new();
        for b in &k.bindings {
            let info = &f.buffers[b.buffer];
            let numel = info.numel().as_const().expect("constant shape") as u64;
            let size = info.encoding.storage_bytes(info.dtype, numel);
            let usage = wgpu::BufferUsages::STORAGE;
            let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
            buffers.insert((b.buffer, b.slice), self.device.create_buffer(&desc));
        }
        let pipeline = self.pipeline(k);
        for round in 0..6 {
            let start = std::time::Instant::now();
            let n = if round == 0 { 1 } else { 5 };
            for _ in 0..n {
                self.encode(k, &pipeline, &[], &buffers);
            }
            self.device.poll(wgpu::PollType::wait_indefinitely()).expect("poll");
            let each = start.elapsed().as_secs_f64() / f64::from(n);
            println!("round {round}: {:.2} ms, {:.1} GFLOP/s", each * 1e3, flops / each / 1e9);
        }
    }

    fn dispatch(&self, k: &EmittedKernel, symbols: &[i32], buffers: &HashMap<(BufferId, u32), wgpu::Buffer>) {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let pipeline = self.pipeline(k);
        self.encode(k, &pipeline, symbols, buffers);
        if let Some(e) = pollster::block_on(scope.pop()) {
            panic!("{e}\n{}", k.wgsl);
        }
    }

    fn pipeline(&self, k: &EmittedKernel) -> wgpu::ComputePipeline {
        let module = k.module.downcast_ref::<GeneratedModule>().expect("a generated module");
        let desc = wgpu::ShaderModuleDescriptor {
            label: Some(&k.name),
            source: wgpu::ShaderSource::Naga(Cow::Owned(module.module.clone())),
        };
        let checks =
            if k.bounds_proved { wgpu::ShaderRuntimeChecks::unchecked() } else { wgpu::ShaderRuntimeChecks::checked() };
        // SAFETY: checks are left out only where the generator proved all accesses in bounds.
        let shader = unsafe { self.device.create_shader_module_trusted(desc, checks) };
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &shader,
            entry_point: Some(&k.name),
            compilation_options: Default::default(),
            cache: None,
        })
    }

    fn encode(
        &self,
        k: &EmittedKernel,
        pipeline: &wgpu::ComputePipeline,
        symbols: &[i32],
        buffers: &HashMap<(BufferId, u32), wgpu::Buffer>,
    ) {
        let uniform = k.uniform(symbols).map(|contents| {
            let (contents, usage) = (&contents[..], wgpu::BufferUsages::UNIFORM);
            self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
        });
        let mut entries: Vec<wgpu::BindGroupEntry> = k
            .bindings
            .iter()
            .enumerate()
            .map(|(i, b)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: buffers[&(b.buffer, b.slice)].as_entire_binding(),
            })
            .collect();
        if let Some(uniform) = &uniform {
            entries
                .push(wgpu::BindGroupEntry { binding: k.bindings.len() as u32, resource: uniform.as_entire_binding() });
        }
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            if k.immediate_bytes > 0 {
                pass.set_immediates(0, bytemuck::cast_slice(symbols));
            }
            pass.dispatch_workgroups(k.grid[0], k.grid[1], k.grid[2]);
        }
        self.queue.submit([encoder.finish()]);
    }

    fn read(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging.slice(..).map_async(wgpu::MapMode::Read, |r| r.expect("map"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("poll");
        staging.slice(..).get_mapped_range().expect("mapped").to_vec()
    }
}

//! The rows of the tables as objects of a device.

use crate::network::{self, FEATURES, SUBGROUPS};
use crate::tensor::Tensor;

/// A buffer of the device.
pub(crate) struct Buffer {
    pub(crate) bytes: u64,
    /// Where its data begin in the weights; none: runs write it.
    pub(crate) weights: Option<usize>,
}

/// A compute shader. Equal layers share one.
pub(crate) struct Kernel {
    /// The first layer that it computes.
    pub(crate) name: &'static str,
    pub(crate) wgsl: &'static str,
    pub(crate) entry: &'static str,
    /// For each of its bindings: whether it writes there.
    pub(crate) writes: &'static [bool],
    /// Weft proved that each access is in bounds and that each loop ends, so that `wgpu` adds no
    /// checks.
    pub(crate) proved: bool,
}

/// A step of a run.
#[allow(dead_code, reason = "few networks have all kinds")]
pub(crate) enum Step {
    /// Runs a kernel with these buffers at its bindings.
    Run {
        kernel: usize,
        buffers: &'static [usize],
        grid: [u32; 3],
    },
    Copy {
        from: usize,
        to: usize,
    },
    /// Reads the condition back, and takes one of two lists of steps.
    Branch {
        condition: &'static Tensor,
        then: &'static [Step],
        otherwise: &'static [Step],
    },
}

/// A step with its buffers bound.
pub(crate) enum Bound {
    Run {
        kernel: usize,
        group: wgpu::BindGroup,
        grid: [u32; 3],
    },
    Copy {
        from: usize,
        to: usize,
    },
    Branch {
        condition: &'static Tensor,
        sides: [Vec<Bound>; 2],
    },
}

/// Whether a device has what the kernels need; else what it lacks.
pub(crate) fn fits(
    features: wgpu::Features,
    limits: &wgpu::Limits,
    info: &wgpu::AdapterInfo,
) -> Result<(), String> {
    let mut lacks = vec![];
    let missing = (FEATURES - features).iter_names();
    let missing: Vec<&str> = missing.map(|(name, _)| name).collect();
    if !missing.is_empty() {
        lacks.push(format!("it lacks {}", missing.join(" and ")));
    }
    network::limits().check_limits_with_fail_fn(limits, false, |name, need, has| {
        lacks.push(format!("{name} is {has}, the kernels need {need}"));
    });
    let [least, most] = SUBGROUPS;
    if FEATURES.contains(wgpu::Features::SUBGROUP)
        && (info.subgroup_min_size < least || info.subgroup_max_size > most)
    {
        let sizes = [info.subgroup_min_size, info.subgroup_max_size];
        lacks.push(format!(
            "it has subgroups of {sizes:?} threads, the kernels are for {SUBGROUPS:?}"
        ));
    }
    if lacks.is_empty() {
        Ok(())
    } else {
        Err(lacks.join(", "))
    }
}

pub(crate) fn allocate(device: &wgpu::Device, b: &Buffer, weights: &[u8]) -> wgpu::Buffer {
    use wgpu::BufferUsages as U;
    let usage = if b.weights.is_some() {
        U::STORAGE
    } else {
        U::STORAGE | U::COPY_SRC | U::COPY_DST
    };
    let mapped_at_creation = b.weights.is_some();
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: b.bytes,
        usage,
        mapped_at_creation,
    });
    if let Some(at) = b.weights {
        // Without memory the buffer is not mapped; the error scope around says so.
        if let Ok(mut to) = buffer.get_mapped_range_mut(..) {
            to.copy_from_slice(&weights[at..at + b.bytes as usize]);
        }
        buffer.unmap();
    }
    buffer
}

pub(crate) fn layout(device: &wgpu::Device, k: &Kernel) -> wgpu::BindGroupLayout {
    let entry = |(i, writes): (usize, &bool)| wgpu::BindGroupLayoutEntry {
        binding: i as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: !writes },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = k.writes.iter().enumerate().map(entry).collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(k.name),
        entries: &entries,
    })
}

pub(crate) fn pipeline(
    device: &wgpu::Device,
    k: &Kernel,
    layout: &wgpu::BindGroupLayout,
) -> wgpu::ComputePipeline {
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: Some(k.name),
        source: wgpu::ShaderSource::Wgsl(k.wgsl.into()),
    };
    let module = match k.proved {
        // SAFETY: every access of the kernel is in bounds of the buffers in the tables, and its
        // loops are counted.
        true => unsafe {
            device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
        },
        false => device.create_shader_module(descriptor),
    };
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(k.name),
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(k.name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(k.entry),
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    })
}

pub(crate) fn bind(
    device: &wgpu::Device,
    layouts: &[wgpu::BindGroupLayout],
    buffers: &[wgpu::Buffer],
    steps: &'static [Step],
) -> Vec<Bound> {
    let one = |step: &'static Step| match step {
        Step::Copy { from, to } => Bound::Copy {
            from: *from,
            to: *to,
        },
        Step::Branch {
            condition,
            then,
            otherwise,
        } => Bound::Branch {
            condition,
            sides: [then, otherwise].map(|list| bind(device, layouts, buffers, list)),
        },
        Step::Run {
            kernel,
            buffers: list,
            grid,
        } => {
            let entry = |(i, &b): (usize, &usize)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: buffers[b].as_entire_binding(),
            };
            let entries: Vec<_> = list.iter().enumerate().map(entry).collect();
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layouts[*kernel],
                entries: &entries,
            });
            Bound::Run {
                kernel: *kernel,
                group,
                grid: *grid,
            }
        }
    };
    steps.iter().map(one).collect()
}

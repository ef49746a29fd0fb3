//! The validated module of one kernel, with its text and its words.

use crate::error::EmitError;
use crate::explicit_layout::without_strides_of_locals;
use crate::lines::Outline;
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use tensor_ir::plan::LineSpan;

/// The dialect of WGSL: wgpu's parser and the standard require different declarations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WgslDialect {
    /// For wgpu and naga.
    #[default]
    Wgpu,
    /// The W3C's standard, for Tint and browsers.
    Standard,
}

/// Capabilities that standard WGSL cannot express, with their names for error messages.
const NOT_STANDARD: &[(Capabilities, &str)] = &[
    (Capabilities::IMMEDIATES, "immediates, which hold sizes that only a run knows"),
    (Capabilities::COOPERATIVE_MATRIX, "cooperative matrices"),
    (Capabilities::SUBGROUP_BARRIER, "barriers of a subgroup"),
    (Capabilities::SHADER_INT64, "64-bit integers"),
    (Capabilities::FLOAT64, "64-bit floats"),
    (Capabilities::SHADER_INT16, "16-bit integers"),
];

/// The features of wgpu that capabilities need, by wgpu's names.
const FEATURES: &[(Capabilities, &str)] = &[
    (Capabilities::IMMEDIATES, "IMMEDIATES"),
    (Capabilities::COOPERATIVE_MATRIX, "EXPERIMENTAL_COOPERATIVE_MATRIX"),
    (Capabilities::SUBGROUP, "SUBGROUP"),
    (Capabilities::SUBGROUP_BARRIER, "SUBGROUP_BARRIER"),
    (Capabilities::SHADER_FLOAT16, "SHADER_F16"),
    (Capabilities::SHADER_INT16, "SHADER_I16"),
];

/// The largest f32 in a form that the standard accepts. naga writes the fewest digits that read back; for this number
/// they are rounded up, out of the range.
const LARGEST: [&str; 2] = ["340282350000000000000000000000000000000f", "340282346638528859811704183484516925440f"];

/// The line without which WGSL has no f16.
const ENABLE_HALVES: &str = "enable f16;";

/// First line of WGSL with matrices that are not square.
const OBLONG: &str =
    "// No WGSL reader takes this text: its types coop_mat<rows>x<columns> are not square, which only SPIR-V can say.";

/// naga writes columns first.
fn rows_by_columns(text: &str) -> String {
    let mut parts = text.split("coop_mat");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let size = part.split_once('<').and_then(|(size, rest)| Some((size.split_once('x')?, rest)));
        match size.filter(|((c, r), _)| [c, r].iter().all(|n| n.bytes().all(|b| b.is_ascii_digit()))) {
            Some(((columns, rows), rest)) => out.push_str(&format!("coop_mat{rows}x{columns}<{rest}")),
            None => out.push_str(&format!("coop_mat{part}")),
        }
    }
    out
}

/// Settings of SPIR-V that a runtime on Vulkan decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpirvForm {
    /// Version of the language.
    pub version: (u8, u8),
    /// The device drops accesses beyond a buffer by itself (`robustBufferAccess2`): kernels that are not proved need no
    /// test of theirs.
    pub robust_buffers: bool,
    /// The device has instructions for products of packed integers.
    pub integer_dot_product: bool,
}

impl Default for SpirvForm {
    /// For any Vulkan 1.1 device.
    fn default() -> Self {
        SpirvForm { version: (1, 3), robust_buffers: false, integer_dot_product: true }
    }
}

impl SpirvForm {
    /// Every capability that kernels may use, if not all are available.
    fn capabilities(self) -> Option<Vec<naga::back::spv::Capability>> {
        use naga::back::spv::Capability as C;
        let subgroups = [
            C::GroupNonUniform,
            C::GroupNonUniformVote,
            C::GroupNonUniformArithmetic,
            C::GroupNonUniformBallot,
            C::GroupNonUniformShuffle,
            C::GroupNonUniformShuffleRelative,
            C::GroupNonUniformQuad,
        ];
        let others =
            [C::Shader, C::Float16, C::Int8, C::Int16, C::Int64, C::CooperativeMatrixKHR, C::VulkanMemoryModel];
        (!self.integer_dot_product).then(|| subgroups.into_iter().chain(others).collect())
    }
}

/// A validated compute shader of one entry point.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct GeneratedModule {
    /// The module.
    pub module: naga::Module,
    /// naga's analysis of it.
    pub info: ModuleInfo,
    /// Name of the entry point.
    pub entry: String,
    /// Capabilities that the module needs beyond plain compute shaders.
    #[serde(with = "capability_bits")]
    pub capabilities: Capabilities,
    /// All accesses are proved in bounds: no run-time checks are needed.
    pub bounds_proved: bool,
    /// The properties that could not be proved.
    pub unproved: Vec<String>,
    /// Threads of the smallest and the largest subgroup that it is made for.
    pub subgroup_sizes: (u32, u32),
    outline: Outline,
}

/// Capabilities as the bits that this version of naga gives them.
mod capability_bits {
    use naga::valid::Capabilities;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(c: &Capabilities, to: S) -> Result<S::Ok, S::Error> {
        c.bits().serialize(to)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Capabilities, D::Error> {
        Deserialize::deserialize(from).map(Capabilities::from_bits_truncate)
    }
}

/// naga's analysis of a module, or its error.
pub(crate) fn validated(module: &naga::Module, capabilities: Capabilities) -> Result<ModuleInfo, String> {
    Validator::new(ValidationFlags::all(), capabilities)
        .subgroup_stages(ShaderStages::COMPUTE)
        .subgroup_operations(SubgroupOperationSet::all())
        .validate(module)
        .map_err(|e| {
            let mut text = e.to_string();
            let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(e.as_inner());
            while let Some(c) = cause {
                text += &format!(": {c}");
                cause = c.source();
            }
            text
        })
}

impl GeneratedModule {
    pub(crate) fn new(
        module: naga::Module,
        entry: String,
        capabilities: Capabilities,
        unproved: Vec<String>,
        outline: Outline,
    ) -> Result<GeneratedModule, EmitError> {
        let info = validated(&module, capabilities)
            .map_err(|message| EmitError::Invalid { kernel: entry.clone(), message })?;
        let bounds_proved = unproved.is_empty();
        let subgroup_sizes = (0, u32::MAX);
        Ok(GeneratedModule { module, info, entry, capabilities, bounds_proved, unproved, subgroup_sizes, outline })
    }
    /// The origin of the lines of a text; `None` if it is not this kernel's WGSL.
    pub(crate) fn lines(&self, wgsl: &str) -> Option<Vec<LineSpan>> {
        self.outline.lines(wgsl, &self.entry)
    }
    fn invalid(&self, message: impl ToString) -> EmitError {
        EmitError::Invalid { kernel: self.entry.clone(), message: message.to_string() }
    }
    fn policies(&self) -> naga::proc::BoundsCheckPolicies {
        use naga::proc::BoundsCheckPolicy::{Restrict, Unchecked};
        let policy = if self.bounds_proved { Unchecked } else { Restrict };
        naga::proc::BoundsCheckPolicies { index: policy, buffer: policy, image_load: policy, binding_array: policy }
    }

    /// WGSL text.
    ///
    /// # Errors
    /// [`EmitError::Invalid`], which is a bug.
    pub fn emit_wgsl(&self) -> Result<String, EmitError> {
        let text = naga::back::wgsl::write_string(&self.module, &self.info, naga::back::wgsl::WriterFlags::empty())
            .map_err(|e| self.invalid(e))?;
        // naga's writer looks at types; some kernels have halves in conversions only.
        let halves = self.capabilities.contains(Capabilities::SHADER_FLOAT16) && !text.contains(ENABLE_HALVES);
        let text = if halves { format!("{ENABLE_HALVES}\n{text}") } else { text };
        Ok(if self.has_oblong_matrices() { format!("{OBLONG}\n{}", rows_by_columns(&text)) } else { text })
    }
    /// True if it has subgroup matrices. HLSL has none, and MSL only matrices of eight rows and columns.
    pub fn uses_matrices(&self) -> bool {
        self.capabilities.contains(Capabilities::COOPERATIVE_MATRIX)
    }
    /// The features of wgpu that it needs, by wgpu's names.
    pub fn features(&self) -> impl Iterator<Item = &'static str> + use<> {
        let capabilities = self.capabilities;
        FEATURES.iter().filter(move |(c, _)| capabilities.contains(*c)).map(|(_, name)| *name)
    }
    /// True when it takes f16 from the bits of 16-bit integers, as kernels for Vulkan alone do.
    pub fn takes_halves_from_integers(&self) -> bool {
        self.capabilities.contains(Capabilities::SHADER_INT16)
    }
    /// WGSL has no words for matrices of subgroups that are not square; SPIR-V has.
    fn has_oblong_matrices(&self) -> bool {
        let oblong = |t: &naga::Type| matches!(t.inner, naga::TypeInner::CooperativeMatrix { columns, rows, .. } if columns != rows);
        self.module.types.iter().any(|(_, t)| oblong(t))
    }
    /// Reads the WGSL text back with exactly the features that the kernel asks for. False where no reader takes it, as
    /// its first line says.
    ///
    /// # Errors
    /// naga's message.
    pub fn reads_back(&self) -> Result<bool, String> {
        if self.has_oblong_matrices() {
            return Ok(false);
        }
        let text = self.emit_wgsl().map_err(|e| e.to_string())?;
        read_wgsl(&text, &self.features().collect::<Vec<_>>()).map(|()| true)
    }
    /// WGSL text in a dialect, for a reader.
    ///
    /// # Errors
    /// [`EmitError::Unsupported`] for what the dialect lacks; [`EmitError::Invalid`], which is a bug.
    pub fn emit_wgsl_in(&self, dialect: WgslDialect) -> Result<String, EmitError> {
        if self.has_oblong_matrices() {
            return Err(EmitError::unsupported("WGSL has square matrices only; SPIR-V has others"));
        }
        let text = self.emit_wgsl()?;
        if dialect == WgslDialect::Wgpu {
            return Ok(text);
        }
        let lacks = NOT_STANDARD.iter().filter(|(c, _)| self.capabilities.contains(*c)).map(|(_, what)| *what);
        let lacks: Vec<&str> = lacks.collect();
        if !lacks.is_empty() {
            return Err(EmitError::unsupported(format!("standard WGSL has no {}", lacks.join(", no "))));
        }
        // naga's writer omits this line, since its parser does not have the extension.
        let enable = if self.capabilities.contains(Capabilities::SUBGROUP) { "enable subgroups;\n" } else { "" };
        Ok(format!("{enable}{}", text.replace(LARGEST[0], LARGEST[1])))
    }
    /// SPIR-V words, with bounds checks unless [`GeneratedModule::bounds_proved`]. They are the words that wgpu would
    /// make, without strides of arrays outside of buffers.
    ///
    /// # Errors
    /// [`EmitError::Invalid`], which is a bug.
    pub fn emit_spirv(&self) -> Result<Vec<u32>, EmitError> {
        Ok(without_strides_of_locals(&self.emit_spirv_as(SpirvForm::default())?))
    }
    /// The words that wgpu would make, in a form.
    ///
    /// # Errors
    /// [`EmitError::Invalid`], which is a bug.
    pub fn emit_spirv_as(&self, form: SpirvForm) -> Result<Vec<u32>, EmitError> {
        self.write_spirv(&self.module, form, None)
    }
    /// The same words with `OpLine` before instructions with a source: line `n` is the part of the kernel whose `first`
    /// is `n - 1`.
    ///
    /// # Errors
    /// [`EmitError::Invalid`], which is a bug.
    pub fn emit_spirv_with_lines(&self) -> Result<(Vec<u32>, Vec<LineSpan>), EmitError> {
        let mut module = self.module.clone();
        if let Some(e) = module.entry_points.first_mut() {
            e.function.body = self.outline.spanned(&e.function.body);
        }
        let sources = self.outline.sources();
        let text = "\n".repeat(sources.len());
        let language = naga::back::spv::SourceLanguage::Unknown;
        let info = naga::back::spv::DebugInfo { source_code: &text, file_name: &self.entry, language };
        let words = self.write_spirv(&module, SpirvForm::default(), Some(info))?;
        Ok((without_strides_of_locals(&words), sources))
    }
    fn write_spirv(
        &self,
        module: &naga::Module,
        form: SpirvForm,
        debug_info: Option<naga::back::spv::DebugInfo<'_>>,
    ) -> Result<Vec<u32>, EmitError> {
        use naga::back::spv;
        let mut policies = self.policies();
        if form.robust_buffers {
            policies.buffer = naga::proc::BoundsCheckPolicy::Unchecked;
        }
        let options = spv::Options {
            debug_info,
            lang_version: form.version,
            flags: spv::WriterFlags::DEBUG,
            capabilities: form.capabilities().map(|list| list.into_iter().collect()),
            bounds_check_policies: policies,
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: !self.bounds_proved,
            emit_int_div_checks: !self.bounds_proved,
            ..spv::Options::default()
        };
        let pipeline =
            spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: self.entry.clone() };
        spv::write_vec(module, &self.info, &options, Some(&pipeline)).map_err(|e| self.invalid(e))
    }
    /// Metal Shading Language text.
    ///
    /// # Errors
    /// [`EmitError::Invalid`], which is a bug.
    pub fn emit_msl(&self) -> Result<String, EmitError> {
        use naga::back::msl;
        let other = |t: &naga::Type| {
            let eight = naga::CooperativeSize::Eight;
            matches!(t.inner, naga::TypeInner::CooperativeMatrix { columns, rows, .. } if (columns, rows) != (eight, eight))
        };
        if self.module.types.iter().any(|(_, t)| other(t)) {
            return Err(EmitError::unsupported("MSL has matrices of 8 rows and 8 columns only"));
        }
        let options = msl::Options {
            lang_version: (2, 4),
            fake_missing_bindings: true,
            bounds_check_policies: self.policies(),
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: !self.bounds_proved,
            ..msl::Options::default()
        };
        msl::write_string(&self.module, &self.info, &options, &msl::PipelineOptions::default())
            .map(|(text, _)| text)
            .map_err(|e| self.invalid(e))
    }
    /// HLSL text.
    ///
    /// # Errors
    /// [`EmitError::Unsupported`] for what it cannot say; [`EmitError::Invalid`], which is a bug.
    pub fn emit_hlsl(&self) -> Result<String, EmitError> {
        use naga::back::hlsl;
        if self.uses_matrices() {
            return Err(EmitError::unsupported("HLSL has no matrices of subgroups"));
        }
        // naga 30 writes `asfloat` for the halves of 16-bit integers, which takes 32 bits.
        if self.takes_halves_from_integers() {
            return Err(EmitError::unsupported("HLSL, as naga writes it, takes no halves from 16-bit integers"));
        }
        let options = hlsl::Options {
            shader_model: hlsl::ShaderModel::V6_2,
            fake_missing_bindings: true,
            immediates_target: Some(hlsl::BindTarget::default()),
            zero_initialize_workgroup_memory: false,
            restrict_indexing: !self.bounds_proved,
            force_loop_bounding: !self.bounds_proved,
            ..hlsl::Options::default()
        };
        let pipeline = hlsl::PipelineOptions::default();
        let mut text = String::new();
        hlsl::Writer::new(&mut text, &options, &pipeline)
            .write(&self.module, &self.info, None)
            .map_err(|e| self.invalid(e))?;
        Ok(text)
    }
}

/// Parses and validates WGSL text as a compute shader with all capabilities that this crate uses. Text with non-square
/// matrices, which its first line says, is not parsed.
///
/// # Errors
/// naga's message.
pub fn check_wgsl(text: &str) -> Result<(), String> {
    if text.starts_with(OBLONG) {
        return Ok(());
    }
    let capabilities = Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SHADER_INT16
        | Capabilities::SUBGROUP
        | Capabilities::COOPERATIVE_MATRIX
        | Capabilities::IMMEDIATES;
    check_wgsl_with(text, capabilities)
}

/// Reads WGSL as wgpu does on a device with these features of wgpu, by name, and no others that kernels use.
///
/// # Errors
/// naga's message.
pub fn read_wgsl(text: &str, features: &[&str]) -> Result<(), String> {
    // Packing halves in words needs no feature.
    let plain = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let asked = FEATURES.iter().filter(|(_, name)| features.contains(name)).map(|f| f.0).collect();
    check_wgsl_with(text, plain.union(asked))
}

fn check_wgsl_with(text: &str, capabilities: Capabilities) -> Result<(), String> {
    let mut parser = naga::front::wgsl::Frontend::new();
    let options = naga::front::wgsl::Options { capabilities, ..naga::front::wgsl::Options::new() };
    parser.set_options(options);
    let module = parser.parse(text).map_err(|e| e.emit_to_string(text))?;
    validated(&module, capabilities).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor_ir::plan::EmitKernel;
    use tensor_ir::profile::DeviceProfile;
    use tensor_ir::tir::{BufferId, TensorFunction};

    /// The kernels that the rules make of a tensor function for a device.
    fn kernels(text: &str, profile: &DeviceProfile) -> Vec<GeneratedModule> {
        let f: TensorFunction = tensor_ir::text::parse_tensor_function(text).expect("a tensor function");
        let constants: Vec<BufferId> = f.inputs().skip(1).collect();
        let scheduled = tensor_ir::schedule::rules::schedule(&f, &constants, profile).expect("a schedule").function;
        let kernel = |name| {
            let e = crate::Emitter.emit(&scheduled, name, profile).expect("a kernel");
            e.module.downcast_ref::<GeneratedModule>().expect("ours").clone()
        };
        scheduled.kernels().into_iter().map(|(name, _)| kernel(name)).collect()
    }

    /// Those for lavapipe, in both dialects.
    fn texts(text: &str) -> Vec<[String; 2]> {
        let both =
            |g: GeneratedModule| [WgslDialect::Wgpu, WgslDialect::Standard].map(|d| g.emit_wgsl_in(d).expect("WGSL"));
        kernels(text, &DeviceProfile::lavapipe()).into_iter().map(both).collect()
    }

    /// A device without instructions for packed integers limits the capabilities, and these kernels need none of them.
    #[test]
    fn spirv_in_every_form() {
        let text = "tensor @mm(%a: f16[56,64], %b: f16[64,16], out %c: f16[56,16]) {
  for i in 0..56 { for j in 0..16 { for k in 0..64 {
    block mm reduce sum init { %c[i, j] <- %a[i, k] * %b[k, j] }
  } } }
}";
        for name in ["lavapipe", "ada", "apple"] {
            let profile = DeviceProfile::named(name).expect("a profile");
            for g in kernels(text, &profile) {
                for (version, integer_dot_product) in [((1, 3), true), ((1, 5), false), ((1, 6), false)] {
                    let form = SpirvForm { version, robust_buffers: true, integer_dot_product };
                    let words = g.emit_spirv_as(form).unwrap_or_else(|e| panic!("{name}: {e}"));
                    assert_eq!(words[1], u32::from(version.0) << 16 | u32::from(version.1) << 8);
                }
            }
        }
    }

    /// Where the device drops accesses beyond a buffer, a kernel that is not proved tests less.
    #[test]
    fn robust_buffers_need_no_tests() {
        let mut g = kernels(
            "tensor @scale(%x: f32[64], out %y: f32[64]) { for i in 0..64 { block y { %y[i] <- %x[i] * 2.0 } } }",
            &DeviceProfile::lavapipe(),
        )
        .remove(0);
        g.bounds_proved = false;
        let words = |robust_buffers| {
            g.emit_spirv_as(SpirvForm { robust_buffers, ..SpirvForm::default() }).expect("SPIR-V").len()
        };
        assert!(words(true) < words(false));
    }

    /// naga's modules are saved as its version encodes them: the form names it.
    #[test]
    fn the_saved_form_names_the_version_of_naga() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).expect("Cargo.lock");
        let locked = lock.split("name = \"naga\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
        let mut parts = locked.expect("naga is locked").split('.');
        let version = format!("naga {}.{},", parts.next().expect("major"), parts.next().expect("minor"));
        assert!(tensor_ir::plan::EmitKernel::saved_form(&crate::Emitter).starts_with(&version), "{version}");
    }

    #[test]
    fn the_standard_wants_subgroups_declared() {
        let list = texts(
            "tensor @mm(%a: f32[56,64], %b: f32[64,16], out %c: f32[56,16]) {
  for i in 0..56 { for j in 0..16 { for k in 0..64 {
    block mm reduce sum init { %c[i, j] <- %a[i, k] * %b[k, j] }
  } } }
}",
        );
        let used = list.iter().filter(|[_, standard]| standard.contains("subgroup")).count();
        assert!(used > 0, "the rule for software devices uses subgroups");
        for [wgpu, standard] in list {
            assert!(!wgpu.contains("enable subgroups;"));
            assert_eq!(standard.starts_with("enable subgroups;"), wgpu.contains("subgroup"), "{standard}");
        }
    }

    #[test]
    fn the_largest_number_is_in_range_in_the_standard() {
        let list = texts(
            "tensor @clamp(%x: f32[64], out %y: f32[64]) {
  for i in 0..64 { block y { %y[i] <- max(%x[i], -3.4028234663852886e38) } }
}",
        );
        for [wgpu, standard] in list {
            assert!(wgpu.contains(LARGEST[0]), "naga writes it otherwise now: {wgpu}");
            assert!(standard.contains(LARGEST[1]) && !standard.contains(LARGEST[0]), "{standard}");
            check_wgsl(&standard).expect("naga reads it too");
        }
    }
}

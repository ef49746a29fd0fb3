//! The model zoo: real architectures with seeded weights.
//!
//! The architectures are torchvision's, operator for operator; parameters and nodes carry the names that PyTorch and
//! its ONNX exporter give them. Weights come from a seeded generator when they are first read, so building is instant.
//! Statistics of batch norms follow from the architecture (see [`moments`]), so that activations neither grow nor
//! vanish and everything fits in f16.

mod densenet;
mod efficientnet;
mod encoder;
mod mobilenet_v2;
mod mobilenet_v3;
pub mod moments;
mod net;
mod resnet;
mod size;
mod squeezenet;
mod ssdlite;
mod unet;
mod vgg;
mod vit;
pub mod weights;

use compiler::graph::{BuildError, Module};
use compiler::int::Dim;
use net::{Act, Net};
pub use size::Size;

/// The inputs of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// `input: f32[batch, channels, height, width]`.
    Image([usize; 3]),
    /// `tokens: i64[batch, sequence]`, where nobody says how many: so many. The sequence may stay open.
    Tokens(usize),
}
impl Input {
    /// Extents of one element of a batch.
    pub fn extents(&self) -> Vec<usize> {
        match *self {
            Input::Image(extents) => extents.to_vec(),
            Input::Tokens(length) => vec![length],
        }
    }
}

/// A model of the zoo.
#[derive(Clone, Copy)]
pub struct ZooEntry {
    /// Name: what `weft run NAME` takes.
    pub name: &'static str,
    /// One line.
    pub description: &'static str,
    /// Learnable parameters.
    pub parameters: u64,
    /// Multiply-accumulates of one run at batch 1.
    pub macs: u64,
    /// The kind of the input.
    pub input: Input,
    /// Name of the output.
    pub output: &'static str,
    /// How networks of this kind are trained to see pixels: `imagenet` (torchvision's classifiers) or `unit` (0..1).
    pub preset: &'static str,
    /// The form that tests run whole: the smallest image that every layer can take, and so few channels and layers that
    /// the interpreter is done in moments.
    pub smallest: Size,
    build: fn(&mut Net<'_>, &Act) -> Result<Act, BuildError>,
}

/// Why a model could not be built.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ZooError {
    /// No model has this name.
    #[error("the zoo has no model `{name}`; it has: {}", .known.join(", "))]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// All names.
        known: Vec<&'static str>,
    },
    /// A batch of nothing, or one whose input no machine holds.
    #[error("a batch of {0} is not possible")]
    BadBatch(usize),
    /// Behind the name's colon stands no form of a network.
    #[error("the form `{text}`: {why}; a form is `smallest`, or some of image=PIXELS,narrow=N,layers=N")]
    BadSize {
        /// What was asked for.
        text: String,
        /// Its error.
        why: String,
    },
    /// The architecture does not type-check.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The largest batch.
const BATCH_LIMIT: usize = 65_536;

const IMAGE: Input = Input::Image([3, 224, 224]);

macro_rules! zoo {
    ($($name:literal, $parameters:literal, $macs:literal, $input:expr, $output:literal, $preset:literal, $build:expr, $smallest:expr, $description:literal;)*) => {
        &[$(ZooEntry {
            name: $name,
            description: $description,
            parameters: $parameters,
            macs: $macs,
            input: $input,
            output: $output,
            preset: $preset,
            smallest: Size { image: $smallest.0, narrow: $smallest.1, layers: $smallest.2 },
            build: $build,
        }),*]
    };
}

/// Every model, in the order of `weft zoo`. The smallest form is image, narrow, layers.
///
/// That of squeezenet1_1 has 64 pixels: its layers magnify rounding alike at any size, and of 32 pixels one is left
/// behind them, so that its last mean averages nothing (benches/results/mixed-precision.md).
static MODELS: &[ZooEntry] = zoo! {
    "resnet18", 11_689_512, 1_814_073_344, IMAGE, "logits", "imagenet", resnet::resnet18, (32, 4, 2), "residual network, 18 layers, basic blocks";
    "resnet50", 25_557_032, 4_089_184_256, IMAGE, "logits", "imagenet", resnet::resnet50, (32, 4, 2), "residual network, 50 layers, bottlenecks (v1.5)";
    "resnet101", 44_549_160, 7_801_405_440, IMAGE, "logits", "imagenet", resnet::resnet101, (32, 4, 6), "residual network, 101 layers, bottlenecks (v1.5)";
    "mobilenet_v2", 3_504_872, 300_774_272, IMAGE, "logits", "imagenet", mobilenet_v2::mobilenet_v2, (32, 2, 4), "inverted residuals, depthwise convolutions, ReLU6";
    "mobilenet_v3_small", 2_542_856, 56_510_400, IMAGE, "logits", "imagenet", mobilenet_v3::mobilenet_v3_small, (32, 2, 1), "inverted residuals with squeeze and excitation, hard swish";
    "efficientnet_b0", 5_288_548, 385_814_752, IMAGE, "logits", "imagenet", efficientnet::efficientnet_b0, (32, 2, 4), "scaled inverted residuals with squeeze and excitation, SiLU";
    "squeezenet1_1", 1_235_496, 349_151_936, IMAGE, "logits", "imagenet", squeezenet::squeezenet1_1, (64, 1, 1), "fire modules: squeeze, then two expansions side by side";
    "vgg16", 138_357_544, 15_470_264_320, IMAGE, "logits", "imagenet", vgg::vgg16, (32, 4, 3), "plain 3x3 convolutions and three large dense layers";
    "densenet121", 7_978_856, 2_834_161_664, IMAGE, "logits", "imagenet", densenet::densenet121, (32, 4, 6), "each layer reads all before it in its block";
    "unet", 31_031_810, 48_171_581_440, Input::Image([3, 256, 256]), "output", "unit", unet::unet, (16, 4, 1), "segmentation, widths 64 to 1024, transposed convolutions, two classes";
    "encoder", 5_519_360, 436_207_616, Input::Tokens(128), "encoded", "unit", encoder::encoder, (0, 4, 2), "transformer encoder of texts, 4 layers of width 256, any length";
    "ssdlite", 3_329_484, 680_449_984, Input::Image([3, 320, 320]), "boxes", "unit", ssdlite::ssdlite, (64, 4, 1), "detector on mobilenet_v2: anchors of six sizes, 20 classes, NonMaxSuppression";
    "vit_b_16", 86_567_656, 17_563_828_224, IMAGE, "logits", "imagenet", vit::vit_b_16, (32, 4, 2), "vision transformer, 12 layers, patches of 16";
};

/// Every model.
pub fn list() -> &'static [ZooEntry] {
    MODELS
}

/// The model of that name.
pub fn find(name: &str) -> Option<&'static ZooEntry> {
    MODELS.iter().find(|m| m.name == name)
}

/// Builds a model for `batch` images with weights from `seed`. The entry is `main`, its input `input` is `f32[batch,
/// channels, height, width]`. Weights are generated when they are read. A colon and a form ([`Size::parse`]) may follow
/// the name.
///
/// # Errors
/// An unknown name or form, or a batch of 0.
pub fn build(name: &str, batch: usize, seed: u64) -> Result<Module, ZooError> {
    if batch == 0 || batch > BATCH_LIMIT {
        return Err(ZooError::BadBatch(batch));
    }
    build_open(name, &Dim::from(batch), None, seed)
}

/// As [`build`], with a batch and a `sequence` of tokens that may be open.
///
/// # Errors
/// An unknown name or form.
pub fn build_open(name: &str, batch: &Dim, sequence: Option<&Dim>, seed: u64) -> Result<Module, ZooError> {
    let (plain, form) = name.split_once(':').map_or((name, None), |(plain, form)| (plain, Some(form)));
    let Some(entry) = find(plain) else {
        return Err(ZooError::UnknownModel { name: plain.into(), known: MODELS.iter().map(|m| m.name).collect() });
    };
    let size = form.map_or(Ok(Size::FULL), |text| Size::parse(text, entry.smallest))?;
    let mut module = Module::new("main");
    let mut net = Net::new(&mut module, seed, size);
    let input = match entry.input {
        Input::Image([channels, ..]) if size.image > 0 => net.input(batch, [channels, size.image, size.image]),
        Input::Image(image) => net.input(batch, image),
        Input::Tokens(length) => net.tokens(batch, sequence.cloned().unwrap_or(Dim::from(length))),
    };
    let output = (entry.build)(&mut net, &input)?;
    net.finish(entry.output, &output);
    Ok(module)
}

/// `channels` rounded to a multiple of 8, by no more than a tenth downwards (torchvision's `_make_divisible`).
fn make_divisible(channels: f64) -> usize {
    let rounded = ((channels + 4.0) as usize / 8 * 8).max(8);
    if (rounded as f64) < 0.9 * channels { rounded + 8 } else { rounded }
}

#[cfg(test)]
mod tests;

//! Options for values of inputs, and for converting images to them.

use crate::arrays::Named;
use crate::options;
use crate::options::Value;

/// How images become the size of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resize {
    /// As little as covers the input, and the middle of that.
    Crop,
    /// The shorter side to so many pixels, and the middle of that.
    Shorter(u32),
    /// Each side by itself.
    Stretch,
    /// As much as fits in, with black around it.
    Pad,
}
impl Resize {
    /// Reads `crop`, `stretch`, `pad`, or the size of the shorter side.
    ///
    /// # Errors
    /// The choices.
    pub fn parse(text: &str) -> Result<Resize, String> {
        match text {
            "crop" => Ok(Resize::Crop),
            "stretch" => Ok(Resize::Stretch),
            "pad" => Ok(Resize::Pad),
            _ => text.parse().ok().filter(|&n| n > 0).map(Resize::Shorter).ok_or_else(|| {
                "takes crop, stretch, pad, or the pixels of the shorter side, of which the middle is taken".to_string()
            }),
        }
    }
}

/// Where the channels of an image stand in a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageLayout {
    /// Channels before height and width.
    Nchw,
    /// Channels last.
    Nhwc,
}

impl ImageLayout {
    /// Its name: `nchw` or `nhwc`.
    pub fn name(self) -> &'static str {
        match self {
            ImageLayout::Nchw => "nchw",
            ImageLayout::Nhwc => "nhwc",
        }
    }
}

impl Value for Resize {
    fn of(text: &str) -> Result<Resize, String> {
        Resize::parse(text)
    }
    fn text(&self) -> String {
        match self {
            Resize::Crop => "crop".into(),
            Resize::Shorter(n) => n.to_string(),
            Resize::Stretch => "stretch".into(),
            Resize::Pad => "pad".into(),
        }
    }
}

impl Value for ImageLayout {
    fn of(text: &str) -> Result<ImageLayout, String> {
        let all = [ImageLayout::Nchw, ImageLayout::Nhwc];
        all.into_iter().find(|l| l.name() == text).ok_or_else(|| "takes nchw, nhwc".to_string())
    }
    fn text(&self) -> String {
        self.name().into()
    }
}

options! {
    /// Values for a model's inputs.
    pub struct Inputs {
        /// Arrays by name (.npz), an array (.npy), or images (.png, .jpg; several are a batch)
        files: Vec<String> = "" in Inputs { long: "input", short: Some('i'), value: "[NAME=]FILE" };
        /// Mean of each channel in the input's order (B,G,R with --bgr), or one for all: (byte / scale - mean) / std
        mean: Vec<f64> = "" in Inputs { value: "R,G,B", listed: true, words: 4, check: channel };
        /// Standard deviation of each channel, in the order of --mean
        std: Vec<f64> = "" in Inputs { value: "R,G,B", listed: true, words: 4, check: channel };
        /// Divisor of the image's bytes, before mean and std; 1 leaves 0..255 [default: 255]
        scale: Option<f64> = "" in Inputs { value: "N" };
        /// Size of images: crop (the middle), stretch, pad, or N (shorter side to N, then the middle) [default: crop]
        resize: Option<Resize> = "" in Inputs { value: "HOW" };
        /// Mean, deviation, scale and size as usual for imagenet, inception (-1..1), unit (0..1) or bytes (0..255); zoo
        /// models know theirs
        preset: Option<String> = "" in Inputs { value: "NAME" };
        /// Layout of image inputs; needed where the shape fits both
        image_layout: Option<ImageLayout> = "" in Inputs { value: "LAYOUT", choices: || vec!["nchw", "nhwc"] };
        /// Channels in the order B,G,R
        bgr: bool = "" in Inputs;
    }
    also {
        /// Values in memory, by name; then no file is read.
        arrays: Named,
    }
}

fn channel(text: &str) -> Result<(), String> {
    f64::of(text).map(drop).map_err(|_| "needs numbers, as in 0.485,0.456,0.406".into())
}

impl Inputs {
    /// True when an option is given that only images heed.
    pub fn about_images(&self) -> bool {
        let numbers = !self.mean.is_empty() || !self.std.is_empty() || self.scale.is_some();
        numbers || self.resize.is_some() || self.preset.is_some() || self.image_layout.is_some() || self.bgr
    }
}

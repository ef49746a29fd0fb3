//! Options for converting an image to an input.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ImageLayout {
    /// Channels before height and width.
    Nchw,
    /// Channels last.
    Nhwc,
}

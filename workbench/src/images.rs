//! Images as inputs: decoded, resized, normalised and laid out for the type of the input.
//!
//! A value is `(byte / scale - mean) / std` for each channel. Integer inputs get the bytes unchanged.

use crate::error::{Error, Result};
use crate::pictures::{ImageLayout, Inputs, Resize};
use compiler::graph::TensorType;
use compiler::tensor::Tensor;
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageReader};
use std::path::{Path, PathBuf};

/// How a kind of network was trained to see pixels.
pub struct Preset {
    /// Its name for `--preset` and the zoo.
    pub name: &'static str,
    scale: f64,
    mean: &'static [f64],
    std: &'static [f64],
    resize: Resize,
}

/// Every preset. `imagenet` is torchvision's for its classifiers; `inception` gives -1..1.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "imagenet",
        scale: 255.0,
        mean: &[0.485, 0.456, 0.406],
        std: &[0.229, 0.224, 0.225],
        resize: Resize::Shorter(256),
    },
    Preset { name: "inception", scale: 255.0, mean: &[0.5], std: &[0.5], resize: Resize::Crop },
    Preset { name: "unit", scale: 255.0, mean: &[0.0], std: &[1.0], resize: Resize::Crop },
    Preset { name: "bytes", scale: 1.0, mean: &[0.0], std: &[1.0], resize: Resize::Crop },
];

/// How images become tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Preparation {
    scale: f64,
    mean: Vec<f64>,
    std: Vec<f64>,
    resize: Resize,
    bgr: bool,
    layout: Option<ImageLayout>,
    /// The options ask for arithmetic, which integers do not take.
    asked: bool,
}

impl Preparation {
    /// From the options; what they leave out is as the preset says, that of `--preset` or of the zoo's `model`, else
    /// `unit`.
    ///
    /// # Errors
    /// Values that say nothing: a standard deviation or a scale of 0.
    pub fn new(a: &Inputs, model: &str) -> Result<Preparation> {
        let own = a.preset.as_deref().or_else(|| benches::zoo::find(model).map(|z| z.preset)).unwrap_or("unit");
        let preset = PRESETS.iter().find(|p| p.name == own).ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
            Error::usage(format!("--preset {own}: no such preset; there are: {}", names.join(", ")))
        })?;
        let or = |given: &[f64], preset: &[f64]| if given.is_empty() { preset.to_vec() } else { given.to_vec() };
        let p = Preparation {
            scale: a.scale.unwrap_or(preset.scale),
            mean: or(&a.mean, preset.mean),
            std: or(&a.std, preset.std),
            resize: a.resize.unwrap_or(preset.resize),
            bgr: a.bgr,
            layout: a.image_layout,
            asked: !a.mean.is_empty() || !a.std.is_empty() || a.scale.is_some() || a.preset.is_some(),
        };
        if p.scale == 0.0 || p.std.contains(&0.0) {
            return Err(Error::usage("--std and --scale divide: 0 is no value of theirs"));
        }
        Ok(p)
    }

    /// One tensor of the type `ty` from `images`: a batch of them; where the type wants more, they come again from the
    /// first on. Sizes that the type leaves open are the images' own.
    ///
    /// # Errors
    /// Files that are no images, and types that no image fits.
    pub fn tensor(&self, images: &[PathBuf], input: &str, ty: &TensorType) -> Result<Tensor> {
        let fail = |why: String| Error::input(format!("input `{input}` is {ty:?}: {why}"));
        let axes = Axes::of(ty, self.layout).map_err(fail)?;
        let size = |d: Option<usize>| d.and_then(|d| ty.shape[d].as_const()).map(|n| n as usize);
        let channels = size(Some(axes.channels)).unwrap_or(3);
        let batch = size(axes.batch).unwrap_or(if axes.batch.is_some() { images.len() } else { 1 });
        if batch == 0 || batch % images.len() != 0 {
            return Err(fail(format!("{} images are no batch of {batch}", images.len()))
                .help(format!("give --batch {}", images.len())));
        }
        self.check_channels(channels)?;
        let mut planes = Vec::with_capacity(images.len());
        for path in images {
            let image = decode(path)?;
            let image = fit(&image, size(Some(axes.height)), size(Some(axes.width)), self.resize).map_err(fail)?;
            planes.push(image);
        }
        let (w, h) = (planes[0].width() as usize, planes[0].height() as usize);
        if planes.iter().any(|p| (p.width() as usize, p.height() as usize) != (w, h)) {
            return Err(fail("the images have different sizes".into()).help("give one size with --shape or --dim"));
        }
        let mut shape = vec![0; ty.rank()];
        let mut strides = [0; 4];
        for (i, (axis, n)) in
            [(axes.batch, batch), (Some(axes.channels), channels), (Some(axes.height), h), (Some(axes.width), w)]
                .into_iter()
                .enumerate()
        {
            if let Some(axis) = axis {
                shape[axis] = n;
                strides[i] = axis;
            }
        }
        let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>();
        let [_, c_step, y_step, x_step] = strides.map(stride);
        let one = channels * h * w;
        let mut values = vec![0.0; batch * one];
        for n in 0..batch {
            let pixels = self.values(&planes[n % planes.len()], channels, ty.dtype.is_float());
            for (i, v) in pixels.into_iter().enumerate() {
                let (c, x, y) = (i % channels, i / channels % w, i / channels / w);
                values[n * one + c * c_step + y * y_step + x * x_step] = v;
            }
        }
        if !ty.dtype.is_float() && self.asked {
            return Err(fail("integers take pixels as they are".into()).help("leave --mean, --std and --scale out"));
        }
        Ok(Tensor::from_f64(ty.dtype, shape, values))
    }

    fn check_channels(&self, channels: usize) -> Result<()> {
        for (flag, list) in [("--mean", &self.mean), ("--std", &self.std)] {
            if list.len() != 1 && list.len() != channels && self.asked {
                return Err(Error::usage(format!(
                    "{flag} has {} values, the input has {channels} channel{}",
                    list.len(),
                    if channels == 1 { "" } else { "s" }
                )));
            }
        }
        Ok(())
    }

    /// The values of an image, channels innermost.
    fn values(&self, image: &DynamicImage, channels: usize, float: bool) -> Vec<f64> {
        let mut bytes = match channels {
            1 => image.to_luma8().into_raw(),
            4 => image.to_rgba8().into_raw(),
            _ => image.to_rgb8().into_raw(),
        };
        if self.bgr && channels >= 3 {
            bytes.chunks_exact_mut(channels).for_each(|p| p.swap(0, 2));
        }
        let of = |list: &[f64], c: usize| list.get(c).or(list.first()).copied().unwrap_or(0.0);
        let value = |(i, b): (usize, u8)| match float {
            false => b as f64,
            true => (b as f64 / self.scale - of(&self.mean, i % channels)) / of(&self.std, i % channels),
        };
        bytes.into_iter().enumerate().map(value).collect()
    }

    /// A description for the log.
    pub fn describe(&self) -> String {
        let list = |v: &[f64]| v.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        let resize = match self.resize {
            Resize::Crop => "cropped to the middle".to_string(),
            Resize::Shorter(n) => format!("shorter side to {n}, then the middle"),
            Resize::Stretch => "stretched".into(),
            Resize::Pad => "padded".into(),
        };
        format!(
            "{}, {resize}, (byte / {} - mean {}) / std {}",
            if self.bgr { "BGR" } else { "RGB" },
            self.scale,
            list(&self.mean),
            list(&self.std)
        )
    }
}

/// Positions in a shape.
#[derive(Debug, PartialEq)]
struct Axes {
    batch: Option<usize>,
    channels: usize,
    height: usize,
    width: usize,
}
impl Axes {
    /// From the shape alone where no layout is given: 1, 3 or 4 channels stand before or behind the other two.
    fn of(ty: &TensorType, layout: Option<ImageLayout>) -> Result<Axes, String> {
        let batch = match ty.rank() {
            3 => None,
            4 => Some(0),
            rank => return Err(format!("images have 3 or 4 dimensions, not {rank}")),
        };
        let start = usize::from(batch.is_some());
        let channels = |d: usize| ty.shape[d].as_const().is_some_and(|c| [1, 3, 4].contains(&c));
        let layout = match (layout, channels(start), channels(start + 2)) {
            (Some(layout), ..) => layout,
            (None, true, false) => ImageLayout::Nchw,
            (None, false, true) => ImageLayout::Nhwc,
            (None, true, true) => return Err("either end may be the channels: say --image-layout nchw or nhwc".into()),
            (None, false, false) => return Err("no dimension of 1, 3 or 4 is where channels stand".into()),
        };
        let axes = match layout {
            ImageLayout::Nchw => Axes { batch, channels: start, height: start + 1, width: start + 2 },
            ImageLayout::Nhwc => Axes { batch, channels: start + 2, height: start, width: start + 1 },
        };
        match ty.shape[axes.channels].as_const() {
            Some(n) if !channels(axes.channels) => Err(format!("{n} channels, where images have 1, 3 or 4")),
            _ => Ok(axes),
        }
    }
}

/// True when an image can be what this type holds.
pub fn takes_images(ty: &TensorType, layout: Option<ImageLayout>) -> bool {
    Axes::of(ty, layout).is_ok()
}

/// Reads an image file, turned as its camera says.
fn decode(path: &Path) -> Result<DynamicImage> {
    let fail = |e: String| Error::input(format!("cannot read {}: {e}", path.display()));
    let reader = ImageReader::open(path).map_err(|e| fail(e.to_string()))?;
    let reader = reader.with_guessed_format().map_err(|e| fail(e.to_string()))?;
    let mut decoder = reader.into_decoder().map_err(|e| fail(e.to_string()))?;
    let (w, h) = decoder.dimensions();
    check_size(w, h, decoder.color_type().bytes_per_pixel()).map_err(fail)?;
    let orientation = decoder.orientation().map_err(|e| fail(e.to_string()))?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|e| fail(e.to_string()))?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// The most bytes of an image's pixels: a file may say that it has any number of them.
const MOST_BYTES: u64 = 512 << 20;

/// Refuses an image of more bytes, before it is decoded or resized.
fn check_size(width: u32, height: u32, bytes_per_pixel: u8) -> Result<(), String> {
    let bytes = u64::from(width) * u64::from(height) * u64::from(bytes_per_pixel);
    match bytes > MOST_BYTES {
        true => Err(format!(
            "an image of {width} x {height} pixels takes {} MiB, more than {} MiB",
            bytes.div_ceil(1 << 20),
            MOST_BYTES >> 20
        )),
        false => Ok(()),
    }
}

/// The image in `height` times `width` pixels, each as it is where that is open.
fn fit(image: &DynamicImage, height: Option<usize>, width: Option<usize>, how: Resize) -> Result<DynamicImage, String> {
    let (w, h) = (image.width(), image.height());
    let scaled = |factor: f64| {
        let side = |n: u32| ((n as f64 * factor).round() as u32).max(1);
        resized(image, side(w), side(h))
    };
    let (Some(height), Some(width)) = (height, width) else {
        let whole = match how {
            Resize::Shorter(n) => scaled(n as f64 / w.min(h) as f64)?,
            _ => image.clone(),
        };
        let (th, tw) = (height.map_or(whole.height(), |n| n as u32), width.map_or(whole.width(), |n| n as u32));
        return resized(&whole, tw, th);
    };
    let (tw, th) = (width as u32, height as u32);
    let (x, y) = (tw as f64 / w as f64, th as f64 / h as f64);
    match how {
        Resize::Stretch => resized(image, tw, th),
        Resize::Crop => Ok(middle(&scaled(x.max(y))?, tw, th)),
        Resize::Shorter(n) if n < tw.min(th) => {
            Err(format!("a shorter side of {n} pixels does not fill {th} x {tw}; give a larger --resize, or crop"))
        }
        Resize::Shorter(n) => {
            let whole = scaled(n as f64 / w.min(h) as f64)?;
            match whole.width() < tw || whole.height() < th {
                true => {
                    Err(format!("with --resize {n} the image does not fill {th} x {tw}; give a larger one, or crop"))
                }
                false => Ok(middle(&whole, tw, th)),
            }
        }
        Resize::Pad => {
            let inner = scaled(x.min(y))?;
            let mut canvas = DynamicImage::new(tw, th, image.color());
            let (left, top) = ((tw.saturating_sub(inner.width())) / 2, (th.saturating_sub(inner.height())) / 2);
            image::imageops::replace(&mut canvas, &inner, left.into(), top.into());
            Ok(canvas)
        }
    }
}

/// Bilinear, with the support of a smaller result widened against aliasing.
fn resized(image: &DynamicImage, width: u32, height: u32) -> Result<DynamicImage, String> {
    check_size(width, height, image.color().bytes_per_pixel())?;
    Ok(match (image.width(), image.height()) == (width, height) {
        true => image.clone(),
        false => image.resize_exact(width, height, FilterType::Triangle),
    })
}

fn middle(image: &DynamicImage, width: u32, height: u32) -> DynamicImage {
    let (left, top) = (image.width().saturating_sub(width) / 2, image.height().saturating_sub(height) / 2);
    image.crop_imm(left, top, width, height)
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::dtype::DType;

    fn ty(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType::fixed(dtype, shape)
    }

    /// 6 x 2 pixels: red rises to the right, green downwards.
    fn picture(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weft-images-{name}-{}.png", std::process::id()));
        let image = image::RgbImage::from_fn(6, 2, |x, y| image::Rgb([x as u8 * 50, y as u8 * 100, 7]));
        image.save(&path).expect("writes");
        path
    }

    #[test]
    fn layouts_follow_from_shapes() {
        let axes = |shape: &[usize]| Axes::of(&ty(DType::F32, shape), None).map(|a| (a.batch, a.channels, a.height));
        assert_eq!(axes(&[1, 3, 8, 9]), Ok((Some(0), 1, 2)));
        assert_eq!(axes(&[1, 8, 9, 3]), Ok((Some(0), 3, 1)));
        assert_eq!(axes(&[8, 9, 1]), Ok((None, 2, 0)));
        assert!(axes(&[1, 3, 8, 3]).unwrap_err().contains("--image-layout"));
        assert!(axes(&[1, 8]).is_err() && axes(&[1, 5, 6, 7]).is_err());
        assert!(
            Axes::of(&ty(DType::F32, &[1, 3, 2, 2]), Some(ImageLayout::Nhwc)).is_err_and(|e| e.contains("2 channels"))
        );
    }

    #[test]
    fn pixels_are_normalised_and_laid_out() {
        let path = picture("values");
        let a = Inputs { mean: vec![0.5], std: vec![0.25], ..Inputs::default() };
        let p = Preparation::new(&a, "x.onnx").expect("options");
        let t = p.tensor(std::slice::from_ref(&path), "x", &ty(DType::F32, &[1, 3, 2, 6])).expect("a tensor");
        let v = t.to_f64_vec();
        let expected = |b: f64| (b / 255.0 - 0.5) / 0.25;
        assert!((v[3] - expected(150.0)).abs() < 1e-6 && (v[12 + 6] - expected(100.0)).abs() < 1e-6);
        let last = p.tensor(std::slice::from_ref(&path), "x", &ty(DType::F32, &[2, 2, 6, 3])).expect("a batch");
        assert_eq!(last.to_f64_vec()[3 * 3], v[3]);
        assert_eq!(last.to_f64_vec()[36 + 3 * 3], v[3], "the image comes again");
        let bytes = Preparation::new(&Inputs { bgr: true, ..Inputs::default() }, "x.onnx").expect("options");
        let t = bytes.tensor(std::slice::from_ref(&path), "x", &ty(DType::U8, &[2, 6, 3])).expect("a tensor");
        assert_eq!(t.to_f64_vec()[..3], [7.0, 0.0, 0.0]);
        assert!(
            p.tensor(std::slice::from_ref(&path), "x", &ty(DType::U8, &[2, 6, 3])).is_err(),
            "integers are not normalised"
        );
        std::fs::remove_file(path).expect("removes");
    }

    #[test]
    fn sizes() {
        let image = DynamicImage::new_rgb8(40, 20);
        let size = |h, w, how| fit(&image, h, w, how).map(|i| (i.height(), i.width()));
        for how in [Resize::Crop, Resize::Stretch, Resize::Pad, Resize::Shorter(12)] {
            assert_eq!(size(Some(10), Some(10), how), Ok((10, 10)), "{how:?}");
        }
        assert_eq!(size(None, None, Resize::Crop), Ok((20, 40)));
        assert_eq!(size(None, None, Resize::Shorter(10)), Ok((10, 20)));
        assert!(size(Some(10), Some(10), Resize::Shorter(5)).is_err());
        assert!(size(Some(10), Some(90), Resize::Shorter(30)).is_err());
    }

    #[test]
    fn every_preset_of_the_zoo_is_one() {
        for z in benches::zoo::list() {
            assert!(PRESETS.iter().any(|p| p.name == z.preset), "{}", z.name);
        }
    }
}

//! Smaller forms of a network: the same architecture on a smaller image, with fewer channels and fewer layers.
//!
//! Written behind the name: `vgg16:image=32,narrow=4`, `vit_b_16:layers=2`, or `NAME:smallest` for the form that tests
//! run.

use super::ZooError;

/// A form of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Height and width of the image in pixels; 0 for the network's own.
    pub image: usize,
    /// What the number of channels of each layer is divided by, up to a multiple of 8. Classes stay.
    pub narrow: usize,
    /// Layers, or blocks, of each stage that repeats them, at most.
    pub layers: usize,
}

impl Size {
    /// The network as published.
    pub const FULL: Size = Size { image: 0, narrow: 1, layers: usize::MAX };
    /// The largest image: beyond it no machine holds the activations.
    const LARGEST_IMAGE: usize = 8192;

    /// Channels of a layer that has `full` in the network as published.
    pub(super) fn width(&self, full: usize) -> usize {
        if self.narrow == 1 { full } else { (full / self.narrow).next_multiple_of(8).max(8) }
    }
    /// Repetitions of a layer or block that the network as published repeats `full` times.
    pub(super) fn depth(&self, full: usize) -> usize {
        full.min(self.layers)
    }
    /// Reads `image=32,narrow=4,layers=2`; what is left out stays as published. `smallest` is a form by name.
    ///
    /// # Errors
    /// [`ZooError::BadSize`].
    pub fn parse(text: &str, smallest: Size) -> Result<Size, ZooError> {
        if text == "smallest" {
            return Ok(smallest);
        }
        let bad = |why: String| ZooError::BadSize { text: text.into(), why };
        let mut size = Size::FULL;
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| bad(format!("`{part}` is not KEY=NUMBER")))?;
            let n: usize = value.parse().map_err(|_| bad(format!("`{value}` is no number")))?;
            let (field, largest) = match key {
                "image" => (&mut size.image, Size::LARGEST_IMAGE),
                "narrow" => (&mut size.narrow, usize::MAX),
                "layers" => (&mut size.layers, usize::MAX),
                _ => return Err(bad(format!("there is no `{key}`"))),
            };
            if n == 0 || n > largest {
                return Err(bad(format!("{key}={n} is not possible")));
            }
            *field = n;
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_wrong_ones_refused() {
        let smallest = Size { image: 32, narrow: 4, layers: 1 };
        let parse = |text| Size::parse(text, smallest);
        assert_eq!(parse("smallest").unwrap(), smallest);
        assert_eq!(parse("image=64,layers=2").unwrap(), Size { image: 64, narrow: 1, layers: 2 });
        for wrong in ["", "image", "image=0", "image=many", "image=1000000", "wide=2", "narrow=-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!((Size::FULL.width(72), smallest.width(72), smallest.width(8)), (72, 24, 8));
        assert_eq!((Size::FULL.depth(12), smallest.depth(12)), (12, 1));
    }
}

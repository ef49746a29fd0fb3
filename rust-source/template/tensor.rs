//! Tensors, and how their elements stand in buffers.

use crate::Error;

/// An input, an output or a condition.
pub(crate) struct Tensor {
    pub(crate) name: &'static str,
    pub(crate) shape: &'static [usize],
    /// Bytes of an element outside of the device.
    pub(crate) size: usize,
    pub(crate) form: Form,
    pub(crate) place: Place,
}

/// How elements stand in a buffer.
#[allow(dead_code, reason = "few networks have all kinds")]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Integers, in 32 bits each.
    Words { signed: bool },
    /// Truth values, in this many bytes each.
    Truth { bytes: usize },
}

/// Where a tensor is.
#[allow(dead_code, reason = "few networks have all kinds")]
pub(crate) enum Place {
    /// In these buffers, one after another. No kernel reads an input that is in none.
    Buffers(&'static [usize]),
    /// An output or a condition that is this input.
    Input(usize),
}

impl Tensor {
    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes in buffers, in whole words.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let element = match self.form {
            Form::Plain => self.size,
            Form::Words { .. } => 4,
            Form::Truth { bytes } => bytes,
        };
        (self.elements() * element).next_multiple_of(4) as u64
    }

    /// The bytes of buffers for these elements.
    pub(crate) fn stored(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let (name, need) = (self.name, self.elements() * self.size);
        if bytes.len() != need {
            let text = format!(
                "input `{name}` of the shape {:?} has {need} bytes, got {}",
                self.shape,
                bytes.len()
            );
            return Err(Error::Input(text));
        }
        let mut out = match self.form {
            Form::Plain => bytes.to_vec(),
            Form::Truth { bytes: n } => bytes
                .iter()
                .flat_map(|&b| [u8::from(b != 0), 0, 0, 0].into_iter().take(n))
                .collect(),
            Form::Words { signed } => {
                let mut out = Vec::with_capacity(self.elements() * 4);
                for element in bytes.chunks_exact(self.size) {
                    let fill = if signed && element[self.size - 1] & 0x80 != 0 {
                        0xff
                    } else {
                        0
                    };
                    let mut all = [fill; 8];
                    all[..self.size].copy_from_slice(element);
                    let v = i64::from_le_bytes(all);
                    let word = i32::try_from(v);
                    let word = word.map_err(|_| {
                        Error::Input(format!("input `{name}`: {v} does not fit 32 bits"))
                    })?;
                    out.extend(word.to_le_bytes());
                }
                out
            }
        };
        out.resize(self.stored_bytes() as usize, 0);
        Ok(out)
    }

    /// The elements in these bytes of buffers.
    pub(crate) fn loaded(&self, stored: &[u8]) -> Vec<u8> {
        match self.form {
            Form::Plain => stored[..self.elements() * self.size].to_vec(),
            Form::Truth { bytes } => {
                let words = stored.chunks_exact(bytes).take(self.elements());
                words
                    .map(|word| u8::from(word.iter().any(|&b| b != 0)))
                    .collect()
            }
            Form::Words { signed } => {
                let element = |word: &[u8]| {
                    let fill = if signed && word[3] & 0x80 != 0 {
                        0xff
                    } else {
                        0
                    };
                    let mut all = [fill; 8];
                    all[..4].copy_from_slice(word);
                    all.into_iter().take(self.size)
                };
                stored.chunks_exact(4).flat_map(element).collect()
            }
        }
    }
}

/// A number in the memory of the host.
pub(crate) trait Element: Copy {
    fn put(self, to: &mut Vec<u8>);
    fn take(from: &[u8]) -> Self;
}

macro_rules! elements {
    ($($t:ty),*) => {
        $(impl Element for $t {
            fn put(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
            fn take(from: &[u8]) -> Self {
                let mut bytes = [0; size_of::<$t>()];
                bytes.copy_from_slice(from);
                <$t>::from_le_bytes(bytes)
            }
        })*
    };
}
elements!(f32, u8, i8, u16, i16, u32, i32, u64, i64);

pub(crate) fn to_bytes<T: Element>(list: &[T]) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of_val(list));
    list.iter().for_each(|x| x.put(&mut out));
    out
}

pub(crate) fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(T::take).collect()
}

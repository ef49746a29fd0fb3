//! The bytes of a trace: `WEFTRACE`, the version as four little-endian bytes, then a zstd frame with a checksum that
//! holds the postcard encoding of [`CompileTrace`]. Postcard stores no field names, so every change of a recorded type
//! needs a new [`VERSION`]; a test fails if the layout changes.

use super::CompileTrace;
use super::error::{TraceError, VERSION};
use super::frames;
use std::io::Read;

/// The first bytes of every trace.
pub const MAGIC: &[u8; 8] = b"WEFTRACE";

/// A trace never takes more memory than this ...
const MOST_BYTES: u64 = 4 << 30;

/// ... nor so many times the bytes of its file, beyond the first ones: stages resemble each other, and are written with
/// a tenth to a hundredth of their bytes.
const MOST_RATIO: u64 = 512;
const LEAST_BYTES: u64 = 16 << 20;

impl CompileTrace {
    /// The bytes of a trace file.
    ///
    /// # Errors
    /// [`TraceError::Write`] when memory runs out.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TraceError> {
        let fail = |e: std::io::Error| TraceError::Write(e.to_string());
        let plain = postcard::to_stdvec(self).map_err(|e| TraceError::Write(e.to_string()))?;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        frames::compress(&plain, out).map_err(fail)
    }

    /// Reads the bytes of a trace file.
    ///
    /// # Errors
    /// Something else than a trace, another version, or damaged bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<CompileTrace, TraceError> {
        let damaged = |e: &dyn std::fmt::Display| TraceError::Damaged(e.to_string());
        if !CompileTrace::recognizes(bytes) {
            return Err(TraceError::NotATrace);
        }
        let (version, frame) = bytes[MAGIC.len()..]
            .split_first_chunk::<4>()
            .ok_or_else(|| TraceError::Damaged("it ends within its version".into()))?;
        let found = u32::from_le_bytes(*version);
        if found != VERSION {
            return Err(TraceError::Version { found });
        }
        let decoder = frames::decoder(frame).map_err(|e| damaged(&e))?;
        let mut plain = Vec::new();
        let most = (frame.len() as u64 * MOST_RATIO).clamp(LEAST_BYTES, MOST_BYTES);
        decoder.take(most + 1).read_to_end(&mut plain).map_err(|e| damaged(&e))?;
        if plain.len() as u64 > most {
            let bytes = frame.len();
            return Err(TraceError::Damaged(format!("its {bytes} bytes expand to more than {} MiB", most >> 20)));
        }
        let (trace, rest) = postcard::take_from_bytes::<CompileTrace>(&plain).map_err(|e| damaged(&e))?;
        if !rest.is_empty() {
            return Err(TraceError::Damaged("it goes on after its end".into()));
        }
        trace.check()?;
        Ok(trace)
    }

    /// True for bytes that begin as a trace does, whatever its version.
    pub fn recognizes(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }
}

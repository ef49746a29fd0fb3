//! Frames of zstd with a checksum: by zstd's library, or where C is not compiled (WebAssembly) by one in Rust, which
//! makes larger ones. Each reads what the other wrote.

use std::io::{Error, Read};

/// Matches reach back over so many bytes (as a power of two), since the texts of two stages resemble each other.
#[cfg(not(target_family = "wasm"))]
const WINDOW_LOG: u32 = 25;

/// Appends a frame that holds `plain`.
#[cfg(not(target_family = "wasm"))]
pub(super) fn compress(plain: &[u8], out: Vec<u8>) -> Result<Vec<u8>, Error> {
    // Above this level, time grows faster than size shrinks.
    let mut encoder = zstd::Encoder::new(out, 9)?;
    encoder.include_checksum(true)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(WINDOW_LOG)?;
    std::io::Write::write_all(&mut encoder, plain)?;
    encoder.finish()
}

/// Reads the content of a frame.
#[cfg(not(target_family = "wasm"))]
pub(super) fn decoder(frame: &[u8]) -> Result<impl Read, Error> {
    let mut decoder = zstd::Decoder::new(frame)?;
    decoder.window_log_max(WINDOW_LOG + 2)?;
    Ok(decoder)
}

/// Appends a frame that holds `plain`.
#[cfg(target_family = "wasm")]
pub(super) fn compress(plain: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>, Error> {
    ruzstd::encoding::compress(plain, &mut out, ruzstd::encoding::CompressionLevel::Fastest);
    Ok(out)
}

/// Reads the content of a frame.
#[cfg(target_family = "wasm")]
pub(super) fn decoder(frame: &[u8]) -> Result<impl Read, Error> {
    ruzstd::decoding::StreamingDecoder::new(frame).map_err(|e| Error::other(e.to_string()))
}

//! The record of a decoder's speed.

use crate::bench::sampled::Sampled;
use schemars::JsonSchema;
use serde::Serialize;

/// A decoder's speed: a prompt is read at once, then tokens are made one by one, each from the ones before.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct DecodeRecord {
    /// Positions in the cache before the prompt.
    pub past: usize,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens that are made one by one in a round, behind the one that the prompt gives.
    pub tokens: usize,
    /// The prompt.
    pub prefill: Speed,
    /// The tokens behind it, one by one.
    pub steps: Speed,
    /// Milliseconds to the first token.
    pub first_token_ms: FirstToken,
    /// Layers, by the pairs of keys and values in the cache.
    pub layers: usize,
    /// Groups of a step that run on the host.
    pub host_groups: usize,
    /// Bytes that the last token loads and stores, each element once a dispatch.
    pub bytes_per_token: TokenBytes,
    /// 10^9 bytes of these a second.
    pub gb_s: f64,
    /// Bandwidth of the device's memory in 10^9 bytes a second: as `bench --ceilings` measured it, else as its maker
    /// says; null where it is not known.
    pub device_gb_s: Option<f64>,
    /// Bytes of the cache that the last token reads.
    pub cache_bytes: u64,
    /// The tokens of the last round, the one that the prompt gives first, for each sequence of the batch.
    pub made: Vec<Vec<i64>>,
}

/// Tokens a second.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Speed {
    /// Of each round, of all sequences of the batch.
    pub tokens_per_s: Sampled,
    /// Milliseconds of each prompt, or of each token.
    pub ms: Sampled,
}

/// Milliseconds until the first token is in host memory.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FirstToken {
    /// With loading, compilation and the first run.
    pub cold: f64,
    /// Of a session that has run before: the median of the prompts.
    pub warm: f64,
}

/// Bytes by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TokenBytes {
    /// Constants.
    pub weights: u64,
    /// Keys and values, before and after.
    pub cache: u64,
    /// Everything else.
    pub rest: u64,
}

impl TokenBytes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.weights + self.cache + self.rest
    }
}

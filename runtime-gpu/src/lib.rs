//! runtime-gpu

//! Primitives of the library without weights: functions of elements, concatenation, softmax, batch norm.

use super::call::{Handle, Status, call, done};
use super::loaded::{DESC_BYTES, Descriptor, Library};
use super::numbers::{binary_number, eltwise_number};
use super::primitives::{INFERENCE, OP_BYTES, Post, Primitive};
use crate::graph::{BinaryFunction, Eltwise};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Version 3: softmax as it is defined, not its logarithm.
const SOFTMAX: c_int = 0x30000;

impl Library {
    /// A function of each element; the result is stored as the data are.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn map(self: &Arc<Self>, layout: &Descriptor, function: Eltwise) -> Result<Primitive, String> {
        let algorithm = eltwise_number(function.function, self.version.0);
        let (alpha, beta, data) = (function.alpha, function.beta, layout.pointer());
        if self.version.0 >= 3 {
            let (mut made, none): (Handle, Handle) = (null_mut(), null_mut());
            let status = call!(
                self.loaded,
                "dnnl_eltwise_forward_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, INFERENCE => c_int, algorithm => c_int,
                 data => *const c_void, data => *const c_void, alpha => f32, beta => f32, none => Handle) -> Status
            );
            done("this function", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_eltwise_forward_desc_init",
            (out => Handle, INFERENCE => c_int, algorithm => c_int, data => *const c_void, alpha => f32,
             beta => f32) -> Status
        );
        done("this function", status)?;
        self.primitive_of("this function", out, &self.attributes(&[])?)
    }

    /// A function of the elements of two tensors, the second of which may be repeated along axes of size 1; the result
    /// is stored as the first is. `post` is applied.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn binary(
        self: &Arc<Self>,
        function: BinaryFunction,
        first: &Descriptor,
        second: &Descriptor,
        post: &[Post],
    ) -> Result<Primitive, String> {
        let attributes = self.attributes(post)?;
        let (a, b, algorithm) = (first.pointer(), second.pointer(), binary_number(function));
        if self.version.0 >= 3 {
            let mut made: Handle = null_mut();
            let status = call!(
                self.loaded,
                "dnnl_binary_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, algorithm => c_int, a => *const c_void,
                 b => *const c_void, a => *const c_void, attributes.handle => Handle) -> Status
            );
            done("this function of two tensors", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_binary_desc_init",
            (out => Handle, algorithm => c_int, a => *const c_void, b => *const c_void, a => *const c_void) -> Status
        );
        done("this function of two tensors", status)?;
        self.primitive_of("this function of two tensors", out, &attributes)
    }

    /// Tensors one after another along an axis.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn concat(
        self: &Arc<Self>,
        destination: &Descriptor,
        axis: usize,
        sources: &[&Descriptor],
    ) -> Result<Primitive, String> {
        let mut made: Handle = null_mut();
        let (n, axis, none): (c_int, c_int, Handle) = (sources.len() as c_int, axis as c_int, null_mut());
        let (engine, dst) = (self.engine, destination.pointer());
        let status = if self.version.0 >= 3 {
            let list: Vec<*const c_void> = sources.iter().map(|d| d.pointer()).collect();
            call!(
                self.loaded,
                "dnnl_concat_primitive_desc_create",
                (&mut made => *mut Handle, engine => Handle, dst => *const c_void, n => c_int, axis => c_int,
                 list.as_ptr() => *const *const c_void, none => Handle) -> Status
            )
        } else {
            // An array of structs.
            let mut list = vec![0u64; sources.len() * (DESC_BYTES / 8)];
            for (to, from) in list.chunks_mut(DESC_BYTES / 8).zip(sources) {
                // SAFETY: a descriptor of version 2 is a struct of so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(from.pointer().cast::<u64>(), to.as_mut_ptr(), to.len()) };
            }
            call!(
                self.loaded,
                "dnnl_concat_primitive_desc_create",
                (&mut made => *mut Handle, dst => *const c_void, n => c_int, axis => c_int,
                 list.as_ptr() => *const u64, none => Handle, engine => Handle) -> Status
            )
        };
        done("this concatenation", status)?;
        self.primitive(made)
    }

    /// Softmax along an axis; the result is stored as the data are.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn softmax(self: &Arc<Self>, layout: &Descriptor, axis: usize) -> Result<Primitive, String> {
        let (data, axis) = (layout.pointer(), axis as c_int);
        if self.version.0 >= 3 {
            let (mut made, none): (Handle, Handle) = (null_mut(), null_mut());
            let status = call!(
                self.loaded,
                "dnnl_softmax_forward_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, INFERENCE => c_int, SOFTMAX => c_int,
                 data => *const c_void, data => *const c_void, axis => c_int, none => Handle) -> Status
            );
            done("this softmax", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_softmax_forward_desc_init",
            (out => Handle, INFERENCE => c_int, data => *const c_void, axis => c_int) -> Status
        );
        done("this softmax", status)?;
        self.primitive_of("this softmax", out, &self.attributes(&[])?)
    }

    /// A batch norm with given statistics, scale and shift; the result is stored as the data are.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn batch_norm(self: &Arc<Self>, layout: &Descriptor, epsilon: f32) -> Result<Primitive, String> {
        let data = layout.pointer();
        if self.version.0 >= 3 {
            // Given statistics, scale, shift.
            const FLAGS: c_uint = 1 | 2 | 4;
            let (mut made, none): (Handle, Handle) = (null_mut(), null_mut());
            let status = call!(
                self.loaded,
                "dnnl_batch_normalization_forward_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, INFERENCE => c_int, data => *const c_void,
                 data => *const c_void, epsilon => f32, FLAGS => c_uint, none => Handle) -> Status
            );
            done("this batch norm", status)?;
            return self.primitive(made);
        }
        const FLAGS: c_uint = 1 | 8 | 16;
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_batch_normalization_forward_desc_init",
            (out => Handle, INFERENCE => c_int, data => *const c_void, epsilon => f32, FLAGS => c_uint) -> Status
        );
        done("this batch norm", status)?;
        self.primitive_of("this batch norm", out, &self.attributes(&[])?)
    }
}

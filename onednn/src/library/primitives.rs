//! Primitives of the library: those with weights, pools and copies.

use super::call::{F32, Handle, Status, call, done};
use super::loaded::{Descriptor, Form, Library};
use super::numbers::{binary_number, eltwise_number};
use crate::graph::{BinaryFunction, Eltwise};
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of version 2's largest descriptor of an operation, and some more.
pub(super) const OP_BYTES: usize = 8192;

pub(super) const INFERENCE: c_int = 96;
const CONVOLUTION_DIRECT: c_int = 1;
const QUERY_SOURCE: c_int = 129;
const QUERY_WEIGHTS: c_int = 131;
const QUERY_DESTINATION: c_int = 133;

/// What is applied to a primitive's result.
#[derive(Clone)]
pub enum Post {
    /// Adds what the destination holds.
    Sum,
    /// A function of the value.
    Map(Eltwise),
    /// A function of the value and of an element of another tensor, stored so.
    Binary(BinaryFunction, Rc<Descriptor>),
}

/// A window over spatial axes, a number for each.
pub struct Window<'a> {
    /// Steps.
    pub strides: &'a [i64],
    /// Elements between taps.
    pub dilates: &'a [i64],
    /// Padding at the beginnings.
    pub begin: &'a [i64],
    /// Padding at the ends.
    pub end: &'a [i64],
}

/// What a pool keeps of a window.
#[derive(Clone, Copy, Debug)]
pub enum Pool {
    /// The largest element.
    Max,
    /// The mean, padding included.
    AverageWithPadding,
    /// The mean of the elements that are there.
    Average,
}

impl Library {
    /// A convolution.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn convolution(
        self: &Arc<Self>,
        tensors: Tensors<'_>,
        window: &Window<'_>,
        post: &[Post],
    ) -> Result<Primitive, String> {
        let attributes = self.attributes(post)?;
        let (src, weights, bias, dst) = tensors.pointers();
        let (s, d) = (window.strides.as_ptr(), window.dilates.as_ptr());
        let (begin, end) = (window.begin.as_ptr(), window.end.as_ptr());
        let mut made: Handle = null_mut();
        if self.version.0 >= 3 {
            let status = call!(
                self.loaded,
                "dnnl_convolution_forward_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, INFERENCE => c_int, CONVOLUTION_DIRECT => c_int,
                 src => *const c_void, weights => *const c_void, bias => *const c_void, dst => *const c_void,
                 s => *const i64, d => *const i64, begin => *const i64, end => *const i64,
                 attributes.handle => Handle) -> Status
            );
            done("this convolution", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_dilated_convolution_forward_desc_init",
            (out => Handle, INFERENCE => c_int, CONVOLUTION_DIRECT => c_int, src => *const c_void,
             weights => *const c_void, bias => *const c_void, dst => *const c_void, s => *const i64, d => *const i64,
             begin => *const i64, end => *const i64) -> Status
        );
        done("this convolution", status)?;
        self.primitive_of("this convolution", out, &attributes)
    }

    /// A matrix product.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn matmul(self: &Arc<Self>, tensors: Tensors<'_>, post: &[Post]) -> Result<Primitive, String> {
        let attributes = self.attributes(post)?;
        let (src, weights, bias, dst) = tensors.pointers();
        if self.version.0 >= 3 {
            let mut made: Handle = null_mut();
            let status = call!(
                self.loaded,
                "dnnl_matmul_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, src => *const c_void, weights => *const c_void,
                 bias => *const c_void, dst => *const c_void, attributes.handle => Handle) -> Status
            );
            done("this matrix product", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_matmul_desc_init",
            (out => Handle, src => *const c_void, weights => *const c_void, bias => *const c_void,
             dst => *const c_void) -> Status
        );
        done("this matrix product", status)?;
        self.primitive_of("this matrix product", out, &attributes)
    }

    /// A pool over windows of `kernel` elements: the largest, or the mean, with or without the padding.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn pool(
        self: &Arc<Self>,
        (source, destination): (&Descriptor, &Descriptor),
        pool: Pool,
        kernel: &[i64],
        window: &Window<'_>,
    ) -> Result<Primitive, String> {
        let algorithm: c_int = match pool {
            Pool::Max => 0x1ff,
            Pool::AverageWithPadding => 0x2ff,
            Pool::Average => 0x3ff,
        };
        let (src, dst) = (source.pointer(), destination.pointer());
        let (s, k, d) = (window.strides.as_ptr(), kernel.as_ptr(), window.dilates.as_ptr());
        let (begin, end) = (window.begin.as_ptr(), window.end.as_ptr());
        if self.version.0 >= 3 {
            let (mut made, none): (Handle, Handle) = (null_mut(), null_mut());
            let status = call!(
                self.loaded,
                "dnnl_pooling_forward_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, INFERENCE => c_int, algorithm => c_int,
                 src => *const c_void, dst => *const c_void, s => *const i64, k => *const i64, d => *const i64,
                 begin => *const i64, end => *const i64, none => Handle) -> Status
            );
            done("this pool", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_pooling_v2_forward_desc_init",
            (out => Handle, INFERENCE => c_int, algorithm => c_int, src => *const c_void, dst => *const c_void,
             s => *const i64, k => *const i64, d => *const i64, begin => *const i64, end => *const i64) -> Status
        );
        done("this pool", status)?;
        self.primitive_of("this pool", out, &self.attributes(&[])?)
    }

    /// A copy from one layout to another.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn reorder(self: &Arc<Self>, from: &Descriptor, to: &Descriptor) -> Result<Primitive, String> {
        let mut made: Handle = null_mut();
        let (engine, none) = (self.engine, null_mut());
        let status = call!(
            self.loaded,
            "dnnl_reorder_primitive_desc_create",
            (&mut made => *mut Handle, from.pointer() => *const c_void, engine => Handle, to.pointer() => *const c_void,
             engine => Handle, none => Handle) -> Status
        );
        done("a copy between two layouts", status)?;
        self.primitive(made)
    }

    pub(super) fn attributes(&self, post: &[Post]) -> Result<AttributesHandle<'_>, String> {
        let mut attributes = AttributesHandle { library: self, handle: null_mut(), post: null_mut() };
        let status = call!(
            self.loaded,
            "dnnl_primitive_attr_create",
            (&mut attributes.handle => *mut Handle) -> Status
        );
        done("attributes", status)?;
        let status = call!(self.loaded, "dnnl_post_ops_create", (&mut attributes.post => *mut Handle) -> Status);
        done("post-ops", status)?;
        for p in post {
            let third = self.version.0 >= 3;
            let list = attributes.post;
            let status = match p {
                Post::Sum if third => call!(
                    self.loaded,
                    "dnnl_post_ops_append_sum",
                    (list => Handle, 1.0 => f32, 0 => i32, F32 => c_int) -> Status
                ),
                Post::Sum => call!(self.loaded, "dnnl_post_ops_append_sum", (list => Handle, 1.0 => f32) -> Status),
                Post::Map(function) => self.append_map(list, *function),
                Post::Binary(function, other) => call!(
                    self.loaded,
                    "dnnl_post_ops_append_binary",
                    (list => Handle, binary_number(*function) => c_int, other.pointer() => *const c_void) -> Status
                ),
            };
            done("a post-op", status)?;
        }
        let status = call!(
            self.loaded,
            "dnnl_primitive_attr_set_post_ops",
            (attributes.handle => Handle, attributes.post => Handle) -> Status
        );
        done("post-ops", status)?;
        Ok(attributes)
    }

    fn append_map(&self, list: Handle, f: Eltwise) -> Result<Status, String> {
        let algorithm = eltwise_number(f.function, self.version.0);
        match self.version.0 >= 3 {
            true => call!(
                self.loaded,
                "dnnl_post_ops_append_eltwise",
                (list => Handle, algorithm => c_int, f.alpha => f32, f.beta => f32) -> Status
            ),
            false => call!(
                self.loaded,
                "dnnl_post_ops_append_eltwise",
                (list => Handle, 1.0 => f32, algorithm => c_int, f.alpha => f32, f.beta => f32) -> Status
            ),
        }
    }

    /// Version 2: the primitive of an operation's descriptor.
    pub(super) fn primitive_of(
        self: &Arc<Self>,
        what: &str,
        operation: Handle,
        attributes: &AttributesHandle<'_>,
    ) -> Result<Primitive, String> {
        let mut made: Handle = null_mut();
        let none: Handle = null_mut();
        let status = call!(
            self.loaded,
            "dnnl_primitive_desc_create",
            (&mut made => *mut Handle, operation => Handle, attributes.handle => Handle, self.engine => Handle,
             none => Handle) -> Status
        );
        done(what, status)?;
        self.primitive(made)
    }

    pub(super) fn primitive(self: &Arc<Self>, descriptor: Handle) -> Result<Primitive, String> {
        let mut primitive = Primitive { library: self.clone(), descriptor, handle: null_mut() };
        let status = call!(
            self.loaded,
            "dnnl_primitive_create",
            (&mut primitive.handle => *mut Handle, descriptor => Handle) -> Status
        );
        done("a primitive", status)?;
        Ok(primitive)
    }
}

/// Attributes of a primitive while it is made.
pub(super) struct AttributesHandle<'l> {
    library: &'l Library,
    pub(super) handle: Handle,
    post: Handle,
}

impl Drop for AttributesHandle<'_> {
    fn drop(&mut self) {
        let loaded = &self.library.loaded;
        let _ = call!(loaded, "dnnl_primitive_attr_destroy", (self.handle => Handle) -> Status);
        let _ = call!(loaded, "dnnl_post_ops_destroy", (self.post => Handle) -> Status);
    }
}

/// The tensors of a primitive.
#[derive(Clone, Copy)]
pub struct Tensors<'a> {
    /// Data.
    pub source: &'a Descriptor,
    /// Weights.
    pub weights: &'a Descriptor,
    /// Bias.
    pub bias: Option<&'a Descriptor>,
    /// The result.
    pub destination: &'a Descriptor,
}

impl Tensors<'_> {
    fn pointers(&self) -> (*const c_void, *const c_void, *const c_void, *const c_void) {
        let bias = self.bias.map_or(null(), Descriptor::pointer);
        (self.source.pointer(), self.weights.pointer(), bias, self.destination.pointer())
    }
}

/// A computation that is ready to run.
pub struct Primitive {
    library: Arc<Library>,
    descriptor: Handle,
    pub(super) handle: Handle,
}

// SAFETY: a primitive and its descriptor are not written after they are made.
unsafe impl Send for Primitive {}
// SAFETY: as above.
unsafe impl Sync for Primitive {}

impl Primitive {
    /// The layout that the library chose for the data.
    pub fn source(self: &Arc<Self>) -> Result<Descriptor, String> {
        self.query(QUERY_SOURCE)
    }
    /// The layout that the library chose for the weights.
    pub fn weights(self: &Arc<Self>) -> Result<Descriptor, String> {
        self.query(QUERY_WEIGHTS)
    }
    /// The layout that the library chose for the result.
    pub fn destination(self: &Arc<Self>) -> Result<Descriptor, String> {
        self.query(QUERY_DESTINATION)
    }
    fn query(self: &Arc<Self>, what: c_int) -> Result<Descriptor, String> {
        let found = call!(
            self.library.loaded,
            "dnnl_primitive_desc_query_md",
            (self.descriptor => Handle, what => c_int, 0 => c_int) -> *const c_void
        )?;
        if found.is_null() {
            return Err("oneDNN does not say how a tensor is stored".into());
        }
        Ok(Descriptor { library: self.library.clone(), form: Form::Of { address: found, _primitive: self.clone() } })
    }
}

impl Drop for Primitive {
    fn drop(&mut self) {
        let loaded = &self.library.loaded;
        if !self.handle.is_null() {
            let _ = call!(loaded, "dnnl_primitive_destroy", (self.handle => Handle) -> Status);
        }
        let _ = call!(loaded, "dnnl_primitive_desc_destroy", (self.descriptor => Handle) -> Status);
    }
}

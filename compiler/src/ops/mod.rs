//! Ops: one file per family, and one line per op in the `ops!` table below.
//!
//! An op is a struct of documented attributes ([`attr_struct!`](crate::attr_struct)) that implements [`Op`]. Its tensor
//! expression ([`Op::compute`]) gives its fusion kind, its meaning on the CPU and its GPU kernel. Passes ask for
//! properties, or downcast to the typed struct; they never look at names.

pub mod activation;
pub mod arg_reduce;
pub mod attention;
pub mod batch_norm;
pub mod binary;
pub mod bit_cast;
pub mod block_quantized;
pub mod broadcast;
pub mod bucketize;
pub mod cast;
pub mod clip;
pub mod col2im;
pub mod concat;
pub mod control;
pub mod conv;
pub mod conv_transpose;
pub mod counted;
pub mod crop;
pub mod data_layout;
pub mod deform_conv;
pub mod dequantize_blocks;
pub mod det;
pub mod detection;
pub mod einsum;
pub mod external_scope;
pub mod function_values;
pub mod fused_activation;
pub mod fused_norm;
pub mod fused_product;
pub mod gather;
pub mod generate;
pub mod global_pool;
pub mod grid_sample;
pub mod group_norm;
pub mod group_query_attention;
mod host_copy;
mod infer;
pub mod insert;
pub mod layout_transform;
pub mod linear_attention;
pub mod local_norm;
pub mod loss;
pub mod matmul;
pub mod multi_head_attention;
mod named_activation;
pub mod narrow;
pub mod norm;
pub mod onnx;
mod op_ref;
pub mod out_of_range;
pub mod packed;
pub mod pad;
pub mod permute;
pub mod permuted_matmul;
pub mod pool;
mod properties;
pub mod quantize;
pub mod quantized_functions;
pub mod recurrent;
pub mod reduce;
pub mod reduce_at;
mod register;
pub mod reshape;
pub mod resize;
pub mod scan;
pub mod scatter;
pub mod search;
pub mod select;
pub mod sequence;
pub mod shape;
pub mod signal;
pub mod slice;
pub mod softmax;
pub mod space_depth;
pub mod split;
#[cfg(test)]
pub(crate) mod testing;
pub mod transpose;
pub mod trap;
pub mod unary;
pub mod unique;
pub mod unpack_bits;
pub mod weights;
pub mod window;
pub mod winograd;

pub use data_layout::{DataLayout, LayoutRule};
pub use infer::{InferContext, const_value, folded_value, int_value};
pub use op_ref::OpRef;
pub use out_of_range::{Checked, OutOfRange};
pub use packed::{PackedForm, PackedOp};
pub use permute::PermutedOp;
pub use properties::{Decoding, Effects, Homogeneity, Precision};
pub use register::{register_importers, register_op};
pub use weights::WeightChannels;

use crate::attr::{AttrObject, AttrStruct, Attrs};
use crate::fault::Fault;
use crate::graph::{BuildError, TensorType};
use crate::int::Dim;
use crate::name::Name;
use crate::ops::counted::{Counted, CountedOperand, Counting};
use crate::ops::onnx::{ExportContext, FloatTypes, OnnxImport};
use crate::registry::Table;
use crate::te::ComputeContext;
use crate::tensor::Tensor;

/// The result of an op's method, or why the op refuses its operands: one sentence without the op's name.
pub type OpResult<T> = Result<T, Fault>;

/// Everything about an op that its attributes decide.
///
/// Most ops say four things: [`arity`](Op::arity), [`infer`](Op::infer), [`compute`](Op::compute) and
/// [`export`](Op::export). Everything else has a default, and is said where it differs:
///
/// # Meaning
/// What passes may assume: [`num_results`](Op::num_results), algebra ([`commutes`](Op::commutes),
/// [`homogeneity`](Op::homogeneity), [`clamp_bounds`](Op::clamp_bounds) ...), movement of data
/// ([`is_view`](Op::is_view), [`moves_axes`](Op::moves_axes) ...), [`effects`](Op::effects), and how an op without a
/// tensor expression runs on the host ([`eval_host`](Op::eval_host)).
///
/// # Sizes
/// For shape arithmetic ([`infer_value`](Op::infer_value)), and for ops whose operands' values decide the sizes of
/// their results ([`defined_symbols`](Op::defined_symbols) and those after it).
///
/// # Layout
/// How the op moves to another data layout: one of its own ([`layout`](Op::layout)), transposed operands
/// ([`permuted`](Op::permuted)), split channels ([`packed`](Op::packed)).
///
/// # Precision and ONNX
/// Whether its operands may be f16 ([`precision`](Op::precision)), and which then stay f32. [`export`](Op::export)
/// writes it, in the types of [`onnx_floats`](Op::onnx_floats); its importers are rows of the family's `ONNX` table.
pub trait Op: AttrObject {
    // ---- What every op says ----

    /// Smallest and largest number of operands.
    fn arity(&self) -> (usize, usize);
    /// Result types from operand types and known operand values.
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>>;
    /// The tensor expression. An op without one ([`Op::has_compute`] false) runs on the host.
    fn compute(&self, _cx: &mut ComputeContext<'_>) -> OpResult<()> {
        Err("has no tensor expression".into())
    }
    /// Writes the op as ONNX nodes. An error says why ONNX has no such op.
    fn export(&self, _cx: &mut ExportContext<'_>) -> OpResult<()> {
        Err("has no ONNX form".into())
    }

    /// Float types that its ONNX form takes.
    fn onnx_floats(&self) -> FloatTypes {
        FloatTypes::One
    }

    // ---- Meaning ----

    /// Number of results, as determined by the attributes.
    fn num_results(&self) -> usize {
        1
    }
    /// False for ops that have no tensor expression for these operand types.
    fn has_compute(&self) -> bool {
        true
    }
    /// Host evaluation for ops without a tensor expression (`None`: interpret the tensor expression).
    fn eval_host(&self, _inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        None
    }
    /// True if evaluation on the host is less work: it is taken where kernels run there too.
    fn is_less_work_on_host(&self) -> bool {
        false
    }
    /// True for functions of two operands that may change places.
    fn commutes(&self) -> bool {
        false
    }
    /// True for functions of one operand that give their own results back: `f(f(x)) = f(x)`.
    fn is_idempotent(&self) -> bool {
        false
    }
    /// The result is never negative (functions of one operand).
    fn is_nonnegative(&self) -> bool {
        false
    }
    /// For an op that clamps operand 0 and has no other operands: the bounds; infinite if there is none.
    fn clamp_bounds(&self) -> Option<(f64, f64)> {
        None
    }
    /// Whether a factor of the data passes through.
    fn homogeneity(&self) -> Homogeneity {
        Homogeneity::None
    }
    /// True for functions of two operands with NumPy's broadcasting.
    fn broadcasts(&self) -> bool {
        false
    }
    /// For an op linear in its data and its weights (operand 1, of `rank` dimensions): places of unsplit channels there.
    fn weight_channels(&self, _rank: usize) -> Option<WeightChannels> {
        None
    }
    /// Only operand types matter, not values (Shape, EyeLike).
    fn takes_types_alone(&self) -> bool {
        false
    }
    /// The function of the module that the op calls: a graph function or a tensor function.
    fn callee(&self) -> Option<Name> {
        None
    }
    /// True when the result is the operand's data in the same order, under another shape.
    fn is_view(&self) -> bool {
        false
    }
    /// For an op that only permutes the axes of its operand of this shape: whether elements move in memory.
    fn moves_axes(&self, _shape: &[Dim]) -> Option<bool> {
        None
    }
    /// True if results are unchanged elements of an operand (not of indices or shapes): their type does not matter.
    fn keeps_elements(&self) -> bool {
        self.is_view()
    }
    /// Side effects.
    fn effects(&self) -> Effects {
        Effects::default()
    }
    /// The fusion kind, if it differs from the kind of the tensor expression's index maps.
    fn fusion_kind(&self) -> Option<crate::tir::FusionKind> {
        None
    }
    /// Elements of an operand that have to be in a range, which ONNX says and no type does: indices and divisors.
    fn checked(&self, _types: &[Option<&TensorType>]) -> Option<Checked> {
        None
    }
    /// For a result of positions: how many there are. A kernel that finds none, which is a fault, says another number.
    fn positions(&self, _result: usize, _operands: &[Option<&TensorType>]) -> Option<Dim> {
        None
    }
    /// True for an op that runs its one region, which takes no arguments, at once.
    fn is_scope(&self) -> bool {
        false
    }
    /// Multiply-accumulates for constant shapes (0 if the op is not counted).
    fn macs(&self, _inputs: &[Option<&TensorType>], _outputs: &[&TensorType]) -> u64 {
        0
    }
    /// Channels of results at one place that are sums of the same elements: in a convolution, of one group.
    fn channels_of_group(&self, _inputs: &[Option<&TensorType>]) -> Option<i64> {
        None
    }

    // ---- Sizes ----

    /// Integer values (also as floats) of all results, of rank 0 or 1, constant or symbolic: shape arithmetic.
    fn infer_value(&self, _cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        None
    }
    /// For an op whose sizes may be operands or attributes: the op with its integer operands as attributes, and the
    /// number of remaining operands. `None` if they are attributes already, or unknown expressions of symbols.
    fn with_known_sizes(&self, _cx: &InferContext<'_>) -> Option<(OpRef, usize)> {
        None
    }
    /// Symbols in the result dims that are known only after this op has run (for example the number of non-zero
    /// elements). Such an op is in no plan: its users are planned when the symbols have values.
    fn defined_symbols(&self) -> Vec<Name> {
        vec![]
    }
    /// For such an op: its results with upper bounds as sizes, and the number of valid entries; `None` if impossible.
    fn counted(&self, _c: &mut Counting<'_, '_>, _operands: &[CountedOperand]) -> Option<Result<Counted, BuildError>> {
        None
    }
    /// For such an op: the operands that alone decide the symbols, a few numbers that can be read before it runs.
    fn size_operands(&self) -> &'static [usize] {
        &[]
    }
    /// For such an op: the op of the sizes that these operands say (others are absent), and the operands that it takes.
    ///
    /// # Errors
    /// Sizes that there cannot be.
    fn with_sizes(&self, _operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        Err("its sizes are no operands".into())
    }
    /// For an op with regions: the region that replaces the node if its operands have these values.
    fn region_taken(&self, _operands: &[Option<Tensor>]) -> Option<usize> {
        None
    }

    // ---- Layout ----

    /// Layout behaviour, for ops with a native data layout.
    fn layout(&self) -> Option<&dyn LayoutRule> {
        None
    }
    /// The data layout that the op computes in, with the operands and the results that are in it.
    fn images(&self) -> Option<(DataLayout, Vec<usize>, Vec<usize>)> {
        self.layout().map(|l| (l.data_layout(), l.operands_to_convert(), l.results_to_convert()))
    }
    /// Name of the layout that it computes in, for reports: `NCHW`, `NHWC`.
    fn layout_name(&self) -> Option<&'static str> {
        self.layout().map(|rule| rule.data_layout().title())
    }
    /// The op for data operands that are transposed by `perm`, as in [`transpose::Transpose`], and which of its results
    /// are then transposed. For ops with axes in their attributes; `None` for elementwise ops and others.
    fn permuted(&self, _perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        None
    }
    /// The op for data of rank 4 in the packed `layout`, for ops with axes in their attributes, or a refusal. `None`
    /// for all other ops: elementwise ops need no change, and the rest stay in NCHW.
    fn packed(&self, _layout: DataLayout, _cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
        None
    }

    // ---- Precision ----

    /// How an op makes wide elements of packed ones, each by itself: kernels may decode what they read.
    fn decodes(&self) -> Option<Decoding> {
        None
    }
    /// Mixed-precision class.
    fn precision(&self) -> Precision {
        Precision::Follow
    }
    /// For an op of class [`Precision::Never`]: it computes f16 data in f32, rounds once, gives nothing much larger.
    fn widens(&self) -> bool {
        false
    }
    /// For an op of class [`Precision::Always`]: constants that stay f32, whose errors all elements would get (biases).
    fn single_operands(&self) -> &'static [usize] {
        &[]
    }
    /// Numbers in the attributes that meet the data (bounds, fill values): one that f16 has not keeps the op in f32.
    fn data_constants(&self) -> Vec<f64> {
        vec![]
    }
}

/// A row of the op table.
pub struct OpDef {
    /// Name in text.
    pub name: &'static str,
    /// Family (the file).
    pub family: &'static str,
    /// Builds the op from text attributes.
    pub from_attrs: fn(&Attrs) -> Result<OpRef, String>,
}

/// The op table: `family { Type, Type }`. Beside its `mod` line this is the one line that a family needs outside its
/// own file, which holds its ops and, as `ONNX`, its importers; an op of a family that is there needs its name in the
/// braces.
macro_rules! ops {
    ($($family:ident { $($op:ident),* $(,)? })*) => {
        /// Every op, by family; [`register_op`] adds one.
        pub static OPS: Table<OpDef> = Table::new(&[$($(OpDef {
            name: <$family::$op as AttrStruct>::NAME,
            family: stringify!($family),
            from_attrs: |a| <$family::$op as AttrStruct>::from_attrs(a).map(OpRef::new),
        },)*)*]);
        /// The ONNX importers, by family; [`register_op`] adds those of an op.
        pub static ONNX_IMPORTS: Table<&[OnnxImport]> = Table::new(&[$($family::ONNX),*]);
    };
}

ops! {
    control { Const, Call, CallTensor, CallHost, If, Let, Loop }
    trap { Trap }
    external_scope { Composite, External }
    function_values { FunctionValue, Lambda, Apply }
    conv { Conv }
    matmul { MatMul, Gemm }
    permuted_matmul { PermutedMatMul }
    batch_norm { BatchNorm }
    pool { MaxPool, AveragePool, LpPool }
    global_pool { GlobalAveragePool, GlobalMaxPool }
    softmax { Softmax, LogSoftmax }
    unary {
        Neg, Abs, Exp, Log, Sqrt, Reciprocal, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh,
        Floor, Ceil, Round, Sign, Not, BitNot, Erf, IsNan, Identity, Relu, Sigmoid, Softplus, Softsign, HardSwish, Mish,
    }
    activation { Gelu, HardSigmoid, LeakyRelu, Elu, Celu, Selu, ThresholdedRelu, Shrink, Swish, IsInf }
    clip { Clip }
    cast { Cast }
    binary {
        Add, Sub, Mul, Div, Pow, Min, Max, PRelu, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, And, Or, Xor, BitAnd,
        BitOr, BitXor, Mod, BitShift,
    }
    select { Where }
    broadcast { Expand, Tile }
    reshape { Reshape, Flatten, Squeeze, Unsqueeze }
    transpose { Transpose }
    layout_transform { LayoutTransform }
    shape { Shape, Size }
    concat { Concat }
    insert { Insert }
    split { Split }
    slice { Slice }
    pad { Pad }
    gather { Gather, GatherElements, GatherNd }
    conv_transpose { ConvTranspose }
    norm { LayerNorm, RmsNorm }
    group_norm { InstanceNorm, GroupNorm }
    local_norm { Lrn, LpNorm }
    reduce { Reduce }
    reduce_at { ReduceAt }
    arg_reduce { ArgReduce, Hardmax }
    resize { Resize }
    generate { Full, Range, EyeLike, OneHot }
    space_depth { DepthToSpace, SpaceToDepth }
    scan { Trilu, CumSum, CumProd }
    scatter { ScatterElements, ScatterNd }
    search { TopK, NonZero, Compress }
    einsum { Einsum }
    sequence { ReverseSequence, TensorScatter }
    bit_cast { BitCast }
    unpack_bits { UnpackBits }
    dequantize_blocks { DequantizeBlocks }
    bucketize { Bucketize }
    det { Det }
    unique { Unique }
    detection { NonMaxSuppression, RoiAlign }
    deform_conv { DeformConv }
    col2im { Col2Im }
    signal { Dft, Frames }
    grid_sample { GridSample }
    winograd { WinogradInput, WinogradWeights, WinogradOutput }
    // Families of ONNX ops that are composed of other ops.
    crop {}
    recurrent {}
    quantize {}
    loss {}
    linear_attention {}
    attention {}
    multi_head_attention {}
    group_query_attention {}
    fused_activation {}
    fused_norm {}
    fused_product {}
    block_quantized {}
    quantized_functions {}
}

/// The importer of an ONNX op: the newest one that is not newer than `opset`. `domain` is empty for ai.onnx.
pub fn find_onnx(domain: &str, op_type: &str, opset: i64) -> Option<&'static OnnxImport> {
    ONNX_IMPORTS
        .iter()
        .flat_map(|family| family.iter())
        .filter(|i| i.domain == domain && i.op_type == op_type && (i.since <= opset || !domain.is_empty()))
        .max_by_key(|i| i.since)
}

impl OpDef {
    /// The row of an op type.
    pub fn of<T: Op + AttrStruct>() -> OpDef {
        OpDef { name: T::NAME, family: "own", from_attrs: |a| T::from_attrs(a).map(OpRef::new) }
    }
}

/// The table row of an op name.
pub fn find_op(name: &str) -> Option<&'static OpDef> {
    OPS.iter().find(|d| d.name == name)
}

//! Activations that are named by attributes of recurrent and fused operators (`Tanh`, `LeakyRelu` ...), with their
//! factors.

use super::OpResult;
use super::activation::{Elu, HardSigmoid, LeakyRelu, Swish, ThresholdedRelu};
use super::binary::{Add, Mul};
use super::clip::Clip;
use super::unary::{HardSwish, Relu, Sigmoid, Softplus, Softsign, Tanh};
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::ops::onnx::{ImportContext, OnnxAttr};

/// An activation with its factors.
#[derive(Clone)]
pub(super) struct NamedActivation {
    /// In lower case.
    name: String,
    alpha: f64,
    beta: f64,
}
impl NamedActivation {
    /// The activation of this name, in any case; factors that it has are taken from `alphas` and `betas`, in order,
    /// else are ONNX's defaults.
    ///
    /// # Errors
    /// A name that is unknown.
    pub(super) fn new(
        name: &str,
        alphas: &mut dyn Iterator<Item = f64>,
        betas: &mut dyn Iterator<Item = f64>,
    ) -> OpResult<NamedActivation> {
        let lower = name.to_lowercase();
        let (alpha, beta) = match lower.as_str() {
            "relu" | "tanh" | "sigmoid" | "softsign" | "softplus" | "hardswish" => (None, None),
            "affine" | "scaledtanh" => (Some(1.0), Some(0.0)),
            "leakyrelu" => (Some(0.01), None),
            "thresholdedrelu" | "elu" => (Some(1.0), None),
            "quickgelu" => (Some(1.702), None),
            "hardsigmoid" => (Some(0.2), Some(0.5)),
            "clip" => (Some(f64::NEG_INFINITY), Some(f64::INFINITY)),
            _ => return Err(Fault::unsupported(format!("unsupported activation `{name}`"))),
        };
        let alpha = alpha.map_or(0.0, |d| alphas.next().unwrap_or(d));
        let beta = beta.map_or(0.0, |d| betas.next().unwrap_or(d));
        Ok(NamedActivation { name: lower, alpha, beta })
    }

    /// The activations of all directions of a recurrent operator, those of its attributes or the defaults of one
    /// direction; factors are consumed by those that have them, in order.
    ///
    /// # Errors
    /// Names that are unknown, or too few.
    pub(super) fn list(
        cx: &ImportContext<'_, '_>,
        defaults: &[&str],
        directions: usize,
    ) -> OpResult<Vec<NamedActivation>> {
        let names: Vec<String> = match cx.attrs.0.get("activations") {
            Some(OnnxAttr::Strs(names)) if !names.is_empty() => names.clone(),
            _ => defaults.iter().cycle().take(defaults.len() * directions).map(|s| s.to_string()).collect(),
        };
        if names.len() != defaults.len() * directions {
            return Err(format!("{} activations for {directions} directions", names.len()).into());
        }
        let factors = |name: &str| cx.attrs.floats(name).unwrap_or(&[]).iter().copied().map(f64::from);
        let (mut alphas, mut betas) = (factors("activation_alpha"), factors("activation_beta"));
        names.iter().map(|name| NamedActivation::new(name, &mut alphas, &mut betas)).collect()
    }

    /// The activation of `x`.
    ///
    /// # Errors
    /// An error of inference.
    pub(super) fn apply(&self, cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<ValueId> {
        let dtype = cx.type_of(x).dtype;
        let (alpha, beta) = (self.alpha, self.beta);
        match self.name.as_str() {
            "relu" => cx.add(Relu {}, &[x]),
            "tanh" => cx.add(Tanh {}, &[x]),
            "sigmoid" => cx.add(Sigmoid {}, &[x]),
            "softsign" => cx.add(Softsign {}, &[x]),
            "softplus" => cx.add(Softplus {}, &[x]),
            "hardswish" => cx.add(HardSwish {}, &[x]),
            "leakyrelu" => cx.add(LeakyRelu { alpha }, &[x]),
            "thresholdedrelu" => cx.add(ThresholdedRelu { alpha }, &[x]),
            "elu" => cx.add(Elu { alpha }, &[x]),
            "quickgelu" => cx.add(Swish { alpha }, &[x]),
            "hardsigmoid" => cx.add(HardSigmoid { alpha, beta }, &[x]),
            "clip" => {
                let bound = |v: f64| Some(v).filter(|v| v.is_finite());
                cx.add(Clip { min: bound(alpha), max: bound(beta) }, &[x])
            }
            scaled => {
                let (a, b) = (cx.number(alpha, dtype), cx.number(beta, dtype));
                match scaled {
                    "affine" => {
                        let x = cx.add(Mul {}, &[x, a])?;
                        cx.add(Add {}, &[x, b])
                    }
                    _ => {
                        let x = cx.add(Mul {}, &[x, b])?;
                        let x = cx.add(Tanh {}, &[x])?;
                        cx.add(Mul {}, &[x, a])
                    }
                }
            }
        }
    }
}

//! Determinants, by elimination with partial pivoting on the host.

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxImport};
use crate::tensor::Tensor;

attr_struct! {
    /// The determinant of each square matrix in the last two dimensions.
    pub struct Det("det") {}
}
impl Op for Det {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let [batch @ .., rows, columns] = &x.shape[..] else { return Err("takes matrices".into()) };
        if !x.dtype.is_float() || rows.as_const().zip(columns.as_const()).is_some_and(|(r, c)| r != c) {
            return Err(format!("{x:?} holds no square matrices of floats").into());
        }
        Ok(vec![TensorType::new(x.dtype, batch.to_vec())])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let x = inputs[0].as_ref()?;
        let [batch @ .., rows, columns] = x.shape() else { return Some(Err("takes matrices".into())) };
        if rows != columns {
            return Some(Err(format!("{:?} holds no square matrices", x.shape()).into()));
        }
        let (n, values) = (*rows, x.to_f64_vec());
        let count: usize = batch.iter().product();
        let dets = (0..count).map(|m| determinant(values[m * n * n..(m + 1) * n * n].to_vec(), n));
        Some(Ok(vec![Tensor::from_f64(x.dtype(), batch.to_vec(), dets)]))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Det", vec![]);
        Ok(())
    }
}

fn determinant(mut a: Vec<f64>, n: usize) -> f64 {
    let mut det = 1.0;
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| a[i * n + k].abs().total_cmp(&a[j * n + k].abs())).unwrap_or(k);
        if a[pivot * n + k] == 0.0 {
            return 0.0;
        }
        if pivot != k {
            (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
            det = -det;
        }
        det *= a[k * n + k];
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            (k..n).for_each(|j| a[i * n + j] -= factor * a[k * n + j]);
        }
    }
    det
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Det", domain: "", since: 11, import: import_det }];

fn import_det(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.add(Det {}, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn determinants_of_small_matrices() {
        let x = Tensor::from_vec(vec![2, 2, 2], vec![0.0f32, 1.0, 2.0, 3.0, 1.0, 2.0, 2.0, 4.0]);
        assert_eq!(run(Det {}, &[&x]).to_f64_vec(), [-2.0, 0.0]);
        let y = Tensor::from_vec(vec![3, 3], vec![2.0f32, 0.0, 1.0, 1.0, 3.0, 0.0, 0.0, 1.0, 4.0]);
        assert!((run(Det {}, &[&y]).to_f64_vec()[0] - 25.0).abs() < 1e-5);
        assert_eq!(run(Det {}, &[&Tensor::from_vec(vec![0, 0], Vec::<f32>::new())]).to_f64_vec(), [1.0]);
        assert!(try_run(Det {}, &[&Tensor::from_vec(vec![1, 2], vec![1.0f32, 2.0])]).is_err());
    }
}

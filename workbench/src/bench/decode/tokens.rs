//! Runs of a decoder whose results are the inputs of the next run, where they are.

use super::decoder::Decoder;
use crate::arrays::Named;
use crate::error::{Code, Error, Result};
use crate::executor::Device;
use compiler::dtype::DType;
use compiler::graph::{BuildError, FunctionBuilder, Module, TensorType, ValueId};
use compiler::int::Int;
use compiler::name::Name;
use compiler::ops::arg_reduce::{ArgReduce, Extreme};
use compiler::ops::cast::Cast;
use compiler::ops::slice::Slice;
use compiler::tensor::Tensor;
use runtime_gpu::{Doing, Recorder, RunInput, RunTensor};

/// The name of the result with the tokens.
const MADE: &str = "next_token";

/// The module with other results: the most likely token behind the last one of each sequence, in the form of the
/// decoder's input, then the cache. Where a session computes in host memory, the host chooses the token: the first
/// result is then the logits.
///
/// # Errors
/// Logits that have no largest one.
pub fn greedy(module: &mut Module, decoder: &Decoder, device: &Device) -> Result<()> {
    let main = module.main().clone();
    let result = |name: Name| {
        let at = main.result_names.iter().position(|n| *n == name);
        at.map(|at| main.results()[at]).ok_or_else(|| Error::input(format!("the model has no result `{name}`")))
    };
    let logits = result(decoder.logits)?;
    let cache = decoder.cache.iter().map(|f| Ok((f.output, result(f.output)?))).collect::<Result<Vec<_>>>()?;
    let rank = main.ty(logits).rank();
    let mut b = FunctionBuilder::resume(module, main);
    let chosen = match chooses(device) {
        true => argmax(&mut b, logits, rank, decoder.ids).map_err(|e| Error::input(e.to_string()))?,
        false => logits,
    };
    let results: Vec<_> = [(Name::new(MADE), chosen)].into_iter().chain(cache).collect();
    b.finish(&results);
    Ok(())
}

/// True where the logits are in the device's own memory.
fn chooses(device: &Device) -> bool {
    matches!(device, Device::Gpu(_))
}

/// `[batch, 1]`, as the next run takes it.
fn argmax(b: &mut FunctionBuilder<'_>, logits: ValueId, rank: usize, ids: DType) -> Result<ValueId, BuildError> {
    let last = Slice { starts: vec![Int::new(-1)], ends: vec![Int::new(i64::MAX)], axes: vec![1], ..Slice::default() };
    let last = if rank == 3 { b.add(last, &[logits])? } else { logits };
    let (kind, axis, keepdims) = (Extreme::Max, rank - 1, rank == 2);
    let token = b.add(ArgReduce { kind, axis, keepdims, select_last: false }, &[last])?;
    if ids == DType::I64 { Ok(token) } else { b.add(Cast::new(ids), &[token]) }
}

/// The same on the host. As of the op, the first NaN counts as the largest.
fn chosen(logits: &Tensor, batch: usize, ids: DType) -> Result<Tensor> {
    let width = logits.shape().last().copied().unwrap_or(1);
    let (bytes, rows) = (width * logits.dtype().size(), logits.len() / width.max(1) / batch.max(1));
    let best = |b: usize| {
        let first = ((b + 1) * rows - 1) * bytes;
        let row = logits.bytes().slice(first..first + bytes);
        let values = Tensor::from_bytes(logits.dtype(), vec![width], row).map_err(Error::input)?.to_f32_vec();
        let larger = |best: usize, i: usize| values[i] > values[best] || values[i].is_nan() && !values[best].is_nan();
        Ok((0..width).fold(0, |best, i| if larger(best, i) { i } else { best }) as i64)
    };
    let tokens = (0..batch).map(best).collect::<Result<Vec<_>>>()?;
    Ok(Tensor::from_i64(ids, vec![batch, 1], &tokens))
}

/// Operands that come from the run before.
#[derive(Clone)]
pub struct Taken {
    /// The tokens.
    pub tokens: RunTensor,
    /// The cache, in the decoder's order.
    pub cache: Vec<RunTensor>,
    /// Positions in the cache.
    pub past: usize,
}

/// A session for runs of one length.
pub struct Runs<'a> {
    pub session: weft::Session,
    /// Names and types of its inputs.
    pub ports: Vec<(Name, TensorType)>,
    pub decoder: &'a Decoder,
    pub device: &'a Device,
    /// Tokens of a run, for each sequence.
    pub length: usize,
    /// Inputs that are the same in every run.
    pub others: Named,
}

impl Runs<'_> {
    /// One run.
    ///
    /// # Errors
    /// A failed run.
    fn run(&self, taken: &Taken, recorder: &Recorder) -> Result<Taken> {
        let own = self.own_inputs(taken);
        let results = self.session.run_to_tensors_recorded(&self.inputs(taken, &own), recorder)?;
        let mut results = results.into_iter().map(|r| r.1);
        let tokens = match results.next() {
            Some(RunTensor::Host(logits)) if !chooses(self.device) => {
                let batch = taken.tokens.as_input().shape()[0];
                RunTensor::Host(chosen(&logits, batch, self.decoder.ids)?)
            }
            Some(tokens) => tokens,
            None => return Err(Error::new(Code::Bug, "a run without results")),
        };
        Ok(Taken { tokens, cache: results.collect(), past: taken.past + self.length })
    }

    /// One run: what the next one takes, and the tokens in host memory.
    ///
    /// # Errors
    /// A failed run.
    pub fn made(&self, taken: &Taken, recorder: &Recorder) -> Result<(Taken, Tensor)> {
        let next = self.run(taken, recorder)?;
        recorder.doing(|| Doing::Wait);
        let made = self.device.tensor(&next.tokens)?;
        recorder.doing(|| Doing::Between);
        Ok((next, made))
    }

    /// Zeros for the inputs of such a run, in order.
    pub fn empty(&self, taken: &Taken) -> Vec<Tensor> {
        let own = self.own_inputs(taken);
        let inputs = self.inputs(taken, &own);
        let find = |port: &(Name, TensorType)| inputs.iter().find(|i| i.0 == port.0.as_str()).map(|i| i.1);
        self.ports.iter().filter_map(find).map(|i| Tensor::zeros(i.dtype(), i.shape().to_vec())).collect()
    }

    /// With one plan, for inputs of these sizes.
    ///
    /// # Errors
    /// Sizes that the network does not take.
    pub fn sized_for(self, inputs: &[Tensor]) -> Result<Self> {
        Ok(Runs { session: self.session.sized_for(inputs)?, ..self })
    }

    fn inputs<'t>(&'t self, taken: &'t Taken, own: &'t Named) -> Vec<(&'t str, RunInput<'t>)> {
        let mut inputs = vec![(self.decoder.tokens.as_str(), taken.tokens.as_input())];
        inputs.extend(self.decoder.cache.iter().zip(&taken.cache).map(|(f, t)| (f.input.as_str(), t.as_input())));
        inputs.extend(own.iter().chain(&self.others).map(|(name, t)| (name.as_str(), RunInput::Host(t))));
        inputs
    }

    /// The mask and the positions.
    fn own_inputs(&self, taken: &Taken) -> Named {
        let (batch, total) = (taken.tokens.as_input().shape()[0], taken.past + self.length);
        let of = |name: Option<Name>, value: &dyn Fn(&[Int]) -> (Vec<usize>, Vec<i64>)| {
            let (name, ty) = self.ports.iter().find(|i| Some(i.0) == name)?;
            let (shape, values) = value(&ty.shape);
            Some((name.to_string(), Tensor::from_i64(ty.dtype, shape, &values)))
        };
        let mask = of(self.decoder.mask, &|_| (vec![batch, total], vec![1; batch * total]));
        let positions = of(self.decoder.positions, &|shape| {
            // All but the last dimension are the batch, or axes of which all have the same positions.
            let rows =
                shape[..shape.len().saturating_sub(1)].iter().map(|d| d.as_const().map_or(batch, |n| n as usize));
            let mut sizes: Vec<usize> = rows.collect();
            let row = (taken.past..total).map(|p| p as i64);
            let values = (0..sizes.iter().product()).flat_map(|_| row.clone()).collect();
            sizes.push(self.length);
            (sizes, values)
        });
        mask.into_iter().chain(positions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_chooses_as_the_op_does() {
        let rows = [[1.0, 3.0, 3.0], [5.0, 2.0, 4.0], [0.0, f32::NAN, 9.0], [9.0, -1.0, 2.0]];
        let logits = Tensor::from_vec(vec![2, 2, 3], rows.concat());
        let last =
            |shape: Vec<usize>, batch| chosen(&logits.reshaped(shape), batch, DType::I64).map(|t| t.to_i64_vec());
        // The last row of each sequence; without a sequence each row.
        assert_eq!(last(vec![2, 2, 3], 2).ok(), Some(vec![0, 0]));
        assert_eq!(last(vec![4, 3], 4).ok(), Some(vec![1, 0, 1, 0]));
    }
}

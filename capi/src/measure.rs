//! Times of a session, and its errors against a reference.

use crate::error::{Failure, WeftError, c_text, free, guarded, object};
use crate::model::options;
use crate::registry::Running;
use crate::run::{given, run_tensors};
use crate::session::WeftSession;
use crate::tensor::WeftTensor;
use serde::Serialize;
use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};
use weft::Tensor;
use workbench::bench::Timing;
use workbench::compare::Against;
use workbench::options::Tabled;
use workbench::settings::Settings;

/// A record as JSON.
pub struct WeftRecord {
    json: CString,
}

fn record(of: &impl Serialize) -> Result<WeftRecord, Failure> {
    let text = serde_json::to_string(of).map_err(|e| Failure::from(weft::Error::Input(e.to_string())))?;
    Ok(WeftRecord { json: c_text(&text) })
}

/// Options of one kind, from lines of `key=value`.
fn read<T: Tabled>(text: &str) -> Result<T, Failure> {
    let mut out = T::default();
    for (key, value) in crate::options::pairs(text)? {
        let there = || T::rows().iter().map(|r| r.name).collect::<Vec<_>>().join(", ");
        let row = T::row(key).ok_or_else(|| crate::options::unknown(key, &there()))?;
        row.set(&mut out, value).map_err(|why| crate::options::wrong(key, value, &why))?;
    }
    Ok(out)
}

/// The inputs in the network's order, after a run that says what is wrong with them.
fn in_order(session: &WeftSession, given: &[(&str, Tensor)]) -> Result<Vec<Tensor>, Failure> {
    run_tensors(session, given)?;
    let find = |name: &String| given.iter().find(|g| g.0 == name).map(|g| g.1.clone());
    Ok(session.input_types.iter().filter_map(|(name, _)| find(name)).collect())
}

/// Times a session.
///
/// # Safety
/// `session`, `inputs`, `count` and `error` are as of `weft_run`; `options` is null or text that ends in 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_bench(
    session: *const WeftSession,
    inputs: *const WeftTensor,
    count: usize,
    options: *const c_char,
    error: *mut *mut WeftError,
) -> *mut WeftRecord {
    // SAFETY: as the contract says.
    let bench = || unsafe {
        let (session, asked) = (object(session, "session")?, self::options(options)?.unwrap_or_default());
        let timing: Timing = read(asked)?;
        let inputs = in_order(session, &given(session, inputs, count)?)?;
        let _running = Running::enter(&session.session).map_err(Failure::usage)?;
        let settings = Settings { functions: session.functions.clone(), ..Settings::of_program() };
        record(&workbench::bench::of_session(&session.session, &inputs, &timing, &settings)?)
    };
    // SAFETY: as the contract says.
    unsafe { guarded(error, bench) }.map_or(null_mut(), |r| Box::into_raw(Box::new(r)))
}

/// Compares the results of two sessions of one network on the same inputs.
///
/// # Safety
/// As [`weft_bench`]; `reference` is a session of this library that is not freed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_compare(
    session: *const WeftSession,
    reference: *const WeftSession,
    inputs: *const WeftTensor,
    count: usize,
    options: *const c_char,
    error: *mut *mut WeftError,
) -> *mut WeftRecord {
    // SAFETY: as the contract says.
    let compare = || unsafe {
        let (session, reference) = (object(session, "session")?, object(reference, "reference")?);
        if std::ptr::eq(session, reference) {
            return Err(Failure::usage("a session is compared with itself")
                .help("compile the model again, such as with device=interpreter"));
        }
        let against: Against = read(self::options(options)?.unwrap_or_default())?;
        let given = given(session, inputs, count)?;
        let [got, want] = [session, reference].map(|s| Ok::<_, Failure>(run_tensors(s, &given)?.into_iter().collect()));
        record(&workbench::compare::of_results(&got?, &want?, session.session.is_mixed(), &against)?)
    };
    // SAFETY: as the contract says.
    unsafe { guarded(error, compare) }.map_or(null_mut(), |r| Box::into_raw(Box::new(r)))
}

/// The record as JSON; null of none.
///
/// # Safety
/// `record` is null, or a record of this library that is not freed during the call; the text lives as long as it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_record_json(record: *const WeftRecord) -> *const c_char {
    // SAFETY: as the contract says.
    unsafe { record.as_ref() }.map_or(null(), |r| r.json.as_ptr())
}

/// Frees a record.
///
/// # Safety
/// `record` is null, or a record of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_record_free(record: *mut WeftRecord) {
    // SAFETY: as the contract says.
    unsafe { free(record) }
}

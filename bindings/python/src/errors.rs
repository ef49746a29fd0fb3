//! Errors as `weft_nn.Error`, which has the code, the place and the help of the command's errors.

use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft::{Advice, Code, Spelling};

/// Options as Python has them.
struct Keywords;

impl Spelling for Keywords {
    fn option(&self, name: &str) -> String {
        let plural = matches!(name, "dim" | "shape");
        format!("{}{}=", name.replace('-', "_"), if plural { "s" } else { "" })
    }
    fn dims(&self, sizes: &[(&str, String)]) -> String {
        let value = |size: &str| if size.contains("..") { format!("{size:?}") } else { size.to_string() };
        let pairs: Vec<String> = sizes.iter().map(|(name, size)| format!("{name:?}: {}", value(size))).collect();
        format!("dims={{{}}}", pairs.join(", "))
    }
    fn whole_shape(&self) -> &'static str {
        "shapes={INPUT: [...]}"
    }
    fn or_inputs(&self) -> &'static str {
        ""
    }
    fn host_functions(&self) -> &'static str {
        "give it in host_functions= of weft_nn.compile: {\"NAME\": function}"
    }
}

/// An error of the library as an exception.
pub fn raise(e: &weft::Error) -> PyErr {
    raised(e.advice(&Keywords))
}

/// An error that becomes an exception.
pub trait Raise {
    /// The exception.
    fn raise(&self) -> PyErr;
}

impl Raise for weft::Error {
    fn raise(&self) -> PyErr {
        raise(self)
    }
}

impl Raise for workbench::Error {
    fn raise(&self) -> PyErr {
        raised(self.spelled(&Keywords))
    }
}

/// Exceptions that functions in Python have raised while Weft called them, until the call returns to Python; each with
/// the sentence that stands for it in an error.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Vec<(String, PyErr)>>>);

/// So many exceptions are kept that no error has brought up yet.
const MOST_RAISED: usize = 16;

/// What external targets have raised in runs: they belong to no session.
static OF_TARGETS: Mutex<Vec<(String, PyErr)>> = Mutex::new(Vec::new());

thread_local! {
    /// What a function in Python raised that the compiler asked, where the compiler takes no errors.
    static FAILED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Keeps an exception for the end of the call that this thread works for ([`failed`]); returns a sentence in its place.
/// The first one counts.
pub fn fail(e: PyErr) -> String {
    let said = Python::attach(|py| sentence(py, &e));
    FAILED.with_borrow_mut(|f| {
        f.get_or_insert(e);
    });
    said
}

/// The exception that [`fail`] kept on this thread.
pub fn failed() -> Option<PyErr> {
    FAILED.take()
}

/// Keeps an exception of an external target; returns a sentence in its place.
pub fn keep_of_targets(py: Python<'_>, e: PyErr) -> String {
    keep_in(&mut OF_TARGETS.lock().unwrap_or_else(PoisonError::into_inner), py, e)
}

fn sentence(py: Python<'_>, e: &PyErr) -> String {
    let kind = e.get_type(py).name().map_or_else(|_| "an exception".into(), |n| n.to_string());
    format!("{kind}: {}", e.value(py))
}

fn keep_in(list: &mut Vec<(String, PyErr)>, py: Python<'_>, e: PyErr) -> String {
    let said = sentence(py, &e);
    if list.len() >= MOST_RAISED {
        list.remove(0);
    }
    list.push((said.clone(), e));
    said
}

/// Takes out the exception that an error speaks of.
fn spoken_of(list: &mut Vec<(String, PyErr)>, said: &str) -> Option<PyErr> {
    let at = list.iter().rposition(|(sentence, _)| said.contains(sentence.as_str()))?;
    Some(list.remove(at).1)
}

impl Raised {
    fn list(&self) -> MutexGuard<'_, Vec<(String, PyErr)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Keeps an exception; returns a sentence in its place.
    pub fn keep(&self, py: Python<'_>, e: PyErr) -> String {
        keep_in(&mut self.list(), py, e)
    }
    /// The result; for an error, the exception that it speaks of, if it does.
    ///
    /// # Errors
    /// That exception, else the error.
    pub fn or<T>(&self, done: PyResult<T>) -> PyResult<T> {
        done.map_err(|e| {
            let said = Python::attach(|py| e.value(py).to_string());
            let of_targets = || spoken_of(&mut OF_TARGETS.lock().unwrap_or_else(PoisonError::into_inner), &said);
            spoken_of(&mut self.list(), &said).or_else(of_targets).unwrap_or(e)
        })
    }
}

/// Wrong use of a function.
pub fn usage(message: impl Into<String>, help: impl Into<String>) -> PyErr {
    raised(Advice { code: Code::Usage, message: message.into(), place: None, help: Some(help.into()) })
}

/// An input that does not fit.
pub fn input(message: impl Into<String>, place: impl Into<String>, help: impl Into<String>) -> PyErr {
    raised(Advice { code: Code::Input, message: message.into(), place: Some(place.into()), help: Some(help.into()) })
}

/// Something of the machine that is missing.
pub fn device(message: impl Into<String>) -> PyErr {
    raised(Advice { code: Code::Device, message: message.into(), place: None, help: None })
}

/// A panic in the library.
pub fn bug(payload: &(dyn std::any::Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    raised(Advice {
        code: Code::Bug,
        message: format!("internal error: {}", text.unwrap_or("unknown")),
        place: None,
        help: Some("please report this with the model and the call".into()),
    })
}

/// The exception with the parts of `a`; if its class cannot be had, the error of that.
fn raised(a: Advice) -> PyErr {
    Python::attach(|py| {
        let class = py.import("weft_nn._errors").and_then(|m| m.getattr("Error"));
        match class.and_then(|c| c.call1((a.message, a.code as u8, a.place, a.help))) {
            Ok(error) => PyErr::from_value(error),
            Err(e) => e,
        }
    })
}

//! Errors as `weft_nn.Error`, which has the code, the place and the help of the command's errors.

use pyo3::prelude::*;
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

/// Exceptions that functions in Python have raised while Weft called them, until the call returns to Python; each with
/// the sentence that stands for it in an error.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Vec<(String, PyErr)>>>);

/// So many exceptions are kept that no error has brought up yet.
const MOST_RAISED: usize = 16;

impl Raised {
    fn list(&self) -> MutexGuard<'_, Vec<(String, PyErr)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Keeps an exception; returns a sentence in its place.
    pub fn keep(&self, py: Python<'_>, e: PyErr) -> String {
        let kind = e.get_type(py).name().map_or_else(|_| "an exception".into(), |n| n.to_string());
        let sentence = format!("{kind}: {}", e.value(py));
        let mut list = self.list();
        if list.len() >= MOST_RAISED {
            list.remove(0);
        }
        list.push((sentence.clone(), e));
        sentence
    }
    /// The result; for an error, the exception that it speaks of, if it does.
    ///
    /// # Errors
    /// That exception, else the error.
    pub fn or<T>(&self, done: PyResult<T>) -> PyResult<T> {
        done.map_err(|e| {
            let said = Python::attach(|py| e.value(py).to_string());
            let mut list = self.list();
            let cause = list.iter().rposition(|(sentence, _)| said.contains(sentence.as_str()));
            cause.map_or(e, |i| list.remove(i).1)
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

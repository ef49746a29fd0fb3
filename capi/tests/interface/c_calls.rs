//! The functions as C calls them: names and places of inputs, errors with their code, place and help, pointers that are
//! null.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use weft_c::*;

const TEXT: &CStr = c"graph @main(%a: f32[n,2], %b: f32[n,2]) -> (sum: f32[n,2], difference: f32[n,2]) {
  %s = add %a, %b : f32[n,2]
  %d = sub %a, %b : f32[n,2]
  return %s, %d
}
";

const F32: i32 = 11;
const F64: i32 = 12;

/// The text at `at`; empty for null.
fn text(at: *const c_char) -> String {
    // SAFETY: the library gives null or text that ends in 0.
    if at.is_null() { String::new() } else { unsafe { CStr::from_ptr(at) }.to_str().expect("UTF-8").to_string() }
}

/// Code, message, place and help of an error, which is freed.
fn taken(error: *mut WeftError) -> (i32, String, String, String) {
    assert!(!error.is_null(), "the call has set no error");
    // SAFETY: the error was made by the call before.
    unsafe {
        let parts = (weft_error_message(error), weft_error_place(error), weft_error_help(error));
        let out = (weft_error_code(error), text(parts.0), text(parts.1), text(parts.2));
        weft_error_free(error);
        out
    }
}

/// A session of the network above, for two rows of `a` and `b` at most eight.
fn session() -> *mut WeftSession {
    let mut error = null_mut();
    // SAFETY: the texts end in 0, the pointers are valid or null.
    unsafe {
        let bytes = TEXT.to_bytes();
        let options = c"dim.n=1..8\n";
        let model = weft_model_from_bytes(bytes.as_ptr().cast(), bytes.len(), options.as_ptr(), &mut error);
        assert!(!model.is_null(), "{:?}", taken(error));
        let mut count = 0;
        let ports = std::slice::from_raw_parts(weft_model_inputs(model, &mut count), count);
        assert_eq!((count, text(ports[1].name), ports[1].r#type, ports[1].rank), (2, "b".to_string(), F32, 2));
        assert_eq!(std::slice::from_raw_parts(ports[1].shape, 2), [-1, 2]);
        let session = weft_compile(model, c"device=cpu\nthreads=1".as_ptr(), &mut error);
        weft_model_free(model);
        assert!(!session.is_null(), "{:?}", taken(error));
        assert_eq!(text(weft_session_place(session)), "device");
        session
    }
}

fn tensor(name: Option<&CStr>, r#type: i32, shape: &[i64], data: &[f32]) -> WeftTensor {
    let name = name.map_or(null(), CStr::as_ptr);
    WeftTensor { name, r#type, rank: shape.len(), shape: shape.as_ptr(), data: data.as_ptr().cast() }
}

#[test]
fn inputs_are_taken_by_name_and_by_place() {
    let session = session();
    let (a, b) = ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]);
    let shape = [2, 2];
    let placed = [tensor(None, F32, &shape, &a), tensor(None, F32, &shape, &b)];
    let named = [tensor(Some(c"b"), F32, &shape, &b), tensor(Some(c"a"), F32, &shape, &a)];
    for inputs in [placed, named] {
        let (mut error, mut count) = (null_mut(), 0);
        // SAFETY: the tensors have as many elements as their shapes say.
        unsafe {
            let outputs = weft_run(session, inputs.as_ptr(), 2, &mut error);
            assert!(!outputs.is_null(), "{:?}", taken(error));
            let list = std::slice::from_raw_parts(weft_outputs_tensors(outputs, &mut count), count);
            assert_eq!((count, text(list[0].name), list[0].r#type), (2, "sum".to_string(), F32));
            assert_eq!(std::slice::from_raw_parts(list[1].shape, list[1].rank), [2, 2]);
            assert_eq!(std::slice::from_raw_parts(list[1].data.cast::<f32>(), 4), [-9.0, -18.0, -27.0, -36.0]);
            weft_outputs_free(outputs);
            // One result alone, into memory of the caller's.
            let mut sum = [0f32; 4];
            let buffer = WeftBuffer { name: c"sum".as_ptr(), data: sum.as_mut_ptr().cast(), bytes: 16 };
            assert_eq!(weft_run_into(session, inputs.as_ptr(), 2, &buffer, 1, &mut error), WEFT_OK);
            assert_eq!(sum, [11.0, 22.0, 33.0, 44.0]);
        }
    }
    // SAFETY: nobody uses the session any more.
    unsafe { weft_session_free(session) };
}

#[test]
fn what_does_not_fit_is_an_error_with_its_place() {
    let session = session();
    let (data, shape) = ([1.0; 8], [2, 2]);
    let good = || tensor(None, F32, &shape, &data);
    let run = |inputs: &[WeftTensor]| {
        let mut error = null_mut();
        // SAFETY: the tensors have as many elements as their shapes say.
        let outputs = unsafe { weft_run(session, inputs.as_ptr(), inputs.len(), &mut error) };
        assert!(outputs.is_null());
        taken(error)
    };
    let (code, message, place, _) = run(&[good(), tensor(None, F64, &[1, 2], &data)]);
    assert_eq!((code, message.as_str()), (3, "the tensor has elements of type f64, not f32"));
    assert_eq!(place, "input `b`: f32[n,2]");
    let (code, message, place, help) = run(&[tensor(None, F32, &[4], &data), good()]);
    assert_eq!((code, message.as_str(), place.as_str()), (3, "the tensor has the shape [4]", "input `a`: f32[n,2]"));
    assert!(help.contains("weft_model_load"), "{help}");
    assert!(run(&[good()]).1.contains("input `b` is missing"));
    assert!(run(&[good(), tensor(Some(c"c"), F32, &shape, &data)]).1.contains("no input `c`; there are: a, b"));
    assert_eq!(run(&[tensor(Some(c"a"), F32, &shape, &data), tensor(Some(c"a"), F32, &shape, &data)]).0, 3);
    assert!(run(&[good(), good(), good()]).1.contains("the network has 2 inputs, not 3"));
    assert_eq!(run(&[good(), tensor(None, 99, &shape, &data)]).0, 2);
    assert_eq!(run(&[good(), tensor(None, F32, &[-1, 2], &data)]).0, 3);
    assert_eq!(run(&[good(), tensor(None, F32, &[i64::MAX, i64::MAX], &data)]).0, 3);
    let none = WeftTensor { data: null(), ..good() };
    assert_eq!(run(&[good(), none]).0, 2);
    let mut error = null_mut();
    let small = WeftBuffer { name: null(), data: [0f32; 2].as_mut_ptr().cast(), bytes: 8 };
    // SAFETY: the tensors have as many elements as their shapes say, the buffer as many bytes as it says.
    assert_eq!(unsafe { weft_run_into(session, [good(), good()].as_ptr(), 2, &small, 1, &mut error) }, 3);
    let (_, message, place, _) = taken(error);
    assert_eq!(
        (message.as_str(), place.as_str()),
        ("the result is f32[2, 2], 16 bytes; there is room for 8", "output `sum`")
    );
    // SAFETY: nobody uses the session any more.
    unsafe { weft_session_free(session) };
}

#[test]
fn null_is_refused_or_ignored() {
    let mut error = null_mut();
    // SAFETY: null is what this is about.
    unsafe {
        assert!(weft_model_load(null(), null(), &mut error).is_null());
        assert_eq!(taken(error).0, 2);
        error = null_mut();
        assert!(weft_compile(null(), null(), &mut error).is_null());
        assert_eq!(taken(error).1, "the model is NULL");
        error = null_mut();
        assert!(weft_run(null(), null(), 0, &mut error).is_null());
        assert_eq!(taken(error).1, "the session is NULL");
        // Who asks for no error gets none.
        assert!(weft_model_load(c"none.onnx".as_ptr(), null(), null_mut()).is_null());
        assert!(weft_model_inputs(null(), null_mut()).is_null() && weft_outputs_tensors(null(), null_mut()).is_null());
        weft_model_free(null_mut());
        weft_session_free(null_mut());
        weft_outputs_free(null_mut());
        weft_error_free(null_mut());
        assert_eq!((weft_error_code(null()), weft_error_message(null())), (WEFT_OK, null()));
    }
    assert_eq!(text(weft_version()), env!("CARGO_PKG_VERSION"));
}

#[test]
fn sizes_that_are_open_are_told_with_the_options_of_c() {
    let mut error = null_mut();
    let bytes = CString::new(TEXT.to_str().expect("text").replace("[n,2]", "[2,n]")).expect("no 0");
    let bytes = bytes.to_bytes();
    // SAFETY: the bytes are as many as is said.
    let model = unsafe { weft_model_from_bytes(bytes.as_ptr().cast(), bytes.len(), null(), &mut error) };
    assert!(model.is_null());
    let (code, message, _, help) = taken(error);
    assert_eq!((code, message.as_str()), (2, "the model leaves `n` open"));
    assert!(help.contains("dim.n=128") && help.contains("dim.n=A..B"), "{help}");
}

/// A text with an external target that nobody has registered, which counts as code of the machine.
const NATIVE: &CStr = c"graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y = call_host @c_0 %x {dtypes=[f32], shapes=[[2]], reference=c_0, target=unknown_target, options=\"\"} : f32[2]
  return %y
}
graph @c_0(%x: f32[2]) -> (y: f32[2]) primitive {
  %2 = neg %x : f32[2]
  return %2
}
";

#[test]
fn a_text_runs_code_of_the_machine_only_where_that_is_allowed() {
    let load = |bytes: &[u8], options: *const c_char| {
        let mut error = null_mut();
        // SAFETY: the texts end in 0, the data are as long as said.
        let model = unsafe { weft_model_from_bytes(bytes.as_ptr().cast(), bytes.len(), options, &mut error) };
        match model.is_null() {
            true => Some(taken(error)),
            false => {
                // SAFETY: the model was just made.
                unsafe { weft_model_free(model) };
                None
            }
        }
    };
    let refused = load(NATIVE.to_bytes(), null()).expect("it is refused");
    assert!(refused.0 == 2 && refused.1.contains("unknown_target"), "{refused:?}");
    assert_eq!(load(NATIVE.to_bytes(), c"allow_native=true".as_ptr()), None);
    let onnx = load(&[8, 9], c"allow_native=true".as_ptr()).expect("it is refused");
    assert!(onnx.0 == 2 && onnx.1.contains("allow_native"), "{onnx:?}");
}

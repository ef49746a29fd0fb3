//! Functions by name as C calls them: names that are taken or missing, failures, networks that would wait for
//! themselves, functions that are freed.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use weft::DType;
use weft::dlpack::DLTensor;
use weft_c::*;

/// A network that calls the function `f`.
const CALLER: &CStr = c"graph @main(%x: f32[2]) -> (y: f32[2]) {
  %a = call_host @f %x {dtypes=[f32], shapes=[[2]]} : f32[2]
  %y = neg %a : f32[2]
  return %y
}
";

/// A network of one node, which `host_call.` replaces.
const RELU: &CStr = c"graph @main(%x: f32[2]) -> (y: f32[2]) {
  %a = relu %x : f32[2]
  %y = neg %a : f32[2]
  return %y
}
";

/// Code and message of an error, which is freed.
fn taken(error: *mut WeftError) -> (i32, String) {
    // SAFETY: the error was made by the call before.
    unsafe {
        let text = CStr::from_ptr(weft_error_message(error)).to_str().expect("UTF-8").to_string();
        let out = (weft_error_code(error), text);
        weft_error_free(error);
        out
    }
}

fn compile(text: &CStr, options: &CStr, functions: *const WeftFunctions) -> Result<*mut WeftSession, (i32, String)> {
    let mut error = null_mut();
    // SAFETY: the texts end in 0, the pointers are valid or null.
    unsafe {
        let bytes = text.to_bytes();
        let model = weft_model_from_bytes(bytes.as_ptr().cast(), bytes.len(), null(), &mut error);
        assert!(!model.is_null(), "{:?}", taken(error));
        let session = weft_compile_with(model, options.as_ptr(), functions, &mut error);
        weft_model_free(model);
        if session.is_null() { Err(taken(error)) } else { Ok(session) }
    }
}

fn run(session: *const WeftSession, mut x: [f32; 2]) -> Result<Vec<f32>, (i32, String)> {
    let (mut error, mut shape) = (null_mut(), [2]);
    let input = DLTensor::dense(x.as_mut_ptr().cast(), DType::F32, &mut shape);
    // SAFETY: the tensor has as many elements as its shape says.
    unsafe {
        let outputs = weft_run_dlpack(session, &input, 1, &mut error);
        if outputs.is_null() {
            return Err(taken(error));
        }
        assert!(weft_outputs_dlpack(outputs, 1, &mut error).is_null());
        assert_eq!(taken(error), (2, "there are 1 results, and none at place 1".into()));
        let result = weft_outputs_dlpack(outputs, 0, null_mut());
        weft_outputs_free(outputs);
        let list = std::slice::from_raw_parts((*result).dl_tensor.data.cast::<f32>(), 2).to_vec();
        ((*result).deleter.expect("a deleter"))(result);
        Ok(list)
    }
}

fn call(functions: *const WeftFunctions, name: &CStr, mut x: [f32; 2]) -> Result<[f32; 2], (i32, String)> {
    let (mut error, mut y) = (null_mut(), [0f32; 2]);
    let mut shapes = [[2], [2]];
    let [of_input, of_output] = &mut shapes;
    let input = DLTensor::dense(x.as_mut_ptr().cast(), DType::F32, of_input);
    let mut output = DLTensor::dense(y.as_mut_ptr().cast(), DType::F32, of_output);
    // SAFETY: the tensors have as many elements as their shapes say.
    match unsafe { weft_functions_call(functions, name.as_ptr(), &input, 1, &mut output, 1, &mut error) } {
        WEFT_OK => Ok(y),
        _ => Err(taken(error)),
    }
}

/// Adds the number that `data` points to; fails for numbers below 0.
unsafe extern "C" fn add(
    data: *mut c_void,
    inputs: *const DLTensor,
    _: usize,
    outputs: *mut DLTensor,
    _: usize,
    message: *mut c_char,
    room: usize,
) -> i32 {
    // SAFETY: the functions are called with two numbers each, and with room for a text.
    unsafe {
        let x = std::slice::from_raw_parts((*inputs).data.cast::<f32>(), 2);
        if x[0] < 0.0 {
            let text = b"numbers below 0 are not added\0";
            message.copy_from_nonoverlapping(text.as_ptr().cast(), text.len().min(room));
            return 7;
        }
        let y = std::slice::from_raw_parts_mut((*outputs).data.cast::<f32>(), 2);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + *data.cast::<f32>());
    }
    0
}

static RELEASED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release(data: *mut c_void) {
    RELEASED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the data are a number in a box.
    drop(unsafe { Box::from_raw(data.cast::<f32>()) });
}

#[test]
fn functions_are_called_by_networks_and_by_name() {
    let mut error = null_mut();
    let functions = weft_functions_new();
    let number = Box::into_raw(Box::new(1f32)).cast::<c_void>();
    let session = compile(CALLER, c"device=cpu", functions).expect("compiles");
    let (code, message) = run(session, [1.0, 2.0]).expect_err("`f` is missing");
    assert!(code == 3 && message.contains("the host function `f`, which is not registered"), "{code} {message}");
    // SAFETY: nobody uses the session any more.
    unsafe { weft_session_free(session) };
    // SAFETY: names end in 0, and `add` takes what it is registered with.
    unsafe {
        assert_eq!(weft_functions_add(functions, c"f".as_ptr(), Some(add), number, Some(release), &mut error), WEFT_OK);
        // What is refused is not released: it stays the caller's.
        assert_eq!(weft_functions_add(functions, c"f".as_ptr(), Some(add), number, Some(release), &mut error), 2);
        assert_eq!(taken(error).1, "a function `f` is registered already");
        assert_eq!(weft_functions_add(functions, c"g".as_ptr(), None, number, None, &mut error), 2);
        assert_eq!(taken(error).1, "the function is NULL");
    }
    let session = compile(CALLER, c"device=cpu", functions).expect("compiles");
    assert_eq!(run(session, [1.0, 2.0]), Ok(vec![-2.0, -3.0]));
    let (code, message) = run(session, [-1.0, 2.0]).expect_err("it fails");
    assert!(message.contains("numbers below 0 are not added"), "{code} {message}");
    assert_eq!(call(functions, c"f", [3.0, 4.0]), Ok([4.0, 5.0]));
    assert_eq!(call(functions, c"f", [-3.0, 4.0]), Err((3, "numbers below 0 are not added".into())));
    let (code, message) = call(functions, c"h", [0.0; 2]).expect_err("there is none");
    assert_eq!((code, message.as_str()), (2, "no function `h` is registered; there are: f"));
    // SAFETY: the session and the functions are valid until they are freed.
    unsafe {
        assert_eq!(weft_functions_add_session(functions, c"net".as_ptr(), session, &mut error), WEFT_OK);
        assert_eq!(call(functions, c"net", [1.0, 2.0]), Ok([-2.0, -3.0]));
        // In the place of a node: relu becomes a call of the network, which calls `f`.
        let outer = compile(RELU, c"device=cpu\nhost_call.op:relu=net", functions).expect("compiles");
        assert_eq!(run(outer, [1.0, 2.0]), Ok(vec![2.0, 3.0]));
        let released = RELEASED.load(Ordering::Relaxed);
        weft_functions_free(functions);
        assert_eq!(RELEASED.load(Ordering::Relaxed), released + 1);
        let (_, message) = run(outer, [1.0, 2.0]).expect_err("its functions are gone");
        assert!(message.contains("the functions of the network were freed"), "{message}");
        weft_session_free(outer);
        weft_session_free(session);
    }
}

/// Calls `net` of the registry that `data` is.
unsafe extern "C" fn back(
    data: *mut c_void,
    inputs: *const DLTensor,
    input_count: usize,
    outputs: *mut DLTensor,
    output_count: usize,
    message: *mut c_char,
    room: usize,
) -> i32 {
    let mut error = null_mut();
    let name = c"net".as_ptr();
    // SAFETY: the arguments are those of the call.
    unsafe {
        let code = weft_functions_call(data.cast(), name, inputs, input_count, outputs, output_count, &mut error);
        if code != WEFT_OK {
            let text = CStr::from_ptr(weft_error_message(error)).to_bytes_with_nul();
            message.copy_from_nonoverlapping(text.as_ptr().cast(), text.len().min(room));
            weft_error_free(error);
        }
        code
    }
}

#[test]
fn a_network_that_would_wait_for_itself_is_refused() {
    let mut error = null_mut();
    let functions = weft_functions_new();
    // SAFETY: names end in 0; the functions live as long as they are called.
    unsafe {
        let added = weft_functions_add(functions, c"f".as_ptr(), Some(back), functions.cast(), None, &mut error);
        assert_eq!(added, WEFT_OK);
        let session = compile(CALLER, c"device=cpu", functions).expect("compiles");
        assert_eq!(weft_functions_add_session(functions, c"net".as_ptr(), session, &mut error), WEFT_OK);
        let (_, message) = run(session, [1.0, 2.0]).expect_err("it calls itself");
        assert!(message.contains("it would wait for itself"), "{message}");
        weft_session_free(session);
        weft_functions_free(functions);
    }
}

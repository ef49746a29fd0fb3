//! Device tensors as C uses them: sessions on one device and on two, open sizes, what does not fit.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};
use weft_c::*;

/// `total` is twice `a` and `b`; two results.
const TEXT: &CStr = c"graph @main(%a: f32[n,2], %b: f32[n,2]) -> (total: f32[n,2], difference: f32[n,2]) {
  %s = add %a, %b : f32[n,2]
  %t = add %s, %s : f32[n,2]
  %d = sub %a, %b : f32[n,2]
  return %t, %d
}
";

const F32: i32 = 11;

fn text(at: *const c_char) -> String {
    // SAFETY: the library gives text that ends in 0.
    unsafe { CStr::from_ptr(at) }.to_str().expect("UTF-8").to_string()
}

/// Code and message of an error, which is freed.
fn taken(error: *mut WeftError) -> (i32, String) {
    assert!(!error.is_null(), "the call has set no error");
    // SAFETY: the error was made by the call before.
    unsafe {
        let out = (weft_error_code(error), text(weft_error_message(error)));
        weft_error_free(error);
        out
    }
}

/// A session of the network above for two rows, or as many as `sizes` says.
fn session(device: &CStr, sizes: &CStr) -> *mut WeftSession {
    let mut error = null_mut();
    // SAFETY: the texts end in 0, the pointers are valid or null.
    unsafe {
        let bytes = TEXT.to_bytes();
        let model = weft_model_from_bytes(bytes.as_ptr().cast(), bytes.len(), sizes.as_ptr(), &mut error);
        assert!(!model.is_null(), "{:?}", taken(error));
        let session = weft_compile(model, device.as_ptr(), &mut error);
        weft_model_free(model);
        assert!(!session.is_null(), "{:?}", taken(error));
        session
    }
}

fn upload(session: *const WeftSession, name: &CStr, shape: &[i64], data: &[f32]) -> Result<Tensor, (i32, String)> {
    let mut error = null_mut();
    let (rank, data) = (shape.len(), data.as_ptr().cast());
    let given = WeftTensor { name: name.as_ptr(), r#type: F32, rank, shape: shape.as_ptr(), data };
    // SAFETY: the tensor has as many elements as its shape says.
    let made = unsafe { weft_to_device(session, &given, &mut error) };
    if made.is_null() { Err(taken(error)) } else { Ok(Tensor(made)) }
}

/// A device tensor, freed once.
struct Tensor(*mut WeftDeviceTensor);

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: nobody else frees it.
        unsafe { weft_device_tensor_free(self.0) };
    }
}

impl Tensor {
    fn values(&self, count: usize) -> Result<Vec<f32>, (i32, String)> {
        let (mut error, mut out) = (null_mut(), vec![f32::NAN; count]);
        // SAFETY: there are as many bytes as is said.
        let code = unsafe { weft_device_tensor_read(self.0, out.as_mut_ptr().cast(), 4 * count, &mut error) };
        if code == WEFT_OK { Ok(out) } else { Err(taken(error)) }
    }
    fn place(&self) -> String {
        // SAFETY: the tensor is there.
        text(unsafe { weft_device_tensor_device(self.0) })
    }
}

fn run(session: *const WeftSession, inputs: &[&Tensor], results: usize) -> Result<Vec<Tensor>, (i32, String)> {
    let (mut error, mut outputs) = (null_mut(), vec![null_mut(); results]);
    let inputs: Vec<_> = inputs.iter().map(|t| t.0).collect();
    // SAFETY: there are as many tensors, and room for as many pointers, as is said.
    let code = unsafe {
        weft_run_on_device(session, inputs.as_ptr(), inputs.len(), outputs.as_mut_ptr(), results, &mut error)
    };
    match code {
        WEFT_OK => Ok(outputs.into_iter().map(Tensor).collect()),
        _ => {
            assert!(outputs.iter().all(|o| o.is_null()), "a call that fails leaves the outputs alone");
            Err(taken(error))
        }
    }
}

/// Devices that are here, by the options of a compilation.
fn devices() -> Vec<&'static CStr> {
    match weft::list_adapters().is_empty() {
        true => {
            eprintln!("LEFT OUT: no adapter, so tensors are in host memory alone");
            vec![c"device=cpu\nthreads=1"]
        }
        false => vec![c"device=0", c"device=cpu\nthreads=1"],
    }
}

#[test]
fn results_are_inputs_of_the_next_run() {
    let (a, b) = ([1., 2., 3., 4.], [10., 20., 30., 40.]);
    let mut kept: Vec<Tensor> = vec![];
    for options in devices() {
        let one = session(options, c"dim.n=2");
        let [ta, tb] = [(c"a", a), (c"b", b)].map(|(name, x)| upload(one, name, &[2, 2], &x).expect("uploads"));
        // SAFETY: the session is there.
        let label = text(unsafe { weft_session_device(one) });
        let is_gpu = options == c"device=0";
        assert_eq!(ta.place(), if is_gpu { label.as_str() } else { "host memory" });
        let first = run(one, &[&ta, &tb], 2).expect("runs");
        assert_eq!(first[1].values(4).expect("reads"), [-9., -18., -27., -36.]);
        // SAFETY: the tensor is there.
        let port = unsafe { &*weft_device_tensor_port(first[1].0) };
        assert_eq!((text(port.name).as_str(), port.r#type, port.rank), ("difference", F32, 2));
        // SAFETY: a port has as many sizes as its rank.
        assert_eq!(unsafe { std::slice::from_raw_parts(port.shape, 2) }, [2, 2]);
        // Another session, on the same device, with the results of the first one, which is freed.
        let two = session(options, c"dim.n=2");
        // SAFETY: nobody uses the session any more.
        unsafe { weft_session_free(one) };
        let second = run(two, &[&first[0], &first[1]], 2).expect("runs");
        assert_eq!(second[0].values(4).expect("reads"), [26., 52., 78., 104.]);
        assert_eq!(second[0].place(), ta.place());
        // Tensors of the device before go through host memory.
        kept.extend(first);
        let mixed = run(two, &[&kept[0], &ta], 2).expect("runs");
        assert_eq!(mixed[1].values(4).expect("reads"), [21., 42., 63., 84.]);
        // SAFETY: nobody uses the session any more.
        unsafe { weft_session_free(two) };
    }
}

#[test]
fn sizes_may_stay_open() {
    for options in devices() {
        let session = session(options, c"dim.n=1..8");
        for rows in [1, 3] {
            let data: Vec<f32> = (0..2 * rows).map(|i| i as f32).collect();
            let [a, b] = [c"a", c"b"].map(|name| upload(session, name, &[rows, 2], &data).expect("uploads"));
            let results = run(session, &[&a, &b], 2).expect("runs");
            let wanted: Vec<f32> = data.iter().map(|x| 4. * x).collect();
            assert_eq!(results[0].values(wanted.len()).expect("reads"), wanted);
            let again = run(session, &[&results[0], &a], 2).expect("runs");
            let wanted: Vec<f32> = data.iter().map(|x| 3. * x).collect();
            assert_eq!(again[1].values(wanted.len()).expect("reads"), wanted);
        }
        // SAFETY: nobody uses the session any more.
        unsafe { weft_session_free(session) };
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let data = [0.; 8];
    for options in devices() {
        let session = session(options, c"dim.n=2");
        let fails = |name, shape: &[i64]| upload(session, name, shape, &data).err().expect("an error");
        assert!(fails(c"c", &[2, 2]).1.contains("no input `c`; there are: a, b"));
        assert_eq!(fails(c"a", &[4]), (3, "the tensor has the shape [4]".into()));
        let a = upload(session, c"a", &[2, 2], &data).expect("uploads");
        let says = |inputs: &[&Tensor], results| run(session, inputs, results).err().expect("an error");
        assert_eq!(says(&[&a], 2), (3, "the network has 2 inputs, not 1".into()));
        assert_eq!(says(&[&a, &a], 1), (3, "the network has 2 results, not 1".into()));
        assert_eq!(says(&[&a, &Tensor(null_mut())], 2), (2, "the tensor is NULL".into()));
        let (code, message) = a.values(3).expect_err("too little room");
        assert_eq!((code, message.as_str()), (3, "the tensor is f32[2, 2], 16 bytes; there is room for 12"));
        // Of a session for other sizes.
        let other = self::session(options, c"dim.n=3");
        let b = upload(other, c"b", &[3, 2], &data).expect("uploads");
        assert_eq!(says(&[&a, &b], 2), (3, "the tensor has the shape [3, 2]".into()));
        // SAFETY: nobody uses the sessions any more.
        unsafe {
            weft_session_free(session);
            weft_session_free(other);
        }
    }
    let mut error = null_mut();
    // SAFETY: null is what this is about.
    unsafe {
        assert!(weft_to_device(null(), null(), &mut error).is_null());
        assert_eq!(taken(error), (2, "the session is NULL".into()));
        assert!(weft_device_tensor_port(null()).is_null() && weft_device_tensor_device(null()).is_null());
        weft_device_tensor_free(null_mut());
    }
}

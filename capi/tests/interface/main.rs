//! The C interface as programs in C use it. One program has all of them: each program is linked with everything.

mod c_calls;
mod c_examples;
mod device_tensors;
mod functions;
mod header;

/* Weft for C and C++: loads a network, compiles it and runs it. docs/c.md has a first program.
 *
 * Errors. A function that fails returns NULL or a code other than WEFT_OK. If `error` is not NULL, `*error` is then an
 * error that the caller frees; it is left alone otherwise. Arguments are never changed by a call that fails.
 *
 * Threads. Any number of threads may use a model, a session, outputs or a device tensor at once; who frees one must be
 * the last to use it. Runs on a GPU take turns unless `runs_in_flight` says otherwise; runs on the CPU share its threads. A call blocks
 * its thread until it is done.
 *
 * Functions of the program are called on the thread that runs the network, several at once if several threads run it.
 *
 * Memory. Inputs are read during the call alone. Texts, ports and tensors that Weft returns are Weft's: they live as
 * long as the object that they were asked of, and are not written to.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of errors: the exit codes of the command `weft`. */
enum {
  WEFT_OK = 0,
  WEFT_CHECK = 1,       /* a check failed */
  WEFT_USAGE = 2,       /* options or arguments that do not fit */
  WEFT_INPUT = 3,       /* a bad model, bundle or input */
  WEFT_UNSUPPORTED = 4, /* operators that Weft does not have */
  WEFT_DEVICE = 5,      /* no such device, or not enough memory */
  WEFT_BUG = 6          /* a bug of Weft's */
};
typedef int32_t weft_code;

/* Element types. f16 and bf16 are 2 bytes, a bool is 1 byte. */
enum {
  WEFT_BOOL = 0,
  WEFT_U8 = 1,
  WEFT_I8 = 2,
  WEFT_U16 = 3,
  WEFT_I16 = 4,
  WEFT_U32 = 5,
  WEFT_I32 = 6,
  WEFT_U64 = 7,
  WEFT_I64 = 8,
  WEFT_F16 = 9,
  WEFT_BF16 = 10,
  WEFT_F32 = 11,
  WEFT_F64 = 12
};
typedef int32_t weft_type;

typedef struct weft_error weft_error;                 /* why a call failed */
typedef struct weft_model weft_model;                 /* a network, or a bundle */
typedef struct weft_session weft_session;             /* a compiled network on a device */
typedef struct weft_outputs weft_outputs;             /* the results of a run */
typedef struct weft_device_tensor weft_device_tensor; /* a tensor that stays on the device */
typedef struct weft_functions weft_functions;         /* functions by name */
typedef struct weft_record weft_record;               /* what was measured */

/* The part of DLPack's dlpack.h that is used; include that first where you have it. */
#if !defined(DLPACK_DLPACK_H_) && !defined(WEFT_DLPACK)
#define WEFT_DLPACK
typedef struct {
  int32_t device_type; /* 1: host memory */
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;       /* `ndim` sizes in elements, outermost first */
  int64_t *strides;     /* elements from one to the next; NULL: dense, row-major */
  uint64_t byte_offset; /* from `data` to the first element */
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
#endif

/* An input or a result of a network. */
typedef struct {
  const char *name;
  weft_type type;
  size_t rank;
  const int64_t *shape; /* `rank` sizes, outermost first; -1 for one that stays open */
} weft_port;

/* A dense, row-major tensor in host memory. */
typedef struct {
  const char *name; /* of an input or a result; NULL: its place in the array says which it is */
  weft_type type;
  size_t rank;
  const int64_t *shape; /* `rank` sizes in elements, outermost first */
  const void *data;     /* not NULL, unless there are no elements */
} weft_tensor;

/* Memory for a result. */
typedef struct {
  const char *name; /* of a result; NULL: its place in the array says which it is */
  void *data;
  size_t bytes;
} weft_buffer;

/* Weft's version, such as "0.1.0". */
const char *weft_version(void);

/* The kind of an error. */
weft_code weft_error_code(const weft_error *error);
/* What is wrong, in one sentence. */
const char *weft_error_message(const weft_error *error);
/* Where: file, node or input; NULL if there is no place. */
const char *weft_error_place(const weft_error *error);
/* What to do; NULL if nothing is known to help. */
const char *weft_error_help(const weft_error *error);
/* Frees an error; NULL is ignored. */
void weft_error_free(weft_error *error);

/* Loads a file: .onnx, .weft or a bundle. `options` is NULL or lines of `key=value`:
 *   batch=N           the first dimension of every input that has dimensions
 *   dim.NAME=N        the size of a dimension; A..B, A..B:STEP or `open` keep it open
 *   shape.NAME=1x3    the shape of an input
 *   keep_open=true    sizes that nothing decides stay open
 *   allow_native=true a .weft text may run code of the machine, if external targets are in it; else WEFT_USAGE
 * NULL with WEFT_INPUT, WEFT_UNSUPPORTED or WEFT_USAGE if it cannot be loaded. */
weft_model *weft_model_load(const char *path, const char *options, weft_error **error);
/* As weft_model_load, from the bytes of a file, which are copied. ONNX models without external data. */
weft_model *weft_model_from_bytes(const void *data, size_t size, const char *options, weft_error **error);
/* The inputs, in order; `*count` is their number. */
const weft_port *weft_model_inputs(const weft_model *model, size_t *count);
/* The results, in order. */
const weft_port *weft_model_outputs(const weft_model *model, size_t *count);
/* Frees a model; NULL is ignored. Its sessions stay. */
void weft_model_free(weft_model *model);

/* Compiles a model and opens a session. `options` is NULL or lines of `key=value`; for a bundle the first five and the
 * last two:
 *   device=auto             a number or a name of `weft devices`, cpu, interpreter
 *   threads=N               of the CPU; 0: one for each core
 *   cache=DIR               folder for plans and drivers' pipelines; `user` is the user's cache folder; default: off
 *   cache_weights=true      weights too
 *   runs_in_flight=N        runs that may be under way at once
 *   target=PROFILE          compile for a named profile, as far as the device can run it
 *   amp=off|fp16            mixed precision
 *   keep_f32=NODE,...       nodes that stay in f32
 *   layout=auto|nchw|...    data layout
 *   fuse=full|classic|off   fusion
 *   opt_level=0..3
 *   ...                     and all options of the command for devices and compilations (`weft help compile`), with
 *                           underscores: nan=fast, rules=NAME, external=dnnl, tuning=FILE, quirk.NAME=off
 *   host_call.NODE=NAME     a function of weft_compile_with in the place of a node, or of all of an operator: op:Relu
 *   require_compiled=true   a bundle without a plan for the device fails with WEFT_DEVICE instead of being compiled
 *   allow_native=true       a bundle may run code of the machine, if external targets are in it; else WEFT_USAGE
 */
weft_session *weft_compile(const weft_model *model, const char *options, weft_error **error);
/* As weft_compile, for a network that calls functions (`call_host @name`, or the option host_call.): those that are
 * registered now. If one is missing, this fails with WEFT_INPUT on a GPU, and a run does on the CPU. The session does
 * not keep `functions`: free them after it. */
weft_session *weft_compile_with(const weft_model *model, const char *options, const weft_functions *functions,
                                weft_error **error);
/* The inputs, in order. */
const weft_port *weft_session_inputs(const weft_session *session, size_t *count);
/* The results, in order. */
const weft_port *weft_session_outputs(const weft_session *session, size_t *count);
/* Name, backend and driver of the device. */
const char *weft_session_device(const weft_session *session);
/* Where a run takes place: `device`, `device and host`, `host`, or `interpreter`. */
const char *weft_session_place(const weft_session *session);
/* Frees a session; NULL is ignored. Outputs of its runs stay. */
void weft_session_free(weft_session *session);

/* Runs once. `inputs` are all inputs, by name or by place, with the types and shapes that weft_session_inputs says.
 * NULL with WEFT_INPUT for an input that is missing, unknown, or of another type or shape. */
weft_outputs *weft_run(const weft_session *session, const weft_tensor *inputs, size_t count, weft_error **error);
/* As weft_run, on DLPack tensors in host memory, in the network's order; they may have strides. */
weft_outputs *weft_run_dlpack(const weft_session *session, const DLTensor *inputs, size_t count, weft_error **error);
/* As weft_run; results are written to `outputs`, each as many bytes as the result has. Results that are not named are
 * dropped. WEFT_OK, or the code of the error; then nothing was written. */
weft_code weft_run_into(const weft_session *session, const weft_tensor *inputs, size_t count,
                        const weft_buffer *outputs, size_t output_count, weft_error **error);
/* The results, in the model's order. */
const weft_tensor *weft_outputs_tensors(const weft_outputs *outputs, size_t *count);
/* Result `n` as a DLPack tensor without a copy, to be read only. Its user calls its deleter, once; it outlives the
 * outputs. NULL with WEFT_USAGE if there is no such result. */
DLManagedTensor *weft_outputs_dlpack(const weft_outputs *outputs, size_t n, weft_error **error);
/* Frees the results of a run; NULL is ignored. */
void weft_outputs_free(weft_outputs *outputs);

/* Times a session on `inputs`, as weft_run takes them. `options` is NULL or lines of `key=value`:
 *   warmup=N                runs before the timed ones; 10
 *   runs=N                  timed runs; 100
 *   duration=3s             timed for so long instead
 *   in_flight=N             runs in flight for the throughput
 * The record is that of `weft bench --json` without what the command alone knows (docs/json.md): latency_ms, and, where the
 * session runs kernels of one compilation, device_ms, split_ms, per_kernel and so on. */
weft_record *weft_bench(const weft_session *session, const weft_tensor *inputs, size_t count, const char *options,
                        weft_error **error);
/* Compares the results of `session` on `inputs` with those of `reference`, another session of the same network, such as
 * one with device=interpreter. `options` is NULL or lines of `key=value`: rtol=1e-3, atol=1e-3. The record has `pass`, and
 * `outputs` with the differences of each result, as `weft compare --json` has them. */
weft_record *weft_compare(const weft_session *session, const weft_session *reference, const weft_tensor *inputs,
                          size_t count, const char *options, weft_error **error);
/* The record as JSON; it lives as long as the record. */
const char *weft_record_json(const weft_record *record);
/* Frees a record; NULL is ignored. */
void weft_record_free(weft_record *record);

/* Uploads a tensor for an input once, for many runs; without a name it is for the first input. It can be an input of
 * each session: sessions on the same device use it where it is, for others it goes through host memory. If the session
 * computes in host memory, or the model leaves sizes open, the tensor stays in host memory. NULL with WEFT_INPUT for an
 * unknown input, or another type or shape; with WEFT_DEVICE without enough memory. */
weft_device_tensor *weft_to_device(const weft_session *session, const weft_tensor *tensor, weft_error **error);
/* Runs once without waiting for the device, and leaves the results there. `inputs` are all inputs in the network's
 * order, which stay the caller's and may be freed behind the call; `outputs` gets a new tensor for each result, in the
 * network's order. A session that computes in host memory waits. WEFT_OK, or the code of the error; then `outputs` is
 * left alone. */
weft_code weft_run_on_device(const weft_session *session, weft_device_tensor *const *inputs, size_t count,
                             weft_device_tensor **outputs, size_t output_count, weft_error **error);
/* Waits for the device and copies the elements, dense and row-major, to `data`, which has as many bytes as they take.
 * WEFT_INPUT for another size, WEFT_DEVICE for a lost device. */
weft_code weft_device_tensor_read(const weft_device_tensor *tensor, void *data, size_t bytes, weft_error **error);
/* The input or result that the tensor was made for: its name, and the type and shape of the tensor. */
const weft_port *weft_device_tensor_port(const weft_device_tensor *tensor);
/* The device as weft_session_device has it, or `host memory`. */
const char *weft_device_tensor_device(const weft_device_tensor *tensor);
/* Frees a device tensor; NULL is ignored. */
void weft_device_tensor_free(weft_device_tensor *tensor);

/* A function of the program. `data` is what it was registered with. Tensors are in host memory; a network hands them
 * over dense and row-major, with memory for the results, valid until the function returns. A result in place of an
 * operand has the operand's `data`. 0 for success, else a text of at most `room` bytes at `message` that ends in 0. */
typedef int32_t (*weft_call)(void *data, const DLTensor *inputs, size_t input_count, DLTensor *outputs,
                             size_t output_count, char *message, size_t room);
/* Frees the data of a function. */
typedef void (*weft_release)(void *data);

/* A registry of functions, which has none. */
weft_functions *weft_functions_new(void);
/* Registers a function. `release`, if it is not NULL, is called with `data` when the functions are freed. WEFT_USAGE if
 * the name is taken. */
weft_code weft_functions_add(weft_functions *functions, const char *name, weft_call call, void *data,
                             weft_release release, weft_error **error);
/* Registers a compiled network, which other networks and functions of the program may call by this name. The registry
 * keeps it: the session may be freed. */
weft_code weft_functions_add_session(weft_functions *functions, const char *name, const weft_session *session,
                                     weft_error **error);
/* Calls a function by its name, of the program or a network, with results in memory of the caller's. A function may
 * call others; a network that is under way on the thread is refused, since it would wait for itself. WEFT_INPUT with
 * what the function says of its failure. */
weft_code weft_functions_call(const weft_functions *functions, const char *name, const DLTensor *inputs, size_t count,
                              DLTensor *outputs, size_t output_count, weft_error **error);
/* Frees functions; NULL is ignored. Networks that were compiled with them fail from then on where they call one. */
void weft_functions_free(weft_functions *functions);

#ifdef __cplusplus
}
#endif

#endif

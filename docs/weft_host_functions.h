/* Host functions for Weft: `weft run MODEL --host-functions LIBRARY`.
 *
 * A shared library exports `weft_host_functions` (interface 1), `weft_prepared_functions` (interface 2) or both. Each gives a table of
 * functions by name. A graph calls one with `call_host @name`, and `--host-call NODE=name` lets one take the place of a node.
 *
 * Tensors are dense, row-major and in host memory. Their memory, that of results included, is Weft's; it is valid until the function
 * returns. A result that is declared in place of an operand holds the operand's values when the function is called; both have the same
 * `data`. Functions are called by one thread of a run at a time; several runs may call one at once.
 */
#ifndef WEFT_HOST_FUNCTIONS_H
#define WEFT_HOST_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>

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
  int64_t *shape;
  int64_t *strides; /* NULL: dense, row-major */
  uint64_t byte_offset; /* 0 */
} DLTensor;
#endif

/* Computes `outputs` of `inputs`; 0 where that succeeds, else a text of at most `room` bytes at `message`, which ends in 0. */
typedef int (*WeftHostCall)(const DLTensor *inputs, size_t input_count, DLTensor *outputs, size_t output_count, char *message, size_t room);

typedef struct {
  const char *name; /* NULL ends the table */
  WeftHostCall call;
} WeftHostFunction;

#ifdef __cplusplus
extern "C"
#endif
#ifdef _WIN32
__declspec(dllexport)
#endif
/* The table, for as long as the library is loaded; NULL where `interface` is not 1. */
const WeftHostFunction *weft_host_functions(uint32_t interface);

/* Interface 2: a function that is prepared once and runs many times. */
typedef struct {
  const char *name; /* NULL ends the table */

  /* Called before the first run of each call of the function in a network, and again for other sizes of operands (Weft keeps the states of
   * the last 16 lists of sizes). Tensors have types and shapes; `data` is NULL but for operands that are constants, whose data stay valid
   * until `free`. Leaves a state of the function's own at `state`. 0 where that succeeds, else a text as in interface 1, and nothing is
   * freed. */
  int (*prepare)(const DLTensor *inputs, size_t input_count, const DLTensor *outputs, size_t output_count, void **state, char *message, size_t room);

  /* Computes `outputs` of `inputs`, as in interface 1. Constants are among the inputs. Runs of one state may overlap. */
  int (*run)(void *state, const DLTensor *inputs, size_t input_count, DLTensor *outputs, size_t output_count, char *message, size_t room);

  /* Frees a state, when no run needs it any more; NULL: there is nothing to free. */
  void (*free)(void *state);
} WeftPreparedFunction;

#ifdef __cplusplus
extern "C"
#endif
#ifdef _WIN32
__declspec(dllexport)
#endif
/* The table, for as long as the library is loaded; NULL where `interface` is not 2. */
const WeftPreparedFunction *weft_prepared_functions(uint32_t interface);

#endif

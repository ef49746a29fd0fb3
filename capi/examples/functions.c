/* Functions of the program and compiled networks by name, each called by the other, as often as the first argument says.
 *
 * The network `outer` calls the function `scaled` of this program, which calls the network `inner` and doubles its
 * result. Tensors go in and out as DLPack tensors.
 *
 *   cc -std=c99 -I capi/include functions.c -L target/release -lweft_c -o functions
 *   ./functions 1
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

static const char INNER[] =
    "graph @main(%x: f32[2,3]) -> (y: f32[2,3]) {\n"
    "  %y = relu %x : f32[2,3]\n"
    "  return %y\n"
    "}\n";
static const char OUTER[] =
    "graph @main(%x: f32[2,3]) -> (y: f32[2,3]) {\n"
    "  %a = call_host @scaled %x {dtypes=[f32], shapes=[[2,3]]} : f32[2,3]\n"
    "  %b = call_host @inner %a {dtypes=[f32], shapes=[[2,3]]} : f32[2,3]\n"
    "  %y = add %b, %x : f32[2,3]\n"
    "  return %y\n"
    "}\n";

/* What `scaled` is registered with. */
typedef struct {
  const weft_functions *functions;
  float factor;
} scale;

/* The network `inner`, times the factor. */
static int32_t scaled(void *data, const DLTensor *inputs, size_t input_count, DLTensor *outputs, size_t output_count,
                      char *message, size_t room) {
  const scale *s = data;
  weft_error *error = NULL;
  if (weft_functions_call(s->functions, "inner", inputs, input_count, outputs, output_count, &error) != WEFT_OK) {
    snprintf(message, room, "%s", weft_error_message(error));
    weft_error_free(error);
    return 1;
  }
  float *values = outputs[0].data;
  int64_t n = 1;
  for (int32_t d = 0; d < outputs[0].ndim; d++) n *= outputs[0].shape[d];
  for (int64_t i = 0; i < n; i++) values[i] *= s->factor;
  return 0;
}

/* Prints an error, frees it, and gives the code for `main`. */
static int failed(weft_error *error) {
  int code = weft_error_code(error);
  fprintf(stderr, "error %d: %s\n", code, weft_error_message(error));
  weft_error_free(error);
  return code;
}

/* Compiles a network of text on the CPU; NULL if that fails. */
static weft_session *compiled(const char *text, const weft_functions *functions, weft_error **error) {
  weft_model *model = weft_model_from_bytes(text, strlen(text), NULL, error);
  weft_session *session = model ? weft_compile_with(model, "device=cpu", functions, error) : NULL;
  weft_model_free(model);
  return session;
}

int main(int count, char **arguments) {
  int runs = count > 1 ? atoi(arguments[1]) : 1;
  weft_error *error = NULL;
  weft_functions *functions = weft_functions_new();

  weft_session *inner = compiled(INNER, NULL, &error);
  if (!inner || weft_functions_add_session(functions, "inner", inner, &error)) return failed(error);
  weft_session_free(inner); /* the registry keeps the network */

  scale *twice = malloc(sizeof *twice);
  twice->functions = functions;
  twice->factor = 2.0f;
  if (weft_functions_add(functions, "scaled", scaled, twice, free, &error)) return failed(error);
  weft_session *outer = compiled(OUTER, functions, &error);
  if (!outer) return failed(error);

  /* Columns of a matrix of three rows and two columns: its transpose. */
  float values[] = {1, -4, -2, 5, 3, -6};
  int64_t shape[] = {2, 3}, strides[] = {1, 2};
  DLTensor input = {values, {1, 0}, 2, {2, 32, 1}, shape, strides, 0};
  for (int run = 0; run < runs; run++) {
    weft_outputs *outputs = weft_run_dlpack(outer, &input, 1, &error);
    if (!outputs) return failed(error);
    DLManagedTensor *result = weft_outputs_dlpack(outputs, 0, &error);
    weft_outputs_free(outputs);
    if (!result) return failed(error);
    const float *y = result->dl_tensor.data;
    if (run == 0) printf("y [%ld,%ld]:", (long)result->dl_tensor.shape[0], (long)result->dl_tensor.shape[1]);
    for (int i = 0; run == 0 && i < 6; i++) printf(" %g", (double)y[i]);
    result->deleter(result);
  }
  printf("\n");
  weft_session_free(outer);
  weft_functions_free(functions);
  return 0;
}

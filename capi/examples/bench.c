/* Times the network of the first argument, compiled with the options of the second one, on ones, and holds its results
 * against those of the interpreter.
 *
 *   cc -std=c99 -I capi/include bench.c -L target/release -lweft_c -o bench
 *   ./bench model.onnx device=cpu
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft.h>

/* Prints an error, frees it, and gives the code for `main`. */
static int failed(weft_error *error) {
  int code = weft_error_code(error);
  fprintf(stderr, "error %d: %s\n", code, weft_error_message(error));
  weft_error_free(error);
  return code;
}

/* A tensor of ones for an input; sizes that stay open are 1. */
static weft_tensor ones(const weft_port *port) {
  int64_t *shape = calloc(port->rank + 1, sizeof *shape);
  size_t n = 1;
  for (size_t d = 0; d < port->rank; d++) n *= (size_t)(shape[d] = port->shape[d] < 0 ? 1 : port->shape[d]);
  float *data = malloc((n + 1) * sizeof *data);
  for (size_t k = 0; k < n; k++) data[k] = 1.0f;
  weft_tensor tensor = {port->name, WEFT_F32, port->rank, shape, data};
  return tensor;
}

int main(int count, char **arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: bench MODEL OPTIONS\n");
    return WEFT_USAGE;
  }
  weft_error *error = NULL;
  weft_model *model = weft_model_load(arguments[1], NULL, &error);
  if (!model) return failed(error);
  weft_session *session = weft_compile(model, arguments[2], &error);
  weft_session *reference = session ? weft_compile(model, "device=interpreter", &error) : NULL;
  weft_model_free(model);
  if (!reference) return failed(error);

  size_t inputs;
  const weft_port *ports = weft_session_inputs(session, &inputs);
  weft_tensor *given = calloc(inputs + 1, sizeof *given);
  for (size_t i = 0; i < inputs; i++) given[i] = ones(&ports[i]);

  int code = WEFT_OK;
  weft_record *times = weft_bench(session, given, inputs, "warmup=2\nruns=10", &error);
  weft_record *errors = times ? weft_compare(session, reference, given, inputs, "rtol=1e-3", &error) : NULL;
  if (errors) {
    printf("%s\n%s\n", weft_record_json(times), weft_record_json(errors));
  } else {
    code = failed(error);
  }

  weft_record_free(times);
  weft_record_free(errors);
  for (size_t i = 0; i < inputs; i++) {
    free((void *)given[i].shape);
    free((void *)given[i].data);
  }
  free(given);
  weft_session_free(session);
  weft_session_free(reference);
  return code;
}

/* Loads the network of the first argument, compiles it with the options of the second one, and runs it on ones as often
 * as the third one says.
 *
 *   cc -std=c99 -I capi/include run.c -L target/release -lweft_c -o run
 *   ./run model.onnx device=cpu 1
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft.h>

/* Prints an error, frees it, and gives the code for `main`. */
static int failed(weft_error *error) {
  int code = weft_error_code(error);
  fprintf(stderr, "error %d: %s\n", code, weft_error_message(error));
  if (weft_error_place(error)) fprintf(stderr, "  at: %s\n", weft_error_place(error));
  if (weft_error_help(error)) fprintf(stderr, "  help: %s\n", weft_error_help(error));
  weft_error_free(error);
  return code;
}

/* How many elements a tensor of a port has, open sizes taken as 1, which `shape` gets. */
static size_t elements(const weft_port *port, int64_t *shape) {
  size_t n = 1;
  for (size_t d = 0; d < port->rank; d++) {
    shape[d] = port->shape[d] < 0 ? 1 : port->shape[d];
    n *= (size_t)shape[d];
  }
  return n;
}

int main(int count, char **arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: run MODEL OPTIONS RUNS\n");
    return WEFT_USAGE;
  }
  weft_error *error = NULL;
  weft_model *model = weft_model_load(arguments[1], NULL, &error);
  if (!model) return failed(error);
  weft_session *session = weft_compile(model, arguments[2], &error);
  weft_model_free(model);
  if (!session) return failed(error);
  printf("Weft %s on %s (%s)\n", weft_version(), weft_session_device(session), weft_session_place(session));

  size_t input_count, output_count;
  const weft_port *ports = weft_session_inputs(session, &input_count);
  weft_tensor *inputs = calloc(input_count + 1, sizeof *inputs);
  for (size_t i = 0; i < input_count; i++) {
    if (ports[i].type != WEFT_F32) {
      fprintf(stderr, "input %s is not f32\n", ports[i].name);
      return WEFT_INPUT;
    }
    int64_t *shape = calloc(ports[i].rank + 1, sizeof *shape);
    size_t n = elements(&ports[i], shape);
    float *data = malloc((n + 1) * sizeof *data);
    for (size_t k = 0; k < n; k++) data[k] = 1.0f;
    weft_tensor tensor = {ports[i].name, ports[i].type, ports[i].rank, shape, data};
    inputs[i] = tensor;
  }

  int code = WEFT_OK;
  for (int run = 0; run < atoi(arguments[3]) && code == WEFT_OK; run++) {
    weft_outputs *outputs = weft_run(session, inputs, input_count, &error);
    if (!outputs) {
      code = failed(error);
      break;
    }
    const weft_tensor *results = weft_outputs_tensors(outputs, &output_count);
    for (size_t i = 0; run == 0 && i < output_count; i++) {
      printf("%s [", results[i].name);
      size_t n = 1;
      for (size_t d = 0; d < results[i].rank; d++) {
        printf("%s%ld", d ? "," : "", (long)results[i].shape[d]);
        n *= (size_t)results[i].shape[d];
      }
      printf("]:");
      const float *values = results[i].data;
      for (size_t k = 0; results[i].type == WEFT_F32 && k < n && k < 8; k++) printf(" %g", (double)values[k]);
      printf("\n");
    }
    weft_outputs_free(outputs);
  }

  for (size_t i = 0; i < input_count; i++) {
    free((void *)inputs[i].shape);
    free((void *)inputs[i].data);
  }
  free(inputs);
  weft_session_free(session);
  return code;
}

/* Keeps the state of a network on its device between runs: the result of one run is the input of the next.
 *
 *   cc -std=c99 -I capi/include on_device.c -L target/release -lweft_c -o on_device
 *   ./on_device device=auto 10
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

/* The next state is half of this one, plus the step. */
static const char NETWORK[] =
    "const @half : f32[1] = [0.5]\n"
    "graph @main(%state: f32[2,3], %step: f32[2,3]) -> (next: f32[2,3]) {\n"
    "  %half = const @half : f32[1]\n"
    "  %0 = mul %state, %half : f32[2,3]\n"
    "  %next = add %0, %step : f32[2,3]\n"
    "  return %next\n"
    "}\n";

/* Prints an error, frees it, and gives the code for `main`. */
static int failed(weft_error *error) {
  int code = weft_error_code(error);
  fprintf(stderr, "error %d: %s\n", code, weft_error_message(error));
  weft_error_free(error);
  return code;
}

int main(int count, char **arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: on_device OPTIONS RUNS\n");
    return WEFT_USAGE;
  }
  weft_error *error = NULL;
  weft_model *model = weft_model_from_bytes(NETWORK, strlen(NETWORK), NULL, &error);
  weft_session *session = model ? weft_compile(model, arguments[1], &error) : NULL;
  weft_model_free(model);
  if (!session) return failed(error);

  float zeros[6] = {0}, steps[6] = {1, 2, 3, 4, 5, 6};
  int64_t shape[] = {2, 3};
  weft_tensor start = {"state", WEFT_F32, 2, shape, zeros}, step = {"step", WEFT_F32, 2, shape, steps};
  /* The network's inputs in its order. */
  weft_device_tensor *inputs[2] = {weft_to_device(session, &start, &error), NULL};
  if (inputs[0]) inputs[1] = weft_to_device(session, &step, &error);
  if (!inputs[1]) return failed(error);
  printf("%s\n", weft_device_tensor_device(inputs[0]));

  for (int run = 0; run < atoi(arguments[2]); run++) {
    weft_device_tensor *next = NULL;
    if (weft_run_on_device(session, inputs, 2, &next, 1, &error)) return failed(error);
    /* The device has what it needs of the state, which is free to go. */
    weft_device_tensor_free(inputs[0]);
    inputs[0] = next;
  }

  float values[6];
  if (weft_device_tensor_read(inputs[0], values, sizeof values, &error)) return failed(error);
  const weft_port *port = weft_device_tensor_port(inputs[0]);
  printf("%s [%ld,%ld]:", port->name, (long)port->shape[0], (long)port->shape[1]);
  for (int i = 0; i < 6; i++) printf(" %g", (double)values[i]);
  printf("\n");
  weft_device_tensor_free(inputs[0]);
  weft_device_tensor_free(inputs[1]);
  weft_session_free(session);
  return 0;
}

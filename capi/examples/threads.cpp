// Reads the network of the first argument into memory, compiles it with the options of the second one, and runs one
// session on two threads, as often as the third argument says. Each result is written to memory of the thread's own.
//
//   c++ -std=c++17 -I capi/include threads.cpp -L target/release -lweft_c -pthread -o threads
//   ./threads model.onnx device=cpu 1000
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <weft.h>

namespace {

struct Free {
  void operator()(weft_error *e) const { weft_error_free(e); }
  void operator()(weft_model *m) const { weft_model_free(m); }
  void operator()(weft_session *s) const { weft_session_free(s); }
};
template <typename T> using Owned = std::unique_ptr<T, Free>;

// Throws what a call says of its failure.
[[noreturn]] void fail(weft_error *error) {
  Owned<weft_error> owned(error);
  throw std::runtime_error(weft_error_message(error));
}

Owned<weft_model> load(const std::vector<char> &bytes) {
  weft_error *error = nullptr;
  Owned<weft_model> model(weft_model_from_bytes(bytes.data(), bytes.size(), nullptr, &error));
  if (!model) fail(error);
  return model;
}

Owned<weft_session> compile(const Owned<weft_model> &model, const char *options) {
  weft_error *error = nullptr;
  Owned<weft_session> session(weft_compile(model.get(), options, &error));
  if (!session) fail(error);
  return session;
}

std::size_t elements(const weft_port &port) {
  std::size_t n = 1;
  for (std::size_t d = 0; d < port.rank; d++) n *= static_cast<std::size_t>(port.shape[d]);
  return n;
}

// The first result of `runs` runs on inputs that are all `value`; throws if two of them differ.
std::vector<float> run(const weft_session *session, float value, int runs) {
  std::size_t input_count = 0, output_count = 0;
  const weft_port *inputs = weft_session_inputs(session, &input_count);
  const weft_port *outputs = weft_session_outputs(session, &output_count);
  std::vector<std::vector<float>> data;
  std::vector<weft_tensor> given;
  for (std::size_t i = 0; i < input_count; i++) {
    data.emplace_back(elements(inputs[i]), value);
    given.push_back({inputs[i].name, WEFT_F32, inputs[i].rank, inputs[i].shape, data.back().data()});
  }
  std::vector<float> first;
  for (int n = 0; n < runs; n++) {
    std::vector<float> result(elements(outputs[0]));
    weft_buffer buffer = {outputs[0].name, result.data(), result.size() * sizeof(float)};
    weft_error *error = nullptr;
    if (weft_run_into(session, given.data(), given.size(), &buffer, 1, &error) != WEFT_OK) fail(error);
    if (n == 0) first = result;
    if (result != first) throw std::runtime_error("two runs differ");
  }
  return first;
}

} // namespace

int main(int count, char **arguments) {
  if (count != 4) {
    std::cerr << "usage: threads MODEL OPTIONS RUNS\n";
    return WEFT_USAGE;
  }
  try {
    std::ifstream file(arguments[1], std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    Owned<weft_session> session = compile(load(bytes), arguments[2]);
    const int runs = std::atoi(arguments[3]);
    std::vector<float> results[2];
    std::string errors[2];
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++) {
      threads.emplace_back([&, t] {
        try {
          results[t] = run(session.get(), static_cast<float>(t + 1), runs);
        } catch (const std::exception &e) {
          errors[t] = e.what();
        }
      });
    }
    for (std::thread &thread : threads) thread.join();
    for (int t = 0; t < 2; t++) {
      if (!errors[t].empty()) throw std::runtime_error(errors[t]);
      std::cout << "thread " << t << ":";
      for (float value : results[t]) std::cout << " " << value;
      std::cout << "\n";
    }
  } catch (const std::exception &e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
  return 0;
}

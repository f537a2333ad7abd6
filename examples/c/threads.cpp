// A model in a C++ program: two threads, each with a model of its own, give the same results.
//
//     autotune compile model.onnx -o model.so --header model.h --prefix model
//     c++ -O2 -std=c++17 threads.cpp ./model.so -lpthread -o threads && ./threads
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "model.h"

int main() {
  std::vector<float> results[2];
  std::vector<std::thread> threads;
  for (auto &y : results)
    threads.emplace_back([&y] {
      std::unique_ptr<model, decltype(&model_destroy)> m(model_create(), model_destroy);
      std::vector<float> x(MODEL_X_ELEMENTS, 0.5f), out(MODEL_Y_ELEMENTS);
      for (int run = 0; m && run < 100; run++)
        if (model_run(m.get(), x.data(), out.data())) std::fprintf(stderr, "%s\n", model_error());
      if (m) y = out;
    });
  for (auto &thread : threads) thread.join();
  if (results[0].empty() || results[0] != results[1]) return 1;
  std::printf("%s: %zu results, equal on both threads\n", model_variant(), results[0].size());
}

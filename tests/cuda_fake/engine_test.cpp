#include "opkit/backends/cuda/engine.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "fake_runtime.hpp"

namespace engine_test {
using namespace opkit;

namespace {
constexpr Device kCuda0{DeviceType::kCUDA, 0};

cudaStream_t Current() { return CUDAStream::Current(0)->handle(); }
}  // namespace

TEST_CASE("an operation pushed with a CUDA device is done when its stream is") {
  for (const bool naive : {false, true}) {
    CAPTURE(naive);
    Engine engine({.threads = 1, .naive = naive});
    const Var v = engine.NewVar();
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) {
      engine.Push([&order, i] { fake::Enqueue(Current(), [&order, i] { order.push_back(i); }); },
                  {}, {v},
                  {.kind = i % 3 == 0 ? OpKind::kCopy : OpKind::kNormal, .device = kCuda0});
    }
    engine.WaitForAll();
    std::vector<int> expected;
    for (int i = 0; i < 20; ++i) expected.push_back(i);
    CHECK(order == expected);
    CHECK(engine.Version(v) == 20);
  }
}

TEST_CASE("a held CUDA stream holds up neither the pool's thread nor the copies") {
  Engine engine({.threads = 1});
  const Var v = engine.NewVar(), w = engine.NewVar();
  std::atomic<fake::Gate*> gate{nullptr};
  engine.Push([&] { gate = new fake::Gate(Current()); }, {}, {v}, {.device = kCuda0});
  std::atomic<bool> copied{false};
  engine.Push([&] { fake::Enqueue(Current(), [&] { copied = true; }); }, {}, {w},
              {.kind = OpKind::kCopy, .device = kCuda0});
  engine.WaitForVar(w);
  CHECK(copied);
  CHECK(engine.Version(v) == 0);
  gate.load()->Open();
  engine.WaitForAll();
  CHECK(engine.Version(v) == 1);
  delete gate.load();
}

TEST_CASE("a failure on a CUDA device is stored in the Vars that the operation writes") {
  Engine engine({.threads = 2});
  const Var v = engine.NewVar(), w = engine.NewVar();
  bool ran = false;
  engine.Push([] { fake::SetLastError(cudaErrorInvalidConfiguration); }, {}, {v},
              {.device = kCuda0});
  engine.Push([&] { ran = true; }, {v}, {w}, {.device = kCuda0});
  std::string message;
  try {
    engine.WaitForVar(w);
  } catch (const Error& error) {
    message = error.message();
  }
  CHECK(message.find("a kernel launch or an unchecked CUDA call") != std::string::npos);
  CHECK_FALSE(ran);
  engine.WaitForAll();
}

}  // namespace engine_test

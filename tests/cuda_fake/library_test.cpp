// Operators of a loaded library on CUDA: classes, which run on the streams of their host.
#include "opkit/plugin/library.hpp"

#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/function_operator.hpp"
#include "support/bench.hpp"
#include "support/error_of.hpp"

namespace library_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};

struct Loaded {
  Library library = Library::Load(OPKIT_TEST_CUDA_LIBRARY);
  ~Loaded() { library.Unload(); }
};

}  // namespace

TEST_CASE("a library's class for CUDA runs on the stream of its host, which waits for nothing") {
  const Loaded loaded;
  CHECK(loaded.library.operators() == std::vector<std::string>{"LibCudaTwice"});
  Bench bench(kCuda0);
  bench.Add("x", {1, 2});
  OperatorBase& op = bench.Create("LibCudaTwice");
  op.Run();
  CHECK(bench.Values("y") == Floats{2, 4});
  {
    bench.Add("x", {5, 6});
    const int64_t waits = fake::host_waits(), synchronizations = fake::device_synchronizations();
    fake::Gate gate(CUDAStream::Get(kCuda0, 3).handle());
    op.RunAsync(3);
    CHECK(fake::host_waits() == waits);
    CHECK(fake::device_synchronizations() == synchronizations);
    CHECK(op.event().Query() == EventStatus::kScheduled);
  }
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{10, 12});
  bench.op.reset();
}

TEST_CASE("an output that a library's class for CUDA makes elsewhere is copied on the stream") {
  const Loaded loaded;
  Bench bench(kCuda0);
  bench.Add("x", {1, 2});
  bench.Create(OperatorDef("LibCudaTwice", {"x"}, {"y"}, {{"elsewhere", true}}).Device(kCuda0));
  {
    fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
    bench.op->RunAsync(0);
    CHECK(bench.op->event().Query() == EventStatus::kScheduled);
  }
  bench.op->event().Finish();
  CHECK(bench.Values("y") == Floats{2, 4});
  bench.op.reset();
}

TEST_CASE("a failure of a library's class for CUDA names the operator and the library") {
  const Loaded loaded;
  Bench bench(kCuda0);
  bench.Add("x", {1, 2});
  bench.Create(OperatorDef("LibCudaTwice", {"x"}, {"y"}, {{"refuse", true}}).Device(kCuda0));
  const Error error = ErrorOf([&] { bench.op->Run(); });
  CHECK(Contains(error.what(), "RunOnDevice returned false"));
  CHECK(Contains(error.what(), "LibCudaTwice of library libcuda_classes.so"));
  bench.op.reset();
}

}  // namespace library_test

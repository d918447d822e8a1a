// The ready observers: run counts, time, and what outputs held.
#include "opkit/op/observers.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <limits>
#include <semaphore>

#include "body_op.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "support/error_of.hpp"

namespace observers_test { namespace {

using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::DType;
using opkit::NumericObserver;
using opkit::Observe;
using opkit::OperatorDef;
using opkit::OutputNumerics;
using opkit::RunCountObserver;
using opkit::Shape;
using opkit::Tensor;
using opkit::TimeObserver;
using opkit::Workspace;
using BodyOpStream = BodyOp<CPUStreamContext>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST_CASE("runs are counted, failed ones apart, until the observer is detached") {
  Workspace ws;
  bool fail = false;
  BodyOpCPU op(OperatorDef("Body"), &ws, [&](BodyOpCPU&) { return !fail; });
  auto* count = Observe<RunCountObserver>(op);
  CHECK(count->runs() == 0);
  op.Run();
  op.RunAsync();
  fail = true;
  CHECK_THROWS(op.Run());
  CHECK(count->runs() == 3);
  CHECK(count->failed_runs() == 1);
  const auto detached = op.DetachObserver(count);
  fail = false;
  op.Run();
  CHECK(count->runs() == 3);
}

TEST_CASE("time: of the last run, of all, and on average") {
  Workspace ws;
  BodyOpCPU op(OperatorDef("Body"), &ws, [](BodyOpCPU&) { return true; });
  auto* time = Observe<TimeObserver>(op);
  CHECK(time->average_ms() == 0);
  op.Run();
  const double first = time->last_ms();
  CHECK(first >= 0);
  CHECK(time->total_ms() == first);
  op.Run();
  CHECK(time->runs() == 2);
  CHECK(time->total_ms() == first + time->last_ms());
  CHECK(time->average_ms() == time->total_ms() / 2);
}

TEST_CASE("time: the device has drained before the clock is read, so its work is measured") {
  Workspace ws;
  std::atomic<bool> done{false};
  std::binary_semaphore go{0};
  BodyOpStream op(OperatorDef("Body").Device(opkit::DeviceType::kCPUStream), &ws,
                  [&](BodyOpStream& self) {
                    self.context().Launch([&] {
                      go.acquire();
                      done = true;
                    });
                    go.release();
                    return true;
                  });
  auto* time = Observe<TimeObserver>(op);
  op.RunAsync(40);
  CHECK(done);  // the observed call waited
  CHECK(time->runs() == 1);
  CHECK(time->last_ms() > 0);
  CHECK(op.last_observer_error().empty());
}

TEST_CASE("time: an observer on a net needs nothing of it") {
  struct Net : opkit::detail::Observable<Net> {
    void Run() { opkit::detail::ObserverScope<Net>(*this).Succeeded(); }
  } net;
  auto* time = Observe<TimeObserver>(net);
  auto* count = Observe<RunCountObserver>(net);
  net.Run();
  net.Run();
  CHECK(time->runs() == 2);
  CHECK(count->runs() == 2);
  CHECK(time->subject() == &net);
}

template <class T>
Tensor Of(std::initializer_list<float> values) {
  std::vector<T> converted;
  for (float value : values) converted.push_back(static_cast<T>(value));
  return Tensor::From({static_cast<int64_t>(values.size())}, converted);
}

TEST_CASE_TEMPLATE("numbers: NaN and infinity are found in every floating-point type", T,
                   opkit::float16, opkit::bfloat16, float, double) {
  Workspace ws;
  Tensor value;
  BodyOpCPU op(OperatorDef("Body", {}, {"Y"}), &ws, [&](BodyOpCPU& self) {
    self.SetOutputTensor(0, value);
    return true;
  });
  auto* numbers = Observe<NumericObserver>(op);
  value = Of<T>({0, -0.f, 1, -2, 60000});
  op.Run();
  REQUIRE(numbers->outputs().size() == 1);
  CHECK(numbers->outputs()[0].checked);
  CHECK(numbers->outputs()[0].first_bad == -1);
  CHECK(numbers->bad_runs() == 0);
  value = Of<T>({0, 1, -kInf, kNaN, -kNaN, kInf, 1, kNaN});
  op.Run();
  const OutputNumerics& seen = numbers->outputs()[0];
  CHECK(seen.dtype == opkit::kDTypeOf<T>);
  CHECK(seen.shape == Shape{8});
  CHECK(seen.nans == 3);
  CHECK(seen.infinities == 2);
  CHECK(seen.first_bad == 2);
  CHECK(numbers->bad_runs() == 1);
}

TEST_CASE("numbers: the report names the node, its outputs and the fault") {
  Workspace ws;
  const Tensor square = Tensor::From<float>({2, 2}, {1, kNaN, 3, 4});
  BodyOpCPU op(OperatorDef("Log", {}, {"A", "B", "C", "", "D", "T"}).Name("n"), &ws,
               [&](BodyOpCPU& self) {
                 self.SetOutputTensor(0, Of<float>({1, kInf, kNaN}));
                 self.SetOutputTensor(1, Of<double>({1, 2}));
                 self.SetOutputTensor(2, Of<int>({1}));
                 self.SetOutputTensor(4, square.Permute({1, 0}));
                 *self.Output<std::string>(5) = "text";
                 return true;
               });
  auto* numbers = Observe<NumericObserver>(op);
  CHECK(numbers->Report() == "Log 'n' () -> (A, B, C, , D, T)");
  op.Run();
  CHECK(numbers->Report() ==
        "Log 'n' () -> (A, B, C, , D, T)\n"
        "  output 'A' float32[3]: 1 NaN, 1 infinite, first at element 1\n"
        "  output 'B' float64[2]: finite\n"
        "  output 'C' int32[1]: not checked\n"
        "  output 'D' float32[2, 2]: 1 NaN, 0 infinite, first at element 2");
}

TEST_CASE("numbers: outputs of a failed or unfinished run are not read") {
  Workspace ws;
  bool fail = true;
  BodyOpCPU op(OperatorDef("Body", {}, {"Y"}), &ws, [&](BodyOpCPU& self) {
    *self.Output(0, {1}, DType::kFloat32)->mutable_data<float>() = kNaN;
    return !fail;
  });
  auto* numbers = Observe<NumericObserver>(op);
  CHECK_THROWS(op.Run());
  CHECK(numbers->outputs().empty());
  CHECK(numbers->bad_runs() == 0);
  fail = false;
  op.async_part = true;
  op.RunAsync();  // another thread could be writing
  CHECK(numbers->outputs().empty());
  op.event().SetFinished();
  op.async_part = false;
  op.Run();
  CHECK(numbers->bad_runs() == 1);
  CHECK(op.last_observer_error().empty());
}

TEST_CASE("numbers: work on a stream is waited for, and its failure stays the event's") {
  Workspace ws;
  bool fail = false;
  BodyOpStream op(OperatorDef("Body", {}, {"Y"}).Device(opkit::DeviceType::kCPUStream), &ws,
                  [&](BodyOpStream& self) {
                    float* y = self.Output(0, {1}, DType::kFloat32)->mutable_data<float>();
                    self.context().Launch([y, &fail] {
                      if (fail) throw std::runtime_error("late");
                      *y = kInf;
                    });
                    return true;
                  });
  auto* numbers = Observe<NumericObserver>(op);
  op.RunAsync(41);
  REQUIRE(numbers->outputs().size() == 1);
  CHECK(numbers->outputs()[0].infinities == 1);
  fail = true;
  op.RunAsync(41);
  CHECK(numbers->outputs().empty());
  const opkit::Error late = ErrorOf([&] { op.Finish(); });
  CHECK(late.message() == "late");
  CHECK_THROWS_WITH_AS(std::rethrow_exception(late.cause()), "late", std::runtime_error);
  CHECK_THROWS_AS(op.Run(41), opkit::Error);
  CHECK(numbers->outputs().empty());
}

}  // namespace
}  // namespace observers_test

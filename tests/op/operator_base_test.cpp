// Arguments, inputs and outputs, aliasing, what an error says.
#include "opkit/op/operator_base.hpp"

#include <doctest/doctest.h>

#include "body_op.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/test_allocator.hpp"

namespace operator_base_test { namespace {

using opkit::DeviceType;
using opkit::DType;
using opkit::ErrorCode;
using opkit::OperatorDef;
using opkit::Shape;
using opkit::Tensor;
using opkit::Workspace;

constexpr DType kF32 = DType::kFloat32;

// A node of a schema that pairs input 0 with output 0, or nothing.
std::unique_ptr<BodyOpCPU> Make(const OperatorDef& def, Workspace* ws, BodyOpCPU::Body body,
                                bool inplace = false) {
  return WithSchema(std::make_unique<BodyOpCPU>(def, ws, std::move(body)),
                    std::vector<uint64_t>(def.outputs().size(), inplace ? 1 : 0));
}
void Fill(Tensor* tensor, float value) {
  for (int64_t i = 0; i < tensor->numel(); ++i) tensor->mutable_data<float>()[i] = value;
}

struct WithArguments {
  Workspace ws;
  BodyOpCPU op{OperatorDef("Body")
                   .Arg("scale", 2.5f)
                   .Arg("axis", 3)
                   .Arg("on", true)
                   .Arg("mode", "fast")
                   .Arg("sizes", std::vector<int64_t>{1, 2})
                   .Arg("names", {"a", "b"}),
               &ws};
};

TEST_CASE_FIXTURE(WithArguments, "an argument is found by its name and type") {
  CHECK(op.HasArgument("scale"));
  CHECK_FALSE(op.HasArgument("Scale"));
  CHECK(op.HasSingleArgumentOfType<float>("scale"));
  CHECK_FALSE(op.HasSingleArgumentOfType<int>("scale"));
  CHECK_FALSE(op.HasSingleArgumentOfType<int>("sizes"));
  CHECK_FALSE(op.HasSingleArgumentOfType<int>("none"));
}

TEST_CASE_FIXTURE(WithArguments, "a missing argument has the default that is asked for") {
  CHECK(op.GetSingleArgument<float>("scale", 1.f) == 2.5f);
  CHECK(op.GetSingleArgument<int>("axis", 0) == 3);
  CHECK(op.GetSingleArgument<bool>("on", false));
  CHECK(op.GetSingleArgument<std::string>("mode", "") == "fast");
  CHECK(op.GetSingleArgument<float>("none", 7.f) == 7.f);
  CHECK(op.GetRepeatedArgument<int>("sizes") == std::vector<int>{1, 2});
  CHECK(op.GetRepeatedArgument<std::string>("names") == std::vector<std::string>{"a", "b"});
  CHECK(op.GetRepeatedArgument<int>("none").empty());
  CHECK(op.GetRepeatedArgument<int>("none", {4}) == std::vector<int>{4});
}

TEST_CASE_FIXTURE(WithArguments, "an argument of another type is an Error that shows it") {
  const opkit::Error error = ErrorOf([&] { op.GetSingleArgument<int>("scale", 0); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(error.message() == "argument 'scale': is float (2.5), but is read as int");
  CHECK(op.GetSingleArgument<float>("axis", 0.f) == 3);
  CHECK(ErrorOf([&] { op.GetRepeatedArgument<int>("axis"); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([&] { op.GetSingleArgument<int>("sizes", 0); }).code() == ErrorCode::kTypeMismatch);
}

TEST_CASE("inputs and outputs are the workspace's own, by index") {
  Workspace ws;
  Tensor* a = ws.CreateTensor("A");
  Tensor* b = ws.CreateTensor("B");
  *a = Tensor::From<float>({2}, {1, 2});
  *b = Tensor::From<int64_t>({2, 1}, {3, 4});
  BodyOpCPU op(OperatorDef("Body", {"A", "B"}, {"Y", "Z"}), &ws);
  CHECK(op.InputSize() == 2);
  CHECK(op.OutputSize() == 2);
  CHECK(&op.Input(0) == a);
  CHECK(&op.Input(1) == b);
  CHECK(op.InputTensorShapes() == std::vector<Shape>{{2}, {2, 1}});
  CHECK(op.InputIsTensorType(0, DeviceType::kCPU));
  CHECK_FALSE(op.InputIsTensorType(0, DeviceType::kCUDA));
  Tensor* z = op.Output(1);  // made at the first access
  CHECK(z == ws.GetTensor("Z"));
  CHECK(op.OutputBlob(0) == ws.GetBlob("Y"));
  CHECK(op.type() == "Body");
  CHECK(op.workspace() == &ws);
}

TEST_CASE("an index that the node does not have is an Error") {
  Workspace ws;
  ws.CreateTensor("A");
  BodyOpCPU op(OperatorDef("Body", {"A", ""}, {"Y"}), &ws);
  opkit::Error error = ErrorOf([&] { op.Input(2); });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(error.message() == "input 2 was asked for, but the node has 2 inputs");
  CHECK(ErrorOf([&] { op.Output(1); }).message() ==
        "output 1 was asked for, but the node has 1 outputs");
  CHECK(ErrorOf([&] { op.Input(-1); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { op.IsInputOutputAlias(5, 0); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { op.Input(1); }).message() ==
        "input 1 was asked for, but the node has 2 inputs and leaves that one out (by an empty "
        "name, or by an Invoke with a tensor that has no dtype yet)");
}

TEST_CASE("optional values that the node leaves out") {
  Workspace ws;
  ws.CreateTensor("A");
  BodyOpCPU op(OperatorDef("Body", {"A", ""}, {"", "Z"}), &ws);
  CHECK(op.HasInput(0));
  CHECK_FALSE(op.HasInput(1));
  CHECK_FALSE(op.HasInput(2));
  CHECK_FALSE(op.HasInput(-1));
  CHECK_FALSE(op.HasOutput(0));
  CHECK(op.HasOutput(1));
  CHECK_FALSE(op.HasOutput(-1));
  CHECK(op.OutputTensorOrUndefined(0) == nullptr);
  Tensor* z = op.OutputTensorOrUndefined(1);
  CHECK(z == ws.GetTensor("Z"));
  CHECK(op.InputTensorShapes() == std::vector<Shape>{{0}, {0}});
  CHECK_FALSE(ws.HasBlob(""));
}

TEST_CASE("blobs of any type are inputs and outputs") {
  struct Table {
    std::vector<int> rows;
  };
  Workspace ws;
  ws.CreateBlob("T")->Emplace<Table>()->rows = {1, 2};
  BodyOpCPU op(OperatorDef("Body", {"T"}, {"S"}), &ws, [](BodyOpCPU& self) {
    const Table& table = self.Input<Table>(0);
    self.Output<std::string>(0)->assign(table.rows.size(), 'x');
    return true;
  });
  CHECK(op.InputIsType<Table>(0));
  CHECK_FALSE(op.InputIsType<Tensor>(0));
  CHECK(op.Run());
  CHECK(ws.GetBlob("S")->Get<std::string>() == "xx");
  CHECK(op.OutputIsType<std::string>(0));
  std::string* text = op.Output<std::string>(0);
  CHECK(op.Output<std::string>(0) == text);  // the last run's object
  CHECK(ErrorOf([&] { op.Input(0); }).code() == ErrorCode::kTypeMismatch);
}

TEST_CASE("an uninitialized or misplaced input is an Error that names it") {
  Workspace ws;
  ws.CreateBlob("E");
  ws.CreateTensor("U");
  float values[2] = {1, 2};
  *ws.CreateTensor("C") = Tensor::FromExternal(values, {2}, {DeviceType::kCUDA, 1});
  BodyOpCPU op(OperatorDef("Body", {"E", "U", "C"}, {}), &ws);
  CHECK(ErrorOf([&] { op.Input(0); }).message() == "blob 'E' is read before it is written");
  CHECK(op.Input(1).dtype() == DType::kUndefined);  // may be looked at, not read
  CHECK(ErrorOf([&] { op.Input(1).data<float>(); }).code() == ErrorCode::kUninitialized);
  const opkit::Error error = ErrorOf([&] { op.Input(2); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "input 2 'C' is on cuda:1, but the operator runs on cpu; copy it there first");
}

TEST_CASE("an input on a device of another type is read if the operator allows it") {
  Workspace ws;
  float values[2] = {1, 2};
  *ws.CreateTensor("far") = Tensor::FromExternal(values, {2}, {DeviceType::kCUDA, 1});
  *ws.CreateTensor("near") = Tensor::From<float>({1}, {3});
  BodyOpCPU op(OperatorDef("Body", {"far", "near"}, {}), &ws);
  CHECK(op.Input(0, DeviceType::kCUDA).raw_data() == values);
  CHECK(op.Input(1, DeviceType::kCPU).data<float>()[0] == 3);
  CHECK(op.Input(1, DeviceType::kCPUStream).data<float>()[0] == 3);  // the same memory
  const opkit::Error error = ErrorOf([&] { op.Input(1, DeviceType::kCUDA); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "input 1 'near' is on cpu, but the operator reads it on cuda; copy it there first");
}

TEST_CASE("an output is made on another device if the operator allows it, and used again there") {
  const TestAllocator cuda(DeviceType::kCUDA);
  const opkit::Device far{DeviceType::kCUDA, 0};
  Workspace ws;
  auto op = Make(OperatorDef("Body", {}, {"Y", "Z"}), &ws, [&](BodyOpCPU& self) {
    self.OutputTensor(0, {2}, kF32, far);
    self.Output(1, DeviceType::kCUDA)->Resize({4}, kF32);
    return true;
  });
  const Tensor *y = ws.GetBlob("Y")->GetMutable<Tensor>(), *z = nullptr;
  op->Run();
  z = ws.GetTensor("Z");
  CHECK(y->device() == far);
  CHECK(z->device() == far);
  CHECK(cuda.allocations() == 2);
  const void *y_data = y->raw_data(), *z_data = z->raw_data();
  op->Run();
  CHECK(y->raw_data() == y_data);
  CHECK(z->raw_data() == z_data);
  op->body = [](BodyOpCPU& self) { return self.OutputTensor(0, {2}, kF32) != nullptr; };
  op->Run();
  CHECK(y->device() == opkit::Device{});
  ws.RemoveBlob("Z");
  op.reset();
}

TEST_CASE("an operator gives its definition and its context by Caffe2's names too") {
  Workspace ws;
  const BodyOpCPU op(OperatorDef("Body").Name("it"), &ws);
  CHECK(op.has_debug_def());
  CHECK(&op.debug_def() == &op.def());
  const opkit::CPUContext* context = op.getContext();
  CHECK(context->device() == opkit::Device{});
}

TEST_CASE("an operator records and ends its event itself, and does neither where it is disabled") {
  Workspace ws;
  BodyOpCPU op(OperatorDef("Body"), &ws);
  opkit::OperatorBase& base = op;
  base.RecordEvent();
  CHECK(op.event().Query() == opkit::EventStatus::kScheduled);
  op.SetEventFinished();
  CHECK(op.event().Query() == opkit::EventStatus::kSuccess);
  const auto failure = [&](auto fail) {
    op.ResetEvent();
    fail();
    return std::string(ErrorOf([&] { op.event().Finish(); }).message());
  };
  CHECK(failure([&] { base.RecordEvent("it was not issued"); }) == "it was not issued");
  CHECK(failure([&] { op.SetEventFinished("it went wrong"); }) == "it went wrong");
  CHECK(failure([&] { op.SetEventFinishedWithException("no exception here"); }) ==
        "no exception here");
  CHECK(failure([&] {
          base.RecordEvent();
          try {
            throw std::runtime_error("thrown elsewhere");
          } catch (...) {
            op.SetEventFinishedWithException();
          }
        }) == "thrown elsewhere");
  BodyOpCPU without(OperatorDef("Body"), &ws);
  without.DisableEvent();
  without.RecordEvent();
  without.RecordEvent("nobody asks");
  without.SetEventFinished();
  without.SetEventFinishedWithException("nobody asks");
  CHECK(without.IsEventDisabled());
}

TEST_CASE("Output reuses the memory of the last run, also when it shrinks and grows back") {
  Workspace ws;
  Shape shape{4, 4};
  DType dtype = kF32;
  auto op = Make(OperatorDef("Body", {}, {"Y"}), &ws,
                 [&](BodyOpCPU& self) { return self.Output(0, shape, dtype)->initialized(); });
  op->Run();
  Tensor* y = ws.GetTensor("Y");
  const void* data = y->raw_data();
  REQUIRE(data);
  CHECK(y->shape() == Shape{4, 4});
  op->Run();
  CHECK(y->raw_data() == data);
  shape = {2};
  op->Run();
  CHECK(ws.GetTensor("Y") == y);
  CHECK(y->raw_data() == data);
  CHECK(y->shape() == Shape{2});
  shape = {16};
  op->Run();
  CHECK(y->raw_data() == data);
  dtype = DType::kFloat16;  // in place
  op->Run();
  CHECK(y->raw_data() == data);
  CHECK(y->dtype() == DType::kFloat16);
  dtype = kF32;
  shape = {17};
  op->Run();
  CHECK(y->shape() == Shape{17});
  CHECK(y->nbytes() == 68);
}

TEST_CASE("Output on another device, or with strides, becomes a new dense tensor here") {
  Workspace ws;
  float values[4] = {};
  Tensor* y = ws.CreateTensor("Y");
  *y = Tensor::FromExternal(values, {4}, {DeviceType::kCUDA, 0});
  auto op = Make(OperatorDef("Body", {}, {"Y"}), &ws, [](BodyOpCPU& self) {
    return self.OutputTensor(0, {2, 2}, kF32) != nullptr;
  });
  op->Run();
  CHECK(y->device() == opkit::Device{});
  CHECK(y->raw_data() != values);
  const Tensor square = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  *y = square.Permute({1, 0});
  op->Run();
  CHECK(y->is_dense());
  CHECK(y->raw_data() != square.raw_data());
  CHECK(square.ToVector<float>() == Floats{1, 2, 3, 4});
}

TEST_CASE("an error while an output is sized changes nothing") {
  Workspace ws;
  auto op = Make(OperatorDef("Body", {}, {"Y"}), &ws, [](BodyOpCPU& self) {
    self.Output(0, {int64_t{1} << 61, 16}, DType::kInt8);
    return true;
  });
  *ws.CreateTensor("Y") = Tensor::From<float>({2}, {1, 2});
  CHECK_THROWS_AS(op->Run(), opkit::Error);
  CHECK(ws.GetTensor("Y")->ToVector<float>() == Floats{1, 2});
}

TEST_CASE("in place with the same shape: one tensor, one memory") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor::From<float>({3}, {1, 2, 3});
  const void* data = x->raw_data();
  auto op = Make(
      OperatorDef("Body", {"X"}, {"X"}), &ws,
      [](BodyOpCPU& self) {
        const Tensor& in = self.Input(0);
        Tensor* out = self.Output(0, in.shape(), in.dtype());
        CHECK(out == &in);
        for (int i = 0; i < 3; ++i) out->mutable_data<float>()[i] = 2 * in.data<float>()[i];
        return true;
      },
      true);
  CHECK(op->IsInputOutputAlias(0, 0));
  op->Run();
  op->Run();
  CHECK(x->raw_data() == data);
  CHECK(x->ToVector<float>() == Floats{4, 8, 12});
}

TEST_CASE("in place with another shape: the input stays whole until the run has ended") {
  // Grown, shrunk, of another dtype, and resized more than once.
  struct Case {
    Shape shape;
    DType dtype;
  };
  for (const Case& to : {Case{{8}, kF32}, Case{{2}, kF32}, Case{{4}, DType::kFloat64},
                         Case{{0}, kF32}, Case{{4}, DType::kInt8}}) {
    CAPTURE(ToString(to.shape));
    Workspace ws;
    Tensor* x = ws.CreateTensor("X");
    *x = Tensor::From<float>({4}, {1, 2, 3, 4});
    auto op = Make(
        OperatorDef("Body", {"X"}, {"X"}), &ws,
        [&](BodyOpCPU& self) {
          const Tensor& in = self.Input(0);
          const float* values = in.data<float>();
          Tensor* out = self.Output(0, to.shape, to.dtype);
          CHECK(out != &in);
          CHECK(out->shape() == to.shape);
          CHECK(out->dtype() == to.dtype);
          CHECK(in.data<float>() == values);
          CHECK(in.ToVector<float>() == Floats{1, 2, 3, 4});
          CHECK(self.Output(0) == out);
          CHECK(self.Output(0, {16}, kF32) == out);  // the same object for the whole run
          CHECK(in.ToVector<float>() == Floats{1, 2, 3, 4});
          out = self.Output(0, {4}, kF32);  // as the input was: still its own tensor
          CHECK(out != &in);
          CHECK(self.Output(0, to.shape, to.dtype) == out);
          if (to.dtype == kF32) Fill(out, 9);
          return true;
        },
        true);
    op->Run();
    CHECK(x->shape() == to.shape);
    CHECK(x->dtype() == to.dtype);
    if (to.dtype == kF32)
      CHECK(x->ToVector<float>() == Floats(static_cast<size_t>(to.shape.numel()), 9));
  }
}

TEST_CASE("in place with another shape: a run that fails leaves the input as it was") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor::From<float>({2}, {1, 2});
  bool fail = true;
  auto op = Make(
      OperatorDef("Body", {"X"}, {"X"}), &ws,
      [&](BodyOpCPU& self) {
        Fill(self.Output(0, {5}, kF32), 7);
        return !fail;
      },
      true);
  CHECK_THROWS_AS(op->Run(), opkit::Error);
  CHECK(x->ToVector<float>() == Floats{1, 2});
  fail = false;
  op->Run();
  CHECK(x->ToVector<float>() == Floats{7, 7, 7, 7, 7});
}

// Runs y = 10 * x with reading after writing, so that shared memory shows.
bool Backwards(BodyOpCPU& self) {
  const Tensor& x = self.Input(0);
  const auto n = x.numel();
  float* y = self.Output(0, x.shape(), kF32)->mutable_data<float>();
  for (int64_t i = 0; i < n; ++i) y[n - 1 - i] = 10 * x.data<float>()[i];
  return true;
}

TEST_CASE("an output that shares an input's memory without permission gets memory of its own") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor::From<float>({3}, {1, 2, 3});
  Tensor* y = ws.CreateTensor("Y");
  y->Resize({3});
  y->ShareData(*x);
  auto op = Make(OperatorDef("Body", {"X"}, {"Y"}), &ws, Backwards);
  CHECK(op->IsInputOutputAlias(0, 0));  // by memory, though the names differ
  op->Run();
  CHECK_FALSE(op->IsInputOutputAlias(0, 0));
  CHECK(x->ToVector<float>() == Floats{1, 2, 3});
  CHECK(y->ToVector<float>() == Floats{30, 20, 10});
  const void* own = y->raw_data();
  op->Run();
  CHECK(y->raw_data() == own);
}

TEST_CASE("an output that shares an input's memory with permission keeps it") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor::From<float>({3}, {1, 2, 3});
  Tensor* y = ws.CreateTensor("Y");
  y->Resize({3});
  y->ShareData(*x);
  auto op = Make(
      OperatorDef("Body", {"X"}, {"Y"}), &ws,
      [](BodyOpCPU& self) {
        Fill(self.Output(0, {3}, kF32), 5);
        return true;
      },
      true);
  op->Run();
  CHECK(y->raw_data() == x->raw_data());
  CHECK(x->ToVector<float>() == Floats{5, 5, 5});
}

TEST_CASE("permission is for the same place: an overlap, or strides, do not have it") {
  Workspace ws;
  const Tensor whole = Tensor::From<float>({4}, {1, 2, 3, 4});
  Tensor* x = ws.CreateTensor("X");
  Tensor* y = ws.CreateTensor("Y");
  *x = whole.Slice(0, 0, 3);
  *y = whole.Slice(0, 1, 4);
  auto op = Make(OperatorDef("Body", {"X"}, {"Y"}), &ws, Backwards, true);
  op->Run();
  CHECK(y->ToVector<float>() == Floats{30, 20, 10});
  CHECK(whole.ToVector<float>() == Floats{1, 2, 3, 4});

  const Tensor square = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  *x = square.Permute({1, 0});
  *y = square;
  auto copy = Make(
      OperatorDef("Body", {"X"}, {"Y"}), &ws,
      [](BodyOpCPU& self) {
        Fill(self.Output(0, {2, 2}, kF32), 5);
        return true;
      },
      true);
  copy->Run();
  CHECK(square.ToVector<float>() == Floats{1, 2, 3, 4});
}

TEST_CASE("an output never grows into the memory of an input") {
  Workspace ws;
  Tensor whole({4}, kF32);
  Fill(&whole, 1);
  Tensor* x = ws.CreateTensor("X");
  Tensor* y = ws.CreateTensor("Y");
  *x = whole.Slice(0, 2, 4);
  *y = whole;
  y->Resize({2});  // apart from x now, with room for more
  auto op = Make(OperatorDef("Body", {"X"}, {"Y"}), &ws, [](BodyOpCPU& self) {
    Fill(self.Output(0, {4}, kF32), 9);
    return true;
  });
  op->Run();
  CHECK(x->ToVector<float>() == Floats{1, 1});
  CHECK(y->ToVector<float>() == Floats{9, 9, 9, 9});
}

TEST_CASE("memory adopted twice is still one memory") {
  Workspace ws;
  float values[3] = {1, 2, 3};
  *ws.CreateTensor("X") = Tensor::FromExternal(values, {3});
  *ws.CreateTensor("Y") = Tensor::FromExternal(values, {3});
  auto op = Make(OperatorDef("Body", {"X"}, {"Y"}), &ws, Backwards);
  op->Run();
  CHECK(values[0] == 1);
  CHECK(ws.GetTensor("Y")->ToVector<float>() == Floats{30, 20, 10});
}

TEST_CASE("in place, another input that shares the memory is kept apart") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  Tensor* z = ws.CreateTensor("Z");
  *x = Tensor::From<float>({2}, {1, 2});
  *z = *x;
  auto op = Make(
      OperatorDef("Body", {"X", "Z"}, {"X"}), &ws,
      [](BodyOpCPU& self) {
        Fill(self.Output(0, {2}, kF32), 9);
        CHECK(self.Input(1).ToVector<float>() == Floats{1, 2});
        return true;
      },
      true);
  op->Run();
  CHECK(x->ToVector<float>() == Floats{9, 9});
  CHECK(z->ToVector<float>() == Floats{1, 2});
}

TEST_CASE("an output can be an alias, a copy, or a tensor made elsewhere") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor::From<float>({3}, {1, 2, 3});
  BodyOpCPU op(OperatorDef("Body", {"X"}, {"A", "C", "S"}), &ws, [](BodyOpCPU& self) {
    self.OutputTensorAlias(0, self.Input(0));
    self.OutputTensorCopyFrom(1, self.Input(0));
    self.SetOutputTensor(2, Tensor::Scalar(4.f));
    return true;
  });
  op.Run();
  CHECK(ws.GetTensor("A")->raw_data() == x->raw_data());
  CHECK(op.IsInputOutputAlias(0, 0));
  CHECK(ws.GetTensor("C")->raw_data() != x->raw_data());
  CHECK(ws.GetTensor("C")->ToVector<float>() == Floats{1, 2, 3});
  CHECK_FALSE(op.IsInputOutputAlias(0, 1));
  CHECK(ws.GetTensor("S")->data<float>()[0] == 4);
  const void* copy = ws.GetTensor("C")->raw_data();
  op.Run();
  CHECK(ws.GetTensor("C")->raw_data() == copy);
}

TEST_CASE("an output set in place does not replace the input during the run") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  *x = Tensor::From<float>({2}, {1, 2});
  BodyOpCPU op(OperatorDef("Body", {"X"}, {"X"}), &ws, [](BodyOpCPU& self) {
    const float* in = self.Input(0).data<float>();
    self.SetOutputTensor(0, Tensor::From<float>({1}, {8}));
    CHECK(in[1] == 2);
    CHECK(self.Input(0).ToVector<float>() == Floats{1, 2});
    CHECK(self.Output(0)->ToVector<float>() == Floats{8});
    return true;
  });
  op.Run();
  CHECK(x->ToVector<float>() == Floats{8});
}

TEST_CASE("an error lists type, name, inputs, attributes, device, engine and registration") {
  Workspace ws;
  *ws.CreateTensor("A") = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  *ws.CreateTensor("B") = Tensor::From<int64_t>({1}, {1});
  ws.CreateBlob("text")->Emplace<std::string>("not a tensor");
  const OperatorDef def = OperatorDef("Body", {"A", "B", "text"}, {"Y"})
                              .Name("the one")
                              .Arg("scale", 2.f)
                              .Arg("mode", "fast")
                              .Backends("DEFAULT");
  auto op = Make(def, &ws, [](BodyOpCPU&) { return false; });
  const opkit::Error error = ErrorOf([&] { op->Run(); });
  CHECK(error.code() == ErrorCode::kOperatorFailed);
  CHECK(error.message() ==
        "RunOnDevice returned false; to say why, throw an opkit::Error or use OPKIT_ENFORCE");
  CHECK(std::string(error.what()) == error.message() +
                                         "\n"
                                         "  in operator Body 'the one' (A, B, text) -> (Y), "
                                         "scale=2, mode=\"fast\", on cpu, backend "
                                         "DEFAULT, registered at body_op.cc:12\n"
                                         "    input 0 'A': float32[2, 3] on cpu\n"
                                         "    input 1 'B': int64[1] on cpu");
  CHECK(op->getErrorMsg() ==
        "Error from operator: in operator Body 'the one' (A, B, text) -> (Y), scale=2, "
        "mode=\"fast\", on cpu, backend DEFAULT, registered at body_op.cc:12");
}

TEST_CASE("an error shows an input's layout and strides") {
  class Blocked final : public opkit::Layout::Descriptor {
   public:
    bool Equals(const opkit::Layout::Descriptor&) const override { return true; }
    std::string Describe() const override { return "nChw8c"; }
  };
  Workspace ws;
  *ws.CreateTensor("A") = Tensor::FromLayout(
      opkit::AllocateStorage({}, 64), {2, 3}, kF32,
      {7, opkit::detail::IntrusivePtr<const opkit::Layout::Descriptor>(new Blocked)});
  *ws.CreateTensor("B") = Tensor({2, 3}, kF32).Permute({1, 0});
  auto op = Make(OperatorDef("Body", {"A", "B"}, {}), &ws, [](BodyOpCPU&) { return false; });
  const std::string what = ErrorOf([&] { op->Run(); }).what();
  CHECK(Contains(what, "input 0 'A': float32[2, 3] on cpu in layout 7 nChw8c"));
  CHECK(Contains(what, "input 1 'B': float32[3, 2] on cpu with strides[1, 3]"));
}

TEST_CASE("an error about a tensor names the input or output that was accessed") {
  Workspace ws;
  *ws.CreateTensor("A") = Tensor::From<float>({1}, {1});
  *ws.CreateTensor("B") = Tensor::From<float>({1}, {1});
  int access = 0;
  auto op = Make(OperatorDef("Body", {"A", "B"}, {"Y"}), &ws, [&](BodyOpCPU& self) {
    if (access == 0) self.Input(1).data<double>();
    if (access == 1) self.Output(0, {1}, kF32)->mutable_data<int>();
    return true;
  });
  opkit::Error error = ErrorOf([&] { op->Run(); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(error.what(), "\n  while accessing input 1 'B'\n  in operator Body"));
  access = 1;
  error = ErrorOf([&] { op->Run(); });
  CHECK(Contains(error.what(), "\n  while accessing output 0 'Y'\n  in operator Body"));
}

TEST_CASE("an operator needs a workspace and its inputs; it makes its outputs") {
  CHECK(ErrorOf([] { BodyOpCPU(OperatorDef("Body"), nullptr); }).message() ==
        "operator Body () -> () needs a workspace");
  Workspace ws;
  CHECK(ErrorOf([&] { BodyOpCPU(OperatorDef("Body", {"X"}, {}), &ws); }).code() ==
        ErrorCode::kNotFound);
  BodyOpCPU op(OperatorDef("Body", {}, {"Y"}), &ws);
  CHECK(ws.HasBlob("Y"));
  CHECK_FALSE(ws.HasTensor("Y"));  // of no type yet
}

TEST_CASE("a definition for another device is refused by the context") {
  Workspace ws;
  const opkit::Error error =
      ErrorOf([&] { BodyOpCPU(OperatorDef("Body").Device(DeviceType::kCUDA), &ws); });
  CHECK(error.message() == "CPUContext cannot run on cuda");
}

}  // namespace
}  // namespace operator_base_test

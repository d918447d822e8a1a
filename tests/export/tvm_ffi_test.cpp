// Calls exported functions as tvm-ffi does, with a few functions of the host made up here.
#include "opkit/export/tvm_ffi.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <opkit/opkit.hpp>

namespace tvm_ffi_test { namespace {

using namespace opkit;

std::string g_raised, g_text;
struct Function {
  void* self;
  tvm_ffi::SafeCall call;
  void (*deleter)(void*);
} g_function;

}}  // namespace tvm_ffi_test

using namespace opkit;

extern "C" {
OPKIT_VISIBLE void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  tvm_ffi_test::g_raised = StrCat(kind, ": ", message);
}
OPKIT_VISIBLE int TVMFFITensorFromDLPackVersioned(dlpack::DLManagedTensorVersioned* from, int32_t,
                                                  int32_t, void** out) {
  *out = from;
  return 0;
}
OPKIT_VISIBLE int TVMFFIFunctionCreate(void* self, tvm_ffi::SafeCall call, void (*deleter)(void*),
                                       void** out) {
  tvm_ffi_test::g_function = {self, call, deleter};
  *out = &tvm_ffi_test::g_function;
  return 0;
}
OPKIT_VISIBLE int TVMFFIStringFromByteArray(const tvm_ffi::ByteArray* text, tvm_ffi::Any*) {
  tvm_ffi_test::g_text.assign(text->data, text->size);
  return 0;
}
OPKIT_VISIBLE int TVMFFIObjectDecRef(void*) { return 0; }
}

namespace tvm_ffi_test { namespace {

// y = factor * x + the number of runs before this one, if it counts.
class Scaled final : public Operator<CPUContext> {
 public:
  Scaled(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), factor_(Arg<float>("factor", 2.f)) {}
  bool RunOnDevice() override {
    Tensor* y = Output(0, Input(0).shape(), DType::kFloat32);
    for (int64_t i = 0; i < y->numel(); ++i)
      y->mutable_data<float>()[i] = factor_ * Input(0).data<float>()[i] + runs_;
    runs_ += debug_def().type() == "TvmFfiCounted" ? 1.f : 0.f;
    return true;
  }

 private:
  float factor_, runs_ = 0;
};
OPERATOR_SCHEMA(TvmFfiScaled)
    .NumInputs(1)
    .NumOutputs(1)
    .Doc("y = factor * x")
    .Input(0, "x")
    .Arg<float>("factor", "what x is multiplied with", 2.f)
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(TvmFfiScaled, Scaled);
OPERATOR_SCHEMA(TvmFfiCounted)
    .NumInputs(1)
    .NumOutputs(1)
    .Stateful()
    .Arg<float>("factor", "what x is multiplied with", 2.f)
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(TvmFfiCounted, Scaled);

OPKIT_EXPORT_TVM_FFI(TvmFfiScaled);
OPKIT_EXPORT_TVM_FFI(TvmFfiCounted);

// A tensor of the host.
struct Host {
  std::vector<float> values;
  int64_t shape = static_cast<int64_t>(values.size());
  dlpack::DLTensor tensor{values.data(), {1, 0}, 1, {2, 32, 1}, &shape, nullptr, 0};
  tvm_ffi::Any any() {
    tvm_ffi::Any out{};
    out.type_index = tvm_ffi::kDLTensorPtr;
    out.v_ptr = &tensor;
    return out;
  }
};
tvm_ffi::Any Number(double value) {
  tvm_ffi::Any out{};
  out.type_index = tvm_ffi::kFloat;
  out.v_float64 = value;
  return out;
}
// Returns the elements of a returned tensor, and frees it.
std::vector<float> Take(const tvm_ffi::Any& result) {
  REQUIRE(result.type_index == tvm_ffi::kTensor);
  return FromDLPack(static_cast<dlpack::DLManagedTensorVersioned*>(result.v_ptr)).ToVector<float>();
}

TEST_CASE("tvm-ffi: a call writes to the given output, or returns a tensor") {
  Host x{{1, 2, 3}}, y{{0, 0, 0}};
  tvm_ffi::Any result{};
  const tvm_ffi::Any args[] = {x.any(), Number(3), y.any()};
  CHECK(__tvm_ffi_TvmFfiScaled(nullptr, args, 3, &result) == 0);
  CHECK(y.values == std::vector<float>{3, 6, 9});
  CHECK(result.type_index == tvm_ffi::kNone);
  CHECK(__tvm_ffi_TvmFfiScaled(nullptr, args, 1, &result) == 0);
  CHECK(Take(result) == std::vector<float>{2, 4, 6});
}

TEST_CASE("tvm-ffi: a wrong call raises the Error in the host, and writes nothing") {
  Host x{{1, 2, 3}}, y{{0, 0, 0, 0}};
  tvm_ffi::Any result{};
  const tvm_ffi::Any larger[] = {x.any(), y.any()}, number[] = {Number(3)};
  CHECK(__tvm_ffi_TvmFfiScaled(nullptr, larger, 2, &result) == -1);
  CHECK(g_raised.starts_with("ValueError: output 0"));
  CHECK(y.values == std::vector<float>(4));
  CHECK(__tvm_ffi_TvmFfiScaled(nullptr, number, 1, &result) == -1);
  CHECK(g_raised.starts_with("TypeError: argument 0 of TvmFfiScaled is no tensor"));
  CHECK(__tvm_ffi_TvmFfiCounted(nullptr, larger, 1, &result) == -1);
  CHECK(g_raised.find("call a function that TvmFfiCounted_create() returns") != std::string::npos);
}

TEST_CASE("tvm-ffi: a function of the host owns an operator and its state") {
  Host x{{0, 1, 2}};
  tvm_ffi::Any result{};
  REQUIRE(__tvm_ffi_TvmFfiCounted_create(nullptr, nullptr, 0, &result) == 0);
  CHECK(result.type_index == tvm_ffi::kFunction);
  const tvm_ffi::Any args[] = {x.any()};
  for (const float run : {0.f, 1.f, 2.f}) {
    CHECK(g_function.call(g_function.self, args, 1, &result) == 0);
    CHECK(Take(result) == std::vector<float>{run, 2 + run, 4 + run});
  }
  g_function.deleter(g_function.self);
}

TEST_CASE("tvm-ffi: documentation and metadata are those of the schema") {
  tvm_ffi::Any result{};
  CHECK(__tvm_ffi__doc_TvmFfiScaled(nullptr, nullptr, 0, &result) == 0);
  CHECK(g_text.starts_with("y = factor * x\n"));
  CHECK(g_text.find("factor (float = 2)") != std::string::npos);
  CHECK(__tvm_ffi__metadata_TvmFfiScaled(nullptr, nullptr, 0, &result) == 0);
  CHECK(g_text.find(R"("arg_names":["x","factor"],"arg_defaults":[2])") != std::string::npos);
}

}}  // namespace tvm_ffi_test

// The export to ONNX Runtime against a table of functions of our own, as an old and a new host
// would give it. onnxruntime/onnxruntime_test.py runs the real one.
#include "opkit/export/onnxruntime.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "opkit/device/native_stream.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/export/onnxruntime/ort_attributes.hpp"
#include "opkit/export/onnxruntime/ort_signature.hpp"
#include "opkit/export/onnxruntime/ort_tensor.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"
#include "support/sim_device.hpp"

namespace onnxruntime_test { namespace {

using namespace opkit;
using detail::OrtArity;
using detail::OrtPlace;

template <class Context, class T>
void OrtTestScale(Context& ctx, In<"x", T> x, OptionalIn<"shift", int64_t> shift, Out<"y", T> y,
                  Attr<"factor", float> factor) {
  const T f = static_cast<T>(factor.value()), s = static_cast<T>(shift ? shift[0] : 0);
  ParallelFor(
      ctx, y.size(), [=](int64_t i) { y[i] = f * x[i] + s; }, 1);
}
OPKIT_OP(OrtTestScale).SameShape<"x", "y">().Kernel<CPUContext, float, double>();

OPKIT_EXPORT_ONNXRUNTIME(OrtTestScale);

// An operator of a device, whose execution provider is "SIMExecutionProvider".
OPKIT_OPERATOR_SCHEMA(OrtTestOnSim)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Input(0, "x", "", {DType::kFloat32});
OPKIT_REGISTER_DEVICE_OPERATOR(sim_device::kSim, OrtTestOnSim,
                               sim_device::AddOneOp<sim_device::SimContext>);
OPKIT_EXPORT_ONNXRUNTIME(OrtTestOnSim);
void* g_stream = nullptr;

// The objects of the fake host. A node is also its kernel's info and its context.
struct Status {
  int code;
  std::string text;
};
struct Value {
  int type;
  std::vector<int64_t> extents;
  std::vector<float> data;
};
struct Node {
  std::vector<Value*> inputs;  // null for one that is left out
  Value output{1, {}, {}};
  const float* factor = nullptr;
  int parallel_loops = 0;
};
struct Host {
  void* table[425] = {};
  std::vector<const detail::OrtCustomOp*> ops;
  std::string domain;
  int statuses = 0, infos = 0;  // that are alive
} g_host;

void* MakeStatus(int code, const char* text) {
  ++g_host.statuses;
  return new Status{code, text};
}
void* Missing() { return MakeStatus(1, "there is none"); }
template <class F>
void Set(OrtPlace place, F function) {
  g_host.table[static_cast<int>(place)] = reinterpret_cast<void*>(+function);
}
// A function that finds nothing, with the type that the export calls it by.
template <class... Args>
void SetMissing(OrtPlace place) {
  Set(place, [](Args...) { return Missing(); });
}
void Fill() {
  for (void*& function : g_host.table) function = reinterpret_cast<void*>(&Missing);
  Set(OrtPlace::kCreateStatus, &MakeStatus);
  Set(OrtPlace::kGetErrorMessage,
      [](const void* status) { return static_cast<const Status*>(status)->text.c_str(); });
  Set(OrtPlace::kReleaseStatus, [](void* status) {
    --g_host.statuses;
    delete static_cast<Status*>(status);
  });
  Set(OrtPlace::kCreateCustomOpDomain, [](const char* name, void** domain) -> void* {
    g_host.domain = name;
    *domain = &g_host;
    return nullptr;
  });
  Set(OrtPlace::kCustomOpDomainAdd, [](void*, const detail::OrtCustomOp* op) -> void* {
    g_host.ops.push_back(op);
    return nullptr;
  });
  Set(OrtPlace::kAddCustomOpDomain, [](void*, void*) -> void* { return nullptr; });
  Set(OrtPlace::kKernelInfoGetInputCount, [](const void* node, size_t* count) -> void* {
    *count = static_cast<const Node*>(node)->inputs.size();
    return nullptr;
  });
  Set(OrtPlace::kKernelInfoGetOutputCount, [](const void*, size_t* count) -> void* {
    *count = 1;
    return nullptr;
  });
  Set(OrtPlace::kKernelInfoGetInputName,
      [](const void* node, size_t i, char*, size_t* size) -> void* {
        *size = static_cast<const Node*>(node)->inputs[i] ? 2 : 1;
        return nullptr;
      });
  Set(OrtPlace::kKernelInfoGetAttributeFloat,
      [](const void* node, const char* name, float* value) -> void* {
        const float* const factor = static_cast<const Node*>(node)->factor;
        if (!factor || name != std::string("factor")) return Missing();
        *value = *factor;
        return nullptr;
      });
  SetMissing<const void*, const char*, int64_t*>(OrtPlace::kKernelInfoGetAttributeInt64);
  SetMissing<const void*, const char*, char*, size_t*>(OrtPlace::kKernelInfoGetAttributeString);
  SetMissing<const void*, const char*, float*, size_t*>(
      OrtPlace::kKernelInfoGetAttributeArrayFloat);
  SetMissing<const void*, const char*, int64_t*, size_t*>(
      OrtPlace::kKernelInfoGetAttributeArrayInt64);
  SetMissing<const void*, const char*, void*, char***, size_t*>(
      OrtPlace::kKernelInfoGetAttributeArrayString);
  SetMissing<const void*, const char*, void*, void**>(OrtPlace::kKernelInfoGetAttributeTensor);
  Set(OrtPlace::kGetAllocatorWithDefaultOptions, [](void** allocator) -> void* {
    *allocator = nullptr;
    return nullptr;
  });
  Set(OrtPlace::kKernelContextGetInput,
      [](const void* node, size_t i, const void** value) -> void* {
        *value = static_cast<const Node*>(node)->inputs[i];
        return nullptr;
      });
  Set(OrtPlace::kKernelContextGetOutput,
      [](void* node, size_t, const int64_t* extents, size_t rank, void** value) -> void* {
        Value& output = static_cast<Node*>(node)->output;
        output.extents.assign(extents, extents + rank);
        size_t count = 1;
        for (const int64_t extent : output.extents) count *= static_cast<size_t>(extent);
        output.data.assign(count, -1);
        *value = &output;
        return nullptr;
      });
  Set(OrtPlace::kGetTensorMutableData, [](void* value, void** data) -> void* {
    *data = static_cast<Value*>(value)->data.data();
    return nullptr;
  });
  // The way to a shape before 1.24, and after it.
  Set(OrtPlace::kGetTensorTypeAndShape, [](const void* value, void** info) -> void* {
    ++g_host.infos;
    *info = const_cast<void*>(value);
    return nullptr;
  });
  Set(OrtPlace::kReleaseTensorTypeAndShapeInfo, [](void*) { --g_host.infos; });
  Set(OrtPlace::kGetTensorElementType, [](const void* value, int* type) -> void* {
    *type = static_cast<const Value*>(value)->type;
    return nullptr;
  });
  Set(OrtPlace::kGetDimensionsCount, [](const void* value, size_t* rank) -> void* {
    *rank = static_cast<const Value*>(value)->extents.size();
    return nullptr;
  });
  Set(OrtPlace::kGetDimensions, [](const void* value, int64_t* extents, size_t) -> void* {
    std::ranges::copy(static_cast<const Value*>(value)->extents, extents);
    return nullptr;
  });
  Set(OrtPlace::kGetTensorElementTypeAndShapeDataReference,
      [](const void* value, int* type, const int64_t** extents, size_t* rank) -> void* {
        const auto& tensor = *static_cast<const Value*>(value);
        *type = tensor.type;
        *extents = tensor.extents.empty() ? nullptr : tensor.extents.data();
        *rank = tensor.extents.size();
        return nullptr;
      });
  Set(OrtPlace::kKernelInfoGetAllocator, [](const void*, int, void** allocator) -> void* {
    *allocator = &g_host;
    return nullptr;
  });
  Set(OrtPlace::kAllocatorGetInfo, [](const void* allocator, const void** info) -> void* {
    *info = allocator;
    return nullptr;
  });
  Set(OrtPlace::kMemoryInfoGetId, [](const void*, int* id) -> void* {
    *id = 3;
    return nullptr;
  });
  Set(OrtPlace::kKernelContextGetGpuComputeStream, [](const void*, void** stream) -> void* {
    *stream = &g_stream;
    return nullptr;
  });
  Set(OrtPlace::kKernelContextParallelFor,
      [](const void* node, void (*call)(void*, size_t), size_t total, size_t, void* data) -> void* {
        ++const_cast<Node*>(static_cast<const Node*>(node))->parallel_loops;
        for (size_t i = 0; i < total; ++i) call(data, i);
        return nullptr;
      });
}
void* const* Table(uint32_t version) { return version <= 29 ? g_host.table : nullptr; }
const detail::OrtApiBase kTooOld{&Table, [] { return "1.17.3"; }};
const detail::OrtApiBase kOld{&Table, [] { return "1.20.1"; }};
const detail::OrtApiBase kNew{&Table, [] { return "1.32.0"; }};

// Returns the text of a status and releases it; empty for success.
std::string TextOf(void* status, int code = 2) {
  if (!status) return "";
  const Status read = *static_cast<Status*>(status);
  CHECK(read.code == code);
  --g_host.statuses;
  delete static_cast<Status*>(status);
  return read.text;
}

TEST_CASE("the operators are registered by dtype, and a host that is too old says so") {
  Fill();
  CHECK(TextOf(RegisterCustomOps(nullptr, &kTooOld), 9) ==
        "ONNX Runtime 1.17.3 is too old for the operators of this library, which need 1.18 or "
        "later");
  for (const auto* base : {&kOld, &kNew}) {
    g_host.ops.clear();
    CHECK(TextOf(RegisterCustomOps(nullptr, base)) == "");
    CHECK(g_host.domain == "opkit");
    REQUIRE(g_host.ops.size() == 2);
    for (const detail::OrtCustomOp* op : g_host.ops) {
      CHECK(op->get_name(op) == std::string("OrtTestScale"));
      CHECK(op->get_execution_provider_type(op) == nullptr);
      REQUIRE(op->get_input_type_count(op) == 2);
      CHECK(op->get_input_characteristic(op, 0) == OrtArity::kRequired);
      CHECK(op->get_input_characteristic(op, 1) == OrtArity::kOptional);
      CHECK(op->get_input_type(op, 1) == 7);  // int64
      CHECK(op->get_input_type(op, 0) == op->get_output_type(op, 0));
      // An old host reads the null type of the optional input before inference.
      CHECK((op->infer_output_shape != nullptr) == (base == &kNew));
    }
    CHECK(g_host.ops[0]->get_input_type(g_host.ops[0], 0) == 1);
    CHECK(g_host.ops[1]->get_input_type(g_host.ops[1], 0) == 11);
    // A kernel of float32, without the optional input.
    const detail::OrtCustomOp* const op = g_host.ops[0];
    Value x{1, {2, 2}, {1, 2, 3, 4}};
    Node node;
    node.inputs = {&x, nullptr};
    void* kernel = nullptr;
    CHECK(TextOf(op->create_kernel_v2(op, nullptr, &node, &kernel)).find("'factor'") !=
          std::string::npos);
    const float factor = 3;
    node.factor = &factor;
    REQUIRE(TextOf(op->create_kernel_v2(op, nullptr, &node, &kernel)) == "");
    CHECK(TextOf(op->kernel_compute_v2(kernel, &node)) == "");
    CHECK(node.output.data == std::vector<float>{3, 6, 9, 12});
    CHECK(node.output.extents == std::vector<int64_t>{2, 2});
    CHECK(node.parallel_loops == (std::thread::hardware_concurrency() > 1));
    x = Value{1, {}, {5}};  // a scalar
    CHECK(TextOf(op->kernel_compute_v2(kernel, &node)) == "");
    CHECK(node.output.data == std::vector<float>{15});
    x.type = 8;
    CHECK(TextOf(op->kernel_compute_v2(kernel, &node), 9).find("element type 8") !=
          std::string::npos);
    op->kernel_destroy(kernel);
  }
  CHECK(g_host.statuses == 0);
  CHECK(g_host.infos == 0);
}

TEST_CASE("a kernel of a device runs on the session's stream and device") {
  using sim_device::kSim;
  Fill();
  g_host.ops.clear();
  static const detail::OrtApiBase base{&Table, [] { return "1.32.0"; }};
  const sim_device::SimDevice device;
  static Device on;
  static void* stream = nullptr;
  RegisterNativeStreams(kSim, [](Device device, void* native, FunctionRef<void()> issue) {
    on = device;
    stream = native;
    issue();
  });
  CHECK(TextOf(RegisterCustomOps(nullptr, &base)) == "");
  RegisterNativeStreams(kSim, nullptr);
  const auto found = std::ranges::find_if(g_host.ops, [](const auto* op) {
    const char* const provider = op->get_execution_provider_type(op);
    return provider && provider == std::string("SIMExecutionProvider");
  });
  REQUIRE(found != g_host.ops.end());
  Value x{1, {2}, {1, 2}};
  Node node;
  node.inputs = {&x};
  void* kernel = nullptr;
  REQUIRE(TextOf((*found)->create_kernel_v2(*found, nullptr, &node, &kernel)) == "");
  // Without streams the work cannot follow the session's.
  CHECK(TextOf((*found)->kernel_compute_v2(kernel, &node), 9).find("no native streams") !=
        std::string::npos);
  RegisterNativeStreams(kSim, [](Device device, void* native, FunctionRef<void()> issue) {
    on = device;
    stream = native;
    issue();
  });
  CHECK(TextOf((*found)->kernel_compute_v2(kernel, &node)) == "");
  CHECK(node.output.data == std::vector<float>{2, 3});
  CHECK(on == Device{kSim, 3});
  CHECK(stream == &g_stream);
  (*found)->kernel_destroy(kernel);
  RegisterNativeStreams(kSim, nullptr);
  CHECK(g_host.statuses == 0);
}

TEST_CASE("a signature has the dtypes that inference accepts, optional and variadic values") {
  OpSchema schema("OrtSignatureTest", "", 0);
  schema.NumInputs(2, 1 << 20)
      .NumOutputs(1)
      .Input(0, "x", "", {DType::kFloat32, DType::kFloat64})
      .Input(1, "y", "", {DType::kFloat32, DType::kFloat64})
      .Output(0, "z", "", {DType::kBool});
  const detail::OrtSignature same(schema);
  CHECK(same.inputs.arities == std::vector{OrtArity::kRequired, OrtArity::kVariadic});
  CHECK(same.inputs.variadic_least == 1);
  REQUIRE(same.types.size() == 2);  // no inference: equal lists of dtypes go together
  CHECK(same.types[1] == detail::OrtTypes{{DType::kFloat64, DType::kFloat64}, {DType::kBool}});
  schema.Infer([](InferenceContext& context) {
    if (context.input_dtype(0) == DType::kFloat64) Throw(ErrorCode::kTypeMismatch, "not so");
  });
  const detail::OrtSignature each(schema);
  REQUIRE(each.types.size() == 2);
  CHECK(each.types[1] == detail::OrtTypes{{DType::kFloat32, DType::kFloat64}, {DType::kBool}});
  schema.Output(0, "z", "", {DType::kComplex64});
  CHECK_THROWS_WITH(detail::OrtSignature{schema},
                    "ONNX Runtime has none of the dtypes of operator OrtSignatureTest");
}

}  // namespace
}  // namespace onnxruntime_test

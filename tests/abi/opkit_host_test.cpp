// The interface in C, called as a program in C calls it. Nothing of the toolkit is linked but
// libopkit.so.
#include "opkit/abi/opkit_host.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "opkit/core/dlpack.hpp"
#include "support/temporary_folder.hpp"

namespace {

namespace dl = opkit::dlpack;
static_assert(sizeof(opkit_dl_tensor) == sizeof(dl::DLTensor));
static_assert(offsetof(opkit_dl_tensor, ndim) == offsetof(dl::DLTensor, ndim));
static_assert(offsetof(opkit_dl_tensor, dtype) == offsetof(dl::DLTensor, dtype));
static_assert(offsetof(opkit_dl_tensor, shape) == offsetof(dl::DLTensor, shape));
static_assert(offsetof(opkit_dl_tensor, strides) == offsetof(dl::DLTensor, strides));
static_assert(offsetof(opkit_dl_tensor, byte_offset) == offsetof(dl::DLTensor, byte_offset));
static_assert(sizeof(opkit_dl_managed_tensor) == sizeof(dl::DLManagedTensorVersioned));
static_assert(offsetof(opkit_dl_managed_tensor, deleter) ==
              offsetof(dl::DLManagedTensorVersioned, deleter));
static_assert(offsetof(opkit_dl_managed_tensor, dl_tensor) ==
              offsetof(dl::DLManagedTensorVersioned, dl_tensor));

using Floats = std::vector<float>;

// A tensor of floats with memory of its own.
struct Array {
  explicit Array(std::vector<int64_t> extents, Floats elements = {})
      : shape(std::move(extents)), data(std::move(elements)) {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    data.resize(count, -1.f);
    tensor.data = data.data();
    tensor.device = {OPKIT_CPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = {2, 32, 1};
    tensor.shape = shape.data();
  }
  Array(const Array&) = delete;

  std::vector<int64_t> shape;
  Floats data;
  opkit_dl_tensor tensor{};
};

std::string ErrorText() { return opkit_host_error(); }
bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
// True if the call failed with this status and a text that has `part`.
bool Failed(opkit_status found, opkit_status status, const std::string& part) {
  const bool good = found == status && Has(ErrorText(), part);
  if (!good) MESSAGE("status " << found << ": " << ErrorText());
  return good;
}
bool Worked(opkit_status found) {
  if (found != OPKIT_OK) MESSAGE("status " << found << ": " << ErrorText());
  return found == OPKIT_OK;
}

struct FreeHandle {
  void operator()(opkit_host_operator* op) const { opkit_host_free_operator(op); }
  void operator()(opkit_host_graph* graph) const { opkit_host_free_graph(graph); }
  void operator()(opkit_host_plan* plan) const { opkit_host_free_plan(plan); }
  void operator()(char* text) const { opkit_host_free_text(text); }
  void operator()(opkit_dl_managed_tensor* tensor) const { tensor->deleter(tensor); }
};
template <class T>
using Owned = std::unique_ptr<T, FreeHandle>;

Owned<opkit_host_operator> Make(const char* op, uint64_t inputs, const char* attributes = nullptr,
                                const char* options = nullptr) {
  opkit_host_operator* made = nullptr;
  REQUIRE(Worked(opkit_host_make(op, inputs, attributes, options, &made)));
  return Owned<opkit_host_operator>(made);
}
Owned<opkit_host_graph> Parse(const std::string& text) {
  opkit_host_graph* graph = nullptr;
  REQUIRE(Worked(opkit_host_parse_graph(text.data(), text.size(), nullptr, &graph)));
  return Owned<opkit_host_graph>(graph);
}
Owned<opkit_host_plan> Compile(const Owned<opkit_host_graph>& graph,
                               const char* options = nullptr) {
  opkit_host_plan* plan = nullptr;
  REQUIRE(Worked(opkit_host_compile(graph.get(), options, &plan)));
  return Owned<opkit_host_plan>(plan);
}
Floats Elements(const opkit_dl_managed_tensor* made) {
  size_t count = 1;
  for (int axis = 0; axis < made->dl_tensor.ndim; ++axis)
    count *= static_cast<size_t>(made->dl_tensor.shape[axis]);
  const auto* data = static_cast<const float*>(made->dl_tensor.data);
  return Floats(data, data + count);
}
// Runs with one output. With `given`, writes there and returns nothing.
opkit_status Run(const Owned<opkit_host_operator>& op, std::initializer_list<const Array*> inputs,
                 Array* given, Floats* result = nullptr) {
  std::vector<const opkit_dl_tensor*> pointers;
  for (const Array* input : inputs) pointers.push_back(input ? &input->tensor : nullptr);
  const opkit_dl_tensor* output = given ? &given->tensor : nullptr;
  opkit_dl_managed_tensor* made = nullptr;
  const opkit_status status =
      opkit_host_run(op.get(), pointers.size(), pointers.data(), 1, &output, &made);
  if (made && result) *result = Elements(made);
  CHECK((made != nullptr) == (status == OPKIT_OK && !given));
  Owned<opkit_dl_managed_tensor>{made};
  return status;
}

const char kGraph[] = R"({"format": "opkit graph", "version": 1,
  "inputs": [{"name": "x", "dtype": "float32", "shape": ["N", 2]}],
  "nodes": [{"type": "Relu", "inputs": ["x"], "outputs": ["r"]},
            {"type": "Add", "inputs": ["r", "r"], "outputs": ["y"]}],
  "outputs": ["y"]})";

TEST_CASE("a program asks for versions") {
  CHECK(opkit_host_interface() == OPKIT_HOST_MAJOR * 65536u + OPKIT_HOST_MINOR);
  CHECK(Worked(opkit_host_require(OPKIT_HOST_INTERFACE)));
  CHECK(Failed(opkit_host_require(OPKIT_HOST_INTERFACE + 1), OPKIT_UNSUPPORTED,
               "compiled with version 1.1 of opkit_host.h"));
  CHECK(Has(ErrorText(), "has version 1.0; install a newer libopkit.so"));
  CHECK(Failed(opkit_host_require(OPKIT_HOST_INTERFACE - 65536), OPKIT_UNSUPPORTED,
               "compile the program again"));
  CHECK(Failed(opkit_host_require(OPKIT_HOST_INTERFACE + 65536), OPKIT_UNSUPPORTED,
               "install a newer libopkit.so"));
  CHECK(std::string(opkit_host_version()) == OPKIT_VERSION_STRING);
}

TEST_CASE("operators run into given memory, and make what is not given") {
  const auto add = Make("Add", 2);
  CHECK(opkit_host_num_outputs(add.get()) == 1);
  const Array a({2, 2}, {1, 2, 3, 4}), b({2}, {10, 20});
  Array y({2, 2});
  CHECK(Worked(Run(add, {&a, &b}, &y)));
  CHECK(y.data == Floats{11, 22, 13, 24});
  Floats made;
  CHECK(Worked(Run(add, {&a, &b}, nullptr, &made)));
  CHECK(made == Floats{11, 22, 13, 24});

  // Strides: a is read transposed, and every second float of `wide` is written.
  Array t({2, 2}, {1, 2, 3, 4}), wide({2, 4});
  int64_t transposed[] = {1, 2}, spread[] = {4, 2};
  t.tensor.strides = transposed;
  wide.tensor.strides = spread;
  wide.shape[1] = 2;
  CHECK(Worked(Run(add, {&t, &b}, &wide)));
  CHECK(wide.data == Floats{11, -1, 23, -1, 12, -1, 24, -1});
}

TEST_CASE("a given output is compared before the run") {
  const auto add = Make("Add", 2);
  const Array a({3}, {1, 2, 3});
  Array larger({4}), smaller({2}), other({3}), good({3});
  other.tensor.dtype = {0, 32, 1};
  CHECK(Failed(Run(add, {&a, &a}, &larger), OPKIT_INVALID_ARGUMENT, "[4]"));
  CHECK(Failed(Run(add, {&a, &a}, &smaller), OPKIT_INVALID_ARGUMENT, "[2]"));
  CHECK(Failed(Run(add, {&a, &a}, &other), OPKIT_TYPE_MISMATCH, "int32"));
  for (const Array* untouched : {&larger, &smaller, &other})
    for (const float element : untouched->data) CHECK(element == -1.f);
  CHECK(Worked(Run(add, {&a, &a}, &good)));
  CHECK(good.data == Floats{2, 4, 6});
}

TEST_CASE("attributes are JSON") {
  const Array x({3}, {-1, 0, 2});
  Floats y;
  CHECK(Worked(Run(Make("LeakyRelu", 1, R"({"alpha": 0.5})"), {&x}, nullptr, &y)));
  CHECK(y == Floats{-0.5, 0, 2});
  CHECK(Worked(Run(Make("LeakyRelu", 1, R"({"alpha": 2})"), {&x}, nullptr, &y)));
  CHECK(y == Floats{-2, 0, 2});
  CHECK(Worked(Run(Make("LeakyRelu", 1, R"({"alpha": {"float": 3}})"), {&x}, nullptr, &y)));
  CHECK(y == Floats{-3, 0, 2});
  const Array m({1, 3}, {1, 2, 3});
  CHECK(Worked(Run(Make("Transpose", 1, R"({"perm": [1, 0]})"), {&m}, nullptr, &y)));
  CHECK(y == Floats{1, 2, 3});

  opkit_host_operator* made = nullptr;
  const auto fails = [&](const char* attributes, opkit_status status, const char* part) {
    CHECK(Failed(opkit_host_make("LeakyRelu", 1, attributes, nullptr, &made), status, part));
    CHECK(made == nullptr);
  };
  fails("{\"alpha\": ", OPKIT_INVALID_ARGUMENT, "attributes: the document is not JSON");
  fails("[1]", OPKIT_INVALID_ARGUMENT, "attributes: expected an object, found array");
  fails("{\"alhpa\": 1}", OPKIT_INVALID_ARGUMENT, "did you mean 'alpha'");
  fails("{\"alpha\": null}", OPKIT_INVALID_ARGUMENT, "attributes.alpha: expected a number");
  fails("{\"alpha\": [1, \"a\"]}", OPKIT_INVALID_ARGUMENT, "attributes.alpha");
  CHECK(opkit_host_make("LeakyRelu", 1, "{\"alpha\": \"a\"}", nullptr, &made) != OPKIT_OK);
  CHECK(Has(ErrorText(), "alpha"));
}

TEST_CASE("a wrong call is a status and a text") {
  opkit_host_operator* made = nullptr;
  CHECK(Failed(opkit_host_make("Rleu", 1, nullptr, nullptr, &made), OPKIT_NOT_FOUND, "Relu"));
  CHECK(
      Failed(opkit_host_make("Relu", 2, nullptr, nullptr, &made), OPKIT_INVALID_ARGUMENT, "Relu"));
  CHECK(Failed(opkit_host_make("Relu", UINT64_MAX, nullptr, nullptr, &made), OPKIT_INVALID_ARGUMENT,
               "are more than"));
  CHECK(Failed(opkit_host_make("Relu", 1, nullptr, "{\"presnt\": []}", &made),
               OPKIT_INVALID_ARGUMENT, "did you mean 'present'"));
  CHECK(Failed(opkit_host_make("Split", 1, nullptr, "{\"num_outputs\": 2000000000}", &made),
               OPKIT_OUT_OF_RANGE, "options.num_outputs: is 2000000000, more than"));
  CHECK(Failed(opkit_host_make("Relu", 1, nullptr, "{\"present\": [true, true]}", &made),
               OPKIT_INVALID_ARGUMENT, "options.present: has 2 elements for 1 inputs"));

  const auto add = Make("Add", 2);
  const Array a({3}, {1, 2, 3}), five({5});
  Array y({3});
  CHECK(Failed(Run(add, {&a}, &y), OPKIT_INVALID_ARGUMENT, "expected 2 inputs, found 1"));
  CHECK(Failed(Run(add, {&a, nullptr}, &y), OPKIT_INVALID_ARGUMENT, "input 1 is null"));
  CHECK(Failed(Run(add, {&a, &five}, nullptr), OPKIT_INVALID_ARGUMENT, "5"));
  Array bad({3});
  const auto fails = [&](opkit_status status, const char* part) {
    CHECK(Failed(Run(add, {&a, &bad}, &y), status, part));
    bad.tensor = Array({3}).tensor;
    bad.tensor.data = bad.data.data();
    bad.tensor.shape = bad.shape.data();
  };
  bad.tensor.data = nullptr;
  fails(OPKIT_INVALID_ARGUMENT, "input 1 has elements, but its data is null");
  bad.tensor.ndim = -1;
  fails(OPKIT_INVALID_ARGUMENT, "input 1: a tensor has ndim -1");
  bad.tensor.ndim = 1 << 30;
  fails(OPKIT_INVALID_ARGUMENT, "32 axes are the most");
  bad.tensor.shape = nullptr;
  fails(OPKIT_INVALID_ARGUMENT, "no shape");
  bad.tensor.dtype.lanes = 4;
  fails(OPKIT_UNSUPPORTED, "lanes 4");
  bad.tensor.dtype = {2, 64, 1};
  fails(OPKIT_TYPE_MISMATCH, "float64");
  bad.tensor.device.device_type = OPKIT_CUDA;
  fails(OPKIT_UNSUPPORTED, "runs on the CPU");
  int64_t negative[] = {-3};
  bad.tensor.shape = negative;
  fails(OPKIT_INVALID_ARGUMENT, "is negative");
  // Sizes that 64 bits do not count.
  int64_t huge[] = {INT64_MAX, 2, INT64_MAX}, small[] = {2, 2, 2};
  const auto three_axes = [&](int64_t* shape, int64_t* strides) {
    bad.tensor.ndim = 3;
    bad.tensor.shape = shape;
    bad.tensor.strides = strides;
    fails(OPKIT_OUT_OF_RANGE, "input 1: a tensor float32[");
  };
  three_axes(huge, nullptr);
  three_axes(huge, small);
  three_axes(small, huge);
  int64_t lowest[] = {1, INT64_MIN, 1};
  three_axes(small, lowest);
  for (const float element : y.data) CHECK(element == -1.f);
  fails(OPKIT_OK, "");  // the tensor is good again
}

TEST_CASE("an offset, negative strides and an address that is not aligned are read as they are") {
  const auto add = Make("Add", 2);
  const Array a({2}, {10, 20});
  Array x({4}, {1, 2, 3, 4});
  Floats y;
  x.shape[0] = 2;
  x.tensor.byte_offset = 4;
  CHECK(Worked(Run(add, {&a, &x}, nullptr, &y)));
  CHECK(y == Floats{12, 23});
  int64_t backwards[] = {-2};
  x.tensor.byte_offset = 12;
  x.tensor.strides = backwards;
  CHECK(Worked(Run(add, {&a, &x}, nullptr, &y)));
  CHECK(y == Floats{14, 22});
  Array bytes({4});
  std::memcpy(reinterpret_cast<char*>(bytes.data.data()) + 1, a.data.data(), 2 * sizeof(float));
  bytes.shape[0] = 2;
  bytes.tensor.byte_offset = 1;
  CHECK(Worked(Run(add, {&a, &bytes}, nullptr, &y)));
  CHECK(y == Floats{20, 40});
  CHECK(Worked(Run(add, {&a, &a}, &bytes)));  // written there too
  CHECK(std::memcmp(reinterpret_cast<char*>(bytes.data.data()) + 1, y.data(), 2 * sizeof(float)) ==
        0);
  int64_t none[] = {0};
  bytes.tensor.strides = none;
  CHECK(Failed(Run(add, {&a, &a}, &bytes), OPKIT_INVALID_ARGUMENT,
               "output 0 has stride 0 on axis 0"));
  CHECK(Worked(Run(add, {&a, &bytes}, nullptr, &y)));  // an input may have it
  CHECK(y == Floats{30, 40});
}

TEST_CASE("a handle of another kind, or one that is freed already, is an error") {
  auto add = Make("Add", 2);
  auto graph = Parse(kGraph);
  auto plan = Compile(graph);
  const auto wrong_plan = reinterpret_cast<opkit_host_plan*>(graph.get());
  const auto wrong_graph = reinterpret_cast<opkit_host_graph*>(add.get());
  const auto wrong_op = reinterpret_cast<opkit_host_operator*>(plan.get());
  const auto wrong_library = reinterpret_cast<opkit_host_library*>(plan.get());
  const auto is_other = [](opkit_status status, const char* argument, const char* kind) {
    CHECK(Failed(
        status, OPKIT_INVALID_ARGUMENT,
        "the argument '" + std::string(argument) + "' is the handle of a different kind: " + kind));
  };
  opkit_host_plan* made = nullptr;
  char* json = nullptr;
  is_other(opkit_host_run_plan(wrong_plan, 0, nullptr, 0, nullptr, nullptr), "plan", "graph");
  is_other(opkit_host_compile(wrong_graph, nullptr, &made), "graph", "operator");
  is_other(opkit_host_run(wrong_op, 0, nullptr, 0, nullptr, nullptr), "op", "plan");
  is_other(opkit_host_operators(wrong_library, &json), "library", "plan");
  is_other(opkit_host_unload(wrong_library), "library", "plan");
  CHECK(opkit_host_num_outputs(wrong_op) == 0);
  CHECK(opkit_host_graph_num_inputs(wrong_graph) == 0);
  opkit_host_free_plan(wrong_plan);
  CHECK(Has(ErrorText(), "the argument 'plan' is the handle of a different kind: graph"));
  const Array x({1, 2}, {1, 2});
  Floats y;
  CHECK(Worked(Run(add, {&x, &x}, nullptr, &y)));  // all of them still work
  CHECK(opkit_host_graph_num_inputs(graph.get()) == 1);

  opkit_host_free_plan(plan.get());
  opkit_host_free_plan(plan.release());
  CHECK(Has(ErrorText(), "the argument 'plan' is no handle, or one that is freed already"));
  opkit_host_free_graph(graph.get());
  opkit_host_free_graph(graph.release());
  CHECK(Has(ErrorText(), "the argument 'graph' is no handle"));
  opkit_host_free_operator(add.get());
  opkit_host_free_operator(add.release());
  CHECK(Has(ErrorText(), "the argument 'op' is no handle"));
}

TEST_CASE("null pointers are errors, and freeing null is allowed") {
  opkit_host_free_operator(nullptr);
  opkit_host_free_graph(nullptr);
  opkit_host_free_plan(nullptr);
  opkit_host_free_text(nullptr);
  CHECK(Worked(opkit_host_unload(nullptr)));
  CHECK(opkit_host_num_outputs(nullptr) == 0);
  CHECK(opkit_host_graph_num_inputs(nullptr) == 0);
  CHECK(opkit_host_graph_num_outputs(nullptr) == 0);

  const auto add = Make("Add", 2);
  const auto graph = Parse(kGraph);
  const auto plan = Compile(graph);
  const Array x({1, 2});
  const opkit_dl_tensor* inputs[] = {&x.tensor, &x.tensor};
  opkit_host_library* library = nullptr;
  opkit_host_operator* op = nullptr;
  opkit_host_graph* other = nullptr;
  opkit_host_plan* other_plan = nullptr;
  char* text = nullptr;
  const char* name = nullptr;
  const auto is_null = [](opkit_status status, const char* argument) {
    CHECK(Failed(status, OPKIT_INVALID_ARGUMENT,
                 "the argument '" + std::string(argument) + "' is null"));
  };
  is_null(opkit_host_load(nullptr, nullptr, &library), "path");
  is_null(opkit_host_load("x", nullptr, nullptr), "library");
  is_null(opkit_host_operators(nullptr, nullptr), "json");
  is_null(opkit_host_make(nullptr, 1, nullptr, nullptr, &op), "op");
  is_null(opkit_host_make("Relu", 1, nullptr, nullptr, nullptr), "made");
  is_null(opkit_host_infer(nullptr, 0, nullptr, 0, nullptr), "op");
  is_null(opkit_host_infer(add.get(), 2, nullptr, 1, nullptr), "inputs");
  is_null(opkit_host_infer(add.get(), 2, inputs, 1, nullptr), "outputs");
  is_null(opkit_host_run(nullptr, 0, nullptr, 0, nullptr, nullptr), "op");
  opkit_dl_managed_tensor* made = nullptr;
  is_null(opkit_host_run(add.get(), 2, nullptr, 1, nullptr, &made), "inputs");
  CHECK(Failed(opkit_host_run(add.get(), 2, inputs, 1, nullptr, nullptr), OPKIT_INVALID_ARGUMENT,
               "the argument 'made' is null"));
  is_null(opkit_host_load_graph(nullptr, &other), "path");
  is_null(opkit_host_load_graph("x", nullptr), "graph");
  is_null(opkit_host_parse_graph(nullptr, 3, nullptr, &other), "bytes");
  is_null(opkit_host_parse_graph("x", 1, nullptr, nullptr), "graph");
  is_null(opkit_host_describe_graph(nullptr, &text), "graph");
  is_null(opkit_host_describe_graph(graph.get(), nullptr), "json");
  is_null(opkit_host_graph_input(nullptr, 0, &name, nullptr), "graph");
  is_null(opkit_host_graph_output(graph.get(), 0, nullptr, nullptr), "name");
  is_null(opkit_host_compile(nullptr, nullptr, &other_plan), "graph");
  is_null(opkit_host_compile(graph.get(), nullptr, nullptr), "plan");
  is_null(opkit_host_run_plan(nullptr, 0, nullptr, 0, nullptr, nullptr), "plan");
  is_null(opkit_host_run_plan(plan.get(), 1, nullptr, 1, nullptr, &made), "inputs");
}

TEST_CASE("outputs are inferred before a run, with the elements of inputs or without") {
  const auto add = Make("Add", 2);
  Array a({4, 1}), b({3});
  a.tensor.data = nullptr;
  const opkit_dl_tensor* inputs[] = {&a.tensor, &b.tensor};
  opkit_value value{};
  CHECK(Failed(opkit_host_infer(add.get(), 2, inputs, 1, &value), OPKIT_INVALID_ARGUMENT,
               "set it to sizeof(opkit_value)"));
  value.size = sizeof value;
  REQUIRE(Worked(opkit_host_infer(add.get(), 2, inputs, 1, &value)));
  CHECK(value.present == 1);
  CHECK(value.dtype == OPKIT_FLOAT32);
  REQUIRE(value.rank == 2);
  CHECK(value.dims[0] == 4);
  CHECK(value.dims[1] == 3);
  b.shape[0] = 2;
  a.shape[1] = 5;
  CHECK(opkit_host_infer(add.get(), 2, inputs, 1, &value) == OPKIT_INVALID_ARGUMENT);

  // Reshape: the second input has the new shape.
  const auto reshape = Make("Reshape", 2);
  Array x({2, 3});
  Array shape({2});
  int64_t wanted[] = {3, 2};
  shape.tensor.dtype = {0, 64, 1};
  shape.tensor.data = wanted;
  inputs[0] = &x.tensor, inputs[1] = &shape.tensor;
  REQUIRE(Worked(opkit_host_infer(reshape.get(), 2, inputs, 1, &value)));
  REQUIRE(value.rank == 2);
  CHECK(value.dims[0] == 3);
  CHECK(value.dims[1] == 2);
  shape.tensor.data = nullptr;
  REQUIRE(Worked(opkit_host_infer(reshape.get(), 2, inputs, 1, &value)));
  CHECK((value.rank == -1 || value.dims[0] == -1));
}

TEST_CASE("optional inputs may be left out") {
  const Array x({3}, {-2, 0.5, 9}), low({}, {0}), high({}, {1});
  const auto clip = Make("Clip", 3, nullptr, R"({"present": [true, false, true]})");
  Floats y;
  CHECK(Worked(Run(clip, {&x, nullptr, &high}, nullptr, &y)));
  CHECK(y == Floats{-2, 0.5, 1});
  CHECK(Failed(Run(clip, {&x, &low, &high}, nullptr), OPKIT_INVALID_ARGUMENT,
               "input 1 is given, but the operator was made without it"));
}

TEST_CASE("operators are listed as JSON") {
  char* json = nullptr;
  REQUIRE(Worked(opkit_host_operators(nullptr, &json)));
  const std::string text = Owned<char>(json).get();
  CHECK(Has(text, R"("name":"Elu")"));
  CHECK(Has(text, R"({"name":"alpha","doc":)"));
  CHECK(Has(text, R"("type":"float","required":false,"default":1.0)"));
  CHECK(!Has(text, "ConvertLayout"));
}

TEST_CASE("a library is loaded and unloaded, but not while it is used") {
  opkit_host_library *library = nullptr, *again = nullptr;
  CHECK(Failed(opkit_host_load("no/such.so", nullptr, &library), OPKIT_IO, "no/such.so"));
  CHECK(library == nullptr);
  CHECK(Failed(opkit_host_load(OPKIT_TEST_PLAIN_C, "{\"own_copi\": true}", &library),
               OPKIT_INVALID_ARGUMENT, "did you mean 'own_copy'"));
  REQUIRE(Worked(opkit_host_load(OPKIT_TEST_PLAIN_C, nullptr, &library)));
  REQUIRE(Worked(opkit_host_load(OPKIT_TEST_PLAIN_C, nullptr, &again)));
  CHECK(again != library);
  char* json = nullptr;
  REQUIRE(Worked(opkit_host_operators(library, &json)));
  CHECK(Has(Owned<char>(json).get(), R"([{"name":"c_scale","doc":"scale * x, written in C.)"));

  CHECK(Worked(opkit_host_unload(again)));  // the other handle keeps it
  auto scale = Make("c_scale", 1, R"({"scale": 3})");
  const Array x({2}, {1, 2});
  Floats y;
  CHECK(Worked(Run(scale, {&x}, nullptr, &y)));
  CHECK(y == Floats{3, 6});
  CHECK(Failed(opkit_host_unload(library), OPKIT_FAILED_PRECONDITION, "alive"));
  CHECK(Worked(Run(scale, {&x}, nullptr, &y)));  // nothing has changed
  scale.reset();
  CHECK(Worked(opkit_host_unload(library)));
  opkit_host_operator* made = nullptr;
  CHECK(opkit_host_make("c_scale", 1, nullptr, nullptr, &made) == OPKIT_NOT_FOUND);
}

TEST_CASE("a source is compiled, and compiled again after a change") {
  const TemporaryFolder folder;
  std::string source = ReadFile(OPKIT_TEST_ROOT "/examples/library/plain_c.c");
  const std::string path = folder.Write("scale.c", source);
  const std::string options = R"({"flags": ["-O0"], "compiler": ")" OPKIT_TEST_CC
                              R"(", "cache_dir": ")" +
                              folder.path() + R"("})";
  opkit_host_library *library = nullptr, *again = nullptr, *newer = nullptr;
  const auto load = [&](opkit_host_library** loaded) {
    return opkit_host_load(path.c_str(), options.c_str(), loaded);
  };
  REQUIRE(Worked(load(&library)));
  REQUIRE(Worked(load(&again)));
  CHECK(Worked(opkit_host_unload(again)));
  const Array x({2}, {1, 2});
  Floats y;
  auto scale = Make("c_scale", 1);
  CHECK(Worked(Run(scale, {&x}, nullptr, &y)));
  CHECK(y == Floats{1, 2});

  folder.Write("scale.c", "int broken = ;\n");
  CHECK(Failed(load(&newer), OPKIT_INVALID_ARGUMENT, "scale.c:1:14: error: expected"));
  CHECK(Has(ErrorText(), "its command: " OPKIT_TEST_CC " -O2 -fPIC -shared "));
  folder.Write("scale.c", "int no_library;\n");
  CHECK(Failed(load(&newer), OPKIT_FAILED_PRECONDITION, "replaces it"));
  CHECK(newer == nullptr);
  scale.reset();
  CHECK(Failed(load(&newer), OPKIT_INVALID_ARGUMENT, "opkit_library_entry"));
  char* json = nullptr;  // the handle is as it was
  REQUIRE(Worked(opkit_host_operators(library, &json)));
  CHECK(Has(Owned<char>(json).get(), "c_scale"));

  source.replace(source.find("? 1\n"), 3, "? 5");
  folder.Write("scale.c", source);
  REQUIRE(Worked(load(&newer)));
  CHECK(Worked(Run(Make("c_scale", 1), {&x}, nullptr, &y)));
  CHECK(y == Floats{5, 10});
  CHECK(Failed(opkit_host_operators(library, &json), OPKIT_FAILED_PRECONDITION, "unloaded"));
  CHECK(Worked(opkit_host_unload(library)));  // the one that was replaced
  CHECK(Worked(Run(Make("c_scale", 1), {&x}, nullptr, &y)));
  CHECK(Worked(opkit_host_unload(newer)));
  CHECK(Failed(opkit_host_unload(newer), OPKIT_INVALID_ARGUMENT, "freed already"));
  opkit_host_operator* made = nullptr;
  CHECK(opkit_host_make("c_scale", 1, nullptr, nullptr, &made) == OPKIT_NOT_FOUND);

  CHECK(Failed(opkit_host_load(OPKIT_TEST_PLAIN_C, "{\"flags\": []}", &library),
               OPKIT_INVALID_ARGUMENT, "options.flags: is for a source"));
  CHECK(Failed(opkit_host_load(path.c_str(), "{\"compiler\": \"no_cc\"}", &library),
               OPKIT_NOT_FOUND, "the compiler 'no_cc'"));
  CHECK(Failed(opkit_host_load("no/such.cc", nullptr, &library), OPKIT_IO, "no/such.cc"));
}

TEST_CASE("a backend is chosen for an operator") {
  // A kernel of Relu that is not Relu's.
  std::string source = ReadFile(OPKIT_TEST_ROOT "/examples/library/plain_c.c");
  source.replace(source.find("c_scale"), 7, "Relu");
  const TemporaryFolder folder;
  const std::string options = R"({"backend": "mine", "flags": ["-O0"], "compiler": ")" OPKIT_TEST_CC
                              R"(", "cache_dir": ")" +
                              folder.path() + R"("})";
  opkit_host_library* library = nullptr;
  REQUIRE(
      Worked(opkit_host_load(folder.Write("mine.c", source).c_str(), options.c_str(), &library)));
  const Array x({2}, {-1, 2});
  const auto relu = [&](const char* backends) {
    Floats y;
    CHECK(Worked(Run(Make("Relu", 1, nullptr, backends), {&x}, nullptr, &y)));
    return y;
  };
  CHECK(relu(nullptr) == Floats{0, 2});
  CHECK(relu(R"({"backends": ["mine"]})") == Floats{-1, 2});
  CHECK(relu(R"({"backends": ["eigen", "mine"]})") == Floats{0, 2});
  CHECK(Worked(opkit_host_unload(library)));
  opkit_host_operator* made = nullptr;
  CHECK(Failed(opkit_host_make("Relu", 1, nullptr, R"({"backends": ["egen"]})", &made),
               OPKIT_NOT_FOUND, "eigen"));
  CHECK(Failed(opkit_host_make("Relu", 1, nullptr, R"({"backends": "eigen"})", &made),
               OPKIT_INVALID_ARGUMENT, "options.backends"));
}

TEST_CASE("a graph is described, compiled and run") {
  const auto graph = Parse(kGraph);
  char* json = nullptr;
  REQUIRE(Worked(opkit_host_describe_graph(graph.get(), &json)));
  CHECK(std::string(Owned<char>(json).get()) ==
        R"({"inputs":[{"name":"x","dtype":"float32","shape":["N",2]}],)"
        R"("outputs":[{"name":"y","dtype":"float32","shape":["N",2]}],"num_nodes":2})");
  CHECK(opkit_host_graph_num_inputs(graph.get()) == 1);
  CHECK(opkit_host_graph_num_outputs(graph.get()) == 1);
  const char* name = nullptr;
  opkit_value input{}, output{};
  input.size = output.size = sizeof input;
  REQUIRE(Worked(opkit_host_graph_input(graph.get(), 0, &name, &input)));
  CHECK(std::string(name) == "x");
  REQUIRE(Worked(opkit_host_graph_output(graph.get(), 0, &name, &output)));
  CHECK(std::string(name) == "y");
  CHECK(output.dtype == OPKIT_FLOAT32);
  REQUIRE(output.rank == 2);
  CHECK(output.dims[0] < -1);
  CHECK(output.dims[0] == input.dims[0]);  // the same symbol
  CHECK(output.dims[1] == 2);
  CHECK(Failed(opkit_host_graph_input(graph.get(), 1, &name, nullptr), OPKIT_OUT_OF_RANGE,
               "there is no input 1"));
  CHECK(name == nullptr);

  const auto plan = Compile(graph, R"({"threads": 1, "backends": ["eigen"]})");
  const Array x({3, 2}, {-1, 1, 2, -2, 3, 4});
  Array y({3, 2}), larger({4, 2});
  const opkit_dl_tensor *inputs[] = {&x.tensor}, *outputs[] = {&y.tensor};
  CHECK(Worked(opkit_host_run_plan(plan.get(), 1, inputs, 1, outputs, nullptr)));
  CHECK(y.data == Floats{0, 2, 4, 0, 6, 8});
  outputs[0] = &larger.tensor;
  CHECK(Failed(opkit_host_run_plan(plan.get(), 1, inputs, 1, outputs, nullptr),
               OPKIT_INVALID_ARGUMENT, "[4, 2]"));
  for (const float element : larger.data) CHECK(element == -1.f);
  opkit_dl_managed_tensor* made = nullptr;
  REQUIRE(Worked(opkit_host_run_plan(plan.get(), 1, inputs, 1, nullptr, &made)));
  const Owned<opkit_dl_managed_tensor> kept(made);
  REQUIRE(Worked(opkit_host_run_plan(plan.get(), 1, inputs, 1, nullptr, &made)));
  CHECK(Elements(Owned<opkit_dl_managed_tensor>(made).get()) == Floats{0, 2, 4, 0, 6, 8});
  CHECK(Elements(kept.get()) == Floats{0, 2, 4, 0, 6, 8});

  // Every second float of the output is written.
  Array wide({3, 4});
  int64_t spread[] = {4, 2};
  wide.tensor.strides = spread;
  wide.shape[1] = 2;
  outputs[0] = &wide.tensor;
  CHECK(Worked(opkit_host_run_plan(plan.get(), 1, inputs, 1, outputs, nullptr)));
  CHECK(wide.data == Floats{0, -1, 2, -1, 4, -1, 0, -1, 6, -1, 8, -1});
  inputs[0] = nullptr;
  CHECK(Failed(opkit_host_run_plan(plan.get(), 1, inputs, 1, outputs, nullptr),
               OPKIT_INVALID_ARGUMENT, "input 0 'x' is null"));
}

TEST_CASE("every given output of a graph is compared before the run") {
  const auto graph = Parse(R"({"format": "opkit graph", "version": 1,
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["N"]}],
    "nodes": [{"type": "Relu", "inputs": ["x"], "outputs": ["y"]},
              {"type": "Neg", "inputs": ["x"], "outputs": ["z"]}], "outputs": ["y", "z", "x"]})");
  const auto plan = Compile(graph);
  const Array x({3}, {1, 2, 3});
  Array y({3}), z({6}), same({3});
  int64_t two[] = {2};  // z has gaps, so that the run cannot write to it
  z.tensor.strides = two;
  const opkit_dl_tensor *inputs[] = {&x.tensor}, *outputs[] = {&y.tensor, &z.tensor, &same.tensor};
  const auto run = [&] { return opkit_host_run_plan(plan.get(), 1, inputs, 3, outputs, nullptr); };
  z.shape[0] = 2;
  CHECK(Failed(run(), OPKIT_INVALID_ARGUMENT, "[2]"));
  z.shape[0] = 3;
  same.shape[0] = 2;
  CHECK(Failed(run(), OPKIT_INVALID_ARGUMENT, "'x' of the graph is float32[3]"));
  same.shape[0] = 3;
  same.tensor.dtype = {0, 32, 1};
  CHECK(Failed(run(), OPKIT_TYPE_MISMATCH, "int32[3]"));
  CHECK(y.data == Floats(3, -1.f));
  CHECK(z.data == Floats(6, -1.f));
  same.tensor.dtype = {2, 32, 1};
  CHECK(Worked(run()));
  CHECK(y.data == Floats{1, 2, 3});
  CHECK(z.data == Floats{-1, -1, -2, -1, -3, -1});
  CHECK(same.data == Floats{1, 2, 3});
}

TEST_CASE("an output that is an input gets memory of its own") {
  const auto graph = Parse(R"({"format": "opkit graph", "version": 1,
    "inputs": [{"name": "x", "dtype": "float32", "shape": [2]}], "nodes": [], "outputs": ["x"]})");
  const auto plan = Compile(graph);
  Array x({2}, {1, 2}), y({2});
  const opkit_dl_tensor *inputs[] = {&x.tensor}, *outputs[] = {&y.tensor};
  CHECK(Worked(opkit_host_run_plan(plan.get(), 1, inputs, 1, outputs, nullptr)));
  CHECK(y.data == Floats{1, 2});
  opkit_dl_managed_tensor* made = nullptr;
  REQUIRE(Worked(opkit_host_run_plan(plan.get(), 1, inputs, 1, nullptr, &made)));
  const Owned<opkit_dl_managed_tensor> kept(made);
  CHECK(made->dl_tensor.data != x.tensor.data);
  x.data = {7, 7};
  CHECK(Elements(made) == Floats{1, 2});
}

TEST_CASE("a wrong graph or option is an error") {
  opkit_host_graph* graph = nullptr;
  const auto parse = [&](const std::string& text) {
    return opkit_host_parse_graph(text.data(), text.size(), nullptr, &graph);
  };
  CHECK(Failed(parse("{\"format\": "), OPKIT_INVALID_ARGUMENT, "not JSON"));
  CHECK(parse("neither JSON nor ONNX") == OPKIT_INVALID_ARGUMENT);
  CHECK(Failed(opkit_host_load_graph("no/such.onnx", &graph), OPKIT_IO, "no/such.onnx"));
  const TemporaryFolder folder;
  CHECK(Failed(opkit_host_load_graph(folder.Write("bad.json", "{").c_str(), &graph),
               OPKIT_INVALID_ARGUMENT, "bad.json"));
  CHECK(graph == nullptr);
  REQUIRE(Worked(opkit_host_load_graph(folder.Write("good.json", kGraph).c_str(), &graph)));
  const Owned<opkit_host_graph> good(graph);

  opkit_host_plan* plan = nullptr;
  const auto fails = [&](const char* options, opkit_status status, const char* part) {
    CHECK(Failed(opkit_host_compile(good.get(), options, &plan), status, part));
    CHECK(plan == nullptr);
  };
  fails("{", OPKIT_INVALID_ARGUMENT, "options: the document is not JSON");
  fails(R"({"thread": 1})", OPKIT_INVALID_ARGUMENT, "did you mean 'threads'");
  fails(R"({"threads": -1})", OPKIT_OUT_OF_RANGE, "options.threads");
  fails(R"({"backends": ["egen"]})", OPKIT_NOT_FOUND, "eigen");
  fails(R"({"shapes": {"z": [1]}})", OPKIT_NOT_FOUND, "options.shapes.z");
  fails(R"({"shapes": {"x": [1, 3]}})", OPKIT_INVALID_ARGUMENT, "options.shapes.x");
  fails(R"({"tuning": "always"})", OPKIT_INVALID_ARGUMENT, "options.tuning");
  fails(R"({"shapes": {"x": [1000, 2]}, "capacity_bytes": 64})", OPKIT_OUT_OF_MEMORY, "64");
  const auto unknown = Parse(R"({"format": "opkit graph", "version": 1, "inputs": [],
    "nodes": [{"type": "Unknown", "inputs": [], "outputs": ["y"]}], "outputs": ["y"]})");
  CHECK(Failed(opkit_host_compile(unknown.get(), nullptr, &plan), OPKIT_NOT_FOUND, "Unknown"));
}

TEST_CASE("threads run one plan and one operator at once, and have errors of their own") {
  const auto graph = Parse(kGraph);
  const auto plan = Compile(graph, R"({"threads": 1})");
  const auto add = Make("Add", 2);
  CHECK(opkit_host_make(nullptr, 0, nullptr, nullptr, nullptr) == OPKIT_INVALID_ARGUMENT);
  const std::string mine = ErrorText();
  constexpr int kThreads = 4, kRuns = 200;
  std::vector<int> good(kThreads), bad(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      const auto number = static_cast<float>(thread + 1);
      const Array x({1, 2}, {number, -number}), wrong({thread + 5, 3});
      Array y({1, 2});
      const opkit_dl_tensor *one[] = {&x.tensor}, *two[] = {&x.tensor, &x.tensor};
      const opkit_dl_tensor *outputs[] = {&y.tensor}, *other[] = {&wrong.tensor};
      const std::string shape = "[" + std::to_string(thread + 5) + ", 3]";
      for (int run = 0; run < kRuns; ++run) {
        good[static_cast<size_t>(thread)] +=
            opkit_host_run_plan(plan.get(), 1, one, 1, outputs, nullptr) == OPKIT_OK &&
            y.data == Floats{2 * number, 0};
        good[static_cast<size_t>(thread)] +=
            opkit_host_run(add.get(), 2, two, 1, outputs, nullptr) == OPKIT_OK &&
            y.data == Floats{2 * number, -2 * number};
        bad[static_cast<size_t>(thread)] +=
            opkit_host_run(add.get(), 2, two, 1, other, nullptr) == OPKIT_INVALID_ARGUMENT &&
            Has(ErrorText(), shape);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(good == std::vector<int>(kThreads, 2 * kRuns));
  CHECK(bad == std::vector<int>(kThreads, kRuns));
  CHECK(ErrorText() == mine);
}

TEST_CASE("a profile is a table of the runs between its start and its end") {
  char* text = nullptr;
  CHECK(Failed(opkit_host_stop_profile(&text), OPKIT_FAILED_PRECONDITION, "no profile runs"));
  CHECK(text == nullptr);
  REQUIRE(Worked(opkit_host_start_profile()));
  CHECK(opkit_host_start_profile() == OPKIT_FAILED_PRECONDITION);
  const Array x({2}, {1, 2});
  Floats y;
  CHECK(Worked(Run(Make("Relu", 1), {&x}, nullptr, &y)));
  REQUIRE(Worked(opkit_host_stop_profile(&text)));
  CHECK(Has(Owned<char>(text).get(), "Relu"));
}

}  // namespace

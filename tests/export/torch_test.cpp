// The export to PyTorch, through a fake of libtorch's C functions (libraries/fake_torch.cc).
#include "opkit/export/torch.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"
#include "support/error_of.hpp"

namespace torch_test { namespace {

using namespace opkit;

template <class Context, class T>
void TorchAxpy(Context& ctx, In<"x", T> x, In<"y", T> y, Out<"z", T> z,
               Attr<"alpha", float> alpha) {
  const T a = static_cast<T>(alpha.value());
  if (!(alpha.value() < 1e9f)) Throw(ErrorCode::kOutOfRange, "alpha is ", alpha.value());
  ParallelFor(
      ctx, z.size(), [=](int64_t i) { z[i] = a * x[i] + y[i]; }, 100);
}
OPKIT_OP(TorchAxpy)
    .SameShape<"x", "y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext, float, double>();

// An optional input, and attributes of several types; one has no default.
template <class Context>
void TorchMixed(Context&, In<"x", float> x, OptionalIn<"bias", float> bias, Out<"out", double> out,
                Out<"count", int64_t> count, Attr<"axis", int64_t> axis, Attr<"is", bool> flag,
                const Attr<"text", std::string>& text,
                const Attr<"ints", std::vector<int64_t>>& ints,
                const Attr<"names", std::vector<std::string>>& names) {
  out[0] = x[0] + (bias ? bias[0] : 0.f);
  out[1] = flag ? 1 : 0;
  out[2] = static_cast<double>(text.value().size());
  out[3] = 0;
  for (const int64_t value : ints.value()) out[3] = 10 * out[3] + static_cast<double>(value);
  for (const std::string& name : names.value()) out[3] += 1000. * static_cast<double>(name.size());
  count[0] = axis;
}
OPKIT_OP(TorchMixed)
    .OutShape<"out">([](const InferenceContext&) { return Shape{4}; })
    .OutShape<"count">([](const InferenceContext&) { return Shape{1}; })
    .Default<"is">(true)
    .Default<"text">("say \"a\"")
    .Default<"ints">(std::vector<int64_t>{1, -2})
    .Default<"names">(std::vector<std::string>{})
    .Kernel<CPUContext>();

// Inputs and outputs of any number, tensors as attributes, and outputs of unknown shape.
class TorchReverseOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    for (int i = 0; i < InputSize(); ++i) {
      const Tensor& x = Input(InputSize() - 1 - i);
      Tensor* y = Output(i, x.shape(), x.dtype());
      for (int64_t k = 0; k < x.numel(); ++k)
        y->mutable_data<float>()[k] = x.data<float>()[k] + Added();
    }
    return true;
  }

 private:
  float Added() {
    float sum = 0;
    for (const Tensor& one : Arg<std::vector<Tensor>>("added", {})) sum += one.data<float>()[0];
    return sum;
  }
};
OPERATOR_SCHEMA(TorchReverse)
    .NumInputs(1, detail::CountRule::kAny)
    .NumOutputs(1, detail::CountRule::kAny)
    .SameNumberOfOutput()
    .Arg<std::vector<Tensor>>("added", "is added to each input")
    .Arg<std::string>("name", "says nothing", "none");
REGISTER_CPU_OPERATOR(TorchReverse, TorchReverseOp);

template <class Context>
void TorchNumber(Context&, Out<"out", int64_t> out, Attr<"value", int64_t> value) {
  out[0] = value;
}
OPKIT_OP(TorchNumber)
    .OutShape<"out">([](const InferenceContext&) { return Shape{1}; })
    .Kernel<CPUContext>();

class TorchStatefulOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(TorchStateful).NumInputs(1).NumOutputs(1).KeepsState().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(TorchStateful, TorchStatefulOp);

}}  // namespace torch_test

OPKIT_EXPORT_TORCH(TorchAxpy);
OPKIT_EXPORT_TORCH(TorchMixed);
OPKIT_EXPORT_TORCH(TorchReverse);
OPKIT_EXPORT_TORCH(TorchNumber);
OPKIT_EXPORT_TORCH(TorchStateful);

namespace torch_test { namespace {

using detail::TorchValue;
constexpr int32_t kFloat = 6, kDouble = 7;

// The fake library, loaded once. Torch's functions are found in it by name.
class Fake {
 public:
  Fake() {
    static void* const library = [] {
      CHECK(std::string(opkit_torch_register_TorchAxpy()) == "this process has not loaded PyTorch");
      detail::g_torch_library = OPKIT_TEST_FAKE_TORCH;
      return dlopen(OPKIT_TEST_FAKE_TORCH, RTLD_NOW);
    }();
    library_ = library;
    REQUIRE(library_);
    CHECK(opkit_torch_register_TorchAxpy() == nullptr);
    CHECK(opkit_torch_register_TorchMixed() == nullptr);
    CHECK(opkit_torch_register_TorchReverse() == nullptr);
  }
  template <class Function>
  Function* Get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }
  int alive() const { return Get<int()>("fake_torch_alive")(); }
  // Makes the call of torch's functions that comes as number `calls` fail; 0: none.
  void FailIn(int calls) const { Get<void(int)>("fake_torch_fail_in")(calls); }
  bool has(const char* key_and_op) const {
    return Get<detail::TorchKernel(const char*)>("fake_torch_kernel")(key_and_op);
  }
  int loops() const { return Get<int()>("fake_torch_loops")(); }
  std::string schemas() const { return Get<const char*()>("fake_torch_schemas")(); }

  template <class T>
  TorchValue Tensor(int32_t dtype, const std::vector<T>& values, int64_t stride = 1) const {
    const auto size = static_cast<int64_t>(values.size());
    void* tensor = nullptr;
    Get<int32_t(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, void**)>(
        "aoti_torch_empty_strided")(1, &size, &stride, dtype, 0, 0, &tensor);
    for (int64_t i = 0; i < size; ++i) Data<T>(tensor)[i * stride] = values[static_cast<size_t>(i)];
    return reinterpret_cast<TorchValue>(tensor);
  }
  template <class T>
  T* Data(void* tensor) const {
    void* data = nullptr;
    Get<int32_t(void*, void**)>("aoti_torch_get_data_ptr")(tensor, &data);
    return static_cast<T*>(data);
  }
  // Reads a result, and deletes it.
  template <class T>
  std::vector<T> Take(TorchValue value) const {
    auto* tensor = reinterpret_cast<void*>(value);
    int64_t* sizes = nullptr;
    Get<int32_t(void*, int64_t**)>("aoti_torch_get_sizes")(tensor, &sizes);
    const T* data = Data<T>(tensor);
    std::vector<T> values(data, data + sizes[0]);
    Get<int32_t(void*)>("aoti_torch_delete_tensor_object")(tensor);
    return values;
  }
  // Reads a list, and deletes it; its items are the caller's.
  std::vector<TorchValue> TakeList(TorchValue value) const {
    auto* list = reinterpret_cast<void*>(value);
    size_t size = 0;
    Get<int32_t(void*, size_t*)>("torch_list_size")(list, &size);
    std::vector<TorchValue> items(size);
    for (size_t i = 0; i < size; ++i)
      Get<int32_t(void*, size_t, TorchValue*)>("torch_list_get_item")(list, i, &items[i]);
    Get<int32_t(void*)>("torch_delete_list")(list);
    return items;
  }
  TorchValue String(const std::string& text) const {
    void* string = nullptr;
    Get<int32_t(const char*, size_t, void**)>("torch_new_string_handle")(text.data(), text.size(),
                                                                         &string);
    return reinterpret_cast<TorchValue>(string);
  }
  TorchValue List(const std::vector<TorchValue>& values) const {
    void* list = nullptr;
    Get<int32_t(size_t, void**)>("torch_new_list_reserve_size")(values.size(), &list);
    for (const TorchValue value : values)
      Get<int32_t(void*, TorchValue)>("torch_list_push_back")(list, value);
    return reinterpret_cast<TorchValue>(list);
  }
  static TorchValue Some(TorchValue value) {
    return reinterpret_cast<TorchValue>(new TorchValue(value));
  }
  std::vector<TorchValue> Call(const char* op, std::vector<TorchValue> stack,
                               uint64_t results) const {
    const auto kernel = Get<detail::TorchKernel(const char*)>("fake_torch_kernel")(op);
    const uint64_t count = stack.size();
    stack.resize((std::max)(count, results));
    kernel(stack.data(), count, results);
    stack.resize(results);
    return stack;
  }

 private:
  void* library_;
};

TorchValue Number(double value) { return std::bit_cast<TorchValue>(value); }

TEST_CASE("torch's schema is made from the operator's") {
  const Fake torch;
  CHECK(torch.schemas() ==
        "opkit::TorchAxpy(Tensor x, Tensor y, float alpha=1.) -> Tensor\n"
        "opkit::TorchMixed(Tensor x, Tensor? bias=None, *, int axis, bool is_=True, "
        "str text=\"say \\\"a\\\"\", int[] ints=[1, -2], str[]? names=None) -> (Tensor, Tensor)\n"
        "opkit::TorchReverse(Tensor[] inputs, Tensor[]? added=None, str name=\"none\") -> "
        "Tensor[]\n");
  CHECK(std::string(opkit_torch_register_TorchStateful())
            .starts_with("operator TorchStateful keeps state between its runs, and torch's"));
}

TEST_CASE("torch calls an operator on dense and strided tensors of two dtypes") {
  const Fake torch;
  const int before = torch.alive();
  auto out = torch.Call("CPU TorchAxpy",
                        {torch.Tensor<float>(kFloat, {0, 1, 2}, 2),
                         torch.Tensor<float>(kFloat, {1, 1, 1}), Number(2)},
                        1);
  CHECK(torch.Take<float>(out[0]) == std::vector<float>{1, 3, 5});
  out = torch.Call("CPU TorchAxpy",
                   {torch.Tensor<double>(kDouble, {0, 1, 2}),
                    torch.Tensor<double>(kDouble, {1, 1, 1}), Number(3)},
                   1);
  CHECK(torch.Take<double>(out[0]) == std::vector<double>{1, 4, 7});
  CHECK(torch.alive() == before);
}

TEST_CASE("loops run on torch's threads") {
  const Fake torch;
  const int before = torch.loops();
  const std::vector<float> x(1000, 2);
  const auto out =
      torch.Call("CPU TorchAxpy", {torch.Tensor(kFloat, x), torch.Tensor(kFloat, x), Number(1)}, 1);
  CHECK(torch.Take<float>(out[0]) == std::vector<float>(1000, 4));
  CHECK(torch.loops() == before + 1);
}

TEST_CASE("an optional input, strings and lists come from torch") {
  const Fake torch;
  const int before = torch.alive();
  const auto call = [&](TorchValue bias) {
    return torch.Call(
        "CPU TorchMixed",
        {torch.Tensor<float>(kFloat, {3}), bias, 7, 0, torch.String("four"), torch.List({4, 5}),
         Fake::Some(torch.List({torch.String("a"), torch.String("bc")}))},
        2);
  };
  auto out = call(Fake::Some(torch.Tensor<float>(kFloat, {10})));
  CHECK(torch.Take<double>(out[0]) == std::vector<double>{13, 0, 4, 3045});
  CHECK(torch.Take<int64_t>(out[1]) == std::vector<int64_t>{7});
  out = call(0);
  CHECK(torch.Take<double>(out[0]) == std::vector<double>{3, 0, 4, 3045});
  CHECK(torch.Take<int64_t>(out[1]) == std::vector<int64_t>{7});
  CHECK(torch.alive() == before);
}

TEST_CASE("a wrong call is an Error, and leaks nothing of torch's") {
  const Fake torch;
  const int before = torch.alive();
  const auto error = [&](TorchValue x, TorchValue y, double alpha) {
    return ErrorOf([&] { torch.Call("CPU TorchAxpy", {x, y, Number(alpha)}, 1); });
  };
  const auto x = [&] { return torch.Tensor<float>(kFloat, {0, 1, 2}); };
  CHECK(error(x(), x(), 2e9).code() == ErrorCode::kOutOfRange);
  CHECK(error(x(), torch.Tensor<float>(kFloat, {1}), 1).code() == ErrorCode::kInvalidArgument);
  CHECK(error(x(), torch.Tensor<double>(kDouble, {1, 1, 1}), 1).code() == ErrorCode::kTypeMismatch);
  CHECK(error(x(), torch.Tensor<float>(99, {1, 1, 1}), 1).message() ==
        "torch's scalar type 99 is not a dtype of opkit");
  CHECK(torch.alive() == before);
}

// A call with all kinds of torch's objects, in which the call of torch's functions that comes as
// number `fail_in` fails. Returns its results.
std::vector<float> Reverse(const Fake& torch, int fail_in = 0) {
  const auto one = [&](float value) { return torch.Tensor<float>(kFloat, {value}); };
  const std::vector<TorchValue> stack{torch.List({one(1), one(2)}),
                                      Fake::Some(torch.List({one(10), one(20)})),
                                      torch.String("a name")};
  torch.FailIn(fail_in);
  std::vector<TorchValue> out;
  try {
    out = torch.Call("CPU TorchReverse", stack, 1);
  } catch (...) {
    torch.FailIn(0);
    throw;
  }
  torch.FailIn(0);
  std::vector<float> values;
  for (const TorchValue value : torch.TakeList(out[0]))
    values.push_back(torch.Take<float>(value)[0]);
  return values;
}

TEST_CASE("lists of tensors go to an operator, and come from it") {
  const Fake torch;
  const int before = torch.alive();
  CHECK(Reverse(torch) == std::vector<float>{32, 31});
  CHECK(torch.alive() == before);
}

TEST_CASE("a failure of any function of torch is an Error, and leaks nothing of torch's") {
  const Fake torch;
  const int before = torch.alive();
  int failed = 0;
  for (bool fails = true; fails; failed += fails) {
    CAPTURE(failed);
    try {
      const std::vector<float> values = Reverse(torch, failed + 1);
      CHECK(values == std::vector<float>{32, 31});
      fails = false;
    } catch (const Error& error) {
      CHECK(error.message().starts_with("PyTorch failed to "));
    }
    REQUIRE(torch.alive() == before);
  }
  CHECK(failed > 30);
}

TEST_CASE("a registration that torch refuses is undone, and may be repeated") {
  const Fake torch;
  const int before = torch.alive();
  CHECK(!torch.has("CompositeExplicitAutograd TorchNumber"));
  const std::string schemas = torch.schemas();
  for (int call = 1; call <= 4; ++call) {
    torch.FailIn(call);
    const char* error = opkit_torch_register_TorchNumber();
    torch.FailIn(0);
    REQUIRE(error);
    CHECK(std::string(error).starts_with("PyTorch failed to "));
    CHECK(torch.schemas() == schemas);
    CHECK(torch.alive() == before);
  }
  CHECK(opkit_torch_register_TorchNumber() == nullptr);
  const auto out = torch.Call("CompositeExplicitAutograd TorchNumber", {7}, 1);
  CHECK(torch.Take<int64_t>(out[0]) == std::vector<int64_t>{7});
}

}}  // namespace torch_test

// DispatchHelper: by dtype or by number, to the operator's own template members.
#include "opkit/compat/dispatch_helper.hpp"

#include <doctest/doctest.h>

#include "opkit/op/operator.hpp"
#include "support/error_of.hpp"

namespace dispatch_helper_test { namespace {

using opkit::CPUContext;
using opkit::DispatchHelper;
using opkit::DType;
using opkit::ErrorCode;
using opkit::FixedValues;
using opkit::GenericTensorImplementation;
using opkit::Operator;
using opkit::OperatorDef;
using opkit::Tensor;
using opkit::TensorTypes;
using opkit::Workspace;

class TypedOp final : public Operator<CPUContext> {
 public:
  TypedOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), kind_(GetSingleArgument<std::string>("kind", "")) {}

  bool RunOnDevice() override {
    if (kind_ == "generic")
      return DispatchHelper<TensorTypes<float, GenericTensorImplementation>>::call(this, Input(0));
    if (kind_ == "extra")
      return DispatchHelper<TensorTypes<float, double>, int8_t>::call(this, Input(0));
    if (kind_ == "dtype")
      return DispatchHelper<TensorTypes<float, double>>::call(this, Input(0).dtype());
    return DispatchHelper<TensorTypes<float, double, opkit::float16>>::call(this, Input(0));
  }
  template <class T>
  bool DoRunWithType() {
    ran = opkit::StrCat("one ", opkit::kDTypeOf<T>);
    return true;
  }
  template <class Extra, class T>
  bool DoRunWithType() {
    ran = opkit::StrCat("two ", opkit::kDTypeOf<Extra>, " ", opkit::kDTypeOf<T>);
    return true;
  }
  bool DoRunWithOtherTypeImpl() {
    ran = "other";
    return false;
  }
  template <class... Extra>
  bool DoRunWithOtherType() {
    return DoRunWithOtherTypeImpl();
  }
  std::string ran;

 private:
  std::string kind_;
};

struct Typed {
  Workspace ws;
  explicit Typed(Tensor x) { *ws.CreateTensor("X") = std::move(x); }
  TypedOp Make(const char* kind) {
    return TypedOp(OperatorDef("Typed", {"X"}, {}).Arg("kind", kind), &ws);
  }
};

template <class T>
std::string Ran(const char* kind) {
  Typed typed(Tensor({1}, opkit::kDTypeOf<T>));
  TypedOp op(OperatorDef("Typed", {"X"}, {}).Arg("kind", kind), &typed.ws);
  op.Run();
  return op.ran;
}

TEST_CASE("a tensor's dtype chooses the member") {
  CHECK(Ran<float>("") == "one float32");
  CHECK(Ran<double>("") == "one float64");
  CHECK(Ran<opkit::float16>("") == "one float16");
  CHECK(Ran<double>("dtype") == "one float64");
}

TEST_CASE("extra types come first") { CHECK(Ran<double>("extra") == "two int8 float64"); }

TEST_CASE("the last resort takes every other dtype, and its answer counts") {
  CHECK(Ran<float>("generic") == "one float32");
  Typed typed(Tensor({1}, DType::kInt64));
  TypedOp op(OperatorDef("Typed", {"X"}, {}).Arg("kind", "generic"), &typed.ws);
  CHECK(Contains(ErrorOf([&] { op.Run(); }).message(), "RunOnDevice returned false"));
  CHECK(op.ran == "other");
}

TEST_CASE("an unsupported dtype is an Error that lists the supported ones and names the input") {
  Typed typed(Tensor({1}, DType::kInt64));
  TypedOp op(OperatorDef("Typed", {"X"}, {}), &typed.ws);
  const opkit::Error error = ErrorOf([&] { op.Run(); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(error.message() ==
        "operator Typed has no code for dtype int64; it supports [float32, "
        "float64, float16]");
  CHECK(Contains(error.what(), "while accessing input 0 'X'"));
}

class FixedOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const auto value = GetSingleArgument<int64_t>("value", 0);
    return DispatchHelper<FixedValues<1, 2, 4>>::call(this, value) &&
           DispatchHelper<FixedValues<8>, float>::call(this, value);
  }
  template <int64_t N>
  bool DoRunWithValue() {
    ran += opkit::StrCat(N, " ");
    return true;
  }
  template <class T, int64_t N>
  bool DoRunWithValue() {
    ran += opkit::StrCat(opkit::kDTypeOf<T>, " ", N);
    return true;
  }
  std::string ran;
};

TEST_CASE("a number chooses the member, and -1 stands for all others") {
  Workspace ws;
  auto ran = [&](int64_t value) {
    FixedOp op(OperatorDef("Fixed").Arg("value", value), &ws);
    op.Run();
    return op.ran;
  };
  CHECK(ran(1) == "1 float32 -1");
  CHECK(ran(4) == "4 float32 -1");
  CHECK(ran(3) == "-1 float32 -1");
  CHECK(ran(8) == "-1 float32 8");
}

}  // namespace
}  // namespace dispatch_helper_test

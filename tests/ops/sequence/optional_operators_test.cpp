// Optional, OptionalGetElement and OptionalHasElement.
#include "opkit/ops/sequence/optional_operators.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace optional_operators_test { namespace {

using namespace opkit;

bool Has(const std::vector<Tensor>& inputs) {
  return *Invoke("OptionalHasElement", inputs, {}, {.device = Device{}})[0].data<bool>();
}
Tensor Get(const Tensor& value) { return Invoke("OptionalGetElement", {value})[0]; }

TEST_CASE("an optional value has a tensor, a sequence or nothing") {
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  const Tensor present = Invoke("Optional", {x})[0];
  CHECK(present.dtype() == DType::kOptional);
  CHECK(Has({present}));
  CHECK(Get(present).ToVector<float>() == std::vector<float>{1, 2});
  const Tensor sequence = Invoke("Optional", {MakeSequence({x})})[0];
  CHECK(ElementsOf(Get(sequence))[0].dim(0) == 2);
  const Tensor absent = Invoke("Optional", {}, {}, {.device = Device{}})[0];
  CHECK(absent.shape() == Shape{0});
  CHECK(!Has({absent}));
  CHECK(!Has({}));
  CHECK(ErrorOf([&] { Get(absent); }).message() ==
        "OptionalGetElement: the optional value is absent");
}

TEST_CASE("a tensor and a sequence are their own elements") {
  const Tensor x = Tensor::Scalar(3.f);
  CHECK(Has({x}));
  CHECK(Has({MakeSequence({})}));
  CHECK(Get(x).data<float>()[0] == 3);
  CHECK(Get(MakeSequence({x})).dtype() == DType::kSequence);
  CHECK(ErrorOf([&] { Invoke("Optional", {MakeOptional(x)}); }).code() == ErrorCode::kTypeMismatch);
}

TEST_CASE("the types of elements are known before the run") {
  const auto infer = [](const std::string& op, const TensorInfo& input) {
    const OperatorDef def(op, {"x"}, {"y"});
    return ToString(OpRegistry::Global().GetSchema(op).InferOutputs(def, {input})[0]);
  };
  CHECK(infer("Optional", TensorInfo(DType::kString, {2})) == "optional<string>[1]");
  CHECK(infer("Optional", detail::SequenceInfo(DType::kFloat32)) == "optional<float32[]>[1]");
  TensorInfo value(DType::kOptional, {Dim()});
  value.element = DType::kInt64;
  CHECK(infer("OptionalGetElement", value) == "int64[rank unknown]");
  value.holds_sequence = true;
  CHECK(infer("OptionalGetElement", value) == "sequence<int64>[?]");
}

}  // namespace
}  // namespace optional_operators_test

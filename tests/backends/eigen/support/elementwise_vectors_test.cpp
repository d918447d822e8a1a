// Comparisons, logic, Where and Cast of the "eigen" backend against the plain operators.
#include <doctest/doctest.h>

#include <cmath>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/random.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "support/error_of.hpp"

namespace elementwise_vectors_test {
using namespace opkit;

namespace {

const char* const kComparisons[] = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"};
constexpr int64_t kOnnxTypes[] = {1, 6, 7, 9};  // float32, int32, int64, bool

void CheckSame(const std::string& op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  std::string node = op + " of";
  for (const Tensor& input : inputs) node += " " + ToString(input);
  INFO(node);
  const Tensor found = Invoke(op, inputs, args, {.backends = "eigen"})[0];
  const Tensor expected = Invoke(op, inputs, args, {.backends = "reference"})[0];
  REQUIRE(found.dtype() == expected.dtype());
  REQUIRE(found.shape() == expected.shape());
  CHECK((found.nbytes() == 0 || std::memcmp(found.raw_data(), expected.raw_data(),
                                            static_cast<size_t>(found.nbytes())) == 0));
}
// Numbers from -3 to 3, whole ones often; bytes of any value for bool.
Tensor Random(const Shape& shape, DType dtype, uint64_t seed) {
  if (dtype != DType::kBool) {
    Tensor whole = detail::MakeTestInputs({shape}, DType::kInt32, seed, -3, 4)[0];
    if (dtype == DType::kInt32) return whole;
    Tensor out(shape, dtype);
    PlainTypes::Visit(dtype, [&]<class T>() {
      for (int64_t i = 0; i < shape.numel(); ++i)
        out.mutable_data<T>()[i] = ConvertElement<T>(whole.data<int32_t>()[i]);
    });
    return out;
  }
  Tensor bools(shape, dtype);
  RandomGenerator random(seed);
  for (int64_t i = 0; i < shape.numel(); ++i)
    static_cast<uint8_t*>(bools.raw_mutable_data())[i] =
        static_cast<uint8_t>(random() % 2 ? random() : 0);
  return bools;
}

TEST_CASE("every length, every operand repeated or not") {
  for (const int64_t n : {0, 1, 2, 15, 16, 17, 31, 32, 33, 50}) {
    for (const Shape& a : {Shape{n}, Shape{1}})
      for (const Shape& b : {Shape{n}, Shape{1}}) {
        for (const char* op : kComparisons)
          for (const DType dtype : {DType::kFloat32, DType::kInt32, DType::kInt64, DType::kUInt8})
            CheckSame(op, {Random(a, dtype, 1), Random(b, dtype, 2)});
        for (const char* op : {"And", "Or"})
          CheckSame(op, {Random(a, DType::kBool, 3), Random(b, DType::kBool, 4)});
        for (const Shape& c : {Shape{n}, Shape{1}})
          for (const DType dtype : {DType::kFloat32, DType::kInt64, DType::kInt16})
            CheckSame("Where",
                      {Random(a, DType::kBool, 5), Random(b, dtype, 6), Random(c, dtype, 7)});
      }
    CheckSame("Not", {Random({n}, DType::kBool, 8)});
    for (const int64_t to : kOnnxTypes)
      for (const DType from : {DType::kFloat32, DType::kInt32, DType::kInt64, DType::kBool})
        CheckSame("Cast", {Random({n}, from, 9)}, {{"to", to}});
  }
}

TEST_CASE("NaN, infinity and the ends of integers") {
  const Tensor a = Tensor::From<float>({6}, {NAN, 1, NAN, INFINITY, 0, -INFINITY});
  const Tensor b = Tensor::From<float>({6}, {NAN, NAN, 1, INFINITY, -0.f, INFINITY});
  for (const char* op : kComparisons) CheckSame(op, {a, b});
  CheckSame("Where", {Tensor::From<bool>({6}, {true, false, true, false, true, false}), a, b});
  for (const int64_t to : kOnnxTypes) {
    CheckSame("Cast", {a}, {{"to", to}});
    CheckSame("Cast", {Tensor::From<int64_t>({4}, {INT64_MAX, INT64_MIN, 16777217, -1})},
              {{"to", to}});
    CheckSame("Cast", {Tensor::From<int32_t>({4}, {INT32_MAX, INT32_MIN, 16777217, -1})},
              {{"to", to}});
  }
}

TEST_CASE("large tensors give the same on one thread and on two") {
  const Tensor a = Random({300, 331}, DType::kInt32, 1), b = Random({331}, DType::kInt32, 2);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    const PoolScope scope(pool);
    CheckSame("Equal", {a, b});
    CheckSame("Cast", {a}, {{"to", 9}});
  }
}

TEST_CASE("an output in place of either input is right") {
  const Tensor a = Random({37}, DType::kBool, 1), b = Random({37}, DType::kBool, 2);
  for (const char* out : {"a", "b"}) {
    Workspace ws;
    ws.CreateTensor("a")->CopyFrom(a);
    ws.CreateTensor("b")->CopyFrom(b);
    OperatorDef def("And", {"a", "b"}, {out});
    CreateOperator(def.Backends("eigen"), &ws)->Run();
    const Tensor expected = Invoke("And", {a, b}, {}, {.backends = "reference"})[0];
    CHECK(std::memcmp(ws.GetTensor(out)->raw_data(), expected.raw_data(), 37) == 0);
  }
}

TEST_CASE("types without vectors are left to the plain operators") {
  auto dropped = [](const std::string& op, const std::vector<DType>& dtypes, Arguments args = {}) {
    OperatorDef def(op, {}, {"y"}, std::move(args));
    std::vector<TensorInfo> inputs;
    for (const DType dtype : dtypes) {
      def.Input(StrCat("x", inputs.size()));
      inputs.emplace_back(dtype, SymbolicShape{3});
    }
    const auto outputs = OpRegistry::Global().GetSchema(op).InferOutputs(def, inputs);
    const auto first = KernelCandidates(def, inputs, outputs)[0];
    CHECK(first.kernel->backend == "eigen");
    return first.dropped;
  };
  for (const char* op : kComparisons) CHECK(dropped(op, {DType::kInt32, DType::kInt32}).empty());
  for (const char* op : {"And", "Or"}) CHECK(dropped(op, {DType::kBool, DType::kBool}).empty());
  CHECK(dropped("Not", {DType::kBool}).empty());
  CHECK(dropped("Equal", {DType::kInt8, DType::kInt8}) ==
        "it computes float32 and int32 and int64, and input 0 is int8");
  CHECK(dropped("Where", {DType::kBool, DType::kFloat32, DType::kFloat32}).empty());
  CHECK_FALSE(dropped("Where", {DType::kBool, DType::kInt16, DType::kInt16}).empty());
  CHECK(dropped("Cast", {DType::kBool}, {{"to", 1}}).empty());
  CHECK(dropped("Cast", {DType::kFloat32}, {{"to", 6}}) == "it does not convert float32 to int32");
}

TEST_CASE("the operators keep the promises of their schemas, in every type") {
  for (const char* op : kComparisons) OPKIT_CHECK_OPERATOR(op);
  for (const char* op : {"And", "Not", "Or", "Where"}) OPKIT_CHECK_OPERATOR(op);
  for (const int64_t to : kOnnxTypes) {
    CheckOptions options;
    options.args = {{"to", to}};
    options.compare.gradient = false;  // a step is lost in a narrower type
    OPKIT_CHECK_OPERATOR("Cast", options);
  }
}

}  // namespace
}  // namespace elementwise_vectors_test

// Operators that move strings, alone and in plans.
#include "opkit/ops/support/moving_strings.hpp"

#include <doctest/doctest.h>

#include "opkit/core/sequence.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/all.hpp"
#include "support/error_of.hpp"

namespace moving_strings_test { namespace {

using namespace opkit;
using Strings = std::vector<std::string>;

const std::string kLong(100, 'x');  // longer than a string keeps in place
Tensor Texts(const Shape& shape, const Strings& texts) { return Tensor::From(shape, texts); }
Tensor List(std::initializer_list<int64_t> values) {
  return Tensor::From<int64_t>({static_cast<int64_t>(values.size())}, values);
}
Strings Of(const Tensor& tensor) { return tensor.ToVector<std::string>(); }
Tensor Run(const std::string& op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  return Invoke(op, inputs, std::move(args))[0];
}

TEST_CASE("operators that move elements move strings") {
  const Tensor x = Texts({2, 2}, {"a", kLong, "c", "d"});
  CHECK(Of(Run("Gather", {x, List({1, 0})})) == Strings{"c", "d", "a", kLong});
  CHECK(Of(Run("GatherElements", {x, Tensor::From<int64_t>({1, 2}, {1, 0})})) ==
        Strings{"c", kLong});
  CHECK(Of(Run("GatherND", {x, Tensor::From<int64_t>({1, 2}, {0, 1})})) == Strings{kLong});
  CHECK(Of(Run("Concat", {x, x}, {{"axis", 1}})) ==
        Strings{"a", kLong, "a", kLong, "c", "d", "c", "d"});
  CHECK(Of(Run("Transpose", {x})) == Strings{"a", "c", kLong, "d"});
  CHECK(Of(Run("Transpose", {x.Permute({1, 0})})) == Of(x));
  CHECK(Of(Run("Expand", {Texts({1}, {kLong}), List({2})})) == Strings{kLong, kLong});
  CHECK(Of(Run("Tile", {Texts({2}, {"a", "b"}), List({2})})) == Strings{"a", "b", "a", "b"});
  CHECK(Of(Run("Slice", {x, List({0}), List({1})})) == Strings{"a", kLong});
  CHECK(Of(Run("Pad", {Texts({1}, {"a"}), List({1, 1})})) == Strings{"", "a", ""});
  CHECK(Of(Run("Pad", {Texts({1}, {"a"}), List({0, 1}), Texts({}, {"-"})})) == Strings{"a", "-"});
  CHECK(Of(Run("ScatterElements", {x, Tensor::From<int64_t>({1, 1}, {1}), Texts({1, 1}, {"e"})})) ==
        Strings{"a", kLong, "e", "d"});
  CHECK(Of(Run("Compress", {x, Tensor::From<bool>({2}, {false, true})}, {{"axis", 0}})) ==
        Strings{"c", "d"});
  CHECK(Of(Run("Where", {Tensor::From<bool>({2}, {false, true}), x, Texts({}, {"z"})})) ==
        Strings{"z", kLong, "z", "d"});
  CHECK(Of(Run("OneHot", {List({1}), List({2}), Texts({2}, {"off", "on"})})) ==
        Strings{"off", "on"});
  CHECK(Of(Run("Reshape", {x, List({4})})) == Of(x));
  CHECK(Of(Run("Identity", {x})) == Of(x));
  CHECK(Run("Shape", {x}).ToVector<int64_t>() == std::vector<int64_t>{2, 2});
  const std::vector<Tensor> parts = Invoke("Split", {x}, {{"num_outputs", 2}}, {.num_outputs = 2});
  CHECK(Of(parts[1]) == Strings{"c", "d"});
  CHECK(Run("Gather", {x, List({})}).shape() == Shape{0, 2});
}

TEST_CASE("operators that move elements move packed ones, also an odd number of them") {
  for (const DType dtype :
       {DType::kInt2, DType::kUInt2, DType::kInt4, DType::kUInt4, DType::kFloat4E2M1}) {
    CAPTURE(dtype);
    const int64_t codes = int64_t{1} << BitSize(dtype);
    // The operator gives the same codes as for bytes.
    const auto check = [&](const std::string& op, const std::vector<Tensor>& inputs,
                           Arguments args = {}) {
      CAPTURE(op);
      std::vector<Tensor> packed;
      for (const Tensor& input : inputs) {
        packed.push_back(input);
        if (input.dtype() != DType::kUInt8) continue;
        packed.back() = Tensor(input.shape(), dtype);
        Pack(input.data<uint8_t>(), BitSize(dtype), 0, input.numel(),
             packed.back().raw_mutable_data());
      }
      const Tensor want = Run(op, inputs, args), found = Run(op, packed, args);
      CHECK(found.dtype() == dtype);
      CHECK(found.shape() == want.shape());
      int64_t differ = 0;
      for (int64_t i = 0; i < want.numel(); ++i)
        differ += PackedCode(found.raw_data(), BitSize(dtype), i) != want.data<uint8_t>()[i];
      CHECK(differ == 0);
    };
    Tensor x({3, 5}, DType::kUInt8);
    for (int64_t i = 0; i < 15; ++i)
      x.mutable_data<uint8_t>()[i] = static_cast<uint8_t>((3 * i + 1) % codes);
    const Tensor one = Tensor::From<uint8_t>({1}, {1});
    check("Gather", {x, List({2, 0})}, {{"axis", 1}});
    check("Concat", {x, x}, {{"axis", 1}});
    check("Transpose", {x});
    check("Expand", {one, List({7})});
    check("Tile", {x, List({1, 3})});
    check("Slice", {x, List({1, 1}), List({3, 4})});
    check("Pad", {x, List({1, 0, 0, 2})});
    check("Pad", {x, List({1, 0, 0, 2}), Tensor::From<uint8_t>({}, {1})});
    check("ScatterElements", {x, Tensor::From<int64_t>({1, 1}, {1}), one.View({1, 1})});
  }
  const Tensor x({3, 5}, DType::kUInt4), one({1, 1}, DType::kUInt4);
  const Tensor first = Tensor::From<int64_t>({1, 1}, {0});
  CHECK(Contains(ErrorOf([&] {
                   Run("ScatterElements", {x, first, one}, {{"reduction", "max"}});
                 }).message(),
                 "uint4"));
  // Strings are neither added nor compared, and numbers are not taken for strings.
  const Tensor texts = Texts({1, 1}, {"a"}), number = Tensor::From<uint64_t>({1, 1}, {1});
  for (const char* reduction : {"add", "mul", "max", "min"})
    CHECK(Contains(ErrorOf([&] {
                     Run("ScatterElements", {texts, first, texts}, {{"reduction", reduction}});
                   }).message(),
                   "does not compute with elements of string"));
  for (const char* op : {"ScatterElements", "Concat"})
    CHECK(ErrorOf([&] {
            Run(op,
                *op == 'C' ? std::vector<Tensor>{texts, number}
                           : std::vector<Tensor>{texts, first, number},
                {{"axis", 0}});
          }).code() == ErrorCode::kTypeMismatch);
  // Bytes are not taken for codes.
  const Tensor byte = Tensor::From<uint8_t>({1, 1}, {1});
  CHECK(ErrorOf([&] {
          Run("ScatterElements", {x, first, byte});
        }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([&] {
          Run("Concat", {one, byte}, {{"axis", 0}});
        }).code() == ErrorCode::kTypeMismatch);
}

TEST_CASE("operators that compute refuse strings, sequences and optional values") {
  const Tensor x = Texts({2}, {"a", "b"});
  const Tensor sequence = MakeSequence({Tensor::Scalar(1.f), Tensor::Scalar(2.f)});
  for (const char* op : {"Add", "Relu", "Softmax", "NonZero", "Trilu", "CumSum", "ReduceSum"}) {
    CAPTURE(op);
    for (const Tensor& value : {x, sequence, MakeOptional(x)}) {
      const Error error = ErrorOf([&] {
        Run(op, op[0] == 'A' || op[0] == 'C' ? std::vector<Tensor>{value, value}
                                             : std::vector<Tensor>{value});
      });
      CHECK(error.code() == ErrorCode::kTypeMismatch);
    }
  }
  for (const char* op : {"Reshape", "Gather", "Expand"})
    CHECK(ErrorOf([&] { Run(op, {sequence, List({2})}); }).code() == ErrorCode::kTypeMismatch);
}

// Two Concats of a string input and of a constant, between them an operator that is in place.
Graph TextGraph() {
  Graph graph;
  graph.AddInput("x", DType::kString, {Sym("n")});
  graph.AddConstant("end", Texts({1}, {kLong}));
  graph.AddConstant("column", List({-1, 1}));
  graph.AddNode(OperatorDef("Concat", {"x", "end"}, {"joined"}, {{"axis", 0}}));
  graph.AddNode(OperatorDef("Reshape", {"joined", "column"}, {"shaped"}));
  graph.AddNode(OperatorDef("Concat", {"shaped", "shaped"}, {"twice"}, {{"axis", 1}}));
  graph.AddNode(OperatorDef("Shape", {"twice"}, {"size"}));
  graph.AddOutput("twice").AddOutput("size").AddOutput("joined");
  return graph;
}

TEST_CASE("a plan moves strings outside its arenas, and results that are held stay") {
  Executor executor(Compile(TextGraph()));
  const Tensor x = Texts({2}, {"a", kLong + "y"});
  const NamedTensors first = executor.Run({{"x", x}});
  CHECK(Of(first.Get("twice")) == Strings{"a", "a", kLong + "y", kLong + "y", kLong, kLong});
  CHECK(first.Get("size").ToVector<int64_t>() == std::vector<int64_t>{3, 2});
  CHECK(executor.plan().memory().planned_values == 0);
  const NamedTensors second = executor.Run({{"x", Texts({1}, {"b"})}});
  CHECK(Of(second.Get("joined")) == Strings{"b", kLong});
  const NamedTensors third = executor.Run({{"x", Texts({2}, {"p", "q"})}});
  CHECK(Of(first.Get("joined")) == Strings{"a", kLong + "y", kLong});
  CHECK(Of(third.Get("joined")) == Strings{"p", "q", kLong});
  CHECK(Of(x) == Strings{"a", kLong + "y"});
}

TEST_CASE("an output may be bound to strings, and an input may be donated") {
  PlanOptions options;
  options.memory.donated_inputs = {"x"};
  Executor executor(Compile(TextGraph(), options));
  Tensor joined({3}, DType::kString);
  const void* const memory = joined.raw_data();
  executor.Bind("joined", joined);
  executor.Run({{"x", Texts({2}, {"a", "b"})}});
  CHECK(Of(joined) == Strings{"a", "b", kLong});
  CHECK(executor.output("joined").raw_data() == memory);
  CHECK(ErrorOf([&] { executor.Run({{"x", List({1, 2})}}); }).code() == ErrorCode::kTypeMismatch);
}

}  // namespace
}  // namespace moving_strings_test

// Calls of a graph builder, right and wrong, then inference, Compile and runs: Errors, or what the
// nodes give one after the other.
#include <cstdlib>

#include "fuzz_bytes.hpp"
#include "graph/random_graph.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/random.hpp"
#include "opkit/ops/cast.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/expand.hpp"
#include "opkit/ops/gather.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/non_zero.hpp"
#include "opkit/ops/pad.hpp"
#include "opkit/ops/reshape.hpp"
#include "opkit/ops/shape_of.hpp"
#include "opkit/ops/slice.hpp"
#include "opkit/ops/topk.hpp"
#include "opkit/ops/transpose.hpp"
#include "opkit/ops/where.hpp"
#include "small_memory.hpp"

namespace {

using namespace opkit;

const Graph* g_graph = nullptr;

void Require(bool condition, const std::string& what) {
  if (condition) return;
  for (const Graph::Input& input : g_graph->inputs())
    std::fprintf(stderr, "input %s %s\n", input.name.c_str(), ToString(input.info).c_str());
  for (const Graph::Constant& constant : g_graph->constants())
    std::fprintf(stderr, "constant %s %s\n", constant.name.c_str(),
                 ToString(constant.value).c_str());
  for (const OperatorDef& node : g_graph->nodes())
    std::fprintf(stderr, "%s\n", ToString(node).c_str());
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// False if the call throws an Error; `why` gets its message.
template <class F>
bool Try(F&& body, std::string* why = nullptr) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    Require(error.code() != ErrorCode::kOperatorFailed, error.what());
    if (why) *why = error.what();
    return false;
  }
}

const std::vector<const OpSchema*>& Schemas() {
  static const std::vector<const OpSchema*> schemas = [] {
    std::vector<const OpSchema*> out;
    for (const std::string& op : RegisteredOperators()) {
      const OpSchema& schema = OpRegistry::Global().GetSchema(op);
      if (!schema.runs_may_differ() && !schema.needs_subgraph() && !schema.is_private())
        out.push_back(&schema);
    }
    return out;
  }();
  return schemas;
}

class Builder {
 public:
  explicit Builder(Bytes* bytes) : in_(*bytes) {}

  void Build() {
    for (int i = in_.Byte() % 4; i > 0; --i) Try([&] { AddInput(); });
    for (int i = in_.Byte() % 4; i > 0; --i) Try([&] { AddConstant(); });
    for (int i = in_.Byte() % 8; i > 0; --i) Try([&] { AddNode(); });
    if (in_.Rarely())
      for (int i = in_.Byte() % 4; i > 0; --i) Try([&] { Edit(); });
    for (int i = 1 + in_.Byte() % 3; i > 0; --i)
      Try([&] { graph.AddOutput(i == 1 && !names_.empty() ? names_.back() : OldName()); });
  }

  Graph graph;
  std::vector<Tensor> tensors;  // for its inputs

 private:
  Tensor RandomTensor() {
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kInt64, DType::kInt64,
                                DType::kInt32,   DType::kBool,    DType::kUInt8, DType::kFloat64};
    const DType dtype = in_.Of(kTypes);
    std::vector<int64_t> extents(in_.Byte() % 4);
    for (int64_t& extent : extents) extent = in_.Byte() % 4;
    const Shape shape(extents.data(), extents.size());
    if (dtype != DType::kInt64 && dtype != DType::kInt32)
      return opkit::RandomTensor(shape, dtype, in_.Byte());
    Tensor out(shape, dtype);  // shapes, axes, indices
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t value = in_.Rarely() ? in_.Number() : in_.Byte() % 7 - 2;
      if (dtype == DType::kInt64)
        out.mutable_data<int64_t>()[i] = value;
      else
        out.mutable_data<int32_t>()[i] = static_cast<int32_t>(value);
    }
    return out;
  }
  // The part of the shape that the graph declares.
  SymbolicShape Declared(const Shape& shape) {
    if (in_.Byte() % 8 == 0) return {};
    std::vector<Dim> dims(shape.begin(), shape.end());
    for (Dim& dim : dims) {
      const int how = in_.Byte() % 4;
      if (how == 0) dim = Sym(StrCat("n", dim.value()));
      if (how == 1) dim = Dim();
    }
    return SymbolicShape(dims);
  }
  void AddInput() {
    const Tensor tensor = RandomTensor();
    graph.AddInput(NewName(), tensor.dtype(), Declared(tensor.shape()));
    tensors.push_back(tensor);
    values_.CreateTensor(names_.back())->CopyFrom(tensor);
  }
  void AddConstant() {
    const Tensor tensor = RandomTensor();
    graph.AddConstant(NewName(), tensor);
    values_.CreateTensor(names_.back())->CopyFrom(tensor);
  }
  std::string NewName() {
    names_.push_back(in_.Rarely() ? OldName() : StrCat("v", names_.size()));
    return names_.back();
  }
  std::string OldName() {
    if (in_.Rarely() || names_.empty()) return in_.Byte() % 2 ? "" : "nowhere";
    return names_[names_.size() - 1 - in_.Byte() % names_.size()];
  }
  std::vector<int64_t> Ints() {
    std::vector<int64_t> out(in_.Byte() % 4);
    for (int64_t& value : out) value = in_.Rarely() ? in_.Number() : in_.Byte() % 6 - 2;
    return out;
  }
  Attribute Value(const detail::AttributeSchema& attribute) {
    const AttributeType type = in_.Rarely() || !attribute.type
                                   ? static_cast<AttributeType>(in_.Byte() % 10)
                                   : *attribute.type;
    constexpr double kNumbers[] = {0, 1, -1, 0.5, 2, 1e30, -1e300};
    switch (type) {
      case AttributeType::kInt:
        return in_.Rarely() ? in_.Number() : in_.Byte() % 8 - 2;
      case AttributeType::kFloat:
        return in_.Of(kNumbers);
      case AttributeType::kBool:
        return in_.Byte() % 2 == 0;
      case AttributeType::kTensor:
        return RandomTensor();
      case AttributeType::kInts:
        return Ints();
      case AttributeType::kFloats:
        return std::vector<double>(in_.Byte() % 3, in_.Of(kNumbers));
      default: {
        constexpr const char* kTexts[] = {"constant", "reflect", "edge", "wrap", "none", ""};
        return std::string(in_.Of(kTexts));
      }
    }
  }
  OperatorDef Node() {
    const OpSchema& schema = *Schemas()[in_.Byte() % Schemas().size()];
    OperatorDef def(in_.Mostly<std::string>(schema.name(), "Absent"), {}, {});
    const auto count = [&](int least, int most) {
      return in_.Rarely() ? in_.Byte() % 5 : least + in_.Byte() % (std::min(most - least, 3) + 1);
    };
    for (int i = count(schema.min_inputs(), schema.max_inputs()); i > 0; --i) def.Input(OldName());
    for (int i = count(schema.min_outputs(), schema.max_outputs()); i > 0; --i)
      def.Output(NewName());
    for (const detail::AttributeSchema& attribute : schema.attributes())
      if (attribute.required || in_.Byte() % 3 == 0) def.Arg(attribute.name, Value(attribute));
    return def;
  }
  // Mostly a node that runs on the values so far.
  void AddNode() {
    OperatorDef def = Node();
    for (int tries = 8; tries > 0 && !Runs(def); --tries) def = Node();
    graph.AddNode(std::move(def));
  }
  bool Runs(const OperatorDef& def) {
    return Try([&] { CreateOperator(def, &values_)->Run(); });
  }
  void Edit() {
    const int node = in_.Byte() % 8 - 1;
    switch (in_.Byte() % 7) {
      case 0:
        return graph.RemoveNode(node);
      case 1:
        return graph.ReplaceNode(node, Node());
      case 2:
        return static_cast<void>(graph.InsertNode(node, Node()));
      case 3:
        return graph.ReplaceUses(OldName(), OldName());
      case 4:
        return static_cast<void>(graph.RemoveConstant(OldName()));
      case 5:
        return static_cast<void>(graph.RemoveOutput(OldName()));
      default:
        return graph.RemoveNodes(std::vector<char>(in_.Byte() % 8, 1));
    }
  }

  Bytes& in_;
  std::vector<std::string> names_;
  Workspace values_;  // of the nodes so far
};

// A graph has outputs; and a value that a node rewrites keeps its dtype and shape there, which it
// need not in a workspace.
bool MayBeRefused(const Graph& graph) {
  if (graph.outputs().empty()) return true;
  for (const OperatorDef& node : graph.nodes())
    for (const std::string& output : node.outputs())
      if (std::ranges::count(node.inputs(), output)) return true;
  return false;
}

// Checks that a plan of the graph computes `expected` from these tensors. `expected` is null if a
// node fails in the run of one node after the other.
void Run(const Builder& built, const std::vector<Tensor>* expected, const std::string& why_not,
         bool passes) {
  static const PassList none;
  PlanOptions options;
  options.threads = 1;
  options.memory.verify = true;
  if (!passes) options.passes = &none;
  std::string why;
  const bool ran = Try(
      [&] {
        Executor executor(Compile(built.graph, options));
        for (int run = 0; run < 2; ++run) {
          std::vector<NamedTensor> inputs;  // copies: a node may rewrite one, which is the caller's
          for (size_t i = 0; i < built.tensors.size(); ++i)
            inputs.push_back({built.graph.inputs()[i].name, detail::CopyOf(built.tensors[i])});
          const NamedTensors outputs = executor.Run(inputs);
          Require(expected || passes, "a plan runs where its nodes fail: " + why_not);
          for (size_t i = 0; expected && i < expected->size(); ++i)
            Require(detail::SameBytes((*expected)[i], detail::CopyOf(outputs[i])),
                    "another result of " + built.graph.outputs()[i]);
        }
      },
      &why);
  Require(ran || !expected || MayBeRefused(built.graph),
          "a plan fails where its nodes do not: " + why);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static Allocator* const replaced =
      SetAllocator(DeviceType::kCPU, new SmallMemory);
  Bytes bytes(data, size);
  Builder built(&bytes);
  g_graph = &built.graph;
  built.Build();
  std::vector<Tensor> expected;
  std::string why_not;
  const bool right = Try([&] { expected = RunInOrder(built.graph, built.tensors); }, &why_not);
  for (const bool passes : {false, true}) Run(built, right ? &expected : nullptr, why_not, passes);
  return 0;
}

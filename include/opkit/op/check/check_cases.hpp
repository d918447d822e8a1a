// The nodes and inputs that CheckOperator uses: from the caller, from the schema's TestInputs, or
// generated. The definitions of op/check.hpp use this header, and tools that need the same inputs.
#ifndef OPKIT_OP_CHECK_CHECK_CASES_HPP_
#define OPKIT_OP_CHECK_CHECK_CASES_HPP_

#include <algorithm>

#include "opkit/base/index.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/check/check_report.hpp"
#include "opkit/op/check/input_finder.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The inputs of one run of a node.
struct CheckCase {
  std::vector<Tensor> inputs;
  bool guessed = false;  // generated: a refusal is not a fault of the operator

  std::string Describe() const {
    std::string out;
    for (const Tensor& input : inputs)
      out += StrCat(out.empty() ? "" : ", ", input.dtype(), ToString(input.shape()));
    return out.empty() ? "no inputs" : out;
  }
};

// Generates random inputs of these types.
inline CheckCase MakeCase(const InputTypes& inputs, uint64_t seed) {
  CheckCase out;
  out.guessed = true;
  for (size_t i = 0; i < inputs.size(); ++i)
    out.inputs.push_back(RandomTensor(inputs[i].shape.ToShape(), inputs[i].dtype, seed * 31 + i));
  return out;
}

// Makes the smallest node of the operator that its schema accepts. Throws kInvalidArgument, with
// the reason, if it finds none.
inline OperatorDef MakeCheckDef(const OpSchema& schema, const CheckOptions& options) {
  constexpr int kMost = 16;
  // Counts named values. If none are named: 1 output, and 1 input if more than kMost are allowed.
  int named_inputs = static_cast<int>(schema.inputs().size());
  int named_outputs = static_cast<int>(schema.outputs().size());
  if (named_inputs == 0 && schema.max_inputs() > kMost) named_inputs = 1;
  if (named_outputs == 0) named_outputs = 1;
  const int first_input = options.num_inputs >= 0
                              ? options.num_inputs
                              : std::clamp(named_inputs, schema.min_inputs(), schema.max_inputs());
  std::vector<int> counts;
  for (int ins = first_input; ins <= first_input + kMost; ++ins) counts.push_back(ins);
  if (first_input > 0 && schema.min_inputs() == 0) counts.push_back(0);  // only attributes say it
  std::string why;
  for (const int ins : counts) {
    int first_output = options.num_outputs;
    if (first_output < 0) first_output = schema.CalculateOutput(ins, options.args);
    if (first_output < 0)
      first_output = std::clamp(named_outputs, schema.min_outputs(), schema.max_outputs());
    for (int outs = first_output; outs <= first_output + kMost; ++outs) {
      OperatorDef def(schema.name(), {}, {}, options.args);
      auto name = [&](const std::vector<ValueSchema>& values, int i, const char* fallback) {
        std::string out = Index(i) < values.size() ? values[Index(i)].name : std::string();
        if (out.empty()) out = StrCat(fallback, i);
        while (std::ranges::count(def.inputs(), out) + std::ranges::count(def.outputs(), out) > 0)
          out += "_out";
        return out;
      };
      for (int i = 0; i < ins; ++i) def.Input(name(schema.inputs(), i, "input"));
      for (int o = 0; o < outs; ++o) {
        int same = 0;
        while (same < ins && !schema.MustInplace(same, o)) ++same;
        def.Output(same < ins ? def.inputs()[Index(same)] : name(schema.outputs(), o, "output"));
      }
      const std::string problem = schema.Verify(def);
      if (problem.empty()) return def;
      if (why.empty()) why = problem;
      if (options.num_outputs >= 0) break;
    }
    if (options.num_inputs >= 0) break;
  }
  Throw(ErrorCode::kInvalidArgument, "CheckOperator finds no node of ", schema.name(), ": ", why,
        "; set CheckOptions::args, num_inputs or num_outputs, or give it a node and inputs");
}

inline InputTypes TypesOf(const std::vector<Tensor>& inputs) {
  InputTypes out;
  for (const Tensor& input : inputs) out.push_back(TensorInfo::OfConstant(input));
  return out;
}
inline bool InferenceAccepts(const OpSchema& schema, const OperatorDef& def,
                             const std::vector<Tensor>& inputs) {
  if (!schema.has_inference()) return false;
  try {
    schema.InferOutputs(def, TypesOf(inputs));
    return true;
  } catch (...) {
    return false;
  }
}
// Returns the configurations that the kernel proposes for the node on these inputs, best first;
// nothing if the kernel makes no proposals. Throws UnsupportedOperatorFeature if the kernel
// declines the node; the errors of a proposer; kInvalidArgument for a configuration that does not
// fit the node.
inline std::vector<KernelConfig> ProposalsFor(const Kernel& kernel, const OpSchema& schema,
                                              OperatorDef def, const std::vector<Tensor>& inputs) {
  if (!kernel.propose || !InferenceAccepts(schema, def, inputs)) return {};
  def.Device(kernel.device, def.device().index);
  const InputTypes types = TypesOf(inputs);
  std::vector<KernelConfig> proposed =
      kernel.propose({def, types, schema.InferOutputs(def, types)});
  if (proposed.empty())
    throw UnsupportedOperatorFeature("it proposes no configuration for this node");
  for (const KernelConfig& config : proposed) CheckConfig(kernel, def, config);
  return proposed;
}
// Returns the first of these configurations, as selection would choose it; nullopt if there are
// none. Throws UnsupportedOperatorFeature too if nothing converts to its layouts.
inline std::optional<KernelConfig> FirstProposal(const Kernel& kernel, const OpSchema& schema,
                                                 OperatorDef def,
                                                 const std::vector<Tensor>& inputs) {
  def.Device(kernel.device, def.device().index);
  std::vector<KernelConfig> proposed = ProposalsFor(kernel, schema, def, inputs);
  if (proposed.empty()) return {};
  if (std::string why = UnmetLayout(def, proposed[0]); !why.empty())
    throw UnsupportedOperatorFeature(std::move(why));
  return std::move(proposed[0]);
}

// The node under test, with the options of its check. It makes the inputs.
struct CheckTarget {
  // Returns the dtypes to check with: the claimed dtypes of the input with the longest list, except
  // those whose elements are C++ objects.
  // Without claims: if inference refuses some dtypes, the accepted dtypes, else float32.
  std::vector<DType> DTypes() const {
    if (!options.dtypes.empty()) return options.dtypes;
    std::vector<DType> out;
    for (const ValueSchema& input : schema.inputs())
      if (input.dtypes.size() > out.size()) out = input.dtypes;
    std::erase_if(out, [](DType dtype) { return IsObject(dtype); });
    if (!out.empty()) return out;
    if (!schema.has_inference() || !schema.MakeTestInputs(DType::kFloat32, options.seed).empty())
      return {DType::kFloat32};
    std::vector<std::vector<Shape>> shapes;
    for (const Shape& shape : options.shapes) shapes.push_back({shape});
    if (shapes.empty() || !options.input_shapes.empty()) shapes = {options.input_shapes};
    for (const std::vector<Shape>& one : shapes)
      for (const InputTypes& types : InputFinder(schema, def, one).Find()) {
        DType dtype = types.empty() ? DType::kFloat32 : types[0].dtype;
        for (const TensorInfo& input : types)
          if (input.dtype == DType::kFloat32) dtype = input.dtype;
        if (!std::ranges::count(out, dtype)) out.push_back(dtype);
      }
    return out.empty() ? std::vector<DType>{DType::kFloat32} : out;
  }
  // Generates random inputs of `dtype`. An input that does not allow `dtype` gets its first allowed
  // dtype. `shapes` has one shape for all inputs, or one for each. Throws kInvalidArgument for any
  // other number of shapes.
  CheckCase Random(const std::vector<Shape>& shapes, DType dtype, uint64_t seed) const {
    const size_t count = def.inputs().size();
    if (shapes.size() != 1 && shapes.size() != count)
      Throw(ErrorCode::kInvalidArgument, "operator ", schema.name(), " has ", count,
            " inputs, found ", shapes.size(), " shapes");
    InputTypes types;
    for (size_t i = 0; i < count; ++i) {
      types.emplace_back(dtype, shapes[shapes.size() > 1 ? i : 0]);
      if (i >= schema.inputs().size()) continue;
      const std::vector<DType>& allowed = schema.inputs()[i].dtypes;
      if (!allowed.empty() && !std::ranges::count(allowed, dtype)) types[i].dtype = allowed[0];
    }
    return MakeCase(types, seed);
  }
  // Makes the cases of a dtype. Most checks use the first case that runs, so the first is neither
  // empty nor square.
  std::vector<CheckCase> Cases(DType dtype) const {
    uint64_t seed = options.seed;
    if (!options.input_shapes.empty())
      return {{Random(options.input_shapes, dtype, seed).inputs, false}};
    std::vector<CheckCase> out, accepted;
    for (uint64_t k = 0; k < 3; ++k) {
      std::vector<Tensor> inputs = schema.MakeTestInputs(dtype, seed + k);
      if (inputs.size() == def.inputs().size() && !inputs.empty())
        out.push_back({std::move(inputs), false});
    }
    if (!out.empty()) return out;
    std::vector<Shape> shapes = options.shapes;
    if (shapes.empty())
      shapes = {Shape{2, 3},  Shape{3, 3},  Shape{7},       Shape{1},
                Shape{0},     Shape{0, 3},  Shape{2, 0},    Shape{},
                Shape{5, 17}, Shape{31, 1}, Shape{2, 3, 5}, Shape{1, 3, 7, 5}};
    for (const Shape& shape : shapes) out.push_back(Random({shape}, dtype, seed++));
    if (!schema.has_inference() || !options.shapes.empty()) return out;
    for (const CheckCase& one : out)
      if (InferenceAccepts(schema, def, one.inputs)) accepted.push_back(one);
    if (!accepted.empty()) return accepted;
    std::vector<DType> dtypes;
    for (const Tensor& input : out[0].inputs) dtypes.push_back(input.dtype());
    for (const InputTypes& types : InputFinder(schema, def, {}).FindMixed(3, dtypes))
      accepted.push_back(MakeCase(types, seed++));
    return accepted.empty() ? out : accepted;
  }

  const OpSchema& schema;
  OperatorDef def;
  CheckOptions options;
  bool lacks_threads = false;  // in a child whose parent has more threads
  std::string value = {};  // "mode=same", an attribute's value that is not its default; or empty
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CHECK_CHECK_CASES_HPP_

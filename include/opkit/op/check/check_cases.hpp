// What CheckOperator runs an operator on: a node that its schema allows, and inputs for it, from
// the caller, from the schema's TestInputs, or made here.
#ifndef OPKIT_OP_CHECK_CHECK_CASES_HPP_
#define OPKIT_OP_CHECK_CHECK_CASES_HPP_

#include "opkit/op/check/check_data.hpp"
#include "opkit/op/schema.hpp"

namespace opkit::inline OPKIT_ABI {

struct CheckOptions {
  Arguments args;       // of the node; required ones must be here
  int num_inputs = -1;  // default: what the schema names, else its smallest number
  int num_outputs = -1;
  std::vector<Shape> shapes;  // of generated inputs, all of one shape; default: a mixed dozen
  std::vector<DType> dtypes;  // default: those that the schema claims for its inputs, else float32
  std::vector<int> mutated_inputs;  // that may change besides those that the schema names
  bool deterministic =
      true;             // false for an operator that draws random numbers: nothing is compared
  bool strided = true;  // inputs with strides must be refused or understood
  bool gradient = true;
  int threads = 4;               // that the result on one thread is compared with
  bool bitwise_threads = false;  // it may not even be rounded differently
  double tolerance = -1;    // between kernels, and between numbers of threads; relative, absolute
                            // below 1; negative: 1e-9, 1e-4, 1e-2, 5e-2 by dtype, integers exact
  int deadline_ms = 10000;  // for an asynchronous run to complete
  uint64_t seed = 1;
};

namespace detail {

// Inputs of one node.
struct CheckCase {
  std::vector<Tensor> inputs;
  bool guessed = false;  // made here, so that a refusal says nothing about the operator

  std::string Describe() const {
    std::string out;
    for (const Tensor& input : inputs)
      out += StrCat(out.empty() ? "" : ", ", input.dtype(), ToString(input.shape()));
    return out.empty() ? "no inputs" : out;
  }
};

// The smallest node of the operator that its schema accepts. Error (kInvalidArgument) when none is
// found; what is missing then is said.
inline OperatorDef MakeCheckDef(const OpSchema& schema, const CheckOptions& options) {
  constexpr int kMost = 16;
  auto clamp = [](int n, int low, int high) { return n < low ? low : n > high ? high : n; };
  // As many as have names; one where nothing is said.
  int named_inputs = static_cast<int>(schema.inputs().size());
  int named_outputs = static_cast<int>(schema.outputs().size());
  if (named_inputs == 0 && schema.max_inputs() > kMost) named_inputs = 1;
  if (named_outputs == 0) named_outputs = 1;
  const int first_input = options.num_inputs >= 0
                              ? options.num_inputs
                              : clamp(named_inputs, schema.min_inputs(), schema.max_inputs());
  std::string why;
  for (int ins = first_input; ins <= first_input + kMost; ++ins) {
    int first_output = options.num_outputs;
    if (first_output < 0) first_output = schema.CalculateOutput(ins, options.args);
    if (first_output < 0)
      first_output = clamp(named_outputs, schema.min_outputs(), schema.max_outputs());
    for (int outs = first_output; outs <= first_output + kMost; ++outs) {
      OperatorDef def(schema.name(), {}, {}, options.args);
      auto taken = [&](const std::string& name) {
        for (const auto* names : {&def.inputs(), &def.outputs()})
          for (const std::string& known : *names)
            if (known == name) return true;
        return false;
      };
      auto name = [&](const std::vector<ValueSchema>& values, int i, const char* fallback) {
        std::string out = static_cast<size_t>(i) < values.size()
                              ? values[static_cast<size_t>(i)].name
                              : std::string();
        if (out.empty()) out = StrCat(fallback, i);
        while (taken(out)) out += "_out";
        return out;
      };
      for (int i = 0; i < ins; ++i) def.Input(name(schema.inputs(), i, "input"));
      for (int o = 0; o < outs; ++o) {
        int same = -1;
        for (int i = 0; i < ins && same < 0; ++i)
          if (schema.MustInplace(i, o)) same = i;
        def.Output(same >= 0 ? def.inputs()[static_cast<size_t>(same)]
                             : name(schema.outputs(), o, "output"));
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

// The dtypes that the operator's inputs claim, those of the input with the longest list.
inline std::vector<DType> ClaimedDTypes(const OpSchema& schema, const CheckOptions& options) {
  if (!options.dtypes.empty()) return options.dtypes;
  std::vector<DType> out;
  for (const ValueSchema& input : schema.inputs())
    if (input.dtypes.size() > out.size()) out = input.dtypes;
  return out.empty() ? std::vector<DType>{DType::kFloat32} : out;
}

// Input i of a node whose operator is checked with `dtype`.
inline DType InputDType(const OpSchema& schema, size_t i, DType dtype) {
  if (i >= schema.inputs().size() || schema.inputs()[i].dtypes.empty()) return dtype;
  const std::vector<DType>& allowed = schema.inputs()[i].dtypes;
  for (DType one : allowed)
    if (one == dtype) return dtype;
  return allowed[0];
}

inline CheckCase MakeCase(const OpSchema& schema, const OperatorDef& def, const Shape& shape,
                          DType dtype, uint64_t seed) {
  CheckCase out;
  out.guessed = true;
  for (size_t i = 0; i < def.inputs().size(); ++i)
    out.inputs.push_back(def.inputs()[i].empty()
                             ? Tensor()
                             : MakeTestTensor(shape, InputDType(schema, i, dtype), seed * 31 + i));
  return out;
}

// The first one that runs is what most checks use, so it is neither empty nor square.
inline std::vector<CheckCase> MakeCases(const OpSchema& schema, const OperatorDef& def, DType dtype,
                                        const CheckOptions& options) {
  std::vector<CheckCase> out;
  for (uint64_t k = 0; k < 3; ++k) {
    std::vector<Tensor> inputs = schema.MakeTestInputs(dtype, options.seed + k);
    if (inputs.size() == def.inputs().size() && !inputs.empty())
      out.push_back({std::move(inputs), false});
  }
  if (!out.empty()) return out;
  std::vector<Shape> shapes = options.shapes;
  if (shapes.empty())
    shapes = {Shape{2, 3},  Shape{3, 3},  Shape{7},       Shape{1},
              Shape{0},     Shape{0, 3},  Shape{2, 0},    Shape{},
              Shape{5, 17}, Shape{31, 1}, Shape{2, 3, 5}, Shape{1, 3, 7, 5}};
  uint64_t seed = options.seed;
  for (const Shape& shape : shapes) out.push_back(MakeCase(schema, def, shape, dtype, seed++));
  return out;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_CASES_HPP_

// The definitions of ort_signature.hpp.
#ifndef OPKIT_EXPORT_ONNXRUNTIME_IMPL_ORT_SIGNATURE_IPP_
#define OPKIT_EXPORT_ONNXRUNTIME_IMPL_ORT_SIGNATURE_IPP_

#include <algorithm>

#include "opkit/export/onnxruntime/ort_signature.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE OrtValues::OrtValues(int least, int most, size_t declared) {
  constexpr int kMostOptional = 64;
  const bool variadic = most > (std::max)(static_cast<int>(declared), kMostOptional);
  const int count = variadic ? (std::max)(static_cast<int>(declared), 1) : most;
  for (int i = 0; i < count; ++i)
    arities.push_back(i < least ? OrtArity::kRequired : OrtArity::kOptional);
  if (!variadic) return;
  arities.back() = OrtArity::kVariadic;
  variadic_least = (std::max)(least - (count - 1), 0);
}

// The element types that ONNX Runtime's kernels have and opkit has.
constexpr DType kOrtDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                                DType::kInt8,    DType::kInt16,   DType::kInt32,   DType::kInt64,
                                DType::kUInt8,   DType::kUInt16,  DType::kUInt32,  DType::kUInt64,
                                DType::kBool};
constexpr size_t kMostTypes = 64;

// Returns the dtypes that ONNX Runtime can give for value i; a variadic value has the declared
// dtypes of the last one.
inline std::vector<DType> OrtDTypesOf(const std::vector<ValueSchema>& declared, size_t i) {
  std::vector<DType> found;
  for (const DType dtype : kOrtDTypes)
    if (declared.empty() || declared[(std::min)(i, declared.size() - 1)].Allows(dtype))
      found.push_back(dtype);
  return found;
}

// Infers the dtypes of the outputs. Returns false if the operator refuses the dtypes of the inputs.
inline bool InferOrtOutputs(const OpSchema& schema, OrtTypes& types, size_t num_outputs) {
  OperatorDef def(schema.name());
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < types.inputs.size(); ++i) {
    def.Input(StrCat("input ", i));
    infos.emplace_back(types.inputs[i], SymbolicShape());
  }
  for (size_t o = 0; o < num_outputs; ++o) def.Output(StrCat("output ", o));
  types.outputs.assign(num_outputs, DType::kUndefined);
  try {
    const std::vector<TensorInfo> inferred = schema.InferOutputs(def, std::move(infos));
    for (size_t o = 0; o < (std::min)(num_outputs, inferred.size()); ++o)
      types.outputs[o] = inferred[o].dtype;
  } catch (const Error& error) {
    // Other errors, as for an attribute that every node must give, say nothing about dtypes.
    if (error.code() == ErrorCode::kTypeMismatch) return false;
  }
  return true;
}

// Chooses a dtype for the outputs that inference leaves unknown: the only declared one, or that of
// the first input.
inline void GuessOrtOutputs(const OpSchema& schema, OrtTypes& types) {
  for (size_t o = 0; o < types.outputs.size(); ++o) {
    if (types.outputs[o] != DType::kUndefined) continue;
    const std::vector<DType> allowed = OrtDTypesOf(schema.outputs(), o);
    DType& chosen = types.outputs[o];
    if (!allowed.empty()) chosen = allowed[0];
    if (!types.inputs.empty() &&
        std::find(allowed.begin(), allowed.end(), types.inputs[0]) != allowed.end())
      chosen = types.inputs[0];
  }
}

OPKIT_INLINE OrtSignature::OrtSignature(const OpSchema& schema)
    : inputs(schema.min_inputs(), schema.max_inputs(), schema.inputs().size()),
      outputs(schema.min_outputs(), schema.max_outputs(), schema.outputs().size()) {
  const size_t num_inputs = inputs.arities.size(), num_outputs = outputs.arities.size();
  std::vector<std::vector<DType>> lists;
  for (size_t i = 0; i < num_inputs; ++i) lists.push_back(OrtDTypesOf(schema.inputs(), i));
  for (bool one_by_one : {schema.has_inference(), false}) {
    // Input i has the dtype of place group[i] in its list.
    std::vector<size_t> group(num_inputs), sizes;
    for (size_t i = 0; i < num_inputs; ++i) {
      size_t same = 0;
      while (!one_by_one && lists[same] != lists[i]) ++same;
      group[i] = one_by_one || same == i ? sizes.size() : group[same];
      if (group[i] == sizes.size()) sizes.push_back(lists[i].size());
    }
    types.clear();
    std::vector<size_t> place(sizes.size());
    constexpr size_t kMostTries = 4096;
    size_t tries = 1;
    for (const size_t size : sizes) tries = tries <= kMostTries ? tries * size : tries;
    if (one_by_one && tries > kMostTries) continue;
    for (size_t t = 0; t < tries; ++t) {
      size_t rest = t;
      for (size_t g = 0; g < sizes.size(); rest /= sizes[g], ++g) place[g] = rest % sizes[g];
      OrtTypes made;
      for (size_t i = 0; i < num_inputs; ++i) made.inputs.push_back(lists[i][place[group[i]]]);
      if (!InferOrtOutputs(schema, made, num_outputs)) continue;
      GuessOrtOutputs(schema, made);
      bool has_all = true;
      for (const DType dtype : made.outputs)
        has_all &=
            std::find(std::begin(kOrtDTypes), std::end(kOrtDTypes), dtype) != std::end(kOrtDTypes);
      if (has_all) types.push_back(std::move(made));
    }
    if (one_by_one && types.size() <= kMostTypes && !types.empty()) break;
  }
  if (types.empty())
    Throw(ErrorCode::kUnsupported, "ONNX Runtime has none of the dtypes of operator ",
          schema.name());
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_ONNXRUNTIME_IMPL_ORT_SIGNATURE_IPP_

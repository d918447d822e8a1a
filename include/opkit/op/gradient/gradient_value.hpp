// GradientValue: the names of the blobs that hold the gradient of a value. Gradient makers write
// it, and AddGradients returns it.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_VALUE_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_VALUE_HPP_

#include <string>

#include "opkit/base/strings.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The blobs with the gradient of a value: one dense tensor; or indices and values of slices along
// the first axis; or nothing if no gradient flows.
struct GradientValue {
  std::string dense;
  std::string indices;
  std::string values;

  GradientValue() = default;
  GradientValue(std::string name) : dense(std::move(name)) {}
  GradientValue(const char* name) : dense(name) {}
  static GradientValue Sparse(std::string indices, std::string values) {
    GradientValue out;
    out.indices = std::move(indices);
    out.values = std::move(values);
    return out;
  }
  bool IsDense() const { return !dense.empty(); }
  bool IsSparse() const { return !indices.empty() || !values.empty(); }
  bool IsEmpty() const { return !IsDense() && !IsSparse(); }
  friend bool operator==(const GradientValue&, const GradientValue&) = default;
  OPKIT_COLD friend std::string ToString(const GradientValue& value) {
    if (value.IsEmpty()) return "(none)";
    return value.IsDense() ? value.dense : StrCat("{", value.indices, ", ", value.values, "}");
  }
};

}}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_GRADIENT_VALUE_HPP_

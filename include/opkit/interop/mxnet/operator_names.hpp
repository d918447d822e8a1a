// Translates an operator with its attributes between opkit's names, which are those of ONNX, and
// MXNet's, by the table of names_table.hpp. symbol_names.hpp does so with a whole graph.
#ifndef OPKIT_INTEROP_MXNET_OPERATOR_NAMES_HPP_
#define OPKIT_INTEROP_MXNET_OPERATOR_NAMES_HPP_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opkit/core/dtype.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns an attribute's text in MXNet's spelling: "[3, 3]" becomes "(3, 3)", "[3]" becomes "(3,)",
// "true" becomes "True". A list of other things than numbers and bools stays as it is.
std::string MxnetText(std::string_view text);
// Returns an attribute's text in opkit's spelling: the reverse of MxnetText.
std::string OpkitText(std::string_view text);

// Types in the order of their numbers in MXNet (TypeFlag of mshadow/base.h), with their number in
// ONNX. Libraries have the first seven (MXDType of lib_api.h).
struct MxnetType {
  DType dtype;
  int onnx;
};
inline constexpr MxnetType kMxnetTypes[] = {
    {DType::kFloat32, 1},  {DType::kFloat64, 11}, {DType::kFloat16, 10}, {DType::kUInt8, 2},
    {DType::kInt32, 6},    {DType::kInt8, 3},     {DType::kInt64, 7},    {DType::kBool, 9},
    {DType::kInt16, 5},    {DType::kUInt16, 4},   {DType::kUInt32, 12},  {DType::kUInt64, 13},
    {DType::kBFloat16, 16}};
// Returns the number in MXNet of the type of that name; nullopt for another name.
inline std::optional<size_t> MxnetTypeNumber(std::string_view name) {
  for (size_t i = 0; i < std::size(kMxnetTypes); ++i)
    if (ToString(kMxnetTypes[i].dtype) == name) return i;
  return std::nullopt;
}

// Attributes as texts, in the order of the node.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;
inline const std::string* FindText(const NamedTexts& texts, std::string_view name) {
  for (const auto& [key, text] : texts)
    if (key == name) return &text;
  return nullptr;
}

// The extents of a shape; nullopt if the rank is unknown, -1 for an unknown extent.
using Extents = std::optional<std::vector<int64_t>>;
inline bool IsKnown(const Extents& extents) {
  return extents && std::none_of(extents->begin(), extents->end(), [](int64_t e) { return e < 0; });
}

// The shapes of a node's inputs and outputs.
struct NodeShapes {
  std::vector<Extents> inputs, outputs;
};

// An operator and its attributes.
struct OperatorTexts {
  std::string op;
  NamedTexts attributes;
};

// Returns the operator in MXNet's names. An operator of the table is translated if MXNet's operator
// means exactly the same with inputs and outputs of these shapes. Any other operator keeps its
// name, or gets the prefix "ai.onnx." if MXNet has another operator of this name; only the spelling
// of its attributes changes.
OperatorTexts OperatorToMxnet(const OperatorTexts& opkit, const NodeShapes& shapes);
// Returns the operator in opkit's names. The reverse of OperatorToMxnet; the prefix of an operator
// that keeps its name is "mxnet.".
OperatorTexts OperatorToOpkit(const OperatorTexts& mxnet, const NodeShapes& shapes);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/mxnet/impl/operator_names.ipp"
#endif

#endif  // OPKIT_INTEROP_MXNET_OPERATOR_NAMES_HPP_

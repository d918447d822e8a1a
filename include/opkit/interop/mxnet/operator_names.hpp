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

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns an attribute's text in MXNet's spelling: "[3, 3]" becomes "(3, 3)", "[3]" becomes "(3,)",
// "true" becomes "True". A list of other things than numbers and bools stays as it is.
std::string MxnetText(std::string_view text);
// Returns an attribute's text in opkit's spelling: the reverse of MxnetText.
std::string OpkitText(std::string_view text);

// Types with their number in MXNet (TypeFlag of mshadow/base.h is the index) and in ONNX.
struct MxnetType {
  std::string_view name;
  int onnx;
};
inline constexpr MxnetType kMxnetTypes[] = {
    {"float32", 1}, {"float64", 11}, {"float16", 10}, {"uint8", 2}, {"int32", 6},
    {"int8", 3},    {"int64", 7},    {"bool", 9},     {"int16", 5}, {"uint16", 4},
    {"uint32", 12}, {"uint64", 13},  {"bfloat16", 16}};
inline std::optional<size_t> MxnetTypeNumber(std::string_view name) {
  for (size_t i = 0; i < std::size(kMxnetTypes); ++i)
    if (kMxnetTypes[i].name == name) return i;
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

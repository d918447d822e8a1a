// The definitions of interop/mxnet/operator_names.hpp.
#ifndef OPKIT_INTEROP_MXNET_IMPL_OPERATOR_NAMES_IPP_
#define OPKIT_INTEROP_MXNET_IMPL_OPERATOR_NAMES_IPP_

#include "opkit/interop/mxnet/names_table.hpp"
#include "opkit/interop/mxnet/operator_names.hpp"
#include "opkit/op/function/attr_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline bool AllEqual(const std::vector<Extents>& shapes) {
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const Extents& shape) { return IsKnown(shape) && *shape == *shapes[0]; });
}
inline bool HasRank(const Extents& shape, size_t rank) { return shape && shape->size() == rank; }

inline bool Holds(ShapeRule rule, const NodeShapes& shapes) {
  const std::vector<Extents>& in = shapes.inputs;
  switch (rule) {
    case ShapeRule::kNone:
      return true;
    case ShapeRule::kNotBroadcast:
      return !in[0] || !in[1] || *in[0] == *in[1];
    case ShapeRule::kEqual:
      return AllEqual(in);
    case ShapeRule::kMatrices:
      return HasRank(in[0], 2) && HasRank(in[1], 2);
    case ShapeRule::kBatches:
      return IsKnown(in[0]) && IsKnown(in[1]) && in[0]->size() == in[1]->size() &&
             in[0]->size() >= 3 && std::equal(in[0]->begin(), in[0]->end() - 2, in[1]->begin());
    case ShapeRule::kOneSlope:
      return HasRank(in[1], 1) && (*in[1])[0] == 1;
    case ShapeRule::kLinear:
      return HasRank(in[0], 2) && HasRank(in[1], 2) && (*in[1])[0] >= 0 &&
             (in.size() < 3 || (HasRank(in[2], 1) && (*in[2])[0] == (*in[1])[0]));
    case ShapeRule::kLastAxis:
      return in[0] && !in[0]->empty() && in[0]->back() >= 0 &&
             std::all_of(in.begin() + 1, in.end(), [&](const Extents& shape) {
               return HasRank(shape, 1) && (*shape)[0] == in[0]->back();
             });
    case ShapeRule::kEqualParts:
      return !shapes.outputs.empty() && AllEqual(shapes.outputs);
    case ShapeRule::kNever:
      return false;
    case ShapeRule::kNotScalar:
      return in[0] && std::any_of(in[0]->begin(), in[0]->end(),
                                  [](int64_t extent) { return extent >= 0 && extent != 1; });
  }
  return false;
}

// Returns a list of numbers and bools with other brackets and other names of the bools; `text`
// itself if it is not such a list.
inline std::string ListInBrackets(std::string_view text, const char* brackets, bool python) {
  std::string out(1, brackets[0]);
  size_t count = 0;
  std::string_view rest = WithoutSpaces(text.substr(1, text.size() - 2));
  for (; !rest.empty(); ++count) {
    const size_t comma = (std::min)(rest.find(','), rest.size());
    const std::string_view item = WithoutSpaces(rest.substr(0, comma));
    const std::string other = python ? MxnetText(item) : OpkitText(item);
    if (other == item && !ParseText<double>(item)) return std::string(text);
    if (item.front() == '(' || item.front() == '[') return std::string(text);
    out += (count == 0 ? "" : ", ") + other;
    rest = WithoutSpaces(rest.substr((std::min)(comma + 1, rest.size())));
  }
  if (python && count == 1) out += ',';
  return out + brackets[1];
}

// Values that mean "left out" in one of the two spellings.
inline bool IsLeftOut(std::string_view text) {
  return text.empty() || text == "None" || text == "()" || text == "[]";
}
// True if `text` is the value `only` in any spelling, or a list of this number.
inline bool IsOnly(std::string_view text, std::string_view only) {
  if (text == only) return true;
  if (only == "None") return IsLeftOut(text);
  if (const auto number = ParseText<double>(only)) {
    const auto numbers = ParseList<double>(text);
    return numbers && !numbers->empty() &&
           std::all_of(numbers->begin(), numbers->end(), [&](double n) { return n == *number; });
  }
  const auto is = ParseText<bool>(text), wanted = ParseText<bool>(only);
  return is && wanted && *is == *wanted;
}

inline std::string IntsText(const std::vector<int64_t>& values) {
  std::string out;
  for (const int64_t value : values) out += StrCat(out.empty() ? "" : ", ", value);
  return StrCat("[", out, "]");
}

// Converts the value of an attribute that is there on both sides. nullopt: it has no equivalent.
inline std::optional<std::string> ValueToMxnet(AttributeRule rule, const std::string& text) {
  switch (rule) {
    case AttributeRule::kBool:
      if (const auto on = ParseText<bool>(text)) return *on ? "True" : "False";
      return std::nullopt;
    case AttributeRule::kPads: {
      auto pads = ParseList<int64_t>(text);
      if (!pads || pads->size() % 2 != 0) return std::nullopt;
      const auto half = pads->begin() + static_cast<std::ptrdiff_t>(pads->size() / 2);
      if (!std::equal(pads->begin(), half, half) ||
          std::any_of(pads->begin(), half, [](int64_t pad) { return pad < 0; }))
        return std::nullopt;
      pads->resize(pads->size() / 2);
      return MxnetText(IntsText(*pads));
    }
    case AttributeRule::kDtype: {
      const auto number = ParseText<int>(text);
      for (const MxnetType& type : kMxnetTypes)
        if (number == type.onnx) return std::string(ToString(type.dtype));
      return std::nullopt;
    }
    case AttributeRule::kOdd: {
      const auto number = ParseText<int64_t>(text);
      return number && *number % 2 == 1 ? std::optional(text) : std::nullopt;
    }
    case AttributeRule::kKernel: {
      const auto extents = ParseList<int64_t>(text);
      if (!extents || extents->empty() || extents->size() > 3) return std::nullopt;
      return MxnetText(text);
    }
    default:
      return MxnetText(text);
  }
}
inline std::optional<std::string> ValueToOpkit(AttributeRule rule, const std::string& text) {
  switch (rule) {
    case AttributeRule::kBool:
      if (const auto on = ParseText<bool>(text)) return *on ? "1" : "0";
      return std::nullopt;
    case AttributeRule::kPads: {
      auto pads = ParseList<int64_t>(text);
      if (!pads) return std::nullopt;
      const std::vector<int64_t> begins = *pads;
      pads->insert(pads->end(), begins.begin(), begins.end());
      return IntsText(*pads);
    }
    case AttributeRule::kDtype: {
      const auto number = MxnetTypeNumber(text);
      return number ? std::optional(StrCat(kMxnetTypes[*number].onnx)) : std::nullopt;
    }
    case AttributeRule::kOdd:
      return ValueToMxnet(rule, text);
    default:
      return OpkitText(text);
  }
}

inline bool FitsCounts(const OperatorNames& row, const NodeShapes& shapes) {
  return shapes.inputs.size() >= row.min_inputs && shapes.inputs.size() <= row.max_inputs &&
         (shapes.outputs.size() <= 1 || row.to_mxnet == ShapeRule::kEqualParts);
}

// The attributes of MXNet's operator of `row`; nullopt if it cannot express a node of opkit.
inline std::optional<NamedTexts> AttributesToMxnet(const OperatorNames& row,
                                                   const NamedTexts& attributes,
                                                   const NodeShapes& shapes) {
  if (!FitsCounts(row, shapes) || !Holds(row.to_mxnet, shapes)) return std::nullopt;
  for (const auto& [name, text] : attributes)
    if (std::none_of(row.attributes.begin(), row.attributes.end(),
                     [&name = name](const AttributeNames& a) { return a.opkit == name; }))
      return std::nullopt;
  // Returns an extent of the weights; -1 if it is unknown.
  const auto weights = [&](size_t axis) {
    const Extents& w = shapes.inputs[1];
    return w && axis < w->size() ? (*w)[axis] : int64_t{-1};
  };
  NamedTexts out;
  for (const AttributeNames& names : row.attributes) {
    const std::string* given = names.opkit.empty() ? nullptr : FindText(attributes, names.opkit);
    std::string text = given ? *given : std::string(names.opkit_default);
    const auto write = [&](std::string value) { out.emplace_back(names.mxnet, std::move(value)); };
    if (!names.only.empty()) {
      if (!names.opkit.empty() && !IsOnly(text, names.only)) return std::nullopt;
      if (names.opkit.empty() && names.only != "None") write(std::string(names.only));
      continue;
    }
    switch (names.rule) {
      case AttributeRule::kIgnored:
      case AttributeRule::kChannelsFirst:
        continue;
      case AttributeRule::kNoBias:
        write(shapes.inputs.size() == 2 ? "True" : "False");
        continue;
      case AttributeRule::kNumInputs:
        write(StrCat(shapes.inputs.size()));
        continue;
      case AttributeRule::kRows:
      case AttributeRule::kGroupColumns: {
        int64_t count = weights(0);
        if (names.rule == AttributeRule::kGroupColumns) {
          const std::string* group = FindText(attributes, "group");
          const int64_t groups = ParseText<int64_t>(group ? *group : "1").value_or(0);
          const bool fits = groups > 0 && weights(1) >= 0 && weights(1) <= INT64_MAX / groups;
          count = fits ? weights(1) * groups : -1;
        }
        if (count < 0) return std::nullopt;
        write(StrCat(count));
        continue;
      }
      case AttributeRule::kKernel:
        if (IsLeftOut(text) && shapes.inputs.size() > 1 && IsKnown(shapes.inputs[1]) &&
            shapes.inputs[1]->size() > 2)
          text = IntsText({shapes.inputs[1]->begin() + 2, shapes.inputs[1]->end()});
        break;
      default:
        break;
    }
    if (IsLeftOut(text)) {
      if (names.rule != AttributeRule::kText && names.rule != AttributeRule::kPads)
        return std::nullopt;
      if (!names.mxnet_default.empty()) return std::nullopt;
      continue;
    }
    std::optional<std::string> value = ValueToMxnet(names.rule, text);
    if (!value) return std::nullopt;
    write(*std::move(value));
  }
  return out;
}

// MXNet's attributes about a node's variables, devices and the like begin and end with "__".
inline bool IsHidden(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

// The attributes of opkit's operator of `row`; nullopt if it cannot express a node of MXNet.
inline std::optional<NamedTexts> AttributesToOpkit(const OperatorNames& row,
                                                   const NamedTexts& attributes,
                                                   const NodeShapes& shapes) {
  if (!FitsCounts(row, shapes) || !Holds(row.to_opkit, shapes)) return std::nullopt;
  for (const auto& [name, text] : attributes)
    if (!IsHidden(name) &&
        std::none_of(row.attributes.begin(), row.attributes.end(),
                     [&name = name](const AttributeNames& a) { return a.mxnet == name; }))
      return std::nullopt;
  NamedTexts out;
  for (const AttributeNames& names : row.attributes) {
    const std::string* given = names.mxnet.empty() ? nullptr : FindText(attributes, names.mxnet);
    std::string text = given ? *given : std::string();
    if (IsLeftOut(text)) text = names.mxnet_default;
    const auto write = [&](std::string value) { out.emplace_back(names.opkit, std::move(value)); };
    if (!names.only.empty()) {
      if (!names.mxnet.empty() && !IsOnly(text, names.only)) return std::nullopt;
      if (names.mxnet.empty() && names.only != names.opkit_default) write(std::string(names.only));
      continue;
    }
    switch (names.rule) {
      case AttributeRule::kIgnored:
      case AttributeRule::kRows:
      case AttributeRule::kGroupColumns:
        continue;
      case AttributeRule::kChannelsFirst:
        if (!IsLeftOut(text) && text != "NCW" && text != "NCHW" && text != "NCDHW")
          return std::nullopt;
        continue;
      case AttributeRule::kNoBias:
        if (!IsOnly(text, shapes.inputs.size() == 2 ? "True" : "False")) return std::nullopt;
        continue;
      case AttributeRule::kNumInputs:
        if (!text.empty() && text != StrCat(shapes.inputs.size())) return std::nullopt;
        continue;
      default:
        break;
    }
    if (IsLeftOut(text)) {
      if (names.rule != AttributeRule::kText && names.rule != AttributeRule::kPads)
        return std::nullopt;
      if (!names.opkit_default.empty()) return std::nullopt;
      continue;
    }
    std::optional<std::string> value = ValueToOpkit(names.rule, text);
    if (!value) return std::nullopt;
    write(*std::move(value));
  }
  return out;
}

inline bool IsNameOfBoth(std::string_view op) {
  return std::find(std::begin(kNamesOfBoth), std::end(kNamesOfBoth), op) != std::end(kNamesOfBoth);
}

OPKIT_INLINE OperatorTexts OperatorToMxnet(const OperatorTexts& from, const NodeShapes& shapes) {
  for (const OperatorNames& row : kOperatorNames)
    if (row.opkit == from.op)
      if (auto attributes = AttributesToMxnet(row, from.attributes, shapes))
        return {std::string(row.mxnet), *std::move(attributes)};
  OperatorTexts to{from.op, {}};
  if (IsNameOfBoth(from.op)) to.op = StrCat(kOpkitPrefix, from.op);
  if (from.op.starts_with(kMxnetPrefix)) to.op = from.op.substr(kMxnetPrefix.size());
  for (const auto& [name, text] : from.attributes)
    to.attributes.emplace_back(name, MxnetText(text));
  return to;
}
OPKIT_INLINE OperatorTexts OperatorToOpkit(const OperatorTexts& from, const NodeShapes& shapes) {
  std::string_view op = from.op;
  for (const OperatorAlias& other : kOperatorAliases)
    if (other.alias == op) op = other.name;
  for (const OperatorNames& row : kOperatorNames)
    if (row.mxnet == op)
      if (auto attributes = AttributesToOpkit(row, from.attributes, shapes))
        return {std::string(row.opkit), *std::move(attributes)};
  OperatorTexts to{from.op, {}};
  if (IsNameOfBoth(from.op)) to.op = StrCat(kMxnetPrefix, from.op);
  if (from.op.starts_with(kOpkitPrefix)) to.op = from.op.substr(kOpkitPrefix.size());
  for (const auto& [name, text] : from.attributes)
    to.attributes.emplace_back(name, OpkitText(text));
  return to;
}

OPKIT_INLINE std::string MxnetText(std::string_view text) {
  if (text == "true") return "True";
  if (text == "false") return "False";
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::string(text);
  return ListInBrackets(text, "()", true);
}
OPKIT_INLINE std::string OpkitText(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return std::string(text);
  return ListInBrackets(text, "[]", false);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_IMPL_OPERATOR_NAMES_IPP_

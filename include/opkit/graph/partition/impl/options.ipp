// The definition of ReadPartitionLimits.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_OPTIONS_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_OPTIONS_IPP_

#include <algorithm>
#include <charconv>

#include "opkit/graph/partition/options.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline std::vector<std::string> SplitNames(const std::string& text) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = (std::min)(text.find(',', begin), text.size());
    if (end > begin) names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}
inline int CountOption(const std::string& name, const std::string& value) {
  int count = 0;
  const char* const end = value.data() + value.size();
  const auto [last, error] = std::from_chars(value.data(), end, count);
  if (error != std::errc() || last != end || count < 1)
    Throw(ErrorCode::kInvalidArgument, "option ", name, " must be a number from 1 on, found '",
          value, "'");
  return count;
}
inline bool SwitchOption(const std::string& name, const std::string& value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  Throw(ErrorCode::kInvalidArgument, "option ", name, " must be true or false, found '", value,
        "'");
}

// The name of an option and the function that parses its value.
struct PartitionOption {
  std::string_view name;
  void (*read)(PartitionLimits& limits, const std::string& name, const std::string& value);
};
template <auto kField>
void ReadOption(PartitionLimits& limits, const std::string& name, const std::string& value) {
  auto& field = limits.*kField;
  if constexpr (std::is_same_v<decltype(field), bool&>)
    field = SwitchOption(name, value);
  else if constexpr (std::is_same_v<decltype(field), int&>)
    field = CountOption(name, value);
  else
    field = SplitNames(value);
}
inline constexpr PartitionOption kPartitionOptions[] = {
    {"exclude_ops", &ReadOption<&PartitionLimits::exclude_ops>},
    {"exclude_nodes", &ReadOption<&PartitionLimits::exclude_nodes>},
    {"min_size", &ReadOption<&PartitionLimits::min_size>},
    {"max_size", &ReadOption<&PartitionLimits::max_size>},
    {"max_subgraphs", &ReadOption<&PartitionLimits::max_subgraphs>},
    {"require_all", &ReadOption<&PartitionLimits::require_all>},
    {"see_taken", &ReadOption<&PartitionLimits::see_taken>},
    {"accept_if_faster", &ReadOption<&PartitionLimits::accept_if_faster>}};

OPKIT_INLINE std::vector<std::string> PartitionLimits::Names() {
  std::vector<std::string> names;
  for (const PartitionOption& option : kPartitionOptions) names.emplace_back(option.name);
  return names;
}

OPKIT_INLINE PartitionLimits ReadPartitionLimits(const PartitionArguments& options) {
  PartitionLimits limits;
  for (size_t i = 0; i < options.size(); ++i) {
    const auto& [name, value] = options[i];
    for (size_t k = 0; k < i; ++k)
      if (options[k].first == name)
        Throw(ErrorCode::kInvalidArgument, "option ", name, " is given twice, as '",
              options[k].second, "' and '", value, "'");
    const auto option = std::ranges::find(kPartitionOptions, name, &PartitionOption::name);
    if (option == std::end(kPartitionOptions))
      limits.rest.emplace_back(name, value);
    else
      option->read(limits, name, value);
  }
  if (limits.max_size > 0 && limits.max_size < limits.min_size)
    Throw(ErrorCode::kInvalidArgument, "option max_size is ", limits.max_size,
          ", less than min_size, which is ", limits.min_size);
  return limits;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PARTITION_IMPL_OPTIONS_IPP_

// MXNet's signatures of a partitioner's functions. Programs and libraries accept the same
// signatures.
#ifndef OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_
#define OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_

#include <string>
#include <utility>
#include <vector>

#include "opkit/base/ref_counted.hpp"
#include "opkit/op/function/op_tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using OptionStrings = std::vector<std::pair<std::string, std::string>>;

// The argument for a function's map of strings, std::unordered_map or std::map, by value or
// reference. Converts to the map type of the function, so that this header need not include it.
template <class Value>
class MapArgument {
 public:
  using Items = std::vector<std::pair<std::string, Value>>;

  MapArgument() = default;
  explicit MapArgument(Items items) : items_(std::move(items)) {}
  template <class Map>
    requires std::is_same_v<typename Map::key_type, std::string> &&
             std::is_same_v<typename Map::mapped_type, Value>
  operator Map&() {  // NOLINT: implicit
    using Made = std::remove_const_t<Map>;
    auto* made = new Shared<Made>(Made());
    for (const auto& [name, value] : items_) made->value.emplace(name, value);
    map_ = IntrusivePtr<RefCounted>(made);
    read_ = [](const RefCounted& map) {
      const Made& filled = static_cast<const Shared<Made>&>(map).value;
      return Items(filled.begin(), filled.end());
    };
    return made->value;
  }
  // Returns the contents of the map after the call.
  Items Read() const { return map_ ? read_(*map_) : items_; }

 private:
  Items items_;
  IntrusivePtr<RefCounted> map_;
  Items (*read_)(const RefCounted&) = nullptr;
};
using StringMapArgument = MapArgument<std::string>;
using TensorMapArgument = MapArgument<OpTensor>;

// The signatures of MXNet's versions.
template <class F>
concept SupportedOpsOfJson = std::is_invocable_v<F&, std::string, int, int*, StringMapArgument&>;
template <class F>
concept SupportedOpsOfVector =
    std::is_invocable_v<F&, std::string, std::vector<int>&, StringMapArgument&>;
template <class F>
concept AcceptOfJson = std::is_invocable_v<F&, std::string, int, bool*, StringMapArgument&>;
template <class F>
concept AcceptWithAttributes =
    std::is_invocable_v<F&, std::string, int, bool*, StringMapArgument&, StringMapArgument&>;
template <class F>
concept AcceptWithTensors =
    std::is_invocable_v<F&, std::string, int, bool*, StringMapArgument&, StringMapArgument&,
                        TensorMapArgument&, TensorMapArgument&>;

// Calls f with the parameters of its signature. The signature with int* comes from MXNet 1.7, where
// an id is only a flag: 0 leaves the node in the graph, like -2 in the other signatures.
template <class F>
ReturnValue CallSupportedOps(F& f, std::string json, std::vector<int>& ids,
                             StringMapArgument& options) {
  if constexpr (SupportedOpsOfVector<F>) {
    return static_cast<ReturnValue>(f(std::move(json), ids, options));
  } else {
    const auto answer = static_cast<ReturnValue>(
        f(std::move(json), static_cast<int>(ids.size()), ids.data(), options));
    for (int& id : ids)
      if (id == 0) id = -2;
    return answer;
  }
}
template <class F>
ReturnValue CallAcceptSubgraph(F& f, std::string json, int id, bool* accept,
                               StringMapArgument& options, StringMapArgument& attrs,
                               TensorMapArgument& args, TensorMapArgument& aux) {
  if constexpr (AcceptWithTensors<F>)
    return static_cast<ReturnValue>(f(std::move(json), id, accept, options, attrs, args, aux));
  else if constexpr (AcceptWithAttributes<F>)
    return static_cast<ReturnValue>(f(std::move(json), id, accept, options, attrs));
  else
    return static_cast<ReturnValue>(f(std::move(json), id, accept, options));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_

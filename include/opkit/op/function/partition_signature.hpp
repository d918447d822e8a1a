// MXNet's signatures of a partitioner's functions, and the one form to which each is adapted.
// Programs and libraries accept the same signatures. Each parameter may be a value, a reference or
// a pointer.
#ifndef OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_
#define OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_

#include <string>
#include <utility>
#include <vector>

#include "opkit/base/ref_counted.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/op/function/function_parameters.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using OptionStrings = std::vector<std::pair<std::string, std::string>>;

// The argument for a function's map from names to strings or tensors. Converts to the map type of
// the function, such as std::unordered_map or std::map, so that this header need not include it.
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

// The forms to which setSupportedOps and setAcceptSubgraph adapt functions with MXNet's signatures.
// `ids` has a number for each node of the JSON: -2, its value before the call, leaves the node in
// the graph; -1 takes it; a number from 0 on takes it as that kind.
using SupportedOpsFunction =
    UniqueFunction<OpStatus(std::string json, std::vector<int>& ids, StringMapArgument& options)>;
using AcceptFunction = UniqueFunction<OpStatus(std::string json, int id, bool* accept,
                                               StringMapArgument& options, StringMapArgument& attrs,
                                               TensorMapArgument& args, TensorMapArgument& aux)>;

// True for a parameter that takes a T by value, reference or pointer.
template <class P, class T>
inline constexpr bool kPasses = kIsPassed<P> && std::is_same_v<Pointee<P>, T>;
// True for a parameter that takes a map from names to values of the type.
template <class P, class Value>
inline constexpr bool kIsMapOf = false;
template <class P, class Value>
  requires requires {
    requires std::is_same_v<typename Pointee<P>::key_type, std::string>;
    requires std::is_same_v<typename Pointee<P>::mapped_type, Value>;
  }
inline constexpr bool kIsMapOf<P, Value> = kIsPassed<P>;
template <class P, class Value>
P PassMap(MapArgument<Value>& argument) {
  Pointee<P>& map = argument;
  if constexpr (std::is_same_v<P, Pointee<P>>)
    return map;  // a copy, so that Read still finds the argument's map
  else
    return PassAs<P>(map);
}

// Replaces flags, which are 1 for a node that is taken and 0 for another, by ids of
// SupportedOpsFunction. Leaves -1 and -2, which mean the same as flags and as ids. Throws
// kInvalidArgument for other numbers: 0 and 1 would then be flags or kinds.
inline void IdsOfFlags(std::vector<int>& ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < -2 || ids[i] > 1)
      Throw(ErrorCode::kInvalidArgument, "setSupportedOps' function answered ", ids[i],
            " for node ", i,
            " in int* ids, where 1 or -1 takes a node and 0 or -2 leaves it; a function that takes "
            "nodes of several kinds has std::vector<int>* ids");
    if (ids[i] >= 0) ids[i] = ids[i] == 1 ? -1 : -2;
  }
}

template <class F, class Json, class Ids, class Options>
  requires(kIsReturn<FunctionReturn<F>> && kPasses<Json, std::string> && kIsWritable<Ids> &&
           (kPasses<Ids, std::vector<int>> || kPasses<Ids, std::vector<bool>>) &&
           kIsMapOf<Options, std::string>)
SupportedOpsFunction Adapt(As<SupportedOpsFunction>, F f, TypeList<Json, Ids, Options>) {
  return [f = std::move(f)](std::string json, std::vector<int>& ids,
                            StringMapArgument& options) mutable -> OpStatus {
    if constexpr (kPasses<Ids, std::vector<int>>) {
      return CallForStatus(f, PassAs<Json>(json), PassAs<Ids>(ids), PassMap<Options>(options));
    } else {
      std::vector<bool> flags(ids.size());
      OpStatus status =
          CallForStatus(f, PassAs<Json>(json), PassAs<Ids>(flags), PassMap<Options>(options));
      ids.assign(flags.begin(), flags.end());
      IdsOfFlags(ids);
      return status;
    }
  };
}
template <class F, class Json, class Options>
  requires(kIsReturn<FunctionReturn<F>> && kPasses<Json, std::string> &&
           kIsMapOf<Options, std::string>)
SupportedOpsFunction Adapt(As<SupportedOpsFunction>, F f, TypeList<Json, int, int*, Options>) {
  return [f = std::move(f)](std::string json, std::vector<int>& ids,
                            StringMapArgument& options) mutable {
    OpStatus status = CallForStatus(f, PassAs<Json>(json), static_cast<int>(ids.size()), ids.data(),
                                    PassMap<Options>(options));
    if (status.ok()) IdsOfFlags(ids);
    return status;
  };
}

// True for the parameters after the options: none, attrs, or attrs, args and aux.
template <class... P>
inline constexpr bool kIsAcceptTail = sizeof...(P) == 0;
template <class Attrs>
inline constexpr bool kIsAcceptTail<Attrs> = kIsMapOf<Attrs, std::string>;
template <class Attrs, class Args, class Aux>
inline constexpr bool kIsAcceptTail<Attrs, Args, Aux> =
    kIsMapOf<Attrs, std::string> && kIsMapOf<Args, OpTensor> && kIsMapOf<Aux, OpTensor>;

template <class F, class Json, class Options, class... Tail>
  requires(kIsReturn<FunctionReturn<F>> && kPasses<Json, std::string> &&
           kIsMapOf<Options, std::string> && kIsAcceptTail<Tail...>)
AcceptFunction Adapt(As<AcceptFunction>, F f, TypeList<Json, int, bool*, Options, Tail...>) {
  return [f = std::move(f)](std::string json, int id, bool* accept, StringMapArgument& options,
                            StringMapArgument& attrs, TensorMapArgument& args,
                            TensorMapArgument& aux) mutable {
    const auto map = [&]<size_t i>(std::integral_constant<size_t, i>) -> auto& {
      if constexpr (i == 0)
        return attrs;
      else if constexpr (i == 1)
        return args;
      else
        return aux;
    };
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return CallForStatus(f, PassAs<Json>(json), id, accept, PassMap<Options>(options),
                           PassMap<Tail>(map(std::integral_constant<size_t, i>()))...);
    }(std::index_sequence_for<Tail...>());
  };
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_

// The names of the operators of opkit/cluster/operators.hpp, and the parts of their nodes.
#ifndef OPKIT_CLUSTER_NAMES_HPP_
#define OPKIT_CLUSTER_NAMES_HPP_

#include <climits>
#include <string_view>

#include "opkit/base/error.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr std::string_view kClusterDomain = "opkit.cluster.";

inline bool IsCommunication(const OperatorDef& def) {
  return std::string_view(def.type()).starts_with(kClusterDomain);
}
// Returns "Send" of "opkit.cluster.Send"; empty for another operator.
inline std::string_view CommunicationOf(const OperatorDef& def) {
  return IsCommunication(def) ? std::string_view(def.type()).substr(kClusterDomain.size())
                              : std::string_view();
}
inline bool IsSend(const OperatorDef& def) { return CommunicationOf(def) == "Send"; }
inline bool IsReceive(const OperatorDef& def) { return CommunicationOf(def) == "Recv"; }
inline bool IsCollective(const OperatorDef& def) {
  return IsCommunication(def) && !IsSend(def) && !IsReceive(def);
}
// Returns the number of a process that an attribute of the node gives. Throws kInvalidArgument for
// a number that no process can have.
inline int ProcessNumber(const OperatorDef& def, int64_t number) {
  if (number < 0 || number > INT_MAX)
    Throw(ErrorCode::kInvalidArgument, "the node ", def, " names process ", number,
          ", which does not exist");
  return static_cast<int>(number);
}
// Returns the attribute "group" of a collective; empty: all processes.
inline std::vector<int64_t> GroupOf(const OperatorDef& def) {
  return def.args().Get<std::vector<int64_t>>("group", {});
}

// True if only the root, the process of the attribute "root", reads the inputs of the collective.
inline bool ReadsAtRoot(const OperatorDef& def) {
  const std::string_view name = CommunicationOf(def);
  return name == "Broadcast" || name == "Scatter";
}
// True if only the root gets the outputs of the collective.
inline bool WritesAtRoot(const OperatorDef& def) {
  const std::string_view name = CommunicationOf(def);
  return name == "Reduce" || name == "Gather";
}
inline int RootOf(const OperatorDef& def) {
  return ProcessNumber(def, def.args().Get<int64_t>("root", 0));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_CLUSTER_NAMES_HPP_

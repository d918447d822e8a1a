// Graph passes in MXNet's spelling: functions that get a graph as JSON text and answer the text of
// another. The definitions need nlohmann/json; with CMake the target opkit::json holds them.
#ifndef OPKIT_INTEROP_GRAPH_PASS_HPP_
#define OPKIT_INTEROP_GRAPH_PASS_HPP_

#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/op/function/partition_signature.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class F>
concept GraphPassOfJson =
    std::is_invocable_r_v<int, F&, const std::string&, const std::string**, StringMapArgument&>;
using GraphPassCall =
    FunctionRef<MXReturnValue(const std::string&, const std::string**, StringMapArgument&)>;
Graph RunJsonPass(const Graph& graph, const PassArguments& options, GraphPassCall call);

}  // namespace detail

// The graph that JSON in the shape of MXNet's symbols says `before` has become. The text is what
// WriteSymbolJson (graph/partition/symbol_json.hpp) has made of `before`, changed:
// - a node is the one of its name in `before`, with what the text does not say (the types of
//   attributes, bodies, device, names of outputs); a name that `before` does not have is a new
//   node's, which has as many outputs as "dtypes" has elements, or as its operator says. Other
//   types and shapes are not read: they are inferred
// - attributes whose text is another have the type that the operator declares, or that they had;
//   they are strings where neither is known
// - inputs and constants stay, read or not; there are no new ones. Outputs stay as many, and keep
//   their names: where that needs one, an Identity gives it
//
// Errors begin with the place, "nodes[3].inputs[0]: …": kInvalidArgument for what is no such text
// or does not fit together, kUnsupported for a `before` that the text cannot say, as a node
// rewrites a value or two have one name.
Graph ReadSymbolJson(const Graph& before, std::string_view text);

// Makes the body of a pass of a function that MXNet 1.7 would call so, without the tensors and the
// PassResource that it has besides. *out_graph is made with new, and deleted here; where it is left
// alone, the graph stays as it is.
//
//   MXReturnValue my_pass(const std::string& in_graph, const std::string** out_graph,
//                         const std::unordered_map<std::string, std::string>& options) {
//     *out_graph = new std::string(Changed(in_graph));
//     return MX_SUCCESS;
//   }
//   REGISTER_PASS(my_pass).setBody(JsonGraphPass(my_pass));
template <class F>
auto JsonGraphPass(F f) {
  static_assert(detail::GraphPassOfJson<F>,
                "JsonGraphPass(f): write MXReturnValue f(const std::string& in_graph, const "
                "std::string** out_graph, const std::unordered_map<std::string, std::string>& "
                "options)");
  return [f = std::move(f)](const Graph& graph, const PassArguments& options) mutable {
    return detail::RunJsonPass(graph, options,
                               [&f](const std::string& in_graph, const std::string** out_graph,
                                    detail::StringMapArgument& map) {
                                 return static_cast<MXReturnValue>(f(in_graph, out_graph, map));
                               });
  };
}

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/graph_pass.ipp"
#endif

#endif  // OPKIT_INTEROP_GRAPH_PASS_HPP_

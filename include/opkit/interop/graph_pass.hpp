// JsonGraphPass: graph passes in MXNet's style, functions from a graph as JSON text to the JSON
// text of another graph. The definitions need nlohmann/json; with CMake the target opkit::json
// contains them.
#ifndef OPKIT_INTEROP_GRAPH_PASS_HPP_
#define OPKIT_INTEROP_GRAPH_PASS_HPP_

#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/op/function/partition_signature.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class F>
concept GraphPassOfJson =
    std::is_invocable_r_v<int, F&, const std::string&, const std::string**, StringMapArgument&>;
using GraphPassCall =
    FunctionRef<ReturnValue(const std::string&, const std::string**, StringMapArgument&)>;
Graph RunJsonPass(const Graph& graph, const PassArguments& options, GraphPassCall call);

}  // namespace detail

// Returns the graph that `text`, JSON in the shape of MXNet's symbols, describes. The text must be
// the output of WriteSymbolJson (graph/partition/symbol_json.hpp) for `before`, with changes:
// - A node with the name of a node of `before` is that node. It keeps what the text cannot express:
//   types of attributes, bodies, device, names of outputs. Any other name is a new node. A new node
//   has as many outputs as its "dtypes" has elements, else as its operator's schema gives, else as
//   the text reads, but at least one. Other dtypes and shapes are not read, but inferred.
// - An attribute whose text has changed gets the type that the operator declares, else the type
//   that it had before, else string.
// - Inputs and constants stay, even if no node reads them. The text cannot add inputs, because the
//   programs that run the graph would not give them. Outputs keep their number and names; where
//   necessary, an Identity node gives a value the output's name.
// - `constants` are tensors that the pass made, by name; of two with one name the last is used. A
//   "null" node with such a name, which the graph lacks, becomes a constant of the graph. A
//   constant of the graph with such a name gets the tensor in place of its own. Other tensors are
//   not used.
// - Attributes of "null" nodes are not read.
// - A node of `before` leaves out the inputs that it left out there. MXNet's attribute
//   "__ext_extra_inputs__" is the number of inputs that the pass has added at the end.
//
// Errors begin with the place: "nodes[3].inputs[0]: …". Throws kInvalidArgument for text that is no
// such JSON or is inconsistent, and for a tensor that has no data or the name of an input. Throws
// kUnsupported for a `before` that the text cannot express, because a node rewrites a value or two
// nodes have the same name.
Graph ReadSymbolJson(const Graph& before, std::string_view text,
                     const std::vector<std::pair<std::string, Tensor>>& constants = {});

// Makes the body of a pass from a function in the style of MXNet 1.7, but without MXNet's tensors
// and PassResource. The function allocates *out_graph with new, and the pass deletes it. If the
// function does not set *out_graph, the graph stays unchanged.
//
//   ReturnValue my_pass(const std::string& in_graph, const std::string** out_graph,
//                         const std::unordered_map<std::string, std::string>& options) {
//     *out_graph = new std::string(Changed(in_graph));
//     return SUCCESS;
//   }
//   REGISTER_PASS(my_pass).setBody(JsonGraphPass(my_pass));
template <class F>
auto JsonGraphPass(F f) {
  static_assert(detail::GraphPassOfJson<F>,
                "JsonGraphPass(f): write ReturnValue f(const std::string& in_graph, const "
                "std::string** out_graph, const std::unordered_map<std::string, std::string>& "
                "options)");
  return [f = std::move(f)](const Graph& graph, const PassArguments& options) mutable {
    return detail::RunJsonPass(graph, options,
                               [&f](const std::string& in_graph, const std::string** out_graph,
                                    detail::StringMapArgument& map) {
                                 return static_cast<ReturnValue>(f(in_graph, out_graph, map));
                               });
  };
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/graph_pass.ipp"
#endif

#endif  // OPKIT_INTEROP_GRAPH_PASS_HPP_

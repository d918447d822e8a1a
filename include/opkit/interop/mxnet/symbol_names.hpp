// Converts the JSON text of a graph between opkit's operator names and attributes and MXNet's,
// which the libraries of MXNet's users read and write. The definitions need nlohmann/json.
#ifndef OPKIT_INTEROP_MXNET_SYMBOL_NAMES_HPP_
#define OPKIT_INTEROP_MXNET_SYMBOL_NAMES_HPP_

#include "opkit/core/tensor.hpp"
#include "opkit/interop/mxnet/operator_names.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Converts `opkit_text`, written by WriteSymbolJson (graph/partition/symbol_json.hpp), to the JSON
// that MXNet gives to a library. Nodes keep their numbers, names and inputs.
// - OperatorToMxnet translates each operator.
// - "dtypes" and "shapes" become the attributes "__ext_dtype__" and "__ext_shape__". A node has
//   "__ext_dtype__" only if the types of all its outputs are known, "__ext_shape__" only if all
//   their extents are: MXNet's reader takes -1 for 1, and an unknown rank for a scalar.
// - A "null" node that is an argument has its own name as "argName". Its known shape is also
//   "__shape__", "(3, 2)", as in the variables of MXNet's layers. "constant" is left out.
// All values are strings, unsigned integers, lists and objects, because MXNet's reader (lib_api.cc,
// JsonVal) has no other ones. Throws kInvalidArgument for a text that is no such JSON.
std::string ToMxnetJson(std::string_view opkit_text);

// Converts `mxnet_text`, a library's changed copy of ToMxnetJson(opkit_text), to JSON that
// ReadSymbolJson (interop/graph_pass.hpp) reads.
// - A node of `opkit_text` (nodes are matched by name) whose operator and attributes are unchanged
//   gets back the operator and the attributes that it has in `opkit_text`. If only attributes have
//   changed, the others get back their texts.
// - OperatorToOpkit translates any other node.
// - Nodes of `opkit_text` keep their control inputs, which MXNet's graphs do not have.
// - "__ext_dtype__", "__ext_shape__", and all attributes of "null" nodes are left out.
// `constants` are tensors that the library made, by the name of their "null" node: translations of
// some operators depend on the shapes of their inputs. Throws kInvalidArgument for a text that is
// not JSON. Mistakes in its structure stay in the result, and ReadSymbolJson reports them.
std::string FromMxnetJson(std::string_view opkit_text, std::string_view mxnet_text,
                          const std::vector<std::pair<std::string, Tensor>>& constants = {});

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/mxnet/impl/symbol_names.ipp"
#endif

#endif  // OPKIT_INTEROP_MXNET_SYMBOL_NAMES_HPP_

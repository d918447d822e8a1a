// The JSON of opkit_host.h: options and attributes that the caller gives, and descriptions of
// operators.
#ifndef OPKIT_HOST_HOST_JSON_HPP_
#define OPKIT_HOST_HOST_JSON_HPP_

#include <string>
#include <vector>

#include "opkit/interop/parse_json.hpp"
#include "opkit/op/op_registry.hpp"

namespace host {

using opkit::detail::Json;
using opkit::detail::JsonObject;

// No more inputs than this are accepted; a schema with this limit has none.
constexpr int kMostInputs = 1 << 20;

// Returns the document; an empty object for a null pointer. `name` is the argument's name in
// errors.
Json ReadJson(const char* text, const char* name);
// Returns an integer from 0 to INT32_MAX.
int NumberFromJson(const Json& json, const std::string& path);
// Returns convert(element, path) of each element of an array.
template <class Convert>
auto ListOf(const Json& json, const std::string& path, Convert convert) {
  std::vector<decltype(convert(json, path))> out;
  if (!json.is_array()) opkit::detail::ThrowWrongJson(json, path, "an array");
  for (size_t i = 0; i < json.size(); ++i)
    out.push_back(convert(json[i], opkit::detail::Element(path, i)));
  return out;
}
// Returns the option "backends". Throws kNotFound for a backend of which there is no kernel.
std::vector<std::string> BackendsFromJson(const JsonObject& options);
// Returns the attributes of an operator, in the form that its schema declares.
opkit::Arguments AttributesOf(const char* op, const char* text);
// Returns one element of opkit_host_operators.
Json DescribeOperator(const opkit::OpSchema& schema);

}  // namespace host

#endif  // OPKIT_HOST_HOST_JSON_HPP_

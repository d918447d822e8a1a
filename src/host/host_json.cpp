// Reads and writes the JSON of opkit_host.h.
#include "host_json.hpp"

#include "opkit/export/core.hpp"

using namespace opkit;

namespace host {

namespace {

// Converts a value of JSON to an attribute: {"float": "inf"} names the type, other values have it.
Attribute AttributeOf(const Json& json, const std::string& path) {
  if (json.is_object()) return detail::AttributeFromJson(json, path);
  const bool is_list = json.is_array();
  const auto all = [&](auto is_type) {
    if (!is_list) return is_type(json);
    for (const Json& element : json)
      if (!is_type(element)) return false;
    return true;
  };
  if (all([](const Json& value) { return value.is_number_integer(); }))
    return detail::ListFromJson<int64_t>(json, path, is_list, detail::IntFromJson);
  if (all([](const Json& value) { return value.is_number(); }))
    return detail::ListFromJson<double>(json, path, is_list, detail::FloatFromJson);
  if (all([](const Json& value) { return value.is_boolean(); }))
    return detail::ListFromJson<bool>(json, path, is_list, detail::BoolFromJson);
  if (all([](const Json& value) { return value.is_string(); }))
    return detail::ListFromJson<std::string>(json, path, is_list, detail::StringFromJson);
  detail::ThrowWrongJson(json, path,
                         "a number, a string, true or false, an array of one of these types, or an "
                         "object that names the type");
}

// Returns the value of an attribute without its type.
Json ValueOf(const Attribute& attribute) {
  Json typed = detail::ToJson(attribute, "default");
  return std::move(typed.begin().value());
}
Json DescribeValues(const std::vector<detail::ValueSchema>& values) {
  Json out = Json::array();
  for (const detail::ValueSchema& value : values) {
    Json dtypes = Json::array();
    for (const DType dtype : value.dtypes) dtypes.push_back(ToString(dtype));
    out.push_back({{"name", value.name}, {"doc", value.doc}, {"dtypes", std::move(dtypes)}});
  }
  return out;
}
Json Range(int least, int most) {
  return Json::array({least, most >= kMostInputs ? Json(nullptr) : Json(most)});
}

}  // namespace

Json ReadJson(const char* text, const char* name) {
  if (!text) return Json::object();
  return detail::AtPath(name, [&] { return detail::ParseJson(text); });
}

int NumberFromJson(const Json& json, const std::string& path) {
  const int64_t value = detail::IntFromJson(json, path);
  if (value < 0 || value > INT32_MAX)
    detail::ThrowAtPath(path, StrCat(value, " is not between 0 and ", INT32_MAX),
                        ErrorCode::kOutOfRange);
  return static_cast<int>(value);
}

std::vector<std::string> BackendsFromJson(const JsonObject& options) {
  if (!options.Find("backends")) return {};
  auto names = ListOf(options.Get("backends"), options.PathOf("backends"), detail::StringFromJson);
  for (const std::string& name : names) OpRegistry::Global().CheckBackend(name);
  return names;
}

Arguments AttributesOf(const char* op, const char* text) {
  const Json json = ReadJson(text, "attributes");
  if (!json.is_object()) detail::ThrowWrongJson(json, "attributes", "an object");
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  Arguments args;
  for (const auto& item : json.items())
    args.Set(item.key(), detail::FitAttribute(
                             schema.FindAttribute(item.key()),
                             AttributeOf(item.value(), detail::Member("attributes", item.key()))));
  return args;
}

Json DescribeOperator(const OpSchema& schema) {
  Json attributes = Json::array();
  for (const detail::AttributeSchema& attribute : schema.attributes()) {
    Json row = {{"name", attribute.name}, {"doc", attribute.doc}};
    if (attribute.type) row["type"] = ToString(*attribute.type);
    row["required"] = attribute.required;
    if (attribute.default_value) row["default"] = ValueOf(*attribute.default_value);
    if (!attribute.values.empty()) row["values"] = attribute.values;
    attributes.push_back(std::move(row));
  }
  return {{"name", schema.name()},
          {"doc", schema.doc()},
          {"library", schema.origin()},
          {"num_inputs", Range(schema.min_inputs(), schema.max_inputs())},
          {"num_outputs", Range(schema.min_outputs(), schema.max_outputs())},
          {"inputs", DescribeValues(schema.inputs())},
          {"outputs", DescribeValues(schema.outputs())},
          {"attributes", std::move(attributes)},
          {"any_attributes", schema.TakesArgument("any attribute")},
          {"stateful", schema.is_stateful()}};
}

}  // namespace host

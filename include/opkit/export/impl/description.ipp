// The definitions of description.hpp.
#ifndef OPKIT_EXPORT_IMPL_DESCRIPTION_IPP_
#define OPKIT_EXPORT_IMPL_DESCRIPTION_IPP_

#include <algorithm>
#include <cmath>

#include "opkit/base/json/json_line_reader.hpp"
#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/export/core.hpp"
#include "opkit/export/description.hpp"
#include "opkit/export/gradient_operator.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/version.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns what write(text) appends to the text, or JSON of the Error that it throws.
template <class Write>
const char* AnswerInJson(Write&& write) noexcept {
  thread_local std::string answer;
  return GuardBoundary(
      [&] {
        answer.clear();
        write(answer);
        return answer.c_str();
      },
      [&](ErrorCode code, const char* message) {
        try {
          answer.clear();
          JsonWriter(answer)
              .BeginObject()
              .Member("error", message)
              .Member("class", PythonClassOf(code))
              .EndObject();
          return answer.c_str();
        } catch (...) {
          return R"({"error": "out of memory", "class": "MemoryError"})";
        }
      });
}

struct OPKIT_IMAGE_LOCAL ExportsOfHost {
  const char* host;
  const ExportList& operators;
};
inline std::vector<ExportsOfHost> AllExports() {
  return {{"onnxruntime", g_onnxruntime_operators},
          {"tvm_ffi", g_tvm_ffi_operators},
          {"xla", g_xla_operators},
          {"torch", g_torch_operators}};
}
// Returns the operators that are exported to any host, in the order of their first export.
inline std::vector<const ExportedOperator*> ExportedOperators() {
  std::vector<const ExportedOperator*> all;
  for (const ExportsOfHost& of : AllExports())
    for (const ExportedOperator* op = of.operators.first(); op; op = op->next()) {
      bool known = false;
      for (const ExportedOperator* other : all)
        known |= std::string_view(other->name()) == op->name();
      if (!known) all.push_back(op);
    }
  return all;
}

inline void DescribeCount(JsonWriter& json, const char* key, int least, int most) {
  json.Key(key).BeginArray().Value(least);
  if (most == CountRule::kAny)
    json.Item() += "null";
  else
    json.Value(most);
  json.EndArray();
}
inline void DescribeValues(JsonWriter& json, const char* key,
                           const std::vector<ValueSchema>& values) {
  json.Key(key).BeginArray();
  for (const ValueSchema& value : values) {
    json.BeginObject().Member("name", value.name).Member("doc", value.doc);
    json.Key("dtypes").BeginArray();
    for (const DType dtype : value.dtypes) json.Value(ToString(dtype));
    json.EndArray().EndObject();
  }
  json.EndArray();
}
inline bool HasJson(const Attribute& value) {
  for (const double number : value.values().floats)
    if (!std::isfinite(number)) return false;
  return value.values().tensors.empty();
}
inline void DescribeAttribute(JsonWriter& json, const AttributeSchema& attribute) {
  json.BeginObject().Member("name", attribute.name).Member("doc", attribute.doc);
  if (attribute.type) json.Member("type", ToString(*attribute.type));
  json.Member("required", attribute.required);
  if (attribute.default_value && HasJson(*attribute.default_value)) {
    const Attribute& value = *attribute.default_value;
    const bool bools =
        value.type() == AttributeType::kBool || value.type() == AttributeType::kBools;
    json.Key("default");
    if (value.is_list()) json.BeginArray();
    for (const int64_t number : value.values().ints)
      bools ? json.Value(number != 0) : json.Value(number);
    for (const double number : value.values().floats) json.Value(number);
    for (const std::string& text : value.values().strings) json.Value(text);
    if (value.is_list()) json.EndArray();
  }
  json.Member("values", attribute.values).EndObject();
}
inline void DescribeOperator(JsonWriter& json, const ExportedOperator& op) {
  const OpSchema& schema = op.schema();
  json.BeginObject().Member("name", op.name());
  json.Key("hosts").BeginArray();
  for (const ExportsOfHost& of : AllExports())
    for (const ExportedOperator* one = of.operators.first(); one; one = one->next())
      if (std::string_view(one->name()) == op.name()) json.Value(of.host);
  json.EndArray().Member("doc", schema.doc());
  DescribeCount(json, "num_inputs", schema.min_inputs(), schema.max_inputs());
  DescribeCount(json, "num_outputs", schema.min_outputs(), schema.max_outputs());
  DescribeValues(json, "inputs", schema.inputs());
  DescribeValues(json, "outputs", schema.outputs());
  json.Key("attributes").BeginArray();
  for (const AttributeSchema& attribute : schema.attributes()) DescribeAttribute(json, attribute);
  json.EndArray().Member("stateful", schema.is_stateful()).Key("gradient");
  if (WhyNoGradientOperator(schema).empty())
    json.Value(GradientOperatorSchema(schema).name());
  else
    json.Item() += "null";
  json.EndObject();
}

OPKIT_INLINE const char* DescribeExports() noexcept {
  return AnswerInJson([](std::string& text) {
    JsonWriter json(text);
    json.BeginObject().Member("opkit", OPKIT_VERSION_STRING).Member("domain", ExportDomain());
    json.Key("operators").BeginArray();
    for (const ExportedOperator* op : ExportedOperators()) DescribeOperator(json.NewLine(), *op);
    json.EndArray().EndObject();
  });
}

// Reads the JSON of a call.
class ExportRequest {
 public:
  explicit ExportRequest(std::string_view text) : json_(text) {
    Object([&](const std::string& key) {
      if (key == "op")
        op = Text();
      else if (key == "inputs")
        Array([&] { AddInput(); });
      else if (key == "attributes")
        Object([&](const std::string& name) { values.emplace_back(name, Value()); });
      else
        Fail("one of op, inputs and attributes instead of " + key);
    });
  }

  std::string op;
  std::vector<std::optional<TensorInfo>> inputs;
  std::vector<std::pair<std::string, Attribute>> values;

 private:
  [[noreturn]] void Fail(const std::string& expected) const {
    Throw(ErrorCode::kInvalidArgument,
          "the text of a call is no JSON of the expected form: ", expected, " is expected at '",
          json_.rest().substr(0, 40), "'");
  }
  bool Skip(std::string_view token) {
    while (json_.Skip(" ")) {
    }
    return json_.Skip(token);
  }
  void Need(std::string_view token) {
    if (!Skip(token)) Fail(StrCat("'", token, "'"));
  }
  std::string Text() {
    std::string text;
    Skip("");
    if (!json_.ReadString(&text)) Fail("a text");
    return text;
  }
  template <class Element>
  void Array(Element&& element) {
    Need("[");
    if (Skip("]")) return;
    do element();
    while (Skip(","));
    Need("]");
  }
  template <class Member>
  void Object(Member&& member) {
    Need("{");
    if (Skip("}")) return;
    do {
      const std::string key = Text();
      Need(":");
      member(key);
    } while (Skip(","));
    Need("}");
  }
  void AddInput() {
    if (Skip("null")) return inputs.push_back({});
    TensorInfo info;
    Object([&](const std::string& key) {
      if (key == "dtype") {
        const std::string name = Text();
        info.dtype = DTypeFromName(name);
        if (info.dtype == DType::kUndefined)
          Throw(ErrorCode::kUnsupported, "'", name, "' is not a dtype of opkit");
      } else if (key == "shape") {
        std::vector<Dim> dims;
        Array([&] { dims.push_back(Extent()); });
        info.shape = SymbolicShape(std::move(dims));
      } else {
        Fail("one of dtype and shape instead of " + key);
      }
    });
    inputs.push_back(std::move(info));
  }
  Dim Extent() {
    int64_t number = 0;
    if (Skip("null")) return {};
    if (json_.rest().starts_with('"')) return Sym(Text());
    if (!json_.ReadInteger(&number)) Fail("an extent");
    return number;
  }

  // Adds one element, and returns the type of a list of such elements.
  AttributeType AddElement(Attribute::Values& to) {
    for (const bool value : {false, true})
      if (Skip(value ? "true" : "false")) {
        to.ints.push_back(value);
        return AttributeType::kBools;
      }
    // Python writes these for numbers that JSON lacks.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr std::pair<const char*, double> kOthers[] = {
        {"Infinity", kInfinity},
        {"-Infinity", -kInfinity},
        {"NaN", std::numeric_limits<double>::quiet_NaN()}};
    for (const auto& [name, value] : kOthers)
      if (Skip(name)) {
        to.floats.push_back(value);
        return AttributeType::kFloats;
      }
    if (json_.rest().starts_with('"')) {
      to.strings.push_back(Text());
      return AttributeType::kStrings;
    }
    JsonLineReader as_integer = json_;
    int64_t integer = 0;
    double number = 0;
    if (!json_.ReadNumber(&number)) Fail("a number, bool, text or list of these");
    if (as_integer.ReadInteger(&integer) && as_integer.rest() == json_.rest()) {
      to.ints.push_back(integer);
      return AttributeType::kInts;
    }
    to.floats.push_back(number);
    return AttributeType::kFloats;
  }
  Attribute Value() {
    auto read = MakeIntrusive<Attribute::Values>();
    Skip("");
    if (!json_.rest().starts_with('[')) {
      const int list = static_cast<int>(AddElement(*read));
      return Attribute(static_cast<AttributeType>(list - 5), std::move(read));
    }
    std::optional<AttributeType> type;
    Array([&] {
      const AttributeType one = AddElement(*read);
      const bool numbers = (one == AttributeType::kInts || one == AttributeType::kFloats) &&
                           (type == AttributeType::kInts || type == AttributeType::kFloats);
      if (type && type != one) {
        if (!numbers) Fail("an element of the type of the elements before it");
        type = AttributeType::kFloats;  // [1, 2.5]
      } else {
        type = one;
      }
      if (type == AttributeType::kFloats) {
        for (const int64_t integer : read->ints)
          read->floats.push_back(static_cast<double>(integer));
        read->ints.clear();
      }
    });
    return Attribute(type.value_or(AttributeType::kInts), std::move(read));
  }

  JsonLineReader json_;
};

// Returns the schema of an exported operator. Throws kNotFound for another one.
inline const OpSchema& SchemaOfExport(const std::string& name) {
  std::vector<std::string> known;
  for (const ExportedOperator* op : ExportedOperators()) {
    if (op->name() == name) return op->schema();
    if (StrCat(op->name(), "_grad") == name) return GradientOperatorSchema(op->schema());
    known.push_back(op->name());
  }
  Throw(ErrorCode::kNotFound, "this library exports no operator '", name, "'",
        SuggestName(name, known));
}

inline void WriteInferred(JsonWriter& json, const TensorInfo& info,
                          const std::vector<std::string>& symbols) {
  const auto null = [&] { json.Item() += "null"; };
  json.BeginObject().Key("dtype");
  info.dtype == DType::kUndefined ? null() : (void)json.Value(ToString(info.dtype));
  json.Key("shape");
  if (!info.shape.has_rank()) {
    null();
  } else {
    json.BeginArray();
    for (const Dim& dim : info.shape.dims()) {
      const bool known = std::count(symbols.begin(), symbols.end(), dim.symbol()) > 0;
      if (dim.is_known())
        json.Value(dim.value());
      else
        known ? (void)json.Value(dim.symbol()) : null();
    }
    json.EndArray();
  }
  json.EndObject();
}

OPKIT_INLINE const char* InferExport(const char* call) noexcept {
  return AnswerInJson([&](std::string& text) {
    const ExportRequest request(call ? call : "");
    const OpSchema& schema = SchemaOfExport(request.op);
    Arguments args;
    for (const auto& [name, value] : request.values)
      args.Set(name, FitAttribute(schema.FindAttribute(name), value));
    const auto count = static_cast<int>(request.inputs.size());
    const int outputs = CountOutputs(schema, request.inputs.size(), args, -1,
                                     "; a call of an export has the least number of outputs");
    OperatorDef def(schema.name(), {}, {}, std::move(args));
    std::vector<TensorInfo> infos;
    std::vector<std::string> symbols;
    for (int i = 0; i < count; ++i) {
      const std::optional<TensorInfo>& input = request.inputs[Index(i)];
      def.Input(input ? StrCat("input ", i) : std::string());
      infos.push_back(input.value_or(TensorInfo()));
      for (const Dim& dim : infos.back().shape.dims())
        if (dim.is_symbol()) symbols.push_back(dim.symbol());
    }
    for (int o = 0; o < outputs; ++o) def.Output(StrCat("output ", o));
    CheckNode(schema, def);
    JsonWriter json(text);
    json.BeginObject().Key("outputs").BeginArray();
    for (const TensorInfo& info : schema.InferOutputs(def, std::move(infos)))
      WriteInferred(json, info, symbols);
    json.EndArray().EndObject();
  });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_DESCRIPTION_IPP_

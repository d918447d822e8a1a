// Writes ONNX models for tests, field by field:
// onnx_bytes::Graph("g").Input(…).Node(…).Output(…).Model().
#ifndef OPKIT_TESTS_SUPPORT_ONNX_BYTES_HPP_
#define OPKIT_TESTS_SUPPORT_ONNX_BYTES_HPP_

#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "lists.hpp"

namespace onnx_bytes {

enum Type {
  kFloat = 1,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11
};

// Returns a TensorProto with raw data.
template <class T>
std::string Raw(int type, const std::string& name, const Ints& dims, const std::vector<T>& values) {
  std::string out;
  protozero::pbf_writer writer(out);
  for (const int64_t extent : dims) writer.add_int64(1, extent);
  writer.add_int32(2, type);
  if (!name.empty()) writer.add_string(8, name);
  writer.add_bytes(9, reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}
inline std::string FloatTensor(const std::string& name, const Ints& dims, const Floats& values) {
  return Raw(kFloat, name, dims, values);
}
// Returns a TensorProto whose data is in a file.
inline std::string ExternalTensor(const std::string& name, const Ints& dims,
                                  const std::string& file, const std::string& offset = "",
                                  const std::string& length = "") {
  std::string out;
  protozero::pbf_writer writer(out);
  for (const int64_t extent : dims) writer.add_int64(1, extent);
  writer.add_int32(2, kFloat);
  writer.add_string(8, name);
  for (const auto& [key, value] :
       {std::pair("location", file), {"offset", offset}, {"length", length}}) {
    if (value.empty()) continue;
    protozero::pbf_writer entry(writer, 13);
    entry.add_string(1, key);
    entry.add_string(2, value);
  }
  writer.add_int32(14, 1);
  return out;
}

// An AttributeProto, made by the function of its type.
class AttributeProto {
 public:
  explicit AttributeProto(const std::string& name, int type) {
    protozero::pbf_writer writer(bytes);
    writer.add_string(1, name);
    writer.add_int32(20, type);
  }
  static AttributeProto Float(const std::string& name, float value) {
    return AttributeProto(name, 1).Add([&](auto& writer) { writer.add_float(2, value); });
  }
  static AttributeProto Int(const std::string& name, int64_t value) {
    return AttributeProto(name, 2).Add([&](auto& writer) { writer.add_int64(3, value); });
  }
  static AttributeProto String(const std::string& name, const std::string& value) {
    return AttributeProto(name, 3).Add([&](auto& writer) { writer.add_bytes(4, value); });
  }
  static AttributeProto Tensor(const std::string& name, const std::string& tensor) {
    return AttributeProto(name, 4).Add([&](auto& writer) { writer.add_message(5, tensor); });
  }
  static AttributeProto Graph(const std::string& name, const std::string& graph) {
    return AttributeProto(name, 5).Add([&](auto& writer) { writer.add_message(6, graph); });
  }
  static AttributeProto Floats(const std::string& name, const ::Floats& values) {
    return AttributeProto(name, 6).Add([&](auto& writer) {
      for (const float value : values) writer.add_float(7, value);
    });
  }
  static AttributeProto Ints(const std::string& name, const ::Ints& values) {
    return AttributeProto(name, 7).Add([&](auto& writer) {
      for (const int64_t value : values) writer.add_int64(8, value);
    });
  }
  static AttributeProto Strings(const std::string& name, const ::Strings& values) {
    return AttributeProto(name, 8).Add([&](auto& writer) {
      for (const std::string& value : values) writer.add_bytes(9, value);
    });
  }
  static AttributeProto Tensors(const std::string& name, const ::Strings& tensors) {
    return AttributeProto(name, 9).Add([&](auto& writer) {
      for (const std::string& tensor : tensors) writer.add_message(10, tensor);
    });
  }
  // Makes an attribute that takes the value of attribute `of` of the enclosing function.
  static AttributeProto Ref(const std::string& name, int type, const std::string& of) {
    return AttributeProto(name, type).Add([&](auto& writer) { writer.add_string(21, of); });
  }

  std::string bytes;

 private:
  template <class F>
  AttributeProto&& Add(F&& write) && {
    protozero::pbf_writer writer(bytes);
    write(writer);
    return std::move(*this);
  }
};

// Returns a NodeProto.
inline std::string Node(const std::string& type, const Strings& inputs, const Strings& outputs,
                        const std::vector<AttributeProto>& attributes = {},
                        const std::string& name = "", const std::string& domain = "") {
  std::string out;
  protozero::pbf_writer writer(out);
  for (const std::string& input : inputs) writer.add_string(1, input);
  for (const std::string& output : outputs) writer.add_string(2, output);
  if (!name.empty()) writer.add_string(3, name);
  writer.add_string(4, type);
  for (const AttributeProto& attribute : attributes) writer.add_message(5, attribute.bytes);
  if (!domain.empty()) writer.add_string(7, domain);
  return out;
}

// One extent of a shape: a number, a dim_param, or unknown.
struct Extent {
  Extent(int value) : number(value), is_number(true) {}
  Extent(const char* name) : symbol(name) {}  // "" for unknown
  int number = 0;
  bool is_number = false;
  std::string symbol;
};

// Builds a GraphProto, and a ModelProto of it.
class Graph {
 public:
  explicit Graph(const std::string& name = "g") { writer().add_string(2, name); }

  Graph& Input(const std::string& name, const std::vector<Extent>& extents = {},
               int type = kFloat) {
    return Value(11, name, type, extents);
  }
  Graph& Output(const std::string& name, const std::vector<Extent>& extents, int type = kFloat) {
    return Value(12, name, type, extents);
  }
  Graph& Output(const std::string& name) { return Untyped(12, name); }
  Graph& ValueInfo(const std::string& name, const std::vector<Extent>& extents, int type = kFloat) {
    return Value(13, name, type, extents);
  }
  Graph& UntypedInput(const std::string& name) { return Untyped(11, name); }
  Graph& Initializer(const std::string& tensor) { return writer().add_message(5, tensor), *this; }
  Graph& Add(const std::string& node) { return writer().add_message(1, node), *this; }
  Graph& Node(const std::string& type, const Strings& inputs, const Strings& outputs,
              const std::vector<AttributeProto>& attributes = {}, const std::string& name = "",
              const std::string& domain = "") {
    return Add(onnx_bytes::Node(type, inputs, outputs, attributes, name, domain));
  }

  // Returns a ModelProto of this graph. A negative `opset` leaves out the opset.
  std::string Model(int64_t opset = 21, const Strings& functions = {}) const {
    std::string out;
    protozero::pbf_writer model(out);
    model.add_int64(1, 8);
    model.add_string(2, "opkit");
    model.add_string(3, "1.2");
    if (opset >= 0) AddOpset(model, 8, "", opset);
    model.add_message(7, bytes);
    for (const std::string& function : functions) model.add_message(25, function);
    return out;
  }
  static void AddOpset(protozero::pbf_writer& writer, int field, const std::string& domain,
                       int64_t version) {
    protozero::pbf_writer opset(writer, static_cast<protozero::pbf_tag_type>(field));
    opset.add_string(1, domain);
    opset.add_int64(2, version);
  }

  std::string bytes;

 private:
  protozero::pbf_writer writer() { return protozero::pbf_writer(bytes); }
  Graph& Untyped(int field, const std::string& name) {
    protozero::pbf_writer out = writer();
    protozero::pbf_writer value(out, static_cast<protozero::pbf_tag_type>(field));
    value.add_string(1, name);
    return *this;
  }
  Graph& Value(int field, const std::string& name, int type, const std::vector<Extent>& extents) {
    std::string shape;
    for (const Extent& extent : extents) {
      std::string dim;
      protozero::pbf_writer dimension(dim);
      if (extent.is_number) dimension.add_int64(1, extent.number);
      if (!extent.is_number && !extent.symbol.empty()) dimension.add_string(2, extent.symbol);
      protozero::pbf_writer(shape).add_message(1, dim);
    }
    std::string tensor, whole;
    protozero::pbf_writer(tensor).add_int32(1, type);
    protozero::pbf_writer(tensor).add_message(2, shape);
    protozero::pbf_writer(whole).add_message(1, tensor);
    protozero::pbf_writer out = writer();
    protozero::pbf_writer value(out, static_cast<protozero::pbf_tag_type>(field));
    value.add_string(1, name);
    value.add_message(2, whole);
    return *this;
  }
};

// Returns a FunctionProto.
inline std::string Function(const std::string& domain, const std::string& name,
                            const Strings& inputs, const Strings& outputs, const Strings& nodes,
                            const Strings& attributes = {},
                            const std::vector<AttributeProto>& defaults = {}, int64_t opset = 21) {
  std::string out;
  protozero::pbf_writer writer(out);
  writer.add_string(1, name);
  for (const std::string& input : inputs) writer.add_string(4, input);
  for (const std::string& output : outputs) writer.add_string(5, output);
  for (const std::string& attribute : attributes) writer.add_string(6, attribute);
  for (const std::string& node : nodes) writer.add_message(7, node);
  Graph::AddOpset(writer, 9, "", opset);
  writer.add_string(10, domain);
  for (const AttributeProto& attribute : defaults) writer.add_message(11, attribute.bytes);
  return out;
}

}  // namespace onnx_bytes

#endif  // OPKIT_TESTS_SUPPORT_ONNX_BYTES_HPP_

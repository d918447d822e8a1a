// Reads the operators and tensor types of an ONNX file without the toolkit's reader, so that the
// tests can also classify files that the reader refuses.
#ifndef OPKIT_TESTS_CONFORMANCE_MODEL_FACTS_HPP_
#define OPKIT_TESTS_CONFORMANCE_MODEL_FACTS_HPP_

#include <protozero/pbf_reader.hpp>
#include <set>
#include <string>
#include <string_view>

// Sorted names. An operator of another domain than ONNX's own is "domain.Operator".
struct ModelFacts {
  std::set<std::string> operators;
  std::set<std::string>
      types;  // of TensorProto.DataType, or "sequence", "optional", "map", "sparse"
};

namespace detail {

inline std::string OnnxTypeName(int32_t type) {
  static constexpr std::string_view kNames[] = {
      "undefined",      "float",    "uint8",        "int8",           "uint16",
      "int16",          "int32",    "int64",        "string",         "bool",
      "float16",        "double",   "uint32",       "uint64",         "complex64",
      "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
      "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
      "uint2",          "int2"};
  if (type < 0 || type >= static_cast<int32_t>(std::size(kNames)))
    return "type" + std::to_string(type);
  return std::string(kNames[type]);
}

// Walks the messages of onnx.proto; numbers are its field numbers.
class FactsReader {
 public:
  explicit FactsReader(ModelFacts* facts) : facts_(facts) {}

  void Model(protozero::pbf_reader model) {
    while (model.next())
      if (model.tag() == 7)
        Graph(model.get_message());
      else
        model.skip();
  }

 private:
  void Graph(protozero::pbf_reader graph) {
    while (graph.next()) switch (graph.tag()) {
        case 1:
          Node(graph.get_message());
          break;
        case 5:
          Tensor(graph.get_message());
          break;
        case 11:
        case 12:
        case 13:
          ValueInfo(graph.get_message());
          break;
        case 15:
          facts_->types.insert("sparse"), graph.skip();
          break;
        default:
          graph.skip();
      }
  }
  void Node(protozero::pbf_reader node) {
    std::string type, domain;
    while (node.next()) switch (node.tag()) {
        case 4:
          type = node.get_string();
          break;
        case 5:
          Attribute(node.get_message());
          break;
        case 7:
          domain = node.get_string();
          break;
        default:
          node.skip();
      }
    facts_->operators.insert(domain.empty() || domain == "ai.onnx" ? type : domain + "." + type);
  }
  void Attribute(protozero::pbf_reader attribute) {
    while (attribute.next()) switch (attribute.tag()) {
        case 5:
        case 10:
          Tensor(attribute.get_message());
          break;
        case 6:
        case 11:
          Graph(attribute.get_message());
          break;
        case 14:
          Type(attribute.get_message());
          break;
        case 22:
          facts_->types.insert("sparse"), attribute.skip();
          break;
        default:
          attribute.skip();
      }
  }
  void Tensor(protozero::pbf_reader tensor) {
    while (tensor.next())
      if (tensor.tag() == 2)
        facts_->types.insert(OnnxTypeName(tensor.get_int32()));
      else
        tensor.skip();
  }
  void ValueInfo(protozero::pbf_reader value) {
    while (value.next())
      if (value.tag() == 2)
        Type(value.get_message());
      else
        value.skip();
  }
  void Type(protozero::pbf_reader type) {
    while (type.next()) switch (type.tag()) {
        case 1: {
          protozero::pbf_reader tensor = type.get_message();
          while (tensor.next())
            if (tensor.tag() == 1)
              facts_->types.insert(OnnxTypeName(tensor.get_int32()));
            else
              tensor.skip();
          break;
        }
        case 4:
          facts_->types.insert("sequence"), type.skip();
          break;
        case 5:
          facts_->types.insert("map"), type.skip();
          break;
        case 8:
          facts_->types.insert("sparse"), type.skip();
          break;
        case 9:
          facts_->types.insert("optional"), type.skip();
          break;
        default:
          type.skip();
      }
  }

  ModelFacts* facts_;
};

}  // namespace detail

// Reads the bytes of a ModelProto. Throws protozero's exceptions if they are malformed.
inline ModelFacts FactsOf(std::string_view model) {
  ModelFacts facts;
  detail::FactsReader(&facts).Model(protozero::pbf_reader(model.data(), model.size()));
  return facts;
}

#endif  // OPKIT_TESTS_CONFORMANCE_MODEL_FACTS_HPP_

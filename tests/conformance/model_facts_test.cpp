#include "model_facts.hpp"

#include <doctest/doctest.h>

#include <protozero/pbf_writer.hpp>
#include <set>

namespace {

using Names = std::set<std::string>;
using protozero::pbf_writer;

// A message whose fields `fill` writes, as field `tag` of `out`.
template <class Fill>
void Message(pbf_writer& out, uint32_t tag, Fill fill) {
  pbf_writer inner(out, tag);
  fill(inner);
}
void Value(pbf_writer& graph, uint32_t tag, uint32_t kind, int32_t element) {
  Message(graph, tag, [&](pbf_writer& value) {
    value.add_string(1, "x");
    Message(value, 2, [&](pbf_writer& type) {
      Message(type, kind, [&](pbf_writer& tensor) { tensor.add_int32(1, element); });
    });
  });
}

}  // namespace

TEST_CASE("FactsOf finds the operators of a graph and of the graphs in its nodes") {
  std::string bytes;
  pbf_writer model(bytes);
  Message(model, 7, [](pbf_writer& graph) {
    Message(graph, 1, [](pbf_writer& node) {
      node.add_string(4, "If");
      Message(node, 5, [](pbf_writer& attribute) {
        attribute.add_string(1, "then_branch");
        Message(attribute, 6, [](pbf_writer& branch) {
          Message(branch, 1, [](pbf_writer& inner) {
            inner.add_string(4, "Scaler");
            inner.add_string(7, "ai.onnx.ml");
          });
          Message(branch, 5, [](pbf_writer& initializer) { initializer.add_int32(2, 11); });
        });
      });
    });
    Message(graph, 1, [](pbf_writer& node) {
      node.add_string(4, "Abs");
      node.add_string(7, "ai.onnx");
    });
  });
  const ModelFacts facts = FactsOf(bytes);
  CHECK(facts.operators == Names{"Abs", "If", "ai.onnx.ml.Scaler"});
  CHECK(facts.types == Names{"double"});
}

TEST_CASE("FactsOf finds the types of inputs, outputs, values and attributes") {
  std::string bytes;
  pbf_writer model(bytes);
  Message(model, 7, [](pbf_writer& graph) {
    Value(graph, 11, 1, 10);
    Value(graph, 12, 9, 0);
    Value(graph, 13, 4, 0);
    Message(graph, 1, [](pbf_writer& node) {
      node.add_string(4, "Constant");
      Message(node, 5, [](pbf_writer& attribute) {
        Message(attribute, 5, [](pbf_writer& tensor) { tensor.add_int32(2, 8); });
      });
    });
  });
  CHECK(FactsOf(bytes).types == Names{"float16", "optional", "sequence", "string"});
}

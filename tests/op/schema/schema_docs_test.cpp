// A schema as Markdown, to the letter.
#include "opkit/op/schema/schema_docs.hpp"

#include <doctest/doctest.h>

#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"

namespace schema_docs_test { namespace {

using opkit::DType;
using opkit::OpSchema;
using opkit::ToMarkdown;

TEST_CASE("a schema prints its doc, values, attributes and in-place pairs") {
  OpSchema schema("Axpy", "axpy.cc", 1);
  schema.NumInputs(2, 3)
      .NumOutputs(1)
      .Doc("Computes `alpha * X + Y`.")
      .Input(0, "X", "first")
      .Input(1, "Y", "a|b\nc", {DType::kFloat32, DType::kFloat64})
      .Output(0, "Z", "result")
      .Arg<float>("alpha", "factor", 1.f)
      .RequiredArg<std::vector<int>>("axes", "where")
      .Arg("mode", "")
      .Arg("pad", "how", {"valid", "same"})
      .Inplace({{1, 0}, {2, 0}});
  CHECK(ToMarkdown(schema) ==
        "## Axpy\n"
        "\n"
        "Computes `alpha * X + Y`.\n"
        "\n"
        "**Inputs** (2 to 3)\n"
        "\n"
        "| # | name | dtypes | |\n"
        "|---|---|---|---|\n"
        "| 0 | X | any | first |\n"
        "| 1 | Y | float32, float64 | a\\|b c |\n"
        "\n"
        "**Outputs** (1)\n"
        "\n"
        "| # | name | dtypes | |\n"
        "|---|---|---|---|\n"
        "| 0 | Z | any | result |\n"
        "\n"
        "**Attributes**\n"
        "\n"
        "| name | type | default | |\n"
        "|---|---|---|---|\n"
        "| alpha | float | 1 | factor |\n"
        "| axes | ints | required | where |\n"
        "| mode | any |  |  |\n"
        "| pad | one of `valid`, `same` | \"valid\" | how |\n"
        "\n"
        "**In place**\n"
        "\n"
        "- `Y` and `Z`\n"
        "- input 2 and `Z`\n");
}

TEST_CASE("a bare schema prints its arity") {
  OpSchema schema("Bare", "bare.cc", 1);
  CHECK(ToMarkdown(schema) == "## Bare\n\n**Inputs** (any number)\n\n**Outputs** (any number)\n");
  schema.NumInputs({1, 3}).NumOutputs([](int n) { return n == 1; }).EnforceInplace({{0, 0}});
  CHECK(ToMarkdown(schema) ==
        "## Bare\n\n**Inputs** (one of [1, 3])\n\n**Outputs** (a number that its schema's function "
        "allows)\n\n**In place**\n\n- input 0 and output 0 (must be the same)\n");
}

TEST_CASE("a schema whose numbers of values come from a node's graph says so") {
  OpSchema schema("Carries", "carries.cc", 1);
  schema.ArityFromArguments([](const opkit::Arguments&, auto) { return std::pair(-1, 2); });
  CHECK(ToMarkdown(schema) == "## Carries\n\n**Inputs** (any number)\n\n**Outputs** (2)\n");
  schema.NeedsSubgraph();
  CHECK(ToMarkdown(schema) == "## Carries\n\n**Inputs** (those of its graph)\n\n**Outputs** (2)\n");
}

OPERATOR_SCHEMA(DocsSeen).NumInputs(0).NumOutputs(0).Doc("For all to see.");
OPERATOR_SCHEMA(DocsHidden).NumInputs(0).NumOutputs(0).Private();
OPERATOR_SCHEMA(DocsWithKernel).NumInputs(0).NumOutputs(0);
class DocsOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};
REGISTER_CPU_OPERATOR(DocsWithKernel, DocsOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(DocsWithKernel, FAST, DocsOp);

TEST_CASE("the docs of all operators: the public ones, by name, with their kernels") {
  const std::string docs = opkit::DocsOfAllOperators();
  CHECK(Contains(docs,
                 "## DocsSeen\n\nFor all to see.\n\n**Inputs** (0)\n\n**Outputs** (0)\n\n"
                 "**Kernels**: none in this program\n"));
  CHECK(Contains(docs, "**Kernels**: cpu (reference), cpu (FAST)\n"));
  CHECK_FALSE(Contains(docs, "DocsHidden"));
  CHECK(docs.find("## DocsSeen") < docs.find("## DocsWithKernel"));
}

}  // namespace
}  // namespace schema_docs_test

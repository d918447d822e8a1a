// The table of operators that opkit and MXNet both have, and its copy in the documentation.
#include "opkit/interop/mxnet/names_table.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "opkit/base/strings.hpp"

namespace names_table_test {
using namespace opkit;

namespace {

// The table of names as docs/from-mxnet.md has it.
std::string Condition(detail::ShapeRule rule) {
  using detail::ShapeRule;
  switch (rule) {
    case ShapeRule::kNone:
      return {};
    case ShapeRule::kNotBroadcast:
      return "equal shapes, or an unknown rank";
    case ShapeRule::kEqual:
      return "inputs of equal shapes";
    case ShapeRule::kMatrices:
      return "two matrices";
    case ShapeRule::kBatches:
      return "equal ranks from 3, equal extents but the last two";
    case ShapeRule::kOneSlope:
      return "a slope of shape [1]";
    case ShapeRule::kLinear:
      return "a matrix, and a bias with one element for each output";
    case ShapeRule::kLastAxis:
      return "scale and bias have the last extent";
    case ShapeRule::kEqualParts:
      return "equal parts";
    case ShapeRule::kNever:
      return "never";
    case ShapeRule::kNotScalar:
      return "an extent other than 1";
  }
  return {};
}
std::string Note(detail::AttributeRule rule) {
  using detail::AttributeRule;
  switch (rule) {
    case AttributeRule::kPads:
      return " (equal at both ends)";
    case AttributeRule::kOdd:
      return " (odd)";
    default:
      return {};
  }
}
std::string TableOfNames() {
  std::string only_names, rows;
  for (const detail::OperatorNames& row : detail::kOperatorNames) {
    std::string attributes, conditions = Condition(row.to_mxnet);
    const auto add = [](std::string& list, const std::string& item) {
      list += StrCat(list.empty() ? "" : ", ", item);
    };
    for (const detail::AttributeNames& names : row.attributes) {
      if (names.rule == detail::AttributeRule::kIgnored ||
          names.rule == detail::AttributeRule::kChannelsFirst || names.only == "None")
        continue;
      if (!names.only.empty())
        add(names.opkit.empty() ? attributes : conditions,
            StrCat("`", names.opkit, names.mxnet, "=", names.only, "`"));
      else if (names.opkit == names.mxnet || names.opkit.empty())
        add(attributes, StrCat("`", names.mxnet, "`", Note(names.rule)));
      else
        add(attributes, StrCat("`", names.opkit, "` → `", names.mxnet, "`", Note(names.rule)));
    }
    if (row.max_inputs == 1 && attributes.empty() && conditions.empty()) {
      const size_t line = only_names.size() - (only_names.rfind('\n') + 1);
      only_names += StrCat(only_names.empty() ? "" : line > 90 ? ",\n" : ", ");
      only_names += StrCat("`", row.opkit, "` → `", row.mxnet, "`");
    } else {
      rows += StrCat("| `", row.opkit, "` | `", row.mxnet, "` | ", attributes, " | ", conditions,
                     " |\n");
    }
  }
  return StrCat("| opkit | MXNet | attributes | only with |\n| --- | --- | --- | --- |\n", rows,
                "\nOnly the names of these operators differ:\n", only_names, ".\n");
}

}  // namespace

TEST_CASE("docs/from-mxnet.md shows the table of names") {
  std::ifstream file(OPKIT_TEST_DOCS "/from-mxnet.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const std::string begin = "<!-- names -->\n", end = "<!-- names: end -->";
  const size_t from = page.find(begin);
  REQUIRE(from != std::string::npos);
  const size_t to = page.find(end, from);
  REQUIRE(to != std::string::npos);
  const std::string shown = page.substr(from + begin.size(), to - from - begin.size());
  const std::string table = TableOfNames();
  INFO("Put this text between the two comments of the page:\n" << table);
  CHECK((shown == table));
}

TEST_CASE("a row of the table is whole") {
  using detail::AttributeRule;
  for (const detail::OperatorNames& row : detail::kOperatorNames) {
    CAPTURE(row.opkit);
    CAPTURE(row.mxnet);
    CHECK(row.min_inputs >= 1);
    CHECK(row.max_inputs >= row.min_inputs);
    for (const detail::AttributeNames& names : row.attributes) {
      CAPTURE(names.opkit);
      CAPTURE(names.mxnet);
      const bool is_on_both = !names.opkit.empty() && !names.mxnet.empty();
      CHECK((!names.opkit.empty() || !names.mxnet.empty()));
      // An attribute with only one value is on one side, and says what its absence means there.
      if (!names.only.empty()) {
        CHECK(!is_on_both);
        if (names.mxnet.empty()) CHECK(!names.opkit_default.empty());
        if (names.only != "None" && names.mxnet == "act_type") continue;  // MXNet requires it
        if (names.opkit.empty()) CHECK(!names.mxnet_default.empty());
      } else if (names.opkit.empty()) {
        CHECK(names.rule >= AttributeRule::kRows);
      } else {
        CHECK(is_on_both);
        CHECK(names.rule < AttributeRule::kRows);
      }
    }
  }
  for (const detail::OperatorAlias& alias : detail::kOperatorAliases) {
    CAPTURE(alias.alias);
    bool found = false;
    for (const detail::OperatorNames& row : detail::kOperatorNames) {
      found |= row.mxnet == alias.name;
      CHECK(row.mxnet != alias.alias);
    }
    CHECK(found);
  }
}

}  // namespace names_table_test

#include "opkit/op/check/check_report.hpp"

#include <doctest/doctest.h>

namespace check_report_test {
using opkit::CheckReport;

TEST_CASE("a report counts its findings and lists them, and then the checks that were not made") {
  CheckReport report;
  report.op = "Twice";
  report.runs = 7;
  CHECK(report.ok());
  CHECK(ToString(report) == "operator Twice: nothing wrong in 7 runs");
  report.findings = {"it reads too far", "it never ends"};
  report.notes = {"its gradient, none is registered"};
  CHECK_FALSE(report.ok());
  CHECK(ToString(report) ==
        "operator Twice: 2 wrong in 7 runs\n  it reads too far\n  it never ends\n"
        "  (not checked: its gradient, none is registered)");
}

}  // namespace check_report_test

// docs/cuda.md lists the standard operators with kernels for CUDA. OPKIT_WRITE_DOCS=1 writes the
// list.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "support/backends.hpp"

namespace operators_page {
using namespace opkit;

namespace {

// A table with a column for each backend and a row for each first letter.
std::string Listed() {
  size_t standard = 0;
  std::set<std::string> on_cuda, backends;
  std::map<char, std::map<std::string, std::string>> rows;
  for (const auto& [backend, operators] : OperatorsByBackend()) {
    if (backend.IsReference()) standard = operators.size();
    if (backend.device != DeviceType::kCUDA) continue;
    backends.insert(backend.name);
    for (const std::string& name : operators) {
      std::string& cell = rows[name[0]][backend.name];
      cell += (cell.empty() ? "" : ", ") + name;
    }
    on_cuda.insert(operators.begin(), operators.end());
  }
  std::string names = "|", line = "|", table;
  for (const std::string& backend : backends) {
    names += StrCat(" ", backend, " |");
    line += " --- |";
  }
  for (auto& [letter, cells] : rows) {
    table += "|";
    for (const std::string& backend : backends) table += StrCat(" ", cells[backend], " |");
    table += "\n";
  }
  return StrCat("Of ", standard, " operators, ", on_cuda.size(), " have a kernel:\n\n", names, "\n",
                line, "\n", table);
}

}  // namespace

TEST_CASE("docs/cuda.md lists the operators that have a kernel") {
  const std::string path = OPKIT_TEST_DOCS "/cuda.md", open = "<!-- operators: ";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = text.find('\n', text.find(open)) + 1, end = text.rfind(open);
  REQUIRE(begin <= end);
  const std::string wanted = "\n" + Listed() + "\n";
  if (std::getenv("OPKIT_WRITE_DOCS")) {
    std::ofstream(path) << text.substr(0, begin) + wanted + text.substr(end);
    return;
  }
  INFO("OPKIT_WRITE_DOCS=1 cuda_fake_models_test --test-case='docs*' writes the list");
  CHECK(text.substr(begin, end - begin) == wanted);
}

}  // namespace operators_page

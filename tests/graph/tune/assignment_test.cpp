#include "opkit/graph/tune/assignment.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "support/error_of.hpp"

namespace assignment_test {
namespace {

using namespace opkit;
using detail::Assignment;
using detail::AssignmentProblem;
using detail::SolveAssignment;

constexpr double kNever = std::numeric_limits<double>::infinity();

double CostOf(const AssignmentProblem& problem, const std::vector<int>& choices) {
  double sum = 0;
  for (size_t node = 0; node < choices.size(); ++node)
    sum += problem.costs[node][static_cast<size_t>(choices[node])];
  for (const AssignmentProblem::Edge& edge : problem.edges) {
    const auto from = static_cast<size_t>(edge.from), to = static_cast<size_t>(edge.to);
    sum += edge.costs[static_cast<size_t>(choices[from]) * problem.costs[to].size() +
                      static_cast<size_t>(choices[to])];
  }
  return sum;
}
double CheapestOfAll(const AssignmentProblem& problem) {
  std::vector<int> choices(problem.costs.size(), 0);
  double best = kNever;
  for (;;) {
    best = std::min(best, CostOf(problem, choices));
    size_t node = 0;
    for (; node < choices.size(); ++node) {
      if (++choices[node] < static_cast<int>(problem.costs[node].size())) break;
      choices[node] = 0;
    }
    if (node == choices.size()) return best;
  }
}

// Whole costs, so that sums are exact; a third of the pairs cost something, and some are forbidden.
AssignmentProblem RandomProblem(std::mt19937& random, int nodes) {
  const bool forbids = random() % 2 == 0;
  const auto density = random() % 100;
  const auto cost = [&] { return forbids && random() % 10 == 0 ? kNever : double(random() % 20); };
  AssignmentProblem out;
  for (int node = 0; node < nodes; ++node) {
    out.costs.emplace_back(1 + random() % 3);
    for (double& one : out.costs.back()) one = cost();
  }
  for (int a = 0; a < nodes; ++a)
    for (int b = a + 1; b < nodes; ++b) {
      if (random() % 100 >= density) continue;
      AssignmentProblem::Edge edge{a, b, {}};
      if (random() % 2) std::swap(edge.from, edge.to);
      edge.costs.resize(out.costs[size_t(a)].size() * out.costs[size_t(b)].size());
      for (double& one : edge.costs) one = random() % 3 ? 0 : cost();
      out.edges.push_back(edge);
      if (random() % 8 == 0) out.edges.push_back(std::move(edge));
    }
  return out;
}

// A chain of costs around 75 with edges that skip up to 8 nodes.
AssignmentProblem LongProblem(int nodes, int choices, int skips_of_100) {
  std::mt19937 random(1);
  AssignmentProblem out;
  for (int node = 0; node < nodes; ++node) {
    out.costs.emplace_back(choices);
    for (double& one : out.costs.back()) one = 50 + random() % 50;
  }
  const auto join = [&](int from, int to) {
    AssignmentProblem::Edge edge{from, to, std::vector<double>(size_t(choices) * size_t(choices))};
    for (double& one : edge.costs) one = random() % 2 ? 0 : random() % 20;
    out.edges.push_back(std::move(edge));
  };
  for (int node = 0; node + 1 < nodes; ++node) join(node, node + 1);
  for (int node = 0; node + 9 < nodes; ++node)
    if (int(random() % 100) < skips_of_100) join(node, node + 2 + int(random() % 7));
  return out;
}

}  // namespace

TEST_CASE("an assignment is the cheapest of all, on random graphs") {
  const char* const given = std::getenv("OPKIT_TEST_ASSIGNMENTS");
  const int count = given ? std::atoi(given) : 300;
  int impossible = 0;
  for (int i = 0; i < count; ++i) {
    CAPTURE(i);
    std::mt19937 random(static_cast<uint32_t>(i));
    const AssignmentProblem problem = RandomProblem(random, 1 + static_cast<int>(random() % 12));
    const double best = CheapestOfAll(problem);
    const Assignment found = SolveAssignment(problem);
    REQUIRE(found.choices.size() == problem.costs.size());
    CHECK(found.cost == best);
    CHECK(found.lower_bound == best);
    impossible += best == kNever;
    if (best < kNever) CHECK(CostOf(problem, found.choices) == best);
  }
  CHECK(impossible < count / 2);
}

TEST_CASE("a long chain is solved exactly whatever the effort") {
  const AssignmentProblem chain = LongProblem(1000, 6, 0);
  const Assignment found = SolveAssignment(chain, 0);
  CHECK(found.cost == found.lower_bound);
  CHECK(found.cost == CostOf(chain, found.choices));
}

TEST_CASE("a search that ends early reports an assignment and a bound below it") {
  const AssignmentProblem problem = LongProblem(400, 6, 60);
  const Assignment early = SolveAssignment(problem, 0), late = SolveAssignment(problem);
  CHECK(early.cost == CostOf(problem, early.choices));
  CHECK(early.lower_bound < early.cost);
  CHECK(early.lower_bound <= late.cost);
  CHECK(late.lower_bound <= early.cost);
  CHECK(late.cost <= early.cost);
  CHECK(late.lower_bound > 0.99 * late.cost);
}

TEST_CASE("a problem that is not well formed is an error") {
  CHECK(ErrorOf([] {
          SolveAssignment({{{1}, {}}, {}});
        })
            .message()
            .find("node 1 of an") != std::string::npos);
  CHECK_THROWS_AS(SolveAssignment({{{1}, {-1}}, {}}), Error);
  CHECK_THROWS_AS(SolveAssignment({{{std::nan("")}}, {}}), Error);
  const std::vector<std::vector<double>> two = {{1, 2}, {3, 4}};
  CHECK_THROWS_AS(SolveAssignment({two, {{0, 2, {0, 0, 0, 0}}}}), Error);
  CHECK_THROWS_AS(SolveAssignment({two, {{0, 0, {0, 0, 0, 0}}}}), Error);
  CHECK_THROWS_AS(SolveAssignment({two, {{0, 1, {0, 0}}}}), Error);
  CHECK(SolveAssignment({}).cost == 0);
}

}  // namespace assignment_test

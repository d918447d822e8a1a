// Faults of a library with MXNet's boundary are Errors that name their part. libraries/faults.c has
// one fault in each part.
#include "mxnet_fixture.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/graph/passes/named_pass.hpp"

namespace mxnet_faults_test {
using namespace mxnet_fixture;

namespace {

// The Error of an operator that is run on {1, 2} must name the operator and the library.
void CheckFault(const std::string& op, const Strings& words,
                const std::vector<Tensor>& inputs = {Vector({1, 2})}) {
  for (int again = 0; again < 2; ++again) {  // a failure leaves nothing half-made
    InvokeOptions options;
    options.num_outputs = op.starts_with("fault_sparse") ? 4 : 1;
    const std::string failure = ErrorOf([&] { Invoke(op, inputs, {}, options); }).what();
    CHECK_MESSAGE(Contains(failure, op), failure);
    CHECK_MESSAGE(Contains(failure, "libfaults.so"), failure);
    for (const std::string& word : words) CHECK_MESSAGE(Contains(failure, word), failure);
  }
}

}  // namespace

TEST_CASE("answers of inference that cannot be are refused") {
  Scoped library("faults");
  CheckFault("fault_dtype", {"9"});
  CheckFault("fault_null_shapes", {"inferShape"});
  CheckFault("fault_rank", {"inferShape", "40"});
  CheckFault("fault_extent", {"inferShape", "-2"});
  CheckFault("fault_count", {"parseAttrs", "-5"});
  CheckFault("fault_storage", {"inferSType", "5"});
}

TEST_CASE("an exception through a function in C is the Error of its operator") {
  Scoped library("faults");
  CheckFault("fault_throw", {"forward", "forward throws"});
  CheckFault("fault_throw_shape", {"inferShape", "shape throws"});
}

TEST_CASE("a failure without a message says so") {
  Scoped library("faults");
  CheckFault("fault_wordless", {"forward", "without a message"});
}

TEST_CASE("a failure with very many messages has the first of them") {
  Scoped library("faults");
  CheckFault("fault_wordy", {"word 0", "word 99;", "; and 10 more messages"});
}

TEST_CASE("memory of the GPU is refused in a run on the CPU") {
  Scoped library("faults");
  CheckFault("fault_gpu", {"forward", "alloc_gpu in a run on the CPU"});
}

TEST_CASE("states that are not made are reported") {
  Scoped library("faults");
  CheckFault("fault_state", {"createOpState"});
  CheckFault("fault_create", {"createOpState", "no state for 1 input"});
}

TEST_CASE("an input to change that does not exist is reported") {
  Scoped library("faults");
  CheckFault("fault_mutate", {"mutateInputs", "7"});
}

TEST_CASE("a sparse output that was never given memory, or the wrong memory, is reported") {
  Scoped library("faults");
  const std::vector<Tensor> csr{Vector({1}), Vector<int64_t>({0}), Vector<int64_t>({0, 1}),
                                Vector<int64_t>({1, 2})};
  CheckFault("fault_sparse", {"output 0"}, csr);
  CheckFault("fault_sparse_output", {"output 5"}, csr);
  CheckFault("fault_sparse_size", {"-3 indices"}, csr);
}

TEST_CASE("failures of partitioners name the strategy") {
  Scoped library("faults");
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("fault_throw", {"x"}, {"y"}));
  graph.AddOutput("y");
  const auto failure = [&](const std::string& partitioner) {
    const std::string text = ErrorOf([&] { Partition(graph, partitioner); }).what();
    CHECK_MESSAGE(Contains(text, partitioner), text);
    return text;
  };
  CHECK(Contains(failure("faults.supported"), "none of 2 nodes"));
  CHECK(Contains(failure("faults.review"), "no opinion of subgraph"));
  CHECK(Contains(failure("faults.selector"), "no selector"));
  CHECK(Contains(failure("faults"), "none of 2 nodes"));
}

TEST_CASE("failures of passes name the pass") {
  Scoped library("faults");
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"y"}));
  graph.AddOutput("y");
  const auto failure = [&](const char* pass) {
    const std::string text = ErrorOf([&] { RunPass(graph, pass); }).what();
    CHECK_MESSAGE(Contains(text, pass), text);
    return text;
  };
  failure("nullPass");
  failure("brokenPass");
  CHECK(Contains(failure("failingPass"), "not this graph"));
  // The host's reason comes before the words of a library that got no memory.
  CHECK(Contains(failure("hugePass"), "more elements than a 64-bit count"));
  CHECK(Contains(failure("axesPass"), "'w' with 2147483647 axes"));
  CHECK(Contains(failure("dtypePass"), "'w' of the dtype 99"));
  CHECK(Contains(failure("pointerPass"), "a pointer that gets its memory"));
  CHECK(Contains(failure("emptyPass"), "made an empty one"));
}

}  // namespace mxnet_faults_test

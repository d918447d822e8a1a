// The number of threads is the toolkit's alone: oneDNN, which has OpenMP's own, adds none.
#include <filesystem>

#include "backends/onednn/images.hpp"

namespace threads_test { namespace {

using namespace opkit;
using namespace onednn_test;

// The threads of this process.
int64_t Threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task"), end;
  return std::distance(tasks, end);
}
// Kernels of "onednn" (the convolutions, large enough for every thread, the activation, the
// product) and of other backends.
Graph Mixed() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1, 64, 28, 28});
  graph.AddConstant("v", Random({64, 64, 3, 3}, 1));
  graph.AddConstant("w", Random({64, 64, 1, 1}, 2));
  graph.AddConstant("m", Random({784, 128}, 3));
  graph.AddConstant("rows", Tensor::From<int64_t>({2}, {64, 784}));
  graph.AddNode(OperatorDef("Conv", {"x", "v"}, {"a"}, {{"pads", Ints(4, 1)}}));
  graph.AddNode(
      OperatorDef("MaxPool", {"a"}, {"b"}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints(4, 1)}}));
  graph.AddNode(OperatorDef("Sigmoid", {"b"}, {"c"}));
  graph.AddNode(OperatorDef("Conv", {"c", "w"}, {"d"}));
  graph.AddNode(OperatorDef("Reshape", {"d", "rows"}, {"e"}));
  graph.AddNode(OperatorDef("MatMul", {"e", "m"}, {"f"}));
  graph.AddNode(OperatorDef("Softmax", {"f"}, {"y"}));
  graph.AddOutput("y");
  return graph;
}

TEST_CASE("A plan on 1, 2 and 4 threads has this number of threads, and oneDNN adds none") {
  const detail::OpenMp& openmp = detail::OpenMp::Global();
  // Stands for a machine of eight cores: oneDNN would take this number of threads.
  const int before_test = openmp.get_max_threads ? openmp.get_max_threads() : 0;
  if (before_test) openmp.set_num_threads(8);
  const Graph graph = Mixed();
  const Tensor x = Random({1, 64, 28, 28}, 9);
  // The program's own pool starts before the loop, unless an earlier case has started it.
  ThreadPool::Global();
  for (const int threads : {1, 2, 4}) {
    CAPTURE(threads);
    const int64_t before = Threads();
    const Plan plan = Compile(graph, {.threads = threads});
    CHECK(plan.choice(0).kernel->backend == "onednn");
    CHECK(plan.choice(5).kernel->backend == "onednn");
    Executor executor(plan);
    for (int run = 0; run < 3; ++run) executor.Run({{"x", x}});
    CHECK(Threads() <= before + threads - 1);
  }
  if (before_test) openmp.set_num_threads(before_test);
}

}  // namespace
}  // namespace threads_test

// A graph of operators: built, compiled to a plan, run, and drawn.
//   g++ -std=c++20 -Isingle_include examples/06_graph.cpp -o graph && ./graph
#include <cstdio>
#include <opkit/graph.hpp>

using namespace opkit;

template <class Context>
void Dense(Context& ctx, In<"x", float> x, In<"w", float> w, Out<"y", float> y) {
  const int64_t inner = w.dim(0), columns = w.dim(1);
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t at) {
    float sum = 0;
    for (int64_t k = 0; k < inner; ++k)
      sum += x[at / columns * inner + k] * w[k * columns + at % columns];
    y[at] = sum;
  });
}
OPKIT_OP(Dense)
    .OutShape<"y">([](const InferenceContext& c) -> SymbolicShape {
      const SymbolicShape &x = c.input_shape(0), &w = c.input_shape(1);
      OPKIT_ENFORCE(x.rank() == 2 && w.rank() == 2 && Dim::Compatible(x[1], w[0]),
                    "but cannot multiply ", ToString(x), " by ", ToString(w));
      return {x[0], w[1]};
    })
    .Kernel<CPUContext>();

template <class Context>
void Rectify(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = x[i] > 0 ? x[i] : 0; });
}
OPKIT_OP(Rectify).SameShape<"x", "y">().Inplace<"x", "y">().Kernel<CPUContext>();

int main() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 2});
  g.AddConstant("W1", Tensor::From<float>({2, 3}, {1, -1, 2, 0, 1, -2}));
  g.AddConstant("W2", Tensor::From<float>({3, 1}, {1, 2, 3}));
  g.AddNode(OperatorDef("Dense").Input("X").Input("W1").Output("H"));
  g.AddNode(OperatorDef("Rectify").Input("H").Output("R"));
  g.AddNode(OperatorDef("Dense").Input("R").Input("W2").Output("Y"));
  g.AddOutput("Y");

  const Plan plan = Compile(g, {.threads = 2});
  Executor exec(plan);
  const auto out = exec.Run({{"X", Tensor::From<float>({2, 2}, {1, 1, 2, 0})}});
  const std::vector<float> y = out.Get("Y").ToVector<float>();
  std::printf("Y = %g %g\n\n", y[0], y[1]);

  std::printf("%s\n", ToString(plan).c_str());     // kernels, schedule, memory
  std::printf("%s", ToDot(plan.graph()).c_str());  // for Graphviz
  const std::string picture = ToSvg(plan);         // an SVG: time across, addresses up
  if (std::FILE* file = std::fopen("memory.svg", "w")) {
    std::fwrite(picture.data(), 1, picture.size(), file);
    std::fclose(file);
  }
  const MemorySummary memory = plan.memory();
  return y == std::vector<float>{1, 14} && memory.arena_bytes <= memory.naive_bytes ? 0 : 1;
}

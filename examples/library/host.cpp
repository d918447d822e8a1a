// Loads the libraries of this folder, runs a graph that mixes their operators with built-in ones,
// forward and backward, compares it with a graph of built-in ones alone, and unloads them.
//   cmake --build build/gcc --target example_library_host   # which links the target opkit::ops
//   build/gcc/examples/library/host build/gcc/examples/library/lib*.so
#include <cmath>
#include <cstdio>
#include <opkit/graph.hpp>
#include <opkit/plugin.hpp>

using namespace opkit;

Tensor Numbers(const Shape& shape) {
  Tensor out(shape, DType::kFloat32);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<float>()[i] = std::sin(static_cast<float>(7 * i + shape.rank()));
  return out;
}

// Builds one network twice: with the libraries' operators if there are any, and with built-in
// operators.
Graph Network(bool libraries) {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 4});
  g.AddConstant("W1", Numbers({4, 5})).AddConstant("W2", Numbers({5, 5}));
  g.AddConstant("B", Numbers({5})).AddConstant("three", Tensor::From<float>({}, {3}));
  const auto add = [&](const char* type, std::vector<std::string> in, const char* out,
                       Arguments args = {}) {
    g.AddNode(OperatorDef(type, std::move(in), {out}, std::move(args)));
  };
  add(libraries ? "my_gemm" : "Gemm", {"X", "W1"}, "H", {{"alpha", 0.5f}});
  add(libraries ? "my_relu" : "Relu", {"H"}, "R");
  add("Add", {"R", "B"}, "S");
  add(libraries ? "state_gemm" : "MatMul", {"S", "W2"}, "P");
  if (libraries) {
    add("c_scale", {"P"}, "T", {{"scale", 3.f}});
    add("residual_layer", {"R", "W2", "B"}, "Y");
  } else {
    add("Mul", {"P", "three"}, "T");
    add("MatMul", {"R", "W2"}, "RW"), add("Add", {"RW", "B"}, "RWB");
    add("Relu", {"RWB"}, "L"), add("Add", {"L", "R"}, "Y");
  }
  add("Mul", {"T", "T"}, "Q");
  add(libraries ? "async_sqrt" : "Sqrt", {"Q"}, "Z");
  // A node requests a second kernel of an existing operator by the name of its library.
  g.AddNode(OperatorDef("HardSigmoid", {"Q"}, {"G"}).Backends(libraries ? "hard_sigmoid" : ""));
  const char* slope = libraries ? "slope" : "alpha";
  add(libraries ? "my_leaky_relu" : "LeakyRelu", {"P"}, "F", {{slope, 0.3f}});
  add("ReduceMean", {"Q"}, "loss", {{"keepdims", 0}});
  for (const char* output : {"Y", "Z", "G", "F", "loss"}) g.AddOutput(output);
  const GradientMap gradients = AddGradients(g, "loss", {"X", "W1", "W2", "B"});
  for (const auto& [name, gradient] : gradients) g.AddOutput(gradient.dense);
  return g;
}

bool Close(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>();
  for (size_t i = 0; i < x.size(); ++i)
    if (!(std::fabs(x[i] - y[i]) <= 1e-4f * (1 + std::fabs(y[i])))) return false;
  return a.shape() == b.shape();
}

int Run() {
  const Graph mixed = Network(true), built_in = Network(false);
  Executor libraries(Compile(mixed)), reference(Compile(built_in));
  const Tensor x = Numbers({6, 4});
  const auto found = libraries.Run({{"X", x}}), expected = reference.Run({{"X", x}});
  int wrong = 0;
  for (const auto& [name, tensor] : expected) {
    const bool close = Close(found.Get(name), tensor);
    wrong += !close;
    std::printf("  %-8s %-7s %s as of built-in operators\n", name.c_str(),
                StrCat(tensor.shape()).c_str(), close ? "the same" : "NOT the same");
  }
  try {
    Invoke("async_sqrt", {Tensor::From<float>({2}, {4, -4})});
    ++wrong;
  } catch (const Error& error) {
    std::printf("an error of another thread: %s\n", error.message().c_str());
  }
  ResolvedOperator sum("async_running_sum", 1);  // one operator, whose state lives as long
  sum({Tensor::From<float>({2}, {1, 2})});
  wrong +=
      sum({Tensor::From<float>({2}, {10, 20})})[0].ToVector<float>() != std::vector{11.f, 22.f};
  return wrong;
}

int main(int argc, char** argv) try {
  std::vector<Library> libraries;
  for (int i = 1; i < argc; ++i) {
    libraries.push_back(Library::Load(argv[i]));
    std::printf("%s: %s\n", libraries.back().name().c_str(),
                StrCat(libraries.back().operators()).c_str());
  }
  int wrong = Run();
  for (Library& library : libraries) {
    const UnloadReport report = library.Unload();
    std::printf("%s: %s\n", library.path().c_str(), ToString(report).c_str());
    wrong += !report.unmapped;
  }
  return wrong == 0 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// The cost of a call into a loaded library's operator, and the cost of loading a library. The peers
// of the call are a direct call of the function, and the same function registered in this program.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include "../../tests/support/count_allocations.hpp"
#include "opkit/plugin.hpp"

namespace {
using namespace opkit;

Library& EmptyOps() {
  static Library library = Library::Load(OPKIT_EMPTY_OPS);
  return library;
}

Status Empty(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  return SUCCESS;
}
Status LikeInput0(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  for (auto& shape : out) shape = in[0];
  return SUCCESS;
}
REGISTER_OP(bench_program_empty).setForward(Empty).setInferShape(LikeInput0);

// Calls an operator with `arguments` tensors, the last of which is the output.
struct Call {
  Call(const char* type, int64_t arguments) {
    OperatorDef def(type);
    for (int64_t i = 0; i + 1 < arguments; ++i) {
      const std::string name = StrCat("x", i);
      *ws.CreateTensor(name) = Tensor::From<float>({4}, {1, 2, 3, 4});
      def.Input(name);
    }
    def.Output("y");
    op = CreateOperator(def, &ws);
    op->Run();
  }
  Workspace ws;
  std::unique_ptr<OperatorBase> op;
};

void Run(benchmark::State& state, const char* type) {
  Call call(type, state.range(0));
  const int64_t before = Allocations();
  for (auto _ : state) call.op->Run();
  state.counters["allocations_per_call"] =
      static_cast<double>(Allocations() - before) / static_cast<double>(state.iterations());
}
void LoadedOp(benchmark::State& state) {
  EmptyOps();
  Run(state, "bench_empty");
}
void LoadedOpOfVectors(benchmark::State& state) {
  EmptyOps();
  Run(state, "bench_empty_of_vectors");
}
void ProgramOp(benchmark::State& state) { Run(state, "bench_program_empty"); }

// Calls the library's function directly, with the same views.
void DirectCall(benchmark::State& state) {
  void* handle = dlopen(EmptyOps().path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  using Function =
      Status (*)(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
  const auto find = reinterpret_cast<void* (*)()>(dlsym(handle, "bench_empty_function"));
  if (!find) return state.SkipWithError("the library does not export bench_empty_function");
  const auto function = reinterpret_cast<Function>(find());
  const AttrMap attrs;
  std::vector<OpTensor> inputs(static_cast<size_t>(state.range(0)) - 1), outputs(1);
  const opkit_call call{};
  OpResource resource(&call);
  for (auto _ : state) benchmark::DoNotOptimize(function(attrs, inputs, outputs, resource).ok());
  dlclose(handle);
}
BENCHMARK(DirectCall)->Arg(2)->Arg(3)->Arg(10);
BENCHMARK(LoadedOp)->Arg(2)->Arg(3)->Arg(10);
BENCHMARK(ProgramOp)->Arg(2)->Arg(3)->Arg(10);
BENCHMARK(LoadedOpOfVectors)->Arg(2)->Arg(3)->Arg(10);

void LoadThousandOps(benchmark::State& state) {
  for (auto _ : state) {
    Library library = Library::Load(OPKIT_THOUSAND_OPS);
    state.PauseTiming();
    benchmark::DoNotOptimize(library.Unload().unmapped);
    state.ResumeTiming();
  }
}
BENCHMARK(LoadThousandOps)->Unit(benchmark::kMillisecond);
void LoadAndUnloadThousandOps(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(Library::Load(OPKIT_THOUSAND_OPS).Unload().unmapped);
}
BENCHMARK(LoadAndUnloadThousandOps)->Unit(benchmark::kMillisecond);

}  // namespace

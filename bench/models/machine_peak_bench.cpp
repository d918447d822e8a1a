// The machine's peak rates: multiply-adds in registers, and bytes to and from memory. The
// rates of a model's operators are read against these.
#include <benchmark/benchmark.h>

#include <vector>

namespace {

#ifdef __AVX512F__
constexpr int kVectorBytes = 64;
#else
constexpr int kVectorBytes = 32;
#endif
typedef float Vector __attribute__((vector_size(kVectorBytes)));

// items_per_second is FLOP/s.
void MultiplyAdd(benchmark::State& state) {
  // The number of chains is enough for two units with a latency of four or five cycles, and fits in
  // sixteen registers.
  constexpr int kChains = 10, kSteps = 1000;
  constexpr int kLanes = kVectorBytes / 4;
  Vector sums[kChains] = {}, scale = {}, add = {};
  scale += 0.999f;
  add += 0.001f;
  for (auto _ : state) {
    for (int step = 0; step < kSteps; ++step)
      for (Vector& sum : sums) sum = sum * scale + add;
    benchmark::DoNotOptimize(sums);
  }
  state.SetItemsProcessed(state.iterations() * kSteps * kChains * kLanes * 2);
}
BENCHMARK(MultiplyAdd)->ThreadRange(1, 2)->UseRealTime();

// bytes_per_second counts the two reads and the write of a = b + s * c.
void Triad(benchmark::State& state) {
  constexpr size_t kFloats = size_t{16} << 20;  // 64 MiB each: more than any cache
  std::vector<float> a(kFloats), b(kFloats, 1), c(kFloats, 2);
  for (auto _ : state) {
    for (size_t i = 0; i < kFloats; ++i) a[i] = b[i] + 3 * c[i];
    benchmark::DoNotOptimize(a.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(3 * kFloats * sizeof(float)));
}
BENCHMARK(Triad)->ThreadRange(1, 2)->UseRealTime();

}  // namespace

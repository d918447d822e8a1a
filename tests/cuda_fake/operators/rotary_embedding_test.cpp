// RotaryEmbedding on CUDA against the reference kernel of the CPU.
#include "opkit/backends/cuda/ops/rotary_embedding.hpp"

#include <doctest/doctest.h>

#include "on_cuda.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"
#include "support/text.hpp"

namespace rotary_embedding_test {
using namespace opkit;

namespace {

void Compare(const std::vector<Tensor>& inputs, const Arguments& args) {
  CheckOnCuda(kCUDABackend, "RotaryEmbedding", inputs, args, 1, 1e-6);
}

}  // namespace

TEST_CASE("pairs of numbers are rotated on CUDA") {
  for (const int64_t interleaved : {0, 1})
    for (const int64_t rotated : {0, 4}) {
      const int64_t pairs = rotated == 0 ? 4 : 2;
      const Tensor cosines = Random({10, pairs}, 1), sines = Random({10, pairs}, 2);
      Tensor positions = Tensor::From<int64_t>({2, 3}, {9, 0, 4, 4, 1, 2});
      Arguments args{{"interleaved", interleaved}, {"rotary_embedding_dim", rotated}};
      Compare({Random({2, 2, 3, 8}, 3), cosines, sines, positions}, args);
      Compare({Random({2, 2, 3, 8}, 3), Random({2, 3, pairs}, 4), Random({2, 3, pairs}, 5)}, args);
      args.Set("num_heads", 2);
      Compare({Random({2, 3, 16}, 3), cosines, sines, positions}, args);
    }
}

TEST_CASE("a position outside the caches is reported by a later run") {
  const Tensor x = Random({1, 1, 3, 4}, 1), cosines = Random({5, 2}, 2), sines = Random({5, 2}, 3);
  Workspace workspace;
  *workspace.CreateTensor("x") = OnCuda(x);
  *workspace.CreateTensor("cos") = OnCuda(cosines);
  *workspace.CreateTensor("sin") = OnCuda(sines);
  *workspace.CreateTensor("at") = OnCuda(Tensor::From<int64_t>({1, 3}, {1, -1, 5}));
  OperatorDef def("RotaryEmbedding", {"x", "cos", "sin", "at"}, {"y"});
  def.Device(kCuda0).Backends(kCUDABackend);
  const auto op = CreateOperator(def, &workspace);
  op->Run();
  const std::vector<float> y = OnHost(*workspace.GetTensor("y")).ToVector<float>();
  const Tensor expected =
      Invoke("RotaryEmbedding", {x, cosines, sines, Tensor::From<int64_t>({1, 3}, {1, 0, 0})})[0];
  for (size_t i = 0; i < 4; ++i) {
    CHECK(std::fabs(y[i] - expected.ToVector<float>()[i]) < 1e-6f);
    CHECK(y[4 + i] == 0);
    CHECK(y[8 + i] == 0);
  }
  CHECK(Contains(ErrorOf([&] { op->Run(); }).what(),
                 "RotaryEmbedding: an earlier run had the index "));
}

TEST_CASE("recorded runs read other positions, and report one outside the caches") {
  const auto positions = [](const std::vector<int64_t>& at) {
    return Tensor::From<int64_t>({1, 3}, at);
  };
  CheckRecordedOnCuda(
      kCUDABackend, "RotaryEmbedding",
      {Random({1, 1, 3, 4}, 1), Random({5, 2}, 2), Random({5, 2}, 3), positions({0, 1, 2})}, {}, 3,
      positions({4, 0, 3}), positions({1, 5, 2}),
      "RotaryEmbedding: the index 5 is outside its axis", 1e-6);
}

}  // namespace rotary_embedding_test

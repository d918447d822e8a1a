// Sparse tensors of a library with MXNet's boundary: a CSR tensor is four values (data, indices,
// indptr, shape), a row-sparse one is three (data, indices, shape).
#include "mxnet_fixture.hpp"
#include "opkit/graph.hpp"

namespace mxnet_storage_test {
using namespace mxnet_fixture;
using Numbers = std::vector<int64_t>;

namespace {

// {{1, 3, 0, 2, 1}, {0, 1, 0, 0, 0}, {0, 2, 4, 5, 3}}
std::vector<Tensor> Csr() {
  return {Vector({1, 3, 2, 1, 1, 2, 4, 5, 3}), Vector<int64_t>({0, 1, 3, 4, 1, 1, 2, 3, 4}),
          Vector<int64_t>({0, 4, 5, 9}), Vector<int64_t>({3, 5})};
}
// {{1, 2, 3}, {0, 0, 0}, {0, 5, 0}, {0, 0, 0}}
std::vector<Tensor> RowSparse() {
  return {Matrix(2, 3, {1, 2, 3, 0, 5, 0}), Vector<int64_t>({0, 2}), Vector<int64_t>({4, 3})};
}
void CheckTransposedCsr(const std::vector<Tensor>& out) {
  REQUIRE(out.size() == 4);
  CHECK(out[0].ToVector<float>() == Floats{1, 3, 1, 2, 4, 2, 5, 1, 3});
  CHECK(out[1].ToVector<int64_t>() == Numbers{0, 0, 1, 2, 2, 0, 2, 0, 2});
  CHECK(out[2].ToVector<int64_t>() == Numbers{0, 1, 4, 5, 7, 9});
  CHECK(out[3].ToVector<int64_t>() == Numbers{5, 3});
}
std::string FailureOf(const std::string& op, const std::vector<Tensor>& inputs,
                      Arguments args = {}) {
  return ErrorOf([&] { Invoke(op, inputs, std::move(args)); }).what();
}

}  // namespace

TEST_CASE("a CSR matrix is transposed, with and without a state") {
  Whole library;
  for (const char* op : {"my_transposecsr", "my_state_transposecsr"}) {
    CAPTURE(op);
    CheckTransposedCsr(Invoke(op, Csr()));
  }
  const std::vector<Tensor> back = Invoke("my_transposecsr", Invoke("my_transposecsr", Csr()));
  for (size_t i = 0; i < 4; ++i) CHECK(StrCat(back[i]) == StrCat(Csr()[i]));
}

TEST_CASE("a matrix without elements is transposed") {
  Whole library;
  const std::vector<Tensor> out = Invoke(
      "my_transposecsr",
      {Vector({}), Vector<int64_t>({}), Vector<int64_t>({0, 0, 0}), Vector<int64_t>({2, 4})});
  CHECK(out.at(0).ToVector<float>().empty());
  CHECK(out.at(2).ToVector<int64_t>() == Numbers{0, 0, 0, 0, 0});
  CHECK(out.at(3).ToVector<int64_t>() == Numbers{4, 2});
}

TEST_CASE("a row-sparse matrix is transposed") {
  Whole library;
  const std::vector<Tensor> out = Invoke("my_transposerowsp", RowSparse());
  REQUIRE(out.size() == 3);
  CHECK(out[0].shape() == Shape{3, 4});
  CHECK(out[0].ToVector<float>() == Floats{1, 0, 0, 0, 2, 0, 5, 0, 3, 0, 0, 0});
  CHECK(out[1].ToVector<int64_t>() == Numbers{0, 1, 2});
  CHECK(out[2].ToVector<int64_t>() == Numbers{3, 4});
}

TEST_CASE("an operator that takes any storage takes dense tensors, unless its node says which") {
  Whole library;
  CHECK(Invoke("scale_stored", {Matrix(1, 2, {1, 2})}).at(0).ToVector<float>() == Floats{10, 20});
  CHECK(Invoke("scale_stored", {Matrix(1, 2, {1, 2})}, {{"stypes", "default"}})
            .at(0)
            .ToVector<float>() == Floats{10, 20});
  const std::vector<Tensor> csr = Invoke("scale_stored", Csr(), {{"stypes", "csr"}});
  REQUIRE(csr.size() == 4);
  CHECK(csr[0].ToVector<float>() == Floats{10, 30, 20, 10, 10, 20, 40, 50, 30});
  for (size_t i = 1; i < 4; ++i) CHECK(csr[i].ToVector<int64_t>() == Csr()[i].ToVector<int64_t>());
  const std::vector<Tensor> rows =
      Invoke("scale_stored", RowSparse(), {{"stypes", Strings{"row_sparse"}}});
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].ToVector<float>() == Floats{10, 20, 30, 0, 50, 0});
  CHECK(rows[1].ToVector<int64_t>() == Numbers{0, 2});
  CHECK(rows[2].ToVector<int64_t>() == Numbers{4, 3});
}

TEST_CASE("a storage that does not exist, or that the operator refuses, is an Error") {
  Whole library;
  CHECK(Contains(FailureOf("scale_stored", Csr(), {{"stypes", "coo"}}), "coo"));
  CHECK(Contains(FailureOf("scale_stored", Csr(), {{"stypes", Strings{"csr", "csr"}}}), "stypes"));
  CHECK(Contains(FailureOf("my_transposecsr", {Matrix(1, 2, {1, 2})}, {{"stypes", "default"}}),
                 "input 0 should be CSR"));
}

TEST_CASE("a sparse tensor that is none is refused before the library sees it") {
  Whole library;
  const auto with = [](size_t part, const Tensor& value) {
    std::vector<Tensor> in = Csr();
    in[part] = value;
    const std::string failure = FailureOf("my_transposecsr", in);
    CHECK_MESSAGE(Contains(failure, "my_transposecsr"), failure);
    return failure;
  };
  CHECK(Contains(with(1, Vector<int64_t>({0, 1, 3, 4, 1, 1, 2, 3, 5})), "index 5"));
  CHECK(Contains(with(1, Vector<int64_t>({0, 1, 3, 4, 1, 1, 2, 3, -1})), "index -1"));
  CHECK(Contains(with(1, Vector<int64_t>({0, 1})), "2 indices"));
  CHECK(Contains(with(2, Vector<int64_t>({0, 4, 9})), "indptr"));
  CHECK(Contains(with(2, Vector<int64_t>({0, 7, 5, 9})), "indptr"));
  CHECK(Contains(with(2, Vector<int64_t>({0, 4, 5, 10})), "indptr"));
  with(3, Vector<int64_t>({3}));
  with(3, Vector<int64_t>({-3, 5}));
  with(3, Vector<int64_t>({3, int64_t{1} << 40}));
  with(1, Vector<int32_t>({0, 1, 3, 4, 1, 1, 2, 3, 4}));
  std::vector<Tensor> rows = RowSparse();
  rows[1] = Vector<int64_t>({0, 4});
  CHECK(Contains(FailureOf("my_transposerowsp", rows), "index 4"));
  CheckTransposedCsr(Invoke("my_transposecsr", Csr()));
}

TEST_CASE("sparse values go from node to node of a graph") {
  Whole library;
  Graph graph;
  const Strings in{"data", "indices", "indptr", "shape"};
  graph.AddInput("data", DType::kFloat32, {Sym("N")});
  graph.AddInput("indices", DType::kInt64, {Sym("N")});
  graph.AddInput("indptr", DType::kInt64, {4});
  graph.AddInput("shape", DType::kInt64, {2});
  graph.AddNode(OperatorDef("scale_stored", in, {"d", "i", "p", "s"}).Arg("stypes", "csr"));
  graph.AddNode(OperatorDef("my_transposecsr", {"d", "i", "p", "s"}, {"D", "I", "P", "S"}));
  for (const char* output : {"D", "I", "P", "S"}) graph.AddOutput(output);
  Executor executor(Compile(graph));
  const std::vector<Tensor> csr = Csr();
  const auto out =
      executor.Run({{"data", csr[0]}, {"indices", csr[1]}, {"indptr", csr[2]}, {"shape", csr[3]}});
  CHECK(out[0].ToVector<float>() == Floats{10, 30, 10, 20, 40, 20, 50, 10, 30});
  CHECK(out[2].ToVector<int64_t>() == Numbers{0, 1, 4, 5, 7, 9});
  CHECK(out[3].ToVector<int64_t>() == Numbers{5, 3});
}

}  // namespace mxnet_storage_test

// GatherND.
#include "opkit/ops/indexing/gather_nd.hpp"

#include "../data_movement.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/ops/scatter.hpp"

namespace gather_nd_test {
using namespace opkit_tests;

namespace {

Tensor Gather(const Tensor& x, const Tensor& indices, int64_t batch = 0) {
  return Invoke("GatherND", {x, indices}, {{"batch_dims", batch}})[0];
}

TEST_CASE("slices are copied by their first indices") {
  const Tensor x = Counting({2, 2, 2});
  CHECK(FloatsOf(Gather(x, Tensor::From<int64_t>({2, 3}, {0, 1, 0, 1, 0, -1}))) == Floats{2, 5});
  const Tensor rows = Gather(x, Tensor::From<int64_t>({1, 2, 2}, {1, 1, 0, -2}));
  CHECK(rows.shape() == Shape{1, 2, 2});
  CHECK(FloatsOf(rows) == Floats{6, 7, 0, 1});
  const Tensor batches = Gather(x, Tensor::From<int64_t>({2, 1}, {1, 0}), 1);
  CHECK(batches.shape() == Shape{2, 2});
  CHECK(FloatsOf(batches) == Floats{2, 3, 4, 5});
  CHECK(FloatsOf(Gather(x, Tensor::From<int64_t>({2, 2, 1}, {1, 0, 0, 1}), 1)) ==
        Floats{2, 3, 0, 1, 4, 5, 6, 7});
  CHECK(Gather(x, Tensor(Shape{0, 1}, DType::kInt64)).shape() == Shape{0, 2, 2});
}

TEST_CASE("the shape is inferred, and indices that do not fit are refused") {
  const Known indices(DType::kInt64, {Sym("N"), 2});
  CHECK(Inferred("GatherND", {{4, 3, 5}, indices}) == "float32[N, 5]");
  CHECK(Contains(Refused("GatherND", {{4}, indices}), "no longer than the other axes"));
  CHECK(Contains(Refused("GatherND", {{4}, indices}, {{"batch_dims", 2}}),
                 "expected indices of a rank above batch_dims"));
  CHECK(Contains(Refused("GatherND", {{4, 3}, {DType::kInt64, {5, 1}}}, {{"batch_dims", 1}}),
                 "expected the same first extents"));
  CHECK(Contains(ErrorOf([] {
                   Gather(Counting({2, 3}), Tensor::From<int64_t>({1, 2}, {1, 3}));
                 }).message(),
                 "GatherND: index 3 is outside axis 1 of extent 3"));
}

TEST_CASE("the operator and its gradient keep the promises of its schema") {
  CheckNode(OperatorDef("GatherND", {"x", "i"}, {"y"}),
            {Counting({3, 2}), Tensor::From<int64_t>({3, 1}, {2, 0, 2})});
  CHECK(HasGradient("GatherND"));
}

TEST_CASE("with batch_dims there is no gradient") {
  GradientNames names;
  const OperatorDef def("GatherND", {"x", "i"}, {"y"}, {{"batch_dims", 1}});
  CHECK(Contains(ErrorOf([&] { GetGradientForOp(def, {{"dy"}}, names); }).message(),
                 "only without batch_dims"));
}

}  // namespace
}  // namespace gather_nd_test
